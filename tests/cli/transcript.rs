//! Command lines and what came of them, as text that a snapshot holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Host, Run};

/// The answers to command lines that must fail and change nothing.
pub fn refusals(host: &Host, lines: &[&str]) -> String {
    lines.iter().map(|line| refusal(host, line)).collect::<Vec<_>>().join("\n")
}

/// The answer to a command line that must fail and change nothing.
pub fn refusal(host: &Host, line: &str) -> String {
    refusal_by(host, line, |words| host.sagents_in(".", words))
}

/// As [`refusal`], by something else that runs the program with its words.
pub fn refusal_by(host: &Host, line: &str, program: impl FnOnce(&[&str]) -> Run) -> String {
    let before = everything(host);
    let run = program(&words(line).iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(everything(host), before, "{line} changed something");
    assert_eq!(run.stdout, "", "{line}");
    format!("$ {line}\n{}exit {}\n", anonymous(host, &run.stderr), run.code)
}

/// A text without the directories of the host and the library, and without the time.
pub fn anonymous(host: &Host, text: &str) -> String {
    let text = without_library(text).replace(host.root().to_str().unwrap(), "[host]");
    let text = text.replace(outside(host).to_str().unwrap(), "[outside]");
    text.split_inclusive(['/', '\n'])
        .map(|part| match part.split_once("_create_") {
            Some((version, rest)) if version.len() == 14 => format!("[version]_create_{rest}"),
            _ => part.to_owned(),
        })
        .collect()
}

/// A text without the directory of the library, which depends on where the host is.
pub fn without_library(text: &str) -> String {
    const LIBRARY: &str = "crates/sagents";
    let parts = text.split_inclusive(LIBRARY).map(|part| match part.strip_suffix(LIBRARY) {
        Some(above) if above.ends_with('/') => {
            above.trim_end_matches(|c: char| !"\"`' \n".contains(c)).to_owned() + "[library]"
        }
        _ => part.to_owned(),
    });
    parts.collect()
}

/// What a report lists as left to do.
pub fn next(run: &Run) -> String {
    let lines = run.stdout.lines().skip_while(|line| *line != "Next:").take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The directory that the host's is in. It belongs to the test, too.
pub fn outside(host: &Host) -> &Path {
    host.root().parent().unwrap()
}

/// Whatever is in the host and around it: the bytes of files, the targets of links, and directories.
pub fn everything(host: &Host) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![outside(host).to_owned()];
    while let Some(path) = open.pop() {
        let bytes = if path.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        all.insert(path, bytes);
    }
    all
}

/// The words of a command line; `'…'` holds spaces, or nothing.
pub fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    for (index, part) in line.split('\'').enumerate() {
        let is_quoted = index % 2 == 1;
        for (index, piece) in part.split(' ').enumerate() {
            in_word &= is_quoted || index == 0;
            if !in_word && (is_quoted || !piece.is_empty()) {
                words.push(String::new());
                in_word = true;
            }
            match words.last_mut() {
                Some(word) if in_word => {
                    if is_quoted && index > 0 {
                        word.push(' ');
                    }
                    word.push_str(piece);
                }
                _ => {}
            }
        }
    }
    words
}
