//! Hosts that are compiled and linted, and whose generated tests run, on a real database.
//!
//! Compiling is what takes the time here. So there are few workspaces with many contexts, and they stand at the same place
//! in every run. While the tests of one run, the next one is compiled. The names put the slowest first.

mod documents;
#[path = "../support/markdown.rs"]
mod markdown;
#[path = "../support/postgres.rs"]
mod postgres;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use support::{FOR_DOCUMENTS, FULL, Host, OLDEST_ON_POSTGRES, OLDEST_ON_SQLITE, Run, manifest};

#[test]
fn hosts_with_sqlx_0_9_pass_their_tests_without_a_warning() {
    let compiled = Compiled::new("new");
    let host = &compiled.host;
    compiled.write_workspace("0.9", &["identity", "landed", "matrix", "my_app"]);
    host.write("my_app/Cargo.toml", &manifest("my_app", "2024", &format!("\n[dev-dependencies]\n{FOR_DOCUMENTS}")));
    host.write("my_app/src/lib.rs", &format!("//! An application.\n\n{STRICT}\n{DOCUMENTED}"));
    host.write("my_app/src/accounts.rs", include_str!("hosts/accounts.rs"));
    host.write("my_app/src/documents.rs", &documents::module());
    write_identity(host);
    write_landed(host, "sqlite_none", "sagents_");
    write_matrix(host, ON_SQLITE);

    compiled.generate("my_app", &format!("{FULL} --web axum"));
    documents::apply(host, "my_app", "docs/own-code.md", "A call");
    let scope = host.read("my_app/src/conversations/scope.rs");
    assert!(scope.contains("Owner::new(self.user.id)"), "{scope}");
    generate_scopes(host);
    generate_matrix(&compiled, MATRIX, "");
    generate_matrix(&compiled, &[GUESTS], "");

    compiled.prove(Targets::All);
}

#[test]
fn owners_change_in_a_host_that_edited_every_generated_file() {
    let compiled = Compiled::new("edited");
    let host = &compiled.host;
    for (path, text) in [
        ("Cargo.toml", include_str!("hosts/edited/manifest.toml")),
        ("src/lib.rs", "pub mod accounts;\n"),
        ("src/accounts.rs", include_str!("hosts/edited/accounts.rs")),
        ("migrations/0001_accounts.up.sql", include_str!("hosts/edited/accounts.up.sql")),
        ("migrations/0001_accounts.down.sql", "DROP TABLE memberships;\nDROP TABLE users;\nDROP TABLE teams;\n"),
        ("member/Cargo.toml", include_str!("hosts/member.toml")),
        ("member/src/lib.rs", ""),
    ] {
        host.write(path, text);
    }
    compiled.generate(
        ".",
        "gen persistence conversations --path member --scope Member.Caller --owner-type team --owner-id uuid",
    );
    compiled.generate(".", "gen persistence conversations --scope MyApp.Accounts.Scope --scope-owner user.id");
    let column = documents::apply(host, ".", "docs/own-code.md", "A column");
    for (path, old, new) in EDITS {
        let text = host.read(path);
        assert!(text.contains(old), "{path} has no {old:?}");
        host.write(path, &text.replacen(old, new, 1));
    }
    let generated = host.files().into_keys().filter(|path| path.starts_with("src/"));
    let generated: Vec<_> =
        generated.filter(|path| !["src/lib.rs", "src/accounts.rs"].contains(&path.as_str())).collect();
    for path in &generated {
        host.write(path, &format!("{}\n// Edited by its owner.\n", host.read(path)));
    }

    // A bare `user_id` would be that of the membership, and the first one would get every conversation.
    let backfill = |user: &str| {
        let query = "SELECT team_id FROM memberships WHERE memberships.user_id";
        let backfill = format!("({query} = {user} ORDER BY joined_at LIMIT 1)");
        host.sagents_in(".", &["gen", "persistence", "conversations", "-t", "team", "--backfill", &backfill])
    };
    assert_eq!(backfill("user_id").code, 2);
    let run = backfill("conversation.user_id");
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for (path, _, new) in EDITS {
        assert!(host.read(path).contains(new), "{path} lost {new:?}");
    }
    for edit in column {
        assert!(host.read(&edit.path).contains(&edit.new), "{} lost {:?}", edit.path, edit.new);
    }
    assert!(!host.read("src/conversations/display_message.rs").contains("pub fn message_id(mut self"));
    for path in &generated {
        assert!(host.read(path).ends_with("\n// Edited by its owner.\n"), "{path}");
    }
    add_test(host, "src", "my_app", include_str!("hosts/edited/test.rs"));
    compiled.cargo("fmt --package member --check");
    compiled.test(&compiled.build(Targets::Tests));
    assert_eq!(host.sagents("check").code, 0);
}

/// A renamed local, a new method, a reformatted function and a removed method.
const EDITS: &[(&str, &str, &str)] = &[
    (
        "src/conversations/messages.rs",
        "        let message = message.checked()?;\n        self.store\n            \
         .append_display_message(&owner, conversation_id, &message)",
        "        let checked = message.checked()?;\n        self.store\n            \
         .append_display_message(&owner, conversation_id, &checked)",
    ),
    (
        "src/conversations.rs",
        "    /// Creates a conversation. Repeating",
        "    /// For statements of the application's own.\n    #[must_use]\n    pub fn database(&self) -> &Pool {\n        \
         &self.store.pool\n    }\n\n    /// Creates a conversation. Repeating",
    ),
    (
        "src/conversations/states.rs",
        "    pub async fn load_todos(\n        &self,\n        scope: &(impl OwnerScope + ?Sized),\n        conversation_id: Uuid,\n    ) \
         -> Result<Vec<Todo>> {",
        "    pub async fn load_todos(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Vec<Todo>> {",
    ),
    (
        "src/conversations/display_message.rs",
        "    /// Sets the message id, so that the append can be repeated.\n    #[must_use]\n    pub fn \
         message_id(mut self, message_id: Uuid) -> Self {\n        self.message_id = message_id;\n        self\n    }\n\n",
        "",
    ),
];

/// Every kind of owner, key, prefix and place, each as a context of one library, with what reads its owner.
const MATRIX: &[(&str, &str)] = &[
    ("Matrix.Conversations --scope Matrix.Scopes.Scope --web axum", "self.user.id"),
    (
        "crate::chat::conversations --scope matrix::scopes::AccountScope --owner-type account --table-prefix my_app_ai_",
        "self.account_id.clone().ok_or(Error::NoOwner)?",
    ),
    (
        "team_chats --scope crate::scopes::TeamScope --owner-type team --table-prefix team_",
        "map_err(|_| Error::NoOwner)?",
    ),
    ("notes --owner-type none --table-prefix=", "impl OwnerScope for Everyone"),
    (
        // The group is a column of the owner's table.
        "logins --scope crate::scopes::Session --owner-table user --group-type organization --table-prefix login_",
        "Group::new(i64::from(organization.id))",
    ),
    (
        // The group is in a table of memberships.
        "devices --scope crate::scopes::DeviceScope --owner-type device --owner-id uuid --group-type club \
         --group-field club --table-prefix device_ --web axum",
        "Group::new(self.club.clone().ok_or(Error::NoOwner)?)",
    ),
];

/// Without a table of owners, whose tables have one reference less.
const GUESTS: (&str, &str) = (
    "guests --scope crate::scopes::GuestScope --owner-type guest --owner-table none --table-prefix guest_",
    "let Self::Guest(guest) = self else {",
);

/// Other ways to read an owner. These contexts differ from those above in names and in `scope.rs`, which does not depend
/// on the database, and nothing else of them is compiled.
const SCOPES: &[(&str, &str)] = &[
    ("org_chats --scope crate::scopes::OrgScope --owner-type org", "self.org_id.to_string()"),
    ("company_chats --scope crate::scopes::CompanyScope --owner-type company", "let Self::Company(id) = self else {"),
    ("tenants --scope crate::scopes::Owner --owner-type tenant", "matches!(self.r#type, crate::scopes::Role::Tenant)"),
    ("visitors --scope identity::Caller --owner-type visitor", "let Self::Visitor { id, .. } = self else {"),
    ("clients --scope crate::scopes::ClientScope --owner-type client", "self.client_id()"),
];

/// The library for them, with tests of its own beside the generated ones.
fn write_matrix(host: &Host, of_database: &[(&str, &str)]) {
    let of_every_database = [
        ("Cargo.toml", include_str!("hosts/matrix.toml")),
        ("src/lib.rs", "pub mod scopes;\n"),
        ("src/scopes.rs", include_str!("hosts/scopes.rs")),
        ("migrations/0001_owners.down.sql", include_str!("hosts/owners.down.sql")),
        ("tests/all/concurrency.rs", include_str!("hosts/tests/concurrency.rs")),
        ("tests/deployment.rs", include_str!("hosts/tests/deployment.rs")),
        ("tests/all/exports.rs", include_str!("hosts/tests/exports.rs")),
        ("tests/all/histories.rs", include_str!("hosts/tests/histories.rs")),
        ("tests/all/killed.rs", include_str!("hosts/tests/killed.rs")),
        ("tests/all/migrations.rs", include_str!("hosts/tests/migrations.rs")),
        ("tests/all/pressure/mod.rs", include_str!("hosts/tests/pressure/mod.rs")),
        ("tests/all/pressure/sessions.rs", include_str!("hosts/tests/pressure/sessions.rs")),
        ("tests/all/rows.rs", include_str!("hosts/tests/rows.rs")),
        ("tests/all/source/mod.rs", include_str!("hosts/tests/source.rs")),
        ("tests/all/sessions/branches.rs", include_str!("hosts/tests/sessions/branches.rs")),
        ("tests/all/sessions/conflicts.rs", include_str!("hosts/tests/sessions/conflicts.rs")),
        ("tests/all/sessions/failing.rs", include_str!("hosts/tests/sessions/failing.rs")),
        ("tests/all/sessions/mod.rs", include_str!("hosts/tests/sessions/mod.rs")),
        ("tests/all/sessions/messages.rs", include_str!("hosts/tests/sessions/messages.rs")),
        ("tests/all/sessions/rewinds.rs", include_str!("hosts/tests/sessions/rewinds.rs")),
        ("tests/all/sessions/running.rs", include_str!("hosts/tests/sessions/running.rs")),
        ("tests/all/sessions/saving.rs", include_str!("hosts/tests/sessions/saving.rs")),
        ("tests/all/sessions/turns.rs", include_str!("hosts/tests/sessions/turns.rs")),
        ("tests/all/states.rs", &include_str!("hosts/tests/states.rs").replace("// {{ guide }}\n", &guide())),
        ("tests/all/storage/mod.rs", include_str!("hosts/tests/storage.rs")),
        ("tests/all/strategies/mod.rs", include_str!("../runtime/strategies.rs")),
        ("tests/all/versions.rs", include_str!("hosts/tests/versions.rs")),
        ("tests/all/web/agent.rs", include_str!("hosts/tests/web/agent.rs")),
        ("tests/all/web/client.rs", include_str!("hosts/tests/web/client.rs")),
        ("tests/all/web/events.rs", include_str!("hosts/tests/web/events.rs")),
        ("tests/all/web/groups.rs", include_str!("hosts/tests/web/groups.rs")),
        ("tests/all/web/limits.rs", include_str!("hosts/tests/web/limits.rs")),
        ("tests/all/web/mod.rs", include_str!("hosts/tests/web/mod.rs")),
        ("tests/all/web/page.rs", include_str!("hosts/tests/web/page.rs")),
        ("tests/all/web/routes.rs", include_str!("hosts/tests/web/routes.rs")),
    ];
    // One program for nearly all of them: it is linked once, and what tests share is compiled once.
    let mut modules = BTreeSet::new();
    let mut write = |path: &str, text: &str| {
        host.write(&format!("matrix/{path}"), text);
        let name = path.strip_prefix("tests/all/").and_then(|path| path.split(['/', '.']).next());
        modules.extend(name.map(|name| format!("mod {name};\n")));
    };
    for (path, text) in of_every_database.iter().chain(of_database) {
        write(path, text);
    }
    for (name, owners) in [
        ("devices", include_str!("hosts/tests/devices.rs")),
        ("everyone", include_str!("hosts/tests/everyone.rs")),
        ("users", include_str!("hosts/tests/users.rs")),
    ] {
        let text = include_str!("hosts/tests/tenants.rs").replace("// {{ owners }}\n", owners);
        write(&format!("tests/all/tenants_{name}.rs"), &text);
    }
    let modules = String::from_iter(modules);
    host.write("matrix/tests/all/main.rs", &format!("//! What the contexts do.\n\n{modules}\nuse matrix::sagents;\n"));
}

const ON_SQLITE: &[(&str, &str)] = &[
    ("migrations/0001_owners.up.sql", include_str!("hosts/owners.up.sql")),
    ("migrations/0002_odd.up.sql", include_str!("hosts/odd.up.sql")),
    ("migrations/0002_odd.down.sql", include_str!("hosts/odd.down.sql")),
    ("tests/all/database/mod.rs", include_str!("hosts/tests/database_sqlite.rs")),
    ("tests/all/plans.rs", include_str!("hosts/tests/plans_sqlite.rs")),
    ("tests/all/pressure/of_database/clock.rs", include_str!("hosts/tests/pressure/sqlite/clock.rs")),
    ("tests/all/pressure/of_database/disk.rs", include_str!("hosts/tests/pressure/sqlite/disk.rs")),
    ("tests/all/pressure/of_database/files.rs", include_str!("hosts/tests/pressure/sqlite/files.rs")),
    ("tests/all/pressure/of_database/housekeeping.rs", include_str!("hosts/tests/pressure/sqlite/housekeeping.rs")),
    ("tests/all/pressure/of_database/mod.rs", include_str!("hosts/tests/pressure/sqlite/mod.rs")),
    ("tests/all/pressure/of_database/searches.rs", include_str!("hosts/tests/pressure/sqlite/searches.rs")),
    ("tests/all/pressure/of_database/writers.rs", include_str!("hosts/tests/pressure/sqlite/writers.rs")),
];

const ON_POSTGRES: &[(&str, &str)] = &[
    ("migrations/0001_owners.up.sql", include_str!("hosts/owners_postgres.up.sql")),
    ("migrations/0002_odd.up.sql", include_str!("hosts/odd_postgres.up.sql")),
    ("migrations/0002_odd.down.sql", include_str!("hosts/odd_postgres.down.sql")),
    ("tests/all/crash.rs", include_str!("hosts/tests/crash.rs")),
    ("tests/all/database/mod.rs", include_str!("hosts/tests/database_postgres.rs")),
    ("tests/all/database/server.rs", include_str!("../support/postgres.rs")),
    ("tests/all/outage.rs", include_str!("hosts/tests/outage.rs")),
    ("tests/all/plans.rs", include_str!("hosts/tests/plans_postgres.rs")),
    ("tests/all/pressure/of_database/mod.rs", include_str!("hosts/tests/pressure/postgres/mod.rs")),
    ("tests/all/pressure/of_database/searches.rs", include_str!("hosts/tests/pressure/postgres/searches.rs")),
    ("tests/all/pressure/of_database/writers.rs", include_str!("hosts/tests/pressure/postgres/writers.rs")),
    ("tests/all/setup.rs", include_str!("hosts/tests/setup.rs")),
    ("tests/all/statements.rs", include_str!("hosts/tests/statements.rs")),
    ("tests/all/unavailable.rs", include_str!("hosts/tests/unavailable.rs")),
];

/// Generates contexts in the matrix. Each reads its owner as it should.
fn generate_matrix(compiled: &Compiled, contexts: &[(&str, &str)], options: &str) {
    for (context, expected) in contexts {
        compiled.generate("matrix", &format!("gen persistence {context} {options}"));
        let path = context.split_whitespace().next().unwrap().replace("Matrix.Conversations", "conversations");
        let path = path.trim_start_matches("crate::").replace("::", "/");
        let scope = compiled.host.read(&format!("matrix/src/{path}/scope.rs"));
        assert!(scope.contains(expected), "{context}\n{scope}");
    }
}

/// Generates contexts in copies of the matrix, and puts what reads their owners into a module of the matrix.
fn generate_scopes(host: &Host) {
    let mut readers =
        vec!["//! How other contexts read their owners.\n\nuse crate::conversations::{Error, Result};\n".to_owned()];
    for (context, expected) in SCOPES {
        let copy = Host::empty();
        for (path, bytes) in host.files() {
            copy.write(&path, str::from_utf8(&bytes).unwrap());
        }
        let run = copy.sagents_in("matrix", &[&["gen", "persistence"], &*support::words(context)].concat());
        assert_eq!(run.code, 0, "{context}\n{}{}", run.stdout, run.stderr);
        let name = context.split_whitespace().next().unwrap();
        let scope = copy.read(&format!("matrix/src/{name}/scope.rs"));
        assert!(scope.contains(expected), "{context}\n{scope}");
        host.write(&format!("matrix/src/readers/{name}.rs"), &scope);
        readers.push(format!("\n#[allow(dead_code, reason = \"is for a store\")]\npub mod {name};\n"));
    }
    host.write("matrix/src/readers.rs", &readers.concat());
    host.write("matrix/src/lib.rs", "pub mod readers;\npub mod scopes;\n");
}

/// The examples of the runtime's documentation, each as a test.
fn guide() -> String {
    let mut tests = String::new();
    let documentation = include_str!("../../templates/runtime/sagents.rs").lines();
    let mut lines = documentation.map_while(|line| line.strip_prefix("//!")).map(|line| line.trim_start_matches(' '));
    let mut count = 0;
    while lines.any(|line| line == "```ignore") {
        count += 1;
        let example: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        tests += &include_str!("hosts/tests/example.rs").replace("example_0", &format!("example_{count}"));
        tests = tests.replace("// {{ example }}", &example.join("\n"));
    }
    assert_eq!(count, 10, "every usage pattern has its example");
    tests
}

const OF_USERS: &str = "gen persistence conversations --scope crate::accounts::scope::Scope";

#[test]
fn older_hosts_with_sqlx_0_8_pass_their_tests_without_a_warning() {
    let compiled = Compiled::new("older hosts");
    let host = &compiled.host;
    compiled.write_workspace("0.8", &["binary", "private", "renamed"]);
    write_binary(host, "binary", &format!("\"{OLDEST_ON_SQLITE}\""));
    write_private(host);
    let db = format!(
        "\n[dependencies]\ndb = {{ package = \"sqlx\", version = \"{OLDEST_ON_SQLITE}\", default-features = false }}\n"
    );
    host.write("renamed/Cargo.toml", &manifest("renamed", "2021", &db));
    host.write("renamed/src/lib.rs", "");

    compiled.generate("binary", OF_USERS);
    assert!(host.exists("binary/src/conversations/mod.rs"));
    assert!(host.read("binary/src/conversations/tests/database.rs").contains(r#"CREATE TABLE "user" ("user_id" BLOB"#));
    compiled.generate("binary", "gen persistence archive --owner-type none --table-prefix archive_ --no-tests");
    compiled.generate(
        "private",
        "gen persistence Private.Chat.Conversations --scope Private.Accounts.Caller --scope-owner 0",
    );
    compiled.generate(
        "renamed",
        "gen persistence conversations --scope Renamed.Accounts.Scope --owner-type account --owner-id text",
    );

    compiled.prove(Targets::All);
}

/// It cannot be in a workspace with a later sqlx: each wants a libsqlite3-sys of its own, even if it is not compiled.
#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn an_older_host_with_sqlx_0_7_passes_its_tests_without_a_warning() {
    let compiled = Compiled::with_server("oldest");
    let host = &compiled.host;
    host.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"binary\"]\n");
    let sqlx = format!("{{ version = \"{OLDEST_ON_POSTGRES}\", features = [\"postgres\", \"time\"] }}");
    write_binary(host, "binary", &sqlx);

    compiled.generate("binary", OF_USERS);
    let tables = host.read("binary/src/conversations/tests/database.rs");
    assert!(tables.contains(r#"CREATE TABLE "user" ("user_id" UUID"#), "{tables}");
    // The owner's table is in a schema of its own, which no migration here makes.
    compiled.generate(
        "binary",
        "gen persistence archive --scope crate::accounts::scope::Scope --owner-table auth.users --owner-id uuid \
         --table-prefix archive_",
    );
    assert!(!host.read("binary/Cargo.toml").contains("chrono"));
    compiled.prove(Targets::All);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn hosts_on_other_stacks_pass_their_tests_without_a_warning() {
    let compiled = Compiled::with_server("stacks");
    let members =
        r#"["on_diesel", "on_loco", "on_loco/migration", "on_refinery", "on_sea_orm", "on_sea_orm/migration"]"#;
    compiled.host.write("Cargo.toml", &format!("[workspace]\nresolver = \"3\"\nmembers = {members}\n"));
    compiled.write(&[ON_DIESEL, ON_LOCO, ON_REFINERY, ON_SEA_ORM]);
    for directory in ["on_diesel", "on_refinery", "on_sea_orm"] {
        generate_twice(&compiled, directory, "crate::accounts::Scope");
    }
    let run = generate_twice(&compiled, "on_loco", "crate::models::users::Model --scope-owner id");
    assert!(run.stdout.contains("cargo loco db migrate"), "{}", run.stdout);
    for (name, test) in [
        ("on_diesel", include_str!("hosts/diesel/test.rs")),
        ("on_loco", include_str!("hosts/loco/test.rs")),
        ("on_refinery", include_str!("hosts/refinery/test.rs")),
        ("on_sea_orm", include_str!("hosts/sea_orm/test.rs")),
    ] {
        add_test(&compiled.host, &format!("{name}/src"), name, test);
    }
    compiled.prove(Targets::Tests);
}

/// Adds a test that uses a library as others do. It is part of the library, which is compiled once then.
fn add_test(host: &Host, sources: &str, library: &str, text: &str) {
    let root = format!("{sources}/lib.rs");
    let items = format!("\n#[cfg(test)]\nextern crate self as {library};\n#[cfg(test)]\nmod test;\n");
    host.write(&root, &(host.read(&root) + &items));
    host.write(&format!("{sources}/test.rs"), text);
}

/// A host with two migrations of ours: tables, and other names for them.
fn generate_twice(compiled: &Compiled, directory: &str, scope: &str) -> Run {
    let first = format!("gen persistence conversations --scope {scope}");
    compiled.generate(directory, &first);
    compiled.generate(directory, &format!("{first} --table-prefix chat_"))
}

/// A library with the migrations of diesel in it.
const ON_DIESEL: &[(&str, &str)] = &[
    ("on_diesel/Cargo.toml", include_str!("hosts/diesel/manifest.toml")),
    ("on_diesel/diesel.toml", "[migrations_directory]\ndir = \"migrations\"\n"),
    ("on_diesel/migrations/2024-01-01-000000_users/up.sql", "CREATE TABLE users (id UUID PRIMARY KEY);\n"),
    ("on_diesel/migrations/2024-01-01-000000_users/down.sql", "DROP TABLE users;\n"),
    ("on_diesel/src/lib.rs", include_str!("hosts/diesel/lib.rs")),
    ("on_diesel/src/accounts.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub user_id: Uuid,\n}\n"),
];

/// A library on tokio-postgres with the migrations of refinery in it.
const ON_REFINERY: &[(&str, &str)] = &[
    ("on_refinery/Cargo.toml", include_str!("hosts/refinery/manifest.toml")),
    ("on_refinery/migrations/V1__users.sql", "CREATE TABLE users (id UUID PRIMARY KEY);\n"),
    ("on_refinery/src/lib.rs", include_str!("hosts/refinery/lib.rs")),
    ("on_refinery/src/accounts.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub user_id: Uuid,\n}\n"),
];

/// As `loco new` leaves it, on the newest sqlx 0.8 and `SQLite`.
const ON_LOCO: &[(&str, &str)] = &[
    ("on_loco/Cargo.toml", include_str!("hosts/loco/manifest.toml")),
    ("on_loco/.cargo/config.toml", "[alias]\nloco = \"run --\"\n"),
    ("on_loco/config/development.yaml", include_str!("hosts/loco/development.yaml")),
    ("on_loco/src/lib.rs", "pub mod models;\n"),
    ("on_loco/src/models/mod.rs", "pub mod _entities;\npub mod users;\n"),
    ("on_loco/src/models/users.rs", include_str!("hosts/loco/model.rs")),
    ("on_loco/src/models/_entities/mod.rs", "pub mod users;\n"),
    ("on_loco/src/models/_entities/users.rs", include_str!("hosts/loco/entity.rs")),
    ("on_loco/migration/Cargo.toml", include_str!("hosts/loco/migration.toml")),
    ("on_loco/migration/src/lib.rs", include_str!("hosts/loco/migrator.rs")),
    ("on_loco/migration/src/m20220101_000001_create_users.rs", include_str!("hosts/sea_orm/create_users.rs")),
];

/// A library that keeps the migrations of sea-orm in a crate of their own.
const ON_SEA_ORM: &[(&str, &str)] = &[
    ("on_sea_orm/Cargo.toml", include_str!("hosts/sea_orm/manifest.toml")),
    ("on_sea_orm/src/lib.rs", "pub mod accounts;\n"),
    ("on_sea_orm/src/accounts.rs", "pub struct Scope {\n    pub user_id: i32,\n}\n"),
    ("on_sea_orm/migration/Cargo.toml", include_str!("hosts/sea_orm/migration.toml")),
    ("on_sea_orm/migration/src/lib.rs", include_str!("hosts/sea_orm/migrator.rs")),
    ("on_sea_orm/migration/src/m20220101_000001_create_users.rs", include_str!("hosts/sea_orm/create_users.rs")),
];

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn hosts_on_postgres_pass_their_tests_without_a_warning() {
    let compiled = Compiled::with_server("postgres");
    let host = &compiled.host;
    compiled.write_workspace("0.9", &["identity", "landed", "matrix"]);
    write_identity(host);
    write_landed(host, "postgres_none", "as_long_as_a_prefix_may_be_in_tables");
    write_matrix(host, ON_POSTGRES);

    generate_matrix(&compiled, MATRIX, "--database postgres");
    compiled.prove(Targets::All);
}

#[test]
fn init_makes_a_package_that_passes_its_tests_and_runs_without_an_edit() {
    let compiled = Compiled::new("init");
    let host = &compiled.host;
    compiled.generate_by_program("gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init");
    assert!(host.read("Cargo.toml").contains("name = \"my_app\""));
    let programs = compiled.prove(Targets::All);

    let first = compiled.show(&programs);
    let printed = documents::output("docs/getting-started.md", "cargo run");
    assert_eq!(markdown::redacted(&first), markdown::redacted(&printed));
    let second = compiled.show(&programs);
    assert_eq!((shown(&first), shown(&second)), (1, 2), "the second run finds the first one's");
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn init_with_a_page_makes_a_package_that_passes_its_tests_and_answers_without_an_edit() {
    let compiled = Compiled::with_server("init on postgres");
    compiled.generate_by_program(
        "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-id uuid --database postgres \
         --web axum --init",
    );
    // It comes from SQLite, and has a context on each for a while.
    compiled.generate(
        ".",
        "gen persistence former --scope MyApp.Accounts.Scope --database sqlite --table-prefix former_ \
         --migrations migrations/sqlite",
    );
    compiled.host.write("tests/moving.rs", include_str!("hosts/tests/moving.rs"));
    let programs = compiled.prove(Targets::All);
    let served = Served::start(&compiled, &programs);
    assert!(served.ask("GET", "/login", "", "").contains("Ada"));
    assert!(served.ask("GET", "/api/me", "", "").starts_with("HTTP/1.1 401"));
    let login = served.ask("POST", "/login", "content-type: application/x-www-form-urlencoded\r\n", "user=ada");
    assert!(login.contains("set-cookie: user=ada;"), "{login}");

    let ada = "cookie: user=ada\r\ncontent-type: application/json\r\n";
    let created = served.ask("POST", "/api/conversations", ada, "{}");
    let id = created.split_once("\"id\":\"").and_then(|(_, rest)| rest.split_once('"')).expect(&created).0;
    let messages = format!("/api/conversations/{id}/messages");
    let sent = served.ask("POST", &messages, ada, &format!(r#"{{"id":"{id}","text":"What time is it?"}}"#));
    assert!(sent.starts_with("HTTP/1.1 202"), "{sent}");
    while !served.ask("GET", &messages, ada, "").contains("The tool says: 2") {
        thread::sleep(Duration::from_millis(50));
    }
    let bob = served.ask("GET", &messages, "cookie: user=bob\r\n", "");
    assert!(bob.starts_with("HTTP/1.1 404"), "{bob}");
    served.stop();
}

/// The program of a new package with a page, while it runs.
struct Served {
    program: Child,
    address: String,
}

impl Served {
    fn start(compiled: &Compiled, programs: &[Program]) -> Self {
        let program = programs.iter().find(|program| !program.is_test).unwrap();
        let mut command = program.command();
        if let Some(database) = &compiled.database {
            command.env("DATABASE_URL", database.url());
        }
        command.env("PORT", "0").env("SCRIPTED_DELAY_MS", "1").stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut printed = BufReader::new(program.stdout.take().unwrap()).lines();
        let address = printed.find_map(|line| line.unwrap().strip_prefix("http://").map(str::to_owned)).unwrap();
        Self { program, address }
    }

    /// The whole reply to a request.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let (address, length) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn stop(mut self) {
        let id = self.program.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.program.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        drop(self.program.kill());
    }
}

/// How many conversations a new package shows.
fn shown(printed: &str) -> usize {
    printed.lines().filter(|line| line.contains("A first conversation")).count()
}

/// A library that knows who is asking.
fn write_identity(host: &Host) {
    host.write("identity/Cargo.toml", &manifest("identity", "2024", ""));
    host.write("identity/src/lib.rs", include_str!("hosts/identity.rs"));
}

/// What the first version generated, as a library that works on the tables of the matrix without a prefix.
fn write_landed(host: &Host, set: &str, prefix: &str) {
    let landed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/landed");
    for directory in ["shared", set] {
        let mut files = Host::at(landed.join(directory)).files();
        files.retain(|path, _| path.starts_with("src/") || path == "manifest.toml");
        for (path, bytes) in files {
            let path = path.replace("manifest.toml", "Cargo.toml");
            let text = String::from_utf8(bytes).unwrap().replace(&format!("\"{prefix}"), "\"");
            // Nobody tests it alone.
            let text = text.replace("[dependencies]", "[lib]\ntest = false\n\n[dependencies]");
            host.write(&format!("landed/{path}"), &text.replace("name = \"my_app\"", "name = \"landed\""));
        }
    }
}

/// The modules of a library that also has what the pages show.
const DOCUMENTED: &str = "\
#[cfg(test)]
extern crate self as my_app;

pub mod accounts;
#[cfg(test)]
#[rustfmt::skip]
mod documents;
";

/// Lints that are off by default and that some hosts deny.
const STRICT: &str = "\
#![deny(
    missing_docs,
    let_underscore_drop,
    unreachable_pub,
    unused_qualifications,
    unused_results,
    clippy::future_not_send,
    clippy::pedantic,
    clippy::unwrap_used
)]
";

/// Only a binary, with `mod.rs` files, lines that end as on Windows, and an owner's table whose name is a keyword.
fn write_binary(host: &Host, name: &str, sqlx: &str) {
    let dependencies = format!("\n[dependencies]\nsqlx = {sqlx}\nuuid = \"1\"\n");
    for (path, text) in [
        ("Cargo.toml", manifest(name, "2021", &dependencies).as_str()),
        (
            "src/main.rs",
            &format!(
                "//! A program.\n\n{STRICT}\nmod accounts;\n\nfn main() {{\n    println!(\"{{}}\", accounts::NAME);\n}}\n"
            ),
        ),
        (
            "src/accounts/mod.rs",
            "#![allow(unreachable_pub)]\n\npub mod scope;\n\npub const NAME: &str = \"accounts\";\n",
        ),
        ("src/accounts/scope.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub user_id: Option<Uuid>,\n}\n"),
        (
            "migrations/20240101000000_users.sql",
            "CREATE TABLE \"user\" (user_id UUID NOT NULL PRIMARY KEY, email TEXT);\n",
        ),
    ] {
        host.write(&format!("{name}/{path}"), &text.replace('\n', "\r\n"));
    }
}

/// A library and a binary; the context gets into a module that no other crate sees. Its points in time are those of `time`.
fn write_private(host: &Host) {
    let dependencies = format!(
        "\n[dependencies]\nsqlx = {{ version = \"{OLDEST_ON_SQLITE}\", features = [\"time\"] }}\n\n\
         [dev-dependencies]\nchrono = \"0.4\"\n"
    );
    for (path, text) in [
        ("Cargo.toml", manifest("private", "2021", &dependencies).as_str()),
        ("tests/times.rs", include_str!("hosts/tests/times.rs")),
        (
            "src/lib.rs",
            "//! A library\n//! of an earlier time.\n#![forbid(unsafe_code)]\n#![deny(missing_docs)]\n\n\
             pub mod accounts;\nmod chat;\n",
        ),
        ("src/main.rs", "//! Its binary.\n\nfn main() {}\n"),
        ("src/chat.rs", "//! For this crate only.\n"),
        ("src/accounts.rs", "//! Who is asking.\n\n/// A caller.\npub struct Caller(pub i64);\n"),
    ] {
        host.write(&format!("private/{path}"), text);
    }
}

/// What of a host is compiled.
#[derive(Clone, Copy)]
enum Targets {
    /// Everything, and its documentation is made.
    All,
    /// What other hosts have too without their tests is compiled with them only.
    Tests,
}

/// A host at a fixed place.
struct Compiled {
    host: Host,
    database: Option<postgres::Database>,
}

impl Compiled {
    fn new(name: &str) -> Self {
        Self { host: Host::compiled(name), database: None }
    }

    /// As `new`, with a database on a real server for `DATABASE_URL`.
    fn with_server(name: &str) -> Self {
        Self { database: Some(postgres::Database::new()), ..Self::new(name) }
    }

    /// A workspace with these members. One more asks for every feature that a host may ask for, so that all workspaces
    /// with a version of sqlx share what they compile of their dependencies. With this resolver, macros share it too.
    fn write_workspace(&self, sqlx: &str, members: &[&str]) {
        let members = [members, &["dependencies"]].concat();
        self.host.write("Cargo.toml", &format!("[workspace]\nresolver = \"1\"\nmembers = {members:?}\n"));
        let manifest = manifest("dependencies", "2024", &support::dependencies(sqlx));
        self.host.write("dependencies/Cargo.toml", &manifest);
        self.host.write("dependencies/src/lib.rs", "//! Nothing but its dependencies.\n");
    }

    /// Writes the files of members, before cargo reads the workspace.
    fn write(&self, members: &[&[(&str, &str)]]) {
        for (path, text) in members.concat() {
            self.host.write(path, text);
        }
    }

    /// Runs the real program in the host; it must succeed.
    fn generate_by_program(&self, args: &str) {
        let run = self.host.program(args);
        assert_eq!(run.code, 0, "{args}\n{}{}", run.stdout, run.stderr);
    }

    /// Calls `sagents` in a directory below the host; it must succeed.
    fn generate(&self, directory: &str, args: &str) -> Run {
        let run = self.host.sagents_in(directory, &args.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{args}\n{}{}", run.stdout, run.stderr);
        run
    }

    /// The host is formatted, it and its documentation are without a warning, and its tests pass.
    fn prove(&self, targets: Targets) -> Vec<Program> {
        self.cargo("fmt --all --check");
        let programs = self.build(targets);
        self.test(&programs);
        programs
    }

    /// Compiles the host without a warning.
    fn build(&self, targets: Targets) -> Vec<Program> {
        let targets = match targets {
            Targets::All => "--all-targets",
            Targets::Tests => "--tests",
        };
        let turn = support::build_turn();
        let built = self.cargo(&format!("build --workspace {targets} --message-format json-render-diagnostics"));
        drop(turn);
        built.stdout.lines().filter_map(Program::parse).collect()
    }

    /// Runs the tests, some at once: they wait for the database most of the time.
    fn test(&self, programs: &[Program]) {
        const AT_ONCE: usize = 3;
        let tests = Mutex::new(programs.iter().filter(|program| program.is_test));
        let next = || tests.lock().unwrap_or_else(PoisonError::into_inner).next();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(test) = next() {
                        self.run(test.command().env("RUST_TEST_THREADS", "4"));
                    }
                });
            }
        });
    }

    /// Runs the only program of the host that is no test, and returns what it prints.
    fn show(&self, programs: &[Program]) -> String {
        let [program] = programs.iter().filter(|program| !program.is_test).collect::<Vec<_>>()[..] else {
            panic!("one program is expected: {programs:?}")
        };
        self.run(&mut program.command()).stdout
    }

    /// Runs cargo in the host; it must succeed. Cargo compiles one host at a time; meanwhile the tests of others run.
    fn cargo(&self, args: &str) -> Run {
        let mut command = support::cargo(&self.host);
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper());
        if self.database.is_some() {
            // It does not depend on the database, see tests/cli/seam.rs.
            command.env("PUBLIC_DOCUMENTATION", "known");
        }
        self.run(command.args(args.split_whitespace()))
    }

    fn run(&self, command: &mut Command) -> Run {
        if let Some(database) = &self.database {
            command.env("DATABASE_URL", database.url());
        }
        let run = Run::of(command);
        let root = self.host.root().display();
        // Messages of cargo for programs are no help.
        let printed: Vec<_> = run.stdout.lines().filter(|line| !line.starts_with('{')).collect();
        assert_eq!(run.code, 0, "{command:?}, in {root}\n{}\n{}", printed.join("\n"), run.stderr);
        run
    }
}

/// Something that cargo has compiled and that can be run.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    /// Its package, where cargo runs it.
    directory: PathBuf,
    is_test: bool,
}

impl Program {
    /// One of cargo's messages, if it is about a program.
    fn parse(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).unwrap();
        let path = message["executable"].as_str()?;
        // A build script has an executable too, which is not shown.
        let manifest = Path::new(message["manifest_path"].as_str().unwrap());
        Some(Self {
            path: path.into(),
            directory: manifest.parent().unwrap().into(),
            is_test: message["profile"]["test"].as_bool().unwrap(),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env_remove("DATABASE_URL").env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// What compiles the hosts' own crates. Clippy is rustc with more lints: what it warns of fails, and what passes is
/// compiled. Rustdoc gets the same arguments: `cargo doc` would have to check all dependencies again.
fn wrapper() -> &'static Path {
    static WRAPPER: OnceLock<PathBuf> = OnceLock::new();
    WRAPPER.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clippy-and-rustdoc");
        fs::write(&path, include_str!("clippy-and-rustdoc")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    })
}
