use chrono::TimeZone as _;

use super::table::Column;
use super::*;

fn catalog(sql: &str) -> Catalog {
    catalog_of(Database::Sqlite, sql)
}

fn catalog_of(database: Database, sql: &str) -> Catalog {
    let mut catalog = Catalog::new(database);
    catalog.apply(sql);
    catalog
}

/// A table in one line: `users(id INTEGER pk, email TEXT unique) -> teams`.
fn show(table: &Table) -> String {
    let column = |column: &Column| {
        let mut words = vec![column.name.as_str(), column.declared.as_str()];
        let is_primary = table.primary_key().contains(&column.name);
        words.extend(is_primary.then_some("pk"));
        words.extend((!is_primary && table.single_keys().contains(&&*column.name)).then_some("unique"));
        words.retain(|word| !word.is_empty());
        words.join(" ")
    };
    let columns = table.columns.iter().map(column).collect::<Vec<_>>().join(", ");
    let references = table.references.iter().map(|reference| reference.to.to_string());
    let parts = [format!("{}({columns})", table.name)].into_iter().chain(references);
    parts.collect::<Vec<_>>().join(" -> ")
}

fn tables(sql: &str) -> Vec<String> {
    tables_of(Database::Sqlite, sql)
}

fn tables_of(database: Database, sql: &str) -> Vec<String> {
    let mut tables: Vec<_> = catalog_of(database, sql).tables.iter().map(show).collect();
    tables.sort();
    tables
}

fn directory(names: &[&str]) -> (tempfile::TempDir, Tree) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("migrations")).unwrap();
    for name in names {
        let table = name.split(['_', '.', '/']).find(|word| word.starts_with(char::is_alphabetic)).unwrap_or("none");
        let sql = format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY);");
        let path = directory.path().join("migrations").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, sql).unwrap();
    }
    let root = camino::Utf8PathBuf::from_path_buf(directory.path().to_owned()).unwrap();
    (directory, Tree::new(root))
}

fn migrations(names: &[&str]) -> Migrations {
    let (_directory, tree) = directory(names);
    let tool = Tool::seen(&tree, Utf8Path::new("migrations")).unwrap().unwrap_or(Tool::Sqlx);
    read(&tree, &Place { directory: "migrations".into(), tool }, Database::Sqlite).unwrap()
}

/// The scripts of a migration that would be added.
fn added(names: &[&str]) -> String {
    let now = chrono::Utc.with_ymd_and_hms(2026, 3, 4, 5, 6, 7).unwrap();
    let scripts = migrations(names).new_scripts(now, "x", String::new(), String::new()).unwrap();
    scripts.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>().join(" ")
}

fn next(names: &[&str]) -> String {
    added(names).split('_').next().unwrap().to_owned()
}

#[test]
fn a_host_without_migrations_gets_reversible_ones_with_timestamps() {
    assert_eq!(added(&[]), "20260304050607_x.down.sql 20260304050607_x.up.sql");
    let place = Place { directory: "../migrations".into(), tool: Tool::Sqlx };
    assert!(read(&Tree::new("/nonexistent"), &place, Database::Sqlite).unwrap().catalog.tables.is_empty());
}

#[test]
fn the_newest_migration_shows_the_style() {
    for (names, expected) in [
        (&["0001_a.sql", "0002_b.up.sql", "0002_b.down.sql"] as &[_], "0003_x.down.sql 0003_x.up.sql"),
        (&["0001_a.up.sql", "0001_a.down.sql", "20240101000000_b.sql"], "20260304050607_x.sql"),
        (&["V1__a.sql", "V02__b.sql"], "V03__x.sql"),
        (&["V1__a.rs", "sub/V7__b.sql"], "V8__x.sql"),
        (&["V20240101000000__a.sql"], "V20260304050607__x.sql"),
        (
            &["2024-01-01-000000_a/up.sql", "2024-01-01-000000_a/down.sql"],
            "2026-03-04-050607_x/down.sql 2026-03-04-050607_x/up.sql",
        ),
        (&["2024-01-01-000000-0000_a/up.sql"], "2026-03-04-050607-0000_x/up.sql"),
        (&["2030-01-01-000000_a/up.sql"], "2030-01-01-000001_x/up.sql"),
        (&["00000000000000_diesel_initial_setup/up.sql"], "2026-03-04-050607_x/up.sql"),
        (&["0007_a/up.sql"], "0008_x/up.sql"),
    ] {
        assert_eq!(added(names), expected, "{names:?}");
    }
}

#[test]
fn tables_are_read_in_the_order_of_their_tool() {
    for (names, expected) in [
        (&["V10__ten.sql", "V9__nine.sql"] as &[_], "v9 v10"),
        (
            &["2024-02-01-000000_two/up.sql", "2024-01-01-000000_one/up.sql", "2024-01-01-000000_one/down.sql"],
            "one two",
        ),
    ] {
        let found = migrations(names);
        let names: Vec<_> = found.catalog.tables.iter().map(|table| table.name.to_string()).collect();
        assert_eq!(names.join(" ").to_lowercase(), expected);
    }
}

#[test]
fn versions_that_are_taken_twice_are_found() {
    let same = |names: &[&str]| migrations(names).same_version().len();
    assert_eq!(same(&["1_a.up.sql", "1_a.down.sql", "2_b.sql"]), 0);
    assert_eq!(same(&["1_a.sql", "1_b.sql"]), 1);
    assert_eq!(same(&["V1__a.sql", "V1__b.sql"]), 1);
    assert_eq!(same(&["2024-01-01-000000_a/up.sql", "2024-01-01-000000_a/down.sql"]), 0);
    assert_ne!(same(&["2024-01-01-000000_a/up.sql", "20240101000000_b/up.sql"]), 0);
}

#[test]
fn tables_of_migrations_in_rust_are_read() {
    let rust = |text: &str| {
        let mut idens = Idens::default();
        idens.read(text);
        let mut catalog = Catalog::new(Database::Postgres);
        catalog.apply(&rust::sql(text, &idens, Database::Postgres).join(";\n"));
        catalog.tables.iter().map(show).collect::<Vec<_>>().join("; ")
    };
    let up = |body: &str| {
        format!(
            "use sea_orm_migration::prelude::*;
            impl MigrationTrait for Migration {{
                async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {{ {body} }}
                async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {{
                    manager.drop_table(Table::drop().table(User::Table).to_owned()).await
                }}
            }}
            #[derive(DeriveIden)] enum User {{ Table, Id, Email, TeamId }}
            #[derive(DeriveIden)] enum Team {{ #[sea_orm(iden = \"teams\")] Table, Id }}
            #[derive(Iden)] #[iden = \"posts\"] enum Post {{ Table, Id, #[iden = \"text\"] Body }}"
        )
    };
    for (body, expected) in [
        (
            "manager.create_table(Table::create().table(User::Table).if_not_exists()
                .col(ColumnDef::new(User::Id).integer().not_null().auto_increment().primary_key())
                .col(ColumnDef::new(User::Email).string().not_null().unique_key())
                .col(&mut ColumnDef::new(User::TeamId).uuid())
                .foreign_key(ForeignKey::create().name(\"fk\").from(User::Table, User::TeamId).to(Team::Table, Team::Id))
                .to_owned()).await",
            "user(id INTEGER pk, email VARCHAR unique, team_id UUID) -> teams",
        ),
        (
            "manager.create_table(Table::create().table(Team::Table).col(pk_uuid(Team::Id))
                .col(string_null(Alias::new(\"name\"))).to_owned()).await?;
             manager.alter_table(Table::alter().table(Team::Table).add_column(ColumnDef::new(\"size\").big_integer())
                .rename_column(Alias::new(\"name\"), \"title\").to_owned()).await",
            "teams(id UUID pk, title VARCHAR, size BIGINT)",
        ),
        (
            "let table = table_auto(Post::Table).col(pk_auto(Post::Id)).col(text(Post::Body)).to_owned();
             manager.create_table(table).await?;
             manager.rename_table(Table::rename().table(Post::Table, Alias::new(\"notes\")).to_owned()).await",
            "notes(id INTEGER pk, text TEXT)",
        ),
        (
            "manager.get_connection().execute_unprepared(\"CREATE TABLE users (id BIGINT PRIMARY KEY)\").await",
            "users(id BIGINT pk)",
        ),
        (
            "create_table(m, \"users\", &[(\"id\", ColType::PkAuto), (\"pid\", ColType::Uuid), (\"email\", \
             ColType::StringUniq)], &[(\"team\", \"\")]).await",
            "users(id INTEGER pk, pid UUID, email VARCHAR unique, team_id INTEGER, created_at TIMESTAMPTZ, \
             updated_at TIMESTAMPTZ) -> teams",
        ),
        ("manager.create_table(schema.create_table_from_entity(Entity)).await", ""),
    ] {
        assert_eq!(rust(&up(body)), expected, "{body}");
    }
    let constant = "const UP: &str = r#\"CREATE TABLE a (id INT);\"#; const DOWN: &str = \"DROP TABLE a\";
        impl M for N { async fn up(&self) { run(UP).await } async fn down(&self) { run(DOWN).await } }";
    assert_eq!(rust(constant), "a(id INT)");
    let refinery = "pub fn migration() -> String { \"CREATE TABLE a (id INT)\".to_owned() }";
    assert_eq!(rust(refinery), "a(id INT)");
}

#[test]
fn a_new_version_is_later_than_all_there() {
    assert_eq!(next(&["20240101000000_a.sql"]), "20260304050607");
    assert_eq!(next(&["20260304050607_a.sql"]), "20260304050608");
    assert_eq!(next(&["29990101235959_a.sql"]), "29990101235960");
    assert_eq!(next(&["0009_a.sql", "0002_b.sql"]), "0010");
    assert_eq!(next(&["9_a.sql"]), "10");
}

#[test]
fn versions_are_ordered_as_numbers_and_other_files_are_ignored() {
    let names = ["10_ten.sql", "9_nine.up.sql", "9_nine.down.sql", "README.md", "seed.sql", "11.sql", "12_x.txt"];
    let found = migrations(&names);
    let names: Vec<_> = found.catalog.tables.iter().map(|table| table.name.to_string()).collect();
    assert_eq!(names, ["nine", "ten"]);
}

#[test]
fn keys_and_references_are_found_at_columns_and_at_tables() {
    let sql = "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY AUTOINCREMENT, email TEXT NOT NULL UNIQUE);
        CREATE TABLE posts (id BIGINT, user_id BIGINT REFERENCES users (id) ON DELETE CASCADE, slug varchar(20),
            PRIMARY KEY (user_id, id), UNIQUE (slug), FOREIGN KEY (id) REFERENCES public.things (id));";
    let expected = [
        "posts(id BIGINT pk, user_id BIGINT pk, slug VARCHAR(20) unique) -> users -> things",
        "users(id INTEGER pk, email TEXT unique)",
    ];
    assert_eq!(tables(sql), expected);
    assert_eq!(catalog(sql).table("POSTS").unwrap().primary_key(), ["user_id", "id"]);
}

#[test]
fn names_are_read_in_every_kind_of_quote() {
    for name in ["\"user\"", "`user`", "[user]", "public.\"user\"", "\"auth\".\"user\"", "main.[user]"] {
        assert_eq!(tables(&format!("CREATE TABLE {name} ([id] BLOB PRIMARY KEY)")), ["user(id BLOB pk)"], "{name}");
    }
}

#[test]
fn types_of_every_database_are_kept() {
    let sql = "CREATE TABLE t (a bigserial PRIMARY KEY, b UUID DEFAULT gen_random_uuid(), c TEXT[] NOT NULL,
        d timestamp with time zone, e, f BIGINT GENERATED BY DEFAULT AS IDENTITY, g citext)";
    let expected = "t(a BIGSERIAL pk, b UUID, c TEXT[], d TIMESTAMP WITH TIME ZONE, e, f BIGINT, g CITEXT)";
    assert_eq!(tables(sql), [expected]);
}

#[test]
fn altered_tables_are_followed() {
    let sql = "CREATE TABLE people (pid INT, old TEXT, mail TEXT);
        CREATE TABLE posts (author INT REFERENCES people);
        ALTER TABLE people RENAME TO users;
        ALTER TABLE users RENAME COLUMN pid TO id;
        ALTER TABLE users RENAME mail TO email;
        ALTER TABLE users ADD COLUMN team_id INTEGER REFERENCES teams (id);
        ALTER TABLE users DROP COLUMN old;
        ALTER TABLE ONLY public.users ADD CONSTRAINT users_pkey PRIMARY KEY (id), ALTER COLUMN id TYPE bigint;
        CREATE UNIQUE INDEX by_email ON users (email);
        CREATE UNIQUE INDEX by_team ON users (team_id) WHERE team_id > 0;
        CREATE TABLE gone (id INT); DROP TABLE IF EXISTS gone, never;";
    assert_eq!(
        tables(sql),
        ["posts(author INT) -> users", "users(id BIGINT pk, email TEXT unique, team_id INTEGER) -> teams"]
    );
}

#[test]
fn a_table_rebuilt_for_sqlite_ends_under_its_own_name() {
    let sql = "CREATE TABLE users (id INTEGER PRIMARY KEY); CREATE TABLE posts (user_id INTEGER REFERENCES users (id));
        CREATE TABLE new_users (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
        INSERT INTO new_users SELECT * FROM users; DROP TABLE users; ALTER TABLE new_users RENAME TO users;";
    assert_eq!(tables(sql), ["posts(user_id INTEGER) -> users", "users(id BLOB pk)"]);
}

#[test]
fn statements_that_no_parser_knows_are_passed_over() {
    let unknown = [
        "PRAGMA foreign_keys = ON",
        "DO $$ BEGIN CREATE TABLE inside (id INT); DROP TABLE users; END $$",
        "DO $body$ BEGIN PERFORM 'it''s'; END $body$",
        "CREATE VIRTUAL TABLE t USING fts5(a, tokenize = 'porter')",
        "CREATE TRIGGER t AFTER UPDATE ON users BEGIN UPDATE users SET a = 1; DELETE FROM x; END",
        "CREATE RULE r AS ON INSERT TO users DO INSTEAD (DELETE FROM a; DELETE FROM b)",
        "this is garbage ) ( , \u{1F980}",
        "INSERT INTO users VALUES ('; DROP TABLE users; --', E'it\\'s; DROP TABLE users;')",
        "-- don't; DROP TABLE users;\n/* it's; DROP TABLE users; \" */ SELECT 1",
    ];
    for sql in unknown {
        let around = format!("CREATE TABLE users (id INTEGER);\r\n{sql};\r\nCREATE TABLE after (id INTEGER);\r\n");
        assert_eq!(tables(&around), ["after(id INTEGER)", "users(id INTEGER)"], "{sql}");
    }
}

/// Whether `users` has no other columns than those of its `CREATE TABLE`, as far as a statement shows.
fn stays_complete(statement: &str) -> bool {
    let mut catalog = Catalog::new(Database::Postgres);
    catalog.apply(&format!("CREATE TABLE users (id BIGINT);\n{statement};"));
    catalog.table("users").unwrap().is_complete
}

#[test]
fn a_block_that_only_raises_errors_changes_no_table() {
    let check = "IF to_regclass('users; ') IS NULL THEN\n RAISE EXCEPTION 'no users; END', current_user;\n END IF;";
    for block in [
        format!("DO $$\nBEGIN\n{check}\nEND\n$$"),
        format!("DO $sagents$ begin {check} {check} -- ALTER TABLE users\n end; $sagents$"),
        format!("DO LANGUAGE plpgsql $$BEGIN {check}END$$"),
        "DO $$BEGIN RAISE NOTICE 'users'; END$$".to_owned(),
    ] {
        assert!(stays_complete(&block), "{block}");
    }
    for block in [
        "DO $$ BEGIN ALTER TABLE users ADD COLUMN org_id BIGINT; END $$".to_owned(),
        format!("DO $$ BEGIN {check} ALTER TABLE users ADD COLUMN org_id BIGINT; END $$"),
        "DO $$ BEGIN IF TRUE THEN RAISE NOTICE 'a'; ALTER TABLE users ADD org_id INT; END IF; END $$".to_owned(),
        "DO $$ BEGIN IF FALSE THEN RAISE NOTICE 'a'; ELSE ALTER TABLE users ADD org_id INT; END IF; END $$".to_owned(),
        "DO $$ BEGIN IF TRUE THEN ALTER TABLE users ADD org_id INT; RAISE NOTICE 'a'; END IF; END $$".to_owned(),
        "DO $$ BEGIN IF CASE WHEN a THEN b END THEN ALTER TABLE users ADD org_id INT; END IF; END $$".to_owned(),
        "DO $$ BEGIN EXECUTE 'ALTER TABLE users ADD COLUMN org_id BIGINT'; END $$".to_owned(),
        "DO $$ BEGIN PERFORM add_column('users', 'org_id'); END $$".to_owned(),
        "DO 'BEGIN ALTER TABLE users ADD org_id INT; END'".to_owned(),
        "DO $$ BEGIN ALTER TABLE users ADD org_id INT".to_owned(),
    ] {
        assert!(!stays_complete(&block), "{block}");
    }
}

#[test]
fn a_file_whose_quotes_do_not_end_is_read_as_far_as_it_goes() {
    let sql = "CREATE TABLE a (id INT); SELECT 'oops; CREATE TABLE b (id INT)";
    assert_eq!(tables(sql), ["a(id INT)", "b(id INT)"]);
}

#[test]
fn a_table_with_parts_that_no_parser_knows_keeps_the_rest() {
    let sql = "CREATE TABLE users (
            id UNSIGNED BIG INT NOT  NULL PRIMARY KEY, -- the key, of course
            \"name\" TEXT CHECK (name <> '),(') ODD THINGS,
            period tstzrange NOT NULL,
            -- no two at once
            CONSTRAINT overlap EXCLUDE USING gist (period WITH &&),
            FOREIGN KEY (id) REFERENCES people (id)
        ) STRICT, WITHOUT ROWID";
    let found = tables(sql);
    assert_eq!(found, ["users(id UNSIGNED BIG INT pk, name TEXT, period TSTZRANGE) -> people"]);
}

#[test]
fn options_behind_the_columns_do_not_hide_a_table() {
    for options in ["STRICT", "WITHOUT ROWID", "STRICT, WITHOUT ROWID", "WITHOUT ROWID, STRICT", "WITH (x = 1) ODD"] {
        let sql = format!("CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY) {options}");
        assert_eq!(tables(&sql), ["t(id TEXT pk)"], "{options}");
    }
}

#[test]
fn a_temporary_table_is_no_table_and_one_that_exists_stays() {
    let sql = "CREATE TEMP TABLE t (id INT); CREATE TABLE u (id INT); CREATE TABLE IF NOT EXISTS U (other INT);";
    assert_eq!(tables(sql), ["u(id INT)"]);
}

#[test]
fn postgres_folds_what_is_not_quoted_and_knows_schemas() {
    let mut catalog = Catalog::new(Database::Postgres);
    catalog.apply(
        r#"CREATE TABLE Auth.Users (Id UUID PRIMARY KEY);
           CREATE TABLE public."Teams" ("Id" BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
           ALTER TABLE auth.users RENAME COLUMN ID TO Key;"#,
    );
    assert!(catalog.table("users").is_none());
    let users = catalog.named("users")[0];
    assert_eq!((users.name.to_string().as_str(), users.primary_key()), ("auth.users", &["key".to_owned()][..]));
    let teams = catalog.table("teams").unwrap();
    assert_eq!((teams.name.to_string().as_str(), teams.primary_key()), ("Teams", &["Id".to_owned()][..]));
    assert_eq!(teams.columns[0].declared, "BIGINT");
}

#[test]
fn a_name_of_postgres_means_the_table_along_the_search_path() {
    let found = |sql: &str| tables_of(Database::Postgres, sql).join(", ");
    let users = "CREATE TABLE users (id INT PRIMARY KEY); CREATE TABLE audit.users (key INT PRIMARY KEY);";
    for (sql, expected) in [
        ("DROP TABLE IF EXISTS legacy.users", "audit.users(key INT pk), users(id INT pk)"),
        ("DROP TABLE users", "audit.users(key INT pk)"),
        ("DROP TABLE public.users", "audit.users(key INT pk)"),
        ("DROP TABLE audit.users", "users(id INT pk)"),
        ("DROP SCHEMA audit CASCADE", "users(id INT pk)"),
        ("ALTER SCHEMA audit RENAME TO log", "log.users(key INT pk), users(id INT pk)"),
        ("ALTER TABLE users SET SCHEMA crm", "audit.users(key INT pk), crm.users(id INT pk)"),
        ("ALTER TABLE IF EXISTS ONLY audit.users SET SCHEMA crm", "crm.users(key INT pk), users(id INT pk)"),
        ("ALTER TABLE audit.users RENAME TO people", "audit.people(key INT pk), users(id INT pk)"),
        ("ALTER TABLE audit.users RENAME COLUMN key TO no", "audit.users(no INT pk), users(id INT pk)"),
        ("CREATE TABLE IF NOT EXISTS audit.users (x INT)", "audit.users(key INT pk), users(id INT pk)"),
        ("SET search_path TO audit, public; DROP TABLE users", "users(id INT pk)"),
        ("SET search_path TO crm, audit; DROP TABLE users", "users(id INT pk)"),
        ("SET LOCAL search_path = 'audit'; DROP TABLE users", "users(id INT pk)"),
        ("SET SCHEMA 'audit'; DROP TABLE users", "users(id INT pk)"),
        ("SET search_path TO \"$user\", public; DROP TABLE users", "audit.users(key INT pk)"),
        ("SET search_path TO audit; RESET search_path; DROP TABLE users", "audit.users(key INT pk)"),
        ("SET search_path TO audit; SET search_path TO DEFAULT; DROP TABLE users", "audit.users(key INT pk)"),
        ("CREATE TEMP TABLE users (id INT); DROP TABLE users", "audit.users(key INT pk), users(id INT pk)"),
        ("DROP TABLE pg_temp.users", "audit.users(key INT pk), users(id INT pk)"),
        (
            "SET search_path TO crm; CREATE TABLE t (u INT REFERENCES users, v INT REFERENCES public.users)",
            "audit.users(key INT pk), crm.t(u INT, v INT) -> crm.users -> users, users(id INT pk)",
        ),
    ] {
        assert_eq!(found(&format!("{users} {sql};")), expected, "{sql}");
    }
    let mut catalog = catalog_of(Database::Postgres, "SET search_path TO audit;");
    catalog.apply("CREATE TABLE users (id INT);");
    assert!(catalog.table("users").is_some(), "the search path ends with the migration that set it");
}

#[test]
fn references_of_postgres_follow_a_table_and_go_with_it() {
    let sql = "CREATE TABLE users (id INT PRIMARY KEY); CREATE TABLE posts (u INT REFERENCES users);";
    let found = |then: &str| tables_of(Database::Postgres, &format!("{sql} {then};"))[0].clone();
    assert_eq!(found("ALTER TABLE users SET SCHEMA crm"), "crm.users(id INT pk)");
    assert!(
        tables_of(Database::Postgres, &format!("{sql} ALTER TABLE users SET SCHEMA crm;"))[1].ends_with("-> crm.users")
    );
    let renamed = "CREATE TABLE users (id INT PRIMARY KEY); CREATE TABLE posts (u INT REFERENCES users (id));
        ALTER TABLE users RENAME COLUMN id TO key;";
    let renamed = catalog_of(Database::Postgres, renamed);
    assert_eq!(renamed.referring("users").map(|(_, key)| key.to_columns.join(" ")).collect::<Vec<_>>(), ["key"]);
    assert_eq!(found("DROP TABLE users CASCADE"), "posts(u INT)");
    assert_eq!(found("ALTER TABLE posts DROP CONSTRAINT posts_u_fkey"), "posts(u INT)");
}

#[test]
fn tables_of_sqlite_are_in_one_place_or_temporary() {
    let sql =
        "CREATE TABLE main.users (id INTEGER PRIMARY KEY); CREATE TABLE temp.users (id TEXT); DROP TABLE TEMP.users;
        ALTER TABLE temp.users RENAME TO gone; CREATE TABLE Temp.other (id TEXT);";
    assert_eq!(tables(sql), ["users(id INTEGER pk)"]);
    assert_eq!(tables("CREATE TABLE t (id INT); DROP SCHEMA s CASCADE; ALTER SCHEMA s RENAME TO r;"), ["t(id INT)"]);
}

#[test]
fn the_keys_that_a_foreign_key_can_name_are_known() {
    let keys = |sql: &str| catalog_of(Database::Postgres, sql).table("t").unwrap().single_keys().join(" ");
    for (sql, expected) in [
        ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b), UNIQUE (b))", "b"),
        ("CREATE TABLE t (a INT UNIQUE, b INT PRIMARY KEY)", "b a"),
        ("CREATE TABLE t (a INT PRIMARY KEY DEFERRABLE, b INT UNIQUE NOT DEFERRABLE)", "b"),
        ("CREATE TABLE t (a INT, UNIQUE (a) INITIALLY DEFERRED)", ""),
        ("CREATE TABLE t (a INT); ALTER TABLE t ADD UNIQUE (a) DEFERRABLE", ""),
        ("CREATE TABLE t (a INT PRIMARY KEY); ALTER TABLE t DROP CONSTRAINT t_pkey", ""),
        ("CREATE TABLE t (a INT UNIQUE); ALTER TABLE t DROP CONSTRAINT t_a_key", ""),
        ("CREATE TABLE t (a INT CONSTRAINT one UNIQUE); ALTER TABLE t DROP CONSTRAINT one", ""),
        (
            "CREATE TABLE t (a INT UNIQUE); ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t; \
          ALTER TABLE t RENAME CONSTRAINT t_a_key TO k; ALTER TABLE t DROP CONSTRAINT k",
            "",
        ),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (a)", "a"),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (a); DROP INDEX i", ""),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (a); DROP INDEX other.i", "a"),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (a); ALTER INDEX i RENAME TO j; DROP INDEX j", ""),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (a) WHERE a > 0", ""),
        ("CREATE TABLE t (a INT); CREATE UNIQUE INDEX i ON t (abs(a))", ""),
        ("CREATE TABLE t (a INT); CREATE INDEX i ON t (a)", ""),
        (
            "CREATE TABLE t (a INT); CREATE UNIQUE INDEX ON t (a); ALTER TABLE t ADD PRIMARY KEY USING INDEX t_a_idx",
            "a",
        ),
        ("CREATE TABLE t (a INT UNIQUE); ALTER TABLE t DROP COLUMN a", ""),
        ("CREATE TABLE t (a INT UNIQUE); ALTER TABLE t RENAME COLUMN a TO b", "b"),
        ("CREATE UNLOGGED TABLE t (a INT PRIMARY KEY)", ""),
        ("CREATE UNLOGGED TABLE t (a INT PRIMARY KEY); ALTER TABLE t SET LOGGED", "a"),
        ("CREATE TABLE t (a INT PRIMARY KEY); ALTER TABLE t SET UNLOGGED", ""),
    ] {
        assert_eq!(keys(sql), expected, "{sql}");
    }
}

#[test]
fn comments_of_postgres_nest_and_those_of_sqlite_do_not() {
    let sql = "/* /* */ CREATE TABLE a (id INT); */ CREATE TABLE b (id /* /* */, */ INT); -- CREATE TABLE c (id INT);";
    assert_eq!(tables_of(Database::Postgres, sql), ["b(id INT)"]);
    assert_eq!(tables("/* /* */ CREATE TABLE a (id INT); /* CREATE TABLE b (id INT);"), ["a(id INT)"]);
}

#[test]
fn the_definition_of_a_column_follows_its_changes() {
    let definitions = |database, sql: &str| {
        let catalog = catalog_of(database, sql);
        catalog.table("t").unwrap().columns.iter().map(Column::definition).collect::<Vec<_>>().join(", ")
    };
    let sql = "CREATE TABLE t (date DATE CHECK (date > CAST('1' AS date) AND t.date < date(date)), \
               y INT GENERATED ALWAYS AS (date * 2) STORED, z TEXT AS ('date' || \"Date\")); \
               ALTER TABLE t RENAME COLUMN date TO \"on\"; ALTER TABLE t RENAME y TO w;";
    assert_eq!(
        definitions(Database::Sqlite, sql),
        "\"on\" DATE CHECK (\"on\" > CAST('1' AS DATE) AND t.\"on\" < date(\"on\")), \
         w INT GENERATED ALWAYS AS (\"on\" * 2) STORED, z TEXT AS ('date' || \"on\")"
    );
    let sql = "CREATE TABLE t (a INT, b INT REFERENCES s.u (a) CHECK (b > a), c INT REFERENCES u (a)); \
               ALTER TABLE t RENAME a TO x;";
    for database in [Database::Sqlite, Database::Postgres] {
        let expected = "x INT, b INT REFERENCES s.u (a) CHECK (b > x), c INT REFERENCES u (a)";
        assert_eq!(definitions(database, sql), expected);
    }
    let sql = "CREATE TABLE t (a INT DEFAULT 1); ALTER TABLE t ALTER a TYPE bigint, ALTER a SET DEFAULT 2, ALTER a SET NOT NULL;";
    assert_eq!(definitions(Database::Postgres, sql), "a BIGINT DEFAULT 2 NOT NULL");
    let sql = format!("{sql} ALTER TABLE t ALTER a DROP NOT NULL, ALTER a DROP DEFAULT;");
    assert_eq!(definitions(Database::Postgres, &sql), "a BIGINT");
}

#[test]
fn what_is_on_a_table_is_known() {
    let sql = "CREATE TABLE t (a INT); CREATE INDEX i ON t (a); CREATE INDEX j ON t (a); DROP INDEX j;
        CREATE TRIGGER one AFTER UPDATE OF a ON t BEGIN DELETE FROM x; END;
        CREATE TEMP TRIGGER two AFTER UPDATE ON t BEGIN DELETE FROM x; END;
        CREATE TRIGGER IF NOT EXISTS three INSTEAD OF INSERT ON \"t\" BEGIN DELETE FROM x; END; DROP TRIGGER three;
        CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT 1; CREATE VIEW x AS SELECT * FROM t; DROP VIEW x;
        ALTER TABLE t RENAME TO u;";
    let catalog = catalog(sql);
    let table = catalog.table("u").unwrap();
    assert_eq!((table.indexes().collect::<Vec<_>>(), table.triggers.join(" ")), (vec!["i"], "one".to_owned()));
    assert_eq!(catalog.views_with(&["u", "A"]).map(ToString::to_string).collect::<Vec<_>>(), ["v"]);
    assert_eq!(catalog.taken(), ["u", "v", "w", "i"]);
}

#[test]
fn after_the_last_version_there_is_none() {
    let found = migrations(&["9223372036854775807_a.sql"]);
    let now = chrono::Utc.with_ymd_and_hms(2026, 3, 4, 5, 6, 7).unwrap();
    let refused = found.new_scripts(now, "x", String::new(), String::new()).unwrap_err();
    insta::assert_snapshot!(refused, @r"
    9223372036854775807_a.sql has the largest version that there is, so none can follow
    help: give that migration a smaller version, or name another directory with --migrations
    ");
    assert_eq!(next(&["9223372036854775806_a.sql"]), "9223372036854775807");
}
