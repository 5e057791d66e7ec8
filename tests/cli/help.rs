//! What the program says of itself: help, versions, completions and man pages.

use insta::assert_snapshot;

use crate::support::Host;
use crate::transcript::anonymous;

/// What the real program prints, which must succeed. Help is as wide as the terminal, if there is one.
fn shown(args: &str) -> String {
    let run = Host::empty().program(args);
    assert_eq!(run.code, 0, "{args}");
    run.stdout
}

#[test]
fn the_short_help_says_what_there_is_and_how_it_ends() {
    assert_snapshot!(shown("-h"), @"
    Generates persistence for AI-agent conversations into your Rust project

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
          --library <SOURCE>  Where Cargo.toml gets the library from: a version, a path, or a git URL
                              with a tag (`https://…#v1.2.3`) [default: this program's version]
          --no-wire           Print the lines for Cargo.toml and the parent module instead of adding
                              them
          --no-tests          Leave the generated tests out
          --path <DIR>        The host's package directory [default: .]
      -p, --package <NAME>    The host's package by its name, in the workspace of that directory
          --init              Create a new package there first, with a runnable example

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
