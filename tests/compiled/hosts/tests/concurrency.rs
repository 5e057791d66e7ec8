//! Many writers at once, as tasks of one process and as several processes would be: with pools of their own.

mod database;

use std::collections::BTreeSet;

use database::Database;
use matrix::conversations::{
    Conversations, MessagePage, NewConversation, NewDisplayMessage, Role, connect,
};
use matrix::scopes::{Scope, User};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_of_one_pool_leave_no_gap_and_no_tie() {
    append_from(1, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_tasks_of_each_of_four_pools_leave_no_gap_and_no_tie() {
    append_from(4, 4).await;
}

/// Every task appends messages of its own, and one that all of them have.
async fn append_from(pools: usize, tasks: usize) {
    const EACH: usize = 20;

    let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let url = database.url();
    let conversations = Conversations::new(connect(&url).await.unwrap());
    let id = conversations
        .create_conversation(&scope(), NewConversation::new())
        .await
        .unwrap()
        .id;

    let shared = NewDisplayMessage::text(Role::System, "said by all, stored once");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..pools {
        let conversations = Conversations::new(connect(&url).await.unwrap());
        for _ in 0..tasks {
            let (conversations, shared) = (conversations.clone(), shared.clone());
            writers.spawn(async move {
                let (scope, mut taken) = (scope(), Vec::new());
                for n in 0..EACH {
                    let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
                    let (own, common) = tokio::join!(
                        conversations.append_display_message(&scope, id, message),
                        conversations.append_display_message(&scope, id, shared.clone()),
                    );
                    taken.push((own.unwrap().sequence, common.unwrap().sequence));
                }
                taken
            });
        }
    }
    let taken: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let common: BTreeSet<_> = taken.iter().map(|(_, common)| *common).collect();
    assert_eq!(common.len(), 1, "everyone got the same row");
    let own: BTreeSet<_> = taken.iter().map(|(own, _)| *own).collect();
    assert_eq!(own.len(), taken.len(), "no two got the same sequence");

    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let messages = conversations
        .load_display_messages(&scope(), id, page)
        .await
        .unwrap();
    let sequences: Vec<_> = messages.items.iter().map(|row| row.sequence).collect();
    let expected: Vec<_> = (0..).take(pools * tasks * EACH + 1).collect();
    assert_eq!(sequences, expected);
}

fn scope() -> Scope {
    let name = "a".to_owned();
    Scope {
        user: User { id: 1, name },
    }
}
