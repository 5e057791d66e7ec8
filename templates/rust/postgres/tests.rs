{% extends "rust/tests.rs" %}

{% block manner %}
//!
//! They need a server: `DATABASE_URL` names a database on it, whose role may create others.
{%- endblock %}

{% block uses %}
use std::thread;
{%- endblock %}

{% block database %}
/// A database of its own for each test; it goes away with it.
struct Database {
    conversations: {{ w.context }},
    server: PgConnectOptions,
    name: String,
}

impl Database {
    async fn new() -> Self {
        let Ok(url) = std::env::var("DATABASE_URL") else {
            panic!("set DATABASE_URL to a PostgreSQL database whose role may create databases");
        };
        let server = PgConnectOptions::from_str(&url).unwrap();
        let name = format!("{{ w.module }}_{}", Uuid::now_v7().simple());
        if let Err(error) = command(&server, "CREATE", &name).await {
            panic!("no database for the test on DATABASE_URL: {}", Error::from(error));
        }
        let pool = open(server.clone().database(&name)).await.unwrap();
        let db = Self {
            conversations: {{ w.context }}::new(pool.clone()),
            server,
            name,
        };
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
        db
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The test's own runtime cannot wait here.
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropping = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(command(&server, "DROP", &name)).map_err(std::io::Error::other)
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the database {} is left over", self.name);
        }
    }
}

/// Creates or drops a database, which takes no parameters.
async fn command(server: &PgConnectOptions, verb: &str, name: &str) -> sqlx::Result<()> {
    let force = if verb == "DROP" { "WITH (FORCE)" } else { "" };
    let mut connection = server.connect().await?;
    // sqlx takes only statements that live as long as the program.
    let statement: &'static str = format!(r#"{verb} DATABASE "{name}" {force}"#).leak();
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    connection.close().await
}
{%- endblock %}

{% block as_json %}::json{% endblock %}
