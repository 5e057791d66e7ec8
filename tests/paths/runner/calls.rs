//! The calls of generated contexts, made on tables that a migration changed. This is a part of the crate that has the
//! contexts, one module for each kind of set and database.

use std::collections::BTreeSet;

use sqlx::{PgPool, SqlitePool};
use uuid::Uuid;

use crate::sagents::{Expect, Revision, State};

/// An owner, by the kind of its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Nobody,
    Integer(i64),
    Text(String),
    Uuid(Uuid),
}

/// A conversation that its owner should find.
#[derive(Debug)]
pub struct Talk {
    pub id: Uuid,
    pub messages: usize,
    pub has_state: bool,
    pub next_sequence: i64,
}

/// Makes the calls of a context for one owner, who has exactly these conversations.
macro_rules! answer {
    ($layer:ident, $owner:expr, $pool:expr, $talks:expr) => {{
        use crate::$layer as layer;
        let (owner, talks): (layer::Owner, &[Talk]) = ($owner, $talks);
        let context = layer::Conversations::new($pool.clone());
        let text = |error: layer::Error| error.to_string();
        let found = context.list_conversations(&owner, layer::ListConversations::default()).await.map_err(text)?;
        let found: BTreeSet<_> = found.items.iter().map(|talk| talk.id).collect();
        same("conversations", &talks.iter().map(|talk| talk.id).collect(), &found)?;
        for Talk { id, messages, has_state, next_sequence } in talks {
            let page = layer::MessagePage::first();
            let seen = context.load_display_messages(&owner, *id, page).await.map_err(text)?;
            same("messages", messages, &seen.items.len())?;
            let new = layer::NewDisplayMessage::text(layer::Role::User, "after the change");
            let appended = context.append_display_message(&owner, *id, new).await.map_err(text)?;
            same("sequence", next_sequence, &appended.sequence)?;
            if !has_state {
                let state = State::new();
                let saved = context.save_agent_state(&owner, *id, &state, Expect::NOTHING).await.map_err(text)?;
                same("revision", &Revision(1), &saved)?;
                let loaded = context.load_agent_state(&owner, *id).await.map_err(text)?;
                same("state", &state, &loaded.state)?;
            }
            let touched = context.set_interrupted(&owner, *id, false).await.map_err(text)?;
            same("interrupted", &false, &touched.interrupted)?;
            context.delete_conversation(&owner, *id).await.map_err(text)?;
            let gone = context.get_conversation(&owner, *id).await;
            same("is gone", &true, &matches!(gone, Err(layer::Error::NotFound)))?;
        }
        Ok(())
    }};
}

macro_rules! contexts {
    ($($set:literal, $sqlite:ident, $postgres:ident, $kind:ident;)*) => {
        pub async fn on_sqlite(set: &str, pool: &SqlitePool, owner: &Owner, talks: &[Talk]) -> Result<(), String> {
            match set {
                $($set => answer!($sqlite, owner!($sqlite, $kind, owner), pool, talks),)*
                _ => Err(format!("no context for {set}")),
            }
        }

        pub async fn on_postgres(set: &str, pool: &PgPool, owner: &Owner, talks: &[Talk]) -> Result<(), String> {
            match set {
                $($set => answer!($postgres, owner!($postgres, $kind, owner), pool, talks),)*
                _ => Err(format!("no context for {set}")),
            }
        }
    };
}

macro_rules! owner {
    ($layer:ident, Nobody, $owner:expr) => {
        crate::$layer::Owner
    };
    ($layer:ident, $kind:ident, $owner:expr) => {
        match $owner {
            Owner::$kind(id) => crate::$layer::Owner::new(id.clone()),
            other => return Err(format!("{other:?} is no owner here")),
        }
    };
}

contexts! {
    "user", sqlite_user, postgres_user, Integer;
    "user_in_chat", sqlite_user_in_chat, postgres_user_in_chat, Integer;
    "team", sqlite_team, postgres_team, Uuid;
    "org_without_table", sqlite_org_without_table, postgres_org_without_table, Text;
    "none", sqlite_none, postgres_none, Nobody;
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}
