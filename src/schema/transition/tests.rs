use super::*;
use crate::names::TablePrefix;
use crate::schema::{Kind, LONGEST_SUFFIX, OwnerColumn, OwnerKey, schema};

const BOTH: [Database; 2] = [Database::Sqlite, Database::Postgres];

fn tables(prefix: &str, owner: Option<(&str, Kind, Option<&str>)>) -> Schema {
    let prefix = TablePrefix::parse(prefix, LONGEST_SUFFIX, 63).unwrap();
    let owner = owner.map(|(name, kind, table)| OwnerColumn {
        name: name.to_owned(),
        kind,
        references: table.map(|table| OwnerKey { schema: None, table: table.to_owned(), column: "id".to_owned() }),
    });
    schema(&prefix, owner.as_ref())
}

#[test]
#[ignore = "prints"]
fn print() {
    let user = tables("sagents_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let team = tables("chat_", Some(("team_id", Kind::Uuid, Some("teams"))));
    let wish = Wish { backfill: Some("(SELECT team_id FROM users WHERE users.id = user_id)"), ..Wish::default() };
    let transition = transition(&user, &team, &wish).unwrap().unwrap();
    for database in BOTH {
        println!("=== up {}\n{}", database.name(), transition.up(database));
        println!("=== down {}\n{}", database.name(), transition.down(database));
    }
}
