//! Fresh hosts with many contexts: every kind of key, owner and group, two editions, private modules and a binary alone.

use crate::support::{self, Host, manifest};
use crate::workspace::Workspace;

#[test]
fn contexts_on_sqlite_pass_their_tests_without_a_warning() {
    let workspace = Workspace::new("sqlite", &["binary", "matrix", "private"]);
    write_matrix(&workspace, "2024", ON_SQLITE);
    write_binary(&workspace.host);
    write_private(&workspace.host);
    generate_scopes(&workspace.host);
    generate_contexts(&workspace, "");
    workspace.generate("binary", "gen persistence conversations --scope crate::accounts::scope::Scope");
    assert!(workspace.host.exists("binary/src/conversations/mod.rs"));
    workspace.generate("binary", "gen persistence archive --owner-type none --table-prefix archive_ --no-tests");
    workspace.generate(
        "private",
        "gen persistence Private.Chat.Conversations --scope Private.Accounts.Caller --scope-owner 0 --owner-type account",
    );
    // As docs/moving.md says: one scope, two databases.
    workspace.generate(
        "private",
        "gen persistence Private.Chat.Moved --scope Private.Accounts.Caller --scope-owner 0 --owner-type account \
         --database postgres --table-prefix moved_ --migrations migrations/postgres --no-tests",
    );
    assert!(!workspace.host.exists("private/src/chat/moved/scope.rs"));
    workspace.prove();
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn contexts_on_postgres_pass_their_tests_without_a_warning() {
    let workspace = Workspace::with_server("postgres", &["matrix"]);
    write_matrix(&workspace, "2021", ON_POSTGRES);
    generate_contexts(&workspace, "--database postgres");
    workspace.prove();
}

/// Writes a library with scopes of many kinds.
fn write_matrix(workspace: &Workspace, edition: &str, migrations: &[(&str, &str)]) {
    let host = &workspace.host;
    host.write("matrix/Cargo.toml", &include_str!("hosts/matrix.toml").replace("{edition}", edition));
    host.write("matrix/src/lib.rs", &format!("//! Contexts of every kind.\n\n{STRICT}\n{MODULES}"));
    host.write("matrix/src/scopes.rs", include_str!("hosts/scopes.rs"));
    host.write("matrix/migrations/0001_owners.down.sql", include_str!("hosts/owners.down.sql"));
    for (name, text) in migrations {
        host.write(&format!("matrix/migrations/{name}"), text);
    }
}

fn generate_contexts(workspace: &Workspace, options: &str) {
    for (context, expected) in CONTEXTS {
        workspace.generate("matrix", &format!("gen persistence {context} {options}"));
        let path = context.split_whitespace().next().unwrap().replace("Matrix.Conversations", "conversations");
        let path = path.trim_start_matches("crate::").replace("::", "/");
        let scope = workspace.host.read(&format!("matrix/src/{path}/scope.rs"));
        assert!(scope.contains(expected), "{context}\n{scope}");
    }
}

/// Generates contexts in copies of the matrix, and puts what reads their owners into a module of the matrix.
fn generate_scopes(host: &Host) {
    let mut readers = vec!["//! How other contexts read their owners.\n".to_owned()];
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
        readers.push(format!("\nmod {name};\n"));
    }
    host.write("matrix/src/readers.rs", &readers.concat());
    let modules = host.read("matrix/src/lib.rs").replace("#[allow", "mod readers;\n#[allow");
    host.write("matrix/src/lib.rs", &modules);
}

/// What is there before anything is generated.
const MODULES: &str = "#[allow(missing_docs)]\npub mod scopes;\n";

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
fn write_binary(host: &Host) {
    for (path, text) in [
        ("Cargo.toml", manifest("binary", "2021", "\n[dependencies]\nuuid = \"1\"\n").as_str()),
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
        host.write(&format!("binary/{path}"), &text.replace('\n', "\r\n"));
    }
}

/// A library and a binary; the context gets into a module that no other crate sees. Its owners have texts, and it calls
/// the library something else.
fn write_private(host: &Host) {
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/sagents");
    let dependencies = format!(
        "\n[dependencies]\npersistence = {{ package = \"sagents\", path = \"{library}\" }}\n\n\
         [[bin]]\nname = \"private\"\npath = \"src/main.rs\"\ntest = false\ndoc = false\n"
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

/// Every kind of owner, group, key, prefix and place, each as a context of one library, with what reads its owner.
const CONTEXTS: &[(&str, &str)] = &[
    (
        // All that the original takes.
        "Matrix.Conversations --scope Matrix.Scopes.Scope --owner-type user --owner-field user_id \
         --owner-module Matrix.Scopes.User --table-prefix sagents_ --web axum",
        "Owner::new(\"user\", self.user.id)",
    ),
    (
        "crate::chat::conversations --scope matrix::scopes::AccountScope --owner-type account --table-prefix my_app_ai_",
        "self.account_id.clone().ok_or(Error::NoOwner)?",
    ),
    ("notes --owner-type none --table-prefix= --web axum", "impl OwnerScope for Everyone"),
    (
        // The group is a column of the owner's table.
        "logins --scope crate::scopes::Session --owner-table user --group-type organization --table-prefix login_",
        "i64::from(organization.id)",
    ),
    (
        // The group is in a table of memberships.
        "devices --scope crate::scopes::DeviceScope --owner-type device --owner-id uuid --group-type club \
         --group-field club --scope-group club --table-prefix device_ --web axum",
        "self.club.clone().ok_or(Error::NoOwner)?",
    ),
];

/// Other ways to read an owner. These contexts differ from those above, and from those of other hosts, in names and in
/// `scope.rs`, which does not depend on the database; nothing else of them is compiled.
const SCOPES: &[(&str, &str)] = &[
    ("team_chats --scope crate::scopes::TeamScope --owner-type team", "map_err(|_| Error::NoOwner)?"),
    (
        "guests --scope crate::scopes::GuestScope --owner-type guest --owner-table none",
        "let Self::Guest(guest) = self else {",
    ),
    ("org_chats --scope crate::scopes::OrgScope --owner-type org", "self.org_id.to_string()"),
    ("company_chats --scope crate::scopes::CompanyScope --owner-type company", "let Self::Company(id) = self else {"),
    ("tenants --scope crate::scopes::Owner --owner-type tenant", "matches!(self.r#type, crate::scopes::Role::Tenant)"),
    ("clients --scope crate::scopes::ClientScope --owner-type client", "self.client_id()"),
];

const ON_SQLITE: &[(&str, &str)] = &[
    ("0001_owners.up.sql", include_str!("hosts/owners.up.sql")),
    ("0002_odd.up.sql", include_str!("hosts/odd.up.sql")),
    ("0002_odd.down.sql", include_str!("hosts/odd.down.sql")),
];

const ON_POSTGRES: &[(&str, &str)] = &[
    ("0001_owners.up.sql", include_str!("hosts/owners_postgres.up.sql")),
    ("0002_odd.up.sql", include_str!("hosts/odd_postgres.up.sql")),
    ("0002_odd.down.sql", include_str!("hosts/odd_postgres.down.sql")),
];
