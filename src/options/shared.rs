//! Rust allows one `impl OwnerScope` for a type. Contexts with the same scope share the `scope.rs` of one of them, and
//! have to read the same owner from it.

use camino::Utf8PathBuf;

use super::{Options, Resolved, ScopeOrigin};
use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::host::modules::{self, Found};
use crate::host::source::Lookup;
use crate::memory::{self, Files, Last, Recorded};
use crate::names::{ModulePath, TypePath};

/// The file that implements `OwnerScope` for the scope already: that of another context, or one of the host's own. Nothing
/// if this context writes it. `written` is the scope as it is in the source.
pub(super) fn scope(
    options: &Options,
    written: &Lookup,
    host: &Host,
    recorded: &Recorded,
    last: &Last,
) -> Result<Option<Utf8PathBuf>> {
    if options.scope_origin == ScopeOrigin::Context {
        return Ok(None);
    }
    let now = &options.resolved();
    let key = options.context.key();
    let others = others(options, written, host, recorded)?;
    let had_same_scope = last.resolved.as_ref().is_some_and(|before| before.scope == now.scope);
    let own_file = file(&options.context, &last.files, host).filter(|_| had_same_scope);
    // Two branches may have made one each: then the first by name keeps its own.
    let is_first = |other: &&Other| own_file.is_none() || other.key < key;
    if let Some((other, file)) = others.iter().filter(is_first).find_map(|other| Some((other, other.file.as_ref()?))) {
        if !fits(now, &other.resolved, Compare::Ways) {
            let help = format!("give `{}` the same options first, or `{key}` {}", other.key, own_scope(&key, now));
            return Err(refusal(&key, now, &other.key, &other.resolved, Some(file)).help(help));
        }
        return Ok(Some(file.clone()));
    }
    let by_hand = match written {
        Lookup::Found(definition) => {
            // It may be there without being remembered.
            let own = match modules::find(&host.tree, &host.krate, options.context.names()) {
                Ok(Found::Module(module)) => Some(module.directory.join("scope.rs")),
                _ => None,
            };
            let generated: Vec<_> = others.iter().filter_map(|other| other.file.clone()).chain(own).collect();
            host.source(&options.context).implementation(definition, "OwnerScope", &generated)?
        }
        _ => None,
    };
    // The others follow another way to the same owner with their next run.
    if let Some(other) = others.iter().find(|other| !fits(&other.resolved, now, Compare::Owners)) {
        let file = by_hand.as_ref().or(own_file.as_ref());
        let help = format!("first give `{}` {}", other.key, own_scope(&other.key, now));
        return Err(refusal(&other.key, &other.resolved, &key, now, file).help(help));
    }
    Ok(by_hand)
}

/// Another context with the same scope type.
struct Other {
    key: String,
    resolved: Resolved,
    /// Its `scope.rs`, if it has one.
    file: Option<Utf8PathBuf>,
}

fn others(options: &Options, written: &Lookup, host: &Host, recorded: &Recorded) -> Result<Vec<Other>> {
    let mut others = Vec::new();
    for key in recorded.contexts.keys().filter(|key| **key != options.context.key()) {
        let Ok(context) = ModulePath::parse_key(key) else { continue };
        let Last { resolved: Some(resolved), files, .. } = Last::read(&host.tree, &context)? else { continue };
        if is_same(&resolved.scope, options, written, host)? {
            others.push(Other { key: key.clone(), file: file(&context, &files, host), resolved });
        }
    }
    Ok(others)
}

/// Whether a path names the scope, maybe through a re-export.
fn is_same(path: &str, options: &Options, written: &Lookup, host: &Host) -> Result<bool> {
    if path == options.scope.rust() {
        return Ok(true);
    }
    let (Lookup::Found(scope), Ok(other)) = (written, TypePath::parse("--scope", path, &host.package, &[])) else {
        return Ok(false);
    };
    let other = host.source(&options.context).lookup(&other)?;
    Ok(matches!(other, Lookup::Found(other) if (&other.file, &other.name) == (&scope.file, &scope.name)))
}

/// A context's `scope.rs`, unless the context is gone. One that was deleted counts: its `impl` was moved.
fn file(context: &ModulePath, files: &Files, host: &Host) -> Option<Utf8PathBuf> {
    let root = memory::root(files, context).filter(|root| host.tree.is_file(root))?;
    let directory =
        if root.file_name() == Some("mod.rs") { root.parent()?.to_owned() } else { root.with_extension("") };
    Some(directory.join("scope.rs")).filter(|file| files.generated.contains_key(file))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// The kinds of owners and groups, and their keys.
    Owners,
    /// The ways to them, too.
    Ways,
}

/// Whether a context can use the `impl` of another one. One whose scope is never a group's has no use for that part.
fn fits(user: &Resolved, of: &Resolved, compare: Compare) -> bool {
    let way = |way: &Option<String>| way.clone().filter(|_| compare == Compare::Ways);
    let owner = |of: &Resolved| (of.owner_type.clone(), of.owner_id.clone(), way(&of.scope_owner));
    let group = |of: &Resolved| (of.group_type.clone(), of.group_id.clone(), way(&of.scope_group));
    owner(user) == owner(of) && (user.scope_group.is_none() || group(user) == group(of))
}

fn refusal(user: &str, users: &Resolved, other: &str, others: &Resolved, file: Option<&Utf8PathBuf>) -> Failure {
    let place = file.map(|file| format!(" in {file}")).unwrap_or_default();
    Failure::decision(format!(
        "`{user}` and `{other}` share the `impl OwnerScope for {}`{place}, but `{user}` needs {} and `{other}` {}",
        users.scope,
        describe(users),
        describe(others)
    ))
}

fn own_scope(context: &str, now: &Resolved) -> String {
    let name = heck::AsUpperCamelCase(context.rsplit("::").next().unwrap_or(context));
    format!("a scope type of its own: `pub struct {name}Scope(pub {});`", now.scope)
}

/// The owner and the group of a context, and the ways to them.
fn describe(of: &Resolved) -> String {
    let part = |noun: &str, id: &Option<String>, way: &Option<String>| {
        let (id, way) = (id.as_deref().unwrap_or_default(), way.as_deref());
        format!("the {noun} ({id}{})", way.map(|way| format!(", `{way}`")).unwrap_or_default())
    };
    let Some(id) = &of.owner_id else { return "no owner".to_owned() };
    let owner = part(&of.owner_type, &Some(id.clone()), &of.scope_owner);
    match &of.group_type {
        Some(group) => format!("{owner} with {}", part(group, &of.group_id, &of.scope_group)),
        None => owner,
    }
}
