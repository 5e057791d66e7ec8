//! Rows of the host's own tables, for tests.

use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::schema::Database::Postgres;
use crate::statement::Names;
use crate::testing::CREATE_CONVERSATION;
use crate::{Error, Key, Owner, Result, Timestamp};

const REFERENCED: &str = "
    SELECT n.nspname || '.' || t.relname, b.attname::text
    FROM pg_constraint AS f
    JOIN pg_class AS t ON t.oid = f.confrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
    JOIN pg_attribute AS b ON b.attrelid = f.confrelid AND b.attnum = f.confkey[1]
    WHERE f.contype = 'f' AND f.conrelid = to_regclass($1) AND a.attname = $2 AND cardinality(f.conkey) = 1";

const IS_UNIQUE: &str = "
    SELECT EXISTS (
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts = 1
          AND a.attname = $2
    )";

/// Statements that remove the constraints of a table, except for those on these columns alone.
const RELAX: &str = "
    SELECT format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', c.conrelid::regclass, c.conname)
    FROM pg_constraint AS c
    WHERE c.conrelid = to_regclass($1) AND c.contype IN ('c', 'f', 'p', 'u', 'x') AND NOT (
        SELECT array_agg(a.attname::text) FROM pg_attribute AS a
        WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
    ) <@ $2::text[]
    UNION ALL
    SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', a.attrelid::regclass, a.attname)
    FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attname <> ALL ($2::text[])";

impl Driver {
    pub(crate) async fn create_conversation(&self, owner: &Owner, id: Uuid) -> Result<()> {
        let create = Names::new(self.tables, Postgres).expand(CREATE_CONVERSATION);
        sqlx::query(&create)
            .bind(owner.key())
            .bind(id)
            .bind(Json(owner.to_json()))
            .bind(Timestamp::now())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The table with its schema, and the column that a column references alone.
    pub(crate) async fn referenced(&self, table: &str, column: &str) -> Result<Option<(String, String)>> {
        let query = sqlx::query_as(REFERENCED).bind(quoted(table)).bind(column);
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// Whether the rows of a table differ in this column.
    pub(crate) async fn is_unique(&self, table: &str, column: &str) -> Result<bool> {
        Ok(sqlx::query_scalar(IS_UNIQUE).bind(quoted(table)).bind(column).fetch_one(&self.pool).await?)
    }

    /// Inserts a row with these values, if there is none. Returns once it's there.
    pub(crate) async fn insert_values(&self, table: &str, values: &[(&str, &Key)]) -> Result<()> {
        let columns: Vec<_> = values.iter().map(|(column, _)| Postgres.quote(column)).collect();
        let parameters: Vec<_> = (1..=values.len()).map(|number| format!("${number}")).collect();
        let same = columns.iter().zip(&parameters).map(|(column, parameter)| format!("{column} = {parameter}"));
        let insert = format!(
            "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE
             SELECT {} WHERE NOT EXISTS (SELECT FROM {table} WHERE {})",
            columns.join(", "),
            parameters.join(", "),
            same.collect::<Vec<_>>().join(" AND "),
            table = quoted(table),
        );
        let key: Vec<_> = values.iter().map(|(column, _)| *column).collect();
        self.write_values(table, &key, &insert, values).await.map(drop)
    }

    /// Sets a value in the rows with another one. Returns whether there is such a row.
    pub(crate) async fn set_value(&self, table: &str, new: (&str, &Key), row: (&str, &Key)) -> Result<bool> {
        let (column, key) = (Postgres.quote(new.0), Postgres.quote(row.0));
        let update = format!("UPDATE {} SET {column} = $2 WHERE {key} = $1", quoted(table));
        Ok(self.write_values(table, &[row.0, new.0], &update, &[row, new]).await? > 0)
    }

    /// If the table refuses a statement, it loses all constraints but those on these columns, and the statement is repeated.
    async fn write_values(&self, table: &str, keep: &[&str], statement: &str, values: &[(&str, &Key)]) -> Result<u64> {
        match self.execute_values(statement, values).await {
            Err(Error::Database(sqlx::Error::Database(_))) => {}
            written => return written,
        }
        let relax: Vec<String> = sqlx::query_scalar(RELAX).bind(quoted(table)).bind(keep).fetch_all(&self.pool).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(relax.join("; "))).execute(&self.pool).await?;
        self.execute_values(statement, values).await
    }

    async fn execute_values(&self, statement: &str, values: &[(&str, &Key)]) -> Result<u64> {
        let query = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()));
        let query = values.iter().fold(query, |query, (_, key)| query.bind(*key));
        Ok(query.execute(&self.pool).await?.rows_affected())
    }
}

fn quoted(table: &str) -> String {
    table.split('.').map(|name| Postgres.quote(name)).collect::<Vec<_>>().join(".")
}
