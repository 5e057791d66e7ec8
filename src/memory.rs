//! What the generator remembers in a host: `sagents.toml`, the options as they were given, for people; and `.sagents/`,
//! what they resolved to and the last text that was rendered, for the next run. Computes texts, never writes.

mod schema_text;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::Host;
use crate::merge;
use crate::names::ModulePath;
use crate::options::Resolved;
use crate::schema::Schema;
use crate::tree::Tree;

pub use self::schema_text::schema_text;

pub const OPTIONS_FILE: &str = "sagents.toml";
pub const DIRECTORY: &str = ".sagents";

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
        if merge::has_markers(&text) {
            return Err(Failure::decision(format!("{OPTIONS_FILE} has the conflict markers of a merge"))
                .help(format!("resolve them; if two branches both ran sagents, {AFTER_A_MERGE}")));
        }
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let place = error.span().map_or_else(String::new, |span| format!(":{}", line_of(&text, span.start)));
            Failure::usage(format!("{OPTIONS_FILE}{place}: {}", error.message())).help(match meant(error.message()) {
                Some(key) => format!("did you mean `{key}`?"),
                None => format!("fix {OPTIONS_FILE}, then run this again"),
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
    let contexts = document.entry("contexts").or_insert_with(|| {
        let mut table = toml_edit::Table::new();
        table.set_implicit(true);
        table.into()
    });
    // A person may have written any of these as an inline table.
    let refuse = || Failure::usage(format!("{OPTIONS_FILE}: `contexts` is not a table of contexts"));
    let contexts = contexts.as_table_like_mut().ok_or_else(refuse)?;
    let key = context.key();
    if !contexts.contains_key(&key) {
        contexts.insert(&key, toml_edit::table());
    }
    let entry = contexts.get_mut(&key).and_then(toml_edit::Item::as_table_like_mut).ok_or_else(refuse)?;
    let given = toml::to_string(given).expect("options are plain values");
    let given = given.parse::<toml_edit::DocumentMut>().expect("what toml writes, toml reads");
    let gone: Vec<_> = entry.iter().map(|(name, _)| name.to_owned()).filter(|name| !given.contains_key(name)).collect();
    for name in gone {
        entry.remove(&name);
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
    if let Some(inline) = contexts.get_mut(&key).and_then(toml_edit::Item::as_inline_table_mut) {
        inline.fmt();
    }
    Ok(format!("{introduction}{document}"))
}

/// Whether anything was generated in a host before.
pub fn exists(tree: &Tree) -> Result<bool> {
    let recorded = Recorded::read(tree)?;
    let contexts = recorded.contexts.keys().filter_map(|key| ModulePath::parse_key(key).ok());
    Ok(contexts.into_iter().any(|context| tree.is_file(&files_file(&context))))
}

/// What is known of the last run for a context.
#[derive(Debug, Default)]
pub struct Last {
    pub schema: Option<RecordedSchema>,
    /// What the options resolved to.
    pub resolved: Option<Resolved>,
    pub files: Files,
}

/// The tables after the last emitted migration.
#[derive(Debug)]
pub struct RecordedSchema {
    pub schema: Schema,
    /// Of the file that it was read from.
    pub digest: String,
}

/// `.sagents/<context>/files.toml`: what the generator put there. Texts are known by their digest.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The digest of `schema.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// What the newest emitted migration calls the tables that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<String>,
    /// Created once, and the host's as soon as they are changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub once: BTreeMap<Utf8PathBuf, Made>,
    /// Merged by reruns; each has its last rendering under `base/`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generated: BTreeMap<Utf8PathBuf, Rendered>,
    /// Files that were left with conflicts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<Utf8PathBuf, Conflict>,
    /// The scope type, if it was created.
    pub scope: Option<Created>,
    /// Emitted migrations, in order. They are never rewritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<Emitted>,
}

/// A file that was created once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The digest of the file.
    pub file: String,
    /// The digest of what it was formatted from.
    pub text: Option<String>,
}

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RenderedForm", into = "RenderedForm")]
pub struct Rendered {
    /// The digest of its last rendering.
    pub base: String,
    /// How the last run left it; unknown if the file has been ejected, deleted or has conflicts.
    pub left: Option<Left>,
}

/// A generated file as a run left it. While it is like that, nothing has to be formatted to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub file: String,
    /// It has edits of the host's.
    pub edited: bool,
}

/// A generated file in one line of `files.toml`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderedForm {
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    edited: bool,
}

impl From<RenderedForm> for Rendered {
    fn from(RenderedForm { base, file, edited }: RenderedForm) -> Self {
        Self { base, left: file.map(|file| Left { file, edited }) }
    }
}

impl From<Rendered> for RenderedForm {
    fn from(Rendered { base, left }: Rendered) -> Self {
        let (file, edited) = left.map(|Left { file, edited }| (file, edited)).unzip();
        Self { base, file, edited: edited.unwrap_or_default() }
    }
}

/// A merge that a person has to finish. Once it is finished, what was merged in is the base.
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
    Lost,
    Known(String),
}

fn resolved(tree: &Tree, context: &ModulePath) -> Result<Option<Resolved>> {
    let file = resolved_file(context);
    let text = tree.read(&file)?;
    text.map(|text| toml::from_str(&text).map_err(|error| damaged(&file, &error.message()))).transpose()
}

impl Last {
    pub fn read(tree: &Tree, context: &ModulePath) -> Result<Self> {
        let schema = match tree.read(&schema_file(context))? {
            Some(text) => Some(RecordedSchema {
                schema: serde_json::from_str::<Schema>(&text)
                    .map_err(|error| damaged(&schema_file(context), &error))?,
                digest: digest::of_text(&text),
            }),
            None => None,
        };
        let resolved = resolved(tree, context)?;
        if schema.is_some() && resolved.is_none() {
            // Whose the rows are is not to be found out from anything else.
            return Err(Failure::decision(format!("{} is gone", resolved_file(context)))
                .help("restore .sagents/ from version control"));
        }
        let files = Files::read(tree, context)?;
        Ok(Self { schema, resolved, files })
    }

    /// Whether `--init` makes the package, or made it with this context.
    pub fn made_package(&self, host: &Host) -> bool {
        host.is_new() || self.files.once.contains_key(Utf8Path::new("src/main.rs"))
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
        kept(tree, self.generated.get(path).map(|rendered| &rendered.base), &base_file(home, path))
    }

    /// What was merged into a file that got conflicts.
    pub fn merging(&self, tree: &Tree, home: &ModulePath, path: &Utf8Path) -> Result<Base> {
        kept(tree, self.conflicts.get(path).map(|conflict| &conflict.merging), &merging_file(home, path))
    }
}

/// A text that was kept, if it is still what it was.
fn kept(tree: &Tree, expected: Option<&String>, file: &Utf8Path) -> Result<Base> {
    let Some(expected) = expected else { return Ok(Base::Unknown) };
    let text = tree.read(file)?.filter(|text| digest::of_text(text) == *expected);
    Ok(text.map_or(Base::Lost, |text| Base::Known(text.replace("\r\n", "\n"))))
}

/// The file of a generated module itself, under either of the two names that it may have. A module below it may have the
/// same name.
pub fn root<'a>(files: &'a Files, module: &ModulePath) -> Option<&'a Utf8PathBuf> {
    let name = Some(module.last().as_str());
    let is_named = |path: &&Utf8PathBuf| {
        let above = path.parent().and_then(Utf8Path::file_name);
        if path.file_name() == Some("mod.rs") { above == name } else { path.file_stem() == name }
    };
    files.generated.keys().filter(is_named).min_by_key(|path| path.components().count())
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

/// What to do where git merged two runs of sagents. Everything is there again, one change after the other.
pub const AFTER_A_MERGE: &str = "take sagents.toml, .sagents/ and the migrations of sagents from one of them \
     (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again";

/// A path for people. Of the generator's memory, the directory is enough.
pub fn shown(path: &Utf8Path) -> Utf8PathBuf {
    if path.starts_with(DIRECTORY) { format!("{DIRECTORY}/").into() } else { path.to_owned() }
}

/// The memory of a context, or of the runtime.
pub fn directory(context: &ModulePath) -> Utf8PathBuf {
    Utf8Path::new(DIRECTORY).join(context.key().replace("::", "."))
}

fn damaged(path: &Utf8Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{path} cannot be read: {error}")).help(format!(
        "restore {path} from version control; after a merge of two branches that both ran sagents, {AFTER_A_MERGE}"
    ))
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
