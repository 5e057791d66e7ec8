//! Many who append at once, each to a conversation of its own or all to the same.

use std::time::Duration;

use sagents::Store;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::hand::{ByHand, Place};
use crate::measure::{header, measure, row};
use crate::{SCOPE, id, new_message};

/// How many write, in how many conversations.
const WRITERS: [(usize, usize, &str); 5] = [
    (1, 1, "1 writer"),
    (8, 8, "8 writers, own conversations"),
    (8, 1, "8 writers, one conversation"),
    (32, 32, "32 writers, own conversations"),
    (32, 1, "32 writers, one conversation"),
];
/// How many turns a side has, and how many messages all writers append in one.
const ROUNDS: usize = 30;
const APPENDS: usize = 320;

pub async fn beside_hand(place: &impl Place) {
    // Not empty, because statements would be planned for that.
    let (ours, hand) = &place.database("writers", &[100; 32]).await;
    header(["appends per second", "ours", "by hand", "ratio", "target"]);
    for (writers, conversations, name) in WRITERS {
        let conversation = |writer: usize| id(writer % conversations);
        let (one, other) = measure(
            ROUNDS,
            1,
            async |_| APPENDS / writers,
            async |count| together(writers, |writer| append(ours.clone(), conversation(writer), count)).await,
            async |count| together(writers, |writer| append_by_hand(hand.clone(), conversation(writer), count)).await,
        )
        .await;
        compared(name, one, other);
    }
    println!();
}

/// Waits until every writer, each a task of its own, is done.
async fn together<F>(writers: usize, write: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: JoinSet<()> = (0..writers).map(write).collect();
    tasks.join_all().await;
}

async fn append(ours: Store, conversation_id: Uuid, count: usize) {
    for _ in 0..count {
        ours.append_display_message(&SCOPE, conversation_id, new_message()).await.unwrap();
    }
}

async fn append_by_hand(hand: impl ByHand, conversation_id: Uuid, count: usize) {
    for _ in 0..count {
        hand.append(conversation_id, vec![new_message()]).await;
    }
}

/// More is better here: the bound is 1 / 1.15.
fn compared(name: &str, one: Duration, other: Duration) {
    let rate = |time: Duration| format!("{:.0}", APPENDS as f64 / time.as_secs_f64());
    let ratio = format!("{:.2}", other.as_secs_f64() / one.as_secs_f64());
    row([name, &rate(one), &rate(other), &ratio, ">= 0.87"]);
}
