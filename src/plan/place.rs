//! Where generated modules go: in the host's tree of modules, in the host's style of files.

use camino::Utf8Path;

use super::edit::Edit;
use super::{Part, Planned, Start};
use crate::failure::{Failure, Result};
use crate::host::modules::{self, Found, Module};
use crate::host::{Host, source};
use crate::names::{ModulePath, Name};
use crate::templates;

/// What a module is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A context.
    Generated,
    /// A scope type is created in it. Its file is the host's.
    Scope,
}

/// A module with what has to be there for it: its parents, and every `mod` line on the way.
pub struct Placement {
    pub module: Module,
    pub part: Part,
}

pub fn place(host: &Host, start: Start, path: &ModulePath, purpose: Purpose) -> Result<Placement> {
    let krate = &host.krate;
    let found = |module| Ok(Placement { module, part: Part::default() });
    let (mut module, depth) = match modules::find(&host.tree, krate, path.names()) {
        Ok(Found::Module(module)) => return found(module),
        Ok(Found::Inline { file }) => {
            return Err(Failure::usage(format!(
                "`{}` is, or is inside of, a module that is written inline in {file}",
                path.rust()
            ))
            .help("move that module to a file of its own, or choose another path"));
        }
        Ok(Found::Missing { parent, depth }) => (parent, depth),
        // Its file was deleted, and the line that declares it was not.
        Err(failure) if start.recreated => {
            let (name, above) = path.names().split_last().expect("a module has a name");
            return match modules::find(&host.tree, krate, above)? {
                Found::Module(parent) => found(modules::child(krate, &parent, name, krate.library)),
                Found::Inline { .. } | Found::Missing { .. } => Err(failure),
            };
        }
        Err(failure) => return Err(failure),
    };
    let missing = &path.names()[depth..];
    if depth == 0 && host.manifest.dependency_crates().iter().any(|krate| krate == missing[0].as_str()) {
        return Err(Failure::usage(format!(
            "`{}` is outside of this crate: `{}` is a dependency, and a module of that name would hide it",
            path.rust(),
            missing[0]
        ))
        .help("choose another path, for example `crate::conversations`"));
    }
    source::refuse_taken(&host.tree, krate, &path.names()[..depth], &missing[0])?;
    let mut part = Part::default();
    for (index, name) in missing.iter().enumerate() {
        part.edits.push(Edit::declaration(&module.file, name, krate.library));
        module = modules::child(krate, &module, name, krate.library);
        let is_there = host.tree.is_file(&module.file);
        // An earlier run may have created it without the line that declares it.
        let is_ours = start.last.files.once.contains_key(&module.file);
        if purpose == Purpose::Scope && is_there && !is_ours {
            return Err(undeclared(&module.file, name));
        }
        let is_parent = index + 1 < missing.len();
        if is_parent && !is_there {
            if is_ours && !start.recreated {
                return Err(deleted(&module.file, path));
            }
            part.parents.push((module.file.clone(), format!("//! The modules of `{name}`.\n")));
        }
    }
    Ok(Placement { module, part })
}

/// The files of a context, at their paths.
pub fn generated(place: Placement, files: templates::Files) -> Part {
    let Placement { module, part } = place;
    let planned = files.into_iter().map(|(name, text)| {
        let path = match name {
            Some(name) => module.directory.join(format!("{name}.rs")),
            None => module.file.clone(),
        };
        (path, Planned::Generated(text))
    });
    Part { files: planned.collect(), ..part }
}

fn deleted(file: &Utf8Path, path: &ModulePath) -> Failure {
    Failure::decision(format!("{file} was generated for `{}` and is gone: it was moved or deleted", path.key()))
        .help(format!("restore {file} from version control"))
}

fn undeclared(file: &Utf8Path, name: &Name) -> Failure {
    Failure::decision(format!("{file} is there, but no `mod {};` declares it", name.rust()))
        .help(format!("declare it, or move {file} away"))
}
