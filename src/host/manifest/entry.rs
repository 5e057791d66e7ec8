//! The entries of dependency tables: what the package has for a crate, what it takes from its workspace, and the
//! features that are on because of both.

use std::collections::BTreeSet;

use toml_edit::{Item, TableLike};

use super::Manifest;

/// One dependency: what the package has for it, and what it takes from its workspace.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) own: Option<&'a Item>,
    pub(super) shared: Option<&'a Item>,
}

impl Manifest {
    pub(super) fn entries<'a>(&'a self, table: &str) -> impl Iterator<Item = Entry<'a>> {
        self.entries_in(self.document.get(table))
    }

    /// The entries for a package that count for some targets only, each with the name of its table.
    pub(super) fn for_targets<'a>(&'a self, table: &str, package: &str) -> Vec<(String, Entry<'a>)> {
        let targets = self.document.get("target").and_then(Item::as_table_like);
        let mut found = Vec::new();
        for (target, item) in targets.into_iter().flat_map(TableLike::iter) {
            let is_bare = target.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            let name = if is_bare { target.to_owned() } else { format!("'{target}'") };
            let entries = self.entries_in(item.get(table)).filter(|entry| entry.package() == package);
            found.extend(entries.map(|entry| (format!("target.{name}.{table}"), entry)));
        }
        found
    }

    fn entries_in<'a>(&'a self, table: Option<&'a Item>) -> impl Iterator<Item = Entry<'a>> {
        let table = table.and_then(Item::as_table_like);
        table.into_iter().flat_map(TableLike::iter).map(|(key, own)| {
            let inherits = own.get("workspace").and_then(Item::as_bool) == Some(true);
            let shared = if inherits { self.shared_table().and_then(|table| table.get(key)) } else { None };
            Entry { key, own: Some(own), shared }
        })
    }

    pub(super) fn find<'a>(&'a self, table: &str, package: &str) -> Option<Entry<'a>> {
        prefer_same_name(self.entries(table), package)
    }

    /// What the workspace offers and the package does not take yet.
    pub(super) fn shared<'a>(&'a self, package: &str) -> Option<Entry<'a>> {
        let table = self.shared_table()?.as_table_like()?;
        let entries = table.iter().map(|(key, item)| Entry { key, own: None, shared: Some(item) });
        prefer_same_name(entries, package)
    }

    pub(super) fn shared_table(&self) -> Option<&Item> {
        self.workspace_table()?.get("dependencies")
    }

    /// The `[workspace]` table, which is in the same file when the package is the workspace's root.
    pub(super) fn workspace_table(&self) -> Option<&Item> {
        let document = self.workspace.as_ref().map_or(&self.document, |(_, document)| document);
        document.get("workspace")
    }
}

fn prefer_same_name<'a>(entries: impl Iterator<Item = Entry<'a>>, package: &str) -> Option<Entry<'a>> {
    let mut all: Vec<_> = entries.filter(|entry| entry.package() == package).collect();
    let index = all.iter().position(|entry| entry.key == package).unwrap_or(0);
    (index < all.len()).then(|| all.swap_remove(index))
}

impl Entry<'_> {
    pub(super) fn field(&self, name: &str) -> Option<&Item> {
        [self.own, self.shared].into_iter().flatten().find_map(|item| item.get(name))
    }

    pub(super) fn package(&self) -> &str {
        self.field("package").and_then(Item::as_str).unwrap_or(self.key)
    }

    pub(super) fn requirement(&self) -> Option<&str> {
        [self.own, self.shared].into_iter().flatten().find_map(requirement)
    }

    /// All features that are on, as far as they are known. `own` is off for an entry that is only to be copied.
    pub(super) fn features(&self, own: bool) -> BTreeSet<String> {
        let listed = [self.own.filter(|_| own), self.shared];
        let mut features: Vec<String> =
            listed.into_iter().flatten().flat_map(|item| strings(item.get("features"))).collect();
        // A member cannot switch off what its workspace leaves on, only the other way round.
        let defaults = |item: &Item| match item.get("default-features").or_else(|| item.get("default_features")) {
            Some(value) => value.as_bool() != Some(false),
            None => item.get("workspace").is_none(),
        };
        if [self.own, self.shared].into_iter().flatten().any(defaults) {
            features.push("default".to_owned());
        }
        with_implied(self.package(), features)
    }

    pub(super) fn is_optional(&self) -> bool {
        self.own.and_then(|own| own.get("optional")).and_then(Item::as_bool) == Some(true)
    }
}

pub(super) fn requirement(item: &Item) -> Option<&str> {
    item.as_str().or_else(|| item.get("version")?.as_str())
}

pub(super) fn strings(item: Option<&Item>) -> Vec<String> {
    let values = item.and_then(Item::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

pub(super) fn with_implied(package: &str, mut open: Vec<String>) -> BTreeSet<String> {
    let mut features = BTreeSet::new();
    while let Some(feature) = open.pop() {
        let implied = IMPLIED.iter().filter(|(krate, by, _)| *krate == package && *by == feature);
        open.extend(implied.flat_map(|(_, _, names)| names.iter().map(|name| (*name).to_owned())));
        features.insert(feature);
    }
    features
}

/// Features that switch on others, where the generated code asks for one of those.
const IMPLIED: &[(&str, &str, &[&str])] = &[
    ("axum", "default", &["form", "http1", "json", "matched-path", "original-uri", "query", "tokio"]),
    ("sqlx", "default", &["any", "macros", "migrate", "json"]),
    ("sqlx", "macros", &["derive"]),
    ("sqlx", "runtime-tokio-rustls", &["runtime-tokio"]),
    ("sqlx", "runtime-tokio-native-tls", &["runtime-tokio"]),
    ("sqlx", "all-databases", &["mysql", "sqlite", "postgres", "any"]),
    ("sqlx", "sqlite-bundled", &["sqlite"]),
    ("sqlx", "sqlite-unbundled", &["sqlite"]),
    ("sagents", "sqlite-unbundled", &["sqlite"]),
    ("sea-orm", "sqlx-all", &["sqlx-mysql", "sqlx-postgres", "sqlx-sqlite"]),
    ("serde", "default", &["std"]),
    ("serde_json", "default", &["std"]),
    ("thiserror", "default", &["std"]),
    ("tokio", "full", &["fs", "io-util", "io-std", "macros", "net", "parking_lot", "process"]),
    ("tokio", "full", &["rt-multi-thread", "signal", "sync", "time"]),
    ("tokio", "rt-multi-thread", &["rt"]),
    ("tracing", "default", &["std", "attributes"]),
    ("uuid", "default", &["std"]),
];
