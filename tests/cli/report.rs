//! What a person or a script reads: reports, lists, differences, colours and questions.

use std::io::Write as _;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::support::{FULL, Host, PLAIN, Run, manifest, sagents};
use crate::transcript::{anonymous, everything, next};

#[test]
fn a_first_report_has_each_file_with_its_size_and_what_is_left_to_do() {
    let host = Host::library();
    let run = host.generate(FULL);
    assert_snapshot!(without_sizes(&anonymous(&host, &run.stdout)), @"
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      updated   Cargo.toml (+9 lines: sagents, serde, serde_json, uuid, tokio)
      created   migrations/[version]_create_sagents_persistence.up.sql (N lines)
      created   src/conversations/agent_state.rs (N lines)
      created   src/conversations/conversation.rs (N lines)
      created   src/conversations/display_message.rs (N lines)
      created   src/conversations/tests.rs (N lines)
      created   src/conversations.rs (N lines)
      updated   src/lib.rs (+2 lines: pub mod accounts, pub mod conversations)
      created   .gitattributes (1), migrations/[version]_create_sagents_persistence.down.sql (7), sagents.toml (9), src/accounts.rs (8), src/conversations/scope.rs (12)

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.

    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.

    Next:
      sqlx migrate run --source migrations  # creates the tables in DATABASE_URL

    Wrote 13 files with N lines. Read first: src/conversations.rs, src/conversations/scope.rs, migrations/[version]_create_sagents_persistence.up.sql
    ");
}

/// A report without the lengths of generated files, which are a matter of other tests.
fn without_sizes(report: &str) -> String {
    let words = report.split(' ').map(|word| word.trim_start_matches('(')).collect::<Vec<_>>();
    let is_size = |index: usize| {
        let is_number = words[index].bytes().all(|byte| byte.is_ascii_digit());
        is_number && words.get(index + 1).is_some_and(|next| next.starts_with("lines"))
    };
    let shown = report.split(' ').enumerate().map(|(index, word)| match is_size(index) {
        true if word.starts_with('(') => "(N",
        true => "N",
        false => word,
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_first_report_fits_on_a_screen() {
    const NEW: &str = "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path my_app";
    let users = "CREATE TABLE teams (id INTEGER PRIMARY KEY);\n\
                 CREATE TABLE users (id INTEGER PRIMARY KEY, team_id INTEGER REFERENCES teams (id));\n";
    for (host, line) in [
        (Host::library(), FULL),
        (Host::library().file("migrations/0001_users.sql", users), &format!("{PLAIN} --web axum --group-type team")),
        (Host::empty(), NEW),
        (Host::empty(), &format!("{NEW} --web axum --database postgres")),
    ] {
        let report = host.generate(line).stdout;
        assert!(report.lines().count() <= 25, "{line}\n{report}");
    }
}

#[test]
fn a_first_report_adds_up() {
    let host = Host::library().file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let before = host.files();
    let report = host.generate(PLAIN).stdout;
    let after = host.files().into_iter().filter(|(path, _)| !path.starts_with(".sagents/"));
    let written: Vec<_> = after.filter(|(path, text)| before.get(path) != Some(text)).collect();
    let lines = |text: &Vec<u8>| String::from_utf8_lossy(text).lines().count();
    let count = |(path, text): &(String, Vec<u8>)| lines(text) - before.get(path).map_or(0, lines);
    for file in &written {
        let (path, count) = (&file.0, count(file));
        let shown = [format!(" {path} ({count} lines)\n"), format!(" {path} (+{count} "), format!(" {path} ({count})")];
        assert!(shown.iter().any(|shown| report.contains(shown)), "{path}, {count}\n{report}");
    }
    assert_eq!(
        report.lines().last().unwrap_or_default(),
        format!(
            "Wrote {} files with {} lines. Read first: src/conversations.rs, src/conversations/scope.rs, \
             migrations/0002_create_sagents_persistence.sql",
            written.len(),
            written.iter().map(count).sum::<usize>()
        )
    );
    assert!(!host.generate(&format!("{PLAIN} --table-prefix chat_")).stdout.contains("Read first"));
}

#[test]
fn reviews_fold_the_generators_memory() {
    const LINE: &str = ".sagents/** linguist-generated=true\n";
    let host = Host::library().file(".gitattributes", "*.rs text");
    host.generate(PLAIN);
    assert_eq!(host.read(".gitattributes"), format!("*.rs text\n{LINE}"));
    host.generate("gen persistence notes -s accounts::Scope --table-prefix notes_");
    assert_eq!(host.read(".gitattributes"), format!("*.rs text\n{LINE}"));
}

#[test]
fn a_line_that_was_removed_from_gitattributes_stays_removed() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write(".gitattributes", "");
    host.generate("gen persistence notes -s accounts::Scope --table-prefix notes_");
    host.generate("update");
    assert_eq!((host.read(".gitattributes").as_str(), host.generate("check").code), ("", 0));
}

#[test]
fn a_run_that_changes_nothing_leaves_nothing_to_do() {
    let host = Host::library().file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    host.generate(PLAIN);
    assert_snapshot!(host.generate(PLAIN).stdout, @"Up to date: crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*");
}

#[test]
fn a_host_that_migrates_by_itself_only_has_to_run() {
    let db = "pub fn migrator() -> sqlx::migrate::Migrator {\n    sqlx::migrate!()\n}\n";
    let run = "pub async fn migrate(pool: &sqlx::SqlitePool) {\n    sqlx::migrate!().run(pool).await.unwrap();\n}\n";
    let binary = Host::binary().file("src/main.rs", "mod db;\n\nfn main() {}\n").file("src/db.rs", run);
    let library = Host::empty()
        .file("app/Cargo.toml", &manifest("app", "2024", ""))
        .file("app/src/lib.rs", "pub mod db;\n")
        .file("app/src/db.rs", db);
    let runs = [binary.generate(PLAIN), library.generate(&format!("{PLAIN} --path app"))];
    assert_snapshot!(runs.each_ref().map(next).join("\n"), @"
    Next:
      cargo run  # runs the new migration, by `migrate!` in src/db.rs
    Next:
      cargo build --manifest-path app/Cargo.toml  # embeds the new migration, by `migrate!` in src/db.rs
    ");
}

#[test]
fn a_new_package_is_tested_and_run() {
    let host = Host::empty();
    let run = host.generate("gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path my_app");
    assert_snapshot!(next(&run), @"
    Next:
      cd my_app   # the new package
      cargo test  # runs the generated tests
      cargo run   # runs an example
    ");
}

#[test]
fn the_list_is_empty_before_anything_was_generated() {
    assert_snapshot!(Host::library().generate("list").stdout, @"
    No context has been generated here.
    Make one with: sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope
    ");
}

#[test]
fn the_list_shows_every_context_with_its_options() {
    let host = Host::library().file("migrations/0001_teams.sql", "CREATE TABLE teams (tid TEXT PRIMARY KEY);\n");
    host.generate("gen persistence chat::conversations -s accounts::Scope -t team");
    host.generate("gen persistence notes -t none --table-prefix notes_ --no-tests");
    assert_snapshot!(host.generate("list").stdout, @"
    crate::chat::conversations
      scope         crate::accounts::Scope
      owner type    team
      owner field   team_id
      owner id      text
      owner table   teams (tid)
      scope owner   team_id
      table prefix  sagents_
      database      sqlite
      migrations    migrations
      tests         yes
    crate::notes
      scope         crate::notes::Everyone
      owner type    none
      table prefix  notes_
      database      sqlite
      migrations    migrations
      tests         no
    ");
}

#[test]
fn the_list_is_json_for_scripts() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_snapshot!(host.generate("list --json").stdout, @r#"
    [
      {
        "context": "crate::conversations",
        "scope": "crate::accounts::Scope",
        "owner-type": "user",
        "owner-field": "user_id",
        "owner-id": "i64",
        "owner-table": "none",
        "scope-owner": "user_id",
        "table-prefix": "sagents_",
        "database": "sqlite",
        "migrations": "migrations",
        "tests": true
      }
    ]
    "#);
}

#[test]
fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let host = Host::library();
    let before = everything(&host);
    let run = host.generate(&format!("{PLAIN} --dry-run"));
    assert_eq!(everything(&host), before);
    assert_snapshot!(run.stdout.lines().take(3).collect::<Vec<_>>().join("\n"), @"
    Would generate crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      updated   Cargo.toml (+9 lines: sagents, serde, serde_json, uuid, tokio)
    ");
    assert!(run.stdout.contains("\nWould write 13 files with "), "{}", run.stdout);
}

#[test]
fn a_dry_run_over_an_edited_file_shows_it_and_fails() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write("src/conversations/scope.rs", "// Mine.\n");
    let before = everything(&host);
    let run = host.sagents(&format!("{PLAIN} --dry-run"));
    assert_eq!(everything(&host), before);
    assert_snapshot!(format!("{}{}exit {}", run.stdout, run.stderr, run.code), @"
    Up to date: crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    exit 0
    ");
}

#[test]
fn a_difference_is_a_patch_that_makes_the_same_files() {
    for patch in [&["patch", "-p1", "--quiet"][..], &["git", "apply", "-"]] {
        let [generated, patched] = [0; 2].map(|_| {
            Host::library()
                .file("src/lib.rs", "//! A library.\n\npub fn no_end_of_line() {}")
                .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n")
        });
        let before = everything(&patched);
        let difference = patched.generate(&format!("{PLAIN} --diff")).stdout;
        assert_eq!(everything(&patched), before);
        apply(&patched, patch, &difference);
        generated.generate(PLAIN);
        let generated = generated.files().into_iter().filter(|(path, _)| !path.starts_with(".sagents/"));
        assert_eq!(patched.files(), generated.collect(), "{patch:?}");
    }
}

fn apply(host: &Host, program: &[&str], patch: &str) {
    let mut command = Command::new(program[0]);
    // Without a repository of its own, git would find one around the host and take the paths from there.
    command.args(&program[1..]).current_dir(host.root()).env("GIT_CEILING_DIRECTORIES", host.root().parent().unwrap());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program:?}");
}

#[test]
fn a_difference_of_nothing_is_empty() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_eq!(host.generate(&format!("{PLAIN} --diff")).stdout, "");
}

#[test]
fn the_report_is_json_for_scripts() {
    let host = Host::library().file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let run = host.generate(&format!("{PLAIN} --no-wire --json"));
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let scope = json["files"].as_array().unwrap().iter().find(|file| file["path"] == "src/conversations/scope.rs");
    let lines = host.read("src/conversations/scope.rs").lines().count();
    assert_eq!(scope.unwrap()["lines"], lines, "{json:#}");
    assert_eq!(keys, ["changed", "context", "dry_run", "files", "next", "notes", "options", "unwired", "written"]);
    assert_eq!(json["changed"], true);
    assert_snapshot!(json["next"].to_string(), @r#"[{"command":"sqlx migrate run --source migrations","why":"creates the tables in DATABASE_URL"}]"#);
    assert_snapshot!(json["unwired"][2].to_string(), @r#"{"lines":["pub mod accounts;","pub mod conversations;"],"path":"src/lib.rs"}"#);
}

#[test]
fn a_failure_is_json_for_scripts() {
    let run = Host::library().sagents("gen persistence 9lives -s accounts::Scope --json");
    assert_snapshot!(format!("{}exit {}", run.stdout, run.code), @r#"
    {
      "error": "CONTEXT: `9lives` does not start with a letter",
      "help": "use ASCII letters, digits and `_`, and start with a letter",
      "exit": 2
    }
    exit 2
    "#);
}

#[test]
fn a_failure_that_needs_a_decision_is_json_once() {
    let host = Host::library().file("src/conversations.rs", "//! Mine.\n");
    let run = host.sagents(&format!("{PLAIN} --json"));
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &json["exit"]), (5, &serde_json::json!(5)));
}

#[test]
fn a_dry_run_that_fails_is_json_once() {
    let host = Host::library().file("src/conversations.rs", "//! Mine.\n");
    let run = host.sagents(&format!("{PLAIN} --dry-run --json"));
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &json["exit"]), (5, &serde_json::json!(5)));
}

#[test]
fn colours_are_for_terminals_and_for_those_who_force_them() {
    let host = Host::library();
    let line = format!("{PLAIN} --diff");
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = sagents();
        command.args(line.split(' ')).current_dir(host.root()).envs(variables.iter().copied());
        Run::of(&mut command).stdout.contains('\u{1b}')
    };
    let seen = [coloured(&[]), coloured(&[("CLICOLOR_FORCE", "1")]), coloured(&[("NO_COLOR", "1")])];
    assert_eq!(seen, [false, true, false]);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let host = Host::library();
    let script =
        format!("'{}' {PLAIN} --diff | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_sagents"));
    let run = Run::of(Command::new("bash").args(["-c", &script]).current_dir(host.root()));
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("0\n", ""));
}

#[test]
fn on_a_terminal_a_missing_scope_is_asked_for() {
    let host = Host::library();
    let shown = on_a_terminal(&host, "gen persistence conversations", "crate::auth::Session\n");
    assert!(shown.contains("Scope type, which holds who is asking"), "{shown}");
    assert!(host.read("src/auth.rs").contains("pub struct Session"));
}

#[test]
fn on_a_terminal_enter_takes_what_is_offered() {
    let host = Host::library().file("Cargo.toml", &manifest("my-app", "2024", ""));
    let shown = on_a_terminal(&host, "gen persistence conversations", "\n");
    assert!(shown.contains("[MyApp.Accounts.Scope]: "), "{shown}");
    assert!(host.read("sagents.toml").contains("scope = \"MyApp.Accounts.Scope\""));
}

#[test]
fn on_a_terminal_yes_takes_what_is_offered_without_asking() {
    let host = Host::library();
    let shown = on_a_terminal(&host, "gen persistence conversations --yes", "");
    assert!(!shown.contains("Scope type"), "{shown}");
    assert!(host.read("sagents.toml").contains("scope = \"MyApp.Accounts.Scope\""));
}

/// Runs the program on a terminal of its own and types an answer.
fn on_a_terminal(host: &Host, line: &str, answer: &str) -> String {
    let program = format!("'{}' {line}", env!("CARGO_BIN_EXE_sagents"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--echo", "never", "--command", &program, "/dev/null"]);
    command.current_dir(host.root()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    child.stdin.as_ref().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    shown
}
