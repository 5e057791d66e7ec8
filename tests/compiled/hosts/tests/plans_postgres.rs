//! How the database carries out the statements of the context on filled tables: by a key, never through a table; and
//! every index is there for a statement.

use crate::database;
use crate::source;

use std::collections::BTreeSet;

use database::Database;
use matrix::conversations::connect;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

/// 200 owners with 50 conversations each, and 20 messages in every conversation. All rows have their parents, so nobody
/// has to look them up.
const FILL: &str = "
    SET session_replication_role = replica;
    INSERT INTO users (id, name) SELECT n, 'a' FROM generate_series(1, 200) n;
    INSERT INTO sagents_conversations (user_id, id, scope, next_sequence, inserted_at, updated_at)
    SELECT u, gen_random_uuid(), '{}', 20, now(), now() FROM generate_series(1, 200) u, generate_series(1, 50);
    INSERT INTO sagents_agent_states
        (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
    SELECT user_id, id, 2, 1, gen_random_uuid(), '{}', now(), now() FROM sagents_conversations;
    INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    SELECT user_id, id, 0, n, gen_random_uuid(), '{}' FROM sagents_conversations, generate_series(0, 19) n;
    INSERT INTO sagents_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
    SELECT user_id, id, 1, '{}', now() FROM sagents_conversations;
    INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role, content_type,
        content, tool_call_id, status, inserted_at, changed, delivery)
    SELECT user_id, id, n, gen_random_uuid(), 0, 'assistant', CASE WHEN n % 10 = 0 THEN 'tool_call' ELSE 'text' END,
        'something', CASE WHEN n % 10 = 0 THEN n::text END, CASE WHEN n % 10 = 0 THEN 'pending' END, now(), n,
        CASE WHEN n = 19 THEN 'unsaved' END
    FROM sagents_conversations, generate_series(0, 19) n;
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
async fn every_statement_goes_by_a_key_and_every_index_is_used() {
    let database = Database::migrated(FILL).await;
    let pool = connect(&database.url()).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let indexes = "SELECT indexname::text FROM pg_indexes WHERE tablename LIKE 'sagents\\_%'";
    let indexes: Vec<String> = sqlx::query_scalar(indexes)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    let mut unused: BTreeSet<_> = indexes.into_iter().collect();
    assert_eq!(unused.len(), 17, "{unused:?}");

    let mut statements = source::statements("conversations");
    assert!(statements.len() > 20, "{statements:#?}");
    // Housekeeping reads the whole table.
    statements.retain(|statement| !statement.contains("batch AS"));
    for statement in statements {
        let plan = explain(&mut connection, &statement).await;
        assert!(!plan.contains("Seq Scan on"), "{statement}\n{plan}");
        assert_lists(&statement, &plan);
        unused.retain(|index| {
            !plan.contains(&format!(" using {index} ")) && !plan.contains(&format!(" on {index} "))
        });
    }
    assert_eq!(unused, BTreeSet::new());
}

/// 400 organizations with 5 users each, and 100 clubs with 20 devices each, who have 10 conversations each.
const FILL_GROUPS: &str = "
    SET session_replication_role = replica;
    INSERT INTO \"user\" (user_id, organization_id)
    SELECT gen_random_uuid(), n % 400 FROM generate_series(1, 2000) n;
    INSERT INTO devices (id) SELECT gen_random_uuid() FROM generate_series(1, 1000);
    INSERT INTO club_devices (club, device)
    SELECT 'club ' || row_number() OVER () % 100, id FROM devices, generate_series(1, 2);
    INSERT INTO login_conversations (user_id, id, scope, inserted_at, updated_at)
    SELECT user_id, gen_random_uuid(), '{}', now(), now() FROM \"user\", generate_series(1, 10);
    INSERT INTO device_conversations (device_id, id, scope, inserted_at, updated_at)
    SELECT id, gen_random_uuid(), '{}', now(), now() FROM devices, generate_series(1, 10);
    INSERT INTO login_agent_states (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
    SELECT user_id, id, 2, 1, id, '{}', now(), now() FROM login_conversations;
    INSERT INTO device_agent_states
        (device_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
    SELECT device_id, id, 2, 1, id, '{}', now(), now() FROM device_conversations;
    INSERT INTO login_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    SELECT user_id, id, 0, n, id, '{}' FROM login_conversations, generate_series(0, 4) n;
    INSERT INTO device_agent_messages (device_id, conversation_id, epoch, position, message_id, data)
    SELECT device_id, id, 0, n, id, '{}' FROM device_conversations, generate_series(0, 4) n;
    INSERT INTO login_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
    SELECT user_id, id, 1, '{}', now() FROM login_conversations;
    INSERT INTO device_unreadable_states (device_id, conversation_id, epoch, data, set_aside_at)
    SELECT device_id, id, 1, '{}', now() FROM device_conversations;
    INSERT INTO login_runs (user_id, conversation_id, run_id, holder, status, started_at, seen_at)
    SELECT user_id, id, id, 'a', CASE WHEN id::text < '1' THEN 'running' ELSE 'finished' END, now(), now()
    FROM login_conversations;
    INSERT INTO login_display_messages (user_id, conversation_id, sequence, message_id, item, role, content_type,
        content, inserted_at, changed)
    SELECT user_id, id, n, id, n, 'user', 'text', 'something', now(), n + 1
    FROM login_conversations, generate_series(0, 4) n;
    INSERT INTO device_runs (device_id, conversation_id, run_id, holder, status, started_at, seen_at)
    SELECT device_id, id, id, 'a', CASE WHEN id::text < '1' THEN 'running' ELSE 'finished' END, now(), now()
    FROM device_conversations;
    INSERT INTO device_display_messages (device_id, conversation_id, sequence, message_id, item, role, content_type,
        content, inserted_at, changed)
    SELECT device_id, id, n, id, n, 'user', 'text', 'something', now(), n + 1
    FROM device_conversations, generate_series(0, 4) n;
    UPDATE login_conversations SET archived_at = now() WHERE id::text < '2';
    UPDATE device_conversations SET archived_at = now() WHERE id::text < '2';
    INSERT INTO login_usage (user_id, conversation_id, message_id, input_tokens, output_tokens, cached_tokens, inserted_at)
    SELECT user_id, id, gen_random_uuid(), 10, 2, 0, now() - n * interval '1 day'
    FROM login_conversations, generate_series(0, 4) n;
    INSERT INTO device_usage
        (device_id, conversation_id, message_id, input_tokens, output_tokens, cached_tokens, inserted_at)
    SELECT device_id, id, gen_random_uuid(), 10, 2, 0, now() - n * interval '1 day'
    FROM device_conversations, generate_series(0, 4) n;
    ANALYZE;";

#[tokio::test]
async fn every_statement_of_a_group_goes_by_a_key() {
    let database = Database::migrated(FILL_GROUPS).await;
    let pool = connect(&database.url()).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    for (context, index) in [
        ("logins", "login_conversations_id"),
        ("devices", "device_conversations_id"),
    ] {
        let mut statements = source::statements(context);
        statements.retain(|statement| statement.contains(" AS g"));
        assert_eq!(statements.len(), 17, "{statements:#?}");
        for statement in statements {
            let plan = explain(&mut connection, &statement).await;
            assert!(!plan.contains("Seq Scan on"), "{statement}\n{plan}");
            assert_lists(&statement, &plan);
            let is_one = statement.contains("c.id = $1");
            assert_eq!(plan.contains(index), is_one, "{statement}\n{plan}");
        }
    }
}

/// A list of conversations reads the indexes that have those of its filter, in its order.
fn assert_lists(statement: &str, plan: &str) {
    for index in source::list_indexes(statement) {
        assert!(
            plan.contains(&format!("{index} on ")),
            "{index}\n{statement}\n{plan}"
        );
    }
}

/// The plan that holds for whatever the parameters are.
async fn explain(connection: &mut PgConnection, statement: &str) -> String {
    let prepare = format!(
        "SET plan_cache_mode = force_generic_plan; DEALLOCATE ALL; PREPARE s AS {statement}"
    );
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection);
    prepared
        .await
        .unwrap_or_else(|error| panic!("{statement}\n{error}"));
    let types =
        "SELECT cardinality(parameter_types) AS n FROM pg_prepared_statements WHERE name = 's'";
    let types = sqlx::raw_sql(types)
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let nulls =
        vec!["NULL"; usize::try_from(types.get_unchecked::<i32, _>("n")).unwrap()].join(", ");
    let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE s({nulls})"));
    let rows = sqlx::raw_sql(explain)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}
