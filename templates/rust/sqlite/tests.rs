{% extends "rust/tests.rs" %}

{% block uses %}
use std::path::PathBuf;
{%- endblock %}

{% block database %}
/// A database of its own for each test; the files go away with it.
struct Database {
    conversations: {{ w.context }},
    directory: PathBuf,
}

impl Database {
    async fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("{{ w.module }}-{}", Uuid::now_v7()));
        std::fs::create_dir(&directory).unwrap();
        let url = format!("sqlite:{}", directory.join("test.db").display());
        let pool = connect(&url).await.unwrap();
{%- if let Some(stand_in) = w.stand_in %}
        sqlx::raw_sql(r#"{{ stand_in.create }}"#).execute(&pool).await.unwrap();
{%- endif %}
        for &migration in MIGRATIONS {
            sqlx::raw_sql(migration).execute(&pool).await.unwrap();
        }
{%- if let Some(stand_in) = w.stand_in %}
        for owner in [alice(), bob()] {
            sqlx::query(r#"{{ stand_in.insert }}"#).bind(owner.id()).execute(&pool).await.unwrap();
        }
{%- endif %}
        Self {
            conversations: {{ w.context }}::new(pool),
            directory,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A file that is still open elsewhere may be left over; the system's own clean-up takes it.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
{%- endblock %}

{% block no_json %}"no JSON", {% endblock %}
