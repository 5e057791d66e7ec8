//! The database, and the crates for it.

use insta::assert_snapshot;

use super::{PLAIN, depending};
use crate::support::Host;
use crate::transcript::{refusal, refusals};

#[test]
fn a_database_is_one_that_is_supported() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --database oracle",
        "gen persistence conversations -s accounts::Scope --database mysql",
        "gen persistence conversations -s accounts::Scope --database postgresql",
        "gen persistence conversations -s accounts::Scope --database SQLite",
        "gen persistence conversations -s accounts::Scope --database ''",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope --database oracle
    error: --database: `oracle` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database mysql
    error: --database: `mysql` is not supported by this version
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgresql
    error: --database: `postgresql` is called `postgres` here, as in sqlx
    help: use `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database SQLite
    error: --database: `SQLite` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database ''
    error: --database: `` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2
    ");
}

#[test]
fn of_two_database_drivers_none_is_chosen() {
    let both = depending("sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"postgres\", \"sqlite\"] }");
    let other = depending("sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"mysql\"] }");
    assert_snapshot!([refusal(&both, PLAIN), refusal(&other, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with several databases here
    help: choose one with `--database sqlite` or `--database postgres`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with MySQL here, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5
    ");
}

#[test]
fn crates_that_the_code_does_not_compile_with_are_refused() {
    let locked = |host: Host, packages: &[(&str, &str)]| {
        let packages = packages
            .iter()
            .map(|(name, version)| format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n"));
        host.file("Cargo.lock", &format!("version = 4\n{}", packages.collect::<String>()))
    };
    let hosts = [
        depending("uuid = \"=1.6.0\""),
        locked(depending("tokio = \"1\""), &[("tokio", "1.38.2")]),
        locked(depending("uuid = \"=1.6.0\"\ntokio = \"1\""), &[("tokio", "1.38.2")]),
        // What has no answer is said before the version.
        depending("sqlx = { version = \"0.6\", features = [\"mysql\"] }"),
        depending("uuid = { version = \"1.10\", optional = true }"),
        depending("ids = { package = \"uuid\", version = \"1.10\" }"),
        depending("uuid = { package = \"other-uuid\", version = \"0.6\" }"),
    ];
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: uuid =1.6.0 is too old: the generated code needs uuid 1.10.0 or newer
    help: raise the version of uuid in Cargo.toml to `1.10`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: tokio 1.38.2 is too old: the generated code needs tokio 1.40.0 or newer
    help: run `cargo update -p tokio --precise 1.40.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: these crates are too old:
      uuid =1.6.0: the generated code needs 1.10.0 or newer
      tokio 1.38.2: the generated code needs 1.40.0 or newer
    help: raise the version of uuid in Cargo.toml to `1.10`
          run `cargo update -p tokio --precise 1.40.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with MySQL here, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `uuid` is optional, but the generated code cannot be behind a feature
    help: remove `optional = true` from `uuid`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `uuid` is renamed to `ids`, but the generated code calls it `uuid`
    help: name the dependency `uuid`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `uuid` is another name of the package `other-uuid`, and the generated code needs `uuid` itself
    help: give `other-uuid` another name under [dependencies]
    exit 5
    ");
}

#[test]
fn a_crate_that_is_too_old_or_renamed_is_refused() {
    let hosts = [
        depending("uuid = \"=1.2.0\""),
        depending("json = { package = \"serde_json\", version = \"1\" }"),
        depending("chrono = \"not a version\""),
    ];
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: uuid =1.2.0 is too old: the generated code needs uuid 1.10.0 or newer
    help: raise the version of uuid in Cargo.toml to `1.10`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `serde_json` is renamed to `json`, but the generated code calls it `serde_json`
    help: name the dependency `serde_json`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: cargo cannot read Cargo.toml: failed to parse manifest at `[host]/Cargo.toml`

    Caused by:
      failed to parse the version requirement `not a version` for dependency `chrono`

    Caused by:
      unexpected character 'n' while parsing major version number
    help: fix it until `cargo metadata` succeeds, then run this again
    exit 2
    ");
}

#[test]
fn a_generated_context_stays_on_its_database() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_snapshot!(refusal(&host, &format!("{PLAIN} --database postgres")), @"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: --database: `conversations` is generated for sqlite, and its rows would stay there
    help: generate another context with `--database postgres`, copy the rows, and remove `conversations` when it is empty
    exit 5
    ");
}
