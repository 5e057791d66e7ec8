//! Differences of two schemas on real databases, with rows: each one alone and together with a change of prefix and of
//! owner, there and back.

use super::growth::upcoming;
use super::*;
use crate::schema::{Index, IndexColumn};

#[path = "../../../../tests/support/story.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod story;

use story::{Real, Story};

type Edit = fn(&mut Schema);

/// What differs, by its name, and what both schemas have.
const DIFFERENCES: &[(&str, Edit, Edit)] = &[
    ("nothing", |_| {}, |_| {}),
    ("upcoming", upcoming, |_| {}),
    (
        "columns",
        |schema| {
            schema.tables[1].columns.push(nullable("flag", Kind::Boolean));
            schema.tables[1].columns.push(nullable("link", Kind::Uuid));
            schema.tables[2].columns.push(defaulted("extra", Kind::Json, DefaultValue::EmptyObject));
        },
        |_| {},
    ),
    (
        "types",
        |schema| {
            column(&mut schema.tables[2], "item").kind = Kind::BigInteger;
            column(&mut schema.tables[4], "data").kind = Kind::Text;
        },
        |_| {},
    ),
    (
        "required",
        |schema| {
            let title = column(&mut schema.tables[0], "title");
            (title.nullable, title.default) = (false, Some(DefaultValue::EmptyObject));
            column(&mut schema.tables[2], "tool_call_id").nullable = false;
        },
        |_| {},
    ),
    (
        "defaults",
        |schema| {
            column(&mut schema.tables[0], "next_sequence").default = None;
            column(&mut schema.tables[1], "revision").default = Some(DefaultValue::Zero);
        },
        |_| {},
    ),
    (
        "checks",
        |schema| {
            let checks = &mut schema.tables[2].checks;
            checks.remove(0);
            checks[0].condition = "item >= -1".to_owned();
            checks.push(check("short", "length(role) < 100"));
            schema.tables[1].checks[0].name = "positive".to_owned();
        },
        |_| {},
    ),
    (
        "unique",
        |schema| {
            schema.tables[2].unique.clear();
            let columns = schema.tables[1].primary_key.columns.iter().cloned().chain(["write_id".to_owned()]);
            let key = Key { name: "write".to_owned(), columns: columns.collect() };
            schema.tables[1].unique.push(key);
        },
        |_| {},
    ),
    ("primary key", |schema| schema.tables[2].primary_key.columns.push("item".to_owned()), |_| {}),
    ("foreign key", to_states, |_| {}),
    (
        "referenced key",
        |schema| {
            let Table { primary_key, unique, name, .. } = &mut schema.tables[1];
            unique.push(Key { name: format!("{name}_key"), columns: primary_key.columns.clone() });
            primary_key.columns.push("revision".to_owned());
        },
        to_states,
    ),
    ("new parent", turns, |_| {}),
    (
        "indexes",
        |schema| {
            schema.tables[0].indexes[0].columns.reverse();
            schema.tables[2].indexes[0].only = None;
            let columns = vec![IndexColumn { name: "role".to_owned(), descending: true }];
            schema.tables[2].indexes.push(Index { name: "by_role".to_owned(), columns, only: None });
        },
        |_| {},
    ),
    ("clustered", |schema| schema.tables[2].clustered = !schema.tables[2].clustered, |_| {}),
];

/// What a difference comes together with.
const COMPANIONS: [&str; 4] = ["nothing", "a prefix", "a team and a prefix", "no owner"];

#[test]
fn every_difference_can_be_made_on_sqlite() {
    every_difference(Database::Sqlite);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn every_difference_can_be_made_on_postgres() {
    every_difference(Database::Postgres);
}

fn every_difference(database: Database) {
    let real = real(database);
    let mut refused = Vec::new();
    // Without the tables that would be left alone.
    let everything: Edit = |schema| {
        let others = DIFFERENCES.iter().filter(|(name, ..)| !["upcoming", "new parent"].contains(name));
        for (_, difference, _) in others {
            difference(schema);
        }
    };
    let everything: (&str, Edit, Edit) = ("everything", everything, |_| {});
    for (name, difference, both) in DIFFERENCES.iter().chain([&everything]) {
        for companion in COMPANIONS {
            for forwards in [true, false] {
                let (prefix, owner) = companion_of(companion);
                let (mut old, mut new) = (user(), tables(prefix, owner));
                both(&mut old);
                both(&mut new);
                difference(if forwards { &mut new } else { &mut old });
                let case = format!("{name}, with {companion}, {}", if forwards { "added" } else { "taken away" });
                let transition = transition(&old, &new, &backfill_for(owner)).expect(&case);
                let mut catalog = Catalog::new(database);
                catalog.apply(&sql::create(&old, database));
                if transition.refuse_obstacles(&catalog, database).is_err() {
                    refused.push(case);
                } else if let Err(error) = there_and_back(&real, database, &old, &transition) {
                    panic!("{case}: {error}\n{}", transition.up(database));
                }
            }
        }
    }
    // A table that is left alone refers to keys that are replaced.
    insta::allow_duplicates! { insta::assert_snapshot!(refused.join("\n"), @"
    upcoming, with a team and a prefix, taken away
    upcoming, with no owner, taken away
    new parent, with a team and a prefix, taken away
    new parent, with no owner, taken away
    "); }
}

/// A statement that cannot be read as a whole may have changed every table that it names.
#[test]
fn our_migrations_leave_no_doubt_about_the_tables_of_owners() {
    for database in BOTH {
        for (name, difference, both) in DIFFERENCES {
            for companion in COMPANIONS {
                let (prefix, owner) = companion_of(companion);
                let (mut old, mut new) = (user(), tables(prefix, owner));
                both(&mut old);
                both(&mut new);
                difference(&mut new);
                let transition = transition(&old, &new, &backfill_for(owner)).unwrap();
                let (create, up, down) =
                    (sql::create(&old, database), transition.up(database), transition.down(database));
                for script in [create, up, down] {
                    let mut catalog = Catalog::new(database);
                    catalog.apply(&owners(database));
                    catalog.apply(&script);
                    let is_known = ["users", "teams"].map(|table| catalog.table(table).unwrap().is_complete);
                    assert_eq!(is_known, [true, true], "{name}, with {companion}\n{script}");
                }
            }
        }
    }
}

/// The name of an owner's column, its kind and its table.
type Owner = (&'static str, Kind, Option<&'static str>);

/// The prefix and the owner of the new tables.
fn companion_of(companion: &str) -> (&'static str, Option<Owner>) {
    let user = Some(("user_id", Kind::BigInteger, Some("users")));
    let team = Some(("team_id", Kind::Uuid, Some("teams")));
    match companion {
        "a prefix" => ("chat_", user),
        "no owner" => ("sagents_", None),
        "a team and a prefix" => ("chat_", team),
        _ => ("sagents_", user),
    }
}

fn backfill_for(owner: Option<Owner>) -> Wish<'static> {
    match owner {
        Some(("team_id", ..)) => backfill(BACKFILL),
        Some(_) => same_owner(),
        None => Wish::default(),
    }
}

fn real(database: Database) -> Real {
    match database {
        Database::Sqlite => Real::Sqlite,
        Database::Postgres => Real::postgres(),
    }
}

/// The tables after the change are those of a fresh install, and the rows are all there, up and down.
fn there_and_back(real: &Real, database: Database, old: &Schema, transition: &Transition) -> Result<(), String> {
    let (new, path) = (transition.schema(), transition.path_up());
    let note_before = |story: &mut Story, step: &str| {
        for table in &path.tables {
            story.note_rows(step, &table.from.name, table.kept().map(|(from, _)| from.name.as_str()));
        }
    };
    let session = real.open();
    let mut story = session.story();
    story.run(&owners(database));
    story.run(&sql::create(new, database));
    note_tables(&mut story, "fresh", new);
    story.run(&sql::drop(new, database));
    story.run(&sql::create(old, database));
    story.run(&rows(old, database));
    note_tables(&mut story, "old", old);
    note_before(&mut story, "rows");
    story.run(&transition.up(database));
    note_tables(&mut story, "new", new);
    for table in &path.tables {
        story.note_rows("rows in new", &table.to.name, table.kept().map(|(_, to)| to.name.as_str()));
    }
    story.run(&transition.down(database));
    note_tables(&mut story, "back", old);
    note_before(&mut story, "rows back");
    let notes = story.play()?;
    notes.same("fresh", "new")?;
    notes.same("rows", "rows in new")?;
    notes.same("old", "back")?;
    notes.same("rows", "rows back")
}

fn note_tables(story: &mut Story, step: &str, schema: &Schema) {
    for table in &schema.tables {
        story.note_table(step, &table.name);
    }
}

#[test]
fn what_would_be_lost_or_is_missing_stops_a_migration_on_sqlite() {
    stops(Database::Sqlite);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn what_would_be_lost_or_is_missing_stops_a_migration_on_postgres() {
    stops(Database::Postgres);
}

/// A migration, up or down, which stops after a statement, and after another one does not.
struct Stop {
    old: fn(&mut Schema),
    new: fn(&mut Schema),
    /// The tables as they are before, and the migration is the way back.
    down: bool,
    cause: &'static str,
    message: &'static str,
    remedy: &'static str,
}

const STOPS: &[Stop] = &[
    Stop {
        old: |_| {},
        new: upcoming,
        down: true,
        cause: "UPDATE sagents_agent_states SET runs = 1;",
        message: "there are rows in sagents_agent_states with a value of runs that would be lost; nothing was changed",
        remedy: "UPDATE sagents_agent_states SET runs = 0;",
    },
    Stop {
        old: |_| {},
        new: upcoming,
        down: true,
        cause: "UPDATE sagents_conversations SET pinned_at = inserted_at;",
        message: "there are rows in sagents_conversations with a value of pinned_at that would be lost",
        remedy: "UPDATE sagents_conversations SET pinned_at = NULL;",
    },
    Stop {
        old: |_| {},
        new: upcoming,
        down: true,
        cause: "INSERT INTO sagents_agent_runs SELECT user_id, conversation_id, 0, 0, write_id, data
            FROM sagents_agent_states;",
        message: "there are rows in sagents_agent_runs, and they would be lost; nothing was changed",
        remedy: "DELETE FROM sagents_agent_runs;",
    },
    Stop {
        old: |_| {},
        new: |schema| column(&mut schema.tables[0], "title").nullable = false,
        down: false,
        cause: "UPDATE sagents_conversations SET title = NULL;",
        message: "there are rows in sagents_conversations with no value of title: a text is needed",
        remedy: "UPDATE sagents_conversations SET title = 'a title';",
    },
    Stop {
        old: |schema| column(&mut schema.tables[1], "version").kind = Kind::BigInteger,
        new: |_| {},
        down: false,
        cause: "UPDATE sagents_agent_states SET version = 3000000000;",
        message: "there are rows in sagents_agent_states with a version that is too large for a 32-bit integer",
        remedy: "UPDATE sagents_agent_states SET version = 3;",
    },
];

fn stops(database: Database) {
    let real = real(database);
    for stop in STOPS {
        let (mut old, mut new) = (user(), user());
        (stop.old)(&mut old);
        (stop.new)(&mut new);
        let transition = change(&old, &new, same_owner());
        let (tables, migration) =
            if stop.down { (&new, transition.down(database)) } else { (&old, transition.up(database)) };
        let session = real.open();
        session.run(&owners(database)).unwrap();
        session.run(&sql::create(tables, database)).unwrap();
        // The rows of the old schema: what is new has its default.
        session.run(&rows(&user(), database)).unwrap();
        session.run(stop.cause).unwrap();
        let tables_now = || {
            let mut story = session.story();
            note_tables(&mut story, "tables", tables);
            story.play().unwrap()
        };
        let before = tables_now();
        let migration = format!("BEGIN;\n{migration}\nCOMMIT;");
        let error = session.run(&migration).expect_err(stop.message);
        assert!(error.contains(stop.message), "{error}");
        assert_eq!(tables_now(), before, "{}", stop.message);
        session.run(stop.remedy).unwrap();
        session.run(&migration).expect(stop.message);
    }
}

#[test]
fn a_backfill_that_finds_several_owners_stops_a_migration_on_sqlite() {
    stops_at_several_owners(
        Database::Sqlite,
        "a query of the backfill finds several rows for a conversation; nothing was changed",
    );
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_backfill_that_finds_several_owners_stops_a_migration_on_postgres() {
    stops_at_several_owners(Database::Postgres, "more than one row returned by a subquery used as an expression");
}

/// User 2 is in two teams. A person may choose one of them, the database may not.
fn stops_at_several_owners(database: Database, message: &str) {
    const QUERY: &str = "SELECT team_id FROM memberships WHERE memberships.member = conversation.user_id";
    let real = real(database);
    let (one, other) = (uuid_literal(7, database), uuid_literal(8, database));
    let memberships = format!(
        "CREATE TABLE memberships (member BIGINT NOT NULL, team_id {} NOT NULL);
         INSERT INTO teams VALUES ({other});
         INSERT INTO memberships VALUES (1, {one}), (2, {one}), (2, {other});",
        database.column_type(Kind::Uuid)
    );
    let tables = [owners(database), memberships, sql::create(&user(), database), rows(&user(), database)].concat();
    for (expression, is_chosen) in [
        (format!("({QUERY})"), false),
        (format!("coalesce(\n    NULL, ({QUERY} GROUP BY memberships.team_id)\n)"), false),
        (format!("(WITH found AS ({QUERY}) SELECT found.team_id FROM found)"), false),
        (format!("({QUERY} ORDER BY memberships.team_id LIMIT 2)"), false),
        (format!("({QUERY} UNION ALL {QUERY})"), false),
        (format!("({QUERY} ORDER BY memberships.team_id LIMIT 1)"), true),
        (format!("({QUERY} AND memberships.team_id > {one} UNION {QUERY} AND conversation.user_id = 1)"), true),
    ] {
        let session = real.open();
        session.run(&tables).unwrap();
        let note = || {
            let mut story = session.story();
            note_tables(&mut story, "tables", &user());
            story.note_rows("rows", "sagents_conversations", ["user_id", "id"].into_iter());
            story.play().unwrap()
        };
        let before = note();
        let up = change(&user(), &team(), backfill(&expression)).up(database);
        let result = session.run(&format!("BEGIN;\n{up}\nCOMMIT;"));
        if is_chosen {
            result.expect(&expression);
        } else {
            let error = result.expect_err(&expression);
            assert!(error.contains(message), "{expression}: {error}");
            assert_eq!(note(), before, "{expression}");
        }
    }
}

/// A second foreign key of the messages.
fn to_states(schema: &mut Schema) {
    let mut key = schema.tables[1].foreign_keys[0].clone();
    key.name.push_str("_states");
    key.table.clone_from(&schema.tables[1].name);
    key.references.clone_from(&key.columns);
    schema.tables[2].foreign_keys.push(key);
}

/// A new table that one of the others refers to.
fn turns(schema: &mut Schema) {
    let mut turns = schema.tables[1].clone();
    let prefix = schema.prefix().unwrap();
    turns.name = format!("{prefix}turns");
    turns.primary_key.name = format!("{prefix}turns_pkey");
    turns.primary_key.columns.push("revision".to_owned());
    let messages = &mut schema.tables[2];
    messages.columns.push(nullable("turn", Kind::BigInteger));
    let mut key = messages.foreign_keys[0].clone();
    key.name.push_str("_turns");
    key.table.clone_from(&turns.name);
    key.columns.push("turn".to_owned());
    key.references.clone_from(&turns.primary_key.columns);
    messages.foreign_keys.push(key);
    schema.tables.insert(2, turns);
}

fn column<'a>(table: &'a mut Table, name: &str) -> &'a mut Column {
    table.columns.iter_mut().find(|column| column.name == name).unwrap()
}

/// The tables of owners.
fn owners(database: Database) -> String {
    let (integer, uuid) = (database.column_type(Kind::BigInteger), database.column_type(Kind::Uuid));
    let team = uuid_literal(7, database);
    format!(
        "CREATE TABLE teams (id {uuid} NOT NULL PRIMARY KEY);
         CREATE TABLE users (id {integer} NOT NULL PRIMARY KEY, team_id {uuid} NOT NULL);
         INSERT INTO teams VALUES ({team});
         INSERT INTO users VALUES (1, {team}), (2, {team});"
    )
}

/// Two rows for every table.
fn rows(schema: &Schema, database: Database) -> String {
    let row = |table: &Table, number: u8| {
        let values: Vec<_> = table.columns.iter().map(|column| value(column, number, database)).collect();
        let columns: Vec<_> = table.columns.iter().map(|column| database.quote(&column.name)).collect();
        let name = database.quote(&table.name);
        format!("INSERT INTO {name} ({}) VALUES ({});\n", columns.join(", "), values.join(", "))
    };
    schema.tables.iter().flat_map(|table| [1, 2].map(|number| row(table, number))).collect()
}

fn value(column: &Column, number: u8, database: Database) -> String {
    match (column.name.as_str(), column.kind) {
        ("role", _) => "'user'".to_owned(),
        ("content_type", _) => "'text'".to_owned(),
        ("status", _) if column.nullable => "NULL".to_owned(),
        ("status", _) => "'running'".to_owned(),
        ("delivery", _) if number == 1 => "'draft'".to_owned(),
        ("id" | "conversation_id", _) => uuid_literal(number, database),
        // What may be empty is, in one of the rows.
        _ if column.nullable && column.name != "tool_call_id" && column.name != "title" && number == 2 => {
            "NULL".to_owned()
        }
        (_, Kind::Boolean) => format!("CAST({} AS {})", number % 2, database.column_type(Kind::Boolean)),
        (_, Kind::Integer | Kind::BigInteger) => number.to_string(),
        (_, Kind::Uuid) => uuid_literal(number + 100, database),
        (_, Kind::Text | Kind::Json) => "'{\"a\": [1, \"it''s\"]}'".to_owned(),
        (_, Kind::ExactJson) => "'{\"a\":  1.50}'".to_owned(),
        (_, Kind::Time) => "'2026-01-02T03:04:05.000006+00:00'".to_owned(),
    }
}

fn uuid_literal(number: u8, database: Database) -> String {
    match database {
        Database::Sqlite => format!("x'0190c0de000070008000000000000{number:03}'"),
        Database::Postgres => format!("'0190c0de-0000-7000-8000-000000000{number:03}'"),
    }
}
