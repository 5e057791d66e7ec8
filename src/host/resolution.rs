//! Whether cargo can resolve the host together with the library. Cargo answers that itself, for a copy of the
//! workspace's manifests in a temporary directory, so the host stays as it is.

use std::fs;
use std::process::{Command, Output};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Metadata, Package};
use toml_edit::{DocumentMut, Item, TableLike};

use super::manifest::LIBRARY;
use super::{Host, modules};
use crate::failure::{Failure, Result};

/// A package of the host's workspace, as far as cargo has to find it.
#[derive(Debug)]
pub struct Member {
    manifest: Utf8PathBuf,
    /// The roots of its crates.
    targets: Vec<Utf8PathBuf>,
    has_dependencies: bool,
}

pub fn members(metadata: &Metadata) -> Vec<Member> {
    let member = |package: &Package| Member {
        manifest: package.manifest_path.clone(),
        targets: package.targets.iter().map(|target| target.src_path.clone()).collect(),
        has_dependencies: !package.dependencies.is_empty(),
    };
    metadata.packages.iter().map(member).collect()
}

impl Host {
    /// Refuses a new Cargo.toml that cargo cannot resolve because of the library. Without a network, crates that were
    /// never downloaded leave that open, and nothing is refused.
    pub fn refuse_unresolvable(&self, manifest: &str, workspace: Option<&str>) -> Result<()> {
        // The library alone always resolves.
        if !self.members.iter().any(|member| member.has_dependencies) {
            return Ok(());
        }
        let copy = tempfile::tempdir().context("cannot make a temporary directory")?;
        let Some(root) = Utf8Path::from_path(copy.path()) else { return Ok(()) };
        let Some(manifest) = self.copy_manifests(root, manifest, workspace)? else { return Ok(()) };
        let offline = self.resolve(&manifest, true)?;
        if offline.status.success() {
            return Ok(());
        }
        let online = self.resolve(&manifest, false)?;
        if online.status.success() {
            return Ok(());
        }
        let reason = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stderr).replace(root.as_str(), self.boundary.as_str());
            // Cargo may tell of other things first.
            text.find("error: ").map_or_else(String::new, |start| text[start..].to_owned())
        };
        let (online, offline) = (reason(&online), reason(&offline));
        match refusal(&online).or_else(|| conflict(&offline)) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Needs the registry's index only: it neither downloads crates nor writes Cargo.lock.
    fn resolve(&self, manifest: &Utf8Path, offline: bool) -> Result<Output> {
        let mut cargo = Command::new(&self.tools.cargo);
        cargo.args(["update", "--workspace", "--dry-run", "--color", "never", "--manifest-path", manifest.as_str()]);
        cargo.args(offline.then_some("--offline")).env("CARGO_NET_RETRY", "1").env("CARGO_HTTP_TIMEOUT", "10");
        // Cargo's configuration is that of the directory in which it runs.
        Ok(cargo.current_dir(self.working_directory()).output().context("cargo does not run")?)
    }

    /// Copies every Cargo.toml of the workspace, with empty crates. Returns the host's; nothing if a member is outside of
    /// the workspace's directory.
    fn copy_manifests(&self, copy: &Utf8Path, own: &str, workspace: Option<&str>) -> Result<Option<Utf8PathBuf>> {
        let directories: Vec<_> = self.members.iter().filter_map(|member| member.manifest.parent()).collect();
        let own_path = self.tree.root().join("Cargo.toml");
        let root_path = self.boundary.join("Cargo.toml");
        let read = |path: &Utf8Path| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let mut texts = vec![(root_path.clone(), read(&root_path)?)];
        for member in &self.members {
            texts.push((member.manifest.clone(), read(&member.manifest)?));
        }
        // Later ones count.
        texts.extend(workspace.map(|text| (root_path, text.to_owned())));
        texts.push((own_path.clone(), own.to_owned()));
        for (path, text) in texts {
            let Ok(inside) = path.strip_prefix(&self.boundary) else { return Ok(None) };
            let directory = path.parent().unwrap_or(&self.boundary);
            write(&copy.join(inside), &with_absolute_paths(&text, directory, &directories))?;
        }
        if let Ok(lock) = fs::read_to_string(self.boundary.join("Cargo.lock")) {
            write(&copy.join("Cargo.lock"), &lock)?;
        }
        let targets = self.members.iter().flat_map(|member| &member.targets);
        for target in targets.filter_map(|target| target.strip_prefix(&self.boundary).ok()) {
            write(&copy.join(target), "")?;
        }
        Ok(own_path.strip_prefix(&self.boundary).ok().map(|inside| copy.join(inside)))
    }
}

fn write(path: &Utf8Path, text: &str) -> Result<()> {
    let directory = path.parent().context("a file has a directory")?;
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {path}"))?;
    Ok(())
}

/// The text of a manifest that names directories outside of the copy by where they really are.
fn with_absolute_paths(text: &str, directory: &Utf8Path, members: &[&Utf8Path]) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text.to_owned() };
    each_dependency(document.as_table_mut(), &mut |entry| {
        let Some(path) = entry.get("path").and_then(Item::as_str) else { return };
        let real = modules::clean(&directory.join(path));
        if !members.contains(&real.as_path()) {
            entry.insert("path", toml_edit::value(real.as_str()));
        }
    });
    document.to_string()
}

/// Visits the entries of every table of dependencies.
fn each_dependency(table: &mut dyn TableLike, visit: &mut impl FnMut(&mut dyn TableLike)) {
    for (key, item) in table.iter_mut() {
        let Some(inner) = item.as_table_like_mut() else { continue };
        match key.get() {
            "dependencies" | "dev-dependencies" | "build-dependencies" | "replace" => {
                for (_, entry) in inner.iter_mut() {
                    if let Some(entry) = entry.as_table_like_mut() {
                        visit(entry);
                    }
                }
            }
            "patch" => {
                for (_, registry) in inner.iter_mut() {
                    for (_, entry) in registry.as_table_like_mut().into_iter().flat_map(TableLike::iter_mut) {
                        if let Some(entry) = entry.as_table_like_mut() {
                            visit(entry);
                        }
                    }
                }
            }
            "workspace" | "target" => each_dependency(inner, visit),
            // `[target.'cfg(…)'.dependencies]`
            name if name.starts_with("cfg(") || inner.contains_key("dependencies") => each_dependency(inner, visit),
            _ => {}
        }
    }
}

/// What cargo said, if it is because of the library.
fn refusal(reason: &str) -> Option<Failure> {
    let is_about_library = ["failed to select a version", "no matching package named"]
        .iter()
        .any(|text| reason.contains(text) && reason.contains(&format!("`{LIBRARY}")));
    conflict(reason).or_else(|| {
        is_about_library.then(|| {
            let lines = reason.lines().map(|line| format!("\n  {}", line.trim_start_matches("error: ")));
            let lines = lines.collect::<String>();
            Failure::decision(format!("Cargo.toml: cargo cannot resolve this package together with sagents:{lines}")).help(
                "if Cargo.lock holds a version that is too old, `cargo update` may be enough; otherwise change what \
                 cargo names, or say with --library where sagents is",
            )
        })
    })
}

/// Two versions of a crate that links a native library: one for the library, one for something of the host's.
fn conflict(reason: &str) -> Option<Failure> {
    let (one, rest) = reason.split_once("links to the native library `")?;
    let (native, other) = rest.split_once('`')?;
    let is_library = |chain: &str| chain.contains(&format!("`{LIBRARY} v"));
    let (ours, theirs) = if is_library(one) { (one, other) } else { (other, one) };
    if !is_library(ours) || is_library(theirs) {
        return None;
    }
    // `error: failed to select a version for …`
    let krate = reason.split("a version for `").nth(1)?.split('`').next()?;
    let packages = theirs.split("package `").skip(1).filter_map(|text| text.split(['`', '(']).next()).map(str::trim);
    // The last one is the host's, and the one before it is what the host depends on.
    let packages: Vec<_> = packages.filter(|package| package.contains(" v")).collect();
    let direct = packages.iter().nth_back(1)?;
    let (name, _) = direct.split_once(" v")?;
    let required = |chain: &str| {
        let requirement = chain.split(&format!("`{krate} = \"")).nth(1).and_then(|text| text.split('"').next());
        let requirement = requirement.or_else(|| chain.split("the requirements `").nth(1)?.split('`').next());
        requirement.map_or_else(|| krate.to_owned(), |requirement| format!("{krate} {requirement}"))
    };
    let (brought, needed) = (required(theirs), required(ours));
    let update =
        if reason.contains("(locked to") { format!(", or run `cargo update -p {name}`") } else { String::new() };
    let help = match name {
        "sqlx" => format!("use sqlx 0.8 or 0.9{update}"),
        _ => format!("use a version of {name} that works with {needed}{update}"),
    };
    Some(
        Failure::decision(format!(
            "Cargo.toml: {direct} and sagents cannot be in one program: it brings {brought}, and sagents needs {needed}; \
             a program links only one `{native}`"
        ))
        .help(help),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFLICT: &str = "\
error: failed to select a version for `libsqlite3-sys`.
    ... required by package `sqlx-sqlite v0.9.0`
    ... which satisfies dependency `sqlx-sqlite = \"=0.9.0\"` of package `sqlx v0.9.0`
    ... which satisfies dependency `sqlx = \"^0.9\"` of package `sagents v0.1.0 (/somewhere)`
    ... which satisfies path dependency `sagents` of package `my_app v0.1.0 (/host)`
versions that meet the requirements `>=0.30.1, <0.38.0` are: 0.37.0, 0.30.1

package `libsqlite3-sys` links to the native library `sqlite3`, but it conflicts with a previous package which links to `sqlite3` as well:
package `libsqlite3-sys v0.27.0`
    ... which satisfies dependency `libsqlite3-sys = \"^0.27.0\"` of package `sqlx-sqlite v0.7.4`
    ... which satisfies dependency `sqlx-sqlite = \"=0.7.4\"` of package `sqlx v0.7.4`
    ... which satisfies dependency `sqlx = \"^0.7\"` of package `my_app v0.1.0 (/host)`
Only one package in the dependency graph may specify the same links value.

failed to select a version for `libsqlite3-sys` which could resolve this conflict
";

    #[test]
    fn a_conflict_names_the_dependency_that_has_to_change() {
        assert_eq!(
            refusal(CONFLICT).unwrap().to_string(),
            "Cargo.toml: sqlx v0.7.4 and sagents cannot be in one program: it brings libsqlite3-sys ^0.27.0, and sagents \
             needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`\nhelp: use sqlx 0.8 or 0.9"
        );
    }

    #[test]
    fn cargo_may_come_to_the_two_versions_in_either_order() {
        let reversed = "\
error: failed to select a version for `libsqlite3-sys`.
    ... required by package `rusqlite v0.40.0`
    ... which satisfies dependency `rusqlite = \"^0.40\"` (locked to 0.40.0) of package `my_app v0.1.0 (/host)`
versions that meet the requirements `^0.38.0` are: 0.38.0

package `libsqlite3-sys` links to the native library `sqlite3`, but it conflicts with a previous package which links to `sqlite3` as well:
package `libsqlite3-sys v0.37.0`
    ... which satisfies dependency `libsqlite3-sys = \">=0.30.1, <0.38.0\"` of package `sqlx-sqlite v0.9.0`
    ... which satisfies dependency `sqlx = \"^0.9\"` of package `sagents v0.1.0 (/somewhere)`
    ... which satisfies path dependency `sagents` of package `my_app v0.1.0 (/host)`
";
        assert_eq!(
            refusal(reversed).unwrap().to_string(),
            "Cargo.toml: rusqlite v0.40.0 and sagents cannot be in one program: it brings libsqlite3-sys ^0.38.0, and \
             sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`\nhelp: use a version of \
             rusqlite that works with libsqlite3-sys >=0.30.1, <0.38.0, or run `cargo update -p rusqlite`"
        );
    }

    #[test]
    fn what_has_nothing_to_do_with_the_library_is_not_refused() {
        assert!(refusal(&CONFLICT.replace("sagents", "other")).is_none());
        assert!(
            refusal("error: no matching package named `other` found\nrequired by package `my_app v0.1.0`").is_none()
        );
        assert!(refusal("error: no matching package named `sagents` found\nrequired by package `my_app`").is_some());
    }

    #[test]
    fn only_paths_out_of_the_copy_are_made_absolute() {
        let text = "[dependencies]\na = { path = \"../a\" }\nb = { path = \"../../b\" }\n\n\
                    [target.'cfg(unix)'.dependencies]\nc.path = \"c\"\n\n[patch.crates-io.d]\npath = \"/d\"\n";
        let after = with_absolute_paths(text, "/w/host".into(), &["/w/a".into(), "/w/host".into()]);
        assert_eq!(
            after,
            "[dependencies]\na = { path = \"../a\" }\nb = { path = \"/b\" }\n\n\
             [target.'cfg(unix)'.dependencies]\nc.path = \"/w/host/c\"\n\n[patch.crates-io.d]\npath = \"/d\"\n"
        );
    }
}
