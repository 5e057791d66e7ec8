//! What differs between databases, as data and small functions. Templates and schemas have *what* is stored; only this
//! module, and the templates in `templates/store/`, have how a database spells it.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::key::KeyType;
use crate::schema::{Check, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    /// The oldest sqlx that the generated code compiles with.
    pub fn oldest_sqlx(self) -> &'static str {
        match self {
            Self::Sqlite => "0.8.0",
            Self::Postgres => "0.7.4",
        }
    }

    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" => Ok(Self::Postgres),
            "postgresql" => {
                Err(Failure::usage("--database: `postgresql` is called `postgres` here, as in sqlx")
                    .help("use `postgres`"))
            }
            "mysql" => Err(Failure::usage("--database: `mysql` is not supported by this version")
                .help("use `sqlite` or `postgres`")),
            _ => Err(Failure::usage(format!("--database: `{text}` is not a database that is known"))
                .help("use `sqlite` or `postgres`")),
        }
    }

    /// The name of the option's value, and of sqlx's feature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// The longest identifier in bytes. `SQLite` has no limit of its own; it is held to that of `PostgreSQL`, so that a
    /// project can move there.
    pub fn identifier_limit(self) -> usize {
        match self {
            Self::Sqlite | Self::Postgres => 63,
        }
    }

    /// The type of a column.
    pub fn column_type(self, kind: Kind) -> &'static str {
        match self {
            Self::Sqlite => match kind {
                Kind::Boolean | Kind::Integer | Kind::BigInteger => "INTEGER",
                Kind::Uuid => "BLOB",
                Kind::Text | Kind::Json | Kind::ExactJson | Kind::Time => "TEXT",
            },
            Self::Postgres => match kind {
                Kind::Boolean => "BOOLEAN",
                Kind::Integer => "INTEGER",
                Kind::BigInteger => "BIGINT",
                Kind::Uuid => "UUID",
                Kind::Text => "TEXT",
                Kind::Json => "JSONB",
                // The other one would refuse U+0000 and change numbers.
                Kind::ExactJson => "JSON",
                Kind::Time => "TIMESTAMPTZ",
            },
        }
    }

    /// What holds for every value of a kind, where its type does not say so.
    pub fn condition(self, kind: Kind, column: &str) -> Option<Check> {
        let quoted = self.quote(column);
        let (what, condition) = match (self, kind) {
            (Self::Sqlite, Kind::Boolean) => ("boolean", format!("{quoted} IN (0, 1)")),
            (Self::Sqlite, Kind::Uuid) => ("uuid", format!("length({quoted}) = 16")),
            (Self::Sqlite, Kind::Json) => ("json", format!("json_valid({quoted})")),
            (Self::Sqlite | Self::Postgres, _) => return None,
        };
        Some(Check { name: format!("{column}_is_{what}"), condition })
    }

    pub fn false_literal(self) -> &'static str {
        match self {
            Self::Sqlite => "0",
            Self::Postgres => "FALSE",
        }
    }

    /// What follows the closing parenthesis of `CREATE TABLE`. A clustered table is stored in the order of its key.
    pub fn table_options(self, clustered: bool) -> &'static str {
        match (self, clustered) {
            (Self::Sqlite, true) => " STRICT, WITHOUT ROWID",
            (Self::Sqlite, false) => " STRICT",
            (Self::Postgres, _) => "",
        }
    }

    pub fn quote(self, identifier: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("\"{}\"", identifier.replace('"', "\"\"")),
        }
    }

    /// A table, in its schema if that is named.
    pub fn quote_table(self, schema: Option<&str>, table: &str) -> String {
        schema.into_iter().chain([table]).map(|name| self.quote(name)).collect::<Vec<_>>().join(".")
    }

    pub fn string_literal(self, text: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("'{}'", text.replace('\'', "''")),
        }
    }

    /// The name that the database knows for one that a migration writes without quotes.
    pub fn fold(self, identifier: &str) -> String {
        match self {
            Self::Sqlite => identifier.to_owned(),
            Self::Postgres => identifier.to_lowercase(),
        }
    }

    /// Where a table is by default; nothing if there is no other place.
    pub fn default_schema(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("public"),
        }
    }

    /// Whether tables in a schema are gone when the connection is.
    pub fn is_temporary_schema(self, schema: &str) -> bool {
        match self {
            Self::Sqlite => schema.eq_ignore_ascii_case("temp"),
            Self::Postgres => schema == "pg_temp",
        }
    }

    /// Whether two names, as the database knows them, mean the same thing.
    pub fn same_name(self, one: &str, other: &str) -> bool {
        match self {
            Self::Sqlite => one.eq_ignore_ascii_case(other),
            Self::Postgres => one == other,
        }
    }

    /// The columns that every table has by itself.
    pub fn system_columns(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &["rowid", "oid", "_rowid_"],
            Self::Postgres => &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"],
        }
    }

    /// What a key column that is declared so holds: by the rules of affinity in `SQLite`, by the type's name elsewhere.
    pub fn key_type(self, declared: &str) -> Option<KeyType> {
        let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
        let base = declared.split('(').next().unwrap_or_default().trim_end();
        match self {
            Self::Sqlite if has(&["INT", "SERIAL"]) => Some(KeyType::Integer),
            Self::Sqlite if has(&["CHAR", "CLOB", "TEXT"]) => Some(KeyType::Text),
            Self::Sqlite if has(&["BLOB", "UUID", "BINARY", "BYTEA"]) => Some(KeyType::Uuid),
            Self::Sqlite => None,
            Self::Postgres => match base {
                "SMALLINT" | "INTEGER" | "BIGINT" | "INT" | "INT2" | "INT4" | "INT8" | "SMALLSERIAL" | "SERIAL"
                | "BIGSERIAL" | "SERIAL2" | "SERIAL4" | "SERIAL8" => Some(KeyType::Integer),
                "TEXT" | "VARCHAR" | "CHARACTER VARYING" => Some(KeyType::Text),
                "UUID" => Some(KeyType::Uuid),
                _ => None,
            },
        }
    }

    /// Whether a foreign key may be of another type than what it refers to.
    pub fn compares_any_types(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres => false,
        }
    }
}
