//! What a call costs must not depend on how much there is.

use my_app::conversations::{Conversations, ListConversations, MessagePage};

use crate::database::Place;
use crate::measure::{BATCH, FLAT, compare, header};
use crate::{SCOPE, id, new_message};

/// The same calls of one owner with few and with many rows. The large database is called all over.
pub async fn small_and_large(place: &Place) {
    let (few, many) = (10, 10_000);
    let small = &Conversations::new(place.database("small", &[vec![100; few], vec![0; 40]].concat()).await);
    let large = &Conversations::new(place.database("large", &vec![100; many]).await);
    let (in_small, in_large) = (|n: usize| id(n % few), |n: usize| id(n * 7919 % many));
    let (list, page) = (ListConversations::default, MessagePage::first);
    let number = async |n| n;

    header(["messages in the database", "1,000,000", "1,000", "ratio", "target"]);
    compare(
        "get_conversation",
        FLAT,
        number,
        async |n| large.get_conversation(&SCOPE, in_large(n)).await.unwrap(),
        async |n| small.get_conversation(&SCOPE, in_small(n)).await.unwrap(),
    )
    .await;
    compare(
        "list_conversations, 50",
        FLAT,
        number,
        async |_| large.list_conversations(&SCOPE, list()).await.unwrap(),
        async |_| small.list_conversations(&SCOPE, list()).await.unwrap(),
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
pub async fn short_and_long(place: &Place) {
    let pool = &place.database("long", &[10_000, 10]).await;
    let ours = &Conversations::new(pool.clone());
    // Before every turn both have their length again.
    let trimmed = async |n: usize| {
        if n.is_multiple_of(BATCH) {
            let trim = "DELETE FROM sagents_display_messages
                        WHERE sequence >= CASE conversation_id WHEN $1 THEN 10 ELSE 10000 END";
            sqlx::query(trim).bind(id(1)).execute(pool).await.unwrap();
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
