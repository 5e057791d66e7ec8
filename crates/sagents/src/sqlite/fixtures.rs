//! Rows of the host's own tables, for tests.

use sqlx::Row as _;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::schema::Database::Sqlite;
use crate::statement::Names;
use crate::testing::CREATE_CONVERSATION;
use crate::{Error, Key, Owner, Result, Timestamp};

/// The referenced column isn't named if it's the primary key.
const REFERENCED: &str = "
    SELECT f.\"table\" AS name, coalesce(f.\"to\", (SELECT c.name FROM pragma_table_info(f.\"table\") AS c WHERE c.pk = 1))
    FROM pragma_foreign_key_list($1) AS f
    WHERE f.\"from\" = $2
      AND (SELECT count(*) FROM pragma_foreign_key_list($1) AS g WHERE g.id = f.id) = 1";

const IS_UNIQUE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM pragma_index_list($1) AS i
        WHERE i.\"unique\" AND NOT i.partial
          AND (SELECT group_concat(c.name, ',') FROM pragma_index_info(i.name) AS c) = $2
    ) OR (SELECT group_concat(c.name, ',') FROM pragma_table_info($1) AS c WHERE c.pk > 0) = $2";

/// Generated columns, too, but no hidden ones.
const COLUMNS: &str = "SELECT name, type, pk > 0 FROM pragma_table_xinfo($1) WHERE hidden <> 1 ORDER BY cid";

impl Driver {
    pub(crate) async fn create_conversation(&self, owner: &Owner, id: Uuid) -> Result<()> {
        let create = Names::new(self.tables, Sqlite).expand(CREATE_CONVERSATION);
        let mut write = self.begin().await?;
        sqlx::query(&create)
            .bind(owner.key())
            .bind(id)
            .bind(Json(owner.to_json()))
            .bind(Timestamp::now())
            .execute(&mut *write)
            .await?;
        write.commit().await
    }

    /// The table and the column that a column references alone.
    pub(crate) async fn referenced(&self, table: &str, column: &str) -> Result<Option<(String, String)>> {
        let row = sqlx::query_as(REFERENCED).bind(bare(table)).bind(column).fetch_optional(&self.pool).await?;
        Ok(row)
    }

    /// Whether the rows of a table differ in this column.
    pub(crate) async fn is_unique(&self, table: &str, column: &str) -> Result<bool> {
        Ok(sqlx::query_scalar(IS_UNIQUE).bind(bare(table)).bind(column).fetch_one(&self.pool).await?)
    }

    /// Inserts a row with these values, if there is none. Returns once it's there.
    pub(crate) async fn insert_values(&self, table: &str, values: &[(&str, &Key)]) -> Result<()> {
        let columns: Vec<_> = values.iter().map(|(column, _)| Sqlite.quote(column)).collect();
        let parameters: Vec<_> = (1..=values.len()).map(|number| format!("${number}")).collect();
        let same = columns.iter().zip(&parameters).map(|(column, parameter)| format!("{column} = {parameter}"));
        let insert = format!(
            "INSERT INTO {table} ({}) SELECT {} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {})",
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
        let (column, key) = (Sqlite.quote(new.0), Sqlite.quote(row.0));
        let update = format!("UPDATE {} SET {column} = $2 WHERE {key} = $1", quoted(table));
        Ok(self.write_values(table, &[row.0], &update, &[row, new]).await? > 0)
    }

    /// If the table refuses a statement, it loses all constraints but this key, and the statement is repeated.
    async fn write_values(&self, table: &str, key: &[&str], statement: &str, values: &[(&str, &Key)]) -> Result<u64> {
        match self.execute_values(statement, values).await {
            Err(Error::Database(sqlx::Error::Database(_))) => {}
            written => return written,
        }
        self.relax(table, key).await?;
        self.execute_values(statement, values).await
    }

    async fn execute_values(&self, statement: &str, values: &[(&str, &Key)]) -> Result<u64> {
        let mut write = self.begin().await?;
        let query = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()));
        let query = values.iter().fold(query, |query, (_, key)| query.bind(*key));
        let written = query.execute(&mut *write).await?.rows_affected();
        write.commit().await?;
        Ok(written)
    }

    /// Replaces a table by one with the same columns and rows, without constraints but this key and its primary key.
    async fn relax(&self, table: &str, key: &[&str]) -> Result<()> {
        let (mut columns, mut primary_key) = (Vec::new(), Vec::new());
        for row in sqlx::query(COLUMNS).bind(bare(table)).fetch_all(&self.pool).await? {
            let name = Sqlite.quote(row.try_get(0)?);
            columns.push(format!("{name} {}", row.try_get::<&str, _>(1)?));
            primary_key.extend(row.try_get::<bool, _>(2)?.then_some(name));
        }
        let key: Vec<_> = key.iter().map(|column| Sqlite.quote(column)).collect();
        columns.push(format!("PRIMARY KEY ({})", key.join(", ")));
        if primary_key != key && !primary_key.is_empty() {
            columns.push(format!("UNIQUE ({})", primary_key.join(", ")));
        }
        let script = format!(
            "BEGIN IMMEDIATE;
             CREATE TEMP TABLE sagents_rows AS SELECT * FROM {table};
             DROP TABLE {table};
             CREATE TABLE {table} ({columns});
             INSERT INTO {table} SELECT * FROM sagents_rows;
             DROP TABLE sagents_rows;
             COMMIT",
            table = quoted(table),
            columns = columns.join(", "),
        );
        // Otherwise, dropping the table would delete the rows that reference it.
        let mut connection = self.pool.acquire().await?;
        let enforced: bool = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(&mut *connection).await?;
        sqlx::raw_sql("PRAGMA foreign_keys = OFF").execute(&mut *connection).await?;
        let replaced = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut *connection).await;
        if replaced.is_err() {
            drop(sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await);
        }
        if enforced {
            sqlx::raw_sql("PRAGMA foreign_keys = ON").execute(&mut *connection).await?;
        }
        replaced?;
        Ok(())
    }
}

/// Its name without its schema.
fn bare(table: &str) -> &str {
    table.rsplit('.').next().unwrap_or(table)
}

fn quoted(table: &str) -> String {
    table.split('.').map(|name| Sqlite.quote(name)).collect::<Vec<_>>().join(".")
}
