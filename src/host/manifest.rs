//! The host's Cargo.toml: which dependencies there are, and the text with those added that the generated code needs.
//! `toml_edit` finds the places and text is spliced there, so every other byte stays as its author left it. Whatever
//! the generated code could not be built with is refused here, before anything is written.

mod edit;
mod entry;
mod splice;
mod version;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use semver::Version;
use toml_edit::{Document, Item, TableLike};

use self::version::Raised;
use crate::failure::{Failure, Result};

/// A package's Cargo.toml, with what its workspace and Cargo.lock add to it.
#[derive(Debug, Clone)]
pub struct Manifest {
    path: Utf8PathBuf,
    document: Document<String>,
    workspace: Option<(Utf8PathBuf, Document<String>)>,
    lock: Vec<(String, Version)>,
}

/// A crate that the generated code needs.
#[derive(Debug, Clone)]
pub struct Need {
    pub name: &'static str,
    /// The version requirement that is written when the crate is absent.
    pub version: &'static str,
    /// The oldest version that works, in full: `1.0.0`.
    pub minimum: &'static str,
    pub features: &'static [&'static str],
    /// The fields that say where an absent crate comes from; empty for the version alone.
    pub source: Vec<(&'static str, String)>,
    pub dev: bool,
}

impl Need {
    fn minimum(&self) -> Version {
        Version::parse(self.minimum).expect("a need's oldest version is a version")
    }
}

/// What the host uses sqlx for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sqlx {
    pub sqlite: bool,
    pub postgres: bool,
    pub mysql: bool,
}

/// A Cargo.toml with its needs met.
#[derive(Debug)]
pub struct Wiring {
    pub text: String,
    /// Each changed entry as it is now, in one line. A comment names its table unless that is `[dependencies]`.
    pub lines: Vec<String>,
    /// The workspace's Cargo.toml, if the library's version was raised there.
    pub workspace: Option<Shared>,
}

/// Another Cargo.toml, with an entry changed.
#[derive(Debug)]
pub struct Shared {
    pub path: Utf8PathBuf,
    pub text: String,
    pub line: String,
}

impl Manifest {
    /// `workspace` is the workspace's Cargo.toml if that is another file. The paths are for messages.
    pub fn parse(
        path: &Utf8Path,
        text: &str,
        workspace: Option<(&Utf8Path, &str)>,
        lock: Option<&str>,
    ) -> Result<Self> {
        let workspace = match workspace {
            Some((path, text)) => Some((path.to_owned(), parse(path, text)?)),
            None => None,
        };
        let document = parse(path, text)?;
        Ok(Self {
            path: path.to_owned(),
            document,
            workspace,
            lock: lock.map(version::locked_packages).unwrap_or_default(),
        })
    }

    /// The same package with another text of its Cargo.toml.
    pub fn with_text(&self, text: &str) -> Result<Self> {
        Ok(Self { document: parse(&self.path, text)?, ..self.clone() })
    }

    /// The same package with another text of its workspace's Cargo.toml.
    pub fn with_workspace_text(&self, text: &str) -> Result<Self> {
        let Some((path, _)) = &self.workspace else { return Ok(self.clone()) };
        Ok(Self { workspace: Some((path.clone(), parse(path, text)?)), ..self.clone() })
    }

    /// The workspace's Cargo.toml, if that is another file.
    pub fn workspace_path(&self) -> Option<&Utf8Path> {
        self.workspace.as_ref().map(|(path, _)| path.as_path())
    }

    /// The databases that the package uses sqlx for.
    pub fn sqlx(&self) -> Sqlx {
        let entry = self.find(NORMAL, SQLX).or_else(|| self.find(DEV, SQLX)).or_else(|| self.shared(SQLX));
        let entries = entry.into_iter().chain(self.for_targets(NORMAL, SQLX).into_iter().map(|(_, entry)| entry));
        let features: BTreeSet<_> = entries.flat_map(|entry| entry.features(true)).collect();
        let has = |name: &str| features.contains(name);
        Sqlx { sqlite: has("sqlite") || has("sqlite-preupdate-hook"), postgres: has("postgres"), mysql: has("mysql") }
    }

    /// The name that the package has for the library, if it's another one: `agents` for
    /// `agents = { package = "sagents" }`.
    pub fn library_name(&self) -> Option<String> {
        let entry = self.find(NORMAL, LIBRARY).or_else(|| self.shared(LIBRARY))?;
        (entry.key != LIBRARY).then(|| entry.key.to_owned())
    }

    /// Whether the package depends on the library, by this source if one is named.
    pub fn has_library(&self, source: Option<&[(&str, String)]>) -> bool {
        let Some(entry) = self.find(NORMAL, LIBRARY) else { return false };
        let field = |name: &str| {
            let version = if name == "version" { entry.requirement() } else { None };
            version.or_else(|| entry.field(name).and_then(Item::as_str))
        };
        source.is_none_or(|source| source.iter().all(|(name, value)| field(name) == Some(value.as_str())))
    }

    /// The directory that the package has the library from, as Cargo.toml names it.
    pub fn library_path(&self) -> Option<&str> {
        self.find(NORMAL, LIBRARY)?.own?.get("path")?.as_str()
    }

    /// The features of a dependency that are on, as far as they are known; nothing if the package does not have it.
    pub fn features(&self, package: &str) -> Option<BTreeSet<String>> {
        let entries = self.find(NORMAL, package).into_iter();
        let mut entries =
            entries.chain(self.for_targets(NORMAL, package).into_iter().map(|(_, entry)| entry)).peekable();
        entries.peek().is_some().then(|| entries.flat_map(|entry| entry.features(true)).collect())
    }

    /// The crates that the package can name, as Rust code writes them.
    pub fn dependency_crates(&self) -> Vec<String> {
        let targets = self.document.get("target").and_then(Item::as_table_like);
        let tables = targets.into_iter().flat_map(TableLike::iter).map(|(_, target)| target.get(NORMAL));
        let tables = [self.document.get(NORMAL)].into_iter().chain(tables).flatten().filter_map(Item::as_table_like);
        tables.flat_map(TableLike::iter).map(|(key, _)| crate::names::crate_name(key)).collect()
    }

    /// The oldest Rust that the package promises to compile with.
    pub fn rust_version(&self) -> Option<Version> {
        let own = self.document.get("package")?.get("rust-version")?;
        let text = match own.as_str() {
            Some(text) => text,
            None => self.workspace_table()?.get("package")?.get("rust-version")?.as_str()?,
        };
        let missing = 2_usize.saturating_sub(text.matches('.').count());
        Version::parse(&format!("{text}{}", ".0".repeat(missing))).ok()
    }

    /// The levels of lints by tool, with the file and the table that they are in.
    pub fn lints(&self) -> Option<(&Utf8Path, &'static str, &dyn TableLike)> {
        let own = self.document.get("lints")?;
        if own.get("workspace").and_then(Item::as_bool) != Some(true) {
            return Some((&self.path, "lints", own.as_table_like()?));
        }
        let file = self.workspace.as_ref().map_or(&self.path, |(path, _)| path);
        Some((file, "workspace.lints", self.workspace_table()?.get("lints")?.as_table_like()?))
    }

    /// The text with every need met. Applied to its own result it changes nothing.
    pub fn with(&self, needs: &[Need]) -> Result<Wiring> {
        let mut manifest = self.clone();
        let mut changed = Vec::new();
        let mut workspace = None;
        match manifest.raised(needs)? {
            Some(Raised::Here(edit)) => {
                manifest.document = parse(&self.path, &edit.text)?;
                changed.push((edit.table, edit.key));
            }
            Some(Raised::InWorkspace(shared)) => {
                manifest = manifest.with_workspace_text(&shared.text)?;
                workspace = Some(shared);
            }
            None => {}
        }
        let mut old = Vec::new();
        for need in needs {
            for entry in manifest.found(need) {
                if need.name == LIBRARY {
                    manifest.refuse_newer_library(need, &entry)?;
                }
                old.extend(manifest.old(need, &entry)?);
            }
        }
        version::refuse_old(old)?;
        for need in needs {
            if let Some(edit) = manifest.edit(need)? {
                manifest.document = parse(&self.path, &edit.text)?;
                if !changed.contains(&(edit.table, edit.key.clone())) {
                    changed.push((edit.table, edit.key));
                }
            }
        }
        let lines = changed.iter().filter_map(|(table, key)| manifest.line(table, key)).collect();
        Ok(Wiring { text: manifest.document.raw().to_owned(), lines, workspace })
    }

    /// Refuses a version of a crate that the host has and the library's interface does not fit.
    pub fn refuse_old_crate(&self, need: &Need) -> Result<()> {
        let entries = self.found(need);
        let old: Vec<_> = entries.iter().map(|entry| self.old(need, entry)).collect::<Result<_>>()?;
        version::refuse_old(old.into_iter().flatten().collect())
    }

    /// The library needs a newer Rust than some packages promise to compile with.
    pub fn refuse_old_rust(&self) -> Result<()> {
        let Some(promised) = self.rust_version() else { return Ok(()) };
        if promised >= OLDEST_RUST {
            return Ok(());
        }
        let own = self.document.get("package").and_then(|package| package.get("rust-version")).and_then(Item::as_str);
        let file = if own.is_some() { &self.path } else { self.workspace_path().unwrap_or(&self.path) };
        let Version { major, minor, .. } = OLDEST_RUST;
        Err(Failure::decision(format!(
            "{file}: rust-version is {}.{}, and sagents needs Rust {major}.{minor} or newer",
            promised.major, promised.minor
        ))
        .help(format!("raise `rust-version` to {major}.{minor}")))
    }
}

/// The library's own `rust-version`.
const OLDEST_RUST: Version = Version::new(1, 94, 0);

/// The library that generated code is written for.
pub const LIBRARY: &str = "sagents";
const SQLX: &str = "sqlx";
const NORMAL: &str = "dependencies";
const DEV: &str = "dev-dependencies";

fn parse(path: &Utf8Path, text: &str) -> Result<Document<String>> {
    Document::parse(text.to_owned()).map_err(|error| {
        let above = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = above.matches('\n').count() + 1;
        let column = above.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Failure::usage(format!("{path}:{line}:{column}: {}", error.message()))
            .help(format!("fix {path}, then run this again"))
    })
}
