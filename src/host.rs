//! What the generator reads of a host: its package, the crate that gets the code, its sources and migrations. Nothing
//! here writes.

pub mod drivers;
pub mod git;
pub mod lints;
pub mod manifest;
pub mod migrations;
pub mod modules;
mod neighbours;
mod resolution;
pub mod source;
pub mod workspace;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Edition, Metadata, Package, Target, TargetKind};

use crate::change::{Action, Change};
use crate::failure::{Failure, Result};
use crate::host::manifest::Manifest;
use crate::host::migrations::mention::{self, Mention};
use crate::host::modules::Crate;
use crate::host::resolution::Member;
use crate::host::source::{Readable, Source};
use crate::io::{Place, Tools};
use crate::names::ModulePath;
use crate::tree::Tree;

#[derive(Debug)]
pub struct Host {
    pub tree: Tree,
    pub package: String,
    pub edition: String,
    pub krate: Crate,
    /// The crates whose sources are on the disk, its own first.
    pub crates: Vec<Readable>,
    pub manifest: Manifest,
    /// The packages of its workspace, itself among them; none for a new package.
    pub members: Vec<Member>,
    /// The roots of the crates that may have its migrations of sea-orm.
    pub migrators: Vec<Utf8PathBuf>,
    /// It has a binary.
    pub runs: bool,
    /// The directory above which nothing is ever written.
    pub boundary: Utf8PathBuf,
    pub tools: Tools,
    /// The files that `--init` starts from; empty for a host that is there already.
    pub overlay: Vec<(Utf8PathBuf, String)>,
}

impl Host {
    /// Reads the package in a directory.
    pub fn read(place: &Place) -> Result<Self> {
        let root = canonical(place)?;
        let tree = Tree::new(root.clone());
        let manifest_path = Utf8Path::new("Cargo.toml");
        let Some(text) = tree.read(manifest_path)? else {
            return Err(Failure::usage(format!("--path: {} is not a package: it has no Cargo.toml", place.named))
                .help("go to your package, name it with --path, or make a new one with --init"));
        };
        // Cargo's own words for a syntax error come without the file, so it is found first.
        Manifest::parse(manifest_path, &text, None, None)?;
        let metadata = metadata(&root, &place.tools)?;
        let package = workspace::member(&metadata, &root, place)?;
        check_edition(package)?;
        let target = target(package)?;
        let crate_root = target.src_path.strip_prefix(&root).map_err(|_| {
            Failure::usage(format!(
                "the sources of package `{}` are outside of its directory: {}",
                package.name, target.src_path
            ))
            .help("generated code can only go beside a crate root inside the package")
        })?;
        let workspace = &metadata.workspace_root;
        let shared = if *workspace == root { None } else { Tree::new(workspace.clone()).read(manifest_path)? };
        let lock = Tree::new(workspace.clone()).read(Utf8Path::new("Cargo.lock"))?;
        let shared_path = workspace.join("Cargo.toml");
        let shared = shared.as_deref().map(|text| (shared_path.as_path(), text));
        let krate =
            Crate { root: crate_root.to_owned(), library: !target.is_bin(), style: modules::style(&tree, crate_root)? };
        Ok(Self {
            manifest: Manifest::parse(manifest_path, &text, shared, lock.as_deref())?,
            crates: neighbours::crates(&metadata, package, &krate, &root),
            migrators: neighbours::migrators(&metadata, package, &root),
            members: resolution::members(&metadata),
            krate,
            package: package.name.to_string(),
            edition: package.edition.to_string(),
            runs: package.targets.iter().any(Target::is_bin),
            boundary: workspace.clone(),
            tools: place.tools.clone(),
            tree,
            overlay: Vec::new(),
        })
    }

    /// A package that is about to be made in a directory that may not exist yet, with these files in it.
    pub fn init(place: &Place, package: String, files: Vec<(Utf8PathBuf, String)>) -> Result<Self> {
        const EDITION: &str = "2024";
        let root = if place.path.exists() { canonical(place)? } else { absolute(place)? };
        for occupied in ["src/lib.rs", "src/main.rs"] {
            if root.join(occupied).exists() {
                return Err(Failure::decision(format!("--init: {occupied} is there already"))
                    .help("make the new package in an empty directory, or move that file away"));
            }
        }
        let mut overlay: Vec<(Utf8PathBuf, String)> = vec![
            (
                "Cargo.toml".into(),
                format!("[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"{EDITION}\"\n"),
            ),
            ("src/lib.rs".into(), format!("//! The library of `{package}`: what its binary and its tests share.\n")),
        ];
        overlay.extend(files);
        let mut tree = Tree::new(root.clone());
        for (path, text) in &overlay {
            tree.overlay(path.clone(), text.clone());
        }
        let krate = Crate { root: "src/lib.rs".into(), library: true, style: modules::ModuleStyle::Flat };
        Ok(Self {
            manifest: Manifest::parse(Utf8Path::new("Cargo.toml"), &overlay[0].1, None, None)?,
            crates: vec![Readable { krate: krate.clone(), dependencies: BTreeMap::new() }],
            migrators: Vec::new(),
            members: Vec::new(),
            krate,
            package,
            edition: EDITION.to_owned(),
            runs: true,
            boundary: root,
            tools: place.tools.clone(),
            tree,
            overlay,
        })
    }

    /// From now on the host reads as if these changes had been made.
    pub fn pend(&mut self, changes: &[Change]) -> Result<()> {
        for change in changes.iter().filter(|change| change.writes()) {
            let text = (change.action != Action::Removed).then(|| change.after.clone());
            self.tree.pend(change.path.clone(), text);
        }
        if let Some(text) = self.tree.read(Utf8Path::new("Cargo.toml"))? {
            self.manifest = self.manifest.with_text(&text)?;
        }
        let workspace = self.manifest.workspace_path().map(|path| self.relative(path));
        if let Some(text) = workspace.map(|path| self.tree.read(&path)).transpose()?.flatten() {
            self.manifest = self.manifest.with_workspace_text(&text)?;
        }
        Ok(())
    }

    /// A path as it is seen from the package.
    pub fn relative(&self, path: &Utf8Path) -> Utf8PathBuf {
        neighbours::relative(self.tree.root(), path)
    }

    /// The Cargo.toml of a workspace around a new package, which cargo will want to list it.
    pub fn surrounding_workspace(&self) -> Option<Utf8PathBuf> {
        let above = self.tree.root().ancestors().skip(1).filter(|_| self.is_new());
        above.map(|directory| directory.join("Cargo.toml")).find(|manifest| is_workspace(manifest))
    }

    /// Its sources, as code in a module sees them.
    pub fn source<'a>(&'a self, context: &'a ModulePath) -> Source<'a> {
        Source { tree: &self.tree, crates: &self.crates, context }
    }

    pub fn is_new(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Whether the host's sources use CRLF; new files then do, too.
    pub fn crlf(&self) -> Result<bool> {
        Ok(self.tree.read(&self.krate.root)?.is_some_and(|text| text.contains("\r\n")))
    }

    /// The first source file beside or below the crate's root that contains a text. What cannot be read is no source.
    pub fn mentions(&self, needle: &str) -> Result<Option<Utf8PathBuf>> {
        let files = self.tree.sources(self.sources())?;
        let contains = |path: &Utf8PathBuf| matches!(self.tree.read(path), Ok(Some(text)) if text.contains(needle));
        Ok(files.into_iter().filter(|path| path.extension() == Some("rs")).find(contains))
    }

    /// Where its code names migrations.
    pub fn migration_mentions(&self) -> Result<Vec<Mention>> {
        mention::mentions(&self.tree, self.sources())
    }

    fn sources(&self) -> &Utf8Path {
        self.krate.root.parent().unwrap_or(Utf8Path::new(""))
    }

    /// The nearest directory that exists, for programs that are run there.
    pub fn working_directory(&self) -> Utf8PathBuf {
        let existing = self.tree.root().ancestors().find(|directory| directory.is_dir());
        let existing = existing.unwrap_or(Utf8Path::new("."));
        // What is above `a/..` is not `a`.
        existing.canonicalize_utf8().unwrap_or_else(|_| existing.to_owned())
    }
}

/// Whether a Cargo.toml is that of a workspace. One that cannot be read is not.
pub fn is_workspace(manifest: &Utf8Path) -> bool {
    std::fs::read_to_string(manifest)
        .is_ok_and(|text| text.lines().any(|line| line.trim_start().starts_with("[workspace")))
}

fn canonical(place: &Place) -> Result<Utf8PathBuf> {
    let Place { named, path, .. } = place;
    if !path.is_dir() {
        return Err(Failure::usage(format!("--path: {named} is not a directory"))
            .help("name the directory of your package, or make a new one there with --init"));
    }
    Ok(path.canonicalize_utf8().with_context(|| format!("cannot read {named}"))?)
}

/// The path of a directory that doesn't exist. Links and `..` are resolved as far as it does.
fn absolute(place: &Place) -> Result<Utf8PathBuf> {
    let path = camino::absolute_utf8(&place.path).with_context(|| format!("cannot read {}", place.named))?;
    let resolved = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize_utf8().ok()?.join(rest))
    });
    Ok(resolved.unwrap_or(path))
}

/// `--no-deps` and `--offline` keep cargo from resolving, and so from writing Cargo.lock.
fn metadata(root: &Utf8Path, tools: &Tools) -> Result<Metadata> {
    let output = Command::new(&tools.cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--quiet"])
        .current_dir(root)
        .output()
        .context("cargo does not run")
        .map_err(|error| Failure::from(error).help("install Rust with rustup, or put cargo on the PATH"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::usage(format!(
            "cargo cannot read Cargo.toml: {}",
            reason.trim().trim_start_matches("error: ")
        ))
        .help("fix it until `cargo metadata` succeeds, then run this again"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(cargo_metadata::MetadataCommand::parse(text).context("cargo metadata printed something unexpected")?)
}

fn check_edition(package: &Package) -> Result<()> {
    if package.edition >= Edition::E2021 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "package `{}` is of edition {}: the generated code needs 2021 or 2024",
        package.name, package.edition
    ))
    .help("set `edition = \"2021\"` in Cargo.toml; `cargo fix --edition` helps with what changes"))
}

/// The library of a package, whatever its `crate-type`. `Target::is_lib` knows only the kind `lib`.
fn library_of(package: &Package) -> Option<&Target> {
    let is_library = |kind: &TargetKind| {
        matches!(
            kind,
            TargetKind::Lib | TargetKind::RLib | TargetKind::DyLib | TargetKind::CDyLib | TargetKind::StaticLib
        )
    };
    package.targets.iter().find(|target| target.kind.iter().any(is_library))
}

/// The library if there is one, else the binary.
fn target(package: &Package) -> Result<&Target> {
    if let Some(library) = library_of(package) {
        return Ok(library);
    }
    let binaries: Vec<_> = package.targets.iter().filter(|target| target.is_bin()).collect();
    let main = |target: &&&Target| target.name == *package.name || Some(&target.name) == package.default_run.as_ref();
    match binaries.as_slice() {
        [] => Err(Failure::usage(format!("package `{}` has neither a library nor a binary", package.name))
            .help("add src/lib.rs and run this again")),
        [binary] => Ok(binary),
        several => several.iter().find(main).copied().ok_or_else(|| {
            let names: Vec<_> = several.iter().map(|target| target.name.as_str()).collect();
            Failure::decision(format!(
                "package `{}` has several binaries and no library: {}",
                package.name,
                names.join(", ")
            ))
            .help("add src/lib.rs, so that all of them can use the generated code")
        }),
    }
}
