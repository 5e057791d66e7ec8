//! The type of an owner's key: how its table stores it, and so the Rust type of the id.

use crate::failure::{Failure, Result};
use crate::schema::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    Integer,
    Text,
    Uuid,
    /// A UUID in a column of text.
    UuidText,
}

impl KeyType {
    /// Reads `--owner-id`.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "i64" => Ok(Self::Integer),
            "uuid" => Ok(Self::Uuid),
            "text" => Ok(Self::Text),
            _ => Err(Failure::usage(format!("--owner-id: `{text}` is not a type of key"))
                .help("use `i64`, `uuid` or `text`")),
        }
    }

    /// As `--owner-id` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "i64",
            Self::Uuid | Self::UuidText => "uuid",
            Self::Text => "text",
        }
    }

    pub fn rust_type(self) -> &'static str {
        match self {
            Self::Integer => "i64",
            Self::Uuid | Self::UuidText => "Uuid",
            Self::Text => "String",
        }
    }

    /// The column that refers to it.
    pub fn column(self) -> Kind {
        match self {
            Self::Integer => Kind::BigInteger,
            Self::Text | Self::UuidText => Kind::Text,
            Self::Uuid => Kind::Uuid,
        }
    }
}
