//! What differs between databases, as data and small functions. Templates and schemas say *what* is stored; only this
//! room knows how a database spells it.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::schema::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Database {
    Sqlite,
}

impl Database {
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" | "mysql" => {
                Err(Failure::usage(format!("--database: `{text}` is not supported by this version"))
                    .help("use `sqlite`"))
            }
            _ => {
                Err(Failure::usage(format!("--database: `{text}` is not a database that is known"))
                    .help("use `sqlite`"))
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
        }
    }

    /// The longest identifier in bytes. `SQLite` has no limit of its own; it is held to that of `PostgreSQL`, so that a
    /// project can move there.
    pub fn identifier_limit(self) -> usize {
        match self {
            Self::Sqlite => 63,
        }
    }

    /// The type of a column.
    pub fn column_type(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Sqlite, Kind::Boolean | Kind::Integer | Kind::BigInteger) => "INTEGER",
            (Self::Sqlite, Kind::Uuid) => "BLOB",
            (Self::Sqlite, Kind::Text | Kind::Json | Kind::ExactJson | Kind::Time) => "TEXT",
        }
    }

    /// What holds for every value of a kind, as a condition on the column.
    pub fn condition(self, kind: Kind, column: &str) -> Option<String> {
        match (self, kind) {
            (Self::Sqlite, Kind::Boolean) => Some(format!("{column} IN (0, 1)")),
            (Self::Sqlite, Kind::Uuid) => Some(format!("length({column}) = 16")),
            (Self::Sqlite, Kind::Json) => Some(format!("json_valid({column})")),
            (Self::Sqlite, _) => None,
        }
    }

    pub fn false_literal(self) -> &'static str {
        match self {
            Self::Sqlite => "0",
        }
    }

    /// What follows the closing parenthesis of `CREATE TABLE`. A clustered table is stored in the order of its key.
    pub fn table_options(self, clustered: bool) -> &'static str {
        match (self, clustered) {
            (Self::Sqlite, true) => " STRICT, WITHOUT ROWID",
            (Self::Sqlite, false) => " STRICT",
        }
    }

    pub fn quote(self, identifier: &str) -> String {
        match self {
            Self::Sqlite => format!("\"{}\"", identifier.replace('"', "\"\"")),
        }
    }
}
