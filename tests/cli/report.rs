//! What a person or a script reads: help, reports, lists, differences, colours and questions.

use std::io::Write as _;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::support::{FULL, Host, PLAIN, Run, manifest, sagents};
use crate::transcript::{anonymous, everything, next};

/// What the real program prints, which must succeed. Help is as wide as the terminal, if there is one.
fn shown(args: &str) -> String {
    let run = Host::empty().program(args);
    assert_eq!(run.code, 0, "{args}");
    run.stdout
}

#[test]
fn the_short_help_says_what_there_is_and_how_it_ends() {
    assert_snapshot!(shown("-h"), @"
    Generates a persistence layer for AI-agent conversations into your Rust project

    Usage: sagents <COMMAND>

    Commands:
      gen          Generate code, or rerun over what was generated
      update       Rerun with the recorded options, after an upgrade of sagents or an edit of
                   sagents.toml
      check        For CI: is everything as the generator would leave it? Writes nothing
      diff         Show what a rerun would change, as a unified diff. Writes nothing
      list         Show the generated contexts and their options
      completions  Print a completion script for a shell
      man          Print the man page, or write one for every command
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Exit codes:
      0  done, or up to date
      1  the file system refused, or a tool is missing
      2  bad command line or option value
      3  changes are pending (check, diff)
      4  conflicts are left in files
      5  a decision is needed that only a person or a flag can make
    ");
}

#[test]
fn the_long_help_has_examples_and_exit_codes() {
    let help = shown("--help");
    let (_, end) = help.split_once("Examples:").unwrap();
    assert_snapshot!(end, @"

      # A new project that runs at once
      sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init
      # Into the project that you are in
      sagents gen persistence conversations --scope crate::accounts::Scope
      # After an upgrade of sagents: bring everything up to date, edits and rows included
      sagents update
      # In CI
      sagents check
      # What is there
      sagents list

    Exit codes:
      0  done, or up to date
      1  the file system refused, or a tool is missing
      2  bad command line or option value
      3  changes are pending (check, diff)
      4  conflicts are left in files
      5  a decision is needed that only a person or a flag can make
    ");
}

#[test]
fn the_help_of_the_generator_is_complete() {
    assert_snapshot!(shown("gen persistence -h"), @"
    Conversations, agent states and display messages: context, models, migration and tests

    Usage: sagents gen persistence [OPTIONS] <CONTEXT>

    Arguments:
      <CONTEXT>  The module to generate: `MyApp.Conversations`, `crate::chat::conversations` or
                 `conversations`

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Owner:
      -s, --scope <TYPE>         The host's scope type: who is asking. Not needed with `--owner-type
                                 none`
      -t, --owner-type <NAME>    Who owns a conversation: user, account, team, org, none, or any other
                                 identifier [default: user]
      -f, --owner-field <NAME>   The owner's column and Rust field [default: <owner type>_id]
          --owner-module <TYPE>  The owner's Rust type, for documentation links and inference
          --owner-table <TABLE>  The table that the foreign key names; `none` for no foreign key
                                 [default: read from the migrations]
          --owner-id <TYPE>      The type of the owner's key: i64, uuid or text [default: read from the
                                 migrations or the scope]
          --scope-owner <PATH>   How the owner's id is read from the scope, for example `user.id`
                                 [default: read from the scope's source]
          --create-scope         Write the scope type if it does not exist. With --init, and in a
                                 package without any type, that needs no flag

    Group:
          --group-type <NAME>    A group of owners, whose scope may read what its members own:
                                 organization, company, … [default: none]
          --group-field <NAME>   The column that names the group of an owner [default: <group type>_id]
          --group-table <TABLE>  The table with that column: the owner's, or one of memberships
                                 [default: read from the migrations]
          --scope-group <PATH>   How the group's id is read from the scope, for example
                                 `organization.id` [default: read from the scope's source]

    Database:
          --table-prefix <PREFIX>  What the tables' names start with [default: sagents_]
          --database <NAME>        The database: sqlite or postgres [default: the one that the project
                                   shows, else sqlite]
          --migrations <DIR>       The directory of migrations [default: where the project's own tool
                                   finds them]
          --backfill <SQL>         Where the owner changes: an SQL expression that gives the new owner
                                   of a row `conversation`, for example `(SELECT team_id FROM users
                                   WHERE users.id = conversation.user_id)`; `none` if there are no
                                   conversations yet
          --drop-old-owner         Drop the columns of former owners, which a change of owner keeps

    Web:
          --web <NAME>  HTTP routes, server-sent events and a page for the context: axum or none
                        [default: none]

    Host:
          --no-wire         Print the lines for Cargo.toml and the parent module instead of adding them
          --no-tests        Leave the generated tests out
          --path <DIR>      The host's package directory [default: .]
      -p, --package <NAME>  The host's package by its name, in the workspace of that directory
          --init            Make a new package there first, with a `main` that shows the layer at work

    Run:
          --dry-run  Show what would happen to each file; write nothing
          --diff     Show the whole difference; write nothing
          --force    Replace files that cannot be merged; the old ones are kept beside as `.orig`
      -y, --yes      Answer yes to questions. Without a terminal nothing is ever asked
          --json     Print the report as JSON

    Exit codes:
      0  done, or up to date
      1  the file system refused, or a tool is missing
      2  bad command line or option value
      3  changes are pending (check, diff)
      4  conflicts are left in files
      5  a decision is needed that only a person or a flag can make
    ");
}

#[test]
fn the_long_help_of_the_generator_has_examples() {
    let help = shown("gen persistence --help");
    let (_, end) = help.split_once("Examples:").unwrap();
    assert_snapshot!(end, @r"

      # A new project that runs at once
      sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init

      # Into a project whose scope knows its user
      sagents gen persistence MyApp.Conversations \
        --scope MyApp.Accounts.Scope --owner-type user --owner-field user_id \
        --owner-module MyApp.Accounts.User --table-prefix sagents_

      # Owned by a team, read from the scope by hand; see the plan first
      sagents gen persistence crate::chat::conversations -s crate::auth::Session \
        -t team --scope-owner 'membership.team_id' --dry-run

      # An application with one user: conversations have no owner, and there is no scope to name
      sagents gen persistence conversations --owner-type none

      # Rerun: from users to teams, keeping every row
      sagents gen persistence MyApp.Conversations --owner-type team \
        --backfill '(SELECT team_id FROM users WHERE users.id = conversation.user_id)'

    Exit codes:
      0  done, or up to date
      1  the file system refused, or a tool is missing
      2  bad command line or option value
      3  changes are pending (check, diff)
      4  conflicts are left in files
      5  a decision is needed that only a person or a flag can make
    ");
}

#[test]
fn no_command_is_a_question_for_help() {
    let run = Host::empty().program("");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert_eq!(run.stderr, shown("-h"));
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(shown("--version"), concat!("sagents ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_shell_has_completions_that_know_the_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = Host::empty().generate(&format!("completions {shell}")).stdout;
        assert!(script.contains("table-prefix"), "{shell}");
    }
}

#[test]
fn every_command_has_a_man_page() {
    let host = Host::empty();
    let pages = host.generate("man --dir man/man1").stdout;
    assert_snapshot!(pages, @r"
    man/man1/sagents.1
    man/man1/sagents-gen.1
    man/man1/sagents-gen-persistence.1
    man/man1/sagents-update.1
    man/man1/sagents-check.1
    man/man1/sagents-diff.1
    man/man1/sagents-list.1
    man/man1/sagents-completions.1
    man/man1/sagents-man.1
    ");
    assert_eq!(host.generate("man").stdout, host.read("man/man1/sagents.1"));
    assert_eq!(host.generate("man --dir man/man1").stdout, pages);
    let page = host.read("man/man1/sagents-gen-persistence.1");
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    assert_snapshot!(
        headings.join(", "),
        @r#"NAME, SYNOPSIS, DESCRIPTION, OPTIONS, OWNER, GROUP, DATABASE, WEB, HOST, RUN, VERSION, EXAMPLES, "EXIT STATUS""#
    );
    assert!(page.contains("\n5  a decision is needed that only a person or a flag can make\n"), "{page}");
}

#[test]
fn man_pages_that_cannot_be_written_are_named() {
    let host = Host::empty().file("man/sagents.1/taken", "").file("file", "");
    let answers = ["man --dir man", "man --dir file"].map(|line| {
        let run = host.sagents(line);
        format!("$ {line}\n{}{}exit {}\n", run.stdout, anonymous(&host, &run.stderr), run.code)
    });
    assert_snapshot!(answers.concat(), @r"
    $ man --dir man
    error: cannot write man/sagents.1: Is a directory (os error 21)
    exit 1
    $ man --dir file
    error: cannot create [host]/./file: File exists (os error 17)
    exit 1
    ");
}

#[test]
fn the_report_names_each_file_and_what_is_left_to_do() {
    let host = Host::library();
    let run = host.generate(FULL);
    // Of the files below the context's one stands for all.
    let is_shown = |line: &&str| !line.contains("conversations/") || line.ends_with("/scope.rs");
    let shown = run.stdout.lines().filter(is_shown).take_while(|line| !line.starts_with("Wrote")).collect::<Vec<_>>();
    assert_snapshot!(anonymous(&host, &shown.join("\n")), @r#"
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      created   .gitattributes
                + .sagents/** linguist-generated=true
      updated   Cargo.toml
                + chrono = { version = "0.4", features = ["serde"] }
                + serde = { version = "1.0", features = ["derive"] }
                + serde_json = { version = "1.0", features = ["float_roundtrip"] }
                + sqlx = { version = "0.9", features = ["chrono", "runtime-tokio", "sqlite", "uuid"] }
                + thiserror = "2.0"
                + tracing = "0.1"
                + uuid = { version = "1.10", features = ["serde", "v7"] }
                + tokio = { version = "1.40", features = ["rt", "sync", "time"] }
                + tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] } # in [dev-dependencies]
      created   migrations/[version]_create_sagents_persistence.down.sql
      created   migrations/[version]_create_sagents_persistence.up.sql
      created   sagents.toml
      created   src/accounts.rs
      created   src/conversations/scope.rs
      created   src/conversations.rs
      updated   src/lib.rs
                + pub mod accounts;
                + pub mod conversations;
                + pub mod sagents;
      created   src/sagents/branch.rs
      created   src/sagents/display.rs
      created   src/sagents/export/checks.rs
      created   src/sagents/export/fields.rs
      created   src/sagents/export/file.rs
      created   src/sagents/export/rows.rs
      created   src/sagents/export/values.rs
      created   src/sagents/export/whole_state.rs
      created   src/sagents/export.rs
      created   src/sagents/extensions.rs
      created   src/sagents/json.rs
      created   src/sagents/message.rs
      created   src/sagents/messages.rs
      created   src/sagents/persistence.rs
      created   src/sagents/run.rs
      created   src/sagents/serializer.rs
      created   src/sagents/session/backoff.rs
      created   src/sagents/session/coordinator.rs
      created   src/sagents/session/drafts.rs
      created   src/sagents/session/edits.rs
      created   src/sagents/session/event.rs
      created   src/sagents/session/guard.rs
      created   src/sagents/session/handle.rs
      created   src/sagents/session/options.rs
      created   src/sagents/session/registry.rs
      created   src/sagents/session/reloads.rs
      created   src/sagents/session/rewinds.rs
      created   src/sagents/session/runs.rs
      created   src/sagents/session/saves.rs
      created   src/sagents/session/state.rs
      created   src/sagents/session/task.rs
      created   src/sagents/session/tools.rs
      created   src/sagents/session/turn.rs
      created   src/sagents/session/writer.rs
      created   src/sagents/session/writes.rs
      created   src/sagents/session.rs
      created   src/sagents/state.rs
      created   src/sagents/stored.rs
      created   src/sagents/timestamp.rs
      created   src/sagents/todo.rs
      created   src/sagents/turn.rs
      created   src/sagents/usage.rs
      created   src/sagents.rs

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.

    Next:
      sqlx migrate run --source migrations  # creates the tables in DATABASE_URL
    "#);
}

#[test]
fn a_first_report_ends_with_how_much_there_is_to_review_and_where_to_begin() {
    let host = Host::library().file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let before = host.files();
    let run = host.generate(PLAIN);
    let after = host.files().into_iter().filter(|(path, _)| !path.starts_with(".sagents/"));
    let written: Vec<_> = after.filter(|(path, text)| before.get(path) != Some(text)).collect();
    let lines = |text: &Vec<u8>| String::from_utf8_lossy(text).lines().count();
    let count = |(path, text): &(String, Vec<u8>)| lines(text) - before.get(path).map_or(0, lines);
    assert_eq!(
        run.stdout.lines().last().unwrap_or_default(),
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
      cargo test  # proves the layer
      cargo run   # shows it at work
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
    host.generate("gen persistence notes -s accounts::Scope -t none --table-prefix notes_ --no-tests");
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
      scope         crate::accounts::Scope
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
        "time-crate": "chrono",
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
    assert_snapshot!(run.stdout.lines().take(4).collect::<Vec<_>>().join("\n"), @r#"
    Would generate crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      created   .gitattributes
                + .sagents/** linguist-generated=true
    "#);
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
    assert_eq!(keys, ["changed", "context", "dry_run", "files", "next", "notes", "options", "unwired", "written"]);
    assert_eq!(json["changed"], true);
    assert_snapshot!(json["next"].to_string(), @r#"[{"command":"sqlx migrate run --source migrations","why":"creates the tables in DATABASE_URL"}]"#);
    assert_snapshot!(json["unwired"][2].to_string(), @r#"{"lines":["pub mod accounts;","pub mod conversations;","pub mod sagents;"],"path":"src/lib.rs"}"#);
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
