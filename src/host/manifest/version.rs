//! Versions: whether a crate that is there is new enough, by its requirement and by what Cargo.lock holds. One that the
//! generated code could not be built with is refused with the change that fixes it.

use camino::Utf8Path;
use semver::{Version, VersionReq};

use super::entry::{Entry, requirement};
use super::{Manifest, Need, SQLX, SqlxVersion};
use crate::failure::{Failure, Result};

impl Manifest {
    pub(super) fn sqlx_version(&self, entry: &Entry<'_>) -> Result<SqlxVersion> {
        let required = self.required(entry)?;
        let locked = self.locked(SQLX, required.as_ref());
        let (Some(required), Some(shown)) = (&required, entry.requirement()) else {
            return match locked {
                Some(version) => supported(version).ok_or_else(|| self.refuse_sqlx(entry, &version.to_string(), None)),
                None => Ok(SqlxVersion::V0_9),
            };
        };
        if let Some(version) = locked {
            return supported(version)
                .ok_or_else(|| self.refuse_sqlx(entry, &version.to_string(), newest_sqlx(required)));
        }
        newest_sqlx(required).ok_or_else(|| self.refuse_sqlx(entry, shown, None))
    }

    fn refuse_sqlx(&self, entry: &Entry<'_>, shown: &str, reachable: Option<SqlxVersion>) -> Failure {
        let file = self.file_of(entry);
        let oldest = Version::new(0, 8, 4);
        let is_old = VersionReq::parse(shown).is_ok_and(|required| {
            let mut versions = extremes(&required).into_iter().filter(|version| required.matches(version));
            versions.any(|version| version < oldest)
        });
        if !is_old {
            return Failure::usage(format!(
                "sqlx {shown} is not known: the generated code compiles with 0.8 (from 0.8.4) and 0.9"
            ))
            .help(format!("set the version of sqlx in {file} to `0.9` or `0.8.4`"));
        }
        let failure = Failure::usage(format!(
            "sqlx {shown} is too old: transactions that begin with BEGIN IMMEDIATE came with 0.8.4"
        ));
        match reachable {
            Some(_) => failure.help("run `cargo update -p sqlx`"),
            None => failure.help(format!("raise the version of sqlx in {file} to `0.8.4` or `0.9`")),
        }
    }

    pub(super) fn locked_sqlx(&self) -> Option<SqlxVersion> {
        let versions = self.lock.iter().filter(|(name, _)| name == SQLX).map(|(_, version)| version);
        versions.filter(|version| supported(version).is_some()).max().and_then(supported)
    }

    /// Whether a crate that is there is new enough.
    pub(super) fn check(&self, need: &Need, entry: &Entry<'_>) -> Result<()> {
        if need.name == SQLX {
            return self.sqlx_version(entry).map(drop);
        }
        let minimum = Version::parse(need.minimum).expect("a need's oldest version is a version");
        let required = self.required(entry)?;
        let reachable = required.as_ref().is_none_or(|required| can_reach(required, &minimum));
        let locked = self.locked(need.name, required.as_ref());
        if locked.map_or(reachable, |version| *version >= minimum) {
            return Ok(());
        }
        let shown = locked.map(Version::to_string).or_else(|| entry.requirement().map(str::to_owned));
        let (name, shown, file) = (need.name, shown.unwrap_or_default(), self.file_of(entry));
        let failure =
            Failure::usage(format!("{name} {shown} is too old: the generated code needs {name} {minimum} or newer"));
        Err(if reachable {
            failure.help(format!("run `cargo update -p {name}`"))
        } else {
            failure.help(format!("raise the version of {name} in {file} to `{}`", need.version))
        })
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

pub(super) fn supported(version: &Version) -> Option<SqlxVersion> {
    match (version.major, version.minor, version.patch) {
        (0, 8, 4..) => Some(SqlxVersion::V0_8),
        (0, 9, _) => Some(SqlxVersion::V0_9),
        _ => None,
    }
}

fn newest_sqlx(required: &VersionReq) -> Option<SqlxVersion> {
    let mut versions = extremes(required);
    versions.extend([Version::new(0, 8, 4), Version::new(0, 8, 99), Version::new(0, 9, 0), Version::new(0, 9, 99)]);
    let matching = versions.iter().filter(|version| required.matches(version));
    matching.filter(|version| supported(version).is_some()).max().and_then(supported)
}

fn can_reach(required: &VersionReq, minimum: &Version) -> bool {
    let mut versions = extremes(required);
    versions.push(minimum.clone());
    versions.iter().any(|version| version >= minimum && required.matches(version))
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
