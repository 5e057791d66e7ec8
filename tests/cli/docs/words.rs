//! Words that texts for people do not use, because readers stumble over them.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use sagents_cli::cli::Cli;

use super::directory;
use super::markdown::pages;

const RETIRED: [&str; 21] = [
    "anew",
    "door",
    "doors",
    "figures",
    "habit",
    "habits",
    "house",
    "keeper",
    "laid",
    "lasting",
    "ledger",
    "meanwhile",
    "mend",
    "mended",
    "mends",
    "passing",
    "room",
    "rooms",
    "thereby",
    "whence",
    "whoever",
];

#[test]
fn help_pages_and_messages_have_no_retired_word() {
    let mut texts: Vec<(String, String)> = Vec::new();
    texts.push(("sagents --help".to_owned(), help(&Cli::command())));
    texts.extend(pages().into_iter().map(|page| (page.name, page.text)));
    for top in ["src", "templates"] {
        collect(&directory().join(top), &mut texts);
    }
    let found: Vec<_> =
        texts.iter().flat_map(|(place, text)| retired(text).map(move |word| format!("{place}: {word}"))).collect();
    assert!(found.is_empty(), "style: {found:#?}");
}

/// The help of a command and of those below it.
fn help(command: &clap::Command) -> String {
    let own = command.clone().render_long_help().to_string();
    command.get_subcommands().fold(own, |text, command| text + &help(command))
}

fn retired(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| RETIRED.contains(&word.to_lowercase().as_str()))
}

/// The comments and texts of sources; names that no reader sees are left out.
fn collect(directory: &Path, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, texts);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.contains("//") || line.contains('"') || line.trim_start().starts_with("--"));
        texts.push((path.display().to_string(), lines.collect::<Vec<_>>().join("\n")));
    }
}
