mod backfill;
mod databases;
mod edited;
mod former;
mod growth;
mod host;
mod names;
mod owners;
mod references;

use super::*;
use crate::host::migrations::Catalog;
use crate::names::TablePrefix;
use crate::schema::{self, Check, Column, DefaultValue, Key, Kind, LONGEST_SUFFIX, OwnerColumn, OwnerKey, sql};
use growth::grown;

const BOTH: [Database; 2] = [Database::Sqlite, Database::Postgres];

fn tables(prefix: &str, owner: Option<(&str, Kind, Option<&str>)>) -> Schema {
    let prefix = TablePrefix::parse(prefix, LONGEST_SUFFIX, 63).unwrap();
    let owner = owner.map_or_else(OwnerColumn::none, |(name, kind, table)| OwnerColumn {
        name: name.to_owned(),
        kind,
        references: table.map(|table| OwnerKey { schema: None, table: table.to_owned(), column: "id".to_owned() }),
    });
    schema::schema(&prefix, &owner, false)
}

fn user() -> Schema {
    tables("sagents_", Some(("user_id", Kind::BigInteger, Some("users"))))
}

fn team() -> Schema {
    tables("sagents_", Some(("team_id", Kind::Uuid, Some("teams"))))
}

fn none() -> Schema {
    tables("sagents_", None)
}

const BACKFILL: &str = "(SELECT team_id FROM users WHERE users.id = conversation.user_id)";

fn same_owner() -> Wish<'static> {
    Wish { owner_types: [Some("user"); 2], ..Wish::default() }
}

fn other_owner(before: &'static str, now: &'static str) -> Wish<'static> {
    Wish { owner_types: [Some(before), Some(now)], ..Wish::default() }
}

fn backfill(text: &str) -> Wish<'_> {
    Wish { backfill: Some(text), ..other_owner("user", "team") }
}

fn change(old: &Schema, new: &Schema, wish: Wish) -> Transition {
    let transition = transition(old, new, &wish).unwrap();
    assert!(BOTH.iter().any(|&database| !transition.up(database).is_empty()), "nothing changes");
    transition
}

fn is_unchanged(old: &Schema, new: &Schema, wish: &Wish) -> bool {
    let transition = transition(old, new, wish).unwrap();
    BOTH.iter().all(|&database| transition.up(database).is_empty() && transition.down(database).is_empty())
}

fn transition_error(old: &Schema, new: &Schema, wish: &Wish) -> String {
    transition(old, new, wish).unwrap_err().to_string()
}

/// The tables that `SQLite` rebuilds on the way there, by their new names.
fn rebuilt(transition: &Transition) -> Vec<&str> {
    sqlite::rebuilt(&transition.path_up())
}

/// The tables after a change, with what former owners left.
fn changed(old: &Schema, new: &Schema, wish: Wish) -> Schema {
    change(old, new, wish).schema().clone()
}

fn columns(table: &Table) -> Vec<&str> {
    table.columns.iter().map(|column| column.name.as_str()).collect()
}

fn nullable(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable: true,
        default: None,
        retired: false,
        compressed: false,
        holds: None,
    }
}

fn defaulted(name: &str, kind: Kind, default: DefaultValue) -> Column {
    Column { nullable: false, default: Some(default), ..nullable(name, kind) }
}

fn check(name: &str, condition: &str) -> Check {
    Check { name: name.to_owned(), condition: condition.to_owned() }
}

/// The parts of a migration that have a word, for a look at one matter.
fn steps(sql: &str, word: &str) -> String {
    sql.split("\n\n").filter(|step| step.contains(word)).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn tables_that_are_as_they_should_be_need_no_migration() {
    let with_former = changed(&user(), &team(), backfill(BACKFILL));
    let mut reworded = user();
    reworded.tables[0].about = "Another comment.".to_owned();
    reworded.tables[1].columns.reverse();
    for (old, new, wish) in [
        (user(), user(), same_owner()),
        (user(), user(), Wish { drop_old_owner: true, ..same_owner() }),
        (user(), reworded, same_owner()),
        (none(), none(), Wish::default()),
        (with_former, team(), same_owner()),
    ] {
        assert!(is_unchanged(&old, &new, &wish));
    }
}

#[test]
fn a_migration_is_called_by_what_it_does() {
    let chat = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let bare = tables("", Some(("user_id", Kind::BigInteger, Some("users"))));
    let member = tables("sagents_", Some(("member_id", Kind::BigInteger, Some("users"))));
    let loose = tables("sagents_", Some(("user_id", Kind::BigInteger, None)));
    let with_former = changed(&user(), &team(), backfill(BACKFILL));
    let mut newer = user();
    newer.tables[0].checks.push(check("in_order", "updated_at >= inserted_at"));
    let drop = Wish { drop_old_owner: true, ..same_owner() };
    let names = [
        change(&user(), &team(), backfill(BACKFILL)),
        change(&user(), &none(), Wish::default()),
        change(&none(), &user(), Wish::default()),
        change(&user(), &chat, same_owner()),
        change(&bare, &user(), same_owner()),
        change(&user(), &member, same_owner()),
        change(&loose, &user(), same_owner()),
        change(&with_former, &team(), drop),
        change(&user(), &newer, same_owner()),
    ]
    .map(|transition| transition.name());
    insta::assert_snapshot!(names.join("\n"), @r#"
    change_sagents_owner_to_team_id
    change_sagents_owner_to_none
    change_sagents_owner_to_user_id
    rename_sagents_to_chat
    rename_conversations_to_sagents
    rename_sagents_owner_to_member_id
    change_sagents_owner_table
    drop_sagents_old_owner
    update_sagents
    "#);
}
