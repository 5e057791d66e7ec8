//! The owner's key: the column that a foreign key can name, how the database stores it, and the Rust type of the id.
//! What a migration declares decides; a flag may choose only where the declaration leaves a choice.

use crate::database::{Class, Database};
use crate::failure::{Failure, Result};
use crate::host::migrations::{Table, TableName};
use crate::host::source::{IdType, Seen};
use crate::names;
use crate::schema::Kind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTable {
    /// Where it is, if not beside our tables, or if a person said so.
    pub schema: Option<String>,
    pub name: String,
    pub key: String,
}

impl OwnerTable {
    /// A table by the name that a person gave it. Its key is not known yet.
    pub(super) fn named(name: &str, database: Database) -> Self {
        let (schema, table) = match (name.split_once('.'), database) {
            (Some((schema, table)), Database::Postgres) => (Some(schema.to_owned()), table),
            (Some((schema, table)), Database::Sqlite) if schema.eq_ignore_ascii_case("main") => (None, table),
            (Some(_), Database::Sqlite) | (None, _) => (None, name),
        };
        Self { schema, name: table.to_owned(), key: "id".to_owned() }
    }

    /// As migrations know it.
    pub(super) fn place(&self, database: Database) -> TableName {
        let schema = self.schema.clone().filter(|schema| database.default_schema() != Some(schema));
        TableName { schema, table: self.name.clone() }
    }

    /// As a person would write it.
    pub fn shown(&self) -> String {
        self.schema.iter().chain([&self.name]).cloned().collect::<Vec<_>>().join(".")
    }
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
    let shown = names::printable(name);
    let refuse =
        |what: &str, help: &str| Err(Failure::usage(format!("--owner-table: `{shown}` {what}")).help(help.to_owned()));
    let odd = name.chars().find(|c| c.is_control() || matches!(c, '"' | '\'' | ';' | '\\' | '#' | '$'));
    if let Some(odd) = odd {
        return refuse(&format!("contains {}", names::show(odd)), "give the table's plain name, without quotes");
    }
    let bare = name.trim();
    if bare.is_empty() {
        return Err(Failure::usage("--owner-table: it is empty").help("name a table, or `none` for no foreign key"));
    }
    if bare != name {
        return refuse("has spaces around it", &format!("write `{bare}`"));
    }
    if name.split('.').any(|part| part.trim().is_empty()) {
        return refuse("has an empty part", "write `users`, or `auth.users` for a table in another schema");
    }
    if name != "none" && name.eq_ignore_ascii_case("none") {
        return refuse("is not a table", "write `none`, in lower case, for no foreign key");
    }
    Ok(())
}

/// The single column that a foreign key can name, and its declared type.
pub(super) fn key_of(table: &Table) -> Result<(OwnerTable, Option<String>)> {
    const HELP: &str = "name another table with --owner-table, or `--owner-table none` for no foreign key";
    let keys = table.single_keys();
    let primary = table.primary_key();
    let best = keys.iter().find(|key| primary == [**key]).or_else(|| keys.iter().find(|key| **key == "id"));
    let Some(&key) = best.or_else(|| keys.first()) else {
        if table.unlogged {
            return Err(Failure::decision(format!(
                "the table `{}` is UNLOGGED, so that only unlogged tables can refer to it",
                table.name
            ))
            .help(format!("make it LOGGED in a migration of your own; or {HELP}")));
        }
        // A key by itself that cannot be used is deferrable.
        if let [key] = primary {
            return Err(Failure::decision(format!(
                "the key `{key}` of table `{}` is DEFERRABLE, which no foreign key can name",
                table.name
            ))
            .help(format!("make it NOT DEFERRABLE in a migration of your own; or {HELP}")));
        }
        let columns: Vec<_> = table.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(Failure::decision(format!(
            "the table `{}` has no key of a single column that a foreign key could name; its columns are {}",
            table.name,
            columns.join(", ")
        ))
        .help(HELP));
    };
    let TableName { schema, table: name } = &table.name;
    check_table(name)?;
    check_table(key)?;
    let declared = table.column(key).map(|column| column.declared.clone());
    Ok((OwnerTable { schema: schema.clone(), name: name.clone(), key: key.to_owned() }, declared))
}

/// How a column that is declared so is stored.
pub(super) fn stored(
    table: &OwnerTable,
    declared: &str,
    wanted: Option<IdType>,
    database: Database,
) -> Result<(IdType, Storage)> {
    let contradiction = |shown: &str| {
        Err(Failure::usage(format!(
            "--owner-id: the key `{}` of table `{}` is declared `{declared}`, so it is {shown}",
            table.key, table.name
        ))
        .help("leave --owner-id out, or name another table with --owner-table"))
    };
    match (database.storage_class(declared), wanted) {
        (Some(Class::Integer), None | Some(IdType::I64)) => Ok((IdType::I64, Storage::Integer)),
        (Some(Class::Integer), Some(_)) => contradiction("i64"),
        (Some(Class::Text), None | Some(IdType::Text)) => Ok((IdType::Text, Storage::Text)),
        (Some(Class::Text), Some(IdType::Uuid)) => Ok((IdType::Uuid, Storage::UuidText)),
        (Some(Class::Text), Some(IdType::I64)) => contradiction("text, or uuid as text"),
        (Some(Class::Uuid), None | Some(IdType::Uuid)) => Ok((IdType::Uuid, Storage::Uuid)),
        (Some(Class::Uuid), Some(_)) => contradiction("uuid"),
        (None, Some(id)) if database.compares_any_types() => Ok((id, storage_of(id))),
        (None, None) if database.compares_any_types() => {
            let shown = if declared.is_empty() { "without a type".to_owned() } else { format!("`{declared}`") };
            Err(Failure::decision(format!(
                "the key `{}` of table `{}` is declared {shown}, which does not say what it holds",
                table.key, table.name
            ))
            .help("say it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`"))
        }
        (None, _) => Err(Failure::decision(format!(
            "the key `{}` of table `{}` is declared `{declared}`, which no integer, uuid or text can refer to",
            table.key, table.name
        ))
        .help("name another table with --owner-table, or `--owner-table none` for no foreign key")),
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
