//! A member of a type, by the name that a person or a rule asks for it: a field, or a method without arguments. Here a
//! `--scope-owner` is taken apart; whether its members exist is for the definitions.

use crate::failure::{Failure, Result};
use crate::names::Name;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberKind {
    Field,
    Method,
}

/// An access by name, as a person or a rule asks for it.
pub(super) struct Member {
    pub(super) kind: MemberKind,
    pub(super) name: String,
}

impl Member {
    pub(super) fn new(kind: MemberKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }

    pub(super) fn is_call(&self, name: &str) -> bool {
        self.kind == MemberKind::Method && self.name == name
    }

    pub(super) fn rust(&self) -> String {
        let name = Name::parse("", &self.name).map_or_else(|_| self.name.clone(), |name| name.rust());
        match self.kind {
            MemberKind::Field => name,
            MemberKind::Method => name + "()",
        }
    }
}

/// The accesses that a flag names.
pub(super) fn parse(flag: &str, text: &str) -> Result<Vec<Member>> {
    text.split('.').map(|part| member(part.trim()).ok_or_else(|| malformed(flag, text, part))).collect()
}

fn member(part: &str) -> Option<Member> {
    let (kind, name) = match part.strip_suffix("()") {
        Some(name) => (MemberKind::Method, name),
        None => (MemberKind::Field, part),
    };
    let is_index = kind == MemberKind::Field && name.parse::<u16>().is_ok_and(|index| index.to_string() == name);
    let name = name.strip_prefix("r#").unwrap_or(name);
    // These are places, also when they are written raw.
    let is_place = ["self", "Self", "super", "crate", "_"].contains(&name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_place;
    (is_index || is_name).then(|| Member::new(kind, name))
}

fn malformed(flag: &str, text: &str, part: &str) -> Failure {
    let what = if part.trim().is_empty() {
        format!("{flag}: `{}` has an empty part", text.escape_debug())
    } else {
        let part = part.trim().escape_debug();
        format!("{flag}: `{part}` in `{}` is neither a field nor a method without arguments", text.escape_debug())
    };
    Failure::usage(what).help(
        "write the accesses from the scope to the id, for example `user.id` or `user_id()`; \
         an `Option` on the way needs no `?`",
    )
}
