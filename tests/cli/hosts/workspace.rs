//! Workspaces, and crates beside the host.

use insta::assert_snapshot;

use super::{assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::{Host, manifest};
use crate::transcript::{next, refusals};

fn workspace() -> Host {
    let root = "[workspace]\nmembers = [\"web\"]\nresolver = \"3\"\n\n[workspace.dependencies]\n\
                uuid = \"1.12\"\n";
    Host::empty().file("Cargo.toml", root).file("web/src/lib.rs", "")
}

#[test]
fn a_member_of_a_workspace_is_named_from_the_root() {
    let host = workspace().file("web/Cargo.toml", &manifest("web", "2024", ""));
    assert_snapshot!(created(&host, "gen persistence Web.Conversations -s Web.Accounts.Scope --path web"), @"
    web/.gitattributes
    web/migrations/[version]_create_sagents_persistence.down.sql
    web/migrations/[version]_create_sagents_persistence.up.sql
    web/sagents.toml
    web/src/accounts.rs
    web/src/conversations.rs
    web/src/conversations/scope.rs
    ");
}

#[test]
fn what_a_workspace_offers_is_inherited() {
    let host = workspace().file("web/Cargo.toml", &manifest("web", "2024", ""));
    let before = host.read("Cargo.toml");
    host.generate("gen persistence Web.Conversations -s Web.Accounts.Scope --path web");
    assert_snapshot!(lines_with(&host, "web/Cargo.toml", "workspace"), @r#"uuid = { workspace = true, features = ["serde", "v7"] }"#);
    assert_eq!(host.read("Cargo.toml"), before);
}

#[test]
fn a_dependency_that_is_inherited_gets_the_features_that_it_lacks() {
    let member = manifest("web", "2024", "\n[dependencies]\nuuid = { workspace = true } # ids\n");
    let host = workspace().file("web/Cargo.toml", &member);
    host.generate("gen persistence Web.Conversations -s Web.Accounts.Scope --path web");
    assert_snapshot!(lines_with(&host, "web/Cargo.toml", "uuid"), @r#"uuid = { workspace = true, features = ["serde", "v7"] } # ids"#);
}

#[test]
fn migrations_may_be_shared_in_the_workspace() {
    let host = workspace()
        .file("web/Cargo.toml", &manifest("web", "2024", ""))
        .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let line = "gen persistence Web.Conversations -s Web.Accounts.Scope --path web --migrations ../migrations";
    let run = host.generate(line);
    assert!(host.exists("migrations/0002_create_sagents_persistence.sql"));
    assert_snapshot!(next(&run), @"
    Next:
      sqlx migrate run --source migrations  # creates the tables in DATABASE_URL
    ");
    assert_snapshot!(lines_with(&host, "web/src/conversations/tests.rs", "migrations"), @r#"
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
    database.run_migrations(migrations).await?;
    "#);
    assert_a_second_run_changes_nothing(&host, line);
}

/// A package beside a workspace of two, with scopes that hold their types.
fn neighbours() -> Host {
    let shared = "[dependencies]\nshared = { path = \"../shared\" }\n";
    let web = "[dependencies]\nidentity = { workspace = true }\nkeys = { package = \"shared-keys\", path = \"../../outside/keys\" }\n";
    Host::empty()
        .file(
            "host/Cargo.toml",
            "[workspace]\nmembers = [\"web\", \"identity\", \"shared\"]\nresolver = \"3\"\n\n\
             [workspace.dependencies]\nidentity = { path = \"identity\" }\n",
        )
        .file("host/web/Cargo.toml", &manifest("web", "2024", &format!("\n{web}")))
        .file("host/web/src/lib.rs", "pub mod auth;\n")
        .file(
            "host/web/src/auth.rs",
            "pub struct Scope {\n    pub actor: identity::Actor,\n}\n\npub struct Wrapped(pub identity::Caller);\n\n\
             pub struct Login {\n    pub user_id: keys::UserId,\n}\n",
        )
        .file("host/identity/Cargo.toml", &manifest("identity", "2024", &format!("\n{shared}")))
        .file("host/identity/src/lib.rs", "mod caller;\n\npub use caller::Caller;\npub use shared::*;\n")
        .file(
            "host/identity/src/caller.rs",
            "use shared::Actor;\n\npub struct Caller {\n    pub actor: Actor,\n}\n",
        )
        .file("host/shared/Cargo.toml", &manifest("shared", "2024", ""))
        .file(
            "host/shared/src/lib.rs",
            "#[non_exhaustive]\npub enum Actor {\n    User { id: i64, name: String },\n}\n",
        )
        .file("outside/keys/Cargo.toml", &manifest("shared-keys", "2024", ""))
        .file("outside/keys/src/lib.rs", "pub struct UserId(uuid::Uuid);\n\nimpl UserId {\n    pub fn as_uuid(&self) -> &uuid::Uuid {\n        &self.0\n    }\n}\n")
}

#[test]
fn types_of_the_workspace_and_of_path_dependencies_are_read() {
    for line in [
        "gen persistence conversations -s crate::auth::Scope",
        "gen persistence conversations -s crate::auth::Wrapped --scope-owner 0.actor.User.id",
    ] {
        let host = neighbours();
        host.generate(&format!("{line} --path host/web"));
        let text = host.read("host/web/src/conversations/scope.rs");
        // It is named by the crate that the host depends on.
        assert!(text.contains("use identity::Actor;\n"), "{text}");
        let actor = if line.contains("Wrapped") { "self.0.actor" } else { "self.actor" };
        assert!(text.contains(&format!("let Actor::User {{ id, .. }} = &{actor} else {{\n")), "{text}");
        assert!(text.contains("Ok(Owner::new(\"user\", *id))"), "{text}");
    }
    let host = neighbours();
    host.generate("gen persistence conversations -s crate::auth::Login --path host/web");
    let text = host.read("host/web/src/conversations/scope.rs");
    assert!(text.contains("Ok(Owner::new(\"user\", *self.user_id.as_uuid()))"), "{text}");
}

#[test]
fn a_neighbour_is_read_whatever_kind_of_library_it_is() {
    for kinds in ["[\"cdylib\", \"rlib\"]", "[\"rlib\"]", "[\"dylib\"]"] {
        let library = format!("\n[lib]\ncrate-type = {kinds}\n");
        let host = neighbours().file("host/shared/Cargo.toml", &manifest("shared", "2024", &library));
        host.generate("gen persistence conversations -s crate::auth::Scope --path host/web");
        let text = host.read("host/web/src/conversations/scope.rs");
        assert!(text.contains("let Actor::User { id, .. } = &self.actor else {\n"), "{kinds}: {text}");
    }
}

#[test]
fn a_scope_of_another_crate_is_refused_with_the_type_to_write() {
    let host = neighbours()
        .file("host/web/src/again.rs", "pub use identity::Caller as Scope;\n\npub type Caller = identity::Caller;\n")
        .file("host/web/src/lib.rs", "pub mod again;\npub mod auth;\n");
    let scopes = ["identity::Caller", "crate::again::Scope", "crate::again::Caller"];
    let lines = scopes.map(|scope| format!("gen persistence conversations -s {scope} --path host/web"));
    assert_snapshot!(refusals(&host, &lines.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s identity::Caller --path host/web
    error: --scope: `identity::Caller` is a type of another crate, and Rust allows no `impl OwnerScope` for it here
    help: wrap it in a type of this crate:

        /// The caller.
        pub struct Scope(pub identity::Caller);

    then name that one, for example `--scope crate::accounts::Scope --scope-owner 0.user_id`
    exit 2

    $ gen persistence conversations -s crate::again::Scope --path host/web
    error: --scope: `crate::again::Scope` is a type of another crate, and Rust allows no `impl OwnerScope` for it here
    help: wrap it in a type of this crate:

        /// The caller.
        pub struct Caller(pub crate::again::Scope);

    then name that one, for example `--scope crate::accounts::Caller --scope-owner 0.user_id`
    exit 2

    $ gen persistence conversations -s crate::again::Caller --path host/web
    error: --scope: `crate::again::Caller` is a type of another crate, and Rust allows no `impl OwnerScope` for it here
    help: wrap it in a type of this crate:

        /// The caller.
        pub struct Scope(pub crate::again::Caller);

    then name that one, for example `--scope crate::accounts::Scope --scope-owner 0.user_id`
    exit 2
    ");
}

#[test]
fn modules_whose_names_start_with_an_underscore_are_read() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod models;\n")
        .file("src/models.rs", "pub mod _entities;\n\npub use _entities::users::Model as Scope;\n")
        .file("src/models/_entities.rs", "pub mod users;\n")
        .file("src/models/_entities/users.rs", "pub struct Model {\n    pub user_id: i32,\n}\n");
    for scope in ["crate::models::Scope", "crate::models::_entities::users::Model", "MyApp.Models.Scope"] {
        host.generate(&format!("gen persistence conversations -s {scope}"));
        let text = host.read("src/conversations/scope.rs");
        assert!(text.contains("i64::from(self.user_id)"), "{text}");
    }
}
