//! The lints that a host forbids, in the root of its crate or in Cargo.toml.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Meta, MetaList, Token};
use toml_edit::{Item, TableLike};

use super::{Host, modules};
use crate::failure::Result;

/// A lint, or a group of lints.
#[derive(Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// As attributes write it: `clippy::unwrap_used`.
    pub name: String,
    /// The file, and how it is forbidden there.
    pub place: String,
    /// It holds for tests, too.
    pub in_tests: bool,
}

pub fn forbidden(host: &Host) -> Result<Vec<Forbidden>> {
    let root = &host.krate.root;
    let text = host.tree.read(root)?.unwrap_or_default();
    let mut found = Vec::new();
    for attribute in modules::parse(root, &text)?.attrs {
        let line = attribute.span().start().line;
        collect(&attribute.meta, true, &mut |name, in_tests| {
            found.push(Forbidden { place: format!("{root}:{line}: `forbid({name})`"), name, in_tests });
        });
    }
    let Some((file, section, tools)) = host.manifest.lints() else { return Ok(found) };
    for (tool, lints) in tools.iter() {
        let lints = lints.as_table_like().into_iter().flat_map(TableLike::iter);
        for (key, _) in lints.filter(|(_, level)| is_forbid(level)) {
            let plain = key.replace('-', "_");
            let name = if tool == "rust" { plain } else { format!("{tool}::{plain}") };
            let place = format!("{file}: `{key}` in [{section}.{tool}]");
            found.push(Forbidden { name, place, in_tests: true });
        }
    }
    Ok(found)
}

/// The names in `forbid(…)`, also inside of `cfg_attr(…)`.
fn collect(meta: &Meta, in_tests: bool, found: &mut dyn FnMut(String, bool)) {
    let Meta::List(list) = meta else { return };
    let inner = inner(list);
    if list.path.is_ident("forbid") {
        for lint in inner.iter().filter_map(|meta| meta.require_path_only().ok()) {
            let segments = lint.segments.iter().map(|segment| segment.ident.to_string());
            found(segments.collect::<Vec<_>>().join("::"), in_tests);
        }
    } else if list.path.is_ident("cfg_attr") {
        let in_tests = in_tests && !inner.first().is_some_and(|condition| is_in_tests(condition, false));
        inner.iter().skip(1).for_each(|meta| collect(meta, in_tests, found));
    }
}

/// Whether a condition of `cfg` has this value wherever tests are compiled.
fn is_in_tests(condition: &Meta, value: bool) -> bool {
    let Meta::List(list) = condition else { return value && condition.path().is_ident("test") };
    let (inner, operator) = (inner(list), list.path.get_ident().map(ToString::to_string));
    let mut conditions = inner.iter();
    match (operator.as_deref(), value) {
        (Some("not"), _) => conditions.any(|condition| is_in_tests(condition, !value)),
        (Some("any"), true) | (Some("all"), false) => conditions.any(|condition| is_in_tests(condition, value)),
        (Some("any"), false) | (Some("all"), true) => conditions.all(|condition| is_in_tests(condition, value)),
        _ => false,
    }
}

fn inner(list: &MetaList) -> Punctuated<Meta, Token![,]> {
    list.parse_args_with(Punctuated::parse_terminated).unwrap_or_default()
}

/// `"forbid"`, or `{ level = "forbid", priority = -1 }`.
fn is_forbid(level: &Item) -> bool {
    level.as_str().or_else(|| level.get("level")?.as_str()) == Some("forbid")
}
