//! The calls for conversations, as an application's context has them: its own statements, on the pool of a store.

use std::ops::Deref;

use sagents::sqlx::{self, AssertSqlSafe, types::Json};
use sagents::values::{check_id, clean_json, clean_string};
use sagents::{
    Conversation, ConversationChanges, ConversationOrder, Error, Key, ListConversations, OwnerScope, Page, Reach,
    Result, Store, Tables, Timestamp,
};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Dereferences to its store.
#[derive(Clone)]
pub enum Conversations {
    Sqlite(sagents::sqlite::Store),
    Postgres(sagents::postgres::Store),
}

impl Deref for Conversations {
    type Target = Store;

    fn deref(&self) -> &Store {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }
}

/// A conversation to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    pub id: Uuid,
    pub title: Option<String>,
    pub metadata: Map<String, Value>,
}

impl NewConversation {
    pub fn new() -> Self {
        Self { id: Uuid::now_v7(), title: None, metadata: Map::new() }
    }

    pub fn id(self, id: Uuid) -> Self {
        Self { id, ..self }
    }

    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    pub fn metadata(self, metadata: Map<String, Value>) -> Self {
        Self { metadata, ..self }
    }
}

const COLUMNS: &str = "id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at";

/// Executes a statement that writes.
macro_rules! written {
    ($context:expr, $fetch:ident, $query:path, $sql:expr, $($value:expr),+) => {
        match $context {
            Conversations::Sqlite(store) => {
                let mut write = store.begin().await?;
                let written = $query(AssertSqlSafe($sql))$(.bind($value))+.$fetch(&mut *write).await?;
                write.commit().await?;
                written
            }
            Conversations::Postgres(store) => {
                sagents::postgres::retry(|| async {
                    Ok($query(AssertSqlSafe($sql))$(.bind($value))+.$fetch(store.pool()).await?)
                })
                .await?
            }
        }
    };
}

/// Executes a query.
macro_rules! found {
    ($context:expr, $fetch:ident, $sql:expr, $($value:expr),+) => {
        match $context {
            Conversations::Sqlite(store) => {
                sqlx::query_as(AssertSqlSafe($sql))$(.bind($value))+.$fetch(store.pool()).await?
            }
            Conversations::Postgres(store) => {
                sqlx::query_as(AssertSqlSafe($sql))$(.bind($value))+.$fetch(store.pool()).await?
            }
        }
    };
}

impl Conversations {
    pub async fn create_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        new: NewConversation,
    ) -> Result<Conversation> {
        let (table, owner_column) = names(self.tables());
        let sql = format!(
            "INSERT INTO {table} AS c ({owner_column}, id, title, scope, metadata, inserted_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6)
             ON CONFLICT ({owner_column}, id) DO UPDATE SET title = c.title
             RETURNING {COLUMNS}"
        );
        check_id(new.id)?;
        let owner = scope.owner()?;
        let (title, metadata) = (new.title.map(clean_string), clean_json(new.metadata)?);
        let created = written!(
            self,
            fetch_one,
            sqlx::query_as,
            sql.clone(),
            owner.key(),
            new.id,
            &title,
            Json(owner.to_json()),
            Json(&metadata),
            Timestamp::now()
        );
        Ok(created)
    }

    pub async fn get_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid) -> Result<Conversation> {
        let (table, owner_column) = names(self.tables());
        let sql = format!("SELECT {COLUMNS} FROM {table} WHERE {owner_column} = $1 AND id = $2");
        let owner = self.owner_of(scope, id).await?;
        let found: Option<Conversation> = found!(self, fetch_optional, sql, owner.key(), id);
        found.ok_or(Error::NotFound)
    }

    pub async fn update_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        changes: ConversationChanges,
    ) -> Result<Conversation> {
        let greatest = match self {
            Self::Sqlite(_) => "max",
            Self::Postgres(_) => "greatest",
        };
        let (table, owner_column) = names(self.tables());
        let sql = format!(
            "UPDATE {table} AS c
             SET title = CASE WHEN $3 THEN $4 ELSE c.title END,
                 metadata = coalesce($5, c.metadata),
                 archived_at = CASE $6 WHEN TRUE THEN coalesce(c.archived_at, $7) WHEN FALSE THEN NULL
                     ELSE c.archived_at END,
                 updated_at = CASE WHEN $3 OR $5 IS NOT NULL THEN {greatest}(c.updated_at, $7) ELSE c.updated_at END
             WHERE c.{owner_column} = $1 AND c.id = $2
             RETURNING {COLUMNS}"
        );
        let owner = scope.owner()?;
        let is_title = changes.title.is_some();
        let title = changes.title.flatten().map(clean_string);
        let metadata = changes.metadata.map(clean_json).transpose()?;
        let updated: Option<Conversation> = written!(
            self,
            fetch_optional,
            sqlx::query_as,
            sql.clone(),
            owner.key(),
            id,
            is_title,
            &title,
            metadata.as_ref().map(Json),
            changes.archived,
            Timestamp::now()
        );
        updated.ok_or(Error::NotFound)
    }

    pub async fn delete_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid) -> Result<()> {
        let (table, owner_column) = names(self.tables());
        let sql = format!("DELETE FROM {table} WHERE {owner_column} = $1 AND id = $2 RETURNING id");
        let owner = scope.owner()?;
        let deleted: Option<Uuid> = written!(self, fetch_optional, sqlx::query_scalar, sql.clone(), owner.key(), id);
        if deleted.is_none() {
            return Err(Error::NotFound);
        }
        self.notify(id).await;
        Ok(())
    }

    pub async fn list_conversations(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        list: ListConversations,
    ) -> Result<Page<Conversation>> {
        let (table, owner_column) = names(self.tables());
        let reach = scope.reach()?;
        let (owners, key): (_, &Key) = match &reach {
            Reach::Owner(owner) => (format!("{owner_column} = $1"), owner.key()),
            Reach::Group(group) => {
                let of = self.tables().group_of_owners().ok_or(Error::NoOwner)?;
                let members = format!("SELECT g.{} FROM {} AS g WHERE g.{} = $1", of.member, of.table, of.group);
                (format!("{owner_column} IN ({members})"), group)
            }
        };
        let is_archived = if list.archived { "IS NOT NULL" } else { "IS NULL" };
        let (after, order) = match list.order_by {
            ConversationOrder::Updated => ("(updated_at, id) < ($2, $3)", "updated_at DESC, id DESC"),
            ConversationOrder::Created => ("updated_at <= $2 AND id < $3", "id DESC"),
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM {table}
             WHERE {owners} AND archived_at {is_archived} AND {after}
             ORDER BY {order} LIMIT $4"
        );
        let ((updated_at, id), mut limit) = (list.start()?, list.rows_to_read()?);
        let cursor = |row: &Conversation| list.cursor(row.updated_at, row.id);
        loop {
            let rows: Vec<_> = found!(self, fetch_all, sql.clone(), key, updated_at, id, limit);
            if !list.is_cut(&rows, limit, cursor) {
                return Ok(Page::new(rows, list.limit, cursor));
            }
            limit *= 2;
        }
    }
}

/// The table of conversations and its owner column, in quotes.
fn names(tables: &Tables) -> (String, String) {
    (format!("\"{}conversations\"", tables.prefix()), format!("\"{}\"", tables.owner().name()))
}
