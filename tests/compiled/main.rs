//! Hosts that are compiled and linted, and whose generated tests run, on a real database.
//!
//! Compiling is what takes the time here. So there are few workspaces with many contexts, and they stand at the same place
//! in every run. While the tests of one run, the next one is compiled. The names put the slowest first.

mod documents;
#[path = "../support/markdown.rs"]
mod markdown;
mod matrix;
#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod postgres;
mod stacks;
#[path = "../support/mod.rs"]
mod support;
mod workspace;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use matrix::Database;
use support::{Host, NEWEST, OLDEST_ON_POSTGRES, OLDEST_ON_SQLITE, Run, manifest};
use workspace::{Program, WithoutTests, Workspace, add_tests};

#[test]
fn hosts_with_sqlx_0_9_pass_their_tests_without_a_warning() {
    let workspace = Workspace::new("new");
    let host = &workspace.host;
    support::write_workspace(host, Some(NEWEST), &["identity", "landed", "matrix"]);
    write_identity(host);
    write_landed(host, "sqlite_none", "sagents_");
    matrix::write(&workspace, Database::Sqlite);
    workspace.prove(WithoutTests::Checked);
}

#[test]
fn owners_change_in_a_host_that_edited_every_generated_file() {
    let workspace = Workspace::new("edited");
    let host = &workspace.host;
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
    workspace.generate(
        ".",
        "gen persistence conversations --path member --scope Member.Caller --owner-type team --owner-id uuid",
    );
    workspace.generate(".", "gen persistence conversations --scope MyApp.Accounts.Scope --scope-owner user.id");
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
    add_tests(host, ".", "my_app", &[("test.rs", include_str!("hosts/edited/test.rs"))]);
    workspace.check_format("--package=member");
    workspace.test(&workspace.build(WithoutTests::Known));
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

const OF_USERS: &str = "gen persistence conversations --scope crate::accounts::scope::Scope";

#[test]
fn older_hosts_with_sqlx_0_8_pass_their_tests_without_a_warning() {
    let workspace = Workspace::new("older hosts");
    let host = &workspace.host;
    support::write_workspace(host, Some("0.8"), &["binary", "private"]);
    write_binary(host, "binary", &format!("\"{OLDEST_ON_SQLITE}\""));
    write_private(host);

    workspace.generate("binary", OF_USERS);
    assert!(host.exists("binary/src/conversations/mod.rs"));
    assert!(host.read("binary/src/conversations/tests/database.rs").contains(r#"CREATE TABLE "user" ("user_id" BLOB"#));
    workspace.generate("binary", "gen persistence archive --owner-type none --table-prefix archive_ --no-tests");
    workspace.generate(
        "private",
        "gen persistence Private.Chat.Conversations --scope Private.Accounts.Caller --scope-owner 0 --owner-type account",
    );
    add_tests(host, "private", "private", &[("times.rs", include_str!("hosts/tests/times.rs"))]);

    workspace.prove(WithoutTests::Checked);
}

/// It cannot be in a workspace with a later sqlx: each wants a libsqlite3-sys of its own, even if it is not compiled.
#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn an_older_host_with_sqlx_0_7_passes_its_tests_without_a_warning() {
    let workspace = Workspace::with_server("oldest");
    let host = &workspace.host;
    support::write_workspace(host, None, &["binary"]);
    let sqlx = format!("{{ version = \"{OLDEST_ON_POSTGRES}\", features = [\"postgres\", \"time\"] }}");
    write_binary(host, "binary", &sqlx);

    workspace.generate("binary", OF_USERS);
    let tables = host.read("binary/src/conversations/tests/database.rs");
    assert!(tables.contains(r#"CREATE TABLE "user" ("user_id" UUID"#), "{tables}");
    // The owner's table is in a schema of its own, which no migration here makes.
    workspace.generate(
        "binary",
        "gen persistence archive --scope crate::accounts::scope::Scope --owner-table auth.users --owner-id uuid \
         --table-prefix archive_",
    );
    assert!(!host.read("binary/Cargo.toml").contains("chrono"));
    workspace.prove(WithoutTests::Checked);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn hosts_on_other_stacks_pass_their_tests_without_a_warning() {
    let workspace = Workspace::with_server("stacks");
    let members = ["on_diesel", "on_loco", "on_loco/migration", "on_refinery", "on_sea_orm", "on_sea_orm/migration"];
    support::write_workspace(&workspace.host, None, &members);
    for (path, text) in [stacks::ON_DIESEL, stacks::ON_LOCO, stacks::ON_REFINERY, stacks::ON_SEA_ORM].concat() {
        workspace.host.write(path, text);
    }
    for directory in ["on_diesel", "on_refinery", "on_sea_orm"] {
        generate_twice(&workspace, directory, "crate::accounts::Scope");
    }
    let run = generate_twice(&workspace, "on_loco", "crate::models::users::Model --scope-owner id");
    assert!(run.stdout.contains("cargo loco db migrate"), "{}", run.stdout);
    for (name, test) in [
        ("on_diesel", include_str!("hosts/diesel/test.rs")),
        ("on_loco", include_str!("hosts/loco/test.rs")),
        ("on_refinery", include_str!("hosts/refinery/test.rs")),
        ("on_sea_orm", include_str!("hosts/sea_orm/test.rs")),
    ] {
        add_tests(&workspace.host, name, name, &[("test.rs", test)]);
    }
    workspace.prove(WithoutTests::Known);
}

/// A host with two migrations of ours: tables, and other names for them.
fn generate_twice(workspace: &Workspace, directory: &str, scope: &str) -> Run {
    let first = format!("gen persistence conversations --scope {scope}");
    workspace.generate(directory, &first);
    workspace.generate(directory, &format!("{first} --table-prefix chat_"))
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn hosts_on_postgres_pass_their_tests_without_a_warning() {
    let workspace = Workspace::with_server("postgres");
    let host = &workspace.host;
    support::write_workspace(host, Some(NEWEST), &["identity", "landed", "matrix"]);
    write_identity(host);
    write_landed(host, "postgres_none", "as_long_as_a_prefix_may_be_in_tables");
    matrix::write(&workspace, Database::Postgres);
    workspace.prove(WithoutTests::Checked);
}

#[test]
fn init_makes_a_package_that_passes_its_tests_and_runs_without_an_edit() {
    let workspace = Workspace::new("init");
    let host = &workspace.host;
    workspace
        .generate_by_program("gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --path my_app");
    assert!(host.read("my_app/Cargo.toml").contains("name = \"my_app\""));
    support::write_workspace(host, Some(NEWEST), &["my_app"]);
    let programs = workspace.prove(WithoutTests::Compiled);

    let first = workspace.show(&programs);
    let printed = documents::output("docs/getting-started.md", "cargo run");
    assert_eq!(markdown::redacted(&first), markdown::redacted(&printed));
    let second = workspace.show(&programs);
    assert_eq!((shown(&first), shown(&second)), (1, 2), "the second run finds the first one's");
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn init_with_a_page_makes_a_package_that_passes_its_tests_and_answers_without_an_edit() {
    let workspace = Workspace::with_server("init on postgres");
    workspace.generate_by_program(
        "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-id uuid --database postgres \
         --web axum --init --path my_app",
    );
    // It comes from SQLite, and has a context on each for a while.
    workspace.generate(
        "my_app",
        "gen persistence former --scope MyApp.Accounts.Scope --database sqlite --table-prefix former_ \
         --migrations migrations/sqlite",
    );
    workspace.host.write("my_app/tests/moving.rs", include_str!("hosts/tests/moving.rs"));
    support::write_workspace(&workspace.host, Some(NEWEST), &["my_app"]);
    let programs = workspace.prove(WithoutTests::Compiled);
    let served = Served::start(&workspace, &programs);
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
    fn start(workspace: &Workspace, programs: &[Program]) -> Self {
        let program = programs.iter().find(|program| !program.is_test).unwrap();
        let mut command = program.command();
        if let Some(database) = &workspace.database {
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

/// Lints that are off by default and that some hosts deny.
pub const STRICT: &str = "\
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

/// A library and a binary; the context gets into a module that no other crate sees. Its points in time are those of `time`,
/// its owners have texts, and it calls sqlx something else.
fn write_private(host: &Host) {
    let dependencies = format!(
        "\n[dependencies]\ndb = {{ package = \"sqlx\", version = \"{OLDEST_ON_SQLITE}\", default-features = false, \
         features = [\"time\"] }}\n\n[dev-dependencies]\nchrono = \"0.4\"\n\n\
         [[bin]]\nname = \"private\"\npath = \"src/main.rs\"\ntest = false\n"
    );
    for (path, text) in [
        ("Cargo.toml", manifest("private", "2021", &dependencies).as_str()),
        (
            "src/lib.rs",
            "//! A library\n//! of an earlier time.\n#![forbid(unsafe_code)]\n#![deny(missing_docs)]\n\n\
             pub mod accounts;\nmod chat;\n",
        ),
        ("src/main.rs", "//! Its binary.\n\nfn main() {}\n"),
        ("src/chat.rs", "//! For this crate only.\n"),
        ("src/accounts.rs", "//! Who is asking.\n\n/// A caller.\npub struct Caller(pub String);\n"),
    ] {
        host.write(&format!("private/{path}"), text);
    }
}
