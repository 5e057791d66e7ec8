//! Saving and loading agent states, whose messages are rows: beside the snapshot way, which keeps the same state in one
//! column, beside the code of the first version, which did that, and beside the bare driver, which reads the same rows and
//! parses none.

use std::time::{Duration, Instant};

use my_app::conversations::Conversations;
use my_app::sagents::{Expect, Message, Revision, State, serializer};
use uuid::Uuid;

use crate::database::{ByHand, Place, logged, settle};
use crate::landed::Landed;
use crate::measure::{FLAT, compare, compared, header, measure, median};
use crate::{SCOPE, id, new_conversation, text};

/// How many messages of 1 KB a conversation has that gets two more, and how many times: as rows, and in one column.
const SAVED: [(usize, [usize; 2]); 3] = [(10, [200, 200]), (1_000, [200, 30]), (10_000, [200, 5])];
/// How many further saves, at most, show what is written to the write-ahead log.
const LOGGED: usize = 15;
/// How many messages are loaded, how many times, and the target.
#[cfg(feature = "postgres")]
const LOADED: [(usize, usize, &str); 4] = [(10, 1000, ""), (100, 500, ""), (1_000, 100, "<= 1.50"), (10_000, 10, "")];
#[cfg(feature = "sqlite")]
const LOADED: [(usize, usize, &str); 4] = [(10, 1000, ""), (100, 500, ""), (1_000, 100, "<= 2.50"), (10_000, 10, "")];

const CONVERSATIONS: usize = 5_000;

pub async fn rows(place: &Place) {
    // Not empty, because statements would be planned for that, and those that check foreign keys.
    let pool = place.database("states", &[0; CONVERSATIONS]).await;
    let (ours, hand) = (&Conversations::new(pool.clone()), &ByHand(pool));
    two_new_messages(ours, hand).await;
    whole_states(ours, hand).await;
    beside_landed(place).await;
    loads(ours, hand).await;
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

async fn two_new_messages(ours: &Conversations, hand: &ByHand) {
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
async fn costs(ours: &Conversations, hand: &ByHand) -> Vec<(Cost, Cost)> {
    const WAYS: [Way; 2] = [Way::Rows, Way::OneColumn];

    let mut series = Vec::new();
    for (messages, rounds) in SAVED {
        for (way, rounds) in WAYS.into_iter().zip(rounds) {
            let conversation = Conversation::new(ours, hand, way, messages).await;
            series.push(Series { messages, rounds, conversation, times: Vec::new(), logs: Vec::new() });
        }
    }
    settle(&hand.0).await;
    let longest = series.iter().map(Series::length).max().unwrap_or(0);
    for round in 0..=longest {
        for series in series.iter_mut().filter(|series| round <= series.length()) {
            series.save(round, ours, hand).await;
        }
    }
    let mut costs = series.into_iter().map(|Series { times, logs, .. }| Cost { time: median(times), log: median(logs) });
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

    async fn save(&mut self, round: usize, ours: &Conversations, hand: &ByHand) {
        if self.messages < 1_000 {
            self.conversation = Conversation::new(ours, hand, self.conversation.way, self.messages).await;
        }
        self.conversation.state.add_messages(state(2).messages);
        if round > self.rounds {
            self.logs.push(logged(&hand.0, self.conversation.save(ours, hand)).await);
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
    async fn new(ours: &Conversations, hand: &ByHand, way: Way, messages: usize) -> Self {
        let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
        let mut conversation = Self { id, way, state: state(messages), revision: 0 };
        conversation.save(ours, hand).await;
        conversation
    }

    async fn save(&mut self, ours: &Conversations, hand: &ByHand) {
        self.revision = match self.way {
            Way::Rows => save_rows(ours, self.id, &self.state, self.revision).await,
            Way::OneColumn => save_column(hand, self.id, &self.state, self.revision).await,
        };
    }
}

async fn save_rows(ours: &Conversations, id: Uuid, state: &State, expected: i64) -> i64 {
    let expect = Expect::Revision(Revision(expected));
    ours.save_agent_state(&SCOPE, id, state, expect).await.unwrap().0
}

async fn save_column(hand: &ByHand, id: Uuid, state: &State, expected: i64) -> i64 {
    hand.save_snapshot(id, &serializer::to_text(state).unwrap(), expected).await
}

/// The first save of a state has all of it to write.
async fn whole_states(ours: &Conversations, hand: &ByHand) {
    settle(&hand.0).await;
    header(["first save of a state", "rows", "one column", "ratio", "target"]);
    compare(
        "save_agent_state, 10 messages",
        "<= 1.00",
        async |_| (ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id, state(10)),
        async |(id, state)| save_rows(ours, id, &state, 0).await,
        async |(id, state)| save_column(hand, id, &state, 0).await,
    )
    .await;
    println!();
}

/// Short states beside the version before messages were rows, in two databases that are alike.
async fn beside_landed(place: &Place) {
    let landed = &Landed::new(place, CONVERSATIONS).await;
    let pool = place.database("beside_landed", &[0; CONVERSATIONS]).await;
    let (ours, hand) = (&Conversations::new(pool.clone()), &ByHand(pool));
    header(["a state of 10 messages", "rows", "landed", "ratio", "target"]);
    compare(
        "its first save",
        "<= 1.00",
        async |_| {
            let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
            let conversation = Conversation { id, way: Way::Rows, state: state(10), revision: 0 };
            (conversation, landed.conversation(10).await)
        },
        async |(mut conversation, _)| conversation.save(ours, hand).await,
        async |(_, mut saved)| landed.save(&mut saved).await,
    )
    .await;
    compare(
        "two new messages in it",
        "<= 1.00",
        async |_| {
            let mut conversation = Conversation::new(ours, hand, Way::Rows, 10).await;
            conversation.state.add_messages(state(2).messages);
            let mut saved = landed.conversation(10).await;
            landed.save(&mut saved).await;
            saved.add(2);
            (conversation, saved)
        },
        async |(mut conversation, _)| conversation.save(ours, hand).await,
        async |(_, mut saved)| landed.save(&mut saved).await,
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
    println!("{name:<25}{time:>11}{of_time:>7}{log:>11}{of_log:>7}{target:>9}{snapshot:>17}{snapshot_log:>16}{ratio:>7}");
}
