//! The way from a scope to its owner's id: inferred from what the scope has, or followed as `--scope-owner` gives it.
//! Where the source shows none, it is refused here with what the scope has and the flag that decides.

use super::definition::{Definition, Has};
use super::member::{self, Member, MemberKind};
use super::reader::Reader;
use super::types::{Written, last_segment, show};
use crate::failure::{Failure, Result};
use crate::host::modules::Crate;
use crate::names::{ModulePath, Name, TypePath};
use crate::tree::Tree;

/// How the owner's id is read: a chain of accesses from the scope to the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub steps: Vec<Step>,
    /// The id's Rust type, if it could be seen; without the `Option` that its step has.
    pub id: Option<Seen>,
}

impl Access {
    /// As `--scope-owner` writes it.
    pub fn shown(&self) -> String {
        self.steps.iter().map(|step| step.text.as_str()).collect::<Vec<_>>().join(".")
    }

    /// Whether a scope may have no such id.
    pub fn is_optional(&self) -> bool {
        self.steps.iter().any(|step| step.optional)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// As Rust source: `user`, `0`, `user_id()`, `r#type`.
    pub text: String,
    /// The value there is an `Option`.
    pub optional: bool,
}

/// The type of an id as the source has it, as far as generated code can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    I64,
    /// An integer that converts to `i64` with `From`.
    SmallInt,
    Uuid,
    String,
    /// `&str`, `Box<str>`, `Arc<str>`, `Cow<str>`.
    Str,
    /// A reference to one of the others: `&Uuid`.
    Ref(Box<Seen>),
    /// Anything else, as in the source.
    Other(String),
}

/// Whom to look for in a scope.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub noun: &'a Name,
    pub field: &'a Name,
    /// The key column of the owner's table, usually `id`.
    pub key: &'a str,
    /// `--owner-module`, if it was given.
    pub module: Option<&'a TypePath>,
}

/// Infers how the owner's id is read from the scope. In this order: a field named like the owner field; a field named
/// like the owner type, or of that type, that has an id; methods of the same names; all of these with `current_`; the
/// scope itself, if it is the owner.
pub fn infer(
    tree: &Tree,
    krate: &Crate,
    scope: &TypePath,
    definition: &Definition,
    owner: &Owner,
    context: &ModulePath,
) -> Result<Access> {
    let reader = Reader::new(tree, krate, context);
    agreed(scope, definition, |variant| reader.infer(scope, variant, owner))
}

/// Reads `--scope-owner`: `user.id`, `user_id()`, `user.id.0`. Types are followed as far as they can be seen, so that
/// an `Option` on the way is known. Without a definition nothing is checked.
pub fn follow(
    tree: &Tree,
    krate: &Crate,
    scope: &TypePath,
    definition: Option<&Definition>,
    text: &str,
    context: &ModulePath,
) -> Result<Access> {
    let reader = Reader::new(tree, krate, context);
    let members = member::parse(text)?;
    match definition {
        Some(definition) => agreed(scope, definition, |variant| reader.follow(scope, Some(variant), &members)),
        None => reader.follow(scope, None, &members),
    }
}

/// The way that all variants of a scope have in common.
fn agreed(scope: &TypePath, definition: &Definition, read: impl Fn(&Definition) -> Result<Access>) -> Result<Access> {
    let access = read(definition)?;
    for variant in &definition.variants {
        let other = read(variant)?;
        if other != access {
            let (one, other) = (access.shown(), other.shown());
            let ways =
                if one == other { format!("`{one}` of different types") } else { format!("`{one}` or `{other}`") };
            return Err(Failure::decision(format!(
                "`{}` in {} has variants under `cfg`, which lead to the owner by {ways}",
                scope.rust(),
                variant.file
            ))
            .help("name a field or method with --scope-owner that every variant has, with the same type"));
        }
    }
    Ok(access)
}

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

impl Reader<'_> {
    fn infer(&self, scope: &TypePath, definition: &Definition, owner: &Owner) -> Result<Access> {
        for prefix in ["", "current_"] {
            for kind in [MemberKind::Field, MemberKind::Method] {
                let id = Member::new(kind, format!("{prefix}{}", owner.field));
                if let Some(access) = self.direct(definition, &id)? {
                    return Ok(access);
                }
                let holder = Member::new(kind, format!("{prefix}{}", owner.noun));
                if let Some(access) = self.through(definition, &holder, owner)? {
                    return Ok(access);
                }
                if prefix.is_empty()
                    && kind == MemberKind::Field
                    && let Some(holder) = self.only_field_of_owner(definition, owner)?
                    && let Some(access) = self.through(definition, &holder, owner)?
                {
                    return Ok(access);
                }
            }
        }
        if is_owner(&scope.name, owner)
            && let Some(access) = self.id(definition, owner)?
        {
            return Ok(access);
        }
        Err(undecided(scope, definition, owner))
    }

    fn follow(&self, scope: &TypePath, definition: Option<&Definition>, members: &[Member]) -> Result<Access> {
        let mut access = Access { steps: Vec::new(), id: None };
        let mut at = match definition {
            Some(definition) => At::Host(Box::new(definition.clone()), Seen::Other(scope.rust())),
            None => At::Unknown,
        };
        for member in members {
            let (step, next) = self.step(scope, &access, &at, member)?;
            access.steps.push(step);
            access.id = match &next {
                At::Host(_, seen) | At::Other(seen, _) => Some(seen.clone()),
                At::Unknown => None,
            };
            at = next;
        }
        Ok(access)
    }

    /// One step of a way that was given. What cannot exist is refused.
    fn step(&self, scope: &TypePath, access: &Access, at: &At, member: &Member) -> Result<(Step, At)> {
        let plain = |next: At| Ok((Step { text: member.rust(), optional: false }, next));
        let definition = match at {
            At::Host(definition, _) => definition,
            At::Other(seen, shown) => {
                return match standard(seen, shown, member) {
                    Some(next) => plain(next),
                    None => Err(no_way(access, shown, member)),
                };
            }
            At::Unknown if member.is_call("to_string") => return plain(At::text()),
            At::Unknown => return plain(At::Unknown),
        };
        let shown = if access.steps.is_empty() { scope.rust() } else { definition.name.clone() };
        let Some(found) = definition.find(member) else {
            return match self.unwritten(at, definition, member)? {
                Some(next) => plain(next),
                None => Err(no_such_member(&shown, definition, member)),
            };
        };
        if !found.visible {
            return Err(hidden_member(&shown, definition, member, self.context));
        }
        let (step, value) = self.read(member, &found)?;
        let seen = self.seen(&value)?;
        let next = match self.definition_of(&value)? {
            Some(definition) => At::Host(Box::new(definition), seen),
            None => At::Other(seen, show(&value.ty)),
        };
        Ok((step, next))
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

    /// A member that is the id itself.
    fn direct(&self, definition: &Definition, id: &Member) -> Result<Option<Access>> {
        let Some(found) = definition.find(id).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(id, &found)?;
        Ok(Some(Access { steps: vec![step], id: Some(self.seen(&value)?) }))
    }

    /// A member whose type has the id.
    fn through(&self, definition: &Definition, holder: &Member, owner: &Owner) -> Result<Option<Access>> {
        let Some(found) = definition.find(holder).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(holder, &found)?;
        let Some(inner) = self.definition_of(&value)? else { return Ok(None) };
        let mut access = self.id(&inner, owner)?;
        if let Some(access) = &mut access {
            access.steps.insert(0, step);
        }
        Ok(access)
    }

    /// The id of the owner's own type. The key comes first: the table's foreign key will name it.
    fn id(&self, definition: &Definition, owner: &Owner) -> Result<Option<Access>> {
        for kind in [MemberKind::Field, MemberKind::Method] {
            for name in [owner.key, "id", owner.field.as_str()] {
                if let Some(access) = self.direct(definition, &Member::new(kind, name))? {
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// The field that is of the owner's type whatever it is called. Of two, either may be the owner; and a field that
    /// has the owner's name, though it could not be read, is not passed over for another.
    fn only_field_of_owner(&self, definition: &Definition, owner: &Owner) -> Result<Option<Member>> {
        let mut found = Vec::new();
        for field in &definition.fields {
            if field.name == owner.noun.as_str() {
                return Ok(None);
            }
            let (value, _) = self.option(&Written { ty: field.ty.clone(), module: definition.module.clone() })?;
            if last_segment(&self.pointee(&value)?.ty).is_some_and(|name| is_owner(&name, owner)) {
                found.push(&field.name);
            }
        }
        Ok(if let [name] = found[..] { Some(Member::new(MemberKind::Field, name)) } else { None })
    }

    fn read(&self, member: &Member, found: &Has) -> Result<(Step, Written)> {
        let (value, optional) = self.option(&found.value)?;
        Ok((Step { text: member.rust(), optional }, value))
    }
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

fn is_owner(type_name: &str, owner: &Owner) -> bool {
    type_name == owner.noun.camel() || owner.module.is_some_and(|module| module.name == type_name)
}

fn no_such_member(shown: &str, definition: &Definition, member: &Member) -> Failure {
    let kind = if member.kind == MemberKind::Field { "field" } else { "method" };
    let what = format!(
        "--scope-owner: `{shown}` in {} has no {kind} `{}`; {}",
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

fn no_way(access: &Access, shown: &str, member: &Member) -> Failure {
    let (way, member) = (access.shown(), member.rust());
    Failure::usage(format!("--scope-owner: `{way}` is `{shown}`, and `{member}` does not lead from there to a key"))
        .help(format!("end with `{way}`, or with `{way}.to_string()` for a key of text"))
}

fn hidden_member(shown: &str, definition: &Definition, member: &Member, context: &ModulePath) -> Failure {
    let member = member.rust();
    let context = context.rust();
    let what = format!(
        "--scope-owner: `{member}` of `{shown}` in {} cannot be seen from `{context}`; {}",
        definition.file,
        definition.describe()
    );
    Failure::usage(what).help(format!("make `{member}` visible with `pub(crate)`, or name another"))
}

fn undecided(scope: &TypePath, definition: &Definition, owner: &Owner) -> Failure {
    let Owner { noun: owner_type, field: owner_field, key, .. } = owner;
    let has = |name: &str| definition.fields.iter().any(|field| field.name == name);
    let anyone = ["type", "kind", "owner_type"].into_iter().find(|name| has(name)).filter(|_| has("id"));
    let anyone = anyone.map(|kind| format!("\na scope of `{kind}` and `id` may be any kind of owner"));
    let what = format!(
        "it is not clear how the id of the {owner_type} is read from `{}` in {}: {}\n\
         looked for a field or method `{owner_field}`, \
         and for a field or method `{owner_type}` whose type has a visible `{key}`{}",
        scope.rust(),
        definition.file,
        definition.describe(),
        anyone.unwrap_or_default(),
    );
    let holder = definition.fields.iter().find(|field| field.visible && field.name == owner_type.as_str());
    let example = match holder {
        Some(holder) => format!("{}.{key}", Member::new(MemberKind::Field, &holder.name).rust()),
        None if definition.fields.iter().any(|field| field.visible && field.name == "id") => "id".to_owned(),
        None => {
            return Failure::decision(what).help(format!(
                "give it with `--scope-owner`, or add `pub fn {owner_field}(&self)` to `{}` in that file",
                definition.name
            ));
        }
    };
    Failure::decision(what).help(format!("give it with `--scope-owner`, for example `--scope-owner {example}`"))
}
