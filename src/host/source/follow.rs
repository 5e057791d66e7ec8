//! Follows a way that a person gave: each step must exist, as far as the source shows it. What cannot lead to a key is
//! refused with what is there.

use super::access::{Access, Around, Seen, Step};
use super::definition::{Case, Definition};
use super::member::{Member, MemberKind};
use super::reader::Reader;
use super::types::{Written, show};
use crate::failure::{Failure, Result};
use crate::names::{ModulePath, Name, TypePath};

/// Where a way has led so far.
#[derive(Debug, Clone)]
enum At {
    /// At a value of a type of the host's.
    Host(Box<Definition>, Seen),
    /// At a value of another type, with that type as it is written.
    Other(Seen, String),
    /// Somewhere that the source does not show.
    Unknown,
}

impl At {
    fn text() -> Self {
        Self::Other(Seen::String, "String".to_owned())
    }
}

/// Where a way starts, and the flag that gave it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) scope: &'a TypePath,
    pub(super) flag: &'static str,
}

impl Reader<'_> {
    pub(super) fn follow(&self, start: Start, definition: Option<&Definition>, members: &[Member]) -> Result<Access> {
        self.led(start, definition, members).map(|(access, _)| access)
    }

    /// The type of the host's that a way ends at.
    pub(super) fn end(&self, start: Start, definition: &Definition, members: &[Member]) -> Option<Definition> {
        match self.led(start, Some(definition), members) {
            Ok((_, At::Host(end, _))) => Some(*end),
            _ => None,
        }
    }

    fn led(&self, start: Start, definition: Option<&Definition>, members: &[Member]) -> Result<(Access, At)> {
        let scope = start.scope;
        let mut access = Access { steps: Vec::new(), id: None };
        let mut at = match definition {
            Some(definition) => At::Host(Box::new(definition.clone()), Seen::Other(scope.rust())),
            None => At::Unknown,
        };
        let mut members = members.iter();
        while let Some(member) = members.next() {
            let (step, next) = match variant(&at, member) {
                Some((choice, case)) => self.enter(start, &access, choice, case, members.next())?,
                None => self.step(start, &access, &at, member)?,
            };
            access.steps.push(step);
            access.id = match &next {
                At::Host(_, seen) | At::Other(seen, _) => Some(seen.clone()),
                At::Unknown => None,
            };
            at = next;
        }
        Ok((access, at))
    }

    /// One step of a way that was given. What cannot exist is refused.
    fn step(&self, start: Start, access: &Access, at: &At, member: &Member) -> Result<(Step, At)> {
        let plain = |next: At| Ok((Step::Member { text: member.rust(), around: None }, next));
        let definition = match at {
            At::Host(definition, _) => definition,
            At::Other(seen, shown) => {
                return match standard(seen, shown, member) {
                    Some(next) => plain(next),
                    None => Err(no_way(start.flag, access, shown, member)),
                };
            }
            At::Unknown if member.is_call("to_string") => return plain(At::text()),
            At::Unknown => return plain(At::Unknown),
        };
        let shown = if access.steps.is_empty() { start.scope.rust() } else { definition.name.clone() };
        let Some(found) = definition.find(member) else {
            return match self.unwritten(at, definition, member)? {
                Some(next) => plain(next),
                None => Err(no_such_member(start.flag, &shown, definition, member)),
            };
        };
        if !found.visible {
            return Err(hidden_member(start.flag, &shown, definition, member, self.source.context));
        }
        let (step, value) = self.read(member, &found)?;
        Ok((step, self.at(&value)?))
    }

    /// Into a variant: `User.0`, `User.id`.
    fn enter(
        &self,
        start: Start,
        access: &Access,
        choice: &Definition,
        case: &Case,
        member: Option<&Member>,
    ) -> Result<(Step, At)> {
        let flag = start.flag;
        let field = member.filter(|member| member.kind == MemberKind::Field).and_then(|member| {
            let field = case.fields.iter().find(|field| field.name == member.name)?;
            Some((field, Name::parse("", &member.name).ok()))
        });
        let of = if access.steps.is_empty() { None } else { self.path_to(choice, start.scope)? };
        let is_nameable = access.steps.is_empty() || of.is_some();
        let Some((field, binding)) = field.filter(|_| case.is_certain && is_nameable) else {
            let shown = &choice.name;
            return Err(Failure::usage(format!(
                "{flag}: `{}` of `{shown}` in {} does not lead to a key; {}",
                case.name,
                choice.file,
                choice.describe()
            ))
            .help(match case.fields.first() {
                Some(field) => format!("name a field of the variant, for example `{}.{}`", case.name, field.name),
                None => format!("name another variant, or add `pub fn owner_id(&self)` to `{shown}` in that file"),
            }));
        };
        let (value, around) = self.inside(&choice.type_of(field))?;
        let is_holder = self.definition_of(&value)?.is_some_and(|definition| !definition.is_like_an_id());
        let binding = match binding {
            Some(name) => name.rust(),
            None if is_holder => "owner".to_owned(),
            None => "id".to_owned(),
        };
        let step = Step::Variant {
            of,
            name: case.name.clone(),
            field: field.name.clone(),
            fields: case.fields.len(),
            binding,
            is_optional: around.is_some_and(|around| around != Around::Result),
            is_only: choice.cases.len() == 1 && !choice.is_open,
        };
        Ok((step, self.at(&value)?))
    }

    fn at(&self, value: &Written) -> Result<At> {
        let seen = self.seen(value)?;
        Ok(match self.definition_of(value)? {
            Some(definition) => At::Host(Box::new(definition), seen),
            None => At::Other(seen, show(&value.ty)),
        })
    }

    /// Where a method leads that a type may have though no `impl` in its file has it: one of a trait that needs no
    /// import, of a macro, of the type that it derefs to, or of an `impl` in another file. Traits of the host's own do
    /// not count, because the generated code does not import them.
    fn unwritten(&self, at: &At, definition: &Definition, member: &Member) -> Result<Option<At>> {
        if member.kind == MemberKind::Field {
            return Ok(None);
        }
        let has = |name: &str| definition.traits.iter().any(|found| found == name);
        let may_have = definition.expands || has("Deref");
        Ok(match member.name.as_str() {
            "clone" | "to_owned" if may_have || self.implements(definition, "Clone")? => Some(at.clone()),
            "to_string" if may_have || has("Error") || self.implements(definition, "Display")? => Some(At::text()),
            name if may_have || name == "into" || self.has_method(definition, name)? => Some(At::Unknown),
            _ => None,
        })
    }
}

/// The variant that a member names, if the way has led to an enum.
fn variant<'a>(at: &'a At, member: &Member) -> Option<(&'a Definition, &'a Case)> {
    let At::Host(choice, _) = at else { return None };
    let is_named = |case: &&Case| member.kind == MemberKind::Field && case.name == member.name;
    choice.cases.iter().find(is_named).map(|case| (&**choice, case))
}

/// Where a member leads from a type that is not the host's. Nothing if that type is known and does not have it.
fn standard(seen: &Seen, shown: &str, member: &Member) -> Option<At> {
    let same = || Some(At::Other(seen.clone(), shown.to_owned()));
    let str = || Some(At::Other(Seen::Str, "&str".to_owned()));
    match (seen, member.name.as_str()) {
        (Seen::Ref(inner), _) => standard(inner, shown.trim_start_matches('&').trim_start(), member),
        (Seen::Other(_), _) if member.is_call("to_string") => Some(At::text()),
        (Seen::Other(_), _) => (member.kind == MemberKind::Method || !is_primitive(shown)).then_some(At::Unknown),
        _ if member.kind == MemberKind::Field => None,
        (_, "to_string") => Some(At::text()),
        (Seen::Str, "to_owned") if shown.starts_with('&') => Some(At::text()),
        (_, "clone" | "to_owned") => same(),
        (Seen::String, "as_str") | (Seen::String | Seen::Str, "trim") => str(),
        (Seen::String | Seen::Str, "to_lowercase" | "to_uppercase" | "to_ascii_lowercase" | "to_ascii_uppercase") => {
            Some(At::text())
        }
        (Seen::Uuid, "simple" | "hyphenated" | "urn" | "braced") => Some(At::Unknown),
        _ => None,
    }
}

fn is_primitive(ty: &str) -> bool {
    const NUMBERS: &[&str] = &["i128", "isize", "u64", "u128", "usize", "f32", "f64"];
    NUMBERS.contains(&ty) || ["bool", "char"].contains(&ty)
}

fn no_such_member(flag: &str, shown: &str, definition: &Definition, member: &Member) -> Failure {
    let kind = if member.kind == MemberKind::Field { "field" } else { "method" };
    let what = format!(
        "{flag}: `{shown}` in {} has no {kind} `{}`; {}",
        definition.file,
        member.rust(),
        definition.describe()
    );
    let name = &definition.name;
    Failure::usage(what).help(match member.kind {
        MemberKind::Method if member.is_call("to_string") => {
            format!("name one of these, or implement `Display` for `{name}`")
        }
        MemberKind::Method => {
            format!("name one of these, or add `pub fn {}(&self)` to `{name}` in that file", member.name)
        }
        MemberKind::Field => format!("name one of these, or add `pub fn owner_id(&self)` to `{name}` in that file"),
    })
}

fn no_way(flag: &str, access: &Access, shown: &str, member: &Member) -> Failure {
    let (way, member) = (access.shown(), member.rust());
    Failure::usage(format!("{flag}: `{way}` is `{shown}`, and `{member}` does not lead from there to a key"))
        .help(format!("end with `{way}`, or with `{way}.to_string()` for a key of text"))
}

fn hidden_member(flag: &str, shown: &str, definition: &Definition, member: &Member, context: &ModulePath) -> Failure {
    let member = member.rust();
    let context = context.rust();
    let what = format!(
        "{flag}: `{member}` of `{shown}` in {} cannot be seen from `{context}`; {}",
        definition.file,
        definition.describe()
    );
    Failure::usage(what).help(format!("make `{member}` visible with `pub(crate)`, or name another"))
}
