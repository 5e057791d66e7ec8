//! Versions: whether a crate that is there is new enough, by its requirement and by what Cargo.lock holds. One that the
//! generated code could not be built with is refused with the change that fixes it.

use camino::Utf8Path;
use semver::{Version, VersionReq};

use super::entry::{Entry, requirement};
use super::{Manifest, Need, SQLX};
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
    /// The requirement for an sqlx that is not there yet: two versions of it cannot be linked together, so it is that of
    /// Cargo.lock.
    pub(super) fn locked_sqlx(&self, minimum: &Version) -> Option<&'static str> {
        let locked = self.lock.iter().filter(|(name, _)| name == SQLX).map(|(_, version)| version);
        sqlx_requirement(locked.filter(|version| *version >= minimum && is_known_sqlx(version)).max()?)
    }

    /// The requirement that leads to the sqlx of an entry.
    pub(super) fn sqlx_of(&self, entry: &Entry<'_>) -> Result<Option<&'static str>> {
        let required = self.required(entry)?;
        if let Some(locked) = self.locked(SQLX, required.as_ref()) {
            return Ok(sqlx_requirement(locked));
        }
        let allowed = required.map(|required| allowed(&required, &Version::new(0, 0, 0))).unwrap_or_default();
        Ok(allowed.iter().filter(|version| is_known_sqlx(version)).max().and_then(sqlx_requirement))
    }

    /// Whether a crate that is there is too old. An sqlx that is too new is an error.
    pub(super) fn old(&self, need: &Need, entry: &Entry<'_>) -> Result<Option<Old>> {
        let minimum = need.minimum();
        let required = self.required(entry)?;
        let is_known = |version: &Version| need.name != SQLX || is_known_sqlx(version);
        let allowed = required.as_ref().map(|required| allowed(required, &minimum));
        let is_reachable = allowed.as_ref().is_none_or(|allowed| {
            let mut allowed = allowed.iter();
            allowed.any(|version| *version >= minimum && is_known(version))
        });
        let locked = self.locked(need.name, required.as_ref());
        if locked.map_or(is_reachable, |version| *version >= minimum && is_known(version)) {
            return Ok(None);
        }
        let shown = locked.map(Version::to_string).or_else(|| entry.requirement().map(str::to_owned));
        let (name, shown, file) = (need.name, shown.unwrap_or_default(), self.file_of(entry));
        let is_old = match locked {
            Some(version) => *version < minimum,
            None => allowed.iter().flatten().any(|version| *version < minimum),
        };
        let versions = sqlx_versions(&minimum);
        if !is_old {
            return Err(Failure::usage(format!(
                "sqlx {shown} is not known: the generated code compiles with {versions}"
            ))
            .help(format!("set the version of sqlx in {file} to one of these")));
        }
        let fix = if is_reachable {
            format!("run `cargo update -p {} --precise {minimum}`", self.specification(name, &shown))
        } else if name == SQLX {
            format!("raise the version of sqlx in {file} to {versions}")
        } else {
            format!("raise the version of {name} in {file} to `{}`", need.version)
        };
        Ok(Some(Old { name, shown, needed: minimum, fix }))
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

/// The minor versions of sqlx 0 that the generated code compiles with.
const SQLX_VERSIONS: &[(u64, &str)] = &[(7, "0.7"), (8, "0.8"), (9, "0.9")];

fn is_known_sqlx(version: &Version) -> bool {
    sqlx_requirement(version).is_some()
}

pub(super) fn sqlx_requirement(version: &Version) -> Option<&'static str> {
    let mut known = SQLX_VERSIONS.iter().filter(|_| version.major == 0);
    known.find(|(minor, _)| *minor == version.minor).map(|(_, requirement)| *requirement)
}

/// Those from the oldest that works on: "0.7 (from 0.7.4), 0.8 or 0.9".
fn sqlx_versions(minimum: &Version) -> String {
    let known = SQLX_VERSIONS.iter().filter(|(minor, _)| *minor >= minimum.minor);
    let shown = known.map(|(minor, version)| match minimum.patch {
        1.. if *minor == minimum.minor => format!("{version} (from {minimum})"),
        _ => (*version).to_owned(),
    });
    let shown: Vec<_> = shown.collect();
    match shown.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Versions that a requirement allows: if it allows one that works, one of these does.
fn allowed(required: &VersionReq, minimum: &Version) -> Vec<Version> {
    let mut versions = extremes(required);
    versions.push(minimum.clone());
    versions
        .extend(SQLX_VERSIONS.iter().flat_map(|(minor, _)| [Version::new(0, *minor, 0), Version::new(0, *minor, 99)]));
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
