//! A database for each test, with only these tables in it{% if stand_in.is_some() %} and a stand-in for the owner's table{% endif %}.

use std::ops::Deref;
use std::path::PathBuf;

use chrono::Utc;
use uuid::Uuid;

use super::super::store::timestamp;
use super::super::{{ '{' }}{{ context }}, Owner, connect};

/// What creates the tables.
const MIGRATION: &str = {{ migration }};

/// Agent states that cannot be read.
pub(super) const DAMAGED: [&str; 4] = [
    "not JSON",
    "[]",
    r#"{"version":2}"#,
    r#"{"version":2,"state":{"messages":[1]}}"#,
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
        let stand_in = r#"{{ stand_in.create }}"#;
        sqlx::raw_sql(stand_in).execute(&pool).await.unwrap();
{%- endif %}
        sqlx::raw_sql(MIGRATION).execute(&pool).await.unwrap();
{%- if let Some(stand_in) = stand_in %}
        for owner in [alice(), bob()] {
            let insert = sqlx::query(r#"{{ stand_in.insert }}"#).bind(owner.id());
            insert.execute(&pool).await.unwrap();
        }
{%- endif %}
        Self {
            conversations: {{ context }}::new(pool),
            directory,
        }
    }

    /// Inserts a state without asking who owns the conversation.
    pub(super) async fn insert_state(&self, owner: &Owner, id: Uuid) -> sqlx::Result<()> {
        const INSERT: &str = r#"
            INSERT INTO {{ agent_states }}
                (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner.column }}{% endif %})
            VALUES ($1, 2, 1, $1, '{}', $2, $2{% if owner.is_some() %}, $3{% endif %})"#;

        let insert = sqlx::query(INSERT).bind(id).bind(timestamp(Utc::now()));
        insert{% if owner.is_some() %}.bind(owner.id()){% endif %}.execute(&self.store.pool).await.map(drop)
    }

    /// Replaces the data of the only state.
    pub(super) async fn replace_state(&self, data: &str) {
        const UPDATE: &str = r#"UPDATE {{ agent_states }} SET data = $1"#;

        let update = sqlx::query(UPDATE).bind(data).execute(&self.store.pool);
        assert_eq!(update.await.unwrap().rows_affected(), 1);
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
