//! The packages of a workspace: which one is the host.

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Metadata, Package};

use super::{canonical, metadata, modules, neighbours};
use crate::failure::{Failure, Result};
use crate::io::Place;
use crate::names::crate_name;

/// The directory of a package in the workspace around a place, named as the place was.
pub fn locate(place: &Place, package: &str) -> Result<Utf8PathBuf> {
    let from = canonical(place)?;
    let metadata = metadata(&from, &place.tools)?;
    let found = metadata.packages.iter().find(|member| *member.name == *package);
    let Some(directory) = found.and_then(|package| package.manifest_path.parent()) else {
        let names: Vec<_> = metadata.packages.iter().map(|member| member.name.to_string()).collect();
        return Err(Failure::usage(format!("--package: there is no `{package}` in {}", metadata.workspace_root))
            .help(format!("there are: {}", sorted(names).join(", "))));
    };
    let named = modules::clean(&place.named.join(neighbours::relative(&from, directory)));
    Ok(if named == "" { ".".into() } else { named })
}

/// The package whose Cargo.toml is in a directory.
pub(super) fn member<'a>(metadata: &'a Metadata, root: &Utf8Path, place: &Place) -> Result<&'a Package> {
    let manifest = root.join("Cargo.toml");
    metadata.packages.iter().find(|package| package.manifest_path == manifest).ok_or_else(|| {
        let names: Vec<_> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
        let names = sorted(names);
        let failure = Failure::usage(format!("--path: {} is a workspace, not a package", place.named));
        let of_crate = |meant: &String| names.iter().find(|name| crate_name(name) == *meant);
        match place.meant.iter().find_map(of_crate).or(names.first()) {
            Some(example) => failure.help(format!(
                "name one of its members, for example `--package {example}` (there are: {})",
                names.join(", ")
            )),
            None => failure.help("add a member to it first"),
        }
    })
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
