//! How the id of an owner or a group is read from a scope, as Rust.

use crate::host::source::{Access, Around, Seen, Step, Take};
use crate::key::KeyType;
use crate::names::TypePath;

/// The statements that read an id from `self`, and the expression of the id. What is absent on the way ends the
/// call with `NoOwner`.
pub fn read_id(access: &Access, key: KeyType, named: impl Fn(&TypePath) -> String) -> (Vec<String>, String) {
    let mut statements = Vec::new();
    let mut place = Value { text: "self".to_owned(), hold: Hold::Reference };
    let assumed = Seen::of(key);
    let seen = access.id.as_ref().unwrap_or(&assumed);
    for (index, step) in access.steps.iter().enumerate() {
        let is_last = index + 1 == access.steps.len();
        match step {
            Step::Member { text, around } => {
                let is_given = text.ends_with("()") && *around != Some(Around::BorrowedOption);
                let hold = if is_given { Hold::Value } else { Hold::Place };
                place = Value { text: format!("{}.{text}", place.text), hold };
                if let Some(around) = around {
                    let (borrow, hold) = if is_last { taken(seen, hold, *around) } else { held(hold) };
                    let absent = match around {
                        Around::Option | Around::BorrowedOption => "ok_or(Error::NoOwner)?",
                        Around::Result => "map_err(|_| Error::NoOwner)?",
                    };
                    place = Value { text: format!("{}{borrow}.{absent}", place.text), hold };
                    if !is_last {
                        let name = text.trim_end_matches("()");
                        let name = if name.starts_with(|c: char| c.is_ascii_digit()) { "owner" } else { name };
                        statements.push(format!("let {name} = {};", place.text));
                        name.clone_into(&mut place.text);
                    }
                }
            }
            Step::Variant { of, name, field, fields, binding, is_optional, is_only } => {
                let choice = of.as_ref().map_or_else(|| "Self".to_owned(), &named);
                let pattern = format!("{choice}::{name}{}", pattern(field, *fields, binding, *is_optional));
                let borrow = if place.hold == Hold::Place { "&" } else { "" };
                let otherwise = if *is_only && !is_optional { "" } else { " else { return Err(Error::NoOwner); }" };
                statements.push(format!("let {pattern} = {borrow}{}{otherwise};", place.text));
                place = Value { text: binding.clone(), hold: Hold::Reference };
            }
            Step::Kind { member, of, variant, is_optional } => {
                let variant = format!("{}::{variant}", named(of));
                let variant = if *is_optional { format!("Some({variant})") } else { variant };
                let kind = format!("{}.{member}", place.text);
                statements.push(format!("if !matches!({kind}, {variant}) {{ return Err(Error::NoOwner); }}"));
            }
        }
    }
    (statements, convert(&place, seen))
}

/// An expression, and what it gives.
#[derive(Debug)]
struct Value {
    text: String,
    hold: Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// A field, or an `Option` that a method lends: it stays where it is.
    Place,
    Value,
    Reference,
}

/// How something on the way is taken out of an `Option`, and what that gives.
fn held(hold: Hold) -> (&'static str, Hold) {
    if hold == Hold::Place { (".as_ref()", Hold::Reference) } else { ("", hold) }
}

/// How an id is taken out of an `Option` or a `Result`, and what that gives.
fn taken(seen: &Seen, hold: Hold, around: Around) -> (&'static str, Hold) {
    match seen {
        _ if hold != Hold::Place => ("", Hold::Value),
        _ if around == Around::Result => (".as_ref()", Hold::Reference),
        Seen::String | Seen::From { take: Take::Clone, .. } | Seen::Into { take: Take::Clone, .. } => {
            (".clone()", Hold::Value)
        }
        Seen::From { take: Take::Borrow, .. } | Seen::Into { take: Take::Borrow, .. } => (".as_ref()", Hold::Reference),
        Seen::Str => (".as_deref()", Hold::Value),
        _ => ("", Hold::Value),
    }
}

/// What of a variant is bound to a name: `(user)`, `(_, user, ..)`, `{ id, .. }`.
fn pattern(field: &str, fields: usize, binding: &str, is_optional: bool) -> String {
    let bound = if is_optional { format!("Some({binding})") } else { binding.to_owned() };
    match field.parse::<usize>() {
        Ok(index) => {
            let rest = if index + 1 < fields { ", .." } else { "" };
            format!("({}{bound}{rest})", "_, ".repeat(index))
        }
        Err(_) => {
            let rest = if fields > 1 { ", .." } else { "" };
            let bound = if bound == binding { bound } else { format!("{binding}: {bound}") };
            format!(" {{ {bound}{rest} }}")
        }
    }
}

/// An expression of a type that was seen, as the type that is stored.
fn convert(value: &Value, seen: &Seen) -> String {
    let Value { text, hold } = value;
    let plain = || if *hold == Hold::Reference { format!("*{text}") } else { text.clone() };
    match seen {
        Seen::I64 | Seen::Uuid | Seen::Other(_) => plain(),
        Seen::SmallInt => format!("i64::from({})", plain()),
        Seen::String if *hold == Hold::Value => text.clone(),
        Seen::String => format!("{text}.clone()"),
        Seen::Str => format!("{text}.to_string()"),
        Seen::Ref(inner) => {
            let text = if *hold == Hold::Reference { format!("(*{text})") } else { text.clone() };
            convert(&Value { text, hold: Hold::Reference }, inner)
        }
        Seen::From { to, take } | Seen::Into { to, take } => {
            let target = match **to {
                Seen::Uuid => "Uuid",
                Seen::String => "String",
                _ => "i64",
            };
            let value = match (take, hold) {
                (Take::Copy, _) => plain(),
                (Take::Clone, Hold::Value) | (Take::Borrow, Hold::Reference) => text.clone(),
                (Take::Clone, _) => format!("{text}.clone()"),
                (Take::Borrow, _) => format!("&{text}"),
            };
            match seen {
                Seen::Into { .. } => format!("Into::<{target}>::into({value})"),
                _ => format!("{target}::from({value})"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(steps: &[(&str, bool)], id: Seen) -> Access {
        let member = |&(text, optional): &(&str, bool)| Step::Member {
            text: text.to_owned(),
            around: optional.then_some(Around::Option),
        };
        Access { steps: steps.iter().map(member).collect(), id: Some(id) }
    }

    /// An access whose first step is a method that lends an `Option`.
    fn borrowed(steps: &[(&str, bool)], id: Seen) -> Access {
        let mut access = access(steps, id);
        if let Some(Step::Member { around, .. }) = access.steps.first_mut() {
            *around = Some(Around::BorrowedOption);
        }
        access
    }

    fn from(to: Seen, take: Take) -> Seen {
        Seen::From { to: Box::new(to), take }
    }

    fn variant(field: &str, fields: usize, binding: &str) -> Step {
        let (name, field, binding) = ("User".to_owned(), field.to_owned(), binding.to_owned());
        Step::Variant { of: None, name, field, fields, binding, is_optional: false, is_only: false }
    }

    #[test]
    fn an_owner_is_read_through_whatever_is_on_the_way() {
        let cases = [
            (access(&[("user", false), ("id", false)], Seen::I64), KeyType::Integer, "", "self.user.id"),
            (
                access(&[("user", true), ("id", false)], Seen::SmallInt),
                KeyType::Integer,
                "let user = self.user.as_ref().ok_or(Error::NoOwner)?;",
                "i64::from(user.id)",
            ),
            (
                access(&[("user_id", true)], Seen::String),
                KeyType::Text,
                "",
                "self.user_id.clone().ok_or(Error::NoOwner)?",
            ),
            (access(&[("user_id()", false)], Seen::Str), KeyType::Text, "", "self.user_id().to_string()"),
            (access(&[("id()", false)], Seen::Ref(Box::new(Seen::Uuid))), KeyType::Uuid, "", "*self.id()"),
            (
                access(&[("user()", true), ("id", false)], Seen::Uuid),
                KeyType::Uuid,
                "let user = self.user().ok_or(Error::NoOwner)?;",
                "user.id",
            ),
            (
                Access { steps: vec![variant("0", 1, "id")], id: Some(Seen::SmallInt) },
                KeyType::Integer,
                "let Self::User(id) = self else { return Err(Error::NoOwner); };",
                "i64::from(*id)",
            ),
            (
                Access { steps: vec![variant("1", 3, "id")], id: Some(Seen::String) },
                KeyType::Text,
                "let Self::User(_, id, ..) = self else { return Err(Error::NoOwner); };",
                "id.clone()",
            ),
            (
                Access { steps: vec![variant("id", 2, "id")], id: Some(from(Seen::Uuid, Take::Copy)) },
                KeyType::Uuid,
                "let Self::User { id, .. } = self else { return Err(Error::NoOwner); };",
                "Uuid::from(*id)",
            ),
            (
                access(&[("user_id", false)], from(Seen::Uuid, Take::Borrow)),
                KeyType::Uuid,
                "",
                "Uuid::from(&self.user_id)",
            ),
            (
                access(&[("user_id", false)], Seen::Into { to: Box::new(Seen::Uuid), take: Take::Copy }),
                KeyType::Uuid,
                "",
                "Into::<Uuid>::into(self.user_id)",
            ),
            (
                access(&[("user_id", true)], from(Seen::String, Take::Clone)),
                KeyType::Text,
                "",
                "String::from(self.user_id.clone().ok_or(Error::NoOwner)?)",
            ),
            (
                Access {
                    steps: vec![Step::Member { text: "user_id()".to_owned(), around: Some(Around::Result) }],
                    id: Some(Seen::Uuid),
                },
                KeyType::Uuid,
                "",
                "self.user_id().map_err(|_| Error::NoOwner)?",
            ),
        ];
        for (access, id, statements, value) in cases {
            let named = |ty: &TypePath| ty.name.clone();
            let expected = (statements.lines().map(str::to_owned).collect(), value.to_owned());
            assert_eq!(read_id(&access, id, named), expected);
        }
    }

    #[test]
    fn an_option_that_a_method_lends_stays_where_it_is() {
        for (access, key, statements, value) in [
            (
                borrowed(&[("user()", true), ("id", false)], Seen::I64),
                KeyType::Integer,
                "let user = self.user().as_ref().ok_or(Error::NoOwner)?;",
                "user.id",
            ),
            (
                borrowed(&[("user_id()", true)], Seen::String),
                KeyType::Text,
                "",
                "self.user_id().clone().ok_or(Error::NoOwner)?",
            ),
            (
                borrowed(&[("user_id()", true)], Seen::Str),
                KeyType::Text,
                "",
                "self.user_id().as_deref().ok_or(Error::NoOwner)?.to_string()",
            ),
            (borrowed(&[("user_id()", true)], Seen::Uuid), KeyType::Uuid, "", "self.user_id().ok_or(Error::NoOwner)?"),
            (
                borrowed(&[("user_id()", true)], from(Seen::Uuid, Take::Borrow)),
                KeyType::Uuid,
                "",
                "Uuid::from(self.user_id().as_ref().ok_or(Error::NoOwner)?)",
            ),
        ] {
            let expected = (statements.lines().map(str::to_owned).collect(), value.to_owned());
            assert_eq!(read_id(&access, key, |ty| ty.name.clone()), expected);
        }
    }
}
