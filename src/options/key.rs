//! The owner's key: the column that a foreign key can name, how the database stores it, and the Rust type of the id.
//! What a migration declares decides; a flag may choose only where the declaration leaves a choice.

use crate::failure::{Failure, Result};
use crate::host::migrations::Table;
use crate::host::source::{IdType, Seen};
use crate::names;
use crate::schema::Kind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTable {
    pub name: String,
    pub key: String,
}

/// How the owner's key is stored in its own table, and so in ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Integer,
    Text,
    Uuid,
    /// A UUID as text.
    UuidText,
}

impl Storage {
    pub fn kind(self) -> Kind {
        match self {
            Self::Integer => Kind::BigInteger,
            Self::Text | Self::UuidText => Kind::Text,
            Self::Uuid => Kind::Uuid,
        }
    }
}

/// A table may be called almost anything; it is quoted wherever it is written.
pub(super) fn check_table(name: &str) -> Result<()> {
    let odd = name.chars().find(|c| c.is_control() || matches!(c, '"' | '\'' | ';' | '\\' | '#' | '$'));
    match odd {
        Some(odd) => {
            Err(Failure::usage(format!("--owner-table: `{}` contains {}", names::printable(name), names::show(odd)))
                .help("give the table's plain name, without quotes"))
        }
        None if name.trim().is_empty() => {
            Err(Failure::usage("--owner-table: it is empty").help("name a table, or `none` for no foreign key"))
        }
        None => Ok(()),
    }
}

/// The single column that a foreign key can name, and its declared type.
pub(super) fn key_of(table: &Table) -> Result<(OwnerTable, Option<String>)> {
    let unique = || table.columns.iter().find(|column| column.unique).map(|column| column.name.as_str());
    let key = match table.primary_key.as_slice() {
        [key] => Some(key.as_str()),
        [] => unique(),
        _ => None,
    };
    let Some(key) = key else {
        let columns: Vec<_> = table.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(Failure::decision(format!(
            "the table `{}` has no key of a single column that a foreign key could name; its columns are {}",
            table.name,
            columns.join(", ")
        ))
        .help("name another table with --owner-table, or `--owner-table none` for no foreign key"));
    };
    check_table(&table.name)?;
    check_table(key)?;
    let declared = table.column(key).map(|column| column.declared.clone());
    Ok((OwnerTable { name: table.name.clone(), key: key.to_owned() }, declared))
}

/// How `SQLite` stores a column that is declared so, by its rules of affinity.
pub(super) fn stored(table: &OwnerTable, declared: &str, wanted: Option<IdType>) -> Result<(IdType, Storage)> {
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    let contradiction = |shown: &str| {
        Err(Failure::usage(format!(
            "--owner-id: the key `{}` of table `{}` is declared `{declared}`, so it is {shown}",
            table.key, table.name
        ))
        .help("leave --owner-id out, or name another table with --owner-table"))
    };
    if has(&["INT", "SERIAL"]) {
        match wanted {
            None | Some(IdType::I64) => Ok((IdType::I64, Storage::Integer)),
            Some(_) => contradiction("i64"),
        }
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        match wanted {
            None | Some(IdType::Text) => Ok((IdType::Text, Storage::Text)),
            Some(IdType::Uuid) => Ok((IdType::Uuid, Storage::UuidText)),
            Some(IdType::I64) => contradiction("text, or uuid as text"),
        }
    } else if has(&["BLOB", "UUID", "BINARY", "BYTEA"]) {
        match wanted {
            None | Some(IdType::Uuid) => Ok((IdType::Uuid, Storage::Uuid)),
            Some(_) => contradiction("uuid"),
        }
    } else {
        match wanted {
            Some(id) => Ok((id, storage_of(id))),
            None => {
                let shown = if declared.is_empty() { "without a type".to_owned() } else { format!("`{declared}`") };
                Err(Failure::decision(format!(
                    "the key `{}` of table `{}` is declared {shown}, which does not say what it holds",
                    table.key, table.name
                ))
                .help("say it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`"))
            }
        }
    }
}

pub(super) fn storage_of(id: IdType) -> Storage {
    match id {
        IdType::I64 => Storage::Integer,
        IdType::Uuid => Storage::Uuid,
        IdType::Text => Storage::Text,
    }
}

pub(super) fn parse_id(text: &str) -> Result<IdType> {
    match text {
        "i64" => Ok(IdType::I64),
        "uuid" => Ok(IdType::Uuid),
        "text" => Ok(IdType::Text),
        _ => {
            Err(Failure::usage(format!("--owner-id: `{text}` is not a type of key"))
                .help("use `i64`, `uuid` or `text`"))
        }
    }
}

pub(super) fn id_name(id: IdType) -> &'static str {
    match id {
        IdType::I64 => "i64",
        IdType::Uuid => "uuid",
        IdType::Text => "text",
    }
}

pub(super) fn rust_type(id: IdType) -> &'static str {
    match id {
        IdType::I64 => "i64",
        IdType::Uuid => "Uuid",
        IdType::Text => "String",
    }
}

pub(super) fn seen(id: IdType) -> Seen {
    match id {
        IdType::I64 => Seen::I64,
        IdType::Uuid => Seen::Uuid,
        IdType::Text => Seen::String,
    }
}

pub(super) fn id_of(seen: &Seen) -> Option<IdType> {
    match seen {
        Seen::I64 | Seen::SmallInt => Some(IdType::I64),
        Seen::Uuid => Some(IdType::Uuid),
        Seen::String | Seen::Str => Some(IdType::Text),
        Seen::Ref(inner) => id_of(inner),
        Seen::Other(_) => None,
    }
}
