//! A library with many contexts, and tests of what they do. On `SQLite` it also has what the pages show.

use crate::support::{self, FOR_DOCUMENTS, Host};
use crate::workspace::{Workspace, add_tests};
use crate::{STRICT, documents};

/// The databases that the library is for.
#[derive(Clone, Copy)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// Writes the library, generates its contexts and adds the tests.
pub fn write(workspace: &Workspace, database: Database) {
    let host = &workspace.host;
    let (migrations, tests, options) = match database {
        Database::Sqlite => (ON_SQLITE, TESTS_ON_SQLITE, ""),
        Database::Postgres => (ON_POSTGRES, TESTS_ON_POSTGRES, "--database postgres"),
    };
    let for_documents = if let Database::Sqlite = database { FOR_DOCUMENTS } else { "" };
    host.write("matrix/Cargo.toml", &format!("{}{for_documents}", include_str!("hosts/matrix.toml")));
    host.write("matrix/src/lib.rs", &format!("//! Contexts of every kind.\n\n{STRICT}\n{MODULES}"));
    host.write("matrix/src/scopes.rs", include_str!("hosts/scopes.rs"));
    host.write("matrix/migrations/0001_owners.down.sql", include_str!("hosts/owners.down.sql"));
    for (name, text) in migrations {
        host.write(&format!("matrix/migrations/{name}"), text);
    }
    if let Database::Sqlite = database {
        generate_scopes(host);
    }
    for (context, expected) in CONTEXTS {
        workspace.generate("matrix", &format!("gen persistence {context} {options}"));
        let path = context.split_whitespace().next().unwrap().replace("Matrix.Conversations", "conversations");
        let path = path.trim_start_matches("crate::").replace("::", "/");
        let scope = host.read(&format!("matrix/src/{path}/scope.rs"));
        assert!(scope.contains(expected), "{context}\n{scope}");
    }

    match database {
        Database::Sqlite => {
            documents::apply(host, "matrix", "docs/own-code.md", "A call");
            host.write("matrix/src/documents.rs", &documents::module());
            let modules = host.read("matrix/src/lib.rs") + DOCUMENTS;
            host.write("matrix/src/lib.rs", &modules);
        }
        Database::Postgres => {
            let scopes = host.read("matrix/src/scopes.rs") + include_str!("hosts/extractor.rs");
            host.write("matrix/src/scopes.rs", &scopes);
        }
    }
    let mut tests: Vec<_> = TESTS.iter().chain(tests).map(|(path, text)| (*path, (*text).to_owned())).collect();
    tests.push(("states.rs", include_str!("hosts/tests/states.rs").replace("// {{ guide }}\n", &guide())));
    for (path, owners) in [
        ("tenants_devices.rs", include_str!("hosts/tests/devices.rs")),
        ("tenants_everyone.rs", include_str!("hosts/tests/everyone.rs")),
        ("tenants_users.rs", include_str!("hosts/tests/users.rs")),
    ] {
        tests.push((path, include_str!("hosts/tests/tenants.rs").replace("// {{ owners }}\n", owners)));
    }
    add_tests(host, "matrix", "matrix", &tests);
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
    let modules =
        host.read("matrix/src/lib.rs").replace("#[allow", "#[allow(missing_docs)]\npub mod readers;\n#[allow");
    host.write("matrix/src/lib.rs", &modules);
}

/// What is there before anything is generated.
const MODULES: &str = "#[allow(missing_docs)]\npub mod scopes;\n";

/// The pages name their package and their scope so.
const DOCUMENTS: &str = "
#[cfg(test)]
extern crate self as my_app;

#[cfg(test)]
mod accounts {
    pub(crate) use crate::scopes::{Scope, User};
}
#[cfg(test)]
#[rustfmt::skip]
mod documents;
";

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

/// Every kind of owner, group, key, prefix and place, each as a context of one library, with what reads its owner.
const CONTEXTS: &[(&str, &str)] = &[
    (
        // All that the original takes.
        "Matrix.Conversations --scope Matrix.Scopes.Scope --owner-type user --owner-field user_id \
         --owner-module Matrix.Scopes.User --table-prefix sagents_ --web axum",
        "Owner::new(self.user.id)",
    ),
    (
        "crate::chat::conversations --scope matrix::scopes::AccountScope --owner-type account --table-prefix my_app_ai_",
        "self.account_id.clone().ok_or(Error::NoOwner)?",
    ),
    ("notes --owner-type none --table-prefix= --web axum", "impl OwnerScope for Everyone"),
    (
        // The group is a column of the owner's table.
        "logins --scope crate::scopes::Session --owner-table user --group-type organization --table-prefix login_",
        "Group::new(i64::from(organization.id))",
    ),
    (
        // The group is in a table of memberships.
        "devices --scope crate::scopes::DeviceScope --owner-type device --owner-id uuid --group-type club \
         --group-field club --scope-group club --table-prefix device_ --web axum",
        "Group::new(self.club.clone().ok_or(Error::NoOwner)?)",
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
    ("visitors --scope identity::Caller --owner-type visitor", "let Self::Visitor { id, .. } = self else {"),
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

/// Tests of the contexts, beside the generated ones.
const TESTS: &[(&str, &str)] = &[
    ("changes.rs", include_str!("hosts/tests/changes.rs")),
    ("concurrency.rs", include_str!("hosts/tests/concurrency.rs")),
    ("deployment.rs", include_str!("hosts/tests/deployment.rs")),
    ("exports.rs", include_str!("hosts/tests/exports.rs")),
    ("groups.rs", include_str!("hosts/tests/groups.rs")),
    ("histories.rs", include_str!("hosts/tests/histories.rs")),
    ("killed.rs", include_str!("hosts/tests/killed.rs")),
    ("migrations.rs", include_str!("hosts/tests/migrations.rs")),
    ("pressure/mod.rs", include_str!("hosts/tests/pressure/mod.rs")),
    ("pressure/sessions.rs", include_str!("hosts/tests/pressure/sessions.rs")),
    ("rows.rs", include_str!("hosts/tests/rows.rs")),
    ("sessions/branches.rs", include_str!("hosts/tests/sessions/branches.rs")),
    ("sessions/conflicts.rs", include_str!("hosts/tests/sessions/conflicts.rs")),
    ("sessions/failing.rs", include_str!("hosts/tests/sessions/failing.rs")),
    ("sessions/messages.rs", include_str!("hosts/tests/sessions/messages.rs")),
    ("sessions/mod.rs", include_str!("hosts/tests/sessions/mod.rs")),
    ("sessions/rewinds.rs", include_str!("hosts/tests/sessions/rewinds.rs")),
    ("sessions/running.rs", include_str!("hosts/tests/sessions/running.rs")),
    ("sessions/saving.rs", include_str!("hosts/tests/sessions/saving.rs")),
    ("sessions/turns.rs", include_str!("hosts/tests/sessions/turns.rs")),
    ("source/mod.rs", include_str!("hosts/tests/source.rs")),
    ("storage/mod.rs", include_str!("hosts/tests/storage.rs")),
    ("strategies/mod.rs", include_str!("../runtime/strategies.rs")),
    ("versions.rs", include_str!("hosts/tests/versions.rs")),
    ("web/agent.rs", include_str!("hosts/tests/web/agent.rs")),
    ("web/calls.rs", include_str!("hosts/tests/web/calls.rs")),
    ("web/client.rs", include_str!("hosts/tests/web/client.rs")),
    ("web/events.rs", include_str!("hosts/tests/web/events.rs")),
    ("web/groups.rs", include_str!("hosts/tests/web/groups.rs")),
    ("web/hosts.rs", include_str!("hosts/tests/web/hosts.rs")),
    ("web/limits.rs", include_str!("hosts/tests/web/limits.rs")),
    ("web/mod.rs", include_str!("hosts/tests/web/mod.rs")),
    ("web/page.rs", include_str!("hosts/tests/web/page.rs")),
    ("web/readers.rs", include_str!("hosts/tests/web/readers.rs")),
    ("web/routes.rs", include_str!("hosts/tests/web/routes.rs")),
];

const TESTS_ON_SQLITE: &[(&str, &str)] = &[
    ("database/mod.rs", include_str!("hosts/tests/database_sqlite.rs")),
    ("plans.rs", include_str!("hosts/tests/plans_sqlite.rs")),
    ("pressure/of_database/clock.rs", include_str!("hosts/tests/pressure/sqlite/clock.rs")),
    ("pressure/of_database/disk.rs", include_str!("hosts/tests/pressure/sqlite/disk.rs")),
    ("pressure/of_database/files.rs", include_str!("hosts/tests/pressure/sqlite/files.rs")),
    ("pressure/of_database/housekeeping.rs", include_str!("hosts/tests/pressure/sqlite/housekeeping.rs")),
    ("pressure/of_database/mod.rs", include_str!("hosts/tests/pressure/sqlite/mod.rs")),
    ("pressure/of_database/searches.rs", include_str!("hosts/tests/pressure/sqlite/searches.rs")),
    ("pressure/of_database/writers.rs", include_str!("hosts/tests/pressure/sqlite/writers.rs")),
];

const TESTS_ON_POSTGRES: &[(&str, &str)] = &[
    ("crash.rs", include_str!("hosts/tests/crash.rs")),
    ("database/mod.rs", include_str!("hosts/tests/database_postgres.rs")),
    ("database/server.rs", include_str!("../../crates/sagents/tests/support/postgres.rs")),
    ("outage.rs", include_str!("hosts/tests/outage.rs")),
    ("plans.rs", include_str!("hosts/tests/plans_postgres.rs")),
    ("pressure/of_database/mod.rs", include_str!("hosts/tests/pressure/postgres/mod.rs")),
    ("pressure/of_database/searches.rs", include_str!("hosts/tests/pressure/postgres/searches.rs")),
    ("pressure/of_database/writers.rs", include_str!("hosts/tests/pressure/postgres/writers.rs")),
    ("setup.rs", include_str!("hosts/tests/setup.rs")),
    ("statements.rs", include_str!("hosts/tests/statements.rs")),
    ("unavailable.rs", include_str!("hosts/tests/unavailable.rs")),
];
