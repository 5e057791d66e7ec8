//! What the host has on the tables.

use super::*;

#[test]
fn what_a_host_has_on_tables_is_no_obstacle_to_a_change_in_place() {
    let mut older = user();
    older.tables[2].columns.retain(|column| column.name != "metadata");
    let transition = change(&older, &user(), same_owner());
    assert_eq!(sqlite::rebuilt(&transition.path_down(&[])), ["sagents_display_messages"], "on the way back");
    for database in BOTH {
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(&older, database));
        catalog.apply("CREATE INDEX host ON sagents_display_messages (content);");
        catalog.apply("CREATE VIEW host_view AS SELECT * FROM sagents_display_messages;");
        transition.refuse_obstacles(&catalog, database).unwrap();
    }
}

#[test]
fn columns_of_the_host_are_carried_along() {
    let additions = [Addition {
        table: "sagents_conversations".to_owned(),
        column: "pinned".to_owned(),
        definition: "pinned INTEGER NOT NULL DEFAULT 0".to_owned(),
        generated: false,
    }];
    let chat = tables("chat_", Some(("team_id", Kind::Uuid, Some("teams"))));
    let transition = change(&user(), &chat, Wish { additions: &additions, ..backfill(BACKFILL) });
    for sql in [transition.up(Database::Sqlite), transition.down(Database::Sqlite)] {
        assert_eq!(sql.matches("pinned INTEGER NOT NULL DEFAULT 0,").count(), 1, "{sql}");
        assert_eq!(sql.matches("\"pinned\"").count(), 2, "{sql}");
        assert!(sql.contains("'pinned')"), "{sql}");
    }
    let additions = [Addition { column: "Team_Id".to_owned(), ..additions[0].clone() }];
    let refused = transition_error(&user(), &team(), &Wish { additions: &additions, ..backfill(BACKFILL) });
    insta::assert_snapshot!(refused, @r#"
    the table `sagents_conversations` has a column `Team_Id` of your own, and would get one of that name
    help: rename or drop yours in a migration, or choose another name with --owner-field
    "#);
}

/// The name of the old owner's column is needed for the new one, also in what the host computes from it.
#[test]
fn a_computed_column_of_the_host_is_made_again_but_not_copied() {
    let additions = [Addition {
        table: "sagents_conversations".to_owned(),
        column: "label".to_owned(),
        definition: "label TEXT GENERATED ALWAYS AS (user_id || title) VIRTUAL".to_owned(),
        generated: true,
    }];
    let person = tables("sagents_", Some(("user_id", Kind::Uuid, Some("people"))));
    let transition = change(&user(), &person, Wish { additions: &additions, ..backfill("1") });
    let (up, down) = (transition.up(Database::Sqlite), transition.down(Database::Sqlite));
    assert!(up.contains("    label TEXT GENERATED ALWAYS AS (\"old_user_id\" || title) VIRTUAL,\n"), "{up}");
    assert!(down.contains("    label TEXT GENERATED ALWAYS AS (\"user_id\" || title) VIRTUAL,\n"), "{down}");
    assert!(!up.contains("\"label\"") && !down.contains("\"label\""), "{up}{down}");
}

/// The next run reads the columns of a host's own from its migrations, ours among them.
#[test]
fn a_host_that_reads_its_migrations_finds_the_tables_that_are_recorded() {
    let schemas = [
        user(),
        team(),
        none(),
        tables("chat_", Some(("user_id", Kind::Uuid, None))),
        tables("", Some(("member_id", Kind::BigInteger, Some("users")))),
        grown(user()),
    ];
    let pairs = schemas.iter().flat_map(|old| schemas.iter().map(move |new| (old, new)));
    for (database, (old, new)) in pairs.flat_map(|pair| BOTH.map(|database| (database, pair))) {
        let there = transition(old, new, &same_owner()).unwrap();
        let dropped = transition(there.schema(), new, &Wish { drop_old_owner: true, ..same_owner() }).unwrap();
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(old, database));
        catalog.apply(&there.up(database));
        assert_eq!(found(&catalog, there.schema()), recorded(there.schema()));
        catalog.apply(&dropped.up(database));
        assert_eq!(found(&catalog, new), recorded(new));
        catalog.apply(&dropped.down(database));
        catalog.apply(&there.down(database));
        assert_eq!(found(&catalog, old), recorded(old));
    }
}

fn found(catalog: &Catalog, schema: &Schema) -> Vec<Vec<String>> {
    let columns = |table: &Table| {
        let found = catalog.table(&table.name).unwrap_or_else(|| panic!("{} is not found", table.name));
        let mut names: Vec<_> = found.columns.iter().map(|column| column.name.clone()).collect();
        names.sort();
        names
    };
    schema.tables.iter().map(columns).collect()
}

fn recorded(schema: &Schema) -> Vec<Vec<String>> {
    let columns = |table: &Table| {
        let mut names: Vec<_> = table.columns.iter().map(|column| column.name.clone()).collect();
        names.sort();
        names
    };
    schema.tables.iter().map(columns).collect()
}
