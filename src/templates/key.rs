//! Keys of owners and groups, as Rust.

use crate::key::KeyType;
use crate::options::Owner;

/// The type of a field with a key, without an import.
pub fn field_type(key: KeyType) -> &'static str {
    if is_uuid(key) { "uuid::Uuid" } else { key.rust_type() }
}

/// The owner's column as the library describes it.
pub fn owner_column(owner: Option<&Owner>) -> String {
    let Some(owner) = owner else { return "OwnerColumn::none()".to_owned() };
    let kind = match owner.key {
        KeyType::Integer => "integer",
        KeyType::Uuid => "uuid",
        KeyType::Text | KeyType::UuidText => "text",
    };
    format!("OwnerColumn::{kind}({:?})", owner.field.as_str())
}

/// Two owners in tests.
pub fn two_owners(owner: Option<&Owner>) -> (String, String) {
    let Some(owner) = owner else { return ("Owner::none()".to_owned(), String::new()) };
    let (alice, bob) = match owner.key {
        KeyType::Integer => ("1", "2"),
        KeyType::Uuid => ("Uuid::from_u128(1)", "Uuid::from_u128(2)"),
        KeyType::UuidText => ("Uuid::from_u128(1).to_string()", "Uuid::from_u128(2).to_string()"),
        KeyType::Text => ("\"alice\"", "\"bob\""),
    };
    let owner = |key: &str| format!("Owner::new({:?}, {key})", owner.noun.as_str());
    (owner(alice), owner(bob))
}

/// The key of a group in tests.
pub fn group_key(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "7",
        KeyType::Uuid => "Uuid::from_u128(7)",
        KeyType::UuidText => "Uuid::from_u128(7).to_string()",
        KeyType::Text => "\"group\"",
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

pub fn is_uuid(key: KeyType) -> bool {
    matches!(key, KeyType::Uuid | KeyType::UuidText)
}
