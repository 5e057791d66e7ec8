//! `--web`: added and removed like other options, with files that are not Rust.

use insta::assert_snapshot;

use crate::rerun::{age, edit};
use crate::support::{Host, manifest};
use crate::transcript::{anonymous, refusal};

const LINE: &str = "gen persistence conversations -s accounts::Scope";
const SCRIPT: &str = "src/conversations/web/assets/app.js";
const GUARD: &str = "src/conversations/web/guard.rs";

fn host() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: i64,\n}\n")
        .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n")
}

/// The files below the module of the routes, and the module.
fn files(host: &Host) -> Vec<String> {
    host.files().into_keys().filter(|path| path.starts_with("src/conversations/web")).collect()
}

#[test]
fn without_it_there_is_nothing_of_it() {
    let host = host();
    host.generate(LINE);
    assert_eq!(files(&host), [""; 0]);
    let manifest = host.read("Cargo.toml");
    assert!(!manifest.contains("axum") && !manifest.contains("futures"), "{manifest}");
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
    impl axum::extract::FromRequestParts<S> for crate::accounts::Scope  # says who is asking; 401 for nobody
    Router::merge(crate::conversations::web::router(web))               # serves the routes and the page
    ");
    assert!(host.read("sagents.toml").contains("web = \"axum\"\n"));
    assert!(host.read("Cargo.toml").contains("axum = \"0.8\"\nchrono"), "{}", host.read("Cargo.toml"));
    assert!(host.read("src/conversations.rs").contains("\npub mod web;\n"));
    assert!(host.sagents("list").stdout.contains("  web           axum\n"));
    assert_eq!(host.sagents("check").code, 0);
    let again = host.generate("gen persistence conversations");
    assert!(again.stdout.starts_with("Up to date: "), "{}", again.stdout);
}

#[test]
fn edits_of_its_files_are_merged_whatever_they_are() {
    let host = host();
    host.generate(&format!("{LINE} --web axum"));
    for path in [SCRIPT, GUARD] {
        let first = host.read(path).lines().next().unwrap().to_owned();
        // As an older generator left it, with an edit at its end.
        age(&host, path, &first, "// As it was.");
        host.write(path, &format!("{}// Edited.\n", host.read(path)));
        let run = host.generate("update");
        assert!(run.stdout.contains(&format!("  merged    {path}\n")), "{}", run.stdout);
        let text = host.read(path);
        assert!(text.starts_with(&first) && text.ends_with("// Edited.\n"), "{text}");
    }
    assert_eq!(host.sagents("check").code, 0);

    let first = host.read(SCRIPT).lines().next().unwrap().to_owned();
    age(&host, SCRIPT, &first, "// As it was.");
    edit(&host, SCRIPT, "// As it was.", "// Mine.");
    let run = host.sagents("update");
    assert_eq!(run.code, 4, "{}{}", run.stdout, run.stderr);
    assert!(host.read(SCRIPT).contains("<<<<<<<"));
}

#[test]
fn removed_it_leaves_what_was_edited() {
    let host = host();
    host.generate(&format!("{LINE} --web axum"));
    host.write(SCRIPT, &format!("{}// Mine.\n", host.read(SCRIPT)));
    let run = host.generate("gen persistence conversations --web none");
    assert!(run.stdout.contains(&format!("  orphaned  {SCRIPT}")), "{}", run.stdout);
    assert!(run.stdout.contains("  removed   src/conversations/web.rs\n"), "{}", run.stdout);
    assert_eq!(files(&host), [SCRIPT]);
    assert!(!host.read("src/conversations.rs").contains("mod web"));
    assert_eq!(host.sagents("check").code, 0);
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
    assert!(package.read("src/main.rs").contains("web::router"));
}

#[test]
fn it_follows_the_place_and_the_style_of_the_context() {
    let host = Host::empty()
        .file("Cargo.toml", &manifest("my_app", "2021", ""))
        .file("src/main.rs", "mod accounts;\nmod support;\n\nfn main() {}\n")
        .file("src/accounts/mod.rs", "pub struct Scope {\n    pub user_id: i64,\n}\n")
        .file("src/support/mod.rs", "");
    host.generate("gen persistence support::tickets -s accounts::Scope --web axum");
    for path in ["mod.rs", "web/mod.rs", "web/page.rs", "web/assets/app.js"] {
        assert!(host.exists(&format!("src/support/tickets/{path}")), "{path}");
    }
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_host_that_has_axum_keeps_its_version_and_features() {
    let host = host();
    let axum = "axum = { version = \"0.8.1\", default-features = false, features = [\"http2\"] }\n";
    host.write("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{axum}")));
    host.generate(&format!("{LINE} --web axum"));
    let manifest = host.read("Cargo.toml");
    let added = "features = [\"http2\", \"json\", \"original-uri\", \"query\", \"tokio\"]";
    assert!(manifest.contains(added) && manifest.contains("\"0.8.1\""), "{manifest}");
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
    assert_snapshot!(refusal(&host, "gen persistence my_app::agent -s accounts::Scope --web axum"), @"
    $ gen persistence my_app::agent -s accounts::Scope --web axum
    error: CONTEXT: the context's type would be called `Agent`, which the generated code uses already
    help: use another name, for example `conversations`
    exit 2
    ");
    host.generate("gen persistence my_app::agent -s accounts::Scope");
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
    assert!(run.stdout.contains("Router::merge(crate::agent::conversations::web::router(web))"), "{}", run.stdout);
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
