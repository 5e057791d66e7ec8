//! A context's `scope.rs`, and the scope type that is created for a host.

use std::collections::{BTreeMap, BTreeSet};

use super::access::read_id;
use super::key::field_type;
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
        /// The expressions name `Uuid`.
        names_uuid: bool,
        names_error: bool,
        names_key: bool,
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
        let imports = imports(names, ways);
        let owner = owner.as_ref().map(|owner| ScopeOwner::new(owner, names));
        let group = group.as_ref().map(|group| ScopeGroup::new(group, names));
        let (scope_name, is_own) = (names.scope.clone(), names.is_own);
        let of_owner = owner.iter().flat_map(|owner| owner.read.iter().chain([&owner.read_value]));
        let of_group = group.iter().flat_map(|group| group.read.iter().chain(&group.read_value));
        let code: Vec<_> = of_owner.chain(of_group).collect();
        let uses = |name: &str| code.iter().any(|code| code.contains(name));
        let (names_uuid, names_error) = (uses("Uuid"), uses("Error::"));
        let names_key = group.as_ref().is_some_and(|group| group.read_value.is_some());
        Self { scope_name, imports, is_own, names_uuid, names_error, names_key, owner, group }
    }
}

#[derive(Debug)]
struct ScopeOwner {
    noun: String,
    article: &'static str,
    /// With a link, if there is a type to link to.
    link: String,
    /// The statements that read the owner's key from a scope, and the key.
    read: Vec<String>,
    read_value: String,
}

impl ScopeOwner {
    fn new(owner: &Owner, names: &Names) -> Self {
        let Owner { noun, field: _, key, table: _, access, module: _, link } = owner;
        let (read, read_value) = read_key(access, *key, names);
        Self {
            noun: noun.to_string(),
            article: article(noun),
            link: link.as_ref().map_or_else(|| noun.to_string(), |link| format!("[{noun}]({})", link.rust())),
            read,
            read_value,
        }
    }
}

#[derive(Debug)]
struct ScopeGroup {
    noun: String,
    /// The statements that read the group's key from a scope, and the key. Nothing if every scope has an owner.
    read: Vec<String>,
    read_value: Option<String>,
}

impl ScopeGroup {
    fn new(group: &Group, names: &Names) -> Self {
        let Group { noun, field: _, key, table: _, access } = group;
        let (read, read_value) = access.as_ref().map(|access| read_key(access, *key, names)).unzip();
        Self { noun: noun.to_string(), read: read.unwrap_or_default(), read_value }
    }
}

/// The statements that read a key from a scope, and the key as it's stored.
fn read_key(access: &Access, key: KeyType, names: &Names) -> (Vec<String>, String) {
    let (read, value) = read_id(access, key, |ty| names.of(ty));
    (read, if key == KeyType::UuidText { format!("{value}.to_string()") } else { value })
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
                    "/// The caller. With {} {noun}, it reads and writes that {noun}'s conversations; without one,\n\
                     /// it reads those of the {group}'s members.\n\
                     #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                     /// The {noun} that the caller acts for.\n    pub {}: Option<{ty}>,\n    \
                     /// The {group} that the caller acts for.\n    pub {field}: Option<{group_type}>,\n}}\n",
                    article(noun),
                    noun.id()
                );
            }
            format!(
                "/// The caller, which every call takes first.\n\
                 #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                 /// The {noun} that the caller acts for.\n    pub {}: {ty},\n}}\n",
                noun.id()
            )
        }
        None => format!("/// The caller.\n#[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name};\n"),
    }
}
