//! Reruns with another owner or another scope: what described the former one is not carried over.

use insta::assert_snapshot;

use crate::support::{Host, Run};
use crate::transcript::{anonymous, refusals};

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
             pub struct Session {\n    pub user_id: i64,\n}\n\n\
             pub struct Login {\n    pub user: User,\n}\n",
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
      updated   src/conversations/scope.rs
      updated   src/conversations/tests.rs
      updated   src/conversations.rs

    dropped: scope-owner = user.id, it described the user

    Next:
      sqlx migrate run --source migrations           # changes the tables in DATABASE_URL
      sagents update conversations --drop-old-owner  # later, when user_id is not needed any more
    ");
    assert!(host.read(SCOPE_RS).contains("Owner::new(\"team\", self.team.id)"), "{}", host.read(SCOPE_RS));
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
    let run = generate(&host, "--scope MyApp.Accounts.Login");
    assert!(
        run.stdout.contains("\ndropped: scope-owner = user.id, it described crate::accounts::Scope\n"),
        "{}",
        run.stdout
    );
    let run = host.sagents("gen persistence MyApp.Conversations --scope MyApp.Accounts.Session");
    assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
    error: the user was read from `crate::accounts::Login` as `user.id`, and would now be read from `crate::accounts::Session` as `user_id`
    help: if `user_id` is the same user, give `--scope-owner user_id`
    exit 5
    ");
    generate(&host, "--scope MyApp.Accounts.Session --scope-owner user_id");
    assert!(host.read(SCOPE_RS).contains("Owner::new(\"user\", self.user_id)"), "{}", host.read(SCOPE_RS));
}

#[test]
fn an_owner_that_changes_in_the_file_drops_what_was_not_changed_with_it() {
    let host = host();
    generate(&host, "--scope MyApp.Accounts.Scope --scope-owner user.id --owner-field user_id");
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &options.replace("owner-field = \"user_id\"", "owner-type = \"team\""));
    assert_eq!(host.sagents("update").code, 5);
    host.write("sagents.toml", &(host.read("sagents.toml") + "backfill = \"none\"\n"));
    let report: serde_json::Value = serde_json::from_str(&host.generate("update --json").stdout).unwrap();
    assert_eq!(report[0]["dropped"][0]["option"], "scope-owner");
    assert!(host.read(SCOPE_RS).contains("Owner::new(\"team\", self.team.id)"), "{}", host.read(SCOPE_RS));

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

#[test]
fn a_bare_column_that_only_the_conversation_has_is_accepted() {
    let host = host();
    generate(&host, "--scope MyApp.Accounts.Scope --scope-owner user.id");
    let backfill = "(SELECT team_id FROM users WHERE users.id = user_id)";
    let run =
        host.sagents_in(".", &["gen", "persistence", "MyApp.Conversations", "-t", "team", "--backfill", backfill]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(host.read(SCOPE_RS).contains("Owner::new(\"team\", self.team.id)"), "{}", host.read(SCOPE_RS));
}

/// How the owner is read from a scope, with what is imported for it.
fn reading(accounts: &str, options: &str) -> String {
    let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", accounts);
    host.generate(&format!("gen persistence conversations -s accounts::Scope {options}"));
    let text = host.read(SCOPE_RS);
    let imports = text.lines().filter(|line| line.starts_with("use crate::"));
    let body = text.lines().skip_while(|line| !line.contains("fn owner(")).skip(1);
    imports.chain(body.take_while(|line| *line != "    }")).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_owner_is_read_from_the_variant_of_an_enum() {
    let users = "pub struct User {\n    pub id: i64,\n}\n\n";
    let shapes = [
        "pub enum Scope {\n    User(i64),\n    Organization(i64),\n    Anonymous,\n}\n",
        "pub enum Scope {\n    User(User),\n    Organization { id: i64 },\n}\n",
        "pub enum Scope {\n    User { id: String, admin: bool },\n    Anonymous,\n}\n",
        "pub enum Scope {\n    User(Option<User>, u8),\n}\n",
        "pub enum Scope {\n    User(i64),\n}\n",
        "pub enum Actor {\n    User(User),\n    Job,\n}\n\npub struct Scope {\n    pub actor: Option<Actor>,\n}\n",
    ];
    let all = shapes.map(|shape| reading(&format!("{users}{shape}"), ""));
    assert_snapshot!(all.join("\n"), @r#"
    use crate::accounts::Scope;
            let Self::User(id) = self else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", *id))

    use crate::accounts::Scope;
            let Self::User(user) = self else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", user.id))

    use crate::accounts::Scope;
            let Self::User { id, .. } = self else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", id.clone()))

    use crate::accounts::Scope;
            let Self::User(Some(user), ..) = self else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", user.id))

    use crate::accounts::Scope;
            let Self::User(id) = self;
            Ok(Owner::new("user", *id))

    use crate::accounts::{Actor, Scope};
            let actor = self.actor.as_ref().ok_or(Error::NoOwner)?;
            let Actor::User(user) = actor else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", user.id))
    "#);
}

#[test]
fn the_owner_is_read_where_a_kind_says_that_it_is_one() {
    let kind = "pub enum ScopeKind {\n    User,\n    Organization,\n}\n\n";
    let all = [
        reading(&format!("{kind}pub struct Scope {{\n    pub kind: ScopeKind,\n    pub id: i64,\n}}\n"), ""),
        reading(
            &format!("{kind}pub struct Scope {{\n    pub r#type: ScopeKind,\n    pub id: Option<String>,\n}}\n"),
            "--owner-type organization",
        ),
        reading(
            "pub enum Owner {\n    User,\n}\n\npub struct Scope {\n    pub kind: Owner,\n    pub id: i64,\n}\n",
            "",
        ),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    use crate::accounts::{Scope, ScopeKind};
            if !matches!(self.kind, ScopeKind::User) {
                return Err(Error::NoOwner);
            }
            Ok(Owner::new("user", self.id))

    use crate::accounts::{Scope, ScopeKind};
            if !matches!(self.r#type, ScopeKind::Organization) {
                return Err(Error::NoOwner);
            }
            Ok(Owner::new(
                "organization",
                self.id.clone().ok_or(Error::NoOwner)?,
            ))

    use crate::accounts::Scope;
            if !matches!(self.kind, crate::accounts::Owner::User) {
                return Err(Error::NoOwner);
            }
            Ok(Owner::new("user", self.id))
    "#);
}

#[test]
fn of_an_optional_user_and_organization_the_owner_is_read() {
    let scope = "pub struct User {\n    pub id: i64,\n}\n\npub struct Organization {\n    pub id: i64,\n}\n\n\
                 pub struct Scope {\n    pub user: Option<User>,\n    pub organization: Option<Organization>,\n}\n";
    assert_snapshot!([reading(scope, ""), reading(scope, "-t organization")].join("\n"), @r#"
    use crate::accounts::Scope;
            let user = self.user.as_ref().ok_or(Error::NoOwner)?;
            Ok(Owner::new("user", user.id))

    use crate::accounts::Scope;
            let organization = self.organization.as_ref().ok_or(Error::NoOwner)?;
            Ok(Owner::new("organization", organization.id))
    "#);
}

#[test]
fn a_given_way_leads_into_a_variant() {
    let scope = "pub struct User {\n    pub id: i64,\n    pub team: i64,\n}\n\n\
                 pub enum Scope {\n    Member(User),\n    Admin(User),\n    Guest { at: String },\n}\n";
    assert_snapshot!(reading(scope, "--scope-owner Admin.0.id"), @r#"
    use crate::accounts::Scope;
            let Self::Admin(owner) = self else {
                return Err(Error::NoOwner);
            };
            Ok(Owner::new("user", owner.id))
    "#);
    let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", scope);
    let line = "gen persistence conversations -s accounts::Scope --scope-owner";
    let lines = ["Admin", "Admin.1", "Guest.at()", "Nobody.0"].map(|way| format!("{line} {way}"));
    assert_snapshot!(refusals(&host, &lines.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s accounts::Scope --scope-owner Admin
    error: --scope-owner: `Admin` of `Scope` in src/accounts.rs does not lead to a key; it has
      Member(User)
      Admin(User)
      Guest { at: String }
    help: name a field of the variant, for example `Admin.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner Admin.1
    error: --scope-owner: `Admin` of `Scope` in src/accounts.rs does not lead to a key; it has
      Member(User)
      Admin(User)
      Guest { at: String }
    help: name a field of the variant, for example `Admin.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner Guest.at()
    error: --scope-owner: `Guest` of `Scope` in src/accounts.rs does not lead to a key; it has
      Member(User)
      Admin(User)
      Guest { at: String }
    help: name a field of the variant, for example `Guest.at`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner Nobody.0
    error: --scope-owner: `crate::accounts::Scope` in src/accounts.rs has no field `Nobody`; it has
      Member(User)
      Admin(User)
      Guest { at: String }
    help: name one of these, or add `pub fn owner_id(&self)` to `Scope` in that file
    exit 2
    ");
}

#[test]
fn the_owner_is_read_from_inside_the_type_of_its_id() {
    let scope = "pub struct Scope {\n    pub user_id: UserId,\n}\n\n";
    let tables = [
        ("pub struct UserId(pub Uuid);\n", "--owner-id uuid"),
        (
            "#[derive(Clone, Copy)]\npub struct UserId(Uuid);\n\nimpl From<UserId> for Uuid {\n    fn from(id: UserId) -> Self {\n        id.0\n    }\n}\n",
            "--owner-id uuid",
        ),
        ("pub struct UserId(u128);\n\nimpl std::fmt::Display for UserId {}\n", "--owner-id text"),
    ];
    let all = tables.map(|(id, options)| reading(&format!("use uuid::Uuid;\n\n{scope}{id}"), options));
    let fallible = "pub struct Scope;\n\nimpl Scope {\n    pub fn user_id(&self) -> Result<i64, Expired> {\n        unreachable!()\n    }\n}\n";
    assert_snapshot!([all.join("\n"), reading(fallible, "")].join("\n"), @r#"
    use crate::accounts::Scope;
            Ok(Owner::new("user", self.user_id.0))

    use crate::accounts::Scope;
            Ok(Owner::new("user", Uuid::from(self.user_id)))

    use crate::accounts::Scope;
            Ok(Owner::new("user", self.user_id.to_string()))

    use crate::accounts::Scope;
            Ok(Owner::new(
                "user",
                self.user_id().map_err(|_| Error::NoOwner)?,
            ))
    "#);
}

#[test]
fn the_page_about_scopes_shows_what_is_generated() {
    let page = include_str!("../../docs/scopes.md");
    let blocks: Vec<_> = page.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 6);
    for pair in blocks.chunks(2) {
        let generated = reading(pair[0], "");
        let lines = generated.lines().filter(|line| !line.starts_with("use ")).map(str::trim_start);
        let shown = pair[1].lines().map(str::trim_start);
        assert_eq!(lines.collect::<Vec<_>>(), shown.collect::<Vec<_>>(), "{}", pair[0]);
    }
}

#[test]
fn the_table_that_names_the_group_of_an_owner_is_found() {
    const COLUMN: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, organization_id INTEGER);\n\
                          CREATE INDEX users_of_organization ON users (organization_id);\n";
    const MEMBERSHIPS: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY);\n\
                               CREATE TABLE memberships (user_id INTEGER, organization_id INTEGER);\n\
                               CREATE INDEX members ON memberships (organization_id, user_id);\n";
    let scope = "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub organization_id: Option<i64>,\n}\n";
    for (tables, expected) in [(COLUMN, "users"), (MEMBERSHIPS, "memberships")] {
        let host = Host::with_accounts(scope)
            .file("migrations/0001_users.up.sql", tables)
            .file("migrations/0001_users.down.sql", "");
        let run = host.generate("gen persistence conversations -s accounts::Scope --group-type organization");
        assert!(!run.stdout.contains("No index of"), "{}", run.stdout);
        let resolved = host.read(".sagents/conversations/resolved.toml");
        assert!(resolved.contains(&format!("group-table = \"{expected}\"\n")), "{resolved}");
    }
}
