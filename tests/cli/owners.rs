//! Reruns with another owner or another scope: what described the former one is not carried over.

use insta::assert_snapshot;

use crate::support::{Host, Run};
use crate::transcript::anonymous;

const SCOPE_RS: &str = "src/conversations/scope.rs";
const BACKFILL: &str = "(SELECT team_id FROM users WHERE users.id = conversation.user_id)";

/// A scope with a user and a team, and a table of each, all with integer keys.
fn host() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file(
            "src/accounts.rs",
            "pub struct User {\n    pub id: i64,\n}\n\npub struct Team {\n    pub id: i64,\n}\n\n\
             pub struct Scope {\n    pub user: User,\n    pub team: Team,\n}\n\n\
             pub struct Session {\n    pub user_id: i64,\n}\n",
        )
        .file(
            "migrations/0001_accounts.sql",
            "CREATE TABLE teams (id INTEGER PRIMARY KEY);\n\
             CREATE TABLE users (id INTEGER PRIMARY KEY, team_id INTEGER REFERENCES teams);\n",
        )
}

fn generate(host: &Host, options: &str) -> Run {
    host.generate(&format!("gen persistence MyApp.Conversations {options}"))
}

fn to_team(host: &Host, options: &[&str]) -> Run {
    let run = host.sagents_in(
        ".",
        &[&["gen", "persistence", "MyApp.Conversations", "-t", "team", "--backfill", BACKFILL], options].concat(),
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    run
}

#[test]
fn the_way_to_the_user_is_not_the_way_to_the_team() {
    let host = host();
    generate(&host, "--scope MyApp.Accounts.Scope --scope-owner user.id");
    let run = to_team(&host, &[]);
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    Generated crate::conversations: sqlite, owner team (team_id, i64), tables sagents_*

      created   migrations/0003_change_sagents_owner_to_team_id.sql
      updated   sagents.toml
      updated   src/conversations/agent_state.rs
      updated   src/conversations/conversation.rs
      updated   src/conversations/display_message.rs
      updated   src/conversations/messages.rs
      updated   src/conversations/scope.rs
      updated   src/conversations/states.rs
      updated   src/conversations/tests.rs
      updated   src/conversations/tool_calls.rs
      updated   src/conversations.rs

    dropped: scope-owner = user.id, it described the user

    Next:
      sqlx migrate run --source migrations           # changes the tables in DATABASE_URL
      sagents update conversations --drop-old-owner  # later, when user_id is not needed any more
    ");
    assert!(host.read(SCOPE_RS).contains("Owner::new(self.team.id)"), "{}", host.read(SCOPE_RS));
    assert!(!host.read("sagents.toml").contains("scope-owner"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn the_table_field_key_and_type_of_the_user_are_not_those_of_the_team() {
    let host = host();
    generate(
        &host,
        "--scope MyApp.Accounts.Scope --owner-table users --owner-field user_id --owner-id i64 \
         --owner-module MyApp.Accounts.User",
    );
    let run = to_team(&host, &[]);
    let dropped: Vec<_> = run.stdout.lines().filter(|line| line.starts_with("dropped: ")).collect();
    assert_eq!(
        dropped,
        [
            "dropped: owner-field = user_id, it described the user",
            "dropped: owner-module = MyApp.Accounts.User, it described the user",
            "dropped: owner-table = users, it described the user",
            "dropped: owner-id = i64, it described the user",
        ]
    );
    let migration = host.read("migrations/0003_change_sagents_owner_to_team_id.sql");
    assert!(migration.contains(r#"FOREIGN KEY ("team_id") REFERENCES "teams" ("id")"#), "{migration}");
    assert!(!migration.contains(r#"REFERENCES "users""#), "{migration}");
    let scope = host.read(SCOPE_RS);
    assert!(scope.contains("crate::accounts::Team") && !scope.contains("crate::accounts::User"), "{scope}");

    // What is given again stays.
    let run = generate(&host, "-t user -f member --backfill 1");
    assert!(!run.stdout.contains("dropped"), "{}", run.stdout);
    assert!(host.read("src/conversations/conversation.rs").contains("pub member: i64"));
}

#[test]
fn the_way_through_one_scope_is_not_the_way_through_another() {
    let host = host();
    generate(&host, "--scope MyApp.Accounts.Scope --scope-owner user.id");
    let run = generate(&host, "--scope crate::accounts::Scope");
    assert!(!run.stdout.contains("dropped"), "it is the same scope in another notation: {}", run.stdout);
    let run = generate(&host, "--scope MyApp.Accounts.Session");
    assert!(
        run.stdout.contains("\ndropped: scope-owner = user.id, it described crate::accounts::Scope\n"),
        "{}",
        run.stdout
    );
    assert!(host.read(SCOPE_RS).contains("Owner::new(self.user_id)"), "{}", host.read(SCOPE_RS));
}

#[test]
fn an_owner_that_changes_in_the_file_drops_what_was_not_changed_with_it() {
    let host = host();
    generate(&host, "--scope MyApp.Accounts.Scope --scope-owner user.id --owner-field user_id");
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &options.replace("owner-field = \"user_id\"", "owner-type = \"team\""));
    let report: serde_json::Value = serde_json::from_str(&host.generate("update --json").stdout).unwrap();
    assert_eq!(report[0]["dropped"][0]["option"], "scope-owner");
    assert!(host.read(SCOPE_RS).contains("Owner::new(self.team.id)"), "{}", host.read(SCOPE_RS));

    // Said in the same edit, it holds.
    let options = host.read("sagents.toml").replace("\"team\"", "\"user\"\nscope-owner = \"user.id\"");
    host.write("sagents.toml", &options);
    let run = host.generate("update");
    assert!(!run.stdout.contains("dropped"), "{}", run.stdout);
    assert!(host.read("sagents.toml").contains("scope-owner = \"user.id\""));
}

#[test]
fn a_backfill_that_could_read_another_table_is_refused_before_anything_is_written() {
    let host = host();
    let accounts = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, user_id INTEGER, created_at TEXT);\n";
    host.write("migrations/0002_billing.sql", accounts);
    host.write(
        "src/accounts.rs",
        &format!("{}\npub struct Account {{\n    pub id: i64,\n}}\n", host.read("src/accounts.rs")),
    );
    generate(&host, "--scope MyApp.Accounts.Scope");
    let before = host.files();
    let backfill = |text: &str| {
        let args = ["-t", "account", "--scope-owner", "user.id", "--backfill", text];
        host.sagents_in(".", &[&["gen", "persistence", "MyApp.Conversations"], &args[..]].concat())
    };
    let run = backfill("(SELECT id FROM accounts WHERE accounts.user_id = user_id ORDER BY created_at LIMIT 1)");
    assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
    error: --backfill: `user_id` could be a column of `accounts` or of the conversation
    help: write `(SELECT id FROM accounts WHERE accounts.user_id = conversation.user_id ORDER BY created_at LIMIT 1)`
    exit 2
    ");
    assert!(host.files() == before);
    let run =
        backfill("(SELECT id FROM accounts WHERE accounts.user_id = conversation.user_id ORDER BY created_at LIMIT 1)");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let migration = host.read("migrations/0004_change_sagents_owner_to_account_id.sql");
    assert!(
        migration
            .contains("UPDATE \"sagents_conversations\" AS conversation SET \"sagents_new_owner\" = (SELECT id FROM"),
        "{migration}"
    );
}
