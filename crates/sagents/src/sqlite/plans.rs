//! How `SQLite` executes the statements: by keys and indexes, and without a sort where the order is that of an index.

use std::collections::BTreeSet;

use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Row as _};

use super::{Driver, connect};
use crate::check::needed;
use crate::schema::Database::Sqlite;
use crate::statement::Names;
use crate::statement::tests::{KINDS, LISTS, create};

/// Hits of a search, usage by model, and a few unfinished runs or messages.
const SORTED: [&str; 6] = ["search", "between", "of_conversation", "unfinished", "unsettled", "abandoned"];

#[tokio::test]
async fn statements_go_by_keys_and_use_every_index() {
    for tables in KINDS {
        let pool = connect("sqlite::memory:").await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(create(&tables, Sqlite))).execute(&pool).await.unwrap();
        let (driver, names) = (Driver::new(pool.clone(), tables), Names::new(tables, Sqlite));
        let mut unused: BTreeSet<_> =
            needed(&tables).tables.into_iter().flat_map(|table| table.indexes).map(|index| index.name).collect();
        let mut use_indexes = |steps: &[String]| {
            unused.retain(|index| !steps.iter().any(|step| step.contains(&format!("INDEX {index} "))));
        };
        for (name, statement) in driver.statements() {
            let steps = plan(&pool, statement.as_str()).await;
            use_indexes(&steps);
            for step in &steps {
                // Housekeeping reads all runs that haven't ended, which an index has. Virtual tables are parameters.
                let is_small =
                    ["VIRTUAL TABLE", "CONSTANT ROW", "runs_unfinished"].iter().any(|part| step.contains(part));
                // Its rows were found by a key.
                let is_materialized =
                    |table: &str| steps.iter().any(|step| step.strip_prefix("MATERIALIZE ") == Some(table));
                let is_scan = step.strip_prefix("SCAN ").is_some_and(|table| !is_materialized(table));
                assert!(!is_scan || is_small, "{name}: {steps:#?}");
                assert!(!step.contains("TEMP B-TREE") || SORTED.contains(&name), "{name}: {steps:#?}");
            }
        }
        for (index, list) in LISTS {
            let steps = plan(&pool, names.expand(list).as_str()).await;
            let (prefix, steps) = (tables.prefix(), steps.join("\n"));
            assert!(steps.contains(&format!("INDEX {prefix}conversations_{index} ")), "{list}\n{steps}");
            assert!(!steps.contains("TEMP B-TREE"), "{list}\n{steps}");
            use_indexes(&[steps]);
        }
        assert_eq!(unused, BTreeSet::new(), "{tables:?}");
    }
}

async fn plan(pool: &SqlitePool, statement: &str) -> Vec<String> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let rows = sqlx::raw_sql(explain).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}
