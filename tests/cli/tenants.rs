//! Reruns never give one tenant's rows to another. The way to the owner and the rows' owners change together, or a person
//! decides.

mod property;
#[path = "../support/story.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod story;

use crate::support::{Host, Run};

const SCOPE_RS: &str = "src/conversations/scope.rs";

const USER_AND_TEAM: &str = "pub struct User {\n    pub id: i64,\n}\n\npub struct Team {\n    pub id: i64,\n}\n\n";

/// Users, teams and accounts, each with a table of its own and an integer key.
fn host(scope: &str) -> Host {
    let host = Host::with_accounts("").file(
        "migrations/0001_accounts.sql",
        "CREATE TABLE teams (id INTEGER PRIMARY KEY);\n\
         CREATE TABLE users (id INTEGER PRIMARY KEY, team_id INTEGER);\n\
         CREATE TABLE accounts (id INTEGER PRIMARY KEY, user_id INTEGER);\n\
         CREATE TABLE former_accounts (id INTEGER PRIMARY KEY);\n",
    );
    edit_scope(&host, scope);
    host
}

fn edit_scope(host: &Host, scope: &str) {
    host.write("src/accounts.rs", &format!("{USER_AND_TEAM}pub struct Scope {{\n    {scope}\n}}\n"));
}

fn run(host: &Host, options: &[&str]) -> Run {
    let run = [&["gen", "persistence", "MyApp.Conversations", "--scope", "crate::accounts::Scope"], options].concat();
    host.unformatted(&run)
}

fn generate(host: &Host, options: &[&str]) {
    let run = run(host, options);
    assert_eq!(run.code, 0, "{options:?}\n{}{}", run.stdout, run.stderr);
}

/// A run that leaves the decision to a person, and everything as it was.
fn refused(host: &Host, options: &[&str]) -> String {
    let before = host.files();
    let run = run(host, options);
    assert_eq!(run.code, 5, "{options:?}\n{}{}", run.stdout, run.stderr);
    assert!(host.files() == before, "{options:?}");
    run.stderr
}

fn reads(host: &Host, expression: &str) -> bool {
    host.read(SCOPE_RS).contains(&format!(", self.{expression})"))
}

/// The newest migration.
fn newest(host: &Host) -> String {
    let files = host.files();
    let newest = files.keys().rfind(|path| path.starts_with("migrations/")).unwrap();
    host.read(newest)
}

const THREE_OWNERS: &str = "pub user: User,\n    pub team: Team,\n    pub account_id: i64,";
const OF_ACCOUNTS: &[&str] = &["--owner-type", "account", "--owner-field", "owner_id", "--scope-owner", "account_id"];
const TO_TEAMS: &[&str] = &[
    "--owner-type",
    "team",
    "--backfill",
    "(SELECT u.team_id FROM accounts a JOIN users u ON u.id = a.user_id WHERE a.id = conversation.owner_id)",
];

#[test]
fn a_former_owners_column_does_not_fill_that_of_another_owner() {
    let host = host(THREE_OWNERS);
    generate(&host, OF_ACCOUNTS);
    generate(&host, TO_TEAMS);
    let failure = refused(&host, &["--owner-type", "user", "--owner-field", "owner_id"]);
    assert!(failure.contains("--backfill"), "{failure}");
    generate(&host, &["--owner-type", "user", "--owner-field", "owner_id", "--backfill", "1"]);
}

#[test]
fn a_former_owners_column_does_not_fill_that_of_another_owner_after_there_was_none() {
    let host = host(THREE_OWNERS);
    generate(&host, OF_ACCOUNTS);
    generate(&host, &["--owner-type", "none"]);
    let failure = refused(&host, &["--owner-type", "user", "--owner-field", "owner_id"]);
    assert!(failure.contains("--backfill"), "{failure}");
}

#[test]
fn a_former_owners_column_does_not_fill_that_of_owners_in_another_table() {
    let host = host(THREE_OWNERS);
    generate(&host, OF_ACCOUNTS);
    generate(&host, TO_TEAMS);
    for table in ["former_accounts", "none"] {
        let failure = refused(&host, &[OF_ACCOUNTS, &["--owner-table", table]].concat());
        assert!(failure.contains("--backfill"), "{failure}");
    }
}

#[test]
fn a_former_owners_column_fills_that_of_the_same_owner_whatever_it_is_called() {
    let host = host(THREE_OWNERS);
    generate(&host, OF_ACCOUNTS);
    generate(&host, TO_TEAMS);
    generate(&host, &["--owner-type", "account"]);
    let migration = newest(&host);
    assert!(migration.contains("SET \"sagents_new_owner\" = \"owner_id\""), "{migration}");
    assert!(reads(&host, "account_id"));
}

#[test]
fn a_second_way_to_the_owner_is_a_persons_decision() {
    let host = host("pub user: User,");
    generate(&host, &[]);
    edit_scope(&host, "/// The admin who acts.\n    pub user_id: i64,\n    pub user: User,");
    let failure = refused(&host, &[]);
    assert!(failure.contains("`user_id`") && failure.contains("`user.id`"), "{failure}");
    assert!(failure.contains("`--scope-owner user_id`") && failure.contains("`--scope-owner user.id`"), "{failure}");
    assert_eq!(host.unformatted(&["update"]).code, 5);
    assert_eq!(host.unformatted(&["check"]).code, 5);
    generate(&host, &["--scope-owner", "user.id"]);
    assert!(reads(&host, "user.id"));
    assert_eq!(host.unformatted(&["update"]).code, 0);
}

#[test]
fn of_two_ways_to_the_owner_a_first_run_chooses_none() {
    let host = host("pub user: User,\n    pub user_id: i64,");
    let failure = refused(&host, &[]);
    assert!(failure.contains("`--scope-owner user_id`") && failure.contains("`--scope-owner user.id`"), "{failure}");
    generate(&host, &["--scope-owner", "user_id"]);
    assert!(reads(&host, "user_id"));
}

#[test]
fn another_way_to_the_same_owner_is_a_persons_decision() {
    let host = host("pub user: User,");
    generate(&host, &[]);
    edit_scope(&host, "pub user_id: i64,");
    let failure = refused(&host, &[]);
    assert!(failure.contains("`user.id`") && failure.contains("`--scope-owner user_id`"), "{failure}");
    generate(&host, &["--scope-owner", "user_id"]);
    assert!(reads(&host, "user_id"));
}

#[test]
fn another_way_to_a_former_owner_is_a_persons_decision() {
    let host = host("pub user: User,\n    pub team: Team,");
    generate(&host, &[]);
    generate(&host, &["--owner-type", "team", "--backfill", "1"]);
    edit_scope(&host, "pub user_id: i64,\n    pub team: Team,");
    let failure = refused(&host, &["--owner-type", "user"]);
    assert!(failure.contains("`user.id`") && failure.contains("`--scope-owner user_id`"), "{failure}");
    generate(&host, &["--owner-type", "user", "--scope-owner", "user_id"]);
}

#[test]
fn the_way_to_the_group_is_a_persons_decision_as_well() {
    let scope = |group: &str| format!("pub user_id: Option<i64>,\n    {group}");
    let group = ["--group-type", "team"];
    let both = scope("pub team: Option<Team>,\n    pub team_id: Option<i64>,");
    let ways =
        |failure: &str| failure.contains("`--scope-group team_id`") && failure.contains("`--scope-group team.id`");

    let first = host(&both);
    let failure = refused(&first, &group);
    assert!(ways(&failure), "{failure}");

    let host = host(&scope("pub team: Option<Team>,"));
    generate(&host, &group);
    edit_scope(&host, &both);
    let failure = refused(&host, &[]);
    assert!(ways(&failure), "{failure}");
    edit_scope(&host, &scope("pub team_id: Option<i64>,"));
    let failure = refused(&host, &[]);
    assert!(failure.contains("`team.id`") && failure.contains("`--scope-group team_id`"), "{failure}");
    generate(&host, &["--scope-group", "team_id"]);
}

#[test]
fn the_members_of_a_group_are_not_read_from_another_column() {
    let host = host("pub user_id: Option<i64>,\n    pub team_id: Option<i64>,");
    let memberships = "CREATE TABLE memberships (team_id INTEGER, member INTEGER REFERENCES users (id));\n";
    host.write("migrations/0002_memberships.sql", memberships);
    let group = ["--group-type", "team", "--group-table", "memberships"];
    generate(&host, &[&group[..], &["--owner-field", "inviter"]].concat());
    host.write("migrations/0004_inviters.sql", "ALTER TABLE memberships ADD COLUMN inviter INTEGER;\n");
    generate(&host, &[]);
    let reads = |column: &str| host.read("src/conversations.rs").contains(&format!("member: \"{column}\" }}"));
    assert!(reads("member"), "a column of ours says nothing about it");

    host.write("migrations/0005_users.sql", "ALTER TABLE memberships ADD COLUMN user_id INTEGER;\n");
    let failure = refused(&host, &[]);
    assert!(failure.contains("`member`") && failure.contains("`user_id`"), "{failure}");
    generate(&host, &["--group-type", "none"]);
    generate(&host, &group);
    assert!(reads("user_id"));
}

#[test]
fn the_name_of_a_column_says_nothing_about_the_scope() {
    let to_accounts = ["--owner-type", "account", "--owner-field", "user_id", "--backfill", "1"];
    let host = host("pub user_id: i64,\n    pub account_id: i64,");
    generate(&host, &[]);
    generate(&host, &to_accounts);
    assert!(reads(&host, "account_id"), "{}", host.read(SCOPE_RS));

    let host = self::host("pub user_id: i64,");
    generate(&host, &[]);
    let failure = refused(&host, &to_accounts);
    assert!(failure.contains("--scope-owner"), "{failure}");
}

#[test]
fn a_column_of_the_same_owner_can_get_another_name() {
    let host = host("pub user_id: i64,");
    generate(&host, &[]);
    generate(&host, &["--owner-field", "user_key"]);
    assert!(reads(&host, "user_id"));
    let migration = newest(&host);
    assert!(migration.contains("RENAME COLUMN \"user_id\" TO \"user_key\""), "{migration}");
    assert!(!migration.contains("sagents_new_owner"), "{migration}");
}

#[test]
fn a_record_of_the_owner_that_is_gone_is_not_guessed() {
    let host = host("pub user_id: i64,");
    generate(&host, &[]);
    std::fs::remove_file(host.root().join(".sagents/conversations/resolved.toml")).unwrap();
    edit_scope(&host, "pub current_user_id: i64,");
    let failure = refused(&host, &[]);
    assert!(failure.contains("restore .sagents/"), "{failure}");
}
