//! The way from a scope to its owner's id: inferred from what the scope has, or followed as `--scope-owner` gives it.
//! Where the source shows none, it is refused here with what the scope has and the flag that decides.

use super::definition::{Definition, Has};
use super::member::{self, Kind, Member};
use super::reader::Reader;
use super::types::{Written, last_segment};
use crate::failure::{Failure, Result};
use crate::host::modules::Crate;
use crate::names::{ModulePath, Name, TypePath};
use crate::tree::Tree;

/// How the owner's id is read: a chain of accesses from the scope to the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub steps: Vec<Step>,
    /// The id's Rust type, if it could be seen; without the `Option` that its step tells of.
    pub id: Option<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// As Rust source: `user`, `0`, `user_id()`, `r#type`.
    pub text: String,
    /// The value there is an `Option`.
    pub optional: bool,
}

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

/// The type of the owner's id, as generated code stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdType {
    I64,
    Uuid,
    Text,
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
    for prefix in ["", "current_"] {
        for kind in [Kind::Field, Kind::Method] {
            let id = Member::new(kind, format!("{prefix}{}", owner.field));
            if let Some(access) = reader.direct(definition, &id)? {
                return Ok(access);
            }
            let holder = Member::new(kind, format!("{prefix}{}", owner.noun));
            if let Some(access) = reader.through(definition, &holder, owner)? {
                return Ok(access);
            }
            if prefix.is_empty()
                && kind == Kind::Field
                && let Some(holder) = reader.only_field_of_owner(definition, owner)?
                && let Some(access) = reader.through(definition, &holder, owner)?
            {
                return Ok(access);
            }
        }
    }
    if is_owner(&scope.name, owner)
        && let Some(access) = reader.id(definition, owner)?
    {
        return Ok(access);
    }
    Err(undecided(scope, definition, owner))
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
    let mut here = definition.cloned();
    let mut shown = scope.rust();
    let mut access = Access { steps: Vec::new(), id: None };
    for member in member::parse(text)? {
        let known = here.as_ref().and_then(|definition| Some((definition, definition.find(&member)?)));
        let Some((definition, found)) = known else {
            // A method further on may come from a trait or a derive; a field can only stand in the definition.
            if let Some(definition) = here.take()
                && (access.steps.is_empty() || member.kind == Kind::Field)
            {
                return Err(no_such_member(&shown, &definition, &member));
            }
            access.steps.push(Step { text: member.rust(), optional: false });
            access.id = None;
            continue;
        };
        if !found.visible {
            return Err(hidden_member(&shown, definition, &member, context));
        }
        let (step, value) = reader.read(&member, &found)?;
        access.steps.push(step);
        access.id = Some(reader.seen(&value)?);
        here = reader.definition_of(&value)?;
        shown = here.as_ref().map(|definition| definition.name.clone()).unwrap_or_default();
    }
    Ok(access)
}

impl Reader<'_> {
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
        for kind in [Kind::Field, Kind::Method] {
            for name in [owner.key, "id", owner.field.as_str()] {
                if let Some(access) = self.direct(definition, &Member::new(kind, name))? {
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// The field that is of the owner's type whatever it is called. Of two, nobody knows which owns; and a field that
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
        Ok(if let [name] = found[..] { Some(Member::new(Kind::Field, name)) } else { None })
    }

    fn read(&self, member: &Member, found: &Has) -> Result<(Step, Written)> {
        let (value, optional) = self.option(&found.value)?;
        Ok((Step { text: member.rust(), optional }, value))
    }
}

fn is_owner(type_name: &str, owner: &Owner) -> bool {
    type_name == owner.noun.camel() || owner.module.is_some_and(|module| module.name == type_name)
}

fn no_such_member(shown: &str, definition: &Definition, member: &Member) -> Failure {
    let kind = if member.kind == Kind::Field { "field" } else { "method" };
    let what = format!(
        "--scope-owner: `{shown}` in {} has no {kind} `{}`; {}",
        definition.file,
        member.rust(),
        definition.describe()
    );
    Failure::usage(what).help(format!(
        "name one of these, or add `pub fn {}(&self)` to `{}` in that file",
        if member.kind == Kind::Method { &member.name } else { "owner_id" },
        definition.name
    ))
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
    let anyone = anyone.map(|kind| format!("\na scope of `{kind}` and `id` may stand for any kind of owner"));
    let what = format!(
        "cannot tell how the id of the {owner_type} is read from `{}` in {}: {}\n\
         looked for a field or method `{owner_field}`, \
         and for a field or method `{owner_type}` whose type has a visible `{key}`{}",
        scope.rust(),
        definition.file,
        definition.describe(),
        anyone.unwrap_or_default(),
    );
    let holder = definition.fields.iter().find(|field| field.visible && field.name == owner_type.as_str());
    let example = match holder {
        Some(holder) => format!("{}.{key}", Member::new(Kind::Field, &holder.name).rust()),
        None if definition.fields.iter().any(|field| field.visible && field.name == "id") => "id".to_owned(),
        None => {
            return Failure::decision(what).help(format!(
                "say how with `--scope-owner`, or add `pub fn {owner_field}(&self)` to `{}` in that file",
                definition.name
            ));
        }
    };
    Failure::decision(what).help(format!("say how with `--scope-owner`, for example `--scope-owner {example}`"))
}
