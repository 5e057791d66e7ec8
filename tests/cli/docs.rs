//! README.md and the pages of docs/: what they show is what is there.
//!
//! Every block has a language. `toml`, `json`, `ini`, `yaml`, `sql` and `rust` have to parse, and command lines of `sagents`
//! in `sh` and `yaml` have to be valid. tests/compiled compiles and runs the Rust of all pages. These tests run the `console`
//! blocks: `$ command`, then everything that it prints, both streams, with redacted times and ids. The page makes its project:
//!
//! - `<!-- project -->` starts one, a library `my_app`. `<!-- project: empty -->` is an empty directory. A page starts with
//!   the first kind.
//! - A block whose first line is a comment with a path (`// src/accounts.rs`) is that file.
//! - A `diff` edits the file that its first line names. Lines with `@@` separate the hunks. The file must have their lines.
//! - `<!-- $ command -->` runs without being shown.
//!
//! Commands of cargo aren't run here.
//! `INSTA_UPDATE=always cargo test --test cli docs` accepts what is printed today, in all pages.

#[path = "../support/markdown.rs"]
mod markdown;
mod transcripts;
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use clap::Parser as _;
use sagents_cli::cli::Cli;
use saphyr::{LoadableYamlNode as _, Yaml};
use sqlparser::dialect::{PostgreSqlDialect, SQLiteDialect};

use self::markdown::{Block, Page, pages};
use self::transcripts::logical_lines;
use super::transcript::words as split;
use crate::support::Host;

#[test]
fn the_pages_of_options_are_what_the_command_line_has() {
    for (name, page) in [
        ("docs/options.md", sagents_cli::manual::options()),
        ("docs/configuration.md", sagents_cli::manual::configuration()),
    ] {
        let file = directory().join(name);
        if updates() {
            fs::write(&file, &page).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == page,
            "{name} is not what `--help` shows; `INSTA_UPDATE=always cargo test --test cli docs` writes it again"
        );
    }
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let pages = pages();
    let in_book = |name: &&str| name.starts_with("docs/") && *name != SUMMARY;
    let names: BTreeSet<_> = pages.iter().map(|page| page.name.as_str()).filter(in_book).collect();
    let summary = pages.iter().find(|page| page.name == SUMMARY).unwrap();
    let mut listed = BTreeSet::new();
    for link in summary.links() {
        assert!(listed.insert(summary.beside(&link)), "{link} is there twice");
    }
    assert_eq!(listed.iter().map(String::as_str).collect::<BTreeSet<_>>(), names);
}

/// A book has its pages and nothing of the directories around it.
#[test]
fn links_of_the_book_stay_in_it() {
    let book = pages().into_iter().filter(|page| page.name.starts_with("docs/"));
    let outward = book.flat_map(|page| page.links().map(|link| format!("{}: {link}", page.name)).collect::<Vec<_>>());
    assert_eq!(outward.filter(|link| link.contains(": ../")).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn pages_are_short() {
    let lines = |name: &str| pages().iter().find(|page| page.name == name).unwrap().text.lines().count();
    assert!(lines("README.md") <= 150);
    // Tables that are printed, and edits that are complete because a test applies them.
    let printed = ["docs/benchmarks.md", "docs/configuration.md", "docs/customizing.md", "docs/options.md"];
    let long = pages().into_iter().filter(|page| page.name.starts_with("docs/") && page.text.lines().count() > 160);
    let long: Vec<_> = long.map(|page| page.name).filter(|name| !printed.contains(&name.as_str())).collect();
    assert_eq!(long, [""; 0], "a page that is longer is two pages");
}

const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn links_lead_to_pages_and_headings_that_are_there() {
    let pages = pages();
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.name.clone() } else { page.beside(file) };
            let anchors = pages.iter().find(|page| page.name == target).map(Page::anchors);
            let has_anchor = anchor.is_empty() || anchors.is_some_and(|anchors| anchors.contains(anchor));
            if target.starts_with("..") || !directory().join(&target).exists() || !has_anchor {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

#[test]
fn links_into_the_library_name_its_public_items() {
    const DOCUMENTATION: &str = "https://docs.rs/sagents/latest/sagents/";
    let library = fs::read_to_string(directory().join("crates/sagents/src/lib.rs")).unwrap();
    let is_public = |link: &str| {
        if let Some(module) = link.strip_suffix("/index.html") {
            return library.contains(&format!("\npub mod {module};"));
        }
        let name = link.strip_suffix(".html").and_then(|link| link.split_once('.')).map(|(_, name)| name);
        let mut exported = library.lines().skip_while(|line| !line.starts_with("pub use self::"));
        name.is_some_and(|name| {
            exported.any(|line| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == name))
        })
    };
    let links = pages().into_iter().flat_map(|page| page.links().collect::<Vec<_>>());
    let links: BTreeSet<_> = links.filter_map(|link| link.strip_prefix(DOCUMENTATION).map(str::to_owned)).collect();
    assert!(links.contains("session/index.html"), "{links:?}");
    let broken: Vec<_> = links.into_iter().filter(|link| !is_public(link)).collect();
    assert_eq!(broken, [""; 0]);
}

#[test]
fn blocks_are_what_their_language_says() {
    let wrong: Vec<_> = pages()
        .iter()
        .flat_map(|page| page.blocks().map(|block| (page.name.clone(), block)).collect::<Vec<_>>())
        .filter_map(|(page, block)| {
            fault(&block).map(|fault| format!("{page}, {}: {fault}\n{}", block.section, block.text))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_on_a_page_is_unchecked_but_diagrams_and_tables_of_numbers() {
    // Benches print the tables; tests/compiled runs what `--init` made.
    let is_known = |page: &str, what: &str| match what {
        "text" => ["ARCHITECTURE.md", "docs/benchmarks.md"].contains(&page),
        "mermaid" => true,
        line => page == "docs/getting-started.md" && line == "cargo run",
    };
    let mut unchecked = Vec::new();
    for page in pages() {
        for block in page.blocks() {
            let what = match block.language.as_str() {
                "text" | "mermaid" => vec![block.language.clone()],
                "console" => transcripts::not_run(&block.text),
                _ => Vec::new(),
            };
            let what = what.into_iter().filter(|what| !is_known(&page.name, what));
            unchecked.extend(what.map(|what| format!("{}, {}: {what}", page.name, block.section)));
        }
    }
    assert_eq!(unchecked, [""; 0]);
}

#[test]
fn the_workflow_of_the_page_about_ci_fails_when_a_rerun_is_due() {
    let pages = pages();
    let page = pages.iter().find(|page| page.name == "docs/ci.md").unwrap();
    let workflow = page.blocks().find(|block| block.language == "yaml").unwrap();
    let lines = commands(&workflow);
    let install = lines.iter().find(|line| line.starts_with("cargo install ")).unwrap();
    assert_eq!(split(install).last().unwrap(), env!("CARGO_PKG_NAME"));
    let check = lines.iter().find_map(|line| line.strip_prefix("sagents ")).unwrap();
    let host = Host::library();
    host.generate("gen persistence conversations --owner-type none");
    assert_eq!(host.sagents(check).code, 0);
    host.write("sagents.toml", &(host.read("sagents.toml") + "table-prefix = \"chat_\"\n"));
    assert_eq!(host.sagents(check).code, 3);
}

fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether differences are to be accepted, as for snapshots.
fn updates() -> bool {
    env::var("INSTA_UPDATE").is_ok_and(|update| update == "always")
}

/// What is wrong with a block.
fn fault(block: &Block) -> Option<String> {
    let text = &block.text;
    match block.language.as_str() {
        "console" | "text" | "mermaid" => None,
        "diff" => block.edit().is_none().then(|| "it is not an edit of a file".to_owned()),
        "toml" => toml::from_str::<toml::Table>(text).err().map(|error| error.to_string()),
        "json" => serde_json::from_str::<serde_json::Value>(text).err().map(|error| error.to_string()),
        "yaml" => match Yaml::load_from_str(text) {
            Ok(_) => invalid(&commands(block)),
            Err(error) => Some(error.to_string()),
        },
        "ini" => text.lines().find(|line| !line.starts_with('[') && !line.contains(" = ")).map(str::to_owned),
        "sh" => invalid(&logical_lines(text)),
        "sql" => {
            let sqlite = sqlparser::parser::Parser::parse_sql(&SQLiteDialect {}, text);
            let parsed = sqlite.or_else(|_| sqlparser::parser::Parser::parse_sql(&PostgreSqlDialect {}, text));
            parsed.err().map(|error| error.to_string())
        }
        "rust" => {
            let body = || syn::parse_str::<syn::ItemFn>(&format!("async fn body() {{\n{text}\n}}"));
            syn::parse_file(text).err().and_then(|_| body().err()).map(|error| error.to_string())
        }
        language => Some(format!("`{language}` is no language that tests/cli/docs.rs knows")),
    }
}

/// What is wrong with command lines of `sagents`; others are not judged.
fn invalid(lines: &[String]) -> Option<String> {
    lines.iter().flat_map(|line| line.split("&&")).find_map(|line| {
        let line = line.trim().trim_start_matches("cargo ").trim_start_matches("run -- ").split(['|', '>']).next()?;
        let is_ours = line.starts_with("sagents ") || line.starts_with("gen persistence ");
        let line = if line.starts_with("gen ") { format!("sagents {line}") } else { line.to_owned() };
        let error = Cli::try_parse_from(split(&line)).err().filter(clap::Error::use_stderr);
        error.filter(|_| is_ours).map(|error| error.to_string())
    })
}

/// The lines that a workflow runs.
fn commands(workflow: &Block) -> Vec<String> {
    fn collect(node: &Yaml, lines: &mut Vec<String>) {
        if let Some(run) = node.as_mapping_get("run").and_then(Yaml::as_str) {
            lines.extend(logical_lines(run));
        }
        for value in node.as_mapping().into_iter().flat_map(|mapping| mapping.values()) {
            collect(value, lines);
        }
        for value in node.as_sequence().into_iter().flatten() {
            collect(value, lines);
        }
    }
    let mut lines = Vec::new();
    for document in Yaml::load_from_str(&workflow.text).unwrap_or_default() {
        collect(&document, &mut lines);
    }
    lines
}
