//! The tables of a host, as its migrations leave them: which one is the owner's, and what of the host's own stands in
//! the way of a change of ours.

use insta::assert_snapshot;

use crate::support::{Host, PLAIN};
use crate::transcript::refusal_by;

const POSTGRES: &str = "gen persistence conversations -s accounts::Scope --database postgres";

/// A library with one migration.
fn with_migration(sql: &str) -> Host {
    Host::library().file("migrations/0001_first.sql", sql)
}

/// Runs `sagents`, which must succeed.
fn generate(host: &Host, line: &str) {
    let run = host.unformatted(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(run.code, 0, "{line}\n{}{}", run.stdout, run.stderr);
}

/// The answer to a command line that must fail and change nothing.
fn refusal(host: &Host, line: &str) -> String {
    refusal_by(host, line, |words| host.unformatted(words))
}

/// What the conversations refer to.
fn target(host: &Host, line: &str) -> String {
    generate(host, line);
    let sql = host.read(&host.find("_persistence.sql"));
    sql.lines().find(|line| line.contains("FOREIGN KEY")).unwrap_or("nothing").trim().to_owned()
}

/// The migrations that are there.
fn migrations(host: &Host) -> Vec<String> {
    host.files().into_keys().filter(|path| path.starts_with("migrations/")).collect()
}

const TWO: &str = "CREATE TABLE users (id BIGINT PRIMARY KEY);
    CREATE SCHEMA audit; CREATE TABLE audit.users (id BIGINT PRIMARY KEY);\n";

#[test]
fn a_table_in_two_schemas_is_chosen_by_a_person() {
    let elsewhere = "CREATE TABLE crm.users (id BIGINT PRIMARY KEY); CREATE TABLE audit.users (id BIGINT PRIMARY KEY);";
    let in_case = "CREATE TABLE \"Users\" (id BIGINT PRIMARY KEY); CREATE TABLE \"USERS\" (id BIGINT PRIMARY KEY);";
    let singular = "CREATE TABLE \"user\" (id BIGINT PRIMARY KEY); CREATE TABLE audit.users (id BIGINT PRIMARY KEY);";
    let all = [
        refusal(&with_migration(TWO), POSTGRES),
        refusal(&with_migration(elsewhere), POSTGRES),
        refusal(&with_migration(singular), POSTGRES),
        refusal(&with_migration(in_case), POSTGRES),
        refusal(&with_migration(elsewhere), &format!("{POSTGRES} --owner-table users")),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: there are several tables that may be the one of the user: migrations has `public.users` and `audit.users`
    help: choose one: `--owner-table public.users` or `--owner-table audit.users`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: there are several tables that may be the one of the user: migrations has `crm.users` and `audit.users`
    help: choose one: `--owner-table crm.users` or `--owner-table audit.users`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: there are several tables that may be the one of the user: migrations has `audit.users` and `public.user`
    help: choose one: `--owner-table audit.users` or `--owner-table public.user`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: there are several tables that may be the one of the user: migrations has `public.Users` and `public.USERS`
    help: choose one: `--owner-table public.Users` or `--owner-table public.USERS`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-table users
    error: a name without a schema is looked for in `public`, and `users` is not there: migrations has `crm.users` and `audit.users`
    help: choose one: `--owner-table crm.users` or `--owner-table audit.users`
    exit 5
    "#);
}

#[test]
fn a_name_without_a_schema_means_the_search_path() {
    let bare = target(&with_migration(TWO), &format!("{POSTGRES} --owner-table users"));
    let public = target(&with_migration(TWO), &format!("{POSTGRES} --owner-table public.users"));
    let audit = target(&with_migration(TWO), &format!("{POSTGRES} --owner-table audit.users"));
    let only = target(&with_migration("CREATE TABLE auth.users (id BIGINT PRIMARY KEY);"), POSTGRES);
    let dropped = "CREATE TABLE users (id BIGINT PRIMARY KEY); DROP TABLE IF EXISTS legacy.users;";
    let dropped = target(&with_migration(dropped), POSTGRES);
    let moved = "CREATE TABLE users (id BIGINT PRIMARY KEY); ALTER TABLE users SET SCHEMA auth;";
    let moved = target(&with_migration(moved), POSTGRES);
    assert_snapshot!([bare, public, audit, only, dropped, moved].join("\n"), @r#"
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "public"."users" ("id") ON DELETE CASCADE,
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "audit"."users" ("id") ON DELETE CASCADE,
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "auth"."users" ("id") ON DELETE CASCADE,
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "auth"."users" ("id") ON DELETE CASCADE,
    "#);
}

#[test]
fn a_recorded_owner_table_stays_in_its_schema() {
    let host = with_migration("CREATE TABLE users (id BIGINT PRIMARY KEY);\n");
    generate(&host, &format!("{POSTGRES} --owner-table users"));
    host.write("migrations/0003_audit.sql", "CREATE SCHEMA audit; CREATE TABLE audit.users (id BIGINT PRIMARY KEY);\n");
    let before = migrations(&host);
    generate(&host, "update");
    assert_eq!(migrations(&host), before);
    generate(&host, &format!("{POSTGRES} --owner-table public.users"));
    assert_eq!(migrations(&host), before);
}

#[test]
fn main_is_where_tables_of_sqlite_are_and_temp_is_nowhere() {
    let host = with_migration(
        "CREATE TABLE main.users (id INTEGER PRIMARY KEY); CREATE TABLE temp.users (id TEXT PRIMARY KEY);
         DROP TABLE temp.users;",
    );
    assert_eq!(
        target(&host, &format!("{PLAIN} --owner-table main.users")),
        r#"CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,"#
    );
    assert_snapshot!(refusal(&Host::library(), &format!("{PLAIN} --owner-table temp.users")), @r#"
    $ gen persistence conversations -s accounts::Scope --owner-table temp.users
    error: --owner-table: `temp.users` is temporary, so that no other table can refer to it
    help: name a table that stays, or `none` for no foreign key
    exit 2
    "#);
}

#[test]
fn a_key_that_a_foreign_key_can_name_is_found() {
    let composite =
        "CREATE TABLE users (tenant INT, id BIGINT, email TEXT UNIQUE, PRIMARY KEY (tenant, id), UNIQUE (id));";
    assert_eq!(
        target(&with_migration(composite), PLAIN),
        r#"CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,"#
    );
    let unusable = [
        "CREATE TABLE users (id BIGINT PRIMARY KEY DEFERRABLE);",
        "CREATE TABLE users (id BIGINT UNIQUE); ALTER TABLE users DROP CONSTRAINT users_id_key;",
        "CREATE TABLE users (id BIGINT); CREATE UNIQUE INDEX by_id ON users (id); DROP INDEX by_id;",
        "CREATE UNLOGGED TABLE users (id BIGINT PRIMARY KEY);",
        "/* /* old */ CREATE TABLE users (id BIGINT PRIMARY KEY); */ CREATE TABLE users (name TEXT);",
    ];
    assert_snapshot!(unusable.map(|sql| refusal(&with_migration(sql), POSTGRES)).join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the key `id` of table `users` is DEFERRABLE, which no foreign key can name
    help: make it NOT DEFERRABLE in a migration of your own; or name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `id`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `id`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the table `users` is UNLOGGED, so that only unlogged tables can refer to it
    help: make it LOGGED in a migration of your own; or name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `name`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5
    "#);
}

#[test]
fn a_system_column_is_no_owner() {
    let names = ["xmin", "ctid", "tableoid"].map(|name| format!("{POSTGRES} --owner-field {name}"));
    let rows = ["rowid", "oid"].map(|name| format!("{PLAIN} --owner-field {name}"));
    let host = Host::library();
    let refused: Vec<_> = names.iter().chain(&rows).map(|line| refusal(&host, line)).collect();
    assert_snapshot!(refused.join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope --database postgres --owner-field xmin
    error: --owner-field: `xmin` is a column that every table of the database has by itself
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-field ctid
    error: --owner-field: `ctid` is a column that every table of the database has by itself
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-field tableoid
    error: --owner-field: `tableoid` is a column that every table of the database has by itself
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-field rowid
    error: --owner-field: `rowid` is a column that every table of the database has by itself
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-field oid
    error: --owner-field: `oid` is a column that every table of the database has by itself
    help: use another name, for example `user_id`
    exit 2
    "#);
}

#[test]
fn after_the_last_version_there_is_none() {
    let host = Host::library().file("migrations/9223372036854775807_last.sql", "CREATE TABLE t (id INTEGER);\n");
    assert_snapshot!(refusal(&host, PLAIN), @r#"
    $ gen persistence conversations -s accounts::Scope
    error: 9223372036854775807_last.sql has the largest version that there is, so none can follow
    help: give that migration a smaller version, or name another directory with --migrations
    exit 5
    "#);
}

#[test]
fn a_prefix_is_not_that_of_tables_that_the_host_has() {
    let hosts = [PLAIN, POSTGRES].map(|line| {
        let host = Host::library();
        generate(&host, line);
        host.write(
            "migrations/20990101000000_host.up.sql",
            "CREATE TABLE chat_agent_states (id BIGINT PRIMARY KEY);\n",
        );
        host.write("migrations/20990101000000_host.down.sql", "DROP TABLE chat_agent_states;\n");
        refusal(&host, &format!("{line} --table-prefix chat_"))
    });
    assert_snapshot!(hosts.join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope --table-prefix chat_
    error: your migrations make a `chat_agent_states` already, and so would this change
    help: choose other names with --table-prefix, or rename yours in a migration
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --table-prefix chat_
    error: your migrations make a `chat_agent_states` already, and so would this change
    help: choose other names with --table-prefix, or rename yours in a migration
    exit 5
    "#);
}

#[test]
fn what_is_on_tables_that_sqlite_rebuilds_is_found_before() {
    let objects = [
        "CREATE INDEX by_title ON sagents_conversations (title);",
        "CREATE TRIGGER touched AFTER UPDATE OF title ON sagents_conversations BEGIN DELETE FROM log; END;",
        "CREATE VIEW titles AS SELECT id, title FROM sagents_conversations;",
    ];
    let refused = objects.map(|sql| {
        let host = Host::library();
        generate(&host, PLAIN);
        host.write("migrations/20990101000000_host.up.sql", sql);
        refusal(&host, &format!("{PLAIN} -t team"))
    });
    assert_snapshot!(refused.join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope -t team
    error: there is the index `by_title` of your own on `sagents_conversations`, which SQLite has to rebuild
    help: drop the index in a migration of your own, run this again, and make it again afterwards
    exit 5

    $ gen persistence conversations -s accounts::Scope -t team
    error: there is the trigger `touched` of your own on `sagents_conversations`, which SQLite has to rebuild
    help: drop the trigger in a migration of your own, run this again, and make it again afterwards
    exit 5

    $ gen persistence conversations -s accounts::Scope -t team
    error: there is the view `titles` of your own on `sagents_conversations`, which SQLite has to rebuild
    help: drop the view in a migration of your own, run this again, and make it again afterwards
    exit 5
    "#);
    let host = Host::library();
    generate(&host, PLAIN);
    host.write("migrations/20990101000000_host.up.sql", &objects.join("\n"));
    generate(&host, &format!("{PLAIN} --table-prefix chat_"));
}

#[test]
fn what_needs_a_column_that_goes_is_found_before() {
    let objects = [
        (PLAIN, "CREATE INDEX by_user ON sagents_conversations (title, user_id);"),
        (PLAIN, "CREATE VIEW by_user AS SELECT user_id, title FROM sagents_conversations;"),
        (POSTGRES, "CREATE VIEW by_user AS SELECT user_id, title FROM sagents_conversations;"),
        (PLAIN, "ALTER TABLE sagents_conversations ADD COLUMN label TEXT AS (user_id || title);"),
        (
            POSTGRES,
            "ALTER TABLE sagents_conversations ADD COLUMN label TEXT GENERATED ALWAYS AS (user_id::text) STORED;",
        ),
    ];
    let refused = objects.map(|(line, sql)| {
        let host = Host::library();
        generate(&host, line);
        generate(&host, &format!("{line} -t team --backfill none"));
        host.write("migrations/20990101000000_host.up.sql", sql);
        refusal(&host, "gen persistence conversations --drop-old-owner")
    });
    assert_snapshot!(refused.join("\n"), @r#"
    $ gen persistence conversations --drop-old-owner
    error: the index `by_user` of your own needs the column `user_id` of `sagents_conversations`, which this change drops
    help: drop or redefine the index in a migration of your own, and run this again
    exit 5

    $ gen persistence conversations --drop-old-owner
    error: the view `by_user` of your own needs the column `user_id` of `sagents_conversations`, which this change drops
    help: drop or redefine the view in a migration of your own, and run this again
    exit 5

    $ gen persistence conversations --drop-old-owner
    error: the view `by_user` of your own needs the column `user_id` of `sagents_conversations`, which this change drops
    help: drop or redefine the view in a migration of your own, and run this again
    exit 5

    $ gen persistence conversations --drop-old-owner
    error: the column `label` of your own needs the column `user_id` of `sagents_conversations`, which this change drops
    help: drop or redefine the column in a migration of your own, and run this again
    exit 5

    $ gen persistence conversations --drop-old-owner
    error: the column `label` of your own needs the column `user_id` of `sagents_conversations`, which this change drops
    help: drop or redefine the column in a migration of your own, and run this again
    exit 5
    "#);
}

#[test]
fn a_foreign_key_onto_ours_keeps_its_key_on_postgres() {
    let host = Host::library();
    generate(&host, POSTGRES);
    let stars = "CREATE TABLE stars (owner BIGINT, talk UUID, FOREIGN KEY (owner, talk) \
                 REFERENCES sagents_conversations (user_id, id) ON DELETE CASCADE);\n";
    host.write("migrations/20990101000000_stars.up.sql", stars);
    assert_snapshot!(refusal(&host, &format!("{POSTGRES} -t team")), @r#"
    $ gen persistence conversations -s accounts::Scope --database postgres -t team
    error: the table `stars` has a foreign key to `sagents_conversations`, whose key changes: PostgreSQL refuses that while something refers to it
    help: take that foreign key away in a migration of your own, run this again, and add it again afterwards; or let `stars` refer to nothing
    exit 5
    "#);
    generate(&host, &format!("{POSTGRES} --table-prefix chat_"));
}

#[test]
fn names_that_a_rebuild_needs_for_a_moment_are_free() {
    let host = Host::library();
    generate(&host, PLAIN);
    let taken = "CREATE TABLE sagents_guard (id INTEGER); CREATE TABLE sagents_conversations_new (id INTEGER);\n";
    host.write("migrations/20990101000000_host.up.sql", taken);
    generate(&host, &format!("{PLAIN} -t team --backfill none"));
    let sql = host.read(&host.find("_owner_to_team_id.up.sql"));
    assert!(sql.contains(r#"CREATE TABLE "sagents_guard_2" "#), "{sql}");
    assert!(sql.contains(r#"CREATE TABLE "sagents_conversations_new_2" "#), "{sql}");
    assert!(!sql.contains(r#""sagents_guard""#) && !sql.contains(r#""sagents_conversations_new""#), "{sql}");
}

#[test]
fn a_column_of_the_host_goes_by_its_last_name() {
    let host = Host::library();
    generate(&host, PLAIN);
    let sql = "ALTER TABLE sagents_conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned >= 0);\n\
               ALTER TABLE sagents_conversations RENAME COLUMN pinned TO rank;\n";
    host.write("migrations/20990101000000_host.up.sql", sql);
    generate(&host, &format!("{PLAIN} -t team --backfill none"));
    let migration = host.read(&host.find("_owner_to_team_id.up.sql"));
    assert!(migration.contains("rank INTEGER NOT NULL DEFAULT 0 CHECK (rank >= 0)"), "{migration}");
    assert!(!migration.contains("pinned"), "{migration}");
}

#[test]
fn recorded_tables_that_nobody_could_have_generated_are_refused() {
    let recorded = ".sagents/conversations/schema.json";
    // The first version recorded no digest of it.
    let forget_digest = |host: &Host| {
        let files = ".sagents/conversations/files.toml";
        let text = host.read(files);
        let lines = text.lines().filter(|line| !line.starts_with("schema = ")).map(|line| format!("{line}\n"));
        host.write(files, &lines.collect::<String>());
    };
    let refused = [
        ("\"conversation_id\"", "\"nothing\""),
        ("\"kind\": \"time\"", "\"kind\": \"text\""),
        ("sagents_agent_states", "sagents_conversations"),
        ("\"tables\"", "\"tables\": [], \"were\""),
    ]
    .map(|(from, to)| {
        let host = Host::library();
        generate(&host, PLAIN);
        host.write(recorded, &host.read(recorded).replacen(from, to, 1));
        forget_digest(&host);
        refusal(&host, PLAIN)
    });
    let host = Host::library();
    generate(&host, PLAIN);
    host.write(recorded, "{\"tables\": []}");
    forget_digest(&host);
    assert_snapshot!([refused.join("\n"), refusal(&host, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the migrations in migrations do not make the tables that are recorded for `conversations` in .sagents/
    help: restore .sagents/ and the migrations of sagents from version control; if two branches both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the recorded tables are not ones that this version can change: `inserted_at` in `sagents_conversations` is a text, and would have to become a time
    help: restore .sagents from version control, then run this again
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the migrations in migrations do not make the tables that are recorded for `conversations` in .sagents/
    help: restore .sagents/ and the migrations of sagents from version control; if two branches both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the recorded tables are not ones that this version can change: there are none
    help: restore .sagents from version control, then run this again
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the recorded tables are not ones that this version can change: there are none
    help: restore .sagents from version control, then run this again
    exit 5
    ");
}
