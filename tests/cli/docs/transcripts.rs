//! Console blocks of a page, run in the project that the page makes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::{env, iter};

use super::markdown::{Page, Part};
use super::{directory, pages, updates};
use crate::support::{Host, Run, manifest};
use crate::transcript::words;

/// What README.md leaves to the reader's mind, before a text of it.
const README: [(&str, &str); 6] = [
    ("### A new project\n", "<!-- project: empty -->\n\n"),
    ("### An existing project\n", "<!-- project -->\n\n"),
    (
        "```console\n$ sagents gen persistence MyApp.Conversations \\\n    --scope MyApp.Accounts.Scope",
        "<!-- $ echo 'pub mod accounts;' > src/lib.rs -->\n\
         <!-- $ printf 'DROP TABLE users;\\nDROP TABLE teams;\\n' > migrations/0001_accounts.down.sql -->\n\n",
    ),
    ("### Running it again\n", "<!-- $ echo '// Mine.' >> src/conversations/messages.rs -->\n\n"),
    (
        "```console\n$ sagents check\n",
        "<!-- $ sed -i s/sagents_/chat_/ sagents.toml -->\n\
         <!-- $ echo '-- Altered.' >> migrations/0002_create_sagents_persistence.up.sql -->\n\n",
    ),
    (
        "```console\n$ sagents gen persistence MyApp.Conversations --scope MyApp.Auth.Session\n",
        "<!-- project -->\n\
         <!-- $ echo 'pub mod auth;' > src/lib.rs -->\n\
         <!-- $ echo 'pub struct Session { pub kind: String, pub id: i64 }' > src/auth.rs -->\n\n",
    ),
];

#[test]
fn console_blocks_show_what_is_printed() {
    let mut differences = Vec::new();
    for mut page in pages() {
        let (mut stored, mut place) = (page.text.clone(), 0);
        if page.name == "README.md" {
            for (text, comments) in README {
                page.text = page.text.replacen(text, &format!("{comments}{text}"), 1);
            }
        }
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
                let first = block.text.lines().next().unwrap_or_default();
                let path = ["// ", "-- ", "# "].iter().find_map(|comment| first.strip_prefix(comment));
                if let Some(path) = path.filter(|path| path.contains('.') && !path.contains(' ')) {
                    host.get_or_insert_with(library).write(path, &block.text);
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

/// Runs a command line in the project: `sagents` as a function, anything else by a shell.
fn run(host: &Host, line: &str) -> Run {
    let needs_shell = line.contains(['|', '>', '&', ';', '$', '"']);
    if let Some(arguments) = line.strip_prefix("sagents ").filter(|_| !needs_shell) {
        return host.sagents_in(".", &words(arguments).iter().map(String::as_str).collect::<Vec<_>>());
    }
    let program = Path::new(env!("CARGO_BIN_EXE_sagents")).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(iter::once(program).chain(env::split_paths(&path))).unwrap();
    Run::of(Command::new("sh").args(["-c", line]).current_dir(host.root()).env("PATH", path))
}

fn is_slow(line: &str) -> bool {
    line.starts_with("cargo ")
}

/// A text without times and ids.
fn redacted(text: &str) -> String {
    // `0` stands for a digit, `x` for one of a hexadecimal number.
    const REDACTED: [(&str, &str); 4] = [
        ("[time]", "00000000000000"),
        ("[time]", "0000-00-00 00:00:00"),
        ("[time]", "0000-00-00T00:00:00"),
        ("[id]", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
    ];
    let is_like = |text: &str, pattern: &str| {
        let matches = |(letter, like): (char, char)| match like {
            '0' => letter.is_ascii_digit(),
            'x' => letter.is_ascii_hexdigit(),
            like => letter == like,
        };
        text.chars().count() >= pattern.len() && text.chars().zip(pattern.chars()).all(matches)
    };
    let (mut rest, mut redacted) = (text, String::new());
    while let Some(letter) = rest.chars().next() {
        let (length, shown) = match REDACTED.iter().find(|(_, pattern)| is_like(rest, pattern)) {
            Some((name, pattern)) => (pattern.len(), (*name).to_owned()),
            None => (letter.len_utf8(), letter.to_string()),
        };
        redacted += &shown;
        rest = &rest[length..];
    }
    redacted
}

#[test]
fn times_and_ids_are_redacted_and_nothing_else() {
    let text =
        "migrations/20261117114104_x.sql 01a1e285-e38d-769d-878c-397eb8fe619c 2026-11-16 04:03:07, 0001, déjà 12";
    assert_eq!(redacted(text), "migrations/[time]_x.sql [id] [time], 0001, déjà 12");
}
