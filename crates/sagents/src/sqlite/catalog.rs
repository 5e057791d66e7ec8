//! The tables as `SQLite` describes them.

use std::collections::BTreeMap;

use sqlx::Row as _;

use super::Driver;
use crate::Result;
use crate::check::{FoundColumn, FoundForeignKey, FoundTable};

const COLUMNS: &str = "
    SELECT m.name AS table_name, c.name, lower(c.type) AS type, c.pk,
           c.pk = 0 AND (c.\"notnull\" = 0 OR c.dflt_value IS NOT NULL) AS is_optional
    FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS c
    WHERE m.type = 'table' AND m.name LIKE $1 || '%'
    ORDER BY m.name, c.pk, c.cid";

const INDEXES: &str = "
    SELECT m.name AS table_name, i.name, i.\"unique\" AND NOT i.partial AS is_unique,
           (SELECT group_concat(c.name, ',') FROM (SELECT c.name FROM pragma_index_info(i.name) AS c ORDER BY c.seqno) AS c)
               AS columns
    FROM sqlite_schema AS m, pragma_index_list(m.name) AS i
    WHERE m.type = 'table' AND m.name LIKE $1 || '%'";

/// References to a primary key may name no columns.
const FOREIGN_KEYS: &str = "
    SELECT m.name AS table_name, f.seq, f.\"table\" AS parent, f.\"from\" AS name, f.on_delete = 'CASCADE' AS cascades,
           coalesce(f.\"to\", (SELECT c.name FROM pragma_table_info(f.\"table\") AS c WHERE c.pk = f.seq + 1)) AS parent_column
    FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) AS f
    WHERE m.type = 'table' AND m.name LIKE $1 || '%'
    ORDER BY m.name, f.id, f.seq";

impl Driver {
    /// The tables whose names start with the prefix.
    pub(crate) async fn found_tables(&self) -> Result<BTreeMap<String, FoundTable>> {
        let mut tables: BTreeMap<String, FoundTable> = BTreeMap::new();
        for row in sqlx::query(COLUMNS).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            let column = FoundColumn {
                name: row.try_get("name")?,
                kind: row.try_get("type")?,
                is_optional: row.try_get("is_optional")?,
            };
            if row.try_get::<i64, _>("pk")? > 0 {
                table.primary_key.push(column.name.clone());
            }
            table.columns.push(column);
        }
        for row in sqlx::query(INDEXES).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            let columns: String = row.try_get("columns")?;
            if row.try_get("is_unique")? {
                table.unique.push(columns.split(',').map(str::to_owned).collect());
            }
            table.indexes.push(row.try_get("name")?);
        }
        for row in sqlx::query(FOREIGN_KEYS).bind(self.tables.prefix()).fetch_all(&self.pool).await? {
            let table = tables.entry(row.try_get("table_name")?).or_default();
            if row.try_get::<i64, _>("seq")? == 0 {
                table.foreign_keys.push(FoundForeignKey {
                    columns: Vec::new(),
                    table: row.try_get("parent")?,
                    references: Vec::new(),
                    cascades: row.try_get("cascades")?,
                });
            }
            if let Some(key) = table.foreign_keys.last_mut() {
                key.columns.push(row.try_get("name")?);
                key.references.push(row.try_get("parent_column")?);
            }
        }
        Ok(tables)
    }

    /// Executes several statements that have no parameters.
    pub(crate) async fn execute_script(&self, statements: String) -> Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&self.pool).await?;
        Ok(())
    }
}
