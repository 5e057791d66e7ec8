//! Cuts of small conversations, and of random ones beside a slow search that knows all tool calls.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::State;

/// The agent's messages, display messages with their sequences, the tools of both, and where to cut.
type Conversation = (Vec<u128>, Vec<(i64, u128)>, Vec<ToolEntry>, Vec<ToolEntry>, Point);

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn call(at: i64, tool_call_id: &str) -> ToolEntry {
    ToolEntry { at, is_call: true, tool_call_id: tool_call_id.into() }
}

fn result(at: i64, tool_call_id: &str) -> ToolEntry {
    ToolEntry { is_call: false, ..call(at, tool_call_id) }
}

fn outline(agent: &[u128], shown: &[(i64, u128)]) -> Outline {
    Outline {
        agent: agent.iter().copied().map(id).collect(),
        shown: shown.iter().map(|(sequence, message)| (*sequence, id(*message))).collect(),
        ..Outline::default()
    }
}

/// Searches, and reads tools as a driver does. Returns how many were read, too.
fn search(outline: Outline, point: Point, agent: &[ToolEntry], shown: &[ToolEntry]) -> Result<(Place, usize)> {
    let within = |tools: &[ToolEntry], range: &Range<i64>| -> Vec<_> {
        tools.iter().filter(|tool| range.contains(&tool.at)).cloned().collect()
    };
    let (mut search, mut read) = (Search::new(outline, point)?, 0);
    loop {
        match search.step() {
            Step::AgentTools(range) => {
                let tools = within(agent, &range);
                read += tools.len();
                search.add_agent_tools(&range, tools);
            }
            Step::ShownTools(range) => {
                let tools = within(shown, &range);
                read += tools.len();
                search.add_shown_tools(&range, tools);
            }
            Step::Done(place) => return Ok((*place, read)),
        }
    }
}

#[test]
fn a_message_that_both_tables_have_is_cut_in_both() {
    let stored = || outline(&[1, 2, 3], &[(0, 1), (1, 2), (2, 2), (5, 3)]);
    let (through, _) = search(stored(), Point::Through(id(2)), &[], &[]).unwrap();
    assert_eq!((through.position, through.sequence, through.removed), (2, 3, 1));
    assert_eq!((through.cut, through.last_sequence), (Cut { last: Some(id(2)), moved: false }, Some(2)));
    let (before, _) = search(stored(), Point::Before(id(2)), &[], &[]).unwrap();
    assert_eq!((before.position, before.sequence, before.removed), (1, 1, 3));
    let (end, _) = search(stored(), Point::End, &[], &[]).unwrap();
    assert_eq!((end.position, end.removed, end.cut.last), (3, 0, Some(id(3))));
    assert!(matches!(search(stored(), Point::Before(id(9)), &[], &[]), Err(Error::NotFound)));
}

#[test]
fn a_message_that_one_table_has_is_cut_before_the_first_one_behind_it_in_the_other() {
    // 8 is only displayed, 9 is only in the state.
    let stored = || outline(&[1, 9, 2, 3], &[(0, 1), (1, 8), (2, 2), (3, 3)]);
    let (shown, _) = search(stored(), Point::Through(id(8)), &[], &[]).unwrap();
    assert_eq!((shown.position, shown.sequence), (2, 2));
    let (hidden, _) = search(stored(), Point::Before(id(9)), &[], &[]).unwrap();
    assert_eq!((hidden.position, hidden.sequence), (1, 2));
    assert_eq!(hidden.cut.last, Some(id(8)));
}

#[test]
fn a_display_message_stays_with_its_message() {
    // 3 was displayed before 2.
    let (place, _) =
        search(outline(&[1, 2, 3], &[(0, 1), (1, 3), (2, 2), (3, 7)]), Point::Through(id(2)), &[], &[]).unwrap();
    assert_eq!((place.sequence, &*place.displaced, place.removed), (3, &[1][..], 2));
    assert_eq!((place.last_sequence, place.first_removed()), (Some(2), 1));
    let (place, _) = search(outline(&[1, 2, 3], &[(0, 3), (1, 1), (2, 2)]), Point::Before(id(3)), &[], &[]).unwrap();
    assert_eq!((place.sequence, &*place.displaced, place.removed), (0, &[1, 2][..], 1));
}

#[test]
fn the_cut_moves_before_a_call_whose_result_would_go() {
    let shown = [(0, 1), (1, 2), (2, 3), (3, 4)];
    let agent_tools = [call(1, "a"), result(2, "a")];
    let (place, _) = search(outline(&[1, 2, 3, 4], &shown), Point::Before(id(3)), &agent_tools, &[]).unwrap();
    assert_eq!((place.position, place.sequence), (1, 1));
    assert_eq!(place.cut, Cut { last: Some(id(1)), moved: true });
    // The same without an agent state.
    let (place, _) = search(outline(&[], &shown), Point::Before(id(3)), &[], &agent_tools).unwrap();
    assert_eq!((place.sequence, place.cut), (1, Cut { last: Some(id(1)), moved: true }));
}

#[test]
fn a_model_may_use_an_id_again() {
    let tools = [call(0, "a"), result(1, "a"), call(2, "a"), result(3, "a")];
    let stored = || outline(&[1, 2, 3, 4], &[(0, 1), (1, 2), (2, 3), (3, 4)]);
    let (place, read) = search(stored(), Point::Through(id(2)), &tools, &tools).unwrap();
    assert_eq!((place.position, place.cut.moved), (2, false));
    assert_eq!(read, 4, "the calls before the cut aren't read");
    let (place, _) = search(stored(), Point::Through(id(3)), &tools, &tools).unwrap();
    assert_eq!((place.position, place.cut), (2, Cut { last: Some(id(2)), moved: true }));
}

#[test]
fn a_call_that_stays_and_waits_is_found() {
    let stored = || Outline { waiting: vec![2], ..outline(&[], &[(0, 1), (2, 2), (3, 3)]) };
    assert!(search(stored(), Point::Through(id(2)), &[], &[]).unwrap().0.is_waiting);
    assert!(!search(stored(), Point::Before(id(2)), &[], &[]).unwrap().0.is_waiting);
}

#[test]
fn the_agents_messages_must_be_those_of_the_header() {
    let header = HeaderState { state: State::new(), count: 2 };
    let read = |messages: &[(i64, u128)]| {
        let messages = messages.iter().map(|(position, message)| (*position, id(*message))).collect();
        Outline::agent_messages(Some(&header), messages)
    };
    assert_eq!(read(&[(1, 8), (0, 9)]), Ok(vec![id(9), id(8)]));
    assert!(read(&[(0, 9)]).unwrap_err().to_string().contains("expected 2 rows, found 1"));
    assert!(read(&[(0, 9), (2, 8)]).unwrap_err().to_string().contains("state.messages[1]"));
    assert_eq!(Outline::agent_messages(None, Vec::new()), Ok(Vec::new()));
}

/// A slow search: which positions and sequences stay.
fn slow(outline: &Outline, point: Point, agent: &[ToolEntry], shown: &[ToolEntry]) -> (usize, Vec<i64>, bool) {
    let (mut id, mut stays, mut moved) = match point {
        Point::End => return (outline.agent.len(), outline.shown.iter().map(|row| row.0).collect(), false),
        Point::Through(id) => (id, true, false),
        Point::Before(id) => (id, false, false),
    };
    let agent_rows: Vec<(i64, Uuid)> = (0..).zip(outline.agent.iter().copied()).collect();
    let places = |rows: &[(i64, Uuid)], id: Uuid| -> Vec<i64> {
        rows.iter().filter(|row| row.1 == id).map(|row| row.0).collect()
    };
    let (mut position, mut sequence) = (i64::MAX, i64::MAX);
    loop {
        let at = |places: Vec<i64>| {
            let mut places = places.into_iter();
            if stays { places.next_back().map(|place| place + 1) } else { places.next() }
        };
        let (own_position, own_sequence) = (at(places(&agent_rows, id)), at(places(&outline.shown, id)));
        let first_behind = |rows: &[(i64, Uuid)], others: &[(i64, Uuid)], from: Option<i64>| {
            let is_behind =
                |id: Uuid| from.is_some_and(|from| others.iter().any(|other| other.1 == id && other.0 >= from));
            rows.iter().filter(|row| is_behind(row.1)).map(|row| row.0).min()
        };
        let next_position = own_position.or_else(|| first_behind(&agent_rows, &outline.shown, own_sequence));
        let next_sequence = own_sequence.or_else(|| first_behind(&outline.shown, &agent_rows, own_position));
        position = position.min(next_position.unwrap_or(i64::MAX));
        sequence = sequence.min(next_sequence.unwrap_or(i64::MAX));
        let kept = |(at, id): (i64, Uuid)| match places(&agent_rows, id).into_iter().max() {
            Some(last) => last < position,
            None => at < sequence,
        };
        let kept: Vec<i64> = outline.shown.iter().filter(|row| kept(**row)).map(|row| row.0).collect();
        let is_open = |id: &str| {
            let first = |is_call| {
                let behind = agent.iter().filter(|tool| tool.at >= position && tool.tool_call_id == id);
                behind.filter(|tool| tool.is_call == is_call).map(|tool| tool.at).min()
            };
            first(false).is_some_and(|result| first(true).is_none_or(|call| result < call))
        };
        let newest = |id: &str| {
            let before = agent.iter().filter(|tool| tool.at < position && tool.is_call && tool.tool_call_id == id);
            before.map(|tool| tool.at).max()
        };
        let open = agent.iter().filter(|tool| is_open(&tool.tool_call_id));
        let in_state = open.filter_map(|tool| newest(&tool.tool_call_id)).min();
        let gone = shown.iter().filter(|tool| !tool.is_call && !kept.contains(&tool.at));
        let answered = gone.filter_map(|result| {
            let calls = shown.iter().filter(|tool| tool.is_call && tool.tool_call_id == result.tool_call_id);
            calls.filter(|call| call.at < result.at).map(|call| call.at).max()
        });
        let in_display = answered.filter(|call| kept.contains(call)).min();
        let message = |rows: &[(i64, Uuid)], at: i64| rows.iter().find(|row| row.0 == at).map(|row| row.1);
        let separated = in_state.and_then(|at| message(&agent_rows, at));
        match separated.or_else(|| in_display.and_then(|at| message(&outline.shown, at))) {
            Some(call) => (id, stays, moved) = (call, false, true),
            None => {
                let staying = agent_rows.iter().filter(|row| row.0 < position).count();
                return (staying, kept, moved);
            }
        }
    }
}

/// Messages from a few ids, so that they repeat, are in another order, or in one table only.
fn conversations() -> impl Strategy<Value = Conversation> {
    let tool = |at: std::ops::Range<i64>| {
        (at, any::<bool>(), "[abc]").prop_map(|(at, is_call, tool_call_id)| ToolEntry { at, is_call, tool_call_id })
    };
    let point = prop_oneof![
        1 => Just(Point::End),
        4 => (0..10_u128).prop_map(|message| Point::Through(id(message))),
        4 => (0..10_u128).prop_map(|message| Point::Before(id(message))),
    ];
    let agent = prop_oneof![
        Just((0..8).collect::<Vec<u128>>()),
        Just((0..8).collect::<Vec<u128>>()).prop_shuffle(),
        vec(0..10_u128, 0..8),
    ];
    let shown = vec((1..3_i64, 0..10_u128), 0..12).prop_map(|rows| {
        let mut next = -1;
        rows.into_iter()
            .map(|(gap, message)| {
                next += gap;
                (next, message)
            })
            .collect::<Vec<_>>()
    });
    (agent, shown, vec(tool(0..8), 0..8), vec(tool(0..16), 0..8), point).prop_map(
        |(agent, shown, mut agent_tools, mut shown_tools, point)| {
            agent_tools.retain(|tool| usize::try_from(tool.at).is_ok_and(|at| at < agent.len()));
            // A display message is one call or one result.
            shown_tools.retain(|tool| shown.iter().any(|row| row.0 == tool.at));
            shown_tools.sort_by_key(|tool| tool.at);
            shown_tools.dedup_by_key(|tool| tool.at);
            (agent, shown, agent_tools, shown_tools, point)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_search_finds_the_cut_of_a_slow_one((agent, shown, agent_tools, shown_tools, point) in conversations()) {
        let stored = outline(&agent, &shown);
        let expected = slow(&stored, point, &agent_tools, &shown_tools);
        match search(outline(&agent, &shown), point, &agent_tools, &shown_tools) {
            Err(error) => {
                let is_known = |id: &Uuid| stored.agent.contains(id) || stored.shown.iter().any(|row| row.1 == *id);
                prop_assert!(matches!(error, Error::NotFound));
                prop_assert!(matches!(point, Point::Through(id) | Point::Before(id) if !is_known(&id)));
            }
            Ok((place, _)) => {
                let stays = |sequence: i64| (sequence < place.sequence) != place.displaced.contains(&sequence);
                let kept: Vec<_> = stored.shown.iter().copied().filter(|row| stays(row.0)).collect();
                let sequences = kept.iter().map(|row| row.0).collect();
                let position = usize::try_from(place.position).unwrap();
                prop_assert_eq!((position, sequences, place.cut.moved), expected);
                prop_assert_eq!(place.removed, (stored.shown.len() - kept.len()) as u64);
                prop_assert_eq!(place.last_sequence, kept.last().map(|row| row.0));
            }
        }
    }
}
