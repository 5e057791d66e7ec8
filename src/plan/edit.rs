//! Edits of the host's own files. Each one finds its place in the text that it is given and splices lines in there, so
//! several edits of one file can follow each other.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};

use super::{Planned, PlannedFiles};
use crate::failure::Result;
use crate::host::Host;
use crate::host::migrations::Migrator;
use crate::host::modules::{self, Declaration};
use crate::names::Name;

pub struct Edit {
    file: Utf8PathBuf,
    /// What it adds, for the report.
    added: Vec<String>,
    splice: Box<Splice>,
}

/// The text with the lines in it; nothing if they are there already.
type Splice = dyn Fn(&str) -> Result<Option<String>>;

impl Edit {
    pub fn new(
        file: impl Into<Utf8PathBuf>,
        added: Vec<String>,
        splice: impl Fn(&str) -> Result<Option<String>> + 'static,
    ) -> Self {
        Self { file: file.into(), added, splice: Box::new(splice) }
    }

    /// Declares a module in the file of its parent.
    pub fn declaration(file: &Utf8Path, name: &Name, public: bool) -> Self {
        let (path, name) = (file.to_owned(), name.clone());
        let line = format!("{}mod {};", if public { "pub " } else { "" }, name.rust());
        Self::new(file, vec![line], move |text| modules::declare(&path, text, &Declaration { name: &name, public }))
    }

    /// Lists a migration in the `Migrator` of a file. Where no list is found, that is left to the user, or is an error.
    pub fn registration(file: &Utf8Path, module: &str, wire: bool) -> Self {
        let (path, module) = (file.to_owned(), module.to_owned());
        let line = format!("Box::new({module}::Migration),");
        Self::new(file, vec![line], move |text| match Migrator::register(&path, text, &module) {
            Err(_) if !wire => Ok(Some(text.to_owned())),
            registered => registered,
        })
    }

    /// Declares a crate under the name that generated code uses.
    pub fn external_crate(file: &Utf8Path, line: String) -> Self {
        let path = file.to_owned();
        Self::new(file, vec![line.clone()], move |text| modules::declare_extern(&path, text, &line))
    }

    /// A line at the end of a file in which the order of lines has no meaning.
    pub fn line(file: impl Into<Utf8PathBuf>, line: String) -> Self {
        Self::new(file, vec![line.clone()], move |text| {
            let is_there = text.lines().any(|other| other.split_whitespace().eq(line.split_whitespace()));
            Ok((!is_there).then(|| append(text, &format!("{line}\n"))))
        })
    }
}

/// A text with something behind it, in the line ends that it has.
pub fn append(text: &str, more: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{more}").replace("\r\n", "\n").replace('\n', newline(text))
}

/// The line ends that a text has.
pub fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The host's files with their edits, and what these added. A file that is planned as a whole is edited in the plan.
pub fn apply(
    host: &Host,
    files: &mut PlannedFiles,
    edits: Vec<Edit>,
) -> Result<BTreeMap<Utf8PathBuf, (String, Vec<String>)>> {
    let overlay = host.overlay.iter().map(|(path, text)| (path.clone(), (text.clone(), Vec::new())));
    let mut edited: BTreeMap<_, _> = overlay.collect();
    for Edit { file, added, splice } in edits {
        if let Some(Planned::Once(text)) = files.get_mut(&file) {
            if let Some(spliced) = splice(text)? {
                *text = spliced;
            }
            continue;
        }
        let text = match edited.get(&file) {
            Some((text, _)) => text.clone(),
            None => host.tree.read(&file)?.unwrap_or_default(),
        };
        if let Some(spliced) = splice(&text)? {
            let entry: &mut (String, Vec<String>) = edited.entry(file).or_default();
            entry.0 = spliced;
            entry.1.extend(added);
        }
    }
    Ok(edited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<String> {
        (Edit::line(".gitattributes", ".sagents/** linguist-generated=true".to_owned()).splice)(text).unwrap()
    }

    #[test]
    fn a_line_is_added_behind_what_is_there() {
        assert_eq!(line("").as_deref(), Some(".sagents/** linguist-generated=true\n"));
        assert_eq!(line("*.rs text").as_deref(), Some("*.rs text\n.sagents/** linguist-generated=true\n"));
        assert_eq!(line("a b\r\n").as_deref(), Some("a b\r\n.sagents/** linguist-generated=true\r\n"));
    }

    #[test]
    fn a_line_that_is_there_is_not_added_again() {
        assert_eq!(line("a b\n.sagents/**   linguist-generated=true\n*.rs text\n"), None);
    }
}
