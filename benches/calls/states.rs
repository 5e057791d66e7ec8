//! Saving and loading agent states, whose messages are rows: beside the snapshot way, which keeps the same state in one
//! column, and beside the bare driver, which reads the same rows and parses none.

use std::hint::black_box;
use std::time::{Duration, Instant};

use my_app::conversations::Conversations;
use my_app::sagents::{Expect, Message, Revision, State, serializer};
use uuid::Uuid;

use crate::database::{ByHand, Place, logged};
use crate::measure::{FLAT, compare, compared, header, measure, median};
use crate::{SCOPE, id, new_conversation};

/// How many messages of 1 KB a conversation has that gets two more, and how many times that is measured the snapshot way.
const SAVED: [(usize, usize); 3] = [(10, 200), (1_000, 30), (10_000, 5)];
const ROUNDS: usize = 200;
/// How many saves show what is written to the write-ahead log.
const LOGGED: usize = 15;
/// How many messages are loaded, how many times, and the target.
#[cfg(feature = "postgres")]
const LOADED: [(usize, usize, &str); 4] = [(10, 1000, ""), (100, 500, ""), (1_000, 100, "<= 1.50"), (10_000, 10, "")];
#[cfg(feature = "sqlite")]
const LOADED: [(usize, usize, &str); 4] = [(10, 1000, ""), (100, 500, ""), (1_000, 100, "<= 2.50"), (10_000, 10, "")];

pub async fn rows(place: &Place) {
    let pool = place.database("states", &[0; LOADED.len()]).await;
    let (ours, hand) = (&Conversations::new(pool.clone()), &ByHand(pool));
    two_new_messages(ours, hand).await;
    whole_states(ours, hand).await;
    loads(ours, hand).await;
}

/// What saves of one kind cost: the median time, and the median of the bytes in the write-ahead log.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    log: u64,
}

async fn two_new_messages(ours: &Conversations, hand: &ByHand) {
    let rows = rows_way(ours, hand).await;
    line(["two new messages in", "rows", "to 10", "log bytes", "to 10", "target", "one column", "log bytes"]);
    println!("{}", "-".repeat(103));
    for ((messages, rounds), cost) in SAVED.into_iter().zip(&rows) {
        let snapshot = snapshot_way(ours, hand, messages, rounds).await;
        line([
            &format!("a conversation of {messages}"),
            &micros(cost.time),
            &format!("{:.2}", cost.time.as_secs_f64() / rows[0].time.as_secs_f64()),
            &cost.log.to_string(),
            &format!("{:.2}", cost.log as f64 / rows[0].log as f64),
            FLAT,
            &micros(snapshot.time),
            &snapshot.log.to_string(),
        ]);
    }
    println!();
}

/// The lengths take turns. Long conversations grow a little; short ones are new in each round.
async fn rows_way(ours: &Conversations, hand: &ByHand) -> [Cost; SAVED.len()] {
    let mut conversations = Vec::new();
    for (messages, _) in SAVED {
        conversations.push(Stored::new(ours, messages).await);
    }
    let mut times = [const { Vec::new() }; SAVED.len()];
    let mut logs = [const { Vec::new() }; SAVED.len()];
    // The first round warms up.
    for round in 0..=ROUNDS + LOGGED {
        for (n, (messages, _)) in SAVED.into_iter().enumerate() {
            let conversation = &mut conversations[n];
            if messages < 2 * ROUNDS {
                *conversation = Stored::new(ours, messages).await;
            }
            conversation.state.add_messages(state(2).messages);
            if round > ROUNDS {
                logs[n].push(logged(&hand.0, conversation.save(ours)).await);
                continue;
            }
            let start = Instant::now();
            conversation.save(ours).await;
            let time = start.elapsed();
            if round > 0 {
                times[n].push(time);
            }
        }
    }
    let (mut times, mut logs) = (times.into_iter(), logs.into_iter());
    [(); SAVED.len()].map(|()| Cost { time: median(times.next().unwrap()), log: median(logs.next().unwrap()) })
}

/// A conversation with the state that was saved in it last.
struct Stored {
    id: Uuid,
    state: State,
    revision: Revision,
}

impl Stored {
    async fn new(ours: &Conversations, messages: usize) -> Self {
        let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
        let mut stored = Self { id, state: state(messages), revision: Revision(0) };
        stored.save(ours).await;
        stored
    }

    async fn save(&mut self, ours: &Conversations) {
        let expect = Expect::Revision(self.revision);
        self.revision = ours.save_agent_state(&SCOPE, self.id, &self.state, expect).await.unwrap();
    }
}

/// Each save writes all messages, however few are new.
async fn snapshot_way(ours: &Conversations, hand: &ByHand, messages: usize, rounds: usize) -> Cost {
    let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
    let state = state(messages + 2);
    let mut times = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        save_snapshot(hand, id, &state, round).await;
        times.push(start.elapsed());
    }
    // It warmed up.
    times.remove(0);
    let mut logs = Vec::new();
    for round in 1..=3 {
        logs.push(logged(&hand.0, save_snapshot(hand, id, &state, rounds + round)).await);
    }
    Cost { time: median(times), log: median(logs) }
}

async fn save_snapshot(hand: &ByHand, id: Uuid, state: &State, expected: usize) {
    let text = serializer::to_text(state).unwrap();
    black_box(hand.save_snapshot(id, &text, expected as i64).await);
}

/// The first save of a state has all of it to write.
async fn whole_states(ours: &Conversations, hand: &ByHand) {
    header(["first save of a state", "rows", "one column", "ratio", "target"]);
    compare(
        "save_agent_state, 10 messages",
        "<= 1.00",
        async |_| (ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id, state(10)),
        async |(id, state)| ours.save_agent_state(&SCOPE, id, &state, Expect::Revision(Revision(0))).await.unwrap(),
        async |(id, state)| save_snapshot(hand, id, &state, 0).await,
    )
    .await;
    println!();
}

async fn loads(ours: &Conversations, hand: &ByHand) {
    header(["messages to load", "ours", "bare driver", "ratio", "target"]);
    for (n, (messages, rounds, target)) in LOADED.into_iter().enumerate() {
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
    let sentence = "A sentence or two of what a person would write to an agent, or \"read\" from it.\n";
    let text: String = sentence.chars().cycle().take(1024).collect();
    let mut state = State::new();
    state.add_messages((0..messages).map(|n| match n % 2 {
        0 => Message::user(&text),
        _ => Message::assistant(&text),
    }));
    state
}

fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

fn line([name, time, of_time, log, of_log, target, snapshot, snapshot_log]: [&str; 8]) {
    println!("{name:<25}{time:>11}{of_time:>7}{log:>11}{of_log:>7}{target:>9}{snapshot:>17}{snapshot_log:>16}");
}
