//! The source of the host's scope type: what it holds, and how the owner's id is read from it. Types are followed
//! through re-exports, aliases and files of the host's own crate; what another crate or a macro makes is left unseen.
//! Nothing is guessed: where the source does not settle whose rows a scope may see, a person decides with a flag.

mod access;
mod definition;
mod macros;
mod member;
mod reader;
mod scope;
mod types;

#[cfg(test)]
mod tests;

pub use self::access::{Access, Owner, Seen, Step, follow, infer};
pub use self::definition::Definition;

use std::ops::Range;

use syn::spanned::Spanned as _;

use self::reader::{FUEL, Meaning, Reader};
use crate::failure::{Failure, Result};
use crate::host::modules::Crate;
use crate::names::{self, ModulePath, Name, TypePath};
use crate::tree::Tree;

/// What is known of a type of the host's own crate.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The module exists and defines the type.
    Found(Definition),
    /// The type is not there; its module may or may not exist.
    Absent,
    /// Something of that name comes from another crate, and its source cannot be read.
    Opaque,
    /// The type is not written in its module, but this macro there may make it.
    Made(String),
}

/// Finds the definition of a type, as code in `context` sees it.
pub fn lookup(tree: &Tree, krate: &Crate, ty: &TypePath, context: &ModulePath) -> Result<Lookup> {
    if ty.krate.is_some() {
        return Ok(Lookup::Opaque);
    }
    let reader = Reader::new(tree, krate, context);
    let mut definitions = Vec::new();
    for entry in reader.variants(&[], &path_of(ty), FUEL)? {
        match entry {
            Meaning::Absent | Meaning::Module(_) => {}
            Meaning::Made(maker) => return Ok(Lookup::Made(maker)),
            entry => match reader.define(entry)? {
                Some(definition) => definitions.push(definition),
                None => return Ok(Lookup::Opaque),
            },
        }
    }
    if definitions.is_empty() {
        return Ok(Lookup::Absent);
    }
    let variants = definitions.split_off(1);
    Ok(Lookup::Found(Definition { variants, ..definitions.remove(0) }))
}

/// Refuses a scope that the generated code could not be compiled with.
pub fn check_scope(tree: &Tree, krate: &Crate, ty: &TypePath, context: &ModulePath) -> Result<()> {
    let reader = Reader::new(tree, krate, context);
    for entry in reader.variants(&[], &path_of(ty), FUEL)? {
        if let Some((place, item)) = reader.item(entry)? {
            reader.check_scope(ty, &place, &item)?;
        }
    }
    Ok(())
}

fn path_of(ty: &TypePath) -> Vec<String> {
    let modules = ty.modules.iter().map(|module| module.as_str().to_owned());
    ["crate".to_owned()].into_iter().chain(modules).chain([ty.name.clone()]).collect()
}

/// Refuses a new module whose name something else has in the module that declares it.
pub fn refuse_taken(tree: &Tree, krate: &Crate, parent: &[Name], name: &Name) -> Result<()> {
    let context = ModulePath::of(parent.iter().cloned());
    let Some((file, line, what)) = Reader::new(tree, krate, &context).occupant(parent, name)? else { return Ok(()) };
    let help = if parent.is_empty() && name.as_str() == names::RUNTIME {
        "give it another name: the agent runtime is always `crate::sagents`"
    } else {
        "give it another name, or choose another module for the generated code"
    };
    Err(Failure::decision(format!("{file}:{line}: `{name}` is {what} here, and a module cannot have the same name"))
        .help(help))
}

/// Where a struct that was put into a file is, if it is as it was. Formatting does not count.
pub fn untouched(text: &str, created: &str) -> Option<Range<usize>> {
    let name = syn::parse_str::<syn::ItemStruct>(created).ok()?.ident;
    let plain = text.trim_start_matches('\u{feff}');
    let file = syn::parse_file(plain).ok()?;
    let item = file.items.iter().find_map(|item| match item {
        syn::Item::Struct(item) if item.ident == name => Some(item),
        _ => None,
    })?;
    let (range, skipped) = (item.span().byte_range(), text.len() - plain.len());
    let range = range.start + skipped..range.end + skipped;
    (squeezed(text.get(range.clone())?) == squeezed(created)).then_some(range)
}

/// A text without what a formatter may change.
fn squeezed(text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    text.replace(",)", ")").replace(",}", "}")
}
