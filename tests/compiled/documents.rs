//! The Rust of README.md and docs/ as a module of a host, which compiles and runs it.
//!
//! The Rust blocks of a section are a module with one test. Items stay items; statements are put one after the other into
//! an async function, which has `conversations`, `scope` and a conversation `chat` on a database of its own. What else a
//! block takes for granted is on the page, in a comment: `<!-- rust: … -->`. A block about `self` is the body of
//! `OwnerScope::owner` for the `Scope` of its section. Files and edits of a generated context are made in one (`apply`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use heck::ToSnakeCase as _;
use syn::Item;

use super::markdown::{Block, Edit, Part, pages};
use super::support::Host;

/// Makes the files and edits of a section of a page, in a package of a host. Returns the edits.
pub fn apply(host: &Host, package: &str, page: &str, heading: &str) -> Vec<Edit> {
    let pages = pages();
    let page = pages.iter().find(|candidate| candidate.name == page).unwrap();
    let mut edits = Vec::new();
    for block in page.blocks().filter(|block| block.section == heading) {
        if let Some(edit) = block.edit() {
            let path = format!("{package}/{}", edit.path);
            host.write(&path, &edit.apply(&host.read(&path)));
            edits.push(edit);
        } else if let Some(path) = block.path() {
            host.write(&format!("{package}/{path}"), &block.text);
        }
    }
    assert!(!edits.is_empty(), "{} has no {heading}", page.name);
    edits
}

/// What a page says that a command prints.
pub fn output(page: &str, command: &str) -> String {
    let pages = pages();
    let page = pages.iter().find(|candidate| candidate.name == page).unwrap();
    let blocks: Vec<_> = page.blocks().collect();
    let printed = blocks.iter().find_map(|block| block.text.strip_prefix(&format!("$ {command}\n")));
    printed.unwrap().to_owned()
}

/// The text of the module.
pub fn module() -> String {
    let mut text = String::from(include_str!("hosts/documents.rs"));
    for (number, section) in sections().into_values().enumerate() {
        let name = section.place.to_snake_case();
        let _ = write!(text, "\nmod {name}_{number} {{\n    use super::prelude::*;\n");
        text += &section.items;
        if !section.owner.is_empty() {
            let _ = write!(
                text,
                "impl OwnerScope for Scope {{\nfn owner(&self) -> Result<Owner> {{\n{}}}\n}}\n",
                section.owner
            );
        }
        if !section.statements.is_empty() {
            let function = include_str!("hosts/documents_test.rs");
            text += &function.replace("// {{ statements }}\n", &section.statements);
        }
        text += "}\n";
    }
    text
}

/// A file of the context, which `apply` puts there.
fn is_of_context(block: &Block) -> bool {
    block.path().is_some_and(|path| path.starts_with("src/conversations"))
}

/// A macro call may be an item or a statement: it is a statement.
fn is_items(code: &str) -> bool {
    syn::parse_file(code).is_ok_and(|file| !file.items.iter().any(|item| matches!(item, Item::Macro(_))))
}

#[derive(Default)]
struct Section {
    /// The page and the heading.
    place: String,
    items: String,
    statements: String,
    owner: String,
}

/// The sections that have Rust, in the order of the pages.
fn sections() -> BTreeMap<(usize, usize), Section> {
    let mut sections: BTreeMap<_, Section> = BTreeMap::new();
    for (page_number, page) in pages().into_iter().enumerate() {
        let (mut number, mut heading) = (0, String::new());
        for part in page.parts() {
            let code = match part {
                Part::Heading(text) => {
                    (number, heading) = (number + 1, text);
                    continue;
                }
                Part::Block(block) if is_of_context(&block) => continue,
                Part::Block(block) if block.language == "rust" => block.text,
                Part::Comment(comment) => match comment.strip_prefix("rust:") {
                    Some(code) => format!("{}\n", code.trim()),
                    None => continue,
                },
                Part::Block(_) | Part::Link(_) => continue,
            };
            let section = sections.entry((page_number, number)).or_default();
            section.place = format!("{}, {heading}", page.name);
            if is_items(&code) {
                section.items += &code;
            } else if code.contains("self.") || code.contains(" self ") {
                section.owner += &code;
            } else {
                section.statements += &code;
            }
        }
    }
    sections
}
