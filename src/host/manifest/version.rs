//! Versions: whether a crate that is there is new enough, by its requirement and by what Cargo.lock holds. One that the
//! generated code could not be built with is refused with the change that fixes it.

use camino::Utf8Path;
use semver::{Version, VersionReq};
use toml_edit::Item;

use super::edit::Edit;
use super::entry::{Entry, requirement};
use super::splice::{replace, span_of};
use super::{LIBRARY, Manifest, NORMAL, Need, Shared};
use crate::failure::{Failure, Result};

/// A crate that the generated code cannot be built with.
pub(super) struct Old {
    name: &'static str,
    /// Its version in Cargo.lock, else what is required.
    shown: String,
    needed: Version,
    /// The change that brings a newer one.
    fix: String,
}

/// The library's requirement with the generator's version in it.
pub(super) enum Raised {
    Here(Edit),
    InWorkspace(Shared),
}

/// All that are too old, in one message.
pub(super) fn refuse_old(mut old: Vec<Old>) -> Result<()> {
    old.dedup_by(|one, other| (one.name, &one.shown) == (other.name, &other.shown));
    let what = match old.as_slice() {
        [] => return Ok(()),
        [Old { name, shown, needed, .. }] => {
            format!("{name} {shown} is too old: the generated code needs {name} {needed} or newer")
        }
        several => {
            let lines = several.iter().map(|Old { name, shown, needed, .. }| {
                format!("\n  {name} {shown}: the generated code needs {needed} or newer")
            });
            format!("these crates are too old:{}", lines.collect::<String>())
        }
    };
    let fixes: Vec<_> = old.into_iter().map(|old| old.fix).collect();
    Err(Failure::usage(what).help(fixes.join("\n      ")))
}

impl Manifest {
    /// Whether a crate that is there is too old.
    pub(super) fn old(&self, need: &Need, entry: &Entry<'_>) -> Result<Option<Old>> {
        let minimum = need.minimum();
        let required = self.required(entry)?;
        let allowed = required.as_ref().map(|required| allowed(required, &minimum));
        let is_reachable = allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|version| *version >= minimum));
        let locked = self.locked(need.name, required.as_ref());
        if locked.map_or(is_reachable, |version| *version >= minimum) {
            return Ok(None);
        }
        let shown = locked.map(Version::to_string).or_else(|| entry.requirement().map(str::to_owned));
        let (name, shown, file) = (need.name, shown.unwrap_or_default(), self.file_of(entry));
        let fix = if is_reachable {
            format!("run `cargo update -p {} --precise {minimum}`", self.specification(name, &shown))
        } else {
            format!("raise the version of {name} in {file} to `{}`", need.version)
        };
        Ok(Some(Old { name, shown, needed: minimum, fix }))
    }

    /// The library's requirement, raised to the generator's version where it is written.
    pub(super) fn raised(&self, needs: &[Need]) -> Result<Option<Raised>> {
        let Some(need) = needs.iter().find(|need| need.name == LIBRARY) else { return Ok(None) };
        let Some(entry) = self.find(NORMAL, LIBRARY) else { return Ok(None) };
        let Some(required) = self.required(&entry)? else { return Ok(None) };
        let minimum = need.minimum();
        let is_behind = |version: &Version| *version < minimum && version.major == minimum.major;
        let is_raised = is_behind(&lowest(&required)) || !required.matches(&minimum) && is_behind(&highest(&required));
        if !is_raised {
            return Ok(None);
        }
        let version = |item| if Item::as_str(item).is_some() { Some(item) } else { item.get("version") };
        let (key, value) = (entry.key.to_owned(), format!("\"{minimum}\""));
        if let Some(version) = entry.own.and_then(version) {
            let text = replace(self.document.raw(), span_of(version), &value);
            return Ok(Some(Raised::Here(Edit { table: NORMAL, key, text })));
        }
        let Some(version) = entry.shared.and_then(version) else { return Ok(None) };
        Ok(Some(match &self.workspace {
            None => {
                let text = replace(self.document.raw(), span_of(version), &value);
                Raised::Here(Edit { table: NORMAL, key, text })
            }
            Some((path, document)) => {
                let text = replace(document.raw(), span_of(version), &value);
                let line = format!("{key} = {value} # in [workspace.dependencies]");
                Raised::InWorkspace(Shared { path: path.clone(), text, line })
            }
        }))
    }

    /// The generator writes code for its own version of the library, and does not know newer ones.
    pub(super) fn refuse_newer_library(&self, need: &Need, entry: &Entry<'_>) -> Result<()> {
        let minimum = need.minimum();
        let fits = VersionReq::parse(need.minimum).expect("a version is a requirement");
        let required = self.required(entry)?;
        let locked = self.locked(need.name, required.as_ref());
        let allows = |required: &VersionReq| allowed(required, &minimum).iter().any(|version| fits.matches(version));
        let is_newer = match (locked, &required) {
            (Some(version), _) => *version > minimum && !fits.matches(version),
            (None, Some(required)) => !allows(required) && highest(required) > minimum,
            (None, None) => false,
        };
        if !is_newer {
            return Ok(());
        }
        let shown = locked.map(Version::to_string).or_else(|| entry.requirement().map(str::to_owned));
        let (shown, file) = (shown.unwrap_or_default(), self.file_of(entry));
        let fix = match required.filter(|_| locked.is_some()) {
            Some(required) if !allows(&required) => {
                format!("set the version of {} in {file} to `{minimum}`", entry.key)
            }
            _ if locked.is_some() => format!("run `cargo update -p {} --precise {minimum}`", need.name),
            _ => format!("set the version of {} in {file} to `{minimum}`", entry.key),
        };
        Err(Failure::usage(format!(
            "{file}: sagents {shown} is newer than this generator, which writes code for sagents {minimum}"
        ))
        .help(format!("install the generator that belongs to it with `cargo install sagents-cli`, or {fix}")))
    }

    /// A package as cargo understands it, where Cargo.lock may have several versions of it.
    fn specification(&self, name: &str, version: &str) -> String {
        let is_alone = self.lock.iter().filter(|(locked, _)| locked == name).count() < 2;
        if is_alone { name.to_owned() } else { format!("{name}@{version}") }
    }

    fn required(&self, entry: &Entry<'_>) -> Result<Option<VersionReq>> {
        let Some(text) = entry.requirement() else { return Ok(None) };
        VersionReq::parse(text).map(Some).map_err(|error| {
            let file = self.file_of(entry);
            Failure::usage(format!("{file}: `{text}` is not a version requirement for {}: {error}", entry.key))
                .help(format!("fix {file}"))
        })
    }

    /// The newest version in Cargo.lock that a requirement allows.
    fn locked(&self, package: &str, required: Option<&VersionReq>) -> Option<&Version> {
        let versions = self.lock.iter().filter(|(name, _)| name == package).map(|(_, version)| version);
        versions.filter(|version| required.is_none_or(|required| required.matches(version))).max()
    }

    /// The file in which the version of an entry is written.
    fn file_of(&self, entry: &Entry<'_>) -> &Utf8Path {
        let is_own = entry.own.and_then(requirement).is_some();
        match &self.workspace {
            Some((path, _)) if !is_own && entry.shared.is_some() => path,
            _ => &self.path,
        }
    }
}

/// The lowest version that a requirement's first part names.
fn lowest(required: &VersionReq) -> Version {
    let first = required.comparators.first();
    first.map_or(Version::new(0, 0, 0), |first| {
        Version::new(first.major, first.minor.unwrap_or_default(), first.patch.unwrap_or_default())
    })
}

fn highest(required: &VersionReq) -> Version {
    extremes(required).into_iter().filter(|version| required.matches(version)).max().unwrap_or(Version::new(0, 0, 0))
}

/// Versions that a requirement allows: if it allows one that works, one of these does.
fn allowed(required: &VersionReq, minimum: &Version) -> Vec<Version> {
    let mut versions = extremes(required);
    versions.push(minimum.clone());
    versions.retain(|version| required.matches(version));
    versions
}

/// Versions at the edges of what a requirement allows: if it allows any in a range, it allows an end of that range or
/// one of these.
fn extremes(required: &VersionReq) -> Vec<Version> {
    const MANY: u64 = 99_999;
    let mut versions = vec![Version::new(MANY, MANY, MANY), Version::new(0, 0, 0)];
    for comparator in &required.comparators {
        let (major, minor, patch) =
            (comparator.major, comparator.minor.unwrap_or_default(), comparator.patch.unwrap_or_default());
        let mut exact = Version::new(major, minor, patch);
        exact.pre = comparator.pre.clone();
        versions.extend([exact, Version::new(major, minor, patch), Version::new(major, minor, patch + 1)]);
        versions.extend([Version::new(major, minor, MANY), Version::new(major, MANY, MANY)]);
        versions.extend([Version::new(major, minor + 1, 0), Version::new(major + 1, 0, 0)]);
        // The last ones before it, for `<`.
        versions.push(match (major, minor, patch) {
            (_, _, 1..) => Version::new(major, minor, patch - 1),
            (_, 1.., _) => Version::new(major, minor - 1, MANY),
            _ => Version::new(major.saturating_sub(1), MANY, MANY),
        });
    }
    versions
}

/// Names and versions in Cargo.lock. Cargo writes that file, always in the same form, so reading lines is enough and
/// spares the parsing of a long file.
pub(super) fn locked_packages(text: &str) -> Vec<(String, Version)> {
    let value = |line: &'_ str, key: &str| -> Option<String> {
        Some(line.trim_end().strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
    };
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| Some((value(pair[0], "name")?, value(pair[1], "version")?)));
    pairs.filter_map(|(name, version)| Some((name, Version::parse(&version).ok()?))).collect()
}
