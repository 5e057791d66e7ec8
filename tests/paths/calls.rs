//! The library's calls on tables that a migration changed.

use sagents::sqlx::{PgPool, SqlitePool};
use sagents::{
    DisplayMessage, Expect, MessagePage, NewDisplayMessage, Owner, Page, Revision, Role, State, Store, Tables, testing,
};
use uuid::Uuid;

use crate::moves::{Result, same};

/// A conversation that its owner should find.
#[derive(Debug)]
pub struct Talk {
    pub id: Uuid,
    pub messages: usize,
    pub has_state: bool,
    pub next_sequence: i64,
}

pub enum Place<'a> {
    Sqlite(&'a SqlitePool),
    Postgres(&'a PgPool),
}

impl Place<'_> {
    fn store(&self, tables: &Tables) -> Store {
        match *self {
            Self::Sqlite(pool) => (*sagents::sqlite::Store::new(pool.clone(), tables)).clone(),
            Self::Postgres(pool) => (*sagents::postgres::Store::new(pool.clone(), tables)).clone(),
        }
    }

    /// The library accepts the tables.
    pub async fn check(&self, tables: &Tables) -> Result<()> {
        testing::check_tables(&self.store(tables)).await.map_err(|error| error.to_string())
    }

    /// Makes the calls for one owner, who has these conversations.
    pub async fn call(&self, tables: &Tables, owner: &Owner, talks: &[Talk]) -> Result<()> {
        let store = self.store(tables);
        for talk in talks {
            call(&store, owner, talk).await.map_err(|error| format!("calls for {owner:?}: {error}"))?;
        }
        Ok(())
    }
}

async fn call(store: &Store, owner: &Owner, talk: &Talk) -> Result<()> {
    let text = |error: sagents::Error| error.to_string();
    let Talk { id, messages, has_state, next_sequence } = *talk;
    let seen: Page<DisplayMessage> =
        store.load_display_messages(owner, id, MessagePage::first()).await.map_err(text)?;
    same("messages", &messages, &seen.items.len())?;
    let new = NewDisplayMessage::text(Role::User, "after the change");
    let appended: DisplayMessage = store.append_display_message(owner, id, new).await.map_err(text)?;
    same("sequence", &next_sequence, &appended.sequence)?;
    if !has_state {
        let state = State::new();
        let saved = store.save_agent_state(owner, id, &state, Expect::NOTHING).await.map_err(text)?;
        same("revision", &Revision(1), &saved)?;
        let loaded = store.load_agent_state(owner, id).await.map_err(text)?;
        same("state", &state, &loaded.state)?;
    }
    store.set_interrupted(owner, id, false).await.map(drop).map_err(text)
}
