//! How a database spells types, names and literals.

use serde::{Deserialize, Serialize};

use super::{Check, Kind};

/// A database that the library supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Database {
    /// `SQLite`, with strict tables.
    Sqlite,
    /// `PostgreSQL`.
    Postgres,
}

impl Database {
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

    /// `FALSE`.
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

    /// A name in quotes.
    pub fn quote(self, identifier: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("\"{}\"", identifier.replace('"', "\"\"")),
        }
    }

    /// A table, in its schema if that is named.
    pub fn quote_table(self, schema: Option<&str>, table: &str) -> String {
        schema.into_iter().chain([table]).map(|name| self.quote(name)).collect::<Vec<_>>().join(".")
    }

    /// A text in quotes.
    pub fn string_literal(self, text: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("'{}'", text.replace('\'', "''")),
        }
    }
}
