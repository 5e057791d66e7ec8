//! `--web`: added and removed like other options. The routes are the library's, and the glue is the host's.

use insta::assert_snapshot;

use crate::rerun::age;
use crate::support::{Host, manifest};
use crate::transcript::{anonymous, refusal};

const LINE: &str = "gen persistence conversations -s accounts::Scope";
const GLUE: &str = "src/conversations/web.rs";

fn host() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: i64,\n}\n")
        .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n")
}

#[test]
fn without_it_there_is_nothing_of_it() {
    let host = host();
    host.generate(LINE);
    assert!(!host.exists(GLUE));
    assert!(!host.read("Cargo.toml").contains("axum"), "{}", host.read("Cargo.toml"));
    assert!(!host.read("src/conversations.rs").contains("mod web"));
    assert!(!host.read(".sagents/conversations/resolved.toml").contains("web"));
}

#[test]
fn it_is_added_later_and_says_what_is_left_to_do() {
    let host = host();
    host.generate(LINE);
    let run = host.generate("gen persistence conversations --web axum");
    let (_, report) = run.stdout.split_once("\nNext:\n").unwrap();
    assert_snapshot!(anonymous(&host, report), @"
    impl axum::extract::FromRequestParts<S> for crate::accounts::Scope                 # says who is asking; 401 for nobody
    Router::merge(sagents::web::Web::new(conversations, coordinator, agent).router())  # serves the routes and the page
    ");
    assert!(host.read("sagents.toml").contains("web = \"axum\"\n"));
    assert!(host.read("Cargo.toml").contains("features = [\"sqlite\", \"axum\"] }"), "{}", host.read("Cargo.toml"));
    assert!(host.read("src/conversations.rs").contains("\npub mod web;\n"));
    assert!(host.sagents("list").stdout.contains("  web           axum\n"));
    assert_eq!(host.sagents("check").code, 0);
    let again = host.generate("gen persistence conversations");
    assert!(again.stdout.starts_with("Up to date: "), "{}", again.stdout);
}

#[test]
fn edits_of_its_glue_are_merged() {
    let host = host();
    host.generate(&format!("{LINE} --web axum"));
    let first = host.read(GLUE).lines().next().unwrap().to_owned();
    // As an older generator left it, with an edit at its end.
    age(&host, GLUE, &first, "//! As it was.");
    host.write(GLUE, &format!("{}// Edited.\n", host.read(GLUE)));
    let run = host.generate("update");
    assert!(run.stdout.contains(&format!("  merged    {GLUE}\n")), "{}", run.stdout);
    let text = host.read(GLUE);
    assert!(text.starts_with(&first) && text.ends_with("// Edited.\n"), "{text}");
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn removed_it_leaves_glue_that_was_edited() {
    for edit in ["", "// Mine.\n"] {
        let host = host();
        host.generate(&format!("{LINE} --web axum"));
        host.write(GLUE, &format!("{}{edit}", host.read(GLUE)));
        let run = host.generate("gen persistence conversations --web none");
        let word = if edit.is_empty() { "removed " } else { "orphaned" };
        assert!(run.stdout.contains(&format!("  {word}  {GLUE}")), "{}", run.stdout);
        assert_eq!(host.exists(GLUE), !edit.is_empty());
        assert!(!host.read("src/conversations.rs").contains("mod web"));
        assert_eq!(host.sagents("check").code, 0);
    }
}

#[test]
fn a_new_package_that_loses_its_page_says_what_is_left_of_it() {
    let host = Host::empty();
    host.generate("gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --web axum --path my_app");
    let package = Host::at(host.root().join("my_app"));
    let run = package.generate("gen persistence conversations --web none");
    let (_, next) = run.stdout.split_once("\nNext:\n").unwrap();
    assert_snapshot!(next, @"  rm src/agent.rs src/model.rs src/login.rs  # they are for the page; remove their lines from src/lib.rs too");
    assert!(package.read("src/main.rs").contains("a short"));
    let run = package.generate("gen persistence conversations --web axum");
    assert!(!run.stdout.contains("Next:"), "{}", run.stdout);
    assert!(package.read("src/main.rs").contains("web.router()"));
}

#[test]
fn it_follows_the_place_and_the_style_of_the_context() {
    let host = Host::empty()
        .file("Cargo.toml", &manifest("my_app", "2021", ""))
        .file("src/main.rs", "mod accounts;\nmod support;\n\nfn main() {}\n")
        .file("src/accounts/mod.rs", "pub struct Scope {\n    pub user_id: i64,\n}\n")
        .file("src/support/mod.rs", "");
    host.generate("gen persistence support::tickets -s accounts::Scope --web axum");
    for path in ["mod.rs", "scope.rs", "web.rs"] {
        assert!(host.exists(&format!("src/support/tickets/{path}")), "{path}");
    }
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_host_that_has_axum_keeps_its_entry() {
    let host = host();
    let axum = "axum = { version = \"0.8.1\", default-features = false, features = [\"http2\"] }\n";
    host.write("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{axum}")));
    host.generate(&format!("{LINE} --web axum"));
    assert!(host.read("Cargo.toml").contains(axum), "{}", host.read("Cargo.toml"));
}

#[test]
fn frameworks_and_names_that_do_not_fit_are_refused() {
    let host = host();
    assert_snapshot!(refusal(&host, &format!("{LINE} --web rocket")), @"
    $ gen persistence conversations -s accounts::Scope --web rocket
    error: --web: `rocket` is not a framework that is known
    help: use `axum`, or `none` for no routes
    exit 2
    ");
    assert_snapshot!(refusal(&host, "gen persistence my_app::conversation_context -s accounts::Scope --web axum"), @"
    $ gen persistence my_app::conversation_context -s accounts::Scope --web axum
    error: CONTEXT: the context's type would be called `ConversationContext`, which the generated code uses already
    help: use another name, for example `conversations`
    exit 2
    ");
    host.generate("gen persistence my_app::conversation_context -s accounts::Scope");
}

#[test]
fn added_to_a_new_package_it_refuses_a_context_and_a_scope_in_its_modules() {
    for (line, name) in [
        ("gen persistence MyApp.Model --scope MyApp.Accounts.Scope", "model"),
        ("gen persistence crate::agent::notes --scope MyApp.Accounts.Scope", "agent"),
        ("gen persistence conversations --scope MyApp.Login.Scope", "login"),
    ] {
        let host = Host::empty();
        host.generate(&format!("{line} --init --path my_app"));
        let host = Host::at(host.root().join("my_app"));
        let before = host.files();
        let run = host.sagents(&format!("{line} --web axum"));
        assert_eq!((run.code, host.files() == before), (2, true), "{line}\n{}", run.stderr);
        let expected = format!("error: --web: src/{name}.rs is a file of a package with a page\n");
        assert!(run.stderr.starts_with(&expected), "{}", run.stderr);
    }
}

#[test]
fn a_module_called_agent_does_not_hide_what_is_left_to_do() {
    let host = host().file("src/lib.rs", "pub mod accounts;\npub mod agent;\n").file("src/agent.rs", "");
    let run = host.generate("gen persistence crate::agent::conversations -s accounts::Scope --web axum");
    assert!(run.stdout.contains("Router::merge(sagents::web::Web::new("), "{}", run.stdout);
}

#[test]
fn a_file_of_the_hosts_own_in_its_place_is_not_called_edited() {
    let host = host();
    host.generate(LINE);
    host.write("src/conversations/web.rs", "// Not generated.\n");
    assert_snapshot!(refusal(&host, "gen persistence conversations --web axum"), @"
    $ gen persistence conversations --web axum
    error: not generated by sagents, and in the way: src/conversations/web.rs
    help: choose another CONTEXT, move the file away, or replace it with --force (the old one is kept as .orig)
    exit 5
    ");
}
