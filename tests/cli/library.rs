//! The dependency on the library: where Cargo.toml has it from, and versions that don't fit.

use insta::assert_snapshot;

use crate::support::{Host, PLAIN, Run, cargo_program, manifest};
use crate::transcript::{refusal, refusals, without_library};

const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/sagents");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What Cargo.toml has for the library.
fn entry(host: &Host) -> String {
    let text = host.read("Cargo.toml");
    text.lines().find(|line| line.contains("sagents")).unwrap_or_default().to_owned()
}

fn depending(entry: &str) -> Host {
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{entry}\n")))
}

/// A workspace whose member inherits the library.
fn inheriting(entry: &str) -> Host {
    let member = "\n[dependencies]\nagents = { workspace = true, features = [\"sqlite\"] }\n";
    Host::empty()
        .file(
            "Cargo.toml",
            &format!("[workspace]\nmembers = [\"app\"]\nresolver = \"3\"\n\n[workspace.dependencies]\n{entry}\n"),
        )
        .file("app/Cargo.toml", &manifest("app", "2024", member))
        .file("app/src/lib.rs", "")
}

/// A stand-in for the library in a directory beside the host.
fn with_stand_in(host: Host, version: &str) -> Host {
    let manifest = manifest("sagents", "2024", "\n[features]\nchrono = []\nsqlite = []\nsqlite-unbundled = []\n")
        .replace("0.1.0", version);
    let directory = host.root().parent().unwrap().join("stand-in");
    let stand_in = Host::at(directory);
    stand_in.write("Cargo.toml", &manifest);
    stand_in.write("src/lib.rs", "");
    host
}

fn assert_resolves(host: &Host) {
    let mut cargo = cargo_program();
    let run = Run::of(cargo.args(["update", "--workspace", "--dry-run", "--offline"]).current_dir(host.root()));
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_new_package_beside_this_directory_finds_the_library() {
    let host = Host::empty().file("Cargo.toml", "[workspace]\n").file("clone/README.md", "");
    let new = "gen persistence Conversations --scope Scope --init --path ../../my_app";
    let run = host.sagents_in("clone", &new.split(' ').collect::<Vec<_>>());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let package = host.root().parent().unwrap().join("my_app");
    let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let path = manifest.split_once("path = \"").and_then(|(_, rest)| rest.split_once('"')).expect(&manifest).0;
    assert_eq!(
        package.join(path).canonicalize().unwrap(),
        std::path::Path::new(LIBRARY).canonicalize().unwrap(),
        "{manifest}"
    );
    assert!(!run.stdout.contains("inside the workspace"), "{}", run.stdout);
}

#[test]
fn a_generator_from_a_work_tree_names_its_directory_and_says_so() {
    let host = Host::library();
    let run = host.generate(PLAIN);
    let relative = entry(&host).split('"').nth(3).unwrap().to_owned();
    assert_eq!(
        host.root().join(relative).canonicalize().unwrap(),
        std::path::Path::new(LIBRARY).canonicalize().unwrap()
    );
    assert!(entry(&host).starts_with(&format!("sagents = {{ version = \"{VERSION}\", path = ")), "{}", entry(&host));
    let note = |text: &str| {
        text.lines().filter(|line| line.starts_with("Note: Cargo.toml")).map(without_library).collect::<String>()
    };
    assert_snapshot!(note(&run.stdout), @"Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.");
    // It was said, and `check` goes on saying so.
    assert_eq!(note(&host.generate("update").stdout), "");
    let check = host.sagents("check");
    assert_eq!((check.code, note(&check.stdout)), (0, note(&run.stdout)));
}

#[test]
fn a_directory_inside_of_the_repository_is_no_reason_for_a_note() {
    let host =
        Host::library().file("vendor/sagents/Cargo.toml", &manifest("sagents", "2024", "\n[features]\nsqlite = []\n"));
    let host = host.file("vendor/sagents/src/lib.rs", "");
    let run = host.generate(&format!("{PLAIN} --library vendor/sagents"));
    assert!(!run.stdout.contains("Note: Cargo.toml"), "{}", run.stdout);
    assert!(!host.sagents("check").stdout.contains("Note:"));
    assert_resolves(&host);
}

#[test]
fn the_source_of_the_library_is_what_library_says() {
    for (library, expected) in [
        (VERSION, format!("sagents = {{ version = \"{VERSION}\", features = [\"sqlite\"] }}")),
        ("^0.1", "sagents = { version = \"^0.1\", features = [\"sqlite\"] }".to_owned()),
        (
            "../stand-in",
            format!("sagents = {{ version = \"{VERSION}\", path = \"../stand-in\", features = [\"sqlite\"] }}"),
        ),
        (
            "https://example.com/sagents.git#v1",
            format!(
                "sagents = {{ version = \"{VERSION}\", git = \"https://example.com/sagents.git\", tag = \"v1\", features = [\"sqlite\"] }}"
            ),
        ),
    ] {
        let host = with_stand_in(Host::library(), VERSION);
        let line = format!("{PLAIN} --library {library}");
        host.generate(&line);
        assert_eq!(entry(&host), expected);
        assert!(host.read("sagents.toml").contains(&format!("library = \"{library}\"\n")));
        let before = host.files();
        for again in [line.as_str(), PLAIN, "update"] {
            assert!(host.generate(again).stdout.starts_with("Up to date: "), "{again}");
        }
        assert_eq!(host.files(), before);
        assert_eq!(host.sagents("check").code, 0);
        // A second context shares it.
        host.generate("gen persistence notes -s accounts::Scope --table-prefix notes_");
        assert_eq!(entry(&host), expected);
    }
}

#[test]
fn a_repository_is_named_by_a_tag_that_cargo_finds() {
    let host = with_stand_in(Host::library(), VERSION);
    let repository = host.root().parent().unwrap().join("stand-in");
    for arguments in ["init --quiet", "add .", "commit --quiet --message=all", "tag v1"] {
        let user = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"];
        let run =
            Run::of(std::process::Command::new("git").args(user).args(arguments.split(' ')).current_dir(&repository));
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let url = format!("file://{}", repository.display());
    host.generate(&format!("{PLAIN} --library {url}#v1"));
    assert!(entry(&host).contains(&format!("git = \"{url}\", tag = \"v1\"")), "{}", entry(&host));
    // Nothing but the library is asked for, so cargo needs no registry.
    host.write("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{}\n", entry(&host))));
    let mut cargo = cargo_program();
    cargo.args(["metadata", "--format-version", "1"]).current_dir(host.root());
    let run = Run::of(cargo.env("CARGO_HOME", host.root().parent().unwrap().join("cargo-home")));
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn without_wiring_the_entry_is_printed() {
    let host = Host::library();
    let run = host.generate(&format!("{PLAIN} --no-wire --library {VERSION}"));
    assert_eq!(entry(&host), "");
    let expected = format!("Add to Cargo.toml:\n  sagents = {{ version = \"{VERSION}\", features = [\"sqlite\"] }}\n");
    assert!(run.stdout.contains(&expected), "{}", run.stdout);
}

#[test]
fn a_source_that_is_none_is_refused() {
    let host = with_stand_in(Host::library(), VERSION);
    let lines = ["99.0", "1.x.y", "https://example.com/sagents", "../nothing", "."]
        .map(|library| format!("{PLAIN} --library {library}"));
    assert_snapshot!(refusals(&host, &lines.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s accounts::Scope --library 99.0
    error: --library: this version of the generator writes code for sagents 0.1.0, and `99.0` excludes it
    help: use `0.1.0`, or install the generator of that version
    exit 2

    $ gen persistence conversations -s accounts::Scope --library 1.x.y
    error: --library: `1.x.y` is no version requirement: unexpected character after wildcard in version req
    help: use `0.1.0`, a path or a git URL with a tag
    exit 2

    $ gen persistence conversations -s accounts::Scope --library https://example.com/sagents
    error: --library: `https://example.com/sagents` names no tag of the repository
    help: put one behind the URL, for example `https://example.com/sagents#v0.1.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope --library ../nothing
    error: --library: ../nothing is not the directory of the package `sagents`, seen from the host
    help: name `crates/sagents` of a clone, a version or a git URL with a tag
    exit 2

    $ gen persistence conversations -s accounts::Scope --library .
    error: --library: . is not the directory of the package `sagents`, seen from the host
    help: name `crates/sagents` of a clone, a version or a git URL with a tag
    exit 2
    ");
    host.generate(&format!("{PLAIN} --library ../stand-in"));
    assert_snapshot!(refusal(&host, "gen persistence notes -s accounts::Scope --table-prefix notes_ --library ^0.1"), @"
    $ gen persistence notes -s accounts::Scope --table-prefix notes_ --library ^0.1
    error: --library: Cargo.toml has `sagents` from another source than `^0.1` already
    help: change its entry in Cargo.toml, and run this without --library
    exit 5
    ");
}

#[test]
fn a_dependency_that_is_there_is_kept_and_gets_its_features() {
    for (before, after) in [
        ("sagents = { path = \"../stand-in\" }", "sagents = { path = \"../stand-in\", features = [\"sqlite\"] }"),
        (
            "sagents = { version = \"0.1\", path = \"../stand-in\", features = [\"chrono\"] }",
            "sagents = { version = \"0.1\", path = \"../stand-in\", features = [\"chrono\", \"sqlite\"] }",
        ),
        (
            "sagents = { path = \"../stand-in\", features = [\"sqlite-unbundled\"] }",
            "sagents = { path = \"../stand-in\", features = [\"sqlite-unbundled\"] }",
        ),
    ] {
        let host = with_stand_in(depending(before), VERSION);
        let run = host.generate(PLAIN);
        assert_eq!(entry(&host), after, "{}", run.stdout);
        assert_eq!(host.sagents("check").code, 0);
    }
}

#[test]
fn a_renamed_dependency_goes_by_the_name_that_generated_code_uses() {
    let host =
        depending(&format!("agents = {{ package = \"sagents\", version = \"{VERSION}\", path = \"{LIBRARY}\" }}"));
    host.write("src/lib.rs", "//! A library.\n\nuse std::fmt;\n");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/lib.rs"), @"
    //! A library.

    extern crate agents as sagents;

    pub mod accounts;
    pub mod conversations;

    use std::fmt;
    ");
    assert!(
        entry(&host).starts_with("agents = ") && entry(&host).ends_with("features = [\"sqlite\"] }"),
        "{}",
        entry(&host)
    );
    assert_eq!(host.sagents("check").code, 0);
    assert_resolves(&host);
}

#[test]
fn an_inherited_dependency_is_accepted() {
    let entry = format!("agents = {{ package = \"sagents\", version = \"{VERSION}\", path = \"{LIBRARY}\" }}");
    let host = inheriting(&entry);
    let before = [host.read("Cargo.toml"), host.read("app/Cargo.toml")];
    host.generate(&format!("{PLAIN} --path app"));
    assert_eq!(host.read("Cargo.toml"), before[0]);
    assert!(host.read("app/Cargo.toml").contains("agents = { workspace = true, features = [\"sqlite\"] }\n"));
    assert!(host.read("app/src/lib.rs").contains("extern crate agents as sagents;\n"));
    assert_eq!(host.sagents("check --path app").code, 0);
    assert_resolves(&host);
}

#[test]
fn an_older_requirement_is_raised_where_it_is_written() {
    let before = |more: &str| {
        format!("agents = {{ package = \"sagents\", version = \"0.0.3\", path = \"../stand-in\"{more} }} # ours")
    };
    let after = |more: &str| before(more).replace("0.0.3", VERSION);
    let own = ", features = [\"sqlite\"]";
    let host = with_stand_in(depending(&before(own)), VERSION);
    host.generate(PLAIN);
    assert_eq!(entry(&host), after(own));

    let host = with_stand_in(inheriting(&before("")), VERSION);
    let run = host.generate(&format!("{PLAIN} --path app"));
    assert!(run.stdout.contains("../Cargo.toml"), "{}", run.stdout);
    let expected = after("") + "\n";
    assert!(host.read("Cargo.toml").ends_with(&expected), "{}", host.read("Cargo.toml"));
    assert_eq!(host.sagents("check --path app").code, 0);

    // Code that is there is not up to date with an older one.
    host.write("Cargo.toml", &host.read("Cargo.toml").replace(&after(""), &before("")));
    let check = host.sagents("check --path app");
    assert!(check.code == 3 && check.stdout.contains("../Cargo.toml"), "{}", check.stdout);
    host.generate("update --path app");
    assert!(host.read("Cargo.toml").ends_with(&expected));
}

#[test]
fn a_library_that_does_not_fit_is_refused_with_what_fixes_it() {
    let lock = |version: &str| format!("version = 4\n\n[[package]]\nname = \"sagents\"\nversion = \"{version}\"\n");
    let hosts = [
        depending("sagents = \"0.2\""),
        depending("sagents = \">=0.1\"").file("Cargo.lock", &lock("0.3.1")),
        depending("sagents = { version = \"0.1\", optional = true }"),
        depending("sagents = { package = \"other\", version = \"0.1\" }"),
        with_stand_in(depending("sagents = { version = \"0.1.0\", path = \"../stand-in\" }"), "0.2.0"),
    ];
    assert_snapshot!(hosts.map(|host| refusal(&host, PLAIN)).join("\n").replace(VERSION, "[version]"), @r#"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: sagents 0.2 is newer than this generator, which writes code for sagents [version]
    help: install the generator that belongs to it with `cargo install sagents-cli`, or set the version of sagents in Cargo.toml to `[version]`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: sagents 0.3.1 is newer than this generator, which writes code for sagents [version]
    help: install the generator that belongs to it with `cargo install sagents-cli`, or run `cargo update -p sagents --precise [version]`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `sagents` is optional, but the generated code cannot be behind a feature
    help: remove `optional = true` from `sagents`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `sagents` is another name of the package `other`, and the generated code needs `sagents` itself
    help: give `other` another name under [dependencies]
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: cargo cannot resolve this package together with sagents:
      failed to select a version for the requirement `sagents = "^[version]"`
      candidate versions found which didn't match: 0.2.0
      location searched: [outside]/stand-in
      required by package `my_app v[version] ([host])`
    help: if Cargo.lock holds a version that is too old, `cargo update` may be enough; otherwise change what cargo names, or say with --library where sagents is
    exit 5
    "#);
}

#[test]
fn check_reports_a_library_that_does_not_fit() {
    let host = Host::library();
    host.generate(&format!("{PLAIN} --library {VERSION}"));
    host.write(
        "Cargo.toml",
        &host
            .read("Cargo.toml")
            .replace(&format!("sagents = {{ version = \"{VERSION}\""), "sagents = { version = \"0.2\""),
    );
    let check = host.sagents("check");
    assert_snapshot!(format!("{}exit {}", check.stdout, check.code).replace(VERSION, "[version]"), @"
    conversations: 1 problem
      error: Cargo.toml: sagents 0.2 is newer than this generator, which writes code for sagents [version]
      help: install the generator that belongs to it with `cargo install sagents-cli`, or set the version of sagents in Cargo.toml to `[version]`
    exit 2
    ");
}
