//! Groups of owners: where the group of an owner is found, how a scope names it, and reruns that add, change and remove it.

use crate::support::{Host, Run};

const SCOPE: &str = "src/conversations/scope.rs";
const CONTEXT: &str = "src/conversations.rs";
const MODEL: &str = "src/conversations/display_message.rs";

/// A scope with an optional user, organization and team, and what the migrations make.
fn host(migration: &str) -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file(
            "src/accounts.rs",
            "pub struct Organization {\n    pub id: i64,\n}\n\n\
             pub struct Scope {\n    pub user_id: Option<i64>,\n    pub organization: Option<Organization>,\n    \
             pub team_id: Option<uuid::Uuid>,\n    pub name: Option<String>,\n}\n\n\
             pub struct Login {\n    pub user_id: i64,\n}\n",
        )
        .file("migrations/0001_accounts.up.sql", migration)
        .file("migrations/0001_accounts.down.sql", "")
}

const COLUMN: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, organization_id INTEGER, team_id TEXT);\n\
                      CREATE INDEX of_organization ON users (organization_id);\n";
const MEMBERSHIPS: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY);\n\
                           CREATE TABLE memberships (organization_id INTEGER, member INTEGER REFERENCES users (id), \
                           PRIMARY KEY (organization_id, member));\n";

fn run(host: &Host, options: &str) -> Run {
    host.sagents(&format!("gen persistence conversations --scope crate::accounts::Scope {options}"))
}

fn generate(host: &Host, options: &str) -> Run {
    let run = run(host, options);
    assert_eq!(run.code, 0, "{options}\n{}{}", run.stdout, run.stderr);
    run
}

/// What a run that must fail says.
fn refused(host: &Host, code: i32, options: &str) -> String {
    let before = host.files();
    let run = run(host, options);
    assert_eq!(run.code, code, "{options}\n{}{}", run.stdout, run.stderr);
    assert_eq!(host.files(), before, "{options}");
    run.stderr
}

#[test]
fn the_group_is_a_column_of_the_owners_table() {
    let host = host(COLUMN);
    let run = generate(&host, "--group-type organization");
    assert!(run.stdout.contains("group organization (users, organization_id)"), "{}", run.stdout);
    assert!(!run.stdout.contains("note:"), "{}", run.stdout);
    let context = host.read(CONTEXT);
    assert!(context.contains("(SELECT +id FROM users WHERE organization_id = $1)"), "{context}");
    let scope = host.read(SCOPE);
    assert!(scope.contains("let organization = self.organization.as_ref().ok_or(Error::NoOwner)?;"), "{scope}");
    assert_eq!(host.sagents("check").code, 0);
    assert_eq!(generate(&host, "").stdout.lines().next().map(|line| line.starts_with("Up to date")), Some(true));
}

#[test]
fn the_group_is_in_the_one_table_that_refers_to_the_owner() {
    let host = host(MEMBERSHIPS);
    let run = generate(&host, "--group-type organization");
    assert!(run.stdout.contains("group organization (memberships, organization_id)"), "{}", run.stdout);
    let context = host.read(CONTEXT);
    assert!(context.contains("(SELECT +member FROM memberships WHERE organization_id = $1)"), "{context}");
}

#[test]
fn a_table_in_another_schema_is_named_with_it() {
    let host = host(
        "CREATE SCHEMA staff;\nCREATE TABLE users (id BIGINT PRIMARY KEY);\n\
         CREATE TABLE staff.members (user_id BIGINT, organization_id BIGINT);\n",
    );
    let run = generate(&host, "--group-type organization --database postgres");
    assert!(run.stdout.contains("No index of `staff.members` starts with `organization_id`"), "{}", run.stdout);
    let context = host.read(CONTEXT);
    assert!(context.contains("(SELECT user_id FROM staff.members WHERE organization_id = $1)"), "{context}");
    let refused = refused(&host, 5, "--group-type organization --group-table members --database postgres");
    assert!(refused.contains("--group-table staff.members"), "{refused}");
}

#[test]
fn a_column_that_the_owners_table_lacks_is_missed_after_our_own_migrations_too() {
    const MIGRATION: &str = "migrations/0001_accounts.up.sql";
    const GROUP: &str = "--group-type organization --group-table users";
    const LACKS: &str = "error: --group-table: `users` has no column `organization_id`; it has `id`";
    let host = host("CREATE TABLE users (id BIGINT PRIMARY KEY);\n");
    generate(&host, "--database postgres");
    assert!(refused(&host, 2, GROUP).starts_with(LACKS));

    // Somebody put both into one file, without the line that names ours.
    let create = host.read(&host.find("_create_sagents_persistence.up.sql"));
    let squashed = host.read(MIGRATION) + create.split_once('\n').unwrap().1;
    let squashed = self::host(&squashed);
    assert!(refused(&squashed, 2, &format!("{GROUP} --database postgres --table-prefix chat_")).starts_with(LACKS));
}

#[test]
fn of_several_tables_a_person_chooses_one() {
    let host = host(
        "CREATE TABLE users (id INTEGER PRIMARY KEY);\n\
         CREATE TABLE memberships (user_id INTEGER, organization_id INTEGER);\n\
         CREATE TABLE invoices (user_id INTEGER, organization_id INTEGER);\n",
    );
    let failure = refused(&host, 5, "--group-type organization");
    assert!(failure.contains("migrations has `memberships` and `invoices`"), "{failure}");
    assert!(failure.contains("`--group-table memberships` or `--group-table invoices`"), "{failure}");
    generate(&host, "--group-type organization --group-table memberships");
    assert!(host.read("sagents.toml").contains("group-table = \"memberships\""));
}

#[test]
fn where_no_table_names_the_group_nothing_is_assumed() {
    let host = host("CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let failure = refused(&host, 5, "--group-type organization");
    assert!(
        failure.contains("looked for a column `organization_id` in `users`, and for a table with `user_id` and"),
        "{failure}"
    );
    let run = generate(&host, "--group-type organization --group-table members");
    assert!(
        run.stdout.contains("has no table `members`; its columns are taken to be `user_id` and `organization_id`"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_key_of_text_is_a_uuid_if_the_scope_has_one() {
    let host = host(COLUMN);
    generate(&host, "--group-type team");
    let scope = host.read(SCOPE);
    assert!(scope.contains("Ok(Key::from(self.team_id.ok_or(Error::NoOwner)?.to_string()))"), "{scope}");
    let failure = refused(&host, 5, "--group-type organization --scope-group name");
    assert!(failure.contains("`name` in crate::accounts::Scope is `String`"), "{failure}");
    assert!(failure.contains("--scope-group"), "{failure}");
}

#[test]
fn what_cannot_be_a_group_is_refused() {
    let host = host(COLUMN);
    for (options, code, reason) in [
        ("--group-type user", 2, "--group-type: the user is the owner itself"),
        ("--group-type Organization", 2, "--group-type: `Organization` is not in snake case"),
        ("--group-type match", 2, "--group-type: "),
        ("--group-type organization --group-field user_id", 2, "--group-field: `user_id` is the owner's"),
        ("--group-type organization --group-field rowid", 2, "--group-field: `rowid` is a column that every table"),
        ("--group-type organization --group-field org", 5, "looked for a column `org` in `users`"),
        ("--group-type organization --group-table users --group-field org", 2, "`users` has no column `org`"),
        ("--group-type organization --group-table a\"b", 2, "--group-table: `a\"b` contains"),
        ("--group-type organization --group-table temp.users", 2, "--group-table: `temp.users` is temporary"),
        (
            "--group-type organization --group-table sagents_conversations",
            2,
            "--group-table: `sagents_conversations` is a table of the context itself",
        ),
        ("--group-type organization --scope-group nobody", 2, "--scope-group: `crate::accounts::Scope` in"),
        ("--group-type club --group-field organization_id", 5, "how the id of the club is read"),
        ("--group-type organization --owner-type none", 2, "--group-type contradicts --owner-type none"),
        ("--group-field organization_id", 2, "--group-field describes a group, and there is none"),
        ("--group-table users", 2, "--group-table describes a group, and there is none"),
        ("--scope-group organization.id", 2, "--scope-group describes a group, and there is none"),
    ] {
        let failure = refused(&host, code, options);
        assert!(failure.contains(reason), "{options}\n{failure}");
        assert!(!failure.contains("--scope-owner"), "{options}\n{failure}");
    }
}

#[test]
fn a_column_that_no_statement_could_name_is_refused() {
    let host = host(
        "CREATE TABLE users (id INTEGER PRIMARY KEY);\n\
         CREATE TABLE memberships (organization_id INTEGER, [it\"#s] INTEGER REFERENCES users (id));\n",
    );
    let failure = refused(&host, 2, "--group-type organization");
    assert!(failure.contains("--group-table: `it\"#s` contains"), "{failure}");
}

#[test]
fn a_member_of_another_type_than_the_owner_is_refused() {
    let host = host(
        "CREATE TABLE users (id INTEGER PRIMARY KEY);\n\
         CREATE TABLE memberships (organization_id INTEGER, user_id TEXT);\n",
    );
    let failure = refused(&host, 5, "--group-type organization");
    assert!(
        failure.contains("`user_id` of table `memberships` is declared `TEXT`, but the key of the user"),
        "{failure}"
    );
}

#[test]
fn a_scope_that_always_has_an_owner_is_never_a_groups() {
    let host = host(COLUMN);
    let run = host.generate("gen persistence conversations --scope crate::accounts::Login --group-type organization");
    assert!(run.stdout.contains("so none reads for a whole organization"), "{}", run.stdout);
    let scope = host.read(SCOPE);
    assert!(!scope.contains("fn group(") && !scope.contains("Key"), "{scope}");
}

#[test]
fn a_scope_that_is_created_has_both() {
    let host = host(COLUMN);
    let run = host.generate(
        "gen persistence conversations --scope crate::callers::Caller --create-scope --group-type organization",
    );
    assert!(!run.stdout.contains("note:"), "{}", run.stdout);
    let scope = host.read("src/callers.rs");
    assert!(scope.contains("pub user_id: Option<i64>,"), "{scope}");
    assert!(scope.contains("pub organization_id: Option<i64>,"), "{scope}");
}

/// The newest migration, up and down.
fn newest(host: &Host) -> [String; 2] {
    let files = host.files();
    let newest = files.keys().rfind(|path| path.starts_with("migrations/") && path.ends_with(".up.sql")).unwrap();
    let statements = |path: &str| {
        let text = host.read(path);
        let lines = text.lines().filter(|line| !line.starts_with("--") && !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    };
    [statements(newest), statements(&newest.replace(".up.", ".down."))]
}

#[test]
fn a_group_comes_changes_and_goes_with_an_index_and_keeps_edits() {
    let host = host(COLUMN);
    generate(&host, "");
    let fresh = host.files();
    let edited = host.read(MODEL) + "\n// Ours.\n";
    host.write(MODEL, &edited);

    generate(&host, "--group-type organization");
    let index = r#"CREATE INDEX "sagents_conversations_id" ON "sagents_conversations" ("id");"#;
    let dropped = r#"DROP INDEX "sagents_conversations_id";"#;
    assert_eq!(newest(&host), [index, dropped]);
    assert_eq!(host.read(MODEL), edited, "models do not know of groups");

    // Another group has other statements, and the same tables.
    let migrations = |host: &Host| host.files().keys().filter(|path| path.starts_with("migrations/")).count();
    let before = migrations(&host);
    generate(&host, "--group-type team");
    assert_eq!(migrations(&host), before);
    assert!(host.read(CONTEXT).contains("FROM users WHERE team_id = $1)"));

    let run = generate(&host, "--group-type none");
    assert_eq!(newest(&host), [dropped, index]);
    assert!(!host.read(CONTEXT).contains("GROUP"), "{}", run.stdout);
    assert_eq!(host.read(MODEL), edited);
    for (path, text) in &fresh {
        if path.starts_with("src/") && path != MODEL {
            assert_eq!(&host.files()[path], text, "{path} is as without a group");
        }
    }
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn what_describes_a_group_goes_with_it_and_with_the_owner() {
    let host = host(&format!("{COLUMN}CREATE TABLE teams (id TEXT PRIMARY KEY, organization_id INTEGER);\n"));
    let described = "--group-table users --group-field organization_id --scope-group organization.id";
    generate(&host, &format!("--group-type organization {described}"));
    let recorded = ["group-type", "group-field", "group-table", "scope-group"];
    let text = host.read("sagents.toml");
    assert!(recorded.iter().all(|option| text.contains(option)), "{text}");
    assert!(generate(&host, "").stdout.starts_with("Up to date"), "they are carried over");

    let run = generate(&host, "--group-type team");
    for dropped in [
        "dropped: group-field = organization_id, it described the organization",
        "dropped: group-table = users, it described the organization",
        "dropped: scope-group = organization.id, it described the organization",
    ] {
        assert!(run.stdout.contains(dropped), "{}", run.stdout);
    }

    generate(&host, &format!("--group-type organization {described}"));
    let backfill = "(SELECT team_id FROM users WHERE users.id = conversation.user_id)";
    let args = ["gen", "persistence", "conversations", "--owner-type", "team", "--owner-id", "uuid"];
    let run = host.sagents_in(".", &[&args[..], &["--backfill", backfill]].concat());
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("dropped: group-table = users, it described the user"), "{}", run.stdout);
    assert!(run.stdout.contains("group organization (teams, organization_id)"), "{}", run.stdout);
    assert!(host.read("sagents.toml").contains("scope-group"), "the way to the organization is the same");

    let run = host.sagents("gen persistence conversations --owner-type none");
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("dropped: group-type = organization, it described the team"), "{}", run.stdout);
    assert!(!host.read("sagents.toml").contains("group"));
}

#[test]
fn a_group_that_moved_to_another_table_needs_a_decision() {
    let host = host(MEMBERSHIPS);
    generate(&host, "--group-type organization");
    host.write("migrations/0003_column.up.sql", "ALTER TABLE users ADD COLUMN organization_id INTEGER;\n");
    host.write("migrations/0003_column.down.sql", "");
    let failure = refused(&host, 5, "");
    assert!(failure.contains("--group-table memberships` keeps it, `--group-table users` changes it"), "{failure}");
}

#[test]
fn a_new_package_with_groups_has_a_table_of_its_owners() {
    let host = Host::empty();
    let args = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init";
    let run = host.generate(&format!("{args} --group-type organization"));
    assert!(run.stdout.contains("group organization (users, organization_id)"), "{}", run.stdout);
    let migration = host.read("migrations/0001_create_owners.up.sql");
    assert!(migration.contains(r#"CREATE INDEX "users_organization_id""#), "{migration}");
    assert!(host.read("src/main.rs").contains("organization_id: Some(1)"));
    assert!(host.read("src/accounts.rs").contains("pub organization_id: Option<i64>"));
    assert_eq!(host.sagents("check").code, 0);
    let run = Host::empty().sagents(&format!("{args} --group-type organization --group-table members"));
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
}

#[test]
fn a_new_package_has_its_owners_in_a_directory_however_it_is_written_and_in_a_column_of_their_own() {
    let line = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --group-type organization";
    let host = Host::empty();
    host.generate(&format!("{line} --migrations ./db"));
    assert!(host.read("db/0001_create_owners.up.sql").contains("\"organization_id\""));

    let host = Host::empty();
    let run = host.sagents(&format!("{line} --group-field id"));
    assert_eq!((run.code, host.files().len()), (2, 0), "{}", run.stderr);
    assert!(run.stderr.starts_with("error: --group-field: `id` names the user itself\n"), "{}", run.stderr);
}
