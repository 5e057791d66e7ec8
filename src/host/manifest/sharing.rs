//! What the host's other crates share with the generated code: sea-orm is built on a version of sqlx, and a program links
//! one `SQLite`.

use semver::{Version, VersionReq};

use super::entry::Entry;
use super::version::sqlx_requirement;
use super::{DEV, Manifest, NORMAL, SQLX};
use crate::failure::{Failure, Result};

const SEA_ORM: &str = "sea-orm";

impl Manifest {
    /// Whether the generated code is compiled with the sqlx that the package's sea-orm is built on.
    pub fn shares_sqlx_with_sea_orm(&self, oldest: &str) -> Result<bool> {
        let of_sea_orm = self.sqlx_of_sea_orm(&parsed(oldest));
        Ok(of_sea_orm.is_some() && self.sqlx_to_use(oldest)? == of_sea_orm)
    }

    /// The requirement that leads to the sqlx that the generated code is compiled with, where the host decides it.
    pub fn sqlx_to_use(&self, oldest: &str) -> Result<Option<&'static str>> {
        match self.sqlx_entry() {
            Some(entry) => self.sqlx_of(&entry),
            None => Ok(self.sqlx_to_add(&parsed(oldest))),
        }
    }

    pub(super) fn sqlx_to_add(&self, oldest: &Version) -> Option<&'static str> {
        self.sqlx_of_sea_orm(oldest).or_else(|| self.locked_sqlx(oldest))
    }

    pub(super) fn sqlx_entry(&self) -> Option<Entry<'_>> {
        self.find(NORMAL, SQLX).or_else(|| self.find(DEV, SQLX)).or_else(|| self.shared(SQLX))
    }

    /// The requirement that leads to the sqlx that the package's sea-orm is built on, if the generated code can be, too.
    fn sqlx_of_sea_orm(&self, oldest: &Version) -> Option<&'static str> {
        let entry = self.find(NORMAL, SEA_ORM).filter(|entry| entry.key == SEA_ORM && !entry.is_optional())?;
        let version = match &self.sqlx_of_sea_orm {
            Some(version) => version.clone(),
            None => {
                let required = entry.requirement().and_then(|text| VersionReq::parse(text).ok())?;
                match required.comparators.iter().map(|comparator| comparator.major).max()? {
                    0 => Version::new(0, 7, 4),
                    1 => Version::new(0, 8, 6),
                    _ => Version::new(0, 9, 0),
                }
            }
        };
        sqlx_requirement(&version).filter(|_| version >= *oldest)
    }

    /// A program links one `SQLite`, so sqlx has to accept the one that Cargo.lock holds for another crate.
    pub fn refuse_second_sqlite(&self, sqlx: &str) -> Result<()> {
        let locked = |name: &str| self.lock.iter().filter(|(other, _)| other == name).map(|(_, version)| version).max();
        let Some(sqlite) = locked("libsqlite3-sys").filter(|_| locked("sqlx-sqlite").is_none()) else { return Ok(()) };
        let (accepted, shown) = match sqlx {
            "0.9" => (">=0.30.1, <0.38", "0.30 to 0.37"),
            _ => (">=0.30.1, <0.31", "0.30"),
        };
        if VersionReq::parse(accepted).is_ok_and(|accepted| accepted.matches(sqlite)) {
            return Ok(());
        }
        let others = ["rusqlite", "diesel"].iter().filter_map(|name| Some(format!("{name} {}", locked(name)?)));
        let others: Vec<_> = others.collect();
        let user = if others.is_empty() { "another crate".to_owned() } else { others.join(" and ") };
        Err(Failure::decision(format!(
            "Cargo.lock has libsqlite3-sys {sqlite}, for {user}, and sqlx {sqlx} needs {shown}: a program links only one"
        ))
        .help(format!(
            "use a version of that crate that works with libsqlite3-sys {shown}, or choose `--database postgres`"
        )))
    }
}

fn parsed(oldest: &str) -> Version {
    Version::parse(oldest).expect("the oldest version is a version")
}

/// The version of sqlx that sea-orm depends on in a Cargo.lock; its own number is there only if sqlx is there twice.
pub(super) fn sqlx_of_sea_orm(lock: &str) -> Option<Version> {
    let packages = || lock.split("[[package]]");
    let named = |name: &str, text: &str| text.lines().any(|line| line.trim_end() == format!("name = \"{name}\""));
    let value = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("version = \""))?;
        Version::parse(line.trim_end().strip_suffix('"')?).ok()
    };
    let sea_orm = packages().filter(|text| named(SEA_ORM, text)).max_by_key(|text| value(text))?;
    let mut dependencies = sea_orm.lines().map(|line| line.trim().trim_matches(['"', ',']).trim_matches('"'));
    let sqlx = dependencies.find(|name| *name == "sqlx" || name.starts_with("sqlx "))?;
    match sqlx.split_whitespace().nth(1) {
        Some(version) => Version::parse(version).ok(),
        None => packages().find(|text| named("sqlx", text)).and_then(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_has_the_sqlx_of_sea_orm() {
        let lock = |dependency: &str, more: &str| {
            format!(
                "version = 4\n\n[[package]]\nname = \"sea-orm\"\nversion = \"1.1.20\"\ndependencies = [\n \"serde\",\n \
                 \"{dependency}\",\n]\n\n[[package]]\nname = \"sqlx\"\nversion = \"0.8.6\"\n{more}"
            )
        };
        let second = "\n[[package]]\nname = \"sqlx\"\nversion = \"0.9.0\"\n";
        assert_eq!(sqlx_of_sea_orm(&lock("sqlx", "")), Some(Version::new(0, 8, 6)));
        assert_eq!(sqlx_of_sea_orm(&lock("sqlx 0.8.6", second)), Some(Version::new(0, 8, 6)));
        assert_eq!(sqlx_of_sea_orm(&lock("sqlx-core", second)), None);
        assert_eq!(sqlx_of_sea_orm(second), None);
    }
}
