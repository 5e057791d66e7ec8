//! Keys of owners and groups, as Rust.

use crate::key::KeyType;
use crate::names::Name;

pub fn key_type(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64",
        KeyType::Uuid => "Uuid",
        KeyType::Text | KeyType::UuidText => "String",
    }
}

/// The type of a field with a key, without an import.
pub fn field_type(key: KeyType) -> &'static str {
    if is_uuid(key) { "uuid::Uuid" } else { key.rust_type() }
}

/// What is bound to a statement: its type, and how it is read from `self`.
pub fn bound_type(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64",
        KeyType::Uuid => "Uuid",
        KeyType::Text => "&str",
        KeyType::UuidText => "String",
    }
}

pub fn bound(field: &Name, key: KeyType) -> String {
    match key {
        KeyType::Integer | KeyType::Uuid => format!("self.{field}"),
        KeyType::Text => format!("&self.{field}"),
        KeyType::UuidText => format!("self.{field}.to_string()"),
    }
}

pub fn least_key(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64::MIN",
        KeyType::Uuid => "Uuid::nil()",
        KeyType::Text | KeyType::UuidText => "String::new()",
    }
}

/// The keys of two owners, or of two groups, in Rust.
pub fn two_keys(key: KeyType) -> (&'static str, &'static str) {
    match key {
        KeyType::Integer => ("1", "2"),
        KeyType::Uuid | KeyType::UuidText => ("Uuid::from_u128(1)", "Uuid::from_u128(2)"),
        KeyType::Text => ("\"alice\"", "\"bob\""),
    }
}

/// The key of somebody, as a value that a field may have.
pub fn owned_key(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "1",
        KeyType::Uuid | KeyType::UuidText => "Uuid::from_u128(1)",
        KeyType::Text => "\"alice\".to_owned()",
    }
}

pub fn example(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "123",
        KeyType::Uuid | KeyType::UuidText => r#""01890a5d-…""#,
        KeyType::Text => r#""alice""#,
    }
}

pub fn is_uuid(key: KeyType) -> bool {
    matches!(key, KeyType::Uuid | KeyType::UuidText)
}
