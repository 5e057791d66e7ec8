//! The recorded tables and the migrations that lead to them: moved, renumbered, squashed, deleted, forked and merged.

use std::fs;
use std::process::Command;

use insta::assert_snapshot;

use crate::support::{Host, Run};
use crate::transcript::anonymous;

const LINE: &str = "gen persistence conversations -s accounts::Scope";
const CREATE: &str = "migrations/0002_create_sagents_persistence.sql";
const RENAME: &str = "0003_rename_sagents_to_chat.sql";

/// A generated host with numbered migrations.
fn host() -> Host {
    let host = Host::library().file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    host.generate(LINE);
    host
}

fn rename(host: &Host, from: &str, to: &str) {
    fs::rename(host.root().join(from), host.root().join(to)).unwrap();
}

fn remove(host: &Host, path: &str) {
    fs::remove_file(host.root().join(path)).unwrap();
}

fn ending(host: &Host, run: &Run) -> String {
    format!("{}exit {}", anonymous(host, &run.stderr), run.code)
}

#[test]
fn moved_migrations_are_found_by_what_they_say() {
    let host = host();
    rename(&host, "migrations", "db");
    // Nobody said where they are.
    let before = host.files();
    let run = host.sagents(&format!("{LINE} --table-prefix chat_"));
    assert_snapshot!(ending(&host, &run), @"
    error: migrations/0002_create_sagents_persistence.sql was moved to db/0002_create_sagents_persistence.sql
    help: name the directory: `--migrations db`
    exit 5
    ");
    assert!(host.files() == before);
    host.generate(&format!("{LINE} --migrations db --table-prefix chat_"));
    let migration = host.read(&format!("db/{RENAME}"));
    assert!(
        migration.contains(r#"ALTER TABLE "sagents_conversations" RENAME TO "chat_conversations";"#),
        "{migration}"
    );
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn renumbered_migrations_are_found_by_what_they_say() {
    let host = host();
    rename(&host, CREATE, "migrations/0007_create_sagents_persistence.sql");
    // Its new name is remembered by the next run.
    assert_eq!(host.sagents("check").code, 3);
    host.generate("update");
    assert_eq!(host.sagents("check").code, 0);
    rename(&host, "migrations/0007_create_sagents_persistence.sql", "migrations/0009_tables.sql");
    host.generate(&format!("{LINE} --table-prefix chat_"));
    assert!(host.exists("migrations/0010_rename_sagents_to_chat.sql"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn squashed_migrations_that_make_the_same_tables_are_as_good() {
    let host = host();
    host.generate(&format!("{LINE} --table-prefix chat_"));
    // By hand: one script with the tables as they are now.
    let renamed = host.read(CREATE).replace("sagents_", "chat_");
    let (_, squashed) = renamed.split_once('\n').unwrap();
    host.write("migrations/0001_users.sql", &format!("{}{squashed}", host.read("migrations/0001_users.sql")));
    remove(&host, CREATE);
    remove(&host, &format!("migrations/{RENAME}"));
    let run = host.generate("update");
    assert!(
        run.stdout.contains(
            "Note: Emitted and not there any more, but other migrations make the same tables: \
             migrations/0002_create_sagents_persistence.sql, migrations/0003_rename_sagents_to_chat.sql."
        ),
        "{}",
        run.stdout
    );
    assert_eq!(host.sagents("check").code, 0);
    host.generate("gen persistence conversations --table-prefix agent_");
    let migration = host.read("migrations/0002_rename_chat_to_agent.sql");
    assert!(migration.contains(r#"ALTER TABLE "chat_conversations" RENAME TO "agent_conversations";"#), "{migration}");
    assert_eq!(host.sagents("check").code, 0);

    // All of them in one file, as they were.
    let host = self::host();
    host.generate(&format!("{LINE} --table-prefix chat_"));
    let whole = host.read(CREATE) + &host.read(&format!("migrations/{RENAME}"));
    remove(&host, CREATE);
    host.write(&format!("migrations/{RENAME}"), &whole);
    assert_eq!(host.sagents("update").code, 0);
    assert_eq!(host.sagents("diff").code, 0);
}

#[test]
fn a_migration_that_is_gone_stops_the_run_and_no_way_out_leaves_rows_behind() {
    let host = host();
    let create = host.read(CREATE);
    remove(&host, CREATE);
    let before = host.files();
    let prefix = format!("{LINE} --table-prefix chat_");
    for line in [&prefix, LINE, "update", "diff"] {
        let run = host.sagents(line);
        assert_eq!(run.code, 5, "{line}: {}", run.stderr);
        assert!(host.files() == before, "{line}");
    }
    assert_snapshot!(ending(&host, &host.sagents(&prefix)), @"
    error: migrations/0002_create_sagents_persistence.sql was emitted and is gone: the migrations in migrations do not make the recorded tables
    help: restore migrations/0002_create_sagents_persistence.sql from version control, or name the directory that it was moved to with --migrations; if it has not run on any database, delete .sagents/conversations/schema.json to have it written again
    exit 5
    ");
    assert_eq!(host.sagents("check").code, 5);

    // Restored, it goes on.
    host.write(CREATE, &create);
    assert_eq!(host.sagents("check").code, 0);

    // Written again, under the same names: where it did run, the database refuses it.
    remove(&host, CREATE);
    remove(&host, ".sagents/conversations/schema.json");
    assert_snapshot!(ending(&host, &host.sagents(&prefix)), @"
    error: --table-prefix: the tables of `conversations` are not recorded any more, so they cannot be renamed from `sagents_*`
    help: run this with `--table-prefix sagents_` first, then with the new one
    exit 5
    ");
    host.generate(LINE);
    assert_eq!(host.read(CREATE), create);
    assert_eq!(host.sagents("check").code, 0);

    // Not while the migration is there.
    remove(&host, ".sagents/conversations/schema.json");
    assert_snapshot!(ending(&host, &host.sagents(&prefix)), @"
    error: migrations/0002_create_sagents_persistence.sql was emitted for `conversations`, and .sagents/conversations/schema.json is gone
    help: restore .sagents/ from version control
    exit 5
    ");
}

#[test]
fn tables_that_a_lost_memory_does_not_know_are_not_abandoned_for_others() {
    let host = host();
    host.generate(&format!("{LINE} --table-prefix chat_"));
    fs::remove_dir_all(host.root().join(".sagents")).unwrap();
    let before = host.files();
    for line in ["update", "gen persistence conversations --table-prefix chat_"] {
        let run = host.sagents(line);
        assert_eq!(run.code, 5, "{line}: {}", run.stderr);
        assert!(run.stderr.contains("help: these are tables of sagents"), "{}", run.stderr);
        assert!(!run.stderr.contains("--table-prefix"), "{}", run.stderr);
        assert!(host.files() == before, "{line}");
    }
}

#[test]
fn an_altered_record_of_the_tables_is_noticed() {
    let host = host();
    let file = ".sagents/conversations/schema.json";
    host.write(file, &host.read(file).replace("\"next_sequence\"", "\"next_number\""));
    let run = host.sagents("check");
    assert_eq!(run.code, 5);
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    conversations: 1 problem
      error: .sagents/conversations/schema.json is not what was recorded: it was edited, or git merged it
      help: restore .sagents/ from version control; if two branches both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.
    ");
}

/// A repository with two branches that each reran: `left` with another prefix, `right` with another owner.
fn two_branches() -> Host {
    let host = host();
    git(&host, "init -b trunk");
    git(&host, "add .");
    git(&host, "commit -m generated");
    git(&host, "checkout -b left");
    host.generate(&format!("{LINE} --table-prefix chat_"));
    git(&host, "add .");
    git(&host, "commit -m prefix");
    git(&host, "checkout -b right trunk");
    host.generate("gen persistence conversations -t team --owner-id i64 --backfill none");
    git(&host, "add .");
    git(&host, "commit -m owner");
    git(&host, "checkout left");
    host
}

/// Runs git; returns whether it succeeded.
fn try_git(host: &Host, args: &str) -> bool {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args.split_whitespace());
    command.current_dir(host.root()).output().unwrap().status.success()
}

fn git(host: &Host, args: &str) {
    assert!(try_git(host, args), "git {args}");
}

#[test]
fn two_branches_that_reran_and_were_merged_are_noticed_however_the_merge_was_resolved() {
    let host = two_branches();
    assert!(!try_git(&host, "merge right"), "both changed the record");
    // As git left it.
    assert_snapshot!(ending(&host, &host.sagents("check")), @"
    error: sagents.toml has the conflict markers of a merge
    help: resolve them; if two branches both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 5
    ");
    for side in ["--ours", "--theirs"] {
        git(&host, &format!("checkout {side} -- .sagents sagents.toml src"));
        let check = host.sagents("check");
        assert_eq!(check.code, 5, "{}{}", check.stdout, check.stderr);
        assert!(check.stdout.contains("have the same version"), "{}", check.stdout);
        assert_eq!(host.sagents("update").code, 5);
    }
    // With another number there is still the record, of which a merge may take a part from each side.
    git(&host, "checkout --ours -- .sagents sagents.toml src");
    rename(&host, "migrations/0003_change_sagents_owner_to_team_id.sql", "migrations/0004_owner.sql");
    let schema = ".sagents/conversations/schema.json";
    host.write(schema, &host.read(schema).replace("\"user_id\"", "\"team_id\""));
    let check = host.sagents("check");
    assert!(check.stdout.contains("schema.json is not what was recorded"), "{}", check.stdout);
    // With the record of one side, the second migration does not start where the first one ends.
    git(&host, "checkout left -- .sagents sagents.toml src");
    let check = host.sagents("check");
    assert_eq!(check.code, 5);
    assert_snapshot!(anonymous(&host, &check.stdout), @"
    conversations: 1 problem
      error: migrations/0004_owner.sql does not start from the tables that migrations/0003_rename_sagents_to_chat.sql leads to: two branches changed the tables of `conversations`
      help: take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.
    ");
    // The way out that it names.
    remove(&host, "migrations/0004_owner.sql");
    host.generate("gen persistence conversations -t team --owner-id i64 --backfill none");
    assert!(host.exists("migrations/0004_change_chat_owner_to_team_id.sql"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_memory_that_is_older_than_the_migrations_is_noticed() {
    let host = two_branches();
    git(&host, "checkout trunk -- .sagents");
    let run = host.sagents("update");
    assert_snapshot!(ending(&host, &run), @"
    error: .sagents/ is older than the migrations: migrations/0003_rename_sagents_to_chat.sql was emitted for `conversations`, and is not recorded
    help: restore the .sagents/ that was committed together with migrations/0003_rename_sagents_to_chat.sql; if two branches both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 5
    ");
    git(&host, "checkout left -- .sagents");
    assert_eq!(host.sagents("check").code, 0);
}
