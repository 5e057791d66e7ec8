//! What a call costs must not depend on how much there is.

use sagents::MessagePage;

use crate::hand::{ByHand as _, Place};
use crate::measure::{BATCH, FLAT, at_most, compare, header};
use crate::{SCOPE, id, new_message};

/// The same calls of one owner with few and with many rows. The large database is called all over.
pub async fn small_and_large(place: &impl Place) {
    let (few, many) = (10, at_most(10_000, 100));
    let (small, _) = &place.database("small", &[vec![100; few], vec![0; 40]].concat()).await;
    let (large, _) = &place.database("large", &vec![100; many]).await;
    let (in_small, in_large) = (|n: usize| id(n % few), |n: usize| id(n * 7919 % many));
    let page = MessagePage::first;
    let number = async |n| n;

    header(["messages in the database", "1,000,000", "1,000", "ratio", "target"]);
    compare(
        "load_todos",
        FLAT,
        number,
        async |n| large.load_todos(&SCOPE, in_large(n)).await.unwrap(),
        async |n| small.load_todos(&SCOPE, in_small(n)).await.unwrap(),
    )
    .await;
    compare(
        "load_display_messages, 100",
        FLAT,
        number,
        async |n| large.load_display_messages(&SCOPE, in_large(n), page()).await.unwrap(),
        async |n| small.load_display_messages(&SCOPE, in_small(n), page()).await.unwrap(),
    )
    .await;
    compare(
        "append_display_message",
        FLAT,
        number,
        async |n| large.append_display_message(&SCOPE, in_large(n), new_message()).await.unwrap(),
        async |n| small.append_display_message(&SCOPE, in_small(n), new_message()).await.unwrap(),
    )
    .await;
    println!();
}

/// Appends to conversations with few and with many messages.
pub async fn short_and_long(place: &impl Place) {
    let (ours, hand) = &place.database("long", &[10_000, 10]).await;
    // Before every turn both have their length again.
    let trimmed = async |n: usize| {
        if n.is_multiple_of(at_most(BATCH, 3)) {
            hand.trim(id(1)).await;
        }
    };
    header(["messages in the conversation", "10,000", "10", "ratio", "target"]);
    compare(
        "append_display_message",
        FLAT,
        trimmed,
        async |()| ours.append_display_message(&SCOPE, id(0), new_message()).await.unwrap(),
        async |()| ours.append_display_message(&SCOPE, id(1), new_message()).await.unwrap(),
    )
    .await;
    println!();
}
