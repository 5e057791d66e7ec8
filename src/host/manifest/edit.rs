//! The edit that meets a need: which entry is extended or added, with which version and features. What only a person
//! can change is refused; the text itself is put together by `splice`.

use toml_edit::Item;

use super::entry::{Entry, with_implied};
use super::splice::{append, list, newline, one_line, put, replace, span_of};
use super::{DEV, LIBRARY, Manifest, NORMAL, Need};
use crate::failure::{Failure, Result};

/// The next text, and the entry in which it differs.
pub(super) struct Edit {
    pub(super) table: &'static str,
    pub(super) key: String,
    pub(super) text: String,
}

impl Manifest {
    pub(super) fn edit(&self, need: &Need) -> Result<Option<Edit>> {
        let [table, other] = tables(need);
        self.refuse_taken_name(table, need.name)?;
        if !need.dev {
            self.refuse_some_targets(need.name)?;
        }
        let here = self.find(table, need.name);
        let there = self.find(other, need.name);
        let shared = self.offered(need);
        if let Some(entry) = here.as_ref().or(there.as_ref()).or(shared.as_ref()) {
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

    /// The entries that decide which version of a crate the generated code gets.
    pub(super) fn found(&self, need: &Need) -> Vec<Entry<'_>> {
        let [table, other] = tables(need);
        let entry = self.find(table, need.name).or_else(|| self.find(other, need.name)).or_else(|| self.offered(need));
        self.for_targets(table, need.name).into_iter().map(|(_, entry)| entry).chain(entry).collect()
    }

    /// What the workspace offers under a name that the generated code can use.
    fn offered(&self, need: &Need) -> Option<Entry<'_>> {
        self.shared(need.name).filter(|entry| entry.key == need.name || need.name == LIBRARY)
    }

    /// `uuid = { package = "other-uuid" }` takes the name of uuid itself.
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

    /// The generated code is compiled for every target, and a second entry could bring a second version.
    pub(super) fn refuse_some_targets(&self, name: &str) -> Result<()> {
        let tables = self.for_targets(NORMAL, name);
        let Some((table, entry)) = tables.first().filter(|_| self.find(NORMAL, name).is_none()) else { return Ok(()) };
        let (path, key) = (&self.path, entry.key);
        Err(Failure::decision(format!(
            "{path}: `{key}` is there for some targets only, under [{table}], but the generated code is for all of them"
        ))
        .help(format!("move `{key}` to [{NORMAL}]")))
    }

    fn refuse_unusable(&self, need: &Need, entry: &Entry<'_>) -> Result<()> {
        let (path, name, key) = (&self.path, need.name, entry.key);
        if !need.dev && entry.is_optional() {
            return Err(Failure::decision(format!(
                "{path}: `{key}` is optional, but the generated code cannot be behind a feature"
            ))
            .help(format!("remove `optional = true` from `{key}`")));
        }
        if name != LIBRARY && key != name {
            return Err(Failure::decision(format!(
                "{path}: `{name}` is renamed to `{key}`, but the generated code calls it `{name}`"
            ))
            .help(format!("name the dependency `{name}`")));
        }
        Ok(())
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

    /// A new entry, from the same source as the one in `model` if there is one.
    fn added(&self, table: &'static str, need: &Need, model: Option<&Entry<'_>>, missing: &[&str]) -> Edit {
        let mut fields = match model {
            Some(Entry { own: Some(own), .. }) => copied_fields(self.document.raw(), own),
            Some(_) => vec![("workspace".to_owned(), "true".to_owned())],
            None if need.source.is_empty() => vec![("version".to_owned(), format!("\"{}\"", need.version))],
            None => need.source.iter().map(|(name, value)| ((*name).to_owned(), format!("\"{value}\""))).collect(),
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

    pub(super) fn line(&self, table: &str, key: &str) -> Option<String> {
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

/// Where a need is met, and where its crate may be, too.
fn tables(need: &Need) -> [&'static str; 2] {
    if need.dev { [DEV, NORMAL] } else { [NORMAL, DEV] }
}

/// The keys that name where a dependency comes from.
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
