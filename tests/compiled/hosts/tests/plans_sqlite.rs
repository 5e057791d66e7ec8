//! How the database carries out the statements of the context: by a key, never through a table.

use crate::source;

use std::collections::BTreeMap;
use std::path::Path;

use matrix::conversations::connect;
use sqlx::Row as _;

#[tokio::test]
async fn every_statement_goes_by_a_key() {
    let pool = connect("sqlite::memory:").await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(Path::new("migrations"));
    migrator.await.unwrap().run(&pool).await.unwrap();
    let mut sorted = Vec::new();
    let mut lists = BTreeMap::new();
    // Those of groups by a column of the owner's table, and by a table of memberships, too.
    let contexts = ["conversations", "logins", "devices"].map(source::statements);
    for statements in &contexts {
        assert!(statements.len() > 20, "{statements:#?}");
    }
    for statement in contexts.concat() {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let rows = sqlx::raw_sql(explain).fetch_all(&pool).await.unwrap();
        let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        for step in &steps {
            let scans = [
                "SCAN c", "SCAN d", "SCAN g", "SCAN m", "SCAN n", "SCAN r", "SCAN s",
            ]
            .iter()
            .any(|scan| step == scan || step.starts_with(&format!("{scan} ")));
            // Rows of a parameter.
            let scans = scans && !step.contains("VIRTUAL TABLE");
            assert!(!scans, "{statement}\n{steps:#?}");
        }
        if steps.iter().any(|step| step.contains("TEMP B-TREE")) {
            sorted.push(statement.clone());
        }
        if statement.contains("m.delivery IN ('draft', 'unsaved')") {
            let uses = steps
                .iter()
                .any(|step| step.contains("_display_messages_unsettled"));
            assert!(uses, "{statement}\n{steps:#?}");
        }
        for index in source::list_indexes(&statement) {
            let uses = steps.iter().any(|step| step.contains(&format!("{index} ")));
            assert!(uses, "{index}\n{statement}\n{steps:#?}");
            *lists.entry(index).or_insert(0) += 1;
        }
        if statement.contains("max(n.sequence)") {
            let is_index = |step: &&String| step.contains("_display_messages_tool_calls");
            let uses = steps
                .iter()
                .find(is_index)
                .is_some_and(|step| step.contains("USING COVERING INDEX"));
            assert!(uses, "{statement}\n{steps:#?}");
        }
    }
    // Of three contexts and two groups: both directions, and by update those of all, too.
    let counts = [
        ("active", 20),
        ("active_id", 10),
        ("archived", 20),
        ("archived_id", 10),
    ];
    let counts = counts.map(|(name, count)| (format!("_conversations_{name}"), count));
    assert_eq!(lists, BTreeMap::from(counts));
    // A search has to look at everything that the owner has, and sorts what it finds. Statements for groups sort the
    // members of one, and those who have a conversation with the same id. Usage is grouped by model. Where a
    // conversation is cut depends on all its messages.
    let sorts = ["GLOB", " AS g", "GROUP BY u.model", "result_ids AS"];
    sorted.retain(|statement| !sorts.iter().any(|part| statement.contains(part)));
    assert_eq!(sorted, [""; 0]);
}
