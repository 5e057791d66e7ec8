//! Saving and loading what an agent knows, beside the bare driver that is handed the same bytes and parses none.

use std::cell::Cell;

use my_app::conversations::Conversations;
use my_app::sagents::{Expect, Message, Revision, State, serializer};
use sqlx::Row as _;

use crate::database::{ByHand, Place};
use crate::measure::{compared, header, measure};
use crate::{SCOPE, id};

/// How many messages of 1 KB there are, and how many calls a side.
const SIZES: [(usize, usize); 4] = [(10, 200), (100, 100), (1_000, 30), (10_000, 5)];

pub async fn beside_bare_driver(place: &Place) {
    let pool = place.database("states", &[0; SIZES.len()]).await;
    let (ours, bare) = (&Conversations::new(pool.clone()), &ByHand(pool));
    header(["agent state, messages", "ours", "bare driver", "ratio", "bytes"]);
    for (n, (messages, rounds)) in SIZES.into_iter().enumerate() {
        let (id, state) = (id(n), &state(messages));
        let text = &serializer::to_text(state).unwrap();
        let bytes = &text.len().to_string();
        // Both sides save in the same place.
        let revision = &Cell::new(bare.save_state(id, text, 0).await);
        let loaded = bare.load_state(id).await;
        assert_eq!(loaded.try_get_unchecked::<&[u8], _>("data").unwrap(), text.as_bytes());
        assert_eq!(ours.load_agent_state(&SCOPE, id).await.unwrap().state, *state);

        let (one, other) = measure(
            rounds,
            1,
            async |_| revision.get(),
            async |expected| {
                let expected = Expect::Revision(Revision(expected));
                revision.set(ours.save_agent_state(&SCOPE, id, state, expected).await.unwrap().0);
            },
            async |expected| revision.set(bare.save_state(id, text, expected).await),
        )
        .await;
        compared(&format!("save_agent_state, {messages}"), one, other, bytes);
        let (one, other) = measure(
            rounds,
            1,
            async |_| id,
            async |id| ours.load_agent_state(&SCOPE, id).await.unwrap(),
            async |id| bare.load_state(id).await,
        )
        .await;
        compared(&format!("load_agent_state, {messages}"), one, other, bytes);
    }
    println!();
}

fn state(messages: usize) -> State {
    let sentence = "A sentence or two of what a person would write to an agent, or \"read\" from it.\n";
    let text: String = sentence.chars().cycle().take(1024).collect();
    let mut state = State::new();
    state.add_messages((0..messages).map(|n| match n % 2 {
        0 => Message::user(&text),
        _ => Message::assistant(&text),
    }));
    state
}
