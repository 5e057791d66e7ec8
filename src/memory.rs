//! What the generator remembers in a host: `sagents.toml`, the options as they were given, for people; and `.sagents/`,
//! what they resolved to and the last text that was rendered, for the next run. Computes texts, never writes.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::failure::{Failure, Result};
use crate::names::ModulePath;
use crate::schema::Schema;
use crate::tree::Tree;

pub const OPTIONS_FILE: &str = "sagents.toml";
pub const DIRECTORY: &str = ".sagents";

/// The options of a context as a person gave them; what is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Given {
    pub scope: Option<String>,
    pub owner_type: Option<String>,
    pub owner_field: Option<String>,
    pub owner_module: Option<String>,
    pub owner_table: Option<String>,
    pub owner_id: Option<String>,
    pub scope_owner: Option<String>,
    pub table_prefix: Option<String>,
    pub database: Option<String>,
    pub migrations: Option<Utf8PathBuf>,
    /// `true` for `--no-wire`.
    pub no_wire: Option<bool>,
    /// `true` for `--no-tests`.
    pub no_tests: Option<bool>,
    /// How rows got their owner when it last changed.
    pub backfill: Option<String>,
    /// Generated files that are the host's now. There is no flag for it: people write it here.
    pub ejected: Option<Vec<Utf8PathBuf>>,
}

impl Given {
    /// What was said about an owner means nothing where there is none.
    #[must_use]
    pub fn without_owner(self) -> Self {
        let (owner_field, owner_module, owner_table, owner_id, scope_owner) = (None, None, None, None, None);
        Self { owner_field, owner_module, owner_table, owner_id, scope_owner, ..self }
    }

    /// What is given now wins over what was given before.
    #[must_use]
    pub fn over(self, before: Self) -> Self {
        Self {
            scope: self.scope.or(before.scope),
            owner_type: self.owner_type.or(before.owner_type),
            owner_field: self.owner_field.or(before.owner_field),
            owner_module: self.owner_module.or(before.owner_module),
            owner_table: self.owner_table.or(before.owner_table),
            owner_id: self.owner_id.or(before.owner_id),
            scope_owner: self.scope_owner.or(before.scope_owner),
            table_prefix: self.table_prefix.or(before.table_prefix),
            database: self.database.or(before.database),
            migrations: self.migrations.or(before.migrations),
            no_wire: self.no_wire.or(before.no_wire),
            no_tests: self.no_tests.or(before.no_tests),
            backfill: self.backfill.or(before.backfill),
            ejected: self.ejected.or(before.ejected),
        }
    }
}

/// `sagents.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    #[serde(default)]
    pub contexts: BTreeMap<String, Given>,
}

impl Recorded {
    pub fn read(tree: &Tree) -> Result<Self> {
        let Some(text) = tree.read(Utf8Path::new(OPTIONS_FILE))? else {
            return Ok(Self::default());
        };
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let place = error.span().map_or_else(String::new, |span| format!(":{}", line_of(&text, span.start)));
            Failure::usage(format!("{OPTIONS_FILE}{place}: {}", error.message())).help(match meant(error.message()) {
                Some(key) => format!("did you mean `{key}`?"),
                None => format!("mend {OPTIONS_FILE}, then run this again"),
            })
        })
    }
}

/// The text of `sagents.toml` with a context's options in it; comments and the other contexts stay as they are.
pub fn options_text(tree: &Tree, context: &ModulePath, given: &Given) -> Result<String> {
    const INTRODUCTION: &str = "\
# What `sagents gen persistence` was asked for, per context. Options that are not here have their default.
# Commit this file; a rerun starts from it.

";
    let before = tree.read(Utf8Path::new(OPTIONS_FILE))?;
    let introduction = if before.is_none() { INTRODUCTION } else { "" };
    let mut document = before
        .as_deref()
        .unwrap_or_default()
        .parse::<toml_edit::DocumentMut>()
        .map_err(|error| Failure::usage(format!("{OPTIONS_FILE}: {error}")))?;
    let given = toml::to_string(given).expect("options are plain strings and booleans");
    let given = given.parse::<toml_edit::DocumentMut>().expect("what toml writes, toml reads");
    let contexts = document.entry("contexts").or_insert_with(|| {
        let mut table = toml_edit::Table::new();
        table.set_implicit(true);
        table.into()
    });
    let key = context.key();
    let contexts = contexts.as_table_mut().expect("it was read as a table of contexts");
    let entry = contexts.entry(&key).or_insert_with(toml_edit::table);
    let entry = entry.as_table_like_mut().expect("it was read as a table of options");
    for name in ["owner-field", "owner-module", "owner-table", "owner-id", "scope-owner", "backfill"] {
        if !given.contains_key(name) {
            entry.remove(name);
        }
    }
    for (name, value) in given.iter().filter(|(name, _)| *name != "ejected") {
        let mut value = value.clone();
        if let (Some(old), Some(new)) = (entry.get(name).and_then(toml_edit::Item::as_value), value.as_value_mut()) {
            if (old.as_str(), old.as_bool()) == (new.as_str(), new.as_bool()) {
                continue;
            }
            *new.decor_mut() = old.decor().clone();
        }
        entry.insert(name, value);
    }
    Ok(format!("{introduction}{document}"))
}

/// What is known of the last run for a context.
#[derive(Debug, Default)]
pub struct Last {
    pub schema: Option<Schema>,
    /// What the options resolved to.
    pub resolved: toml::Table,
    pub files: Files,
    /// The files of the agent runtime, which belong to every context.
    pub runtime: Files,
}

/// `.sagents/<context>/files.toml`: what the generator put there. Texts are known by their digest.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Created once, and the host's as soon as they are changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub once: BTreeMap<Utf8PathBuf, String>,
    /// Merged by reruns; each has its last rendering under `base/`, whose digest this is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generated: BTreeMap<Utf8PathBuf, String>,
    /// Files that were left with conflicts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<Utf8PathBuf, Conflict>,
    /// The scope type, if it was created.
    pub scope: Option<Created>,
    /// Emitted migrations, in order. They are never rewritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<Emitted>,
}

/// A merge that somebody has to finish. When they have, what was merged in is the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// The file before it got markers: if it is like that again, the merge was undone.
    pub before: String,
    /// What was merged in, which is kept under `merging/`.
    pub merging: String,
}

/// A piece of Rust that was put into a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Created {
    pub file: Utf8PathBuf,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emitted {
    pub file: Utf8PathBuf,
    pub digest: String,
}

/// What a generated file was when it was last generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// It was never generated.
    Unknown,
    /// It was, but what it was then is not there any more, or is not what it was.
    Lost {
        file: Utf8PathBuf,
    },
    Known(String),
}

impl Last {
    pub fn read(tree: &Tree, context: &ModulePath) -> Result<Self> {
        let schema = match tree.read(&schema_file(context))? {
            Some(text) => Some(serde_json::from_str(&text).map_err(|error| damaged(&schema_file(context), &error))?),
            None => None,
        };
        let resolved = match tree.read(&resolved_file(context))? {
            Some(text) => toml::from_str(&text).map_err(|error| damaged(&resolved_file(context), &error.message()))?,
            None => toml::Table::new(),
        };
        let files = Files::read(tree, context)?;
        let runtime = Files::read(tree, &ModulePath::runtime())?;
        Ok(Self { schema, resolved, files, runtime })
    }

    /// An option as it was resolved.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.resolved.get(name).and_then(toml::Value::as_str)
    }

    /// What was remembered with a home: the context, or the runtime.
    pub fn of(&self, home: &ModulePath) -> &Files {
        if *home == ModulePath::runtime() { &self.runtime } else { &self.files }
    }

    /// The scripts that make the tables, in order.
    pub fn scripts(&self) -> Vec<Utf8PathBuf> {
        let files = self.files.migrations.iter().map(|emitted| emitted.file.clone());
        files.filter(|file| !file.as_str().ends_with(".down.sql")).collect()
    }
}

impl Files {
    fn read(tree: &Tree, home: &ModulePath) -> Result<Self> {
        match tree.read(&files_file(home))? {
            Some(text) => toml::from_str(&text).map_err(|error| damaged(&files_file(home), &error.message())),
            None => Ok(Self::default()),
        }
    }

    /// The last rendering of a file.
    pub fn base(&self, tree: &Tree, home: &ModulePath, path: &Utf8Path) -> Result<Base> {
        kept(tree, self.generated.get(path), base_file(home, path))
    }

    /// What was merged into a file that got conflicts.
    pub fn merging(&self, tree: &Tree, home: &ModulePath, path: &Utf8Path) -> Result<Base> {
        kept(tree, self.conflicts.get(path).map(|conflict| &conflict.merging), merging_file(home, path))
    }
}

/// A text that was kept, if it is still what it was.
fn kept(tree: &Tree, expected: Option<&String>, file: Utf8PathBuf) -> Result<Base> {
    let Some(expected) = expected else { return Ok(Base::Unknown) };
    let text = tree.read(&file)?.filter(|text| digest::of_text(text) == *expected);
    Ok(text.map_or(Base::Lost { file }, |text| Base::Known(text.replace("\r\n", "\n"))))
}

pub fn schema_file(context: &ModulePath) -> Utf8PathBuf {
    directory(context).join("schema.json")
}

pub fn files_file(context: &ModulePath) -> Utf8PathBuf {
    directory(context).join("files.toml")
}

pub fn resolved_file(context: &ModulePath) -> Utf8PathBuf {
    directory(context).join("resolved.toml")
}

/// Where the last rendering of a file is kept, unformatted.
pub fn base_file(context: &ModulePath, path: &Utf8Path) -> Utf8PathBuf {
    directory(context).join("base").join(path)
}

/// Where a rendering is kept that was merged into a file with conflicts.
pub fn merging_file(context: &ModulePath, path: &Utf8Path) -> Utf8PathBuf {
    directory(context).join("merging").join(path)
}

fn directory(context: &ModulePath) -> Utf8PathBuf {
    Utf8Path::new(DIRECTORY).join(context.key().replace("::", "."))
}

fn damaged(path: &Utf8Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{path} cannot be read: {error}")).help(format!("restore {path} from version control"))
}

/// The key that an unknown one was probably meant to be: ``unknown field `owner_type`, expected one of …``.
fn meant(message: &str) -> Option<&str> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    similar::get_close_matches(unknown, &quoted.collect::<Vec<_>>(), 1, 0.6).first().copied()
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}
