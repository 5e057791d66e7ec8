//! Housekeeping while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sagents::{Expired, sqlx};
use tokio::task::{JoinSet, yield_now};

use super::{alice, append, bob, conversation, sqlite};

/// Conversations of 400 display messages and 200 messages of the agent.
const FILL: &str = "
    INSERT INTO sagents_display_messages
        (user_id, conversation_id, sequence, message_id, item, role, content_type, content, inserted_at)
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 399)
    SELECT c.user_id, c.id, n, randomblob(16), 0, 'user', 'text', 'something', c.updated_at
    FROM sagents_conversations AS c, numbers;
    INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 199)
    SELECT c.user_id, c.id, 0, n, randomblob(16), '{}' FROM sagents_conversations AS c, numbers;
    UPDATE sagents_conversations SET updated_at = '2000-01-01T00:00:00.000000Z'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_housekeeping_is_a_thousand_rows_and_not_a_thousand_conversations() {
    const OLD: usize = 40;

    let (_database, store) = sqlite().await;
    for _ in 0..OLD {
        conversation(&store, &alice()).await;
    }
    sqlx::raw_sql(FILL).execute(store.pool()).await.unwrap();
    let id = conversation(&store, &bob()).await;
    // Writers come in order: between two batches, one of those who wait has its turn.
    let appended = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..2 {
        let (store, appended) = (store.clone(), Arc::clone(&appended));
        writers.spawn(async move {
            loop {
                append(&store, &bob(), id, "elsewhere").await.unwrap();
                appended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    while appended.load(Ordering::SeqCst) == 0 {
        yield_now().await;
    }
    let before = appended.load(Ordering::SeqCst);
    let cutoff = "2001-01-01T00:00:00Z".parse().unwrap();
    let deleted = store.delete_conversations(Expired::UpdatedBefore(cutoff)).await.unwrap();
    let beside = appended.load(Ordering::SeqCst) - before;
    writers.shutdown().await;
    assert_eq!(deleted, OLD as u64);
    // Each has 600 rows and more: two of them are a batch.
    assert!(beside >= OLD / 2, "{beside} writes beside {OLD} conversations");
    let rest = "
        SELECT (SELECT count(*) FROM sagents_agent_messages)
            + (SELECT count(*) FROM sagents_display_messages WHERE user_id = 1)";
    assert_eq!(sqlx::query_scalar::<_, i64>(rest).fetch_one(store.pool()).await.unwrap(), 0);
    append(&store, &bob(), id, "still there").await.unwrap();
}
