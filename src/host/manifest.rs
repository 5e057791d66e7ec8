//! The host's Cargo.toml: which dependencies there are, and the text with those added that the generated code needs.
//! `toml_edit` finds the places and text is spliced there, so every other byte stays as its author left it. Whatever
//! the generated code could not be built with is refused here, before anything is written.

use std::collections::BTreeSet;
use std::ops::Range;

use camino::{Utf8Path, Utf8PathBuf};
use semver::{Version, VersionReq};
use toml_edit::{Array, Document, InlineTable, Item, TableLike, Value};

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
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub name: &'static str,
    /// The version requirement that is written when the crate is absent.
    pub version: &'static str,
    /// The oldest version that works, in full: `1.0.0`.
    pub minimum: &'static str,
    pub features: &'static [&'static str],
    pub dev: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlxVersion {
    V0_8,
    V0_9,
}

/// The sqlx that the generated code will be compiled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sqlx {
    /// Nothing if neither the package, nor its workspace, nor Cargo.lock decides.
    pub version: Option<SqlxVersion>,
    /// `db` for `db = { package = "sqlx" }`.
    pub renamed: Option<String>,
    pub sqlite: bool,
    pub postgres: bool,
    pub mysql: bool,
}

/// A Cargo.toml with its needs met.
#[derive(Debug)]
pub struct Wiring {
    pub text: String,
    /// Each changed entry as it now stands, in one line. A comment names its table unless that is `[dependencies]`.
    pub lines: Vec<String>,
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
        Ok(Self { path: path.to_owned(), document, workspace, lock: lock.map(locked_packages).unwrap_or_default() })
    }

    pub fn sqlx(&self) -> Result<Sqlx> {
        let Some(entry) = self.find(NORMAL, SQLX).or_else(|| self.find(DEV, SQLX)).or_else(|| self.shared(SQLX)) else {
            let version = self.locked_sqlx();
            return Ok(Sqlx { version, renamed: None, sqlite: false, postgres: false, mysql: false });
        };
        let features = entry.features(true);
        let has = |name: &str| features.contains(name);
        Ok(Sqlx {
            version: Some(self.sqlx_version(&entry)?),
            renamed: (entry.key != SQLX).then(|| entry.key.to_owned()),
            sqlite: has("sqlite") || has("sqlite-preupdate-hook"),
            postgres: has("postgres"),
            mysql: has("mysql"),
        })
    }

    /// The crates that the package can name, as Rust code writes them.
    pub fn dependency_crates(&self) -> Vec<String> {
        self.entries(NORMAL).map(|entry| crate::names::crate_name(entry.key)).collect()
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

    /// The text with every need met. Applied to its own result it changes nothing.
    pub fn with(&self, needs: &[Need]) -> Result<Wiring> {
        let mut manifest = self.clone();
        let mut changed = Vec::new();
        for need in needs {
            if let Some(edit) = manifest.edit(need)? {
                manifest.document = parse(&self.path, &edit.text)?;
                if !changed.contains(&(edit.table, edit.key.clone())) {
                    changed.push((edit.table, edit.key));
                }
            }
        }
        let lines = changed.iter().filter_map(|(table, key)| manifest.line(table, key)).collect();
        Ok(Wiring { text: manifest.document.raw().to_owned(), lines })
    }
}

const SQLX: &str = "sqlx";
const NORMAL: &str = "dependencies";
const DEV: &str = "dev-dependencies";

/// Finding entries.
impl Manifest {
    fn entries<'a>(&'a self, table: &str) -> impl Iterator<Item = Entry<'a>> {
        let table = self.document.get(table).and_then(Item::as_table_like);
        table.into_iter().flat_map(TableLike::iter).map(|(key, own)| {
            let inherits = own.get("workspace").and_then(Item::as_bool) == Some(true);
            let shared = if inherits { self.shared_table().and_then(|table| table.get(key)) } else { None };
            Entry { key, own: Some(own), shared }
        })
    }

    fn find<'a>(&'a self, table: &str, package: &str) -> Option<Entry<'a>> {
        prefer_same_name(self.entries(table), package)
    }

    /// What the workspace offers and the package does not take yet.
    fn shared<'a>(&'a self, package: &str) -> Option<Entry<'a>> {
        let table = self.shared_table()?.as_table_like()?;
        let entries = table.iter().map(|(key, item)| Entry { key, own: None, shared: Some(item) });
        prefer_same_name(entries, package)
    }

    fn shared_table(&self) -> Option<&Item> {
        self.workspace_table()?.get("dependencies")
    }

    /// The `[workspace]` table, which is in the same file when the package is the workspace's root.
    fn workspace_table(&self) -> Option<&Item> {
        let document = self.workspace.as_ref().map_or(&self.document, |(_, document)| document);
        document.get("workspace")
    }
}

fn prefer_same_name<'a>(entries: impl Iterator<Item = Entry<'a>>, package: &str) -> Option<Entry<'a>> {
    let mut all: Vec<_> = entries.filter(|entry| entry.package() == package).collect();
    let index = all.iter().position(|entry| entry.key == package).unwrap_or(0);
    (index < all.len()).then(|| all.swap_remove(index))
}

/// One dependency: what the package says of it, and what it takes from its workspace.
struct Entry<'a> {
    key: &'a str,
    own: Option<&'a Item>,
    shared: Option<&'a Item>,
}

impl Entry<'_> {
    fn field(&self, name: &str) -> Option<&Item> {
        [self.own, self.shared].into_iter().flatten().find_map(|item| item.get(name))
    }

    fn package(&self) -> &str {
        self.field("package").and_then(Item::as_str).unwrap_or(self.key)
    }

    fn requirement(&self) -> Option<&str> {
        [self.own, self.shared].into_iter().flatten().find_map(requirement)
    }

    /// All features that are on, as far as they are known. `own` is off for an entry that is only to be copied.
    fn features(&self, own: bool) -> BTreeSet<String> {
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

    fn is_optional(&self) -> bool {
        self.own.and_then(|own| own.get("optional")).and_then(Item::as_bool) == Some(true)
    }
}

fn requirement(item: &Item) -> Option<&str> {
    item.as_str().or_else(|| item.get("version")?.as_str())
}

fn strings(item: Option<&Item>) -> Vec<String> {
    let values = item.and_then(Item::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn with_implied(package: &str, mut open: Vec<String>) -> BTreeSet<String> {
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
    ("sqlx", "default", &["any", "macros", "migrate", "json"]),
    ("sqlx", "macros", &["derive"]),
    ("sqlx", "runtime-tokio-rustls", &["runtime-tokio"]),
    ("sqlx", "runtime-tokio-native-tls", &["runtime-tokio"]),
    ("sqlx", "all-databases", &["mysql", "sqlite", "postgres", "any"]),
    ("sqlx", "sqlite-bundled", &["sqlite"]),
    ("sqlx", "sqlite-unbundled", &["sqlite"]),
    ("chrono", "default", &["clock", "std", "oldtime", "wasmbind"]),
    ("chrono", "clock", &["iana-time-zone", "now"]),
    ("chrono", "now", &["std"]),
    ("chrono", "std", &["alloc"]),
    ("serde", "default", &["std"]),
    ("serde_json", "default", &["std"]),
    ("thiserror", "default", &["std"]),
    ("tokio", "full", &["fs", "io-util", "io-std", "macros", "net", "parking_lot", "process"]),
    ("tokio", "full", &["rt-multi-thread", "signal", "sync", "time"]),
    ("tokio", "rt-multi-thread", &["rt"]),
    ("tracing", "default", &["std", "attributes"]),
    ("uuid", "default", &["std"]),
];

/// Judging versions.
impl Manifest {
    fn sqlx_version(&self, entry: &Entry<'_>) -> Result<SqlxVersion> {
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

    fn locked_sqlx(&self) -> Option<SqlxVersion> {
        let versions = self.lock.iter().filter(|(name, _)| name == SQLX).map(|(_, version)| version);
        versions.filter(|version| supported(version).is_some()).max().and_then(supported)
    }

    /// Whether a crate that is there is new enough.
    fn check(&self, need: &Need, entry: &Entry<'_>) -> Result<()> {
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
                .help(format!("mend {file}"))
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

fn supported(version: &Version) -> Option<SqlxVersion> {
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
fn locked_packages(text: &str) -> Vec<(String, Version)> {
    let value = |line: &'_ str, key: &str| -> Option<String> {
        Some(line.trim_end().strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
    };
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| Some((value(pair[0], "name")?, value(pair[1], "version")?)));
    pairs.filter_map(|(name, version)| Some((name, Version::parse(&version).ok()?))).collect()
}

/// The next text, and the entry in which it differs.
struct Edit {
    table: &'static str,
    key: String,
    text: String,
}

/// Meeting needs.
impl Manifest {
    fn edit(&self, need: &Need) -> Result<Option<Edit>> {
        let (table, other) = if need.dev { (DEV, NORMAL) } else { (NORMAL, DEV) };
        self.refuse_taken_name(table, need.name)?;
        let here = self.find(table, need.name);
        let there = self.find(other, need.name);
        let shared = self.shared(need.name).filter(|entry| entry.key == need.name || need.name == SQLX);
        if let Some(entry) = here.as_ref().or(there.as_ref()).or(shared.as_ref()) {
            self.check(need, entry)?;
            self.refuse_unusable(need, entry)?;
        }

        let mut present = here.as_ref().map(|entry| entry.features(true)).unwrap_or_default();
        // Tests are built with the normal dependencies too, so long as no feature of the host switches those off.
        let normal = there.as_ref().filter(|entry| need.dev && !entry.is_optional());
        present.extend(normal.iter().flat_map(|entry| entry.features(true)));
        let model = there.as_ref().or(shared.as_ref());
        if here.is_none() {
            present.extend(model.iter().flat_map(|entry| entry.features(false)));
        }
        if here.is_none() && model.is_none() {
            present.extend(with_implied(need.name, vec!["default".to_owned()]));
        }
        let missing: Vec<_> = need.features.iter().copied().filter(|feature| !present.contains(*feature)).collect();
        if missing.is_empty() && (here.is_some() || normal.is_some()) {
            return Ok(None);
        }
        Ok(Some(match &here {
            Some(entry) => Edit { table, key: entry.key.to_owned(), text: self.extended(entry, &missing) },
            None => self.added(table, need, model, &missing),
        }))
    }

    /// `sqlx = { package = "sqlx-oldapi" }` leaves no room for sqlx itself.
    fn refuse_taken_name(&self, table: &str, name: &str) -> Result<()> {
        let Some(entry) = self.entries(table).find(|entry| entry.key == name && entry.package() != name) else {
            return Ok(());
        };
        let (path, package) = (&self.path, entry.package());
        Err(Failure::decision(format!(
            "{path}: `{name}` is another name of the package `{package}`, and the generated code needs `{name}` itself"
        ))
        .help(format!("give `{package}` another name under [{table}]")))
    }

    fn refuse_unusable(&self, need: &Need, entry: &Entry<'_>) -> Result<()> {
        let (path, name, key) = (&self.path, need.name, entry.key);
        if !need.dev && entry.is_optional() {
            return Err(Failure::decision(format!(
                "{path}: `{key}` is optional, but the generated code cannot be behind a feature"
            ))
            .help(format!("remove `optional = true` from `{key}`")));
        }
        if name != SQLX && key != name {
            return Err(Failure::decision(format!(
                "{path}: `{name}` is renamed to `{key}`, but the generated code calls it `{name}`"
            ))
            .help(format!("name the dependency `{name}`")));
        }
        let features = entry.features(true);
        let mut others = features.iter().filter(|feature| feature.starts_with("runtime-"));
        match others.next() {
            Some(other) if name == SQLX && !features.contains("runtime-tokio") => {
                Err(Failure::decision(format!("{path}: sqlx runs on `{other}`, but the generated code runs on tokio"))
                    .help("replace that feature of sqlx by `runtime-tokio`"))
            }
            _ => Ok(()),
        }
    }

    fn extended(&self, entry: &Entry<'_>, missing: &[&str]) -> String {
        let raw = self.document.raw();
        let own = entry.own.expect("an entry of a dependency table is the package's own");
        if let Some(features) = own.get("features").and_then(Item::as_array) {
            return append(raw, features, missing);
        }
        if own.as_str().is_some() {
            let span = span_of(own);
            let table = format!("{{ version = {}, features = {} }}", &raw[span.clone()], list(missing));
            return replace(raw, span, &table);
        }
        put(raw, own, "features", &list(missing))
    }

    /// A new entry, from the same source as the one in `model` if there is one: two versions of sqlx cannot be linked
    /// together.
    fn added(&self, table: &'static str, need: &Need, model: Option<&Entry<'_>>, missing: &[&str]) -> Edit {
        let mut fields = match model {
            Some(Entry { own: Some(own), .. }) => copied_fields(self.document.raw(), own),
            Some(_) => vec![("workspace".to_owned(), "true".to_owned())],
            None => vec![("version".to_owned(), format!("\"{}\"", self.version_to_write(need)))],
        };
        if !missing.is_empty() {
            fields.push(("features".to_owned(), list(missing)));
        }
        let value = match fields.as_slice() {
            [(name, version)] if name == "version" => version.clone(),
            fields => {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                format!("{{ {} }}", fields.join(", "))
            }
        };
        let key = model.map_or(need.name, |entry| entry.key).to_owned();
        let raw = self.document.raw();
        let text = match self.document.get(table) {
            Some(item) if !is_implicit(item) => put(raw, item, &key, &value),
            _ => {
                let newline = newline(raw);
                let above = raw.trim_end();
                format!("{above}{newline}{newline}[{table}]{newline}{key} = {value}{newline}")
            }
        };
        Edit { table, key, text }
    }

    fn version_to_write(&self, need: &Need) -> &'static str {
        match self.locked_sqlx() {
            Some(SqlxVersion::V0_8) if need.name == SQLX => "0.8",
            Some(SqlxVersion::V0_9) if need.name == SQLX => "0.9",
            _ => need.version,
        }
    }

    fn line(&self, table: &str, key: &str) -> Option<String> {
        let raw = self.document.raw();
        let item = self.document.get(table)?.get(key)?;
        let (text, place) = match item.as_table() {
            None => (format!("{key} = {}", one_line(raw, item)), table.to_owned()),
            Some(own) if own.is_dotted() => {
                (format!("{key}.features = {}", one_line(raw, own.get("features")?)), table.to_owned())
            }
            Some(own) => (format!("features = {}", one_line(raw, own.get("features")?)), format!("{table}.{key}")),
        };
        Some(if place == NORMAL { text } else { format!("{text} # in [{place}]") })
    }
}

/// What says where a dependency comes from.
fn copied_fields(raw: &str, own: &Item) -> Vec<(String, String)> {
    let text = |item: &Item| raw[span_of(item)].to_owned();
    match own.as_table_like() {
        None => vec![("version".to_owned(), text(own))],
        Some(table) => table
            .iter()
            .filter(|(key, _)| !matches!(*key, "features" | "optional"))
            .map(|(key, item)| (key.to_owned(), text(item)))
            .collect(),
    }
}

/// `dependencies` exists only because of a header such as `[dependencies.sqlx]`.
fn is_implicit(item: &Item) -> bool {
    item.as_table().is_some_and(|table| table.is_implicit() && !table.is_dotted())
}

fn list(features: &[&str]) -> String {
    let quoted: Vec<_> = features.iter().map(|feature| format!("\"{feature}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn one_line(raw: &str, item: &Item) -> String {
    let text = &raw[span_of(item)];
    if !text.contains('\n') {
        return text.to_owned();
    }
    if let Some(table) = item.as_inline_table() {
        let fields = table.iter().map(|(key, value)| format!("{key} = {}", one_line(raw, &Item::Value(value.clone()))));
        return format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "));
    }
    list(&strings(Some(item)).iter().map(String::as_str).collect::<Vec<_>>())
}

/// Puts `key = value` into a table, whichever way that table is written. Between sorted keys it goes to its place.
fn put(raw: &str, table: &Item, key: &str, value: &str) -> String {
    let span = span_of(table);
    if let Some(inline) = table.as_inline_table() {
        let prefix = if inline.is_dotted() { format!("{}.", &raw[span.clone()]) } else { String::new() };
        return match last_end(inline) {
            Some(end) => replace(raw, end..end, &format!(", {prefix}{key} = {value}")),
            None => replace(raw, span, &format!("{{ {key} = {value} }}")),
        };
    }
    let table = table.as_table().expect("a dependency table is a table");
    let lines: Vec<_> = table.iter().filter_map(|(name, item)| Some((name, end_of(item)?))).collect();
    let is_sorted = lines.is_sorted_by_key(|(name, _)| *name) && key != "features";
    let above = lines.iter().filter(|(name, _)| !is_sorted || *name < key).map(|(_, end)| *end).max();
    // A table with a header may be empty; one of dotted keys has a first key, and its lines all begin alike.
    let prefix = match lines.first().and_then(|(name, _)| table.key(name)?.span()) {
        Some(first) if table.is_dotted() => &raw[raw[..first.start].rfind('\n').map_or(0, |at| at + 1)..first.start],
        _ => "",
    };
    let above = above.unwrap_or(if table.is_dotted() { lines[0].1 } else { span.end });
    insert_line(raw, above, &format!("{prefix}{key} = {value}"))
}

/// The end of the last value of an item, if it has one outside of tables with headers of their own.
fn end_of(item: &Item) -> Option<usize> {
    match item {
        Item::Value(value) => end_of_value(value),
        Item::Table(table) if table.is_dotted() => table.iter().filter_map(|(_, item)| end_of(item)).max(),
        Item::Table(_) | Item::ArrayOfTables(_) | Item::None => None,
    }
}

fn end_of_value(value: &Value) -> Option<usize> {
    match value.as_inline_table() {
        Some(table) if table.is_dotted() => last_end(table),
        _ => value.span().map(|span| span.end),
    }
}

fn last_end(table: &InlineTable) -> Option<usize> {
    table.iter().filter_map(|(_, value)| end_of_value(value)).max()
}

/// Adds a line below the one that `position` is in.
fn insert_line(raw: &str, position: usize, line: &str) -> String {
    let newline = newline(raw);
    match raw[position..].find('\n') {
        Some(length) => {
            let start = position + length + 1;
            replace(raw, start..start, &format!("{line}{newline}"))
        }
        None => format!("{raw}{newline}{line}{newline}"),
    }
}

/// Adds strings to an array: on lines of their own if the last one has its own, else behind it.
fn append(raw: &str, array: &Array, strings: &[&str]) -> String {
    let span = array.span().expect("a parsed array has a span");
    let quoted: Vec<_> = strings.iter().map(|string| format!("\"{string}\"")).collect();
    let Some(last) = array.iter().last().and_then(Value::span) else {
        return replace(raw, span.start + 1..span.start + 1, &quoted.join(", "));
    };
    let indent = &raw[raw[..last.start].rfind('\n').map_or(0, |at| at + 1)..last.start];
    if !indent.chars().all(char::is_whitespace) {
        return replace(raw, last.end..last.end, &format!(", {}", quoted.join(", ")));
    }
    let close = span.end - 1;
    let comma = if array.trailing_comma() { raw[last.end..close].find(',').map(|at| last.end + at + 1) } else { None };
    let behind = comma.unwrap_or(last.end);
    let newline = newline(raw);
    let end = raw[behind..close].find(newline).map_or(behind, |at| behind + at);
    let added = quoted.iter().map(|string| format!("{newline}{indent}{string}"));
    let added = added.collect::<Vec<_>>().join(",") + if comma.is_some() { "," } else { "" };
    // The last one so far gets its comma before a comment on its line.
    let text = replace(raw, end..end, &added);
    if comma.is_some() { text } else { replace(&text, last.end..last.end, ",") }
}

fn replace(raw: &str, span: Range<usize>, text: &str) -> String {
    format!("{}{text}{}", &raw[..span.start], &raw[span.end..])
}

fn span_of(item: &Item) -> Range<usize> {
    item.span().expect("what was parsed has a span")
}

fn newline(raw: &str) -> &'static str {
    if raw.contains("\r\n") { "\r\n" } else { "\n" }
}

fn parse(path: &Utf8Path, text: &str) -> Result<Document<String>> {
    Document::parse(text.to_owned()).map_err(|error| {
        let above = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = above.matches('\n').count() + 1;
        let column = above.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Failure::usage(format!("{path}:{line}:{column}: {}", error.message()))
            .help(format!("mend {path}, then run this again"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    const SQLX_NEED: Need = Need {
        name: "sqlx",
        version: "0.9",
        minimum: "0.8.4",
        features: &["runtime-tokio", "sqlite", "macros", "uuid"],
        dev: false,
    };
    const UUID: Need = Need { name: "uuid", version: "1.10", minimum: "1.10.0", features: &["v7"], dev: false };
    const THISERROR: Need = Need { name: "thiserror", version: "2", minimum: "1.0.0", features: &[], dev: false };
    const TOKIO: Need = Need { name: "tokio", version: "1", minimum: "1.20.0", features: &["time"], dev: false };
    const TOKIO_DEV: Need = Need { features: &["macros", "rt"], dev: true, ..TOKIO };

    fn manifest(text: &str) -> Manifest {
        Manifest::parse("Cargo.toml".into(), text, None, None).unwrap()
    }

    fn locked(text: &str, packages: &[(&str, &str)]) -> Manifest {
        let lock = packages.iter().fold("version = 4\n".to_owned(), |lock, (name, version)| {
            lock + &format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        });
        Manifest::parse("Cargo.toml".into(), text, None, Some(&lock)).unwrap()
    }

    fn member(text: &str, workspace: &str) -> Manifest {
        Manifest::parse("app/Cargo.toml".into(), text, Some(("Cargo.toml".into(), workspace)), None).unwrap()
    }

    /// Meets the needs, and holds that doing so again changes nothing.
    fn wired(manifest: &Manifest, needs: &[Need]) -> (String, Vec<String>) {
        let wiring = manifest.with(needs).unwrap();
        let mut again = manifest.clone();
        again.document = parse("Cargo.toml".into(), &wiring.text).unwrap();
        let second = again.with(needs).unwrap();
        assert_eq!((&second.text, second.lines.as_slice()), (&wiring.text, &[] as &[String]));
        (wiring.text, wiring.lines)
    }

    fn text(before: &str, needs: &[Need]) -> String {
        wired(&manifest(before), needs).0
    }

    fn refusal(manifest: &Manifest, needs: &[Need]) -> String {
        manifest.with(needs).unwrap_err().to_string()
    }

    #[test]
    fn a_syntax_error_is_named_with_its_line_and_column() {
        let failure = Manifest::parse("Cargo.toml".into(), "[package]\nname = x\n", None, None).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.what.starts_with("Cargo.toml:2:8: "), "{failure}");
    }

    #[test]
    fn every_way_to_write_a_dependency_is_read() {
        for text in [
            "[dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
            "[dependencies]\nsqlx.version = '0.8'\nsqlx.features = ['sqlite']",
            "[dependencies.sqlx]\nversion = '0.8'\nfeatures = ['sqlite-unbundled']",
            "[dev-dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
            "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }\n[dependencies]\nsqlx.workspace = true",
            "[workspace.dependencies]\nsqlx = '0.8'\n[dependencies]\nsqlx = { workspace = true, features = ['sqlite'] }",
            "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
        ] {
            let sqlx = manifest(text).sqlx().unwrap();
            let expected =
                Sqlx { version: Some(SqlxVersion::V0_8), renamed: None, sqlite: true, postgres: false, mysql: false };
            assert_eq!(sqlx, expected, "{text}");
        }
    }

    #[test]
    fn a_renamed_sqlx_is_found_here_and_in_the_workspace() {
        let own = manifest("[dependencies]\ndb = { package = 'sqlx', version = '0.9', features = ['postgres'] }");
        let shared = member(
            "[dependencies]\ndb.workspace = true",
            "[workspace.dependencies]\ndb = { package = 'sqlx', version = '0.9', features = ['postgres'] }",
        );
        for manifest in [own, shared] {
            let sqlx = manifest.sqlx().unwrap();
            assert_eq!((sqlx.renamed.as_deref(), sqlx.postgres), (Some("db"), true));
            assert_eq!(manifest.dependency_crates(), ["db"]);
        }
    }

    #[test]
    fn the_requirement_decides_the_version_of_sqlx_when_nothing_is_locked() {
        let version =
            |requirement| manifest(&format!("[dependencies]\nsqlx = '{requirement}'")).sqlx().unwrap().version;
        for requirement in ["0.9", "0.9.0", "=0.9.3", ">=0.8", "*", "0", ">=0.8, <0.10", "0.9.0-alpha.1"] {
            assert_eq!(version(requirement), Some(SqlxVersion::V0_9), "{requirement}");
        }
        for requirement in ["0.8", "0.8.4", "=0.8.6", "~0.8", ">=0.7, <0.9", "<=0.8.5", "<0.9"] {
            assert_eq!(version(requirement), Some(SqlxVersion::V0_8), "{requirement}");
        }
        assert_eq!(manifest("[dependencies]\nsqlx = { git = 'x' }").sqlx().unwrap().version, Some(SqlxVersion::V0_9));
        assert_eq!(manifest("").sqlx().unwrap().version, None);
    }

    #[test]
    fn sqlx_that_cannot_work_is_refused_with_what_mends_it() {
        let refused = |manifest: Manifest| manifest.sqlx().unwrap_err().to_string();
        let raise = "help: raise the version of sqlx in Cargo.toml to `0.8.4` or `0.9`";
        for requirement in ["0.7", "=0.8.2", "<0.8.4", "0.6.3"] {
            let message = refused(manifest(&format!("[dependencies]\nsqlx = '{requirement}'")));
            assert!(message.starts_with(&format!("sqlx {requirement} is too old: ")), "{message}");
            assert!(message.ends_with(raise), "{message}");
        }
        for requirement in ["0.10", "1", ">=2"] {
            let message = refused(manifest(&format!("[dependencies]\nsqlx = '{requirement}'")));
            assert!(
                message.contains("is not known: the generated code compiles with 0.8 (from 0.8.4) and 0.9"),
                "{message}"
            );
        }
        let message = refused(locked("[dependencies]\nsqlx = '0.8'", &[("sqlx", "0.8.2")]));
        assert_eq!(
            message,
            "sqlx 0.8.2 is too old: transactions that begin with BEGIN IMMEDIATE came with 0.8.4\nhelp: run `cargo update -p sqlx`"
        );
        let message = refused(locked("[dependencies]\nsqlx = '=0.8.2'", &[("sqlx", "0.8.2")]));
        assert!(message.ends_with(raise), "{message}");
        let message =
            refused(member("[dependencies]\nsqlx.workspace = true", "[workspace.dependencies]\nsqlx = '0.7'"));
        assert!(message.contains("in Cargo.toml to"), "{message}");
    }

    #[test]
    fn the_lock_decides_where_the_requirement_leaves_a_choice() {
        let version = |text, packages: &[_]| locked(text, packages).sqlx().unwrap().version;
        let both = [("sqlx", "0.8.6"), ("sqlx", "0.9.1")];
        assert_eq!(version("[dependencies]\nsqlx = '>=0.8'", &both[..1]), Some(SqlxVersion::V0_8));
        assert_eq!(version("[dependencies]\nsqlx = '0.8'", &both), Some(SqlxVersion::V0_8));
        assert_eq!(version("[dependencies]\nsqlx = { path = '../sqlx' }", &both[..1]), Some(SqlxVersion::V0_8));
        assert_eq!(version("", &both[..1]), Some(SqlxVersion::V0_8));
        assert_eq!(version("", &[("sqlx", "0.7.4")]), None);
    }

    #[test]
    fn an_absent_sqlx_joins_the_one_that_is_locked() {
        let (text, lines) = wired(&locked("[dependencies]\n", &[("sqlx", "0.8.6")]), &[SQLX_NEED]);
        let line = r#"sqlx = { version = "0.8", features = ["runtime-tokio", "sqlite", "uuid"] }"#.to_owned();
        assert_eq!((text, lines), (format!("[dependencies]\n{line}\n"), vec![line]));
    }

    #[test]
    fn other_crates_must_be_new_enough() {
        let uuid = |requirement: &str| manifest(&format!("[dependencies]\nuuid = '{requirement}'"));
        for requirement in ["1", "1.4", ">=0.8", "*", "1.10.0", "=1.11.2", "2", "<2"] {
            assert!(uuid(requirement).with(&[UUID]).is_ok(), "{requirement}");
        }
        for requirement in ["0.8", "=1.9.0", "~1.9", "<1.10", "<=1.9, >=1.2"] {
            let message = refusal(&uuid(requirement), &[UUID]);
            let expected = format!(
                "uuid {requirement} is too old: the generated code needs uuid 1.10.0 or newer\nhelp: raise the version of uuid in Cargo.toml to `1.10`"
            );
            assert_eq!(message, expected);
        }
        let message = refusal(&locked("[dependencies]\nuuid = '1'", &[("uuid", "1.4.0")]), &[UUID]);
        assert_eq!(
            message,
            "uuid 1.4.0 is too old: the generated code needs uuid 1.10.0 or newer\nhelp: run `cargo update -p uuid`"
        );
    }

    #[test]
    fn entries_are_extended_in_the_form_they_have() {
        for (before, after) in [
            ("uuid = \"1\" # ids", "uuid = { version = \"1\", features = [\"v7\"] } # ids"),
            ("uuid = '1'\n\n# end\n", "uuid = { version = '1', features = [\"v7\"] }\n\n# end\n"),
            ("uuid = { version = \"1\" } # ids", "uuid = { version = \"1\", features = [\"v7\"] } # ids"),
            ("uuid = { version = \"1\", features = [] }", "uuid = { version = \"1\", features = [\"v7\"] }"),
            ("uuid = { features = ['v4'], version = \"1\" }", "uuid = { features = ['v4', \"v7\"], version = \"1\" }"),
            ("uuid.version = \"1\" # ids\nz = '1'", "uuid.version = \"1\" # ids\nuuid.features = [\"v7\"]\nz = '1'"),
            ("uuid = { workspace = true }", "uuid = { workspace = true, features = [\"v7\"] }"),
            (
                "uuid = { version = '1', features = [\n  'v4', # old\n] }",
                "uuid = { version = '1', features = [\n  'v4', # old\n  \"v7\",\n] }",
            ),
            (
                "uuid = { version = '1', features = [\n  'v4' # old\n] }",
                "uuid = { version = '1', features = [\n  'v4', # old\n  \"v7\"\n] }",
            ),
            (
                "uuid = { version = '1', features = [\n  'v4'] }",
                "uuid = { version = '1', features = [\n  'v4',\n  \"v7\"] }",
            ),
            ("uuid = { version = '1', features = ['v7'] }", "uuid = { version = '1', features = ['v7'] }"),
        ] {
            assert_eq!(text(&format!("[dependencies]\n{before}"), &[UUID]), format!("[dependencies]\n{after}"));
        }
    }

    #[test]
    fn a_table_of_its_own_is_extended_too() {
        let before = "[dependencies.uuid] # ids\nversion = \"1\"\n\n[features]\nx = []\n";
        let (text, lines) = wired(&manifest(before), &[UUID]);
        assert_eq!(text, "[dependencies.uuid] # ids\nversion = \"1\"\nfeatures = [\"v7\"]\n\n[features]\nx = []\n");
        assert_eq!(lines, ["features = [\"v7\"] # in [dependencies.uuid]"]);
    }

    #[test]
    fn new_entries_find_their_alphabetical_place() {
        let sorted = "[dependencies] # all\n# web\naxum = '1'\nserde = '1' # s\n\n[features]\n";
        let expected = "[dependencies] # all\n# web\naxum = '1'\nserde = '1' # s\nthiserror = \"2\"\nuuid = { version = \"1.10\", features = [\"v7\"] }\n\n[features]\n";
        assert_eq!(text(sorted, &[UUID, THISERROR]), expected);
        assert_eq!(
            text("[dependencies]\n# z\nz = '1'\n", &[THISERROR]),
            "[dependencies]\nthiserror = \"2\"\n# z\nz = '1'\n"
        );
        assert_eq!(
            text("[dependencies]\nz = '1'\na = '1'\n", &[THISERROR]),
            "[dependencies]\nz = '1'\na = '1'\nthiserror = \"2\"\n"
        );
        assert_eq!(text("[dependencies]\na = '1'", &[THISERROR]), "[dependencies]\na = '1'\nthiserror = \"2\"\n");
    }

    #[test]
    fn missing_tables_are_made_at_the_end() {
        let expected = "[package]\nname = 'x'\n\n[dependencies]\nthiserror = \"2\"\n\n[dev-dependencies]\ntokio = { version = \"1\", features = [\"macros\", \"rt\"] }\n";
        for before in ["[package]\nname = 'x'", "[package]\nname = 'x'\n", "[package]\nname = 'x'\n\n\n"] {
            assert_eq!(text(before, &[THISERROR, TOKIO_DEV]), expected);
        }
        assert_eq!(
            text("[dependencies.z]\nversion = '1'\n", &[THISERROR]),
            "[dependencies.z]\nversion = '1'\n\n[dependencies]\nthiserror = \"2\"\n"
        );
        assert_eq!(
            text("dependencies.z = '1'\n[package]\n", &[THISERROR]),
            "dependencies.z = '1'\ndependencies.thiserror = \"2\"\n[package]\n"
        );
        assert_eq!(
            text("dependencies = { z = '1' }\n", &[THISERROR]),
            "dependencies = { z = '1', thiserror = \"2\" }\n"
        );
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_stay() {
        let before = "\u{feff}[package]\r\nname = 'x'\r\n\r\n[dependencies]\r\nuuid = { version = '1', features = [\r\n    'v4',\r\n] }\r\n";
        let after = text(before, &[UUID, THISERROR, TOKIO_DEV]);
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
        assert!(after.starts_with("\u{feff}[package]\r\n"));
        assert!(after.contains("    'v4',\r\n    \"v7\",\r\n] }\r\n"), "{after}");
    }

    #[test]
    fn a_line_of_the_report_shows_the_entry_in_one_line() {
        let before = "[dependencies]\nuuid = { version = '1', features = [\n  'v4', # old\n] }\n";
        assert_eq!(wired(&manifest(before), &[UUID]).1, ["uuid = { version = '1', features = [\"v4\", \"v7\"] }"]);
        let (_, lines) = wired(&manifest(""), &[TOKIO_DEV]);
        assert_eq!(lines, ["tokio = { version = \"1\", features = [\"macros\", \"rt\"] } # in [dev-dependencies]"]);
    }

    #[test]
    fn features_that_are_on_already_are_not_repeated() {
        let enough = [
            "sqlx = { version = '0.8', features = ['runtime-tokio-rustls', 'sqlite-unbundled', 'uuid'] }\n",
            "sqlx = { version = '0.9', default-features = false, features = ['macros', 'runtime-tokio', 'all-databases', 'uuid'] }\n",
        ];
        for entry in enough {
            let before = format!("[dependencies]\n{entry}");
            assert_eq!(text(&before, &[SQLX_NEED]), before);
        }
        let bare = "[dependencies]\nsqlx = { version = '0.9', default-features = false }\n";
        assert!(text(bare, &[SQLX_NEED]).contains("\"macros\""));
        assert!(!text("[dependencies]\nsqlx = '0.9'\n", &[SQLX_NEED]).contains("macros"));
    }

    #[test]
    fn the_workspace_gives_versions_and_features() {
        let workspace = "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['runtime-tokio', 'sqlite'] }\nuuid = '1'\nthiserror = '2'\n";
        let after = wired(&member("[dependencies]\n", workspace), &[SQLX_NEED, UUID, THISERROR]).0;
        assert_eq!(
            after,
            "[dependencies]\nsqlx = { workspace = true, features = [\"uuid\"] }\nthiserror = { workspace = true }\nuuid = { workspace = true, features = [\"v7\"] }\n"
        );
        let dotted = wired(&member("[dependencies]\nsqlx.workspace = true\n", workspace), &[SQLX_NEED]);
        assert_eq!(dotted.0, "[dependencies]\nsqlx.workspace = true\nsqlx.features = [\"uuid\"]\n");
        assert_eq!(dotted.1, ["sqlx.features = [\"uuid\"]"]);
    }

    #[test]
    fn a_crate_that_only_tests_have_is_added_with_the_same_source() {
        let need = Need { features: &["macros", "runtime-tokio"], ..SQLX_NEED };
        for (dev, normal) in [
            ("sqlx = '0.8'", "sqlx = { version = '0.8', features = [\"runtime-tokio\"] }"),
            (
                "sqlx = { git = 'g', rev = 'r', features = ['sqlite'] }",
                "sqlx = { git = 'g', rev = 'r', features = [\"runtime-tokio\"] }",
            ),
            (
                "db = { package = 'sqlx', version = '0.8' }",
                "db = { package = 'sqlx', version = '0.8', features = [\"runtime-tokio\"] }",
            ),
        ] {
            let before = format!("[dependencies]\n\n[dev-dependencies]\n{dev}\n");
            assert_eq!(text(&before, &[need]), format!("[dependencies]\n{normal}\n\n[dev-dependencies]\n{dev}\n"));
        }
    }

    #[test]
    fn needs_of_tests_do_not_change_normal_builds() {
        let full = "[dependencies]\ntokio = { version = '1', features = ['full'] }\n";
        assert_eq!(text(full, &[TOKIO, TOKIO_DEV]), full);
        let after = text("[dependencies]\ntokio = { version = '1.40', features = ['macros'] }\n", &[TOKIO, TOKIO_DEV]);
        assert_eq!(
            after,
            "[dependencies]\ntokio = { version = '1.40', features = ['macros', \"time\"] }\n\n[dev-dependencies]\ntokio = { version = '1.40', features = [\"rt\"] }\n"
        );
        let after =
            text("[dependencies]\ntokio = { version = '1', optional = true }\n[dev-dependencies]\n", &[TOKIO_DEV]);
        assert!(
            after.ends_with("[dev-dependencies]\ntokio = { version = '1', features = [\"macros\", \"rt\"] }\n"),
            "{after}"
        );
    }

    #[test]
    fn what_only_a_person_can_change_is_a_decision() {
        for (entry, need, what) in [
            ("uuid = { version = '1', optional = true }", UUID, "`uuid` is optional"),
            ("ids = { package = 'uuid', version = '1' }", UUID, "`uuid` is renamed to `ids`"),
            (
                "sqlx = { package = 'sqlx-oldapi', version = '0.6' }",
                SQLX_NEED,
                "another name of the package `sqlx-oldapi`",
            ),
            (
                "sqlx = { version = '0.8', features = ['runtime-async-std-rustls'] }",
                SQLX_NEED,
                "sqlx runs on `runtime-async-std-rustls`",
            ),
        ] {
            let failure = manifest(&format!("[dependencies]\n{entry}\n")).with(&[need]).unwrap_err();
            assert_eq!(failure.exit, Exit::Decision, "{failure}");
            assert!(failure.what.contains(what) && failure.help.is_some(), "{failure}");
        }
    }

    #[test]
    fn the_rust_version_may_be_inherited_and_short() {
        let version = |manifest: Manifest| manifest.rust_version();
        assert_eq!(version(manifest("[package]\nrust-version = '1.85'")), Some(Version::new(1, 85, 0)));
        let inherited =
            member("[package]\nrust-version.workspace = true", "[workspace.package]\nrust-version = '1.85.1'");
        assert_eq!(version(inherited), Some(Version::new(1, 85, 1)));
        assert_eq!(version(manifest("[package]")), None);
    }

    #[test]
    fn crates_are_listed_as_code_names_them() {
        let text = "[dependencies]\nserde-json = '1'\nids = { package = 'uuid', version = '1' }\n[dependencies.a-b]\nversion = '1'";
        assert_eq!(manifest(text).dependency_crates(), ["serde_json", "ids", "a_b"]);
    }
}
