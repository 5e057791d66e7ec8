//! README.md and the pages of docs/: what they show is what is there.
//!
//! Every block has a language. `toml`, `json`, `yaml`, `sql` and `rust` have to parse, and command lines of `sagents` in
//! `sh` and `yaml` have to be valid. A `console` block is run: `$ command`, then all that it prints, both streams, with
//! times and ids redacted. Its project is made by the page:
//!
//! - `<!-- project -->` starts one, a library `my_app`; `<!-- project: empty -->` is an empty directory. A page starts with
//!   the first kind.
//! - A block whose first line is a comment with a path (`// src/accounts.rs`) is that file.
//! - `<!-- $ command -->` is run unseen, for edits that the text tells of.
//!
//! Commands of cargo are not run, and Rust is not compiled: `snapshots/unchecked.snap` lists them.
//! `INSTA_UPDATE=always cargo test --test cli docs` accepts what is printed today, in all pages.

mod markdown;
mod transcripts;
mod words;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use clap::Parser as _;
use insta::{Settings, assert_snapshot};
use sagents::cli::Cli;
use saphyr::{LoadableYamlNode as _, Yaml};
use sqlparser::dialect::{PostgreSqlDialect, SQLiteDialect};

use self::markdown::{Block, Page};
use self::transcripts::logical_lines;
use super::transcript::words as split;
use crate::support::Host;

#[test]
fn the_page_of_options_is_what_the_command_line_has() {
    let file = directory().join("docs/options.md");
    let page = sagents::manual::options();
    if updates() {
        fs::write(&file, &page).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        stored == page,
        "docs/options.md is not what `--help` shows; \
         `INSTA_UPDATE=always cargo test --test cli docs` writes it again"
    );
}

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
fn what_is_not_checked_is_listed() {
    let mut list = String::new();
    for page in pages() {
        for block in page.blocks() {
            let what = match block.language.as_str() {
                "rust" => vec!["rust: parsed, not compiled".to_owned()],
                "text" => vec!["text".to_owned()],
                "console" => transcripts::not_run(&block.text).iter().map(|line| format!("not run: {line}")).collect(),
                _ => Vec::new(),
            };
            for what in what {
                let _ = writeln!(list, "{}, {}: {what}", page.name, block.section);
            }
        }
    }
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("../../snapshots");
    settings.bind(|| assert_snapshot!("unchecked", list));
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

/// README.md, the other pages of the top directory, and docs/.
fn pages() -> Vec<Page> {
    let files = |directory: &str| {
        let entries = fs::read_dir(self::directory().join(directory)).unwrap();
        let paths =
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some(OsStr::new("md")));
        let names = paths.map(|path| format!("{directory}{}", path.file_name().unwrap().to_str().unwrap()));
        names.collect::<BTreeSet<_>>()
    };
    files("").into_iter().chain(files("docs/")).map(|name| Page::read(directory(), name)).collect()
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
        "console" | "text" => None,
        "toml" => toml::from_str::<toml::Table>(text).err().map(|error| error.to_string()),
        "json" => serde_json::from_str::<serde_json::Value>(text).err().map(|error| error.to_string()),
        "yaml" => match Yaml::load_from_str(text) {
            Ok(_) => invalid(&commands(block)),
            Err(error) => Some(error.to_string()),
        },
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
