//! What a database says of its tables, up to the order of their columns.

use std::collections::BTreeMap;

use crate::database::Session;
use crate::rows::TABLES;
use crate::sets::Database;

#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    /// By table and name: type, default, whether it may be empty.
    columns: BTreeMap<String, BTreeMap<String, String>>,
    /// Keys, checks, indexes, properties and what else there is, as lines.
    rest: Vec<String>,
}

impl Catalogue {
    /// Of all that is there, so that nothing is left behind unnoticed.
    pub async fn read(session: &Session) -> Self {
        let (columns, rest) = match session.database() {
            Database::Sqlite => (SQLITE_COLUMNS, SQLITE),
            Database::Postgres => (POSTGRES_COLUMNS, POSTGRES),
        };
        let mut catalogue = Self { columns: BTreeMap::new(), rest: Vec::new() };
        for row in session.query(columns).await {
            let [table, column, definition] = <[String; 3]>::try_from(row).unwrap();
            catalogue.columns.entry(table).or_default().insert(column, definition);
        }
        catalogue.rest = session.query(rest).await.into_iter().flatten().collect();
        if session.database() == Database::Sqlite {
            for row in session.query("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql <> ''").await {
                catalogue.rest.extend(checks(&row[1]).into_iter().map(|check| format!("{}: check {check}", row[0])));
            }
        }
        catalogue.rest.sort();
        catalogue
    }

    pub fn columns(&self, table: &str) -> Vec<&str> {
        self.columns[table].keys().map(String::as_str).collect()
    }

    /// The definition of a column.
    pub fn column(&self, table: &str, column: &str) -> &str {
        &self.columns[table][column]
    }

    /// Without the columns that may be empty and that no fresh install has: those of former owners.
    pub fn without_retired(&self) -> Self {
        let mut catalogue = self.clone();
        for (table, columns) in &mut catalogue.columns {
            columns.retain(|column, _| !self.is_retired(table, column));
        }
        catalogue
    }

    pub fn is_retired(&self, table: &str, column: &str) -> bool {
        const NULLABLE: [&str; 7] =
            ["title", "tool_call_id", "status", "delivery", "waiting_for", "archived_at", "model"];
        let is_ours = TABLES.iter().any(|name| table.ends_with(name));
        is_ours && self.column(table, column).ends_with(" optional") && !NULLABLE.contains(&column)
    }
}

const SQLITE_COLUMNS: &str = r#"
    SELECT t.name, c.name, c.type || ' ' || coalesce('DEFAULT ' || c.dflt_value, '') || ' key ' || c.pk
        || iif(c."notnull", ' required', ' optional')
    FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c WHERE t.type = 'table'
"#;

const SQLITE: &str = r#"
    -- The indexes of keys have numbers for names.
    SELECT type || ' ' || name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_autoindex%'
    UNION ALL
    SELECT name || iif(wr, ': without rowid ', ': ') || iif(strict, 'strict', '') FROM pragma_table_list
    WHERE schema = 'main'
    UNION ALL
    SELECT t.name || ': foreign key ' || (
        SELECT group_concat(k."from" || ' -> ' || k."to", ', ')
        FROM (SELECT * FROM pragma_foreign_key_list(t.name) WHERE id = f.id ORDER BY seq) AS k
    ) || ' ' || f."table" || ' ' || f.on_delete || ' ' || f.on_update
    FROM sqlite_schema AS t, pragma_foreign_key_list(t.name) AS f WHERE t.type = 'table' AND f.seq = 0
    UNION ALL
    SELECT t.name || ': index ' || iif(i.origin = 'c', i.name, i.origin) || iif(i."unique", ' unique (', ' (') || (
        SELECT group_concat(k.name || iif(k.desc, ' desc ', ' ') || k.coll, ', ')
        FROM (SELECT * FROM pragma_index_xinfo(i.name) WHERE key ORDER BY seqno) AS k
    ) || ')' || coalesce((
        SELECT substr(s.sql, instr(s.sql, 'WHERE')) FROM sqlite_schema AS s
        WHERE s.name = i.name AND instr(s.sql, 'WHERE') > 0
    ), '')
    FROM sqlite_schema AS t, pragma_index_list(t.name) AS i WHERE t.type = 'table'
"#;

/// The conditions of a `CREATE TABLE`.
fn checks(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(start) = rest.find("CHECK (") {
        let condition = &rest[start + "CHECK (".len()..];
        let mut depth = 1;
        let end = condition.find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let end = end.expect("parentheses are closed");
        found.push(condition[..end].to_owned());
        rest = &condition[end..];
    }
    found
}

const POSTGRES_COLUMNS: &str = "
    SELECT relname::text, attname::text, format_type(atttypid, atttypmod) || ' '
        || coalesce('DEFAULT ' || pg_get_expr(adbin, adrelid), '')
        || ' compression ' || attcompression::text || CASE WHEN attnotnull THEN ' required' ELSE ' optional' END
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
";

const POSTGRES: &str = "
    SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace
    UNION ALL
    -- Newer servers have a constraint for what is required, which is told with the column.
    SELECT conrelid::regclass || ': ' || conname || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'
    UNION ALL
    SELECT replace(pg_get_indexdef(indexrelid), current_schema() || '.', '') || ' ' || indisvalid
    FROM pg_index JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = current_schema()::regnamespace
";
