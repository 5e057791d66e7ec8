//! Where the host has the library from: a registry, a directory or a git repository.

use camino::{Utf8Path, Utf8PathBuf};
use semver::{Version, VersionReq};

use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::note::Note;

/// The source of the library, for a host that doesn't have it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Library {
    /// A version from the registry.
    Version(String),
    /// A directory, relative to the host.
    Path(Utf8PathBuf),
    Git {
        url: String,
        tag: String,
    },
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Library {
    /// `--library`, or else the generator's own version. A generator from a work tree has a version that may not be
    /// published yet, so it names the directory, too. An entry in Cargo.toml is never replaced.
    pub fn choose(given: Option<&str>, recorded: Option<&str>, host: &Host) -> Result<Self> {
        let is_there = host.manifest.has_library(None);
        match given {
            // It said where to add the library from.
            Some(text) if is_there && recorded == Some(text) => Ok(Self::Version(VERSION.to_owned())),
            Some(text) => {
                let library = Self::parse(text, host)?;
                if is_there && !host.manifest.has_library(Some(&library.source())) {
                    return Err(Failure::decision(format!(
                        "--library: Cargo.toml has `sagents` from another source than `{text}` already"
                    ))
                    .help("change its entry in Cargo.toml, and run this without --library"));
                }
                Ok(library)
            }
            None => Ok(work_tree().map_or_else(
                || Self::Version(VERSION.to_owned()),
                |library| Self::Path(relative(&library, host.tree.root())),
            )),
        }
    }

    /// A directory outside of the repository is on this machine only.
    pub fn note(&self, host: &Host) -> Option<Note> {
        match self {
            Self::Path(path) if !host.manifest.has_library(None) && host.is_outside_repository(path) => {
                Some(Note::LibraryPath(path.clone()))
            }
            _ => None,
        }
    }

    fn parse(text: &str, host: &Host) -> Result<Self> {
        match text {
            text if text.contains("://") => git(text),
            text if text.starts_with(|c: char| c.is_ascii_digit() || "^~=<>*".contains(c)) => version(text),
            text => directory(text, host),
        }
    }

    /// The fields of its entry in Cargo.toml.
    pub fn source(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Version(version) => vec![("version", version.clone())],
            Self::Path(path) => vec![("version", VERSION.to_owned()), ("path", path.to_string())],
            Self::Git { url, tag } => vec![("version", VERSION.to_owned()), ("git", url.clone()), ("tag", tag.clone())],
        }
    }
}

fn git(text: &str) -> Result<Library> {
    match text.split_once('#') {
        Some((url, tag)) if !tag.is_empty() && !text.contains(['"', '\\']) => {
            Ok(Library::Git { url: url.to_owned(), tag: tag.to_owned() })
        }
        _ => Err(Failure::usage(format!("--library: `{text}` names no tag of the repository"))
            .help(format!("put one behind the URL, for example `{}#v{VERSION}`", text.trim_end_matches('#')))),
    }
}

fn version(text: &str) -> Result<Library> {
    let requirement = VersionReq::parse(text).map_err(|error| {
        Failure::usage(format!("--library: `{text}` is no version requirement: {error}"))
            .help(format!("use `{VERSION}`, a path or a git URL with a tag"))
    })?;
    if requirement.matches(&Version::parse(VERSION).expect("the package's own version")) {
        return Ok(Library::Version(text.to_owned()));
    }
    Err(Failure::usage(format!(
        "--library: this version of the generator writes code for sagents {VERSION}, and `{text}` excludes it"
    ))
    .help(format!("use `{VERSION}`, or install the generator of that version")))
}

fn directory(text: &str, host: &Host) -> Result<Library> {
    let manifest = host.tree.root().join(text).join("Cargo.toml");
    let is_library =
        std::fs::read_to_string(&manifest).ok().and_then(|text| text.parse::<toml_edit::DocumentMut>().ok());
    let name = is_library.as_ref().and_then(|document| document.get("package")?.get("name")?.as_str());
    if name == Some("sagents") && !text.contains(['"', '\\']) {
        return Ok(Library::Path(text.into()));
    }
    Err(Failure::usage(format!("--library: {text} is not the directory of the package `sagents`, seen from the host"))
        .help("name `crates/sagents` of a clone, a version or a git URL with a tag"))
}

/// The library beside this program's sources, unless cargo fetched them.
fn work_tree() -> Option<Utf8PathBuf> {
    let library = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/sagents").canonicalize_utf8().ok()?;
    let cargo = std::env::var("CARGO_HOME").ok().map(Utf8PathBuf::from);
    let cargo = cargo.or_else(|| Some(Utf8PathBuf::from(std::env::var("HOME").ok()?).join(".cargo")));
    let is_fetched = cargo.is_some_and(|cargo| library.starts_with(cargo));
    (!is_fetched && library.join("Cargo.toml").is_file()).then_some(library)
}

/// A path as it's seen from a directory.
fn relative(path: &Utf8Path, from: &Utf8Path) -> Utf8PathBuf {
    let shared = path.components().zip(from.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| "..");
    up.chain(path.components().skip(shared).map(|component| component.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_from_the_host() {
        for (from, expected) in [("/a/b", "../../c/lib"), ("/c", "lib"), ("/c/host", "../lib"), ("/c/lib/x", "..")] {
            assert_eq!(relative(Utf8Path::new("/c/lib"), Utf8Path::new(from)), expected);
        }
    }

    #[test]
    fn a_repository_needs_a_tag_and_a_version_has_to_be_the_generators() {
        let (url, tag) = ("https://example.com/sagents".to_owned(), "v1".to_owned());
        assert_eq!(git("https://example.com/sagents#v1").unwrap(), Library::Git { url, tag });
        assert!(git("https://example.com/sagents").is_err());
        assert_eq!(version(VERSION).unwrap(), Library::Version(VERSION.to_owned()));
        for excluding in ["99.0", "<0.1", "=0.0.1"] {
            assert!(version(excluding).is_err(), "{excluding}");
        }
    }
}
