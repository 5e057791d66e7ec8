use super::*;
use crate::failure::Exit;

const AGENTS: Need =
    Need { name: LIBRARY, version: "0.8", minimum: "0.8.0", features: &["sqlite"], source: Vec::new(), dev: false };
const SQLX_NEED: Need = Need {
    name: "sqlx",
    version: "0.9",
    minimum: "0.8.0",
    features: &["runtime-tokio", "sqlite", "macros", "uuid"],
    source: Vec::new(),
    dev: false,
};
const UUID: Need =
    Need { name: "uuid", version: "1.10", minimum: "1.10.0", features: &["v7"], source: Vec::new(), dev: false };
const THISERROR: Need =
    Need { name: "thiserror", version: "2", minimum: "1.0.0", features: &[], source: Vec::new(), dev: false };
const TOKIO: Need =
    Need { name: "tokio", version: "1", minimum: "1.20.0", features: &["time"], source: Vec::new(), dev: false };
const TOKIO_DEV: Need =
    Need { name: "tokio", version: "1", minimum: "1.20.0", features: &["macros", "rt"], source: Vec::new(), dev: true };

fn manifest(text: &str) -> Manifest {
    Manifest::parse("Cargo.toml".into(), text, None, None).unwrap()
}

fn locked(text: &str, packages: &[(&str, &str)]) -> Manifest {
    let lock = packages.iter().fold("version = 4\n".to_owned(), |lock, (name, version)| {
        lock + &format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
    });
    Manifest::parse("Cargo.toml".into(), text, None, Some(&lock)).unwrap()
}

fn member(text: &str, workspace: &str) -> Manifest {
    Manifest::parse("app/Cargo.toml".into(), text, Some(("Cargo.toml".into(), workspace)), None).unwrap()
}

/// Meets the needs, and holds that doing so again changes nothing.
fn wired(manifest: &Manifest, needs: &[Need]) -> (String, Vec<String>) {
    let wiring = manifest.with(needs).unwrap();
    let mut again = manifest.clone();
    again.document = parse("Cargo.toml".into(), &wiring.text).unwrap();
    let second = again.with(needs).unwrap();
    assert_eq!((&second.text, second.lines.as_slice()), (&wiring.text, &[] as &[String]));
    (wiring.text, wiring.lines)
}

fn text(before: &str, needs: &[Need]) -> String {
    wired(&manifest(before), needs).0
}

fn refusal(manifest: &Manifest, needs: &[Need]) -> String {
    manifest.with(needs).unwrap_err().to_string()
}

#[test]
fn a_syntax_error_is_named_with_its_line_and_column() {
    let failure = Manifest::parse("Cargo.toml".into(), "[package]\nname = x\n", None, None).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.what.starts_with("Cargo.toml:2:8: "), "{failure}");
}

#[test]
fn every_way_to_write_a_dependency_is_read() {
    for text in [
        "[dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
        "[dependencies]\nsqlx.version = '0.8'\nsqlx.features = ['sqlite']",
        "[dependencies.sqlx]\nversion = '0.8'\nfeatures = ['sqlite-unbundled']",
        "[dev-dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
        "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }\n[dependencies]\nsqlx.workspace = true",
        "[workspace.dependencies]\nsqlx = '0.8'\n[dependencies]\nsqlx = { workspace = true, features = ['sqlite'] }",
        "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['sqlite'] }",
    ] {
        let sqlx = manifest(text).sqlx();
        let expected = Sqlx { sqlite: true, ..Sqlx::default() };
        assert_eq!(sqlx, expected, "{text}");
    }
}

#[test]
fn a_renamed_library_is_found_here_and_in_the_workspace() {
    let own = manifest("[dependencies]\nagents = { package = 'sagents', version = '0.9', features = ['postgres'] }");
    let shared = member(
        "[dependencies]\nagents.workspace = true",
        "[workspace.dependencies]\nagents = { package = 'sagents', version = '0.9', features = ['postgres'] }",
    );
    for manifest in [own, shared] {
        assert_eq!(manifest.library_name().as_deref(), Some("agents"));
        assert_eq!(manifest.dependency_crates(), ["agents"]);
    }
    assert_eq!(manifest("[dependencies]\nsagents = '0.9'").library_name(), None);
}

#[test]
fn all_crates_that_are_too_old_are_named_together() {
    let text = "[dependencies]\nsqlx = '0.7'\ntokio = '1.38'\nuuid = '1'\n\n[dev-dependencies]\ntokio = '1.38'\n";
    let lock = [("sqlx", "0.7.4"), ("tokio", "1.19.0"), ("uuid", "0.8.2"), ("uuid", "1.4.0")];
    let message = refusal(&locked(&text.replace("1.38", "1"), &lock), &[SQLX_NEED, TOKIO, TOKIO_DEV, UUID]);
    let expected = "\
these crates are too old:
  sqlx 0.7.4: the generated code needs 0.8.0 or newer
  tokio 1.19.0: the generated code needs 1.20.0 or newer
  uuid 1.4.0: the generated code needs 1.10.0 or newer
help: raise the version of sqlx in Cargo.toml to `0.9`
      run `cargo update -p tokio --precise 1.20.0`
      run `cargo update -p uuid@1.4.0 --precise 1.10.0`";
    assert_eq!(message, expected);
}

#[test]
fn the_lock_decides_where_the_requirement_leaves_a_choice() {
    let both = [("sqlx", "0.7.4"), ("sqlx", "0.9.1")];
    let accepts = |text, packages: &[_]| locked(text, packages).with(&[SQLX_NEED]).is_ok();
    assert!(!accepts("[dependencies]\nsqlx = '>=0.7'", &both[..1]));
    assert!(accepts("[dependencies]\nsqlx = '>=0.7'", &both));
    assert!(!accepts("[dependencies]\nsqlx = { path = '../sqlx' }", &both[..1]));
    assert!(accepts("", &both[..1]));
}

#[test]
fn other_crates_must_be_new_enough() {
    let uuid = |requirement: &str| manifest(&format!("[dependencies]\nuuid = '{requirement}'"));
    for requirement in ["1", "1.4", ">=0.8", "*", "1.10.0", "=1.11.2", "2", "<2"] {
        assert!(uuid(requirement).with(&[UUID]).is_ok(), "{requirement}");
    }
    for requirement in ["0.8", "=1.9.0", "~1.9", "<1.10", "<=1.9, >=1.2"] {
        let message = refusal(&uuid(requirement), &[UUID]);
        let expected = format!(
            "uuid {requirement} is too old: the generated code needs uuid 1.10.0 or newer\nhelp: raise the version of uuid in Cargo.toml to `1.10`"
        );
        assert_eq!(message, expected);
    }
    let message = refusal(&locked("[dependencies]\nuuid = '1'", &[("uuid", "1.4.0")]), &[UUID]);
    assert_eq!(
        message,
        "uuid 1.4.0 is too old: the generated code needs uuid 1.10.0 or newer\nhelp: run `cargo update -p uuid --precise 1.10.0`"
    );
}

#[test]
fn entries_are_extended_in_the_form_they_have() {
    for (before, after) in [
        ("uuid = \"1\" # ids", "uuid = { version = \"1\", features = [\"v7\"] } # ids"),
        ("uuid = '1'\n\n# end\n", "uuid = { version = '1', features = [\"v7\"] }\n\n# end\n"),
        ("uuid = { version = \"1\" } # ids", "uuid = { version = \"1\", features = [\"v7\"] } # ids"),
        ("uuid = { version = \"1\", features = [] }", "uuid = { version = \"1\", features = [\"v7\"] }"),
        ("uuid = { features = ['v4'], version = \"1\" }", "uuid = { features = ['v4', \"v7\"], version = \"1\" }"),
        ("uuid.version = \"1\" # ids\nz = '1'", "uuid.version = \"1\" # ids\nuuid.features = [\"v7\"]\nz = '1'"),
        ("uuid = { workspace = true }", "uuid = { workspace = true, features = [\"v7\"] }"),
        (
            "uuid = { version = '1', features = [\n  'v4', # old\n] }",
            "uuid = { version = '1', features = [\n  'v4', # old\n  \"v7\",\n] }",
        ),
        (
            "uuid = { version = '1', features = [\n  'v4' # old\n] }",
            "uuid = { version = '1', features = [\n  'v4', # old\n  \"v7\"\n] }",
        ),
        (
            "uuid = { version = '1', features = [\n  'v4'] }",
            "uuid = { version = '1', features = [\n  'v4',\n  \"v7\"] }",
        ),
        ("uuid = { version = '1', features = ['v7'] }", "uuid = { version = '1', features = ['v7'] }"),
    ] {
        assert_eq!(text(&format!("[dependencies]\n{before}"), &[UUID]), format!("[dependencies]\n{after}"));
    }
}

#[test]
fn a_table_of_its_own_is_extended_too() {
    let before = "[dependencies.uuid] # ids\nversion = \"1\"\n\n[features]\nx = []\n";
    let (text, lines) = wired(&manifest(before), &[UUID]);
    assert_eq!(text, "[dependencies.uuid] # ids\nversion = \"1\"\nfeatures = [\"v7\"]\n\n[features]\nx = []\n");
    assert_eq!(lines, ["features = [\"v7\"] # in [dependencies.uuid]"]);
}

#[test]
fn new_entries_find_their_alphabetical_place() {
    let sorted = "[dependencies] # all\n# web\naxum = '1'\nserde = '1' # s\n\n[features]\n";
    let expected = "[dependencies] # all\n# web\naxum = '1'\nserde = '1' # s\nthiserror = \"2\"\nuuid = { version = \"1.10\", features = [\"v7\"] }\n\n[features]\n";
    assert_eq!(text(sorted, &[UUID, THISERROR]), expected);
    assert_eq!(
        text("[dependencies]\n# z\nz = '1'\n", &[THISERROR]),
        "[dependencies]\nthiserror = \"2\"\n# z\nz = '1'\n"
    );
    assert_eq!(
        text("[dependencies]\nz = '1'\na = '1'\n", &[THISERROR]),
        "[dependencies]\nz = '1'\na = '1'\nthiserror = \"2\"\n"
    );
    assert_eq!(text("[dependencies]\na = '1'", &[THISERROR]), "[dependencies]\na = '1'\nthiserror = \"2\"\n");
}

#[test]
fn missing_tables_are_made_at_the_end() {
    let expected = "[package]\nname = 'x'\n\n[dependencies]\nthiserror = \"2\"\n\n[dev-dependencies]\ntokio = { version = \"1\", features = [\"macros\", \"rt\"] }\n";
    for before in ["[package]\nname = 'x'", "[package]\nname = 'x'\n", "[package]\nname = 'x'\n\n\n"] {
        assert_eq!(text(before, &[THISERROR, TOKIO_DEV]), expected);
    }
    assert_eq!(
        text("[dependencies.z]\nversion = '1'\n", &[THISERROR]),
        "[dependencies.z]\nversion = '1'\n\n[dependencies]\nthiserror = \"2\"\n"
    );
    assert_eq!(
        text("dependencies.z = '1'\n[package]\n", &[THISERROR]),
        "dependencies.z = '1'\ndependencies.thiserror = \"2\"\n[package]\n"
    );
    assert_eq!(text("dependencies = { z = '1' }\n", &[THISERROR]), "dependencies = { z = '1', thiserror = \"2\" }\n");
}

#[test]
fn line_ends_and_a_byte_order_mark_stay() {
    let before = "\u{feff}[package]\r\nname = 'x'\r\n\r\n[dependencies]\r\nuuid = { version = '1', features = [\r\n    'v4',\r\n] }\r\n";
    let after = text(before, &[UUID, THISERROR, TOKIO_DEV]);
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
    assert!(after.starts_with("\u{feff}[package]\r\n"));
    assert!(after.contains("    'v4',\r\n    \"v7\",\r\n] }\r\n"), "{after}");
}

#[test]
fn a_line_of_the_report_shows_the_entry_in_one_line() {
    let before = "[dependencies]\nuuid = { version = '1', features = [\n  'v4', # old\n] }\n";
    assert_eq!(wired(&manifest(before), &[UUID]).1, ["uuid = { version = '1', features = [\"v4\", \"v7\"] }"]);
    let (_, lines) = wired(&manifest(""), &[TOKIO_DEV]);
    assert_eq!(lines, ["tokio = { version = \"1\", features = [\"macros\", \"rt\"] } # in [dev-dependencies]"]);
}

#[test]
fn features_that_are_on_already_are_not_repeated() {
    let enough = [
        "sqlx = { version = '0.8', features = ['runtime-tokio-rustls', 'sqlite-unbundled', 'uuid'] }\n",
        "sqlx = { version = '0.9', default-features = false, features = ['macros', 'runtime-tokio', 'all-databases', 'uuid'] }\n",
    ];
    for entry in enough {
        let before = format!("[dependencies]\n{entry}");
        assert_eq!(text(&before, &[SQLX_NEED]), before);
    }
    let bare = "[dependencies]\nsqlx = { version = '0.9', default-features = false }\n";
    assert!(text(bare, &[SQLX_NEED]).contains("\"macros\""));
    assert!(!text("[dependencies]\nsqlx = '0.9'\n", &[SQLX_NEED]).contains("macros"));
}

#[test]
fn the_workspace_gives_versions_and_features() {
    let workspace = "[workspace.dependencies]\nsqlx = { version = '0.8', features = ['runtime-tokio', 'sqlite'] }\nuuid = '1'\nthiserror = '2'\n";
    let after = wired(&member("[dependencies]\n", workspace), &[SQLX_NEED, UUID, THISERROR]).0;
    assert_eq!(
        after,
        "[dependencies]\nsqlx = { workspace = true, features = [\"uuid\"] }\nthiserror = { workspace = true }\nuuid = { workspace = true, features = [\"v7\"] }\n"
    );
    let dotted = wired(&member("[dependencies]\nsqlx.workspace = true\n", workspace), &[SQLX_NEED]);
    assert_eq!(dotted.0, "[dependencies]\nsqlx.workspace = true\nsqlx.features = [\"uuid\"]\n");
    assert_eq!(dotted.1, ["sqlx.features = [\"uuid\"]"]);
}

#[test]
fn a_crate_that_only_tests_have_is_added_with_the_same_source() {
    for (dev, normal) in [
        ("sagents = '0.8'", "sagents = { version = '0.8', features = [\"sqlite\"] }"),
        (
            "sagents = { git = 'g', rev = 'r', features = ['postgres'] }",
            "sagents = { git = 'g', rev = 'r', features = [\"sqlite\"] }",
        ),
        (
            "agents = { package = 'sagents', version = '0.8' }",
            "agents = { package = 'sagents', version = '0.8', features = [\"sqlite\"] }",
        ),
    ] {
        let before = format!("[dependencies]\n\n[dev-dependencies]\n{dev}\n");
        assert_eq!(text(&before, &[AGENTS]), format!("[dependencies]\n{normal}\n\n[dev-dependencies]\n{dev}\n"));
    }
}

#[test]
fn an_absent_library_comes_from_its_source() {
    for (source, entry) in [
        (vec![("version", "0.8".to_owned())], "{ version = \"0.8\", features = [\"sqlite\"] }"),
        (
            vec![("version", "0.8".to_owned()), ("path", "../sagents".to_owned())],
            "{ version = \"0.8\", path = \"../sagents\", features = [\"sqlite\"] }",
        ),
    ] {
        let need = Need { source, ..AGENTS.clone() };
        assert_eq!(text("[dependencies]\n", &[need]), format!("[dependencies]\nsagents = {entry}\n"));
    }
}

#[test]
fn needs_of_tests_do_not_change_normal_builds() {
    let full = "[dependencies]\ntokio = { version = '1', features = ['full'] }\n";
    assert_eq!(text(full, &[TOKIO, TOKIO_DEV]), full);
    let after = text("[dependencies]\ntokio = { version = '1.40', features = ['macros'] }\n", &[TOKIO, TOKIO_DEV]);
    assert_eq!(
        after,
        "[dependencies]\ntokio = { version = '1.40', features = ['macros', \"time\"] }\n\n[dev-dependencies]\ntokio = { version = '1.40', features = [\"rt\"] }\n"
    );
    let after = text("[dependencies]\ntokio = { version = '1', optional = true }\n[dev-dependencies]\n", &[TOKIO_DEV]);
    assert!(
        after.ends_with("[dev-dependencies]\ntokio = { version = '1', features = [\"macros\", \"rt\"] }\n"),
        "{after}"
    );
}

#[test]
fn what_only_a_person_can_change_is_a_decision() {
    for (entry, need, what) in [
        ("uuid = { version = '1', optional = true }", UUID, "`uuid` is optional"),
        ("ids = { package = 'uuid', version = '1' }", UUID, "`uuid` is renamed to `ids`"),
        ("sqlx = { package = 'sqlx-oldapi', version = '0.6' }", SQLX_NEED, "another name of the package `sqlx-oldapi`"),
    ] {
        let failure = manifest(&format!("[dependencies]\n{entry}\n")).with(&[need]).unwrap_err();
        assert_eq!(failure.exit, Exit::Decision, "{failure}");
        assert!(failure.what.contains(what) && failure.help.is_some(), "{failure}");
    }
}

#[test]
fn the_rust_version_may_be_inherited_and_short() {
    let version = |manifest: Manifest| manifest.rust_version();
    assert_eq!(version(manifest("[package]\nrust-version = '1.85'")), Some(Version::new(1, 85, 0)));
    let inherited = member("[package]\nrust-version.workspace = true", "[workspace.package]\nrust-version = '1.85.1'");
    assert_eq!(version(inherited), Some(Version::new(1, 85, 1)));
    assert_eq!(version(manifest("[package]")), None);
}

#[test]
fn crates_are_listed_as_code_names_them() {
    let text = "[dependencies]\nserde-json = '1'\nids = { package = 'uuid', version = '1' }\n[dependencies.a-b]\nversion = '1'";
    assert_eq!(manifest(text).dependency_crates(), ["serde_json", "ids", "a_b"]);
}

#[test]
fn a_crate_that_is_there_for_some_targets_only_is_refused() {
    for text in [
        "[target.'cfg(unix)'.dependencies]\nuuid = '1.10'",
        "[target.'cfg(unix)'.dependencies.uuid]\nversion = '1.10'",
        "[target.'cfg(unix)']\ndependencies = { uuid = { version = '1.10', features = ['v7'] } }",
        "[target.'cfg(unix)'.dependencies]\nuuid.workspace = true\n[workspace.dependencies]\nuuid = '1.10'",
    ] {
        assert_eq!(
            refusal(&manifest(text), &[UUID]),
            "Cargo.toml: `uuid` is there for some targets only, under [target.'cfg(unix)'.dependencies], \
             but the generated code is for all of them\nhelp: move `uuid` to [dependencies]",
            "{text}"
        );
    }
    let renamed = "[target.wasm32-unknown-unknown.dependencies]\nagents = { package = 'sagents', version = '0.8' }";
    let message = refusal(&manifest(renamed), &[AGENTS]);
    assert!(message.contains("`agents` is there for some targets only, under [target.wasm32-"), "{message}");
}

#[test]
fn what_targets_add_tells_the_database_and_is_not_relied_on() {
    let before = "[dependencies]\nsqlx = '0.8.4'\n\n[target.'cfg(unix)'.dependencies]\nsqlx = { version = '0.8.4', features = ['sqlite'] }\n";
    assert!(manifest(before).sqlx().sqlite);
    let after = text(before, &[SQLX_NEED]);
    assert!(
        after.contains("sqlx = { version = '0.8.4', features = [\"runtime-tokio\", \"sqlite\", \"uuid\"] }"),
        "{after}"
    );
    let old = before.replace("{ version = '0.8.4'", "{ version = '0.7'");
    assert!(refusal(&manifest(&old), &[SQLX_NEED]).starts_with("sqlx 0.7 is too old"));
    let other = "[dependencies]\nserde = '1'\n\n[target.'cfg(unix)'.dependencies]\ncore-types = '1'\n";
    assert_eq!(manifest(other).dependency_crates(), ["serde", "core_types"]);
}

#[test]
fn what_tests_need_may_be_there_for_some_targets() {
    let before = "[dependencies]\ntokio = '1.40'\n\n[target.'cfg(unix)'.dev-dependencies]\ntokio = { version = '1', features = ['macros', 'rt'] }\n";
    assert!(text(before, &[TOKIO_DEV]).contains("[dev-dependencies]\ntokio = "));
}

#[test]
fn the_library_is_raised_where_its_version_is_written() {
    let need = Need { minimum: "0.8.2", ..AGENTS };
    for (before, after) in [
        ("sagents = '0.8'", "sagents = { version = \"0.8.2\", features = [\"sqlite\"] }"),
        (
            "agents = { package = 'sagents', version = '0.8.1', features = ['sqlite'] } # ours",
            "agents = { package = 'sagents', version = \"0.8.2\", features = ['sqlite'] } # ours",
        ),
        (
            "sagents = { path = '../sagents', version = '0.7.3', features = ['sqlite'] }",
            "sagents = { path = '../sagents', version = \"0.8.2\", features = ['sqlite'] }",
        ),
    ] {
        let before = format!("[dependencies]\n{before}\n");
        assert_eq!(text(&before, std::slice::from_ref(&need)), format!("[dependencies]\n{after}\n"));
    }
    for entry in [
        "agents = { package = 'sagents', version = '0.8.0' } # ours",
        "agents.version = '0.7'\nagents.package = 'sagents'",
    ] {
        let own = "[dependencies]\nagents = { workspace = true, features = ['sqlite'] }\n";
        let workspace = format!("[workspace.dependencies]\n{entry}\n");
        let wiring = member(own, &workspace).with(std::slice::from_ref(&need)).unwrap();
        let raised = wiring.workspace.unwrap();
        assert_eq!((wiring.text.as_str(), wiring.lines.len()), (own, 0));
        assert_eq!(raised.path, "Cargo.toml");
        assert_eq!(raised.text, workspace.replace("'0.8.0'", "\"0.8.2\"").replace("'0.7'", "\"0.8.2\""));
        assert_eq!(raised.line, "agents = \"0.8.2\" # in [workspace.dependencies]");
        let again = member(own, &raised.text).with(std::slice::from_ref(&need)).unwrap();
        assert!(again.workspace.is_none());
    }
}

#[test]
fn a_library_that_is_newer_than_the_generator_is_refused() {
    let needs = [AGENTS];
    for entry in ["'0.9'", "'1'", "{ version = '>=0.9', features = ['sqlite'] }"] {
        let message = refusal(&manifest(&format!("[dependencies]\nsagents = {entry}\n")), &needs);
        assert!(message.contains("is newer than this generator, which writes code for sagents 0.8.0"), "{message}");
        assert!(message.ends_with("or set the version of sagents in Cargo.toml to `0.8.0`"), "{message}");
    }
    for entry in ["'0.8'", "'0.8.7'", "'>=0.8'", "'*'", "{ git = 'g' }"] {
        let after = text(&format!("[dependencies]\nsagents = {entry}\n"), &needs);
        assert!(after.contains("\"sqlite\""), "{after}");
    }
    let open = "[dependencies]\nsagents = { version = '>=0.8', features = ['sqlite'] }\n";
    let message = refusal(&locked(open, &[("sagents", "0.9.1")]), &needs);
    assert!(message.starts_with("Cargo.toml: sagents 0.9.1 is newer than this generator"), "{message}");
    assert!(message.ends_with("or run `cargo update -p sagents --precise 0.8.0`"), "{message}");
    assert_eq!(wired(&locked(open, &[("sagents", "0.8.4")]), &needs).0, open);
}

#[test]
fn a_rust_that_is_too_old_is_named_where_it_is_written() {
    let Version { major, minor, .. } = OLDEST_RUST;
    // An unpacked package doesn't have the library.
    if let Ok(library) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/sagents/Cargo.toml")) {
        assert!(library.contains(&format!("\nrust-version = \"{major}.{minor}\"\n")));
    }
    let own = manifest("[package]\nrust-version = '1.85'").refuse_old_rust().unwrap_err().to_string();
    assert!(own.starts_with("Cargo.toml: rust-version is 1.85, and sagents needs Rust 1."), "{own}");
    let inherited = member("[package]\nrust-version.workspace = true", "[workspace.package]\nrust-version = '1.80.1'");
    let inherited = inherited.refuse_old_rust().unwrap_err().to_string();
    assert!(inherited.starts_with("Cargo.toml: rust-version is 1.80,"), "{inherited}");
    manifest(&format!("[package]\nrust-version = '{major}.{minor}'")).refuse_old_rust().unwrap();
    manifest("[package]").refuse_old_rust().unwrap();
}
