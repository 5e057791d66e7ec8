//! How the database carries out the statements of the context: by a key, never through a table.

mod source;

use std::path::Path;

use matrix::conversations::connect;
use sqlx::Row as _;

#[tokio::test]
async fn every_statement_goes_by_a_key() {
    let pool = connect("sqlite::memory:").await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(Path::new("migrations"));
    migrator.await.unwrap().run(&pool).await.unwrap();
    let mut sorted = Vec::new();
    let statements = source::statements();
    assert!(statements.len() > 20, "{statements:#?}");
    for statement in statements {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let rows = sqlx::raw_sql(explain).fetch_all(&pool).await.unwrap();
        let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        for step in &steps {
            let scans = ["SCAN c", "SCAN m", "SCAN n", "SCAN s"]
                .iter()
                .any(|scan| step == scan || step.starts_with(&format!("{scan} ")));
            assert!(!scans, "{statement}\n{steps:#?}");
        }
        if steps.iter().any(|step| step.contains("TEMP B-TREE")) {
            sorted.push(statement.clone());
        }
        if statement.contains("max(n.sequence)") {
            let index = "USING COVERING INDEX sagents_display_messages_tool_calls";
            let uses = steps.iter().any(|step| step.contains(index));
            assert!(uses, "{statement}\n{steps:#?}");
        }
    }
    // A search has to look at everything that the owner has, and sorts what it finds.
    sorted.retain(|statement| !statement.contains("GLOB"));
    assert_eq!(sorted, [""; 0]);
}
