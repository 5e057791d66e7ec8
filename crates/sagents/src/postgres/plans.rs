//! How `PostgreSQL` executes the statements on filled tables: by keys and indexes, never through a whole table.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::{Driver, connect};
use crate::schema::Database::Postgres;
use crate::statement::Names;
use crate::statement::tests::{KINDS, LISTS, create};

/// 200 owners with 50 conversations each, 10 messages in every conversation, and 2000 groups with 5 members each.
const FILL: &str = "
    SET session_replication_role = replica;
    INSERT INTO members (org_id, member) SELECT n / 5, 1 + n % 200 FROM generate_series(1, 10000) n;
    INSERT INTO sagents_conversations (user_id, id, scope, next_sequence, inserted_at, updated_at)
    SELECT u, gen_random_uuid(), '{}', 10, now(), now() FROM generate_series(1, 200) u, generate_series(1, 50);
    INSERT INTO sagents_agent_states
        (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
    SELECT user_id, id, 2, 1, gen_random_uuid(), '{}', now(), now() FROM sagents_conversations;
    INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    SELECT user_id, id, 0, n, gen_random_uuid(), '{}' FROM sagents_conversations, generate_series(0, 9) n;
    INSERT INTO sagents_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
    SELECT user_id, id, 1, '{}', now() FROM sagents_conversations;
    INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role, content_type,
        content, tool_call_id, status, inserted_at, changed, delivery)
    SELECT user_id, id, n, gen_random_uuid(), 0, 'assistant', CASE WHEN n % 10 = 0 THEN 'tool_call' ELSE 'text' END,
        'something', CASE WHEN n % 10 = 0 THEN n::text END, CASE WHEN n % 10 = 0 THEN 'pending' END, now(), n,
        CASE WHEN n = 9 THEN 'unsaved' END
    FROM sagents_conversations, generate_series(0, 9) n;
    INSERT INTO sagents_runs (user_id, conversation_id, run_id, holder, status, started_at, seen_at)
    SELECT user_id, id, id, 'a', CASE WHEN id::text < '1' THEN 'running' ELSE 'finished' END, now(), now()
    FROM sagents_conversations;
    UPDATE sagents_conversations SET archived_at = now() WHERE id::text < '2';
    INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
        inserted_at)
    SELECT user_id, conversation_id, message_id, 'a', 10, 2, 0, now() - sequence * interval '1 day'
    FROM sagents_display_messages;
    ANALYZE;";

#[tokio::test]
async fn statements_go_by_keys_and_use_every_index() {
    let (tables, database) = (KINDS[0], crate::test_server::Database::new());
    let pool = connect(&database.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(create(&tables, Postgres))).execute(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    sqlx::raw_sql(FILL).execute(&mut *connection).await.unwrap();
    let indexes = "SELECT indexname::text FROM pg_indexes WHERE tablename LIKE 'sagents\\_%'";
    let indexes: Vec<String> = sqlx::query_scalar(indexes).fetch_all(&mut *connection).await.unwrap();
    let mut unused: BTreeSet<_> = indexes.into_iter().collect();
    let mut use_indexes = |plan: &str| {
        unused.retain(|index| !plan.contains(&format!(" using {index} ")) && !plan.contains(&format!(" on {index} ")));
    };

    let (driver, names) = (Driver::new(pool.clone(), tables), Names::new(tables, Postgres));
    for (name, statement) in driver.statements() {
        let plan = plan(&mut connection, statement.as_str()).await;
        use_indexes(&plan);
        assert!(!plan.contains("Seq Scan on"), "{name}\n{plan}");
    }
    for (index, list) in LISTS {
        // `PostgreSQL` chooses the index itself.
        let lines = list.lines().map(|line| line.split(" INDEXED BY").next().unwrap_or(line));
        let list = lines.collect::<Vec<_>>().join("\n");
        let plan = plan(&mut connection, names.expand(&list).as_str()).await;
        assert!(plan.contains(&format!(" using sagents_conversations_{index} on ")), "{list}\n{plan}");
        assert!(!plan.contains("Sort"), "{list}\n{plan}");
        use_indexes(&plan);
    }
    assert_eq!(unused, BTreeSet::new());
    drop(connection);
    pool.close().await;
}

/// The plan for all values of the parameters.
async fn plan(connection: &mut PgConnection, statement: &str) -> String {
    let prepare = format!("SET plan_cache_mode = force_generic_plan; DEALLOCATE ALL; PREPARE s AS {statement}");
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await;
    prepared.unwrap_or_else(|error| panic!("{statement}\n{error}"));
    let count = "SELECT cardinality(parameter_types) AS n FROM pg_prepared_statements WHERE name = 's'";
    let count: i32 = sqlx::raw_sql(count).fetch_one(&mut *connection).await.unwrap().get_unchecked("n");
    let nulls = vec!["NULL"; usize::try_from(count).unwrap()].join(", ");
    let explain = if nulls.is_empty() { "EXPLAIN EXECUTE s".to_owned() } else { format!("EXPLAIN EXECUTE s({nulls})") };
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect::<Vec<String>>().join("\n")
}
