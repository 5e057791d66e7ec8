//! What differs between databases for the generator. The library's `schema` module has how a database spells SQL.

pub use sagents::schema::Database;

use crate::failure::{Failure, Result};
use crate::key::KeyType;

/// The rules of a database.
pub trait Dialect: Sized {
    fn parse(text: &str) -> Result<Self>;

    /// The name of the option's value, and of sqlx's feature.
    fn name(self) -> &'static str;

    /// The longest identifier in bytes. `SQLite` has no limit of its own; it is held to that of `PostgreSQL`, so that a
    /// project can move there.
    fn identifier_limit(self) -> usize;

    /// The name that the database knows for one that a migration writes without quotes.
    fn fold(self, identifier: &str) -> String;

    /// Where a table is by default; nothing if there is no other place.
    fn default_schema(self) -> Option<&'static str>;

    /// Whether tables in a schema are gone when the connection is.
    #[expect(clippy::wrong_self_convention, reason = "a database is copied")]
    fn is_temporary_schema(self, schema: &str) -> bool;

    /// Whether two names, as the database knows them, mean the same thing.
    fn same_name(self, one: &str, other: &str) -> bool;

    /// The columns that every table has by itself.
    fn system_columns(self) -> &'static [&'static str];

    /// What a key column that is declared so holds: by the rules of affinity in `SQLite`, by the type's name elsewhere.
    fn key_type(self, declared: &str) -> Option<KeyType>;

    /// Whether a foreign key may be of another type than what it refers to.
    fn compares_any_types(self) -> bool;
}

impl Dialect for Database {
    fn parse(text: &str) -> Result<Self> {
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

    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    fn identifier_limit(self) -> usize {
        match self {
            Self::Sqlite | Self::Postgres => 63,
        }
    }

    fn fold(self, identifier: &str) -> String {
        match self {
            Self::Sqlite => identifier.to_owned(),
            Self::Postgres => identifier.to_lowercase(),
        }
    }

    fn default_schema(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("public"),
        }
    }

    fn is_temporary_schema(self, schema: &str) -> bool {
        match self {
            Self::Sqlite => schema.eq_ignore_ascii_case("temp"),
            Self::Postgres => schema == "pg_temp",
        }
    }

    fn same_name(self, one: &str, other: &str) -> bool {
        match self {
            Self::Sqlite => one.eq_ignore_ascii_case(other),
            Self::Postgres => one == other,
        }
    }

    fn system_columns(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &["rowid", "oid", "_rowid_"],
            Self::Postgres => &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"],
        }
    }

    fn key_type(self, declared: &str) -> Option<KeyType> {
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

    fn compares_any_types(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres => false,
        }
    }
}
