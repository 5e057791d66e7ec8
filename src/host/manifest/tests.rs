use super::*;
use crate::failure::Exit;

const SQLX_NEED: Need = Need {
    name: "sqlx",
    version: "0.9",
    minimum: "0.8.0",
    features: &["runtime-tokio", "sqlite", "macros", "uuid"],
    dev: false,
};
const ON_POSTGRES: Need = Need { minimum: "0.7.4", ..SQLX_NEED };
const UUID: Need = Need { name: "uuid", version: "1.10", minimum: "1.10.0", features: &["v7"], dev: false };
const THISERROR: Need = Need { name: "thiserror", version: "2", minimum: "1.0.0", features: &[], dev: false };
const TOKIO: Need = Need { name: "tokio", version: "1", minimum: "1.20.0", features: &["time"], dev: false };
const TOKIO_DEV: Need = Need { features: &["macros", "rt"], dev: true, ..TOKIO };

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
        let sqlx = manifest(text).sqlx().unwrap();
        let expected = Sqlx { sqlite: true, ..Sqlx::default() };
        assert_eq!(sqlx, expected, "{text}");
    }
}

#[test]
fn a_renamed_sqlx_is_found_here_and_in_the_workspace() {
    let own = manifest("[dependencies]\ndb = { package = 'sqlx', version = '0.9', features = ['postgres'] }");
    let shared = member(
        "[dependencies]\ndb.workspace = true",
        "[workspace.dependencies]\ndb = { package = 'sqlx', version = '0.9', features = ['postgres'] }",
    );
    for manifest in [own, shared] {
        let sqlx = manifest.sqlx().unwrap();
        assert_eq!((sqlx.renamed.as_deref(), sqlx.postgres), (Some("db"), true));
        assert_eq!(manifest.dependency_crates(), ["db"]);
    }
}

#[test]
fn an_sqlx_is_new_enough_if_its_requirement_can_be_met_by_one_that_is() {
    let accepts =
        |need, requirement: &str| manifest(&format!("[dependencies]\nsqlx = {requirement}")).with(&[need]).is_ok();
    for requirement in
        ["'0.9'", "'=0.9.3'", "'*'", "'>=0.8, <0.10'", "'0.9.0-alpha.1'", "'0.8'", "'=0.8.0'", "{ git = 'x' }"]
    {
        assert!(accepts(SQLX_NEED, requirement) && accepts(ON_POSTGRES, requirement), "{requirement}");
    }
    for requirement in ["'0.7'", "'=0.7.4'", "'<0.8'"] {
        assert!(!accepts(SQLX_NEED, requirement) && accepts(ON_POSTGRES, requirement), "{requirement}");
    }
}

#[test]
fn sqlx_that_cannot_work_is_refused_with_what_fixes_it() {
    for requirement in ["0.7", "=0.7.4", "<0.8", "0.6.3"] {
        let message = refusal(&manifest(&format!("[dependencies]\nsqlx = '{requirement}'")), &[SQLX_NEED]);
        let expected = format!(
            "sqlx {requirement} is too old: the generated code needs sqlx 0.8.0 or newer\n\
             help: raise the version of sqlx in Cargo.toml to 0.8 or 0.9"
        );
        assert_eq!(message, expected);
    }
    for requirement in ["0.10", "1", ">=2"] {
        let message = refusal(&manifest(&format!("[dependencies]\nsqlx = '{requirement}'")), &[ON_POSTGRES]);
        let expected = "is not known: the generated code compiles with 0.7 (from 0.7.4), 0.8 or 0.9\n\
             help: set the version of sqlx in Cargo.toml to one of these";
        assert_eq!(message, format!("sqlx {requirement} {expected}"));
    }
    let old = |requirement: &str| locked(&format!("[dependencies]\nsqlx = '{requirement}'"), &[("sqlx", "0.7.3")]);
    let message = "sqlx 0.7.3 is too old: the generated code needs sqlx 0.7.4 or newer\nhelp: ";
    for (requirement, help) in [
        ("0.7", "run `cargo update -p sqlx --precise 0.7.4`"),
        ("=0.7.3", "raise the version of sqlx in Cargo.toml to 0.7 (from 0.7.4), 0.8 or 0.9"),
    ] {
        assert_eq!(refusal(&old(requirement), &[ON_POSTGRES]), format!("{message}{help}"));
    }
    let shared = member("[dependencies]\nsqlx.workspace = true", "[workspace.dependencies]\nsqlx = '0.7'");
    assert!(refusal(&shared, &[SQLX_NEED]).contains("in Cargo.toml to"));
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
help: raise the version of sqlx in Cargo.toml to 0.8 or 0.9
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
fn an_absent_sqlx_joins_the_one_that_is_locked() {
    let (text, lines) = wired(&locked("[dependencies]\n", &[("sqlx", "0.8.6")]), &[SQLX_NEED]);
    let line = r#"sqlx = { version = "0.8", features = ["runtime-tokio", "sqlite", "uuid"] }"#.to_owned();
    assert_eq!((text, lines), (format!("[dependencies]\n{line}\n"), vec![line]));
    // With one that is too old, nothing is gained.
    let (text, _) = wired(&locked("[dependencies]\n", &[("sqlx", "0.7.4")]), &[SQLX_NEED]);
    assert!(text.contains("version = \"0.9\""), "{text}");
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
    let need = Need { features: &["macros", "runtime-tokio"], ..SQLX_NEED };
    for (dev, normal) in [
        ("sqlx = '0.8'", "sqlx = { version = '0.8', features = [\"runtime-tokio\"] }"),
        (
            "sqlx = { git = 'g', rev = 'r', features = ['sqlite'] }",
            "sqlx = { git = 'g', rev = 'r', features = [\"runtime-tokio\"] }",
        ),
        (
            "db = { package = 'sqlx', version = '0.8' }",
            "db = { package = 'sqlx', version = '0.8', features = [\"runtime-tokio\"] }",
        ),
    ] {
        let before = format!("[dependencies]\n\n[dev-dependencies]\n{dev}\n");
        assert_eq!(text(&before, &[need]), format!("[dependencies]\n{normal}\n\n[dev-dependencies]\n{dev}\n"));
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
        (
            "sqlx = { version = '0.8', features = ['runtime-async-std-rustls'] }",
            SQLX_NEED,
            "sqlx runs on `runtime-async-std-rustls`",
        ),
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
    let renamed = "[target.wasm32-unknown-unknown.dependencies]\ndb = { package = 'sqlx', version = '0.8' }";
    let failure = manifest(renamed).sqlx().unwrap_err();
    assert_eq!(failure.exit, Exit::Decision);
    assert!(failure.what.contains("`db` is there for some targets only, under [target.wasm32-"), "{failure}");
    let tests = "[target.'cfg(unix)'.dev-dependencies]\nsqlx = '0.8'";
    assert!(manifest(tests).sqlx().is_err());
}

#[test]
fn what_targets_add_tells_the_database_and_is_not_relied_on() {
    let before = "[dependencies]\nsqlx = '0.8.4'\n\n[target.'cfg(unix)'.dependencies]\nsqlx = { version = '0.8.4', features = ['sqlite'] }\n";
    assert!(manifest(before).sqlx().unwrap().sqlite);
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
