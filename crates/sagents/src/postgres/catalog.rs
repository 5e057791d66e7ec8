//! The tables as `PostgreSQL` describes them.

use std::collections::BTreeMap;

use sqlx::Row as _;

use super::Driver;
use crate::Result;
use crate::check::{FoundColumn, FoundForeignKey, FoundTable};

/// Of tables with one name in several schemas, only the one that statements find is visible.
const COLUMNS: &str = "
    SELECT c.relname::text AS table_name, a.attname::text AS name, format_type(a.atttypid, NULL) AS type,
           NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' AS is_optional
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relkind IN ('r', 'p') AND starts_with(c.relname, $1::text) AND pg_table_is_visible(c.oid)
      AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum";

const INDEXES: &str = "
    SELECT c.relname::text AS table_name, n.relname::text AS name, i.indisprimary AS is_primary,
           i.indisunique AND i.indpred IS NULL AS is_unique,
           ARRAY(
               SELECT pg_get_indexdef(i.indexrelid, k, TRUE) FROM generate_series(1, i.indnkeyatts) AS k ORDER BY k
           ) AS columns
    FROM pg_class AS c
    JOIN pg_index AS i ON i.indrelid = c.oid
    JOIN pg_class AS n ON n.oid = i.indexrelid
    WHERE starts_with(c.relname, $1::text) AND pg_table_is_visible(c.oid)";

const FOREIGN_KEYS: &str = "
    SELECT c.relname::text AS table_name, p.relname::text AS parent, f.confdeltype = 'c' AS cascades,
           ARRAY(
               SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY AS k (number, place)
               JOIN pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = k.number ORDER BY k.place
           ) AS columns,
           ARRAY(
               SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY AS k (number, place)
               JOIN pg_attribute AS a ON a.attrelid = f.confrelid AND a.attnum = k.number ORDER BY k.place
           ) AS parent_columns
    FROM pg_class AS c
    JOIN pg_constraint AS f ON f.conrelid = c.oid AND f.contype = 'f'
    JOIN pg_class AS p ON p.oid = f.confrelid
    WHERE starts_with(c.relname, $1::text) AND pg_table_is_visible(c.oid)";

impl Driver {
    /// The tables whose names start with the prefix.
    pub(crate) async fn found_tables(&self) -> Result<BTreeMap<String, FoundTable>> {
        let mut tables: BTreeMap<String, FoundTable> = BTreeMap::new();
        for row in sqlx::query(COLUMNS).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            table.columns.push(FoundColumn {
                name: row.try_get("name")?,
                kind: row.try_get("type")?,
                is_optional: row.try_get("is_optional")?,
            });
        }
        for row in sqlx::query(INDEXES).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            let columns: Vec<String> = row.try_get("columns")?;
            let columns = columns.into_iter().map(|column| column.trim_matches('"').to_owned());
            if row.try_get("is_primary")? {
                table.primary_key = columns.collect();
            } else if row.try_get("is_unique")? {
                table.unique.push(columns.collect());
            }
            table.indexes.push(row.try_get("name")?);
        }
        for row in sqlx::query(FOREIGN_KEYS).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            table.foreign_keys.push(FoundForeignKey {
                columns: row.try_get("columns")?,
                table: row.try_get("parent")?,
                references: row.try_get("parent_columns")?,
                cascades: row.try_get("cascades")?,
            });
        }
        Ok(tables)
    }

    /// Executes several statements that have no parameters.
    pub(crate) async fn execute_script(&self, statements: String) -> Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&self.pool).await?;
        Ok(())
    }
}
