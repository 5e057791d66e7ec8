//! Searches that take long, and are given up, while others work.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use matrix::conversations::{
    ConversationChanges, Conversations, MessagePage, NewConversation, NewDisplayMessage, Role,
    SearchPage, connect,
};
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use super::{ALICE, BOB, USERS};
use crate::database::Database;

/// 40 messages of a megabyte.
const FILL: &str = "
    INSERT INTO sagents_display_messages
        (user_id, conversation_id, sequence, message_id, item, role, content_type, content, inserted_at)
    SELECT 1, $1, n, gen_random_uuid(), 0, 'user', 'text', repeat('1', 1000000), now()
    FROM generate_series(1, 40) n";

async fn filled(layer: &Conversations, url: &str) -> Uuid {
    let new = NewConversation::new();
    let id = layer.create_conversation(&ALICE, new).await.unwrap().id;
    let pool = connect(url).await.unwrap();
    sqlx::query(FILL).bind(id).execute(&pool).await.unwrap();
    id
}

/// A text that is found almost everywhere, and nowhere.
fn hostile() -> String {
    "1".repeat(199) + "2"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_of_one_owner_do_not_slow_down_another() {
    const ROUNDS: usize = 4;
    const CALLS: usize = 25;

    let database = Database::migrated(USERS).await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    filled(&layer, &database.url()).await;
    let new = NewConversation::new();
    let other = layer.create_conversation(&BOB, new).await.unwrap().id;
    let call = async || {
        let began = Instant::now();
        let message = NewDisplayMessage::text(Role::User, "elsewhere");
        let append = layer.append_display_message(&BOB, other, message);
        append.await.unwrap();
        let page = MessagePage::last();
        let page = layer.load_display_messages(&BOB, other, page).await;
        page.unwrap();
        began.elapsed()
    };

    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (mut usual, mut attacked) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            usual.push(call().await);
        }
        let mut searches = JoinSet::new();
        for _ in 0..16 {
            let layer = layer.clone();
            searches.spawn(async move {
                loop {
                    let (text, page) = (hostile(), SearchPage::first());
                    let search = layer.search_messages(&ALICE, &text, page);
                    let given_up = timeout(Duration::from_millis(300), search).await;
                    if let Ok(found) = given_up {
                        assert_eq!(found.unwrap().items, []);
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..CALLS {
            attacked.push(call().await);
        }
        searches.shutdown().await;
        // One of another owner does not wait for them.
        let search = layer.search_messages(&BOB, "ELSE", SearchPage::first());
        assert!(!search.await.unwrap().items.is_empty());
        ratios.push(median(attacked).as_secs_f64() / median(usual).as_secs_f64());
    }
    // What else the machine does touches some of the rounds.
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    println!("times as long beside searches: {ratios:.2?}");
    assert!(least < 2.0, "{ratios:?}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// What the pool of an application allows a statement, and what a search is allowed with it.
#[tokio::test]
async fn a_search_has_a_limit_of_its_own_unless_the_pool_has_a_lower_one() {
    // A reader of the messages notes what holds then.
    const OBSERVE: &str = "
        CREATE TABLE noted (setting TEXT);
        CREATE FUNCTION note() RETURNS boolean VOLATILE LANGUAGE sql AS $$
            INSERT INTO noted VALUES (current_setting('statement_timeout')) RETURNING true $$;
        INSERT INTO users (id, name) VALUES (1, 'a');
        ALTER TABLE sagents_display_messages RENAME TO observed;
        CREATE VIEW sagents_display_messages AS SELECT * FROM observed WHERE note()";

    let database = Database::migrated(OBSERVE).await;
    for (options, expected) in [("", "10s"), ("10min", "10s"), ("2500ms", "2500ms")] {
        let url = match options {
            "" => database.url(),
            limit => with_limit(&database.url(), limit),
        };
        let pool = PgPoolOptions::new().max_connections(1).connect(&url).await;
        let pool = pool.unwrap();
        let layer = Conversations::new(pool.clone());
        let new = NewConversation::new();
        let id = layer.create_conversation(&ALICE, new).await.unwrap().id;
        let insert = "
            INSERT INTO observed
                (user_id, conversation_id, sequence, message_id, item, role, content_type, content, inserted_at)
            VALUES (1, $1, 0, $1, 0, 'user', 'text', 'hello', now())";
        sqlx::query(insert).bind(id).execute(&pool).await.unwrap();
        let search = layer.search_messages(&ALICE, "hello", SearchPage::first());
        assert!(!search.await.unwrap().items.is_empty());
        let noted = sqlx::query_scalar("DELETE FROM noted RETURNING setting");
        let mut noted: Vec<String> = noted.fetch_all(&pool).await.unwrap();
        noted.dedup();
        assert_eq!(noted, [expected], "{options}");
        let after: String = sqlx::query_scalar("SHOW statement_timeout")
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(after, if options.is_empty() { "0" } else { options });
    }
}

#[tokio::test]
async fn a_search_that_takes_too_long_ends_with_a_hint() {
    let database = Database::migrated(USERS).await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    filled(&layer, &database.url()).await;
    let hasty = connect(&with_limit(&database.url(), "50ms")).await.unwrap();
    let hasty = Conversations::new(hasty);
    let error = hasty
        .search_messages(&ALICE, &hostile(), SearchPage::first())
        .await
        .unwrap_err();
    assert!(
        error.hint().is_some_and(|hint| hint.contains("search")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_transaction_open() {
    let database = Database::migrated(USERS).await;
    let url = database.url();
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await;
    let (layer, other) = (
        Conversations::new(pool.unwrap()),
        Conversations::new(connect(&url).await.unwrap()),
    );
    let new = NewConversation::new();
    let id = layer.create_conversation(&ALICE, new).await.unwrap().id;
    for polls in 1..16 {
        let search = layer.search_messages(&ALICE, "hello", SearchPage::first());
        poll(search, polls).await;
        poll(layer.discard_unreadable(&ALICE, id, 0), polls).await;
        let title = polls.to_string();
        let changes = ConversationChanges::default().title(&title);
        let update = layer.update_conversation(&ALICE, id, changes);
        update.await.unwrap();
        let seen = other.get_conversation(&ALICE, id).await.unwrap();
        assert_eq!(seen.title.as_ref(), Some(&title));
    }
}

/// Gives up a call as soon as it was polled so often.
async fn poll<T>(call: impl Future<Output = T>, mut polls: u32) {
    let mut call = pin!(call);
    poll_fn(|context| {
        polls -= 1;
        match call.as_mut().poll(context) {
            Poll::Pending if polls > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

fn with_limit(url: &str, limit: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}options[statement_timeout]={limit}")
}
