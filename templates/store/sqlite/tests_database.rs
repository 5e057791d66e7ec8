//! A database for each test, with only these tables in it{% if stand_in.is_some() %} and a stand-in for the owner's table{% endif %}.

use std::ops::Deref;
use std::path::PathBuf;

{% if owner.is_some() -%}
{% endif -%}
use uuid::Uuid;
{% if owner.is_some() %}
use super::super::store::now;
{%- endif %}
use super::super::{{ '{' }}{{ context }}, {% if group.is_some() %}Group, {% endif %}NewConversation, Owner, connect};

/// What creates the tables.
const MIGRATION: &str = {{ migration }};

/// Agent states that cannot be read.
pub(super) const DAMAGED: [&str; 5] = [
    "not JSON",
    "[]",
    r#"{"version":2}"#,
    r#"{"version":2,"state":{"messages":[1]}}"#,
    r#"{"version":3,"state":{}}"#,
];
{%- match owner %}
{%- when Some(owner) %}

pub(super) fn alice() -> Owner {
    Owner::new({{ owner.alice }})
}

pub(super) fn bob() -> Owner {
    Owner::new({{ owner.bob }})
}
{%- when None %}

pub(super) fn alice() -> Owner {
    Owner
}
{%- endmatch %}
{%- if let Some(group) = group %}

pub(super) fn group() -> Group {
    Group::new({{ group.ours }})
}

pub(super) fn other_group() -> Group {
    Group::new({{ group.other }})
}
{%- endif %}

/// Its files are removed when it is dropped.
pub(super) struct Database {
    pub(super) conversations: {{ context }},
    directory: PathBuf,
}

impl Database {
    pub(super) async fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("{{ module }}-{}", Uuid::now_v7()));
        std::fs::create_dir(&directory).unwrap();
        let url = format!("sqlite:{}", directory.join("test.db").display());
        let pool = connect(&url).await.unwrap();
{%- if let Some(stand_in) = stand_in %}
        let stand_in = {{ stand_in.create }};
        sqlx::raw_sql(stand_in).execute(&pool).await.unwrap();
{%- endif %}
{%- if let Some(group) = group %}
{%- if let Some(create) = group.create %}
        let memberships = r#"{{ create }}"#;
        sqlx::raw_sql(memberships).execute(&pool).await.unwrap();
{%- endif %}
{%- endif %}
        sqlx::raw_sql(MIGRATION).execute(&pool).await.unwrap();
{%- if let Some(stand_in) = stand_in %}
        for owner in [alice(), bob()] {
            let insert = sqlx::query({{ stand_in.insert }}).bind(owner.id());
            insert.execute(&pool).await.unwrap();
        }
{%- endif %}
        Self {
            conversations: {{ context }}::new(pool),
            directory,
        }
    }

    /// The id of a new conversation of Alice's.
    pub(super) async fn conversation(&self) -> Uuid {
        let new = NewConversation::new();
        let created = self.create_conversation(&alice(), new).await;
        created.unwrap().id
    }
{%- if let Some(group) = group %}

    /// Lets an owner join a group.
    pub(super) async fn join(&self, group: &Group, owner: &Owner) {
        const JOIN: &str = r#"{{ group.join }}"#;

        let join = sqlx::query(JOIN).bind(group.id()).bind(owner.id());
        join.execute(&self.store.pool).await.unwrap();
    }

    /// Lets an owner leave a group.
    pub(super) async fn leave(&self, group: &Group, owner: &Owner) {
        const LEAVE: &str = r#"{{ group.leave }}"#;

        let leave = sqlx::query(LEAVE).bind(group.id()).bind(owner.id());
        leave.execute(&self.store.pool).await.unwrap();
    }
{%- endif %}
{%- if let Some(owner) = owner %}

    /// Inserts a state without asking who owns the conversation.
    pub(super) async fn insert_state(&self, owner: &Owner, id: Uuid) -> sqlx::Result<()> {
        const INSERT: &str = r#"
            INSERT INTO {{ agent_states }}
                (conversation_id, version, revision, write_id, data, inserted_at, updated_at, {{ owner.column }})
            VALUES ($1, 2, 1, $1, '{}', $2, $2, $3)"#;

        let insert = sqlx::query(INSERT).bind(id).bind(now());
        insert.bind(owner.id()).execute(&self.store.pool).await.map(drop)
    }
{%- endif %}

    /// Replaces the data of the only state.
    pub(super) async fn replace_state(&self, data: &str) {
        const UPDATE: &str = r#"UPDATE {{ agent_states }} SET data = $1"#;

        let update = sqlx::query(UPDATE).bind(data).execute(&self.store.pool);
        assert_eq!(update.await.unwrap().rows_affected(), 1);
    }

    /// Stores what an earlier version of this code would have set aside, for the only state.
    pub(super) async fn set_aside_by_earlier_version(&self, data: &str) {
        const UPDATE: &str = r#"UPDATE {{ agent_states }} SET unreadable_data = $1"#;

        let update = sqlx::query(UPDATE).bind(data).execute(&self.store.pool);
        assert_eq!(update.await.unwrap().rows_affected(), 1);
    }

    /// What an earlier version of this code does to the only state to restore what it has set aside.
    pub(super) async fn restore_by_earlier_version(&self) {
        const UPDATE: &str = r#"
            UPDATE {{ agent_states }}
            SET data = unreadable_data, unreadable_data = data, revision = revision + 1, write_id = $1"#;

        let update = sqlx::query(UPDATE).bind(Uuid::now_v7());
        let updated = update.execute(&self.store.pool).await.unwrap();
        assert_eq!(updated.rows_affected(), 1);
    }

    /// Marks the messages of agent states that are stored now.
    pub(super) async fn mark_messages(&self) {
        const UPDATE: &str = r#"UPDATE {{ agent_messages }} SET message_id = $1"#;

        let update = sqlx::query(UPDATE).bind(Uuid::nil());
        update.execute(&self.store.pool).await.unwrap();
    }

    /// The positions of the messages that were written since.
    pub(super) async fn written_messages(&self) -> Vec<i32> {
        const SELECT: &str = r#"
            SELECT position FROM {{ agent_messages }} WHERE message_id <> $1 ORDER BY position"#;

        let select = sqlx::query_scalar(SELECT).bind(Uuid::nil());
        select.fetch_all(&self.store.pool).await.unwrap()
    }

    /// Replaces a message of the only state.
    pub(super) async fn replace_message(&self, position: i32, data: &str) {
        const UPDATE: &str = r#"UPDATE {{ agent_messages }} SET data = $2 WHERE position = $1"#;

        let update = sqlx::query(UPDATE).bind(position).bind(data);
        let updated = update.execute(&self.store.pool).await.unwrap();
        assert_eq!(updated.rows_affected(), 1);
    }

    /// Deletes a message of the only state.
    pub(super) async fn delete_message(&self, position: i32) {
        const DELETE: &str = r#"DELETE FROM {{ agent_messages }} WHERE position = $1"#;

        let delete = sqlx::query(DELETE).bind(position);
        let deleted = delete.execute(&self.store.pool).await.unwrap();
        assert_eq!(deleted.rows_affected(), 1);
    }
}

impl Deref for Database {
    type Target = {{ context }};

    fn deref(&self) -> &{{ context }} {
        &self.conversations
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // On failure the files stay in the system's directory for temporary files.
        std::fs::remove_dir_all(&self.directory).unwrap_or_default();
    }
}
