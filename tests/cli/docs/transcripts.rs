//! Console blocks of a page, run in the project that the page makes.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::{env, iter};

use super::markdown::{Page, Part, pages, redacted};
use super::{directory, updates};
use crate::support::{Host, Run, manifest};
use crate::transcript::words;

#[test]
fn console_blocks_show_what_is_printed() {
    let mut differences = Vec::new();
    for page in pages() {
        let (mut stored, mut place) = (page.text.clone(), 0);
        let found = differences.len();
        for (shown, printed) in transcripts(&page) {
            place += stored[place..].find(&shown).expect("a console block is not indented");
            let (before, now) = (redacted(&shown), redacted(&printed));
            let kept = if before == now { &shown } else { &printed };
            stored.replace_range(place..place + shown.len(), kept);
            place += kept.len();
            if before != now {
                differences.push(format!("{}:\n{}", page.name, diffy::create_patch(&before, &now)));
            }
        }
        if updates() && differences.len() > found {
            fs::write(directory().join(&page.name), stored).unwrap();
        }
    }
    assert!(
        differences.is_empty() || updates(),
        "{}\n`INSTA_UPDATE=always cargo test --test cli docs` accepts it",
        differences.join("\n")
    );
}

/// The command lines of a console block that are not run: what compiles takes minutes.
pub fn not_run(block: &str) -> Vec<String> {
    steps(block).into_iter().map(|step| step.line()).filter(|line| is_slow(line)).collect()
}

/// Lines of a script without comments, with continued ones as one.
pub fn logical_lines(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", "");
    let lines = joined.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// A command in a console block, as it stands there, and what it prints.
struct Step {
    typed: String,
    output: String,
}

impl Step {
    fn line(&self) -> String {
        self.typed.replace("\\\n", "").trim_start_matches("$ ").trim_end().to_owned()
    }

    fn run(self, host: &Host) -> Self {
        let line = self.line();
        if is_slow(&line) {
            return self;
        }
        let Run { stdout, stderr, .. } = run(host, &line);
        Self { output: stdout + &stderr, ..self }
    }
}

/// The steps of a console block.
fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_typed = false;
    for line in block.split_inclusive('\n') {
        if line.starts_with("$ ") {
            steps.push(Step { typed: String::new(), output: String::new() });
            is_typed = true;
        }
        let step = steps.last_mut().expect("a console block starts with `$ `");
        if is_typed { &mut step.typed } else { &mut step.output }.push_str(line);
        is_typed &= line.ends_with("\\\n");
    }
    steps
}

/// The console blocks of a page, each with what it should be.
fn transcripts(page: &Page) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut host = None;
    for part in page.parts() {
        match part {
            Part::Comment(comment) if comment == "project" => host = Some(library()),
            Part::Comment(comment) if comment == "project: empty" => host = Some(Host::empty()),
            Part::Comment(comment) => {
                if let Some(line) = comment.strip_prefix("$ ") {
                    let run = run(host.get_or_insert_with(library), line);
                    assert_eq!(run.code, 0, "{}: {line}\n{}{}", page.name, run.stdout, run.stderr);
                }
            }
            Part::Block(block) if block.language == "console" => {
                let host = host.get_or_insert_with(library);
                let run = steps(&block.text).into_iter().map(|step| step.run(host));
                let printed = run.map(|Step { typed, output }| typed + &output).collect();
                found.push((block.text, printed));
            }
            Part::Block(block) => {
                let host = host.get_or_insert_with(library);
                if let Some(edit) = block.edit() {
                    host.write(&edit.path, &edit.apply(&host.read(&edit.path)));
                } else if let Some(path) = block.path() {
                    host.write(path, &block.text);
                }
            }
            Part::Heading(_) | Part::Link(_) => {}
        }
    }
    found
}

fn library() -> Host {
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", "\n[dependencies]\n"))
}

/// Runs a command line in the project: `sagents` as a function, anything else by a shell, which gets the output of
/// `sagents` before a pipe.
fn run(host: &Host, line: &str) -> Run {
    let (command, rest) = line.split_once(" | ").map_or((line, None), |(command, rest)| (command, Some(rest)));
    let needs_shell = command.contains(['>', '&', ';', '$', '"']);
    let Some(arguments) = command.strip_prefix("sagents ").filter(|_| !needs_shell) else {
        return by_shell(host, line, "");
    };
    let run = host.sagents_in(".", &words(arguments).iter().map(String::as_str).collect::<Vec<_>>());
    let run = Run { stdout: as_installed(&run.stdout), ..run };
    match rest {
        None => run,
        Some(rest) => {
            let piped = by_shell(host, rest, &run.stdout);
            Run { stderr: piped.stderr + &run.stderr, ..piped }
        }
    }
}

fn by_shell(host: &Host, line: &str, input: &str) -> Run {
    let program = Path::new(env!("CARGO_BIN_EXE_sagents")).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(iter::once(program).chain(env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    // Languages and settings of this machine are not the reader's.
    shell.env("LC_ALL", "C").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    shell.args(["-c", line]).current_dir(host.root()).env("PATH", path);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input.as_bytes()).and_then(|()| file.rewind()).unwrap();
    Run::of(shell.stdin(file))
}

/// What an installed program prints: one from a work tree also names the library's directory.
fn as_installed(printed: &str) -> String {
    let mut text = String::new();
    for line in printed.split_inclusive('\n') {
        if line.starts_with("Note: Cargo.toml has sagents from ") {
            if text.ends_with("\n\n") {
                text.pop();
            }
            continue;
        }
        let entry = line.split_once("sagents = { ").and_then(|(_, entry)| entry.split_once("path = \""));
        let path = entry.and_then(|(_, path)| path.split_once('"'));
        match path {
            Some((path, _)) => text += &line.replace(&format!("path = \"{path}\", "), ""),
            None => text += line,
        }
    }
    text
}

fn is_slow(line: &str) -> bool {
    line.starts_with("cargo ")
}

#[test]
fn times_and_ids_are_redacted_and_nothing_else() {
    let text =
        "migrations/20261117114104_x.sql 01a1e285-e38d-769d-878c-397eb8fe619c 2026-11-16 04:03:07, 0001, déjà 12";
    assert_eq!(redacted(text), "migrations/[time]_x.sql [id] [time], 0001, déjà 12");
}
