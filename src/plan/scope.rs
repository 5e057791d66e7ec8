//! The scope type, where the host has none: it is created once, and kept up to date until its owner edits it.

use super::edit::{Edit, newline};
use super::place::{Placement, Purpose, place};
use super::{Part, Planned, Start};
use crate::failure::Result;
use crate::host::modules::{self, Found};
use crate::host::{Host, source};
use crate::memory::Created;
use crate::names::ModulePath;
use crate::options::{Options, ScopeOrigin};
use crate::templates;

/// What is created, and how; nothing if the host has a scope type of its own.
pub fn created(options: &Options, host: &Host, start: Start) -> Result<Option<(Created, Part)>> {
    if options.scope_origin != ScopeOrigin::Created {
        return Ok(None);
    }
    let Placement { module, mut part } = home(options, host, start)?;
    let text = templates::scope_type(options, module.public);
    let created = Created { file: module.file.clone(), text: text.clone() };
    let existing = host.tree.read(&module.file)?;
    let line = format!("pub struct {}", options.scope.name);
    if let (Some(before), Some(existing)) = (&start.last.files.scope, &existing)
        && before.file == module.file
        && source::untouched(existing, &before.text).is_some()
    {
        if before.text != text {
            let before = before.text.clone();
            part.edits.push(Edit::new(module.file, vec![line], move |existing| Ok(replace(existing, &before, &text))));
        }
        return Ok(Some((created, part)));
    }
    if existing.is_some() && !start.last.files.once.contains_key(&module.file) {
        // To add it by hand, all of it is needed.
        let added = if options.wire { vec![line] } else { text.lines().map(str::to_owned).collect() };
        part.edits.push(Edit::new(module.file, added, move |existing| Ok(Some(append(existing, &text)))));
    } else {
        let owner = options.owner.as_ref();
        let noun = owner.map_or("the application".to_owned(), |owner| format!("which {}", owner.noun));
        part.files.push((module.file, Planned::Once(format!("//! Who is asking, and for {noun}.\n\n{text}"))));
    }
    Ok(Some((created, part)))
}

/// The module that the scope type is created in.
fn home(options: &Options, host: &Host, start: Start) -> Result<Placement> {
    let modules = &options.scope.modules;
    if !modules.is_empty() {
        return place(host, start, &ModulePath::of(modules.iter().cloned()), Purpose::Scope);
    }
    match modules::find(&host.tree, &host.krate, &[])? {
        Found::Module(module) => Ok(Placement { module, part: Part::default() }),
        Found::Inline { .. } | Found::Missing { .. } => unreachable!("a crate's root is a file"),
    }
}

/// A file with another text of the type that was created in it.
fn replace(existing: &str, before: &str, text: &str) -> Option<String> {
    let place = source::untouched(existing, before)?;
    let mut replaced = existing.to_owned();
    replaced.replace_range(place, &text.trim_end().replace('\n', newline(existing)));
    Some(replaced)
}

/// A file with the type behind everything else.
fn append(existing: &str, text: &str) -> String {
    let gap = if existing.trim().is_empty() { "" } else { "\n" };
    let appended = format!("{}\n{gap}{text}", existing.trim_end());
    appended.replace("\r\n", "\n").replace('\n', newline(existing))
}
