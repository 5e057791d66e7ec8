//! The crates beside the host whose sources are on the disk: members of its workspace, and what is depended on by a
//! path. Their Cargo.toml is read here, their sources only when a type leads there.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{DependencyKind, Metadata, Package};
use toml_edit::{DocumentMut, Item, TableLike};

use super::modules::{self, Crate, ModuleStyle};
use super::source::Readable;
use crate::names::crate_name;

/// The crate that gets the code, and every other that a path leads to from it.
pub fn crates(metadata: &Metadata, package: &Package, own: &Crate, root: &Utf8Path) -> Vec<Readable> {
    let mut crates = vec![Readable { krate: own.clone(), dependencies: BTreeMap::new() }];
    let mut directories = vec![root.to_owned()];
    let mut open = vec![(0, paths(package))];
    while let Some((from, dependencies)) = open.pop() {
        for (name, directory) in dependencies {
            let known = directories.iter().position(|known| *known == directory);
            let Some(index) = known.or_else(|| {
                let (root_file, further) = library(metadata, &directory)?;
                let krate = Crate { root: relative(root, &root_file), library: true, style: ModuleStyle::Flat };
                crates.push(Readable { krate, dependencies: BTreeMap::new() });
                directories.push(directory.clone());
                open.push((crates.len() - 1, further));
                Some(crates.len() - 1)
            }) else {
                continue;
            };
            crates[from].dependencies.insert(name, index);
        }
    }
    crates
}

/// The roots of the workspace's crates with migrations of sea-orm: the package itself and those that it depends on, or
/// all if it uses sea-orm and depends on none.
pub fn migrators(metadata: &Metadata, package: &Package, root: &Utf8Path) -> Vec<Utf8PathBuf> {
    let depends = |package: &Package, name: &str| package.dependencies.iter().any(|other| other.name == name);
    let all: Vec<_> = metadata.packages.iter().filter(|package| depends(package, "sea-orm-migration")).collect();
    let is_used = |other: &Package| other.id == package.id || depends(package, &other.name);
    let mut used: Vec<_> = all.iter().copied().filter(|other| is_used(other)).collect();
    if used.is_empty() && depends(package, "sea-orm") {
        used = all;
    }
    let targets = used.into_iter().filter_map(|package| {
        super::library_of(package).or_else(|| package.targets.iter().find(|target| target.is_bin()))
    });
    targets.map(|target| relative(root, &target.src_path)).collect()
}

/// The dependencies of a package that are given by a path, by the name that its code uses.
fn paths(package: &Package) -> Vec<(String, Utf8PathBuf)> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    let named = normal.filter_map(|dependency| {
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
        Some((crate_name(name), modules::clean(dependency.path.as_ref()?)))
    });
    named.collect()
}

/// The root of the library in a directory, and the paths that it depends on.
fn library(metadata: &Metadata, directory: &Utf8Path) -> Option<(Utf8PathBuf, Vec<(String, Utf8PathBuf)>)> {
    let is_there = |package: &&Package| package.manifest_path.parent() == Some(directory);
    if let Some(package) = metadata.packages.iter().find(is_there) {
        let target = super::library_of(package)?;
        return Some((target.src_path.clone(), paths(package)));
    }
    // Not a member of the workspace, so cargo was not asked for it.
    let text = std::fs::read_to_string(directory.join("Cargo.toml")).ok()?;
    let document = text.parse::<DocumentMut>().ok()?;
    let root = document.get("lib").and_then(|lib| lib.get("path")).and_then(Item::as_str).unwrap_or("src/lib.rs");
    let tables = document.get("dependencies").and_then(Item::as_table_like);
    let named = tables.into_iter().flat_map(TableLike::iter).filter_map(|(name, entry)| {
        Some((crate_name(name), modules::clean(&directory.join(entry.get("path")?.as_str()?))))
    });
    let root = directory.join(root);
    root.is_file().then(|| (root, named.collect()))
}

/// A file as it is named from a directory.
pub(super) fn relative(from: &Utf8Path, file: &Utf8Path) -> Utf8PathBuf {
    let shared = from.components().zip(file.components()).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..", from.components().count() - shared);
    up.chain(file.components().skip(shared).map(|part| part.as_str())).collect()
}
