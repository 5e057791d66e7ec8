//! Hosts on other stacks than sqlx alone: which database they have, where their migrations go and in which form, and what
//! is left to do.

mod resolution;

use insta::assert_snapshot;

use crate::support::{Host, Run, manifest};
use crate::transcript::{next, refusal};

const PLAIN: &str = "gen persistence conversations -s crate::auth::CurrentUser";

/// A package with a type that knows the user, and these dependencies.
fn host(dependencies: &str) -> Host {
    let scope = "pub struct CurrentUser {\n    pub user_id: i32,\n}\n";
    Host::empty()
        .file("Cargo.toml", &manifest("app", "2021", &format!("\n[dependencies]\n{dependencies}")))
        .file("src/main.rs", "mod auth;\n\nfn main() {}\n")
        .file("src/auth.rs", scope)
}

const USERS: &str = "CREATE TABLE users (id SERIAL PRIMARY KEY, email TEXT NOT NULL);\n";

/// As `diesel setup` and `diesel migration generate` leave it.
fn diesel() -> Host {
    host("diesel = { version = \"2.2\", features = [\"postgres\", \"r2d2\"] }\n")
        .file(
            "diesel.toml",
            "[print_schema]\nfile = \"src/schema.rs\"\n\n[migrations_directory]\ndir = \"db/migrations\"\n",
        )
        .file("db/migrations/.diesel_lock", "")
        .file("db/migrations/00000000000000_diesel_initial_setup/up.sql", "CREATE FUNCTION f() RETURNS INT AS $$ $$;\n")
        .file("db/migrations/00000000000000_diesel_initial_setup/down.sql", "DROP FUNCTION f;\n")
        .file("db/migrations/2024-01-01-000000_create_users/up.sql", USERS)
        .file("db/migrations/2024-01-01-000000_create_users/down.sql", "DROP TABLE users;\n")
}

fn refinery() -> Host {
    host("refinery = { version = \"0.8\", features = [\"tokio-postgres\"] }\ntokio-postgres = \"0.7\"\n")
        .file("migrations/V1__initial.sql", "CREATE TABLE teams (id BIGINT PRIMARY KEY);\n")
        .file("migrations/V2__users.rs", &format!("pub fn migration() -> String {{\n    {USERS:?}.to_owned()\n}}\n"))
        .file(
            "src/db.rs",
            "mod embedded {\n    refinery::embed_migrations!(\"migrations\");\n}\n\npub async fn migrate(client: \
             &mut tokio_postgres::Client) {\n    embedded::migrations::runner().run_async(client).await.unwrap();\n}\n",
        )
}

const MIGRATOR: &str = include_str!("stacks/migrator.rs");
const CREATE_USERS: &str = include_str!("stacks/create_users.rs");

/// As `sea-orm-cli migrate init` leaves it, in a workspace.
fn sea_orm() -> Host {
    let migration = "\n[dependencies]\nasync-std = { version = \"1\", features = [\"attributes\", \"tokio1\"] }\n\
                     sea-orm-migration = { version = \"1.1.0\", features = [\"runtime-tokio-rustls\", \"sqlx-postgres\"] }\n";
    host(
        "migration = { path = \"migration\" }\n\
         sea-orm = { version = \"1.1\", features = [\"sqlx-postgres\", \"runtime-tokio-rustls\", \"macros\"] }\n\n\
         [workspace]\nmembers = [\".\", \"migration\"]\n",
    )
    .file("migration/Cargo.toml", &manifest("migration", "2021", migration))
    .file("migration/src/lib.rs", MIGRATOR)
    .file("migration/src/main.rs", "fn main() {}\n")
    .file("migration/src/m20220101_000001_create_table.rs", CREATE_USERS)
}

fn loco() -> Host {
    let main = "vec![\n            Box::new(m20220101_000001_users::Migration),\n            // inject-above (do not remove \
                this comment)\n        ]";
    let migrator = MIGRATOR
        .replace("vec![Box::new(m20220101_000001_create_table::Migration)]", main)
        .replace("m20220101_000001_create_table", "m20220101_000001_users");
    host(
        "loco-rs = { version = \"0.15\" }\nmigration = { path = \"migration\" }\n\
         sea-orm = { version = \"1.1\", features = [\"sqlx-sqlite\", \"sqlx-postgres\", \"runtime-tokio-rustls\"] }\n\n\
         [workspace]\n",
    )
    .file(".cargo/config.toml", "[alias]\nloco = \"run --\"\n")
    .file("config/development.yaml", include_str!("stacks/development.yaml"))
    .file(
        "migration/Cargo.toml",
        &manifest("migration", "2021", "\n[dependencies]\nloco-rs = \"0.15\"\nsea-orm-migration = \"1.1.0\"\n"),
    )
    .file("migration/src/lib.rs", &migrator)
    .file("migration/src/m20220101_000001_users.rs", include_str!("stacks/loco_users.rs"))
}

/// The first line of a report, and what is left to do.
fn outline(run: &Run) -> String {
    format!("{}\n{}", run.stdout.lines().next().unwrap(), next(run))
}

/// The migrations' files that a run added, without the time.
fn added(host: &Host, line: &str) -> (Run, String) {
    let before = host.files();
    let run = host.generate(line);
    let new = host.files().into_keys().filter(|path| !before.contains_key(path) && path.contains("igrat"));
    let new = new.filter(|path| !path.contains(".sagents/"));
    let names = new.map(|path| path.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>());
    (run, names.collect::<Vec<_>>().join("\n"))
}

/// The file of the newest migration, by a part of its path.
fn newest(host: &Host, part: &str) -> String {
    host.files().into_keys().rfind(|path| path.contains(part) && !path.contains(".sagents/")).unwrap()
}

/// Nothing changes in a second run, nor after the migration got another name; a change is one more migration.
fn assert_migrations_are_remembered(host: &Host, part: &str, renamed: impl Fn(&str) -> String) {
    let before = host.files();
    let run = host.generate(PLAIN);
    assert!(run.stdout.starts_with("Up to date: "), "{}", run.stdout);
    assert_eq!(host.files(), before);
    assert_eq!(host.sagents("check").code, 0, "{}", host.sagents("check").stdout);

    let file = newest(host, part);
    let new = renamed(&file);
    std::fs::create_dir_all(host.root().join(&new).parent().unwrap()).unwrap();
    std::fs::rename(host.root().join(&file), host.root().join(&new)).unwrap();
    let run = host.generate(PLAIN);
    assert!(!run.stdout.contains("created"), "{}", run.stdout);
    let check = host.sagents("check");
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);

    let (run, names) = added(host, &format!("{PLAIN} --table-prefix chat_"));
    assert_eq!(names.lines().filter(|name| !name.contains("down")).count(), 1, "{names}\n{}", run.stdout);
    let check = host.sagents("check");
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);

    host.write(&new, &host.read(&new).replace("TEXT", "text"));
    let check = host.sagents("check");
    assert!(check.code == 5 && check.stdout.contains("altered"), "{}", check.stdout);
}

#[test]
fn a_diesel_host_gets_migrations_that_diesel_runs() {
    let host = diesel();
    let (run, names) = added(&host, PLAIN);
    assert_snapshot!(outline(&run), @"
    Generated crate::conversations: postgres (diesel in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Next:
      diesel migration run  # creates the tables in DATABASE_URL
    ");
    assert_snapshot!(names, @"
    db/migrations/0000-00-00-000000_create_sagents_persistence/down.sql
    db/migrations/0000-00-00-000000_create_sagents_persistence/up.sql
    ");
    let up = host.read(&newest(&host, "create_sagents_persistence/up.sql"));
    assert!(up.contains("REFERENCES \"users\" (\"id\")"), "{up}");
    let tests = host.read("src/conversations/tests.rs");
    assert!(tests.contains("\"/db/migrations\""), "{tests}");
    assert_migrations_are_remembered(&host, "_sagents_persistence/up.sql", |file| {
        file.replace("_create_sagents", "1_make_sagents")
    });
}

#[test]
fn a_refinery_host_gets_migrations_that_refinery_runs() {
    let host = refinery();
    let (run, names) = added(&host, PLAIN);
    assert_snapshot!(outline(&run), @"
    Generated crate::conversations: postgres (tokio-postgres in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Next:
      cargo run  # runs the new migration, by `embed_migrations!` in src/db.rs
    ");
    assert_snapshot!(names, @"migrations/V0__create_sagents_persistence.sql");
    let up = host.read("migrations/V3__create_sagents_persistence.sql");
    assert!(up.contains("REFERENCES \"users\" (\"id\")"), "{up}");
    assert_migrations_are_remembered(&host, "V3__", |file| file.replace("V3", "V7"));
    assert!(newest(&host, "V").contains("V8__"));
}

#[test]
fn a_sea_orm_host_gets_migrations_in_rust_that_its_migrator_lists() {
    let host = sea_orm();
    let (run, names) = added(&host, PLAIN);
    assert_snapshot!(outline(&run), @"
    Generated crate::conversations: postgres (sea-orm in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Next:
      cargo run --manifest-path migration/Cargo.toml  # creates the tables in DATABASE_URL
    ");
    assert_snapshot!(names, @"migration/src/m00000000_000000_create_sagents_persistence.rs");
    let file = newest(&host, "_create_sagents_persistence.rs");
    let module = file.trim_start_matches("migration/src/").trim_end_matches(".rs").to_owned();
    let migration = host.read(&file);
    assert!(migration.contains("REFERENCES \"users\" (\"id\")"), "{migration}");
    assert_snapshot!(host.read("migration/src/lib.rs").replace(&module, "[module]"), @"
    pub use sea_orm_migration::prelude::*;

    mod m20220101_000001_create_table;
    mod [module];

    pub struct Migrator;

    #[async_trait::async_trait]
    impl MigratorTrait for Migrator {
        fn migrations() -> Vec<Box<dyn MigrationTrait>> {
            vec![
                Box::new(m20220101_000001_create_table::Migration),
                Box::new([module]::Migration),
            ]
        }
    }
    ");
    assert_migrations_are_remembered(&host, "_create_sagents_persistence.rs", |file| {
        let new = file.replace("_create_sagents", "_make_sagents");
        let list = host.read("migration/src/lib.rs").replace("_create_sagents", "_make_sagents");
        host.write("migration/src/lib.rs", &list);
        // Formatting is the host's.
        host.write(file, &host.read(file).replace("pub struct Migration;", "pub struct Migration ;\n"));
        new
    });
}

#[test]
fn a_sea_orm_host_can_list_migrations_itself() {
    let host = sea_orm();
    let before = host.read("migration/src/lib.rs");
    let run = host.generate(&format!("{PLAIN} --no-wire"));
    assert_eq!(host.read("migration/src/lib.rs"), before);
    assert!(run.stdout.contains("Add to migration/src/lib.rs:"), "{}", run.stdout);
    let made = before.replace("vec![Box::new(m20220101_000001_create_table::Migration)]", "all()");
    let host = sea_orm().file("migration/src/lib.rs", &made);
    let refused = host.sagents(PLAIN);
    assert!(refused.code == 5 && refused.stderr.contains("has no `vec![…]`"), "{}", refused.stderr);
    host.generate(&format!("{PLAIN} --no-wire"));
}

#[test]
fn the_migrator_of_sea_orm_is_found_in_any_kind_of_library() {
    let host = loco();
    let library = "\n[lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n";
    let text = host.read("migration/Cargo.toml") + library;
    let host = host.file("migration/Cargo.toml", &text);
    host.generate(PLAIN);
    let list = host.read("migration/src/lib.rs");
    assert!(list.contains("_create_sagents_persistence::Migration)"), "{list}");
}

#[test]
fn a_loco_host_is_read_as_one() {
    let host = loco();
    let (run, names) = added(&host, PLAIN);
    assert_snapshot!(outline(&run), @"
    Generated crate::conversations: postgres (uri in config/development.yaml), owner user (user_id, i64), tables sagents_*
    Next:
      cargo loco db migrate  # creates the tables in the database of its configuration
    ");
    assert_snapshot!(names, @"migration/src/m00000000_000000_create_sagents_persistence.rs");
    let list = host.read("migration/src/lib.rs");
    let ours = list.find("_create_sagents_persistence::Migration)").unwrap();
    assert!(ours < list.find("// inject-above").unwrap(), "{list}");
    let migration = host.read(&newest(&host, "_create_sagents_persistence.rs"));
    assert!(migration.contains("REFERENCES \"users\" (\"id\")"), "{migration}");
}

/// A host that names the directory of its migrations in code.
fn naming(code: &str) -> Host {
    host("sqlx = { version = \"0.8\", features = [\"postgres\", \"runtime-tokio\"] }\n")
        .file("src/main.rs", &format!("mod auth;\n\n{code}\n"))
        .file("db/migrations/20240101000000_users.up.sql", USERS)
        .file("db/migrations/20240101000000_users.down.sql", "DROP TABLE users;\n")
}

#[test]
fn migrations_go_where_the_code_of_the_host_finds_them() {
    for (code, expected) in [
        ("fn main() {\n    sqlx::migrate!(\"db/migrations\").run(&pool);\n}", "cargo run"),
        ("fn main() {\n    Migrator::new(std::path::Path::new(\"./db/migrations\")).run(&pool);\n}", "cargo run"),
        ("fn main() {\n    sqlx::migrate!().run(&pool);\n}", "cargo run"),
        ("static MIGRATOR: Migrator = sqlx::migrate!(\"./db/migrations/\");\n\nfn main() {}", "cargo build"),
        (
            "fn main() {}\n\n#[cfg(test)]\nmod tests {\n    #[sqlx::test(migrations = \"db/migrations\")]\n    fn a() {}\n}",
            "sqlx migrate run --source db/migrations",
        ),
    ] {
        let host = naming(code);
        if code.contains("migrate!()") {
            host.write("sqlx.toml", "[migrate]\nmigrations-dir = \"db/migrations\"\n");
        }
        let (run, names) = added(&host, PLAIN);
        assert!(names.starts_with("db/migrations/00000000000000_create_sagents_persistence.down.sql"), "{names}");
        assert!(next(&run).contains(expected), "{code}\n{}", run.stdout);
        assert_eq!(host.sagents("check").code, 0);
    }
}

#[test]
fn a_call_for_another_directory_runs_nothing_of_ours() {
    let host = naming("fn main() {\n    sqlx::migrate!(\"db/migrations\").run(&pool);\n}");
    let run = host.generate(&format!("{PLAIN} --migrations migrations"));
    assert_snapshot!(next(&run), @"
    Next:
      sqlx migrate run --source migrations  # creates the tables in DATABASE_URL
    ");
    let host = naming("#[cfg(test)]\nmod database;\n\nfn main() {}")
        .file("src/database.rs", "pub fn migrate() {\n    sqlx::migrate!(\"db/migrations\").run(&pool);\n}\n");
    assert_snapshot!(next(&host.generate(PLAIN)), @"
    Next:
      sqlx migrate run --source db/migrations  # creates the tables in DATABASE_URL
    ");
    let host = naming("fn main() {\n    migrate!(\"db/migrations\");\n    migrate!(\"db/other\");\n}");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s crate::auth::CurrentUser
    error: this project names several directories of migrations: db/migrations (src/main.rs), db/other (src/main.rs)
    help: choose one with --migrations
    exit 5
    ");
    host.generate(&format!("{PLAIN} --migrations db/migrations"));
}

#[test]
fn a_context_stays_where_its_migrations_are() {
    let host = naming("fn main() {}");
    host.generate(PLAIN);
    assert!(newest(&host, "igrations/").starts_with("migrations/"));
    host.write("src/main.rs", &host.read("src/main.rs").replace("{}", "{\n    sqlx::migrate!(\"db/migrations\");\n}"));
    assert_eq!(host.sagents("check").code, 0, "{}", host.sagents("check").stdout);
}

#[test]
fn a_host_may_get_another_tool_later() {
    let host = host("").file(".env", "DATABASE_URL=postgres://localhost/app\n");
    host.generate(PLAIN);
    let before = host.files();
    host.write(
        "Cargo.toml",
        &host.read("Cargo.toml").replace("[dependencies]\n", "[dependencies]\ndiesel = \"2.2\"\n"),
    );
    host.write("migrations/2024-01-01-000000_create_posts/up.sql", "CREATE TABLE posts (id SERIAL PRIMARY KEY);\n");
    let check = host.sagents("check");
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);
    let after = host.files();
    assert!(before.keys().all(|path| after.contains_key(path)));
}

#[test]
fn the_first_place_that_names_a_database_decides() {
    let headline = |host: &Host| {
        let run = host.generate(&format!("{PLAIN} --owner-table none"));
        run.stdout.lines().next().unwrap().to_owned()
    };
    let env = |url: &str| host("").file(".env", &format!("RUST_LOG=info\nDATABASE_URL={url}\n"));
    let headlines = [
        headline(&host(
            "sqlx = { version = \"0.8\", features = [\"postgres\", \"runtime-tokio\"] }\nrusqlite = \"0.32\"\n",
        )),
        headline(&host("tokio-postgres = \"0.7\"\n").file(".env", "DATABASE_URL=sqlite:app.db\n")),
        headline(&host("rusqlite = { version = \"0.32\", features = [\"bundled\"] }\n")),
        headline(&host("diesel = { version = \"2.2\", features = [\"sqlite\"] }\n")),
        headline(&env("postgres://localhost/app")),
        headline(&host("")),
    ];
    assert_snapshot!(headlines.join("\n"), @"
    Generated crate::conversations: postgres (sqlx in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Generated crate::conversations: postgres (tokio-postgres in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Generated crate::conversations: sqlite (rusqlite in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Generated crate::conversations: sqlite (diesel in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Generated crate::conversations: postgres (DATABASE_URL in .env), owner user (user_id, i64), tables sagents_*
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*
    ");
}

#[test]
fn a_host_whose_database_is_not_clear_is_asked() {
    let both = "sea-orm = { version = \"1.1\", features = [\"sqlx-postgres\", \"sqlx-sqlite\"] }\n";
    let refusals = [
        refusal(&host(both), PLAIN),
        refusal(&host("diesel = \"2.2\"\n"), PLAIN),
        refusal(&host("diesel = { version = \"2.2\", features = [\"mysql\"] }\n"), PLAIN),
        refusal(&host("").file(".env", "DATABASE_URL=mysql://localhost/app\n"), PLAIN),
    ];
    assert_snapshot!(refusals.join("\n"), @"
    $ gen persistence conversations -s crate::auth::CurrentUser
    error: sea-orm is used with several databases here
    help: choose one with `--database sqlite` or `--database postgres`
    exit 5

    $ gen persistence conversations -s crate::auth::CurrentUser
    error: which database this is for is not known: diesel in Cargo.toml has no feature that names one, and neither sqlx nor DATABASE_URL in .env does
    help: choose one with `--database sqlite` or `--database postgres`
    exit 5

    $ gen persistence conversations -s crate::auth::CurrentUser
    error: diesel is used with MySQL here, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5

    $ gen persistence conversations -s crate::auth::CurrentUser
    error: DATABASE_URL in .env is for MySQL, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5
    ");
    let run = host(both).file(".env", "DATABASE_URL=postgres://localhost/app\n").generate(PLAIN);
    assert!(run.stdout.contains(": postgres (DATABASE_URL in .env),"), "{}", run.stdout);
}

#[test]
fn migrations_of_sea_orm_may_be_in_the_package_itself() {
    let host = host(
        "sea-orm = { version = \"2.0\", features = [\"sqlx-sqlite\", \"runtime-tokio\"] }\nsea-orm-migration = \"2.0\"\n",
    )
    .file("src/main.rs", "mod auth;\nmod migrator;\n\nfn main() {\n    Migrator::up(&db, None);\n}\n")
    .file("src/migrator/mod.rs", MIGRATOR)
    .file("src/migrator/m20220101_000001_create_table.rs", CREATE_USERS);
    let (run, names) = added(&host, PLAIN);
    assert_snapshot!(outline(&run), @"
    Generated crate::conversations: sqlite (sea-orm in Cargo.toml), owner user (user_id, i64), tables sagents_*
    Next:
      cargo run  # runs the new migration, by `Migrator::up` in src/main.rs
    ");
    assert_eq!(names, "src/migrator/m00000000_000000_create_sagents_persistence.rs");
    host.write("src/main.rs", "mod auth;\nmod conversations;\nmod migrator;\n\nfn main() {}\n");
    assert_snapshot!(next(&host.generate(&format!("{PLAIN} --table-prefix chat_"))), @"
    Next:
      cargo build  # embeds the new migration, by `Migrator` in src/migrator/mod.rs
    ");
    assert!(host.read("src/migrator/mod.rs").contains("_create_sagents_persistence::Migration)"));
    assert_eq!(host.sagents("check").code, 0, "{}", host.sagents("check").stdout);
}

#[test]
fn a_member_of_a_workspace_is_not_taken_for_its_neighbour() {
    let workspace = "[workspace]\nmembers = [\"app\", \"other\"]\nresolver = \"2\"\n";
    let other = "\n[dependencies]\nsea-orm-migration = { version = \"1.1\", features = [\"sqlx-postgres\"] }\n";
    let host = Host::empty()
        .file("Cargo.toml", workspace)
        .file("diesel.toml", "[migrations_directory]\ndir = \"other/migrations\"\n")
        .file("other/Cargo.toml", &manifest("other", "2021", other))
        .file("other/src/lib.rs", MIGRATOR)
        .file("app/Cargo.toml", &manifest("app", "2021", ""))
        .file("app/src/lib.rs", "pub mod auth;\n")
        .file("app/src/auth.rs", "pub struct CurrentUser {\n    pub user_id: i32,\n}\n");
    let (run, names) = added(&host, &format!("{PLAIN} --path app"));
    assert!(run.stdout.contains(": sqlite, owner"), "{}", run.stdout);
    assert!(names.starts_with("app/migrations/00000000000000_create_sagents_persistence"), "{names}");
}
