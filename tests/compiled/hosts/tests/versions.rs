//! Code of the first version and today's code on the same tables, as while a new release is rolled out.

use crate::database;

use database::{Database, Pool};
use landed::conversations as first;
use landed::scope::Everyone;
use matrix::notes::{
    ChangeCursor, Error, NewConversation, NewDisplayMessage, Notes, Role, connect,
};
use matrix::sagents::{Expect, Message, Revision, State};
use uuid::Uuid;

#[tokio::test]
async fn the_first_version_reads_what_it_wrote_itself() {
    let both = Both::new().await;
    let id = both.conversation().await;
    let mut state = first_state(&["one"]);
    let mut expect = landed::sagents::Expect::NOTHING;
    for text in ["two", "three"] {
        state.add_message(landed::sagents::Message::user(text));
        let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
        expect = landed::sagents::Expect::Revision(saved.await.unwrap());
        let loaded = both.first.load_agent_state(&Everyone, id).await.unwrap();
        assert_eq!(loaded.state, state);
    }
}

#[tokio::test]
async fn what_the_first_version_wrote_becomes_rows_with_the_next_save() {
    let both = Both::new().await;
    let id = both.conversation().await;
    let expect = landed::sagents::Expect::NOTHING;
    let state = first_state(&["one", "two"]);
    let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
    saved.await.unwrap();

    let mut loaded = both.today.load_agent_state(&scope(), id).await.unwrap();
    assert_eq!(
        (texts(&loaded.state), both.rows().await),
        ("one two".to_owned(), 0)
    );
    loaded.state.add_message(Message::user("three"));
    let expect = Expect::Revision(loaded.revision);
    let saved = both.save(id, &loaded.state, expect);
    assert_eq!(saved.await.unwrap(), Revision(2));
    let again = both.today.load_agent_state(&scope(), id).await.unwrap();
    assert_eq!(again.state, loaded.state);
    assert_eq!(
        (texts(&again.state), both.rows().await),
        ("one two three".to_owned(), 3)
    );
}

#[tokio::test]
async fn the_first_version_refuses_rows_and_never_overwrites_them() {
    let both = Both::new().await;
    let id = both.conversation().await;
    // It saved once, and works with that state.
    let mut theirs = first_state(&["one"]);
    let expect = landed::sagents::Expect::NOTHING;
    let saved = both.first.save_agent_state(&Everyone, id, &theirs, expect);
    let expected = saved.await.unwrap();
    let mut loaded = both.today.load_agent_state(&scope(), id).await.unwrap();
    loaded.state.add_message(Message::user("two"));
    let expect = Expect::Revision(loaded.revision);
    let saved = both.save(id, &loaded.state, expect);
    let revision = saved.await.unwrap();

    let future = landed::sagents::ReadError::FutureVersion { version: 3 };
    let is_future = |error: first::Error| matches!(error, first::Error::DeserializationFailed(error) if error == future);
    let refused = both.first.load_agent_state(&Everyone, id).await;
    assert!(is_future(refused.unwrap_err()));
    let refused = both.first.load_todos(&Everyone, id).await;
    assert!(is_future(refused.unwrap_err()));
    let context = landed::sagents::LoadContext::new(id);
    let fresh = landed::sagents::State::new();
    let refused = landed::sagents::State::load_or_new(&both.first, &Everyone, &context, fresh);
    assert!(is_future(refused.await.unwrap_err()));
    theirs.add_message(landed::sagents::Message::user("lost"));
    let expect = landed::sagents::Expect::Any;
    let refused = both.first.save_agent_state(&Everyone, id, &theirs, expect);
    assert!(is_future(refused.await.unwrap_err()));
    let expect = landed::sagents::Expect::Revision(expected);
    let refused = both
        .first
        .save_agent_state(&Everyone, id, &theirs, expect)
        .await;
    assert!(
        matches!(refused, Err(first::Error::Conflict { .. })),
        "{refused:?}"
    );

    let again = both.today.load_agent_state(&scope(), id).await.unwrap();
    assert_eq!((again.state, again.revision), (loaded.state, revision));
}

#[tokio::test]
async fn what_the_first_version_set_aside_is_listed_restored_and_discarded() {
    let both = Both::new().await;
    let (restored, discarded) = (both.conversation().await, both.conversation().await);
    for id in [restored, discarded] {
        let state = first_state(&["one"]);
        let expect = landed::sagents::Expect::NOTHING;
        let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
        saved.await.unwrap();
        both.run("UPDATE agent_states SET data = '[]' WHERE unreadable_data IS NULL")
            .await;
        let expect = landed::sagents::Expect::Any;
        let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
        saved.await.unwrap();
        let aside = both.today.list_unreadable(&scope(), id).await.unwrap();
        let aside: Vec<_> = aside.iter().map(|state| state.epoch).collect();
        assert_eq!(aside, [-1]);
        let data = both.today.load_unreadable(&scope(), id, -1).await.unwrap();
        assert_eq!((&*data.header, data.messages.len()), (&b"[]"[..], 0));
    }

    // It does not block today's code.
    both.run("UPDATE agent_states SET data = '[1]'").await;
    let mut state = State::new();
    state.add_message(Message::user("new"));
    let saved = both.save(restored, &state, Expect::Any);
    saved.await.unwrap();
    both.today
        .restore_unreadable(&scope(), restored, -1)
        .await
        .unwrap();
    let refused = both.today.load_agent_state(&scope(), restored).await;
    assert!(
        matches!(refused, Err(Error::DeserializationFailed(_))),
        "{refused:?}"
    );
    let aside = both
        .today
        .list_unreadable(&scope(), restored)
        .await
        .unwrap();
    let aside: Vec<_> = aside.iter().map(|state| state.epoch).collect();
    assert_eq!(aside, [0, 1]);
    both.today
        .restore_unreadable(&scope(), restored, 1)
        .await
        .unwrap();
    let loaded = both
        .today
        .load_agent_state(&scope(), restored)
        .await
        .unwrap();
    assert_eq!(loaded.state, state);

    both.today
        .discard_unreadable(&scope(), discarded, -1)
        .await
        .unwrap();
    let aside = both
        .today
        .list_unreadable(&scope(), discarded)
        .await
        .unwrap();
    assert_eq!(aside, []);
}

#[tokio::test]
async fn rows_that_the_first_version_exchanges_for_what_it_set_aside_are_kept() {
    let both = Both::new().await;
    let id = both.conversation().await;
    for expect in [
        landed::sagents::Expect::NOTHING,
        landed::sagents::Expect::Any,
    ] {
        let state = first_state(&["one"]);
        let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
        saved.await.unwrap();
        both.run("UPDATE agent_states SET data = '[]' WHERE unreadable_data IS NULL")
            .await;
    }
    let mut loaded = both.today.load_agent_state(&scope(), id).await.unwrap();
    loaded.state.add_message(Message::user("two"));
    let expect = Expect::Revision(loaded.revision);
    both.save(id, &loaded.state, expect).await.unwrap();
    let restored = both.first.restore_unreadable(&Everyone, id).await;
    restored.unwrap();

    let refused = both.today.load_agent_state(&scope(), id).await;
    assert!(refused.is_err(), "{refused:?}");
    let saved = both.save(id, &State::new(), Expect::Any).await;
    saved.unwrap();
    let restored = both.today.restore_unreadable(&scope(), id, 0).await;
    restored.unwrap();
    let again = both.today.load_agent_state(&scope(), id).await.unwrap();
    assert_eq!(again.state, loaded.state);
}

#[tokio::test]
async fn readers_see_what_the_first_version_appends() {
    let both = Both::new().await;
    let id = both.conversation().await;
    let first = async |text: &str| {
        let message = first::NewDisplayMessage::text(first::Role::User, text);
        let appended = both.first.append_display_message(&Everyone, id, message);
        appended.await.unwrap();
    };
    let today = async |text: &str| {
        let message = NewDisplayMessage::text(Role::User, text);
        both.today
            .append_display_message(&scope(), id, message)
            .await
            .unwrap();
    };
    let read = async |after: ChangeCursor| {
        let read = both.today.changes(&scope(), id, after, 1).await.unwrap();
        let texts: Vec<_> = read.items.into_iter().map(|row| row.content).collect();
        (texts, read.next)
    };
    first("one").await;
    today("two").await;
    first("three").await;
    let (mut texts, mut cursor) = (Vec::new(), ChangeCursor::START);
    for _ in 0..3 {
        let (seen, next) = read(cursor).await;
        texts.extend(seen);
        cursor = next;
    }
    texts.sort();
    assert_eq!(texts, ["one", "three", "two"]);
    assert_eq!(read(cursor).await, (Vec::new(), cursor));
    first("four").await;
    today("five").await;
    let (seen, cursor) = read(cursor).await;
    assert_eq!(seen, ["four"]);
    assert_eq!(read(cursor).await.0, ["five"]);
}

#[tokio::test]
async fn what_the_first_version_wrote_is_exported_and_it_goes_on_with_what_is_imported() {
    let both = Both::new().await;
    let id = both.conversation().await;
    let append = async |text: &str| {
        let message = first::NewDisplayMessage::text(first::Role::User, text);
        let appended = both.first.append_display_message(&Everyone, id, message);
        appended.await.unwrap();
    };
    append("one").await;
    let expect = landed::sagents::Expect::NOTHING;
    let state = first_state(&["one"]);
    let saved = both.first.save_agent_state(&Everyone, id, &state, expect);
    saved.await.unwrap();
    let export = both.today.export_conversation(&scope(), id).await.unwrap();
    both.first.delete_conversation(&Everyone, id).await.unwrap();
    let imported = both
        .today
        .import_conversation(&scope(), export.clone())
        .await;
    assert!(imported.unwrap().created);
    let again = both.today.export_conversation(&scope(), id).await.unwrap();
    assert_eq!(again, export);
    assert_eq!(texts(&again.state.unwrap()), "one");

    append("two").await;
    let page = first::MessagePage::first();
    let shown = both.first.load_display_messages(&Everyone, id, page).await;
    let shown = shown.unwrap();
    let shown: Vec<_> = shown.iter().map(|row| &*row.content).collect();
    assert_eq!(shown, ["one", "two"]);
    let export = both.today.export_conversation(&scope(), id).await.unwrap();
    assert_eq!(export.messages.len(), 2);
}

fn first_state(texts: &[&str]) -> landed::sagents::State {
    let mut state = landed::sagents::State::new();
    state.add_messages(
        texts
            .iter()
            .map(|text| landed::sagents::Message::user(*text)),
    );
    state
}

fn texts(state: &State) -> String {
    let contents = state
        .messages
        .iter()
        .filter_map(|message| message.content.as_ref());
    let texts: Vec<_> = contents.map(matrix::sagents::Content::text).collect();
    texts.join(" ")
}

fn scope() -> matrix::notes::Everyone {
    matrix::notes::Everyone
}

/// The two versions on one database.
struct Both {
    first: first::Conversations,
    today: Notes,
    pool: Pool,
    _database: Database,
}

impl Both {
    async fn new() -> Self {
        let database = Database::migrated("").await;
        let pool = connect(&database.url()).await.unwrap();
        Self {
            first: first::Conversations::new(first::connect(&database.url()).await.unwrap()),
            today: Notes::new(pool.clone()),
            pool,
            _database: database,
        }
    }

    async fn conversation(&self) -> Uuid {
        let new = NewConversation::new();
        let created = self.today.create_conversation(&scope(), new).await;
        created.unwrap().id
    }

    async fn save(&self, id: Uuid, state: &State, expect: Expect) -> Result<Revision, Error> {
        self.today
            .save_agent_state(&scope(), id, state, expect)
            .await
    }

    async fn run(&self, statement: &'static str) {
        let run = sqlx::raw_sql(statement).execute(&self.pool);
        run.await.unwrap();
    }

    async fn rows(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM agent_messages");
        count.fetch_one(&self.pool).await.unwrap()
    }
}
