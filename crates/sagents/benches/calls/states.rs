//! Saving and loading agent states, whose messages are rows: beside the snapshot way, which keeps the same state in one
//! column, and beside the bare driver, which reads the same rows and parses none.

use std::time::{Duration, Instant};

use sagents::{Expect, Message, Revision, State, Store, serializer};
use uuid::Uuid;

use crate::hand::{ByHand, Place};
use crate::measure::{FLAT, at_most, compare, compared, header, measure, median};
use crate::{SCOPE, create_conversation, id, text};

/// How many messages of 1 KB a conversation has that gets two more, and how many times: as rows, and in one column.
const SAVED: [(usize, [usize; 2]); 3] = [(10, [200, 200]), (1_000, [200, 30]), (10_000, [200, 5])];
/// How many further saves, at most, show what is written to the write-ahead log.
const LOGGED: usize = 15;
/// How many messages are loaded, and how many times.
const LOADED: [(usize, usize); 4] = [(10, 1000), (100, 500), (1_000, 100), (10_000, 10)];

const CONVERSATIONS: usize = 5_000;

pub async fn rows<P: Place>(place: &P) {
    // Not empty, because statements would be planned for that, and those that check foreign keys.
    let (ours, hand) = &place.database("states", &vec![0; CONVERSATIONS]).await;
    two_new_messages(ours, hand).await;
    whole_states(ours, hand).await;
    loads::<P>(ours, hand).await;
}

/// How a state is stored.
#[derive(Clone, Copy)]
enum Way {
    Rows,
    /// All messages are written, however few are new.
    OneColumn,
}

/// The medians of times and of bytes in the write-ahead log.
struct Cost {
    time: Duration,
    log: u64,
}

async fn two_new_messages(ours: &Store, hand: &impl ByHand) {
    let costs = costs(ours, hand).await;
    let [(first, _), ..] = &costs[..] else { return };
    line(["two new messages in", "rows", "to 10", "log bytes", "to 10", "target", "one column", "log bytes", "ratio"]);
    println!("{}", "-".repeat(110));
    for ((messages, _), (rows, column)) in SAVED.into_iter().zip(&costs) {
        line([
            &format!("a conversation of {messages}"),
            &micros(rows.time),
            &ratio(rows.time, first.time),
            &rows.log.to_string(),
            &format!("{:.2}", rows.log as f64 / first.log as f64),
            FLAT,
            &micros(column.time),
            &column.log.to_string(),
            &ratio(rows.time, column.time),
        ]);
    }
    println!();
}

/// The lengths and the two ways take turns. Every save has two more messages than the one before: what did not change
/// would cost `SQLite` less. Long conversations grow by that; short ones are new in each round.
async fn costs(ours: &Store, hand: &impl ByHand) -> Vec<(Cost, Cost)> {
    const WAYS: [Way; 2] = [Way::Rows, Way::OneColumn];

    let mut series = Vec::new();
    for (messages, rounds) in SAVED {
        for (way, rounds) in WAYS.into_iter().zip(rounds) {
            let rounds = at_most(rounds, 2);
            let conversation = Conversation::new(ours, hand, way, messages).await;
            series.push(Series { messages, rounds, conversation, times: Vec::new(), logs: Vec::new() });
        }
    }
    hand.settle().await;
    let longest = series.iter().map(Series::length).max().unwrap_or(0);
    for round in 0..=longest {
        for series in series.iter_mut().filter(|series| round <= series.length()) {
            series.save(round, ours, hand).await;
        }
    }
    let mut costs =
        series.into_iter().map(|Series { times, logs, .. }| Cost { time: median(times), log: median(logs) });
    std::iter::from_fn(|| costs.next().zip(costs.next())).collect()
}

/// The saves of one length in one way.
struct Series {
    messages: usize,
    rounds: usize,
    conversation: Conversation,
    times: Vec<Duration>,
    logs: Vec<u64>,
}

impl Series {
    /// How many rounds it has, behind one to warm up.
    fn length(&self) -> usize {
        self.rounds + LOGGED.min(self.rounds)
    }

    async fn save(&mut self, round: usize, ours: &Store, hand: &impl ByHand) {
        if self.messages < 1_000 {
            self.conversation = Conversation::new(ours, hand, self.conversation.way, self.messages).await;
        }
        self.conversation.state.add_messages(state(2).messages);
        if round > self.rounds {
            self.logs.push(hand.logged(self.conversation.save(ours, hand)).await);
            return;
        }
        let start = Instant::now();
        self.conversation.save(ours, hand).await;
        if round > 0 {
            self.times.push(start.elapsed());
        }
    }
}

/// A conversation with the state that was saved in it last.
struct Conversation {
    id: Uuid,
    way: Way,
    state: State,
    revision: i64,
}

impl Conversation {
    async fn new(ours: &Store, hand: &impl ByHand, way: Way, messages: usize) -> Self {
        let id = create_conversation(ours).await;
        let mut conversation = Self { id, way, state: state(messages), revision: 0 };
        conversation.save(ours, hand).await;
        conversation
    }

    async fn save(&mut self, ours: &Store, hand: &impl ByHand) {
        self.revision = match self.way {
            Way::Rows => save_rows(ours, self.id, &self.state, self.revision).await,
            Way::OneColumn => save_column(hand, self.id, &self.state, self.revision).await,
        };
    }
}

async fn save_rows(ours: &Store, id: Uuid, state: &State, expected: i64) -> i64 {
    let expect = Expect::Revision(Revision(expected));
    ours.save_agent_state(&SCOPE, id, state, expect).await.unwrap().0
}

async fn save_column(hand: &impl ByHand, id: Uuid, state: &State, expected: i64) -> i64 {
    hand.save_snapshot(id, &serializer::to_text(state).unwrap(), expected).await
}

/// The first save of a state has all of it to write.
async fn whole_states(ours: &Store, hand: &impl ByHand) {
    hand.settle().await;
    header(["first save of a state", "rows", "one column", "ratio", "target"]);
    compare(
        "save_agent_state, 10 messages",
        "",
        async |_| (create_conversation(ours).await, state(10)),
        async |(id, state)| save_rows(ours, id, &state, 0).await,
        async |(id, state)| save_column(hand, id, &state, 0).await,
    )
    .await;
    println!();
}

async fn loads<P: Place>(ours: &Store, hand: &P::Hand) {
    header(["messages to load", "ours", "bare driver", "ratio", "target"]);
    for (n, (messages, rounds)) in LOADED.into_iter().enumerate() {
        let target = if messages == 1_000 { P::LOADED } else { "" };
        let (id, state) = (id(n), &state(messages));
        ours.save_agent_state(&SCOPE, id, state, Expect::Any).await.unwrap();
        assert_eq!(ours.load_agent_state(&SCOPE, id).await.unwrap().state, *state);
        assert_eq!(hand.load_rows(id).await.len(), 1 + messages);
        let (one, other) = measure(
            rounds,
            1,
            async |_| id,
            async |id| ours.load_agent_state(&SCOPE, id).await.unwrap(),
            async |id| hand.load_rows(id).await,
        )
        .await;
        compared(&format!("load_agent_state, {messages}"), one, other, target);
    }
    println!();
}

fn state(messages: usize) -> State {
    let mut state = State::new();
    state.add_messages((0..messages).map(|n| match n % 2 {
        0 => Message::user(text(n)),
        _ => Message::assistant(text(n)),
    }));
    state
}

fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

fn ratio(one: Duration, other: Duration) -> String {
    format!("{:.2}", one.as_secs_f64() / other.as_secs_f64())
}

fn line([name, time, of_time, log, of_log, target, snapshot, snapshot_log, ratio]: [&str; 9]) {
    println!(
        "{name:<25}{time:>11}{of_time:>7}{log:>11}{of_log:>7}{target:>9}{snapshot:>17}{snapshot_log:>16}{ratio:>7}"
    );
}
