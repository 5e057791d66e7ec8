//! What is around the code: the host's workspace, and git.

use std::process::Command;

use insta::assert_snapshot;

use crate::support::{Host, PLAIN, manifest};
use crate::transcript::{anonymous, refusal};

/// A workspace of three members, the first of which is nobody's choice.
fn workspace() -> Host {
    let host = Host::empty().file("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
    for (directory, package) in [("admin", "admin"), ("app", "my-app"), ("identity", "identity")] {
        host.write(&format!("crates/{directory}/Cargo.toml"), &manifest(package, "2024", ""));
        host.write(&format!("crates/{directory}/src/lib.rs"), "");
    }
    host
}

#[test]
fn a_member_of_a_workspace_goes_by_its_name() {
    let host = workspace();
    let run = host.generate("gen persistence conversations -s accounts::Scope -p my-app");
    assert!(run.stdout.contains("sqlx migrate run --source crates/app/migrations "), "{}", run.stdout);
    assert!(host.exists("crates/app/src/conversations.rs"));
    for line in ["check -p my-app", "list --package my-app", "update -p my-app", "diff -p my-app"] {
        host.generate(line);
        // From anywhere in the workspace.
        let run = host.sagents_in("crates/identity/src", &line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    let text = ["check -p app", "gen persistence conversations --init -p new"].map(|line| refusal(&host, line));
    assert_snapshot!(text.join("\n"), @"
    $ check -p app
    error: --package: there is no `app` in [host]
    help: there are: admin, identity, my-app
    exit 2

    $ gen persistence conversations --init -p new
    error: the argument '--init' cannot be used with '--package <NAME>'

    Usage: sagents gen persistence --init <CONTEXT>

    For more information, try '--help'.
    exit 2
    ");
}

#[test]
fn the_member_that_the_command_line_names_is_suggested() {
    let host = workspace();
    let lines = [
        "gen persistence conversations -s accounts::Scope",
        "gen persistence conversations -s identity::Caller",
        "gen persistence MyApp.Conversations -s identity::Caller",
    ];
    assert_snapshot!(lines.map(|line| refusal(&host, line)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: --path: . is a workspace, not a package
    help: name one of its members, for example `--package admin` (there are: admin, identity, my-app)
    exit 2

    $ gen persistence conversations -s identity::Caller
    error: --path: . is a workspace, not a package
    help: name one of its members, for example `--package identity` (there are: admin, identity, my-app)
    exit 2

    $ gen persistence MyApp.Conversations -s identity::Caller
    error: --path: . is a workspace, not a package
    help: name one of its members, for example `--package my-app` (there are: admin, identity, my-app)
    exit 2
    ");
}

fn git(host: &Host, arguments: &str) {
    let mut git = Command::new("git");
    let user = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"];
    let output = git.args(user).args(arguments.split(' ')).current_dir(host.root()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_git_ignores_is_said() {
    let notes = |line: &str, host: &Host| {
        let run = host.generate(line);
        run.stdout.lines().filter(|line| line.starts_with("Note: Git")).collect::<Vec<_>>().join("\n")
    };
    let host = Host::library().file(".gitignore", "# Hidden files.\n.*\nscope.rs\n");
    git(&host, "init --quiet");
    let note = notes(&format!("{PLAIN} --dry-run"), &host);
    assert_snapshot!(note, @"Note: Git ignores .gitattributes (.gitignore:2), .sagents/ (.gitignore:2), src/conversations/scope.rs (.gitignore:3): other clones will not have that, and `sagents check` fails there. Exclude it from that pattern, for example with the lines `!.sagents/` and `!.sagents/**` at the end of .gitignore.");
    assert_eq!(notes(PLAIN, &host), note);
    host.write(".gitignore", "# Hidden files.\n.*\nscope.rs\n!.sagents/\n!.sagents/**\n!.gitattributes\n");
    assert_snapshot!(notes(PLAIN, &host), @"Note: Git ignores src/conversations/scope.rs (.gitignore:3): other clones will not have that, and `sagents check` fails there. Exclude it from that pattern, for example with the line `!src/conversations/scope.rs` at the end of .gitignore.");
    // What is committed is in every clone.
    git(&host, "add --force .");
    git(&host, "commit --quiet --message=all");
    assert_eq!(notes(PLAIN, &host), "");
}

#[test]
fn edits_that_name_the_column_of_a_former_owner_are_listed() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: i64,\n    pub team_id: i64,\n}\n");
    host.generate(PLAIN);
    let sql = "\nconst MINE: &str = \"SELECT count(*) FROM sagents_conversations WHERE user_id = $1\";\n";
    let [context, model] = ["src/conversations.rs", "src/conversations/conversation.rs"];
    for path in [context, model] {
        host.write(path, &(host.read(path) + sql));
    }
    let state = "src/conversations/agent_state.rs";
    host.write(state, &(host.read(state) + "\n// Not a user_ids.\n"));
    let run = host.generate("gen persistence conversations -t team --backfill none");
    let note = run.stdout.lines().find(|line| line.starts_with("Note: The owner")).unwrap_or_default();
    let line = |path: &str| host.read(path).lines().position(|line| line.starts_with("const MINE")).unwrap() + 1;
    let note = [context, model]
        .iter()
        .fold(note.to_owned(), |note, path| note.replace(&format!("{path}:{}", line(path)), &format!("{path}:[line]")));
    assert_snapshot!(note, @"Note: The owner is not `user_id` any more, and edits of yours still name it: src/conversations/conversation.rs:[line], src/conversations.rs:[line]. A statement there may compare the column of the former owner with the key of the new one.");
    // It was said once.
    assert!(!host.generate("update").stdout.contains("Note: The owner"));
}

#[test]
fn a_dry_run_with_a_conflict_does_not_claim_that_anything_was_written() {
    let host = Host::library();
    host.generate(PLAIN);
    let scope = "src/conversations/scope.rs";
    host.write(scope, &host.read(scope).replace("self.user_id)", "self.user_id + 1)"));
    let run = host.sagents("gen persistence conversations -t team --owner-id i64 --backfill none --dry-run");
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert_snapshot!(anonymous(&host, &run.stderr), @"
    error: your edits and what is generated now change the same lines of: src/conversations/scope.rs
    help: conflicts would be marked with `<<<<<<<` and `>>>>>>>`, for you to edit; everything else would be written
    ");
}
