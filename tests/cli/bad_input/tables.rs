//! Tables and migrations.

use insta::assert_snapshot;

use super::{PLAIN, depending, with_migration};
use crate::support::Host;
use crate::transcript::{refusal, refusals};

#[test]
fn a_table_prefix_is_lower_case_and_short() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --table-prefix Sagents_",
        "gen persistence conversations -s accounts::Scope --table-prefix my-app_",
        "gen persistence conversations -s accounts::Scope --table-prefix 'my app_'",
        "gen persistence conversations -s accounts::Scope --table-prefix my.app_",
        "gen persistence conversations -s accounts::Scope --table-prefix a\"b_",
        "gen persistence conversations -s accounts::Scope --table-prefix ѕagents_",
        "gen persistence conversations -s accounts::Scope --table-prefix 2024_",
        "gen persistence conversations -s accounts::Scope --table-prefix sqlite_",
        "gen persistence conversations -s accounts::Scope --table-prefix a_prefix_of_thirty_seven_characters__",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope --table-prefix Sagents_
    error: --table-prefix: `Sagents_` contains `S`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix my-app_
    error: --table-prefix: `my-app_` contains `-`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix 'my app_'
    error: --table-prefix: `my app_` contains a space
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix my.app_
    error: --table-prefix: `my.app_` contains `.`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix a"b_
    error: --table-prefix: `a"b_` contains `"`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix ѕagents_
    error: --table-prefix: `ѕagents_` contains U+0455
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix 2024_
    error: --table-prefix: `2024_` starts with a digit
    help: start with a letter, for example `t2024_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix sqlite_
    error: --table-prefix: names that start like `sqlite_` belong to the database
    help: use another prefix, for example `app_sqlite_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix a_prefix_of_thirty_seven_characters__
    error: --table-prefix: `a_prefix_of_thirty_seven_characters__` is too long: `a_prefix_of_thirty_seven_characters__display_messages_tool_calls` has 64 bytes, the limit is 63
    help: use at most 36 characters
    exit 2
    "#);
}

#[test]
fn a_table_prefix_belongs_to_one_context() {
    let host = Host::library();
    host.generate(PLAIN);
    let lines = [
        "gen persistence support_chats -s accounts::Scope",
        "gen persistence support_chats -s accounts::Scope --table-prefix sagents_",
    ];
    assert_snapshot!(refusals(&host, &lines), @"
    $ gen persistence support_chats -s accounts::Scope
    error: --table-prefix: `sagents_` is used by the context `conversations`; the tables would be the same
    help: give this one another, for example `--table-prefix support_chats_`
    exit 2

    $ gen persistence support_chats -s accounts::Scope --table-prefix sagents_
    error: --table-prefix: `sagents_` is used by the context `conversations`; the tables would be the same
    help: give this one another, for example `--table-prefix support_chats_`
    exit 2
    ");
}

#[test]
fn a_table_of_the_host_is_not_made_again() {
    let host = with_migration("CREATE TABLE Conversations (id INTEGER PRIMARY KEY);");
    let line = "gen persistence chats -s accounts::Scope --table-prefix ''";
    assert_snapshot!(refusal(&host, line), @"
    $ gen persistence chats -s accounts::Scope --table-prefix ''
    error: the migrations in migrations make a table `conversations` already
    help: choose other names with --table-prefix
    exit 5
    ");
}

#[test]
fn migrations_stay_inside_the_package() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --migrations ..",
        "gen persistence conversations -s accounts::Scope --migrations ../elsewhere",
        "gen persistence conversations -s accounts::Scope --migrations /var/migrations",
        "gen persistence conversations -s accounts::Scope --migrations .",
        "gen persistence conversations -s accounts::Scope --migrations ''",
        "gen persistence conversations -s accounts::Scope --migrations Cargo.toml",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope --migrations ..
    error: --migrations: `..` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations ../elsewhere
    error: --migrations: `../elsewhere` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations /var/migrations
    error: --migrations: `/var/migrations` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations .
    error: --migrations: `.` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations ''
    error: --migrations: `` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations Cargo.toml
    error: Cargo.toml is a file, where a directory has to be
    help: move Cargo.toml away, or choose another path
    exit 2
    ");
}

#[test]
fn migrations_of_another_tool_are_not_added_to() {
    let host = Host::library().file("migrations/create_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: migrations/create_users.sql is not of sqlx, whose migrations start with a number: `0001_users.sql`
    help: name the directory of sqlx's migrations with --migrations, also if there is none yet
    exit 5
    ");
}

#[test]
fn migrations_of_another_database_are_not_added_to() {
    let host = |feature: &str| {
        depending(&format!("sqlx = {{ version = \"0.9\", features = [\"runtime-tokio\", \"{feature}\"] }}"))
            .file("migrations/0001_users.sql", "CREATE TABLE users (id BIGSERIAL PRIMARY KEY);\n")
    };
    let refusals = [
        refusal(&host("postgres"), &format!("{PLAIN} --database sqlite")),
        refusal(&host("sqlite"), &format!("{PLAIN} --database postgres")),
    ];
    assert_snapshot!(refusals.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --database sqlite
    error: the migrations in migrations are for another database, which this project uses now
    help: give these a directory of their own, for example `--migrations migrations/sqlite`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the migrations in migrations are for another database, which this project uses now
    help: give these a directory of their own, for example `--migrations migrations/postgres`
    exit 5
    ");
}

#[test]
fn what_refers_to_tables_that_sqlite_rebuilds_is_not_lost() {
    let host = Host::library();
    host.generate(PLAIN);
    let stars = "CREATE TABLE stars (owner INTEGER, talk BLOB, FOREIGN KEY (owner, talk) \
                 REFERENCES sagents_conversations (user_id, id) ON DELETE CASCADE);\n";
    host.write("migrations/20990101000000_stars.up.sql", stars);
    host.write("migrations/20990101000000_stars.down.sql", "DROP TABLE stars;\n");
    assert_snapshot!(refusal(&host, &format!("{PLAIN} -t team")), @"
    $ gen persistence conversations -s accounts::Scope -t team
    error: the table `stars` has a foreign key to `sagents_conversations`, which SQLite has to rebuild: its rows would go with the old one
    help: take that foreign key away in a migration of your own, run this again, and add it again afterwards; or let `stars` refer to nothing
    exit 5
    ");
}
