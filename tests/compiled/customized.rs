//! A host that made the changes of docs/customizing.md, and one with the Rust of all pages in it.

use crate::documents;
use crate::support::{Host, manifest};
use crate::workspace::{Workspace, add_tests};

/// The sections with changes, in the order of the page.
const SECTIONS: [&str; 4] =
    ["A column on conversations", "A column on display messages", "A call of your own", "A quota"];

#[test]
fn the_changes_that_the_pages_describe_work_together() {
    let workspace = Workspace::new("customized", &["customized", "pages"]);
    let host = &workspace.host;
    write_host(host);
    // Cargo reads all members.
    host.write("pages/Cargo.toml", &manifest("pages", "2024", ""));
    host.write("pages/src/lib.rs", "");
    workspace.generate("customized", "gen persistence conversations --scope Customized.Accounts.Scope --web axum");
    for section in SECTIONS {
        documents::apply(host, "customized", "docs/customizing.md", section);
    }
    write_pages(host);
    let tests = [
        ("columns.rs", include_str!("hosts/customized/columns.rs")),
        ("quota.rs", include_str!("hosts/customized/quota.rs")),
    ];
    add_tests(host, "customized", "customized", &tests);
    workspace.test(&workspace.build());
}

/// The same host again, with what all pages show in it. A part of that would be in the way of the other tests.
fn write_pages(host: &Host) {
    for (path, text) in host.files() {
        let text = String::from_utf8(text).unwrap();
        match path.strip_prefix("customized/").filter(|path| !path.starts_with(".sagents")) {
            Some("Cargo.toml") => {
                host.write("pages/Cargo.toml", &text.replace("name = \"customized\"", "name = \"pages\""));
            }
            Some("src/lib.rs") => host.write("pages/src/lib.rs", &(text + DOCUMENTS)),
            Some(path) => host.write(&format!("pages/{path}"), &text),
            None => {}
        }
    }
    host.write("pages/src/documents.rs", &documents::module());
}

/// The package that the page begins with.
fn write_host(host: &Host) {
    let dependencies = "\n[dependencies]\nuuid = \"1\"\n\n[dev-dependencies]\n\
        axum = { version = \"0.8\", default-features = false, features = [\"http1\", \"json\", \"query\", \"tokio\"] }\n\
        sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"sqlite\"] }\n\
        tokio = { version = \"1.40\", features = [\"macros\", \"net\", \"rt-multi-thread\", \"time\"] }\n\
        tower = { version = \"0.5\", default-features = false, features = [\"util\"] }\n";
    for (path, text) in [
        ("Cargo.toml", manifest("customized", "2024", dependencies).as_str()),
        ("src/lib.rs", "pub mod accounts;\n"),
        (
            "src/accounts.rs",
            "#[derive(Debug, Clone)]\npub struct User {\n    pub id: i64,\n    pub name: String,\n}\n\n\
             #[derive(Debug, Clone)]\npub struct Scope {\n    pub user: User,\n}\n",
        ),
        ("migrations/0001_accounts.up.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL);\n"),
        ("migrations/0001_accounts.down.sql", "DROP TABLE users;\n"),
    ] {
        host.write(&format!("customized/{path}"), text);
    }
}

/// The pages name their package so.
const DOCUMENTS: &str = "
#[cfg(test)]
extern crate self as my_app;

#[cfg(test)]
#[rustfmt::skip]
mod documents;
";
