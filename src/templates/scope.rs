//! A context's `scope.rs`, and the scope type that is created for a host.

use std::collections::{BTreeMap, BTreeSet};

use super::access::read_id;
use super::key::{bound, bound_type, field_type, is_uuid};
use super::names::{Names, article};
use crate::host::source::Access;
use crate::key::KeyType;
use crate::names::TypePath;
use crate::options::{Group, Options, Owner};

templates! {
    OwnerScope {
        scope_name: String,
        /// What is imported for it, beside what every such file imports.
        imports: Vec<String>,
        /// The scope's type is defined there.
        is_own: bool,
        uses_uuid: bool,
        owner: Option<ScopeOwner>,
        group: Option<ScopeGroup>,
    }
    text: "context/scope.rs",
}

impl OwnerScope {
    pub fn new(options: &Options, names: &Names) -> Self {
        let Options { owner, group, .. } = options;
        let ways = owner.iter().map(|owner| &owner.access);
        let ways = ways.chain(group.iter().filter_map(|group| group.access.as_ref()));
        Self {
            scope_name: names.scope.clone(),
            imports: imports(names, ways),
            is_own: names.is_own,
            uses_uuid: owner.as_ref().map(|owner| owner.key).is_some_and(is_uuid)
                || group.as_ref().map(|group| group.key).is_some_and(is_uuid),
            owner: owner.as_ref().map(|owner| ScopeOwner::new(owner, names)),
            group: group.as_ref().map(|group| ScopeGroup::new(group, names)),
        }
    }
}

#[derive(Debug)]
struct ScopeOwner {
    noun: String,
    article: &'static str,
    field: String,
    /// With a link, if there is a type to link to.
    link: String,
    rust_type: &'static str,
    /// What is bound to a statement: its type, and how it is read from `self`.
    bound_type: &'static str,
    bound: String,
    is_text: bool,
    /// Something on the way to the owner may be absent.
    is_optional: bool,
    /// The statements that read the owner's id from a scope, and the id.
    read: Vec<String>,
    read_value: String,
}

impl ScopeOwner {
    fn new(owner: &Owner, names: &Names) -> Self {
        let Owner { noun, field, key, table: _, access, module: _, link } = owner;
        let (read, read_value) = read_id(access, *key, |ty| names.of(ty));
        Self {
            noun: noun.to_string(),
            article: article(noun),
            field: field.to_string(),
            link: link.as_ref().map_or_else(|| noun.to_string(), |link| format!("[{noun}]({})", link.rust())),
            rust_type: key.rust_type(),
            bound_type: bound_type(*key),
            bound: bound(field, *key),
            is_text: *key == KeyType::Text,
            is_optional: access.is_optional(),
            read,
            read_value,
        }
    }
}

#[derive(Debug)]
struct ScopeGroup {
    noun: String,
    article: &'static str,
    field: String,
    rust_type: &'static str,
    bound_type: &'static str,
    bound: String,
    is_text: bool,
    /// The statements that read the group's id from a scope, and the id. Nothing if every scope has an owner.
    read: Vec<String>,
    read_value: Option<String>,
}

impl ScopeGroup {
    fn new(group: &Group, names: &Names) -> Self {
        let Group { noun, field, key, table: _, access } = group;
        let (read, read_value) = access.as_ref().map(|access| read_id(access, *key, |ty| names.of(ty))).unzip();
        Self {
            noun: noun.to_string(),
            article: article(noun),
            field: field.to_string(),
            rust_type: key.rust_type(),
            bound_type: bound_type(*key),
            bound: bound(field, *key),
            is_text: *key == KeyType::Text,
            read: read.unwrap_or_default(),
            read_value,
        }
    }
}

/// The scope, and the enums that the ways through it name: one line for a module.
fn imports<'a>(names: &Names, ways: impl Iterator<Item = &'a Access>) -> Vec<String> {
    let scope = names.scope_import.iter().filter(|_| !names.is_own).cloned();
    let enums = ways.flat_map(Access::enums).filter(|ty| names.is_free(ty)).map(TypePath::rust);
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in scope.chain(enums) {
        if let Some((module, name)) = path.rsplit_once("::") {
            modules.entry(module.to_owned()).or_default().insert(name.to_owned());
        }
    }
    let line = |(module, names): (String, BTreeSet<String>)| {
        let joined = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if names.len() == 1 { format!("{module}::{joined}") } else { format!("{module}::{{{joined}}}") }
    };
    modules.into_iter().map(line).collect()
}

/// The scope type that is created when the host has none.
pub fn scope_type(options: &Options, public: bool) -> String {
    let name = &options.scope.name;
    let allow = if public { "" } else { "#[allow(dead_code, reason = \"for the application to use\")]\n" };
    match &options.owner {
        Some(owner) => {
            let (noun, ty) = (&owner.noun, field_type(owner.key));
            if let Some(group) = &options.group {
                let (group, field, group_type) = (&group.noun, group.noun.id(), field_type(group.key));
                return format!(
                    "/// On whose behalf a call is made. With {} {noun}, it reaches what belongs to that {noun}; without one,\n\
                     /// it reads what belongs to the members of the {group}.\n\
                     #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                     /// The {noun} that the caller acts for.\n    pub {}: Option<{ty}>,\n    \
                     /// The {group} that the caller acts for.\n    pub {field}: Option<{group_type}>,\n}}\n",
                    article(noun),
                    noun.id()
                );
            }
            format!(
                "/// On whose behalf a call is made. What belongs to the {noun} is reached through one.\n\
                 #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                 /// The {noun} that the caller acts for.\n    pub {}: {ty},\n}}\n",
                noun.id()
            )
        }
        None => format!(
            "/// On whose behalf a call is made.\n#[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name};\n"
        ),
    }
}
