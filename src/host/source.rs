//! The source of the host's scope type: what it holds, and how the owner's id is read from it. Types are followed
//! through re-exports, aliases and files of the host's own crate and of those beside it on the disk; what any other crate
//! or a macro makes is left unseen. Nothing is guessed: where the source does not settle whose rows a scope may see, a
//! person decides with a flag.

mod access;
mod definition;
mod expand;
mod follow;
mod infer;
mod macros;
mod member;
mod newtype;
mod reach;
mod reader;
mod scope;
mod types;

#[cfg(test)]
mod tests;

pub use self::access::{Access, Around, Seen, Sought, Step, Take};
pub use self::definition::Definition;

use std::collections::BTreeMap;
use std::ops::Range;

use camino::Utf8PathBuf;
use syn::spanned::Spanned as _;

use self::follow::Start;
use self::reader::{FUEL, Meaning, Reader};
use crate::failure::{Failure, Result};
use crate::host::modules::Crate;
use crate::names::{ModulePath, Name, TypePath};
use crate::tree::Tree;

/// The sources that can be read, as code in one module sees them.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub tree: &'a Tree,
    /// The host's own crate first.
    pub crates: &'a [Readable],
    pub context: &'a ModulePath,
}

/// A crate whose source is on the disk: the host's own, one of its workspace, or one that it depends on by a path.
#[derive(Debug, Clone)]
pub struct Readable {
    /// Its root is relative to the host's package.
    pub krate: Crate,
    /// The crates that it can name and that can be read, by that name.
    pub dependencies: BTreeMap<String, usize>,
}

/// The type at the end of a way that does not lead to a key.
#[derive(Debug)]
pub struct End {
    /// What it has, in words.
    pub text: String,
    /// A field or method of it that may be meant.
    pub key: Option<String>,
}

/// What is known of a type.
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

impl Source<'_> {
    /// Finds the definition of a type.
    pub fn lookup(self, ty: &TypePath) -> Result<Lookup> {
        let reader = Reader::new(self);
        let Some((root, path)) = reader.path_of(ty) else { return Ok(Lookup::Opaque) };
        let mut definitions = Vec::new();
        for entry in reader.variants(&root, &path, FUEL)? {
            match entry {
                Meaning::Absent | Meaning::Module(_) => {}
                Meaning::Made(_, maker) => return Ok(Lookup::Made(maker)),
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

    /// The file of the host's crate that implements a trait for a type, other than these.
    pub fn implementation(
        self,
        definition: &Definition,
        name: &str,
        except: &[Utf8PathBuf],
    ) -> Result<Option<Utf8PathBuf>> {
        Reader::new(self).implementation(definition, name, except)
    }

    /// Refuses a scope of another crate, for which this one can't implement a trait of a third.
    pub fn refuse_foreign(self, ty: &TypePath) -> Result<()> {
        let reader = Reader::new(self);
        let is_foreign = match reader.path_of(ty) {
            _ if ty.krate.is_some() => true,
            Some((root, path)) => {
                let entries = reader.variants(&root, &path, FUEL)?.into_iter().map(|entry| match entry {
                    Meaning::Hidden => reader.is_behind_foreign_glob(&root, &path),
                    entry => reader.is_foreign(entry),
                });
                entries.collect::<Result<Vec<_>>>()?.contains(&true)
            }
            None => true,
        };
        if !is_foreign {
            return Ok(());
        }
        let (path, name) = (ty.rust(), if ty.name == "Scope" { "Caller" } else { "Scope" });
        Err(Failure::usage(format!(
            "--scope: `{path}` is a type of another crate, and Rust allows no `impl OwnerScope` for it here"
        ))
        .help(format!(
            "wrap it in a type of this crate:\n\n    /// The caller.\n    pub struct {name}(pub {path});\n\n\
             then name that one, for example `--scope crate::accounts::{name} --scope-owner 0.user_id`"
        )))
    }

    /// Refuses a scope that the generated code could not be compiled with.
    pub fn check_scope(self, ty: &TypePath) -> Result<()> {
        let reader = Reader::new(self);
        let Some((root, path)) = reader.path_of(ty) else { return Ok(()) };
        for entry in reader.variants(&root, &path, FUEL)? {
            if let Some((place, item)) = reader.item(entry)? {
                reader.check_scope(ty, &place, &item)?;
            }
        }
        reader.check_reach(ty)
    }

    /// Every type that is written in the crate of another one, except in the modules that are generated. What cannot be
    /// read has none.
    pub fn types(self, like: &TypePath, generated: &[ModulePath]) -> Vec<TypePath> {
        let reader = Reader::new(self);
        let mut types = Vec::new();
        let mut open: Vec<_> = reader.path_of(like).into_iter().map(|(root, _)| root).collect();
        while let Some(home) = open.pop() {
            let is_generated = like.krate.is_none() && generated.iter().any(|module| module.names() == home.path);
            let Ok(Some(place)) = reader.module(&home) else { continue };
            if is_generated {
                continue;
            }
            let (names, inner) = place.declares();
            let modules = &home.path;
            types.extend(names.into_iter().map(|name| TypePath { modules: modules.clone(), name, ..like.clone() }));
            open.extend(inner);
        }
        types.sort_by_key(TypePath::rust);
        types
    }

    /// What a type of the host's has that a way ends at, if it can be read.
    pub fn end(self, scope: &TypePath, definition: &Definition, access: &Access) -> Result<Option<End>> {
        let reader = Reader::new(self);
        let Ok(members) = member::parse("", &access.shown()) else { return Ok(None) };
        let Some(end) = reader.end(Start { scope, flag: "" }, definition, &members) else { return Ok(None) };
        let text = format!("`{}` in {}: {}", end.name, end.file, end.describe());
        Ok(Some(End { text, key: reader.key_of(&end)? }))
    }

    /// Infers how an id is read from a scope: that of the owner, or of another kind.
    pub fn infer(self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Access> {
        let reader = Reader::new(self);
        agreed(scope, definition, sought.flag, |variant| reader.infer(scope, variant, sought))
    }

    /// Reads a way that a flag gives: `user.id`, `user_id()`, `user.id.0`. Types are followed as far as they can be seen,
    /// so that an `Option` on the way is known. Without a definition nothing is checked. A way that could be inferred may
    /// say more than its text: which kind a scope has to be of, or how an id converts.
    pub fn follow(
        self,
        scope: &TypePath,
        definition: Option<&Definition>,
        sought: &Sought,
        text: &str,
    ) -> Result<Access> {
        let reader = Reader::new(self);
        let members = member::parse(sought.flag, text)?;
        let start = Start { scope, flag: sought.flag };
        let Some(definition) = definition else { return reader.follow(start, None, &members) };
        agreed(scope, definition, sought.flag, |variant| {
            let mut ways = reader.ways(scope, variant, sought)?.into_iter();
            match ways.find(|way| way.shown() == text) {
                Some(way) => Ok(way),
                None => reader.follow(start, Some(variant), &members),
            }
        })
    }
}

/// The way that all variants of a scope under `cfg` have in common.
fn agreed(
    scope: &TypePath,
    definition: &Definition,
    flag: &str,
    read: impl Fn(&Definition) -> Result<Access>,
) -> Result<Access> {
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
            .help(format!("name a field or method with {flag} that every variant has, with the same type")));
        }
    }
    Ok(access)
}

/// Refuses a new module whose name something else has in the module that declares it.
pub fn refuse_taken(tree: &Tree, krate: &Crate, parent: &[Name], name: &Name) -> Result<()> {
    let context = &ModulePath::of(parent.iter().cloned());
    let crates = &[Readable { krate: krate.clone(), dependencies: BTreeMap::new() }];
    let reader = Reader::new(Source { tree, crates, context });
    let Some((file, line, what)) = reader.occupant(parent, name)? else { return Ok(()) };
    let help = "give it another name, or choose another module for the generated code";
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
