//! Files that are in the way, edited, deleted or links.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing};
use crate::support::{Host, Run, manifest};
use crate::transcript::next;

#[test]
fn a_path_with_spaces_is_a_path() {
    let host = Host::empty().file("my app/Cargo.toml", &manifest("my_app", "2024", "")).file("my app/src/lib.rs", "");
    let run =
        host.sagents_in(".", &["gen", "persistence", "conversations", "-s", "accounts::Scope", "--path", "my app"]);
    assert_snapshot!(next(&run), @"
    Next:
      sqlx migrate run --source 'my app/migrations'  # creates the tables in DATABASE_URL
    ");
    assert!(host.exists("my app/src/conversations.rs"));
}

#[test]
fn with_force_a_file_in_the_way_is_kept_as_orig() {
    let host = Host::library().file("src/conversations.rs", "//! Mine.\n");
    let run = host.generate(&format!("{PLAIN} --force"));
    assert_eq!(host.read("src/conversations.rs.orig"), "//! Mine.\n");
    assert!(run.stdout.contains("  replaced  src/conversations.rs"), "{}", run.stdout);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn with_force_an_edited_file_is_generated_anew_and_kept_as_orig() {
    let host = Host::library();
    host.generate(PLAIN);
    let pristine = host.read("src/conversations/scope.rs");
    host.write("src/conversations/scope.rs", "// Mine.\n");
    host.generate(&format!("{PLAIN} --force"));
    assert_eq!(host.read("src/conversations/scope.rs"), pristine);
    assert_eq!(host.read("src/conversations/scope.rs.orig"), "// Mine.\n");
}

#[test]
fn a_generated_file_that_was_deleted_stays_so() {
    let host = Host::library();
    host.generate(PLAIN);
    fs::remove_file(host.root().join("src/conversations/tests.rs")).unwrap();
    let before = host.files();
    let run = host.generate(PLAIN);
    assert_snapshot!(run.stdout, @"
    Up to date: crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      deleted   src/conversations/tests.rs (by you; it stays so)

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    ");
    assert_eq!(host.files(), before);
}

#[test]
fn what_git_thinks_of_the_tree_does_not_matter() {
    let host = Host::library();
    Run::of(Command::new("git").args(["init", "--quiet"]).current_dir(host.root()));
    host.write("src/lib.rs", "// Not committed.\n");
    host.generate(PLAIN);
    assert!(host.read("src/lib.rs").starts_with("// Not committed.\n"));
}

#[test]
fn a_link_inside_the_package_is_followed_and_stays_one() {
    let host = Host::library().file("real/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    fs::rename(host.root().join("src/lib.rs"), host.root().join("real/lib.rs")).unwrap();
    symlink("../real/lib.rs", host.root().join("src/lib.rs")).unwrap();
    symlink("real", host.root().join("migrations")).unwrap();
    host.generate(PLAIN);
    assert!(host.root().join("src/lib.rs").is_symlink());
    assert!(host.exists("real/0002_create_sagents_persistence.sql"));
    assert_eq!(host.read("real/lib.rs"), "pub mod accounts;\npub mod conversations;\n");
}
