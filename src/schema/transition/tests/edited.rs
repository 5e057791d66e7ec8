//! What somebody may make of a recorded schema by hand.

use proptest::prelude::*;
use proptest::sample::{Index as Place, select};

use super::*;
use crate::schema::{ForeignKey, IndexColumn};

#[derive(Debug, Clone)]
enum Edit {
    RenameTable(Place, &'static str),
    DropTable(Place),
    RepeatTable(Place),
    RenameColumn(Place, Place, &'static str),
    DropColumn(Place, Place),
    RepeatColumn(Place, Place),
    Kind(Place, Place, Kind),
    Nullable(Place, Place),
    Default(Place, Place),
    Retire(Place, Place),
    Key(Place, Vec<&'static str>),
    Unique(Place, Option<Vec<&'static str>>),
    References(Place, Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)>),
    Check(Place, &'static str),
    Index(Place, &'static str, Vec<&'static str>),
    Cluster(Place),
}

const NAMES: &[&str] = &[
    "",
    "id",
    "ID",
    "user_id",
    "team_id",
    "old_user_id",
    "conversation_id",
    "title",
    "users",
    "sagents_conversations",
    "sagents_conversations_new",
    "chat_agent_states",
    "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
    "\"; DROP TABLE users; --",
    "\0",
];

fn edit() -> impl Strategy<Value = Edit> {
    let (place, name) = (any::<Place>, || select(NAMES));
    let names = || proptest::collection::vec(select(NAMES), 0..4);
    let kind = select(&[Kind::Boolean, Kind::BigInteger, Kind::Uuid, Kind::Text, Kind::Time][..]);
    prop_oneof![
        (place(), name()).prop_map(|(t, name)| Edit::RenameTable(t, name)),
        place().prop_map(Edit::DropTable),
        place().prop_map(Edit::RepeatTable),
        (place(), place(), name()).prop_map(|(t, c, name)| Edit::RenameColumn(t, c, name)),
        (place(), place()).prop_map(|(t, c)| Edit::DropColumn(t, c)),
        (place(), place()).prop_map(|(t, c)| Edit::RepeatColumn(t, c)),
        (place(), place(), kind).prop_map(|(t, c, kind)| Edit::Kind(t, c, kind)),
        (place(), place()).prop_map(|(t, c)| Edit::Nullable(t, c)),
        (place(), place()).prop_map(|(t, c)| Edit::Default(t, c)),
        (place(), place()).prop_map(|(t, c)| Edit::Retire(t, c)),
        (place(), names()).prop_map(|(t, names)| Edit::Key(t, names)),
        (place(), proptest::option::of(names())).prop_map(|(t, names)| Edit::Unique(t, names)),
        (place(), proptest::collection::vec((name(), names(), names()), 0..3))
            .prop_map(|(t, keys)| Edit::References(t, keys)),
        (place(), name()).prop_map(|(t, name)| Edit::Check(t, name)),
        (place(), name(), names()).prop_map(|(t, name, names)| Edit::Index(t, name, names)),
        place().prop_map(Edit::Cluster),
    ]
}

/// One that the generator makes, and what comes of it by a few edits.
fn edited() -> impl Strategy<Value = Schema> {
    let made = [
        user(),
        team(),
        none(),
        tables("chat_", Some(("user_id", Kind::BigInteger, Some("users")))),
        tables("", Some(("title_id", Kind::Text, None))),
        changed(&user(), &team(), backfill(BACKFILL)),
        changed(&user(), &none(), Wish::default()),
        grown(user()),
    ];
    let edits = proptest::collection::vec(edit(), 0..4);
    (proptest::sample::select(made.to_vec()), edits).prop_map(|(schema, edits)| edits.iter().fold(schema, apply))
}

fn apply(mut schema: Schema, edit: &Edit) -> Schema {
    use Edit::*;
    let (RenameTable(t, _)
    | DropTable(t)
    | RepeatTable(t)
    | RenameColumn(t, ..)
    | DropColumn(t, _)
    | RepeatColumn(t, _)
    | Kind(t, ..)
    | Nullable(t, _)
    | Default(t, _)
    | Retire(t, _)
    | Key(t, _)
    | Unique(t, _)
    | References(t, _)
    | Check(t, _)
    | Index(t, ..)
    | Cluster(t)) = edit;
    if schema.tables.is_empty() {
        return schema;
    }
    let place = t.index(schema.tables.len());
    let table = &mut schema.tables[place];
    let column = |c: &Place, table: &Table| c.index(table.columns.len().max(1));
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    match edit {
        RenameTable(_, name) => table.name = (*name).to_owned(),
        DropTable(_) => drop(schema.tables.remove(place)),
        RepeatTable(_) => schema.tables.push(schema.tables[place].clone()),
        DropColumn(_, c) => {
            let place = column(c, table);
            table.columns =
                table.columns.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, c)| c.clone()).collect();
        }
        RepeatColumn(_, c) => table.columns.extend(table.columns.get(column(c, table)).cloned()),
        RenameColumn(_, c, _) | Kind(_, c, _) | Nullable(_, c) | Default(_, c) | Retire(_, c) => {
            let place = column(c, table);
            let Some(column) = table.columns.get_mut(place) else { return schema };
            match edit {
                RenameColumn(_, _, name) => column.name = (*name).to_owned(),
                Kind(_, _, kind) => column.kind = *kind,
                Nullable(..) => column.nullable = !column.nullable,
                Default(..) => column.default = Some(schema::DefaultValue::Zero),
                _ => column.retired = !column.retired,
            }
        }
        Key(_, names) => table.primary_key.columns = owned(names),
        Unique(_, names) => {
            let key = |names: &Vec<&str>| schema::Key { name: "unique".to_owned(), columns: owned(names) };
            table.unique = names.iter().map(key).collect();
        }
        References(_, keys) => {
            let key = |(name, columns, references): &(&str, Vec<&str>, Vec<&str>)| ForeignKey {
                name: format!("to_{name}"),
                columns: owned(columns),
                schema: None,
                table: (*name).to_owned(),
                references: owned(references),
            };
            table.foreign_keys = keys.iter().map(key).collect();
        }
        Check(_, text) => table.checks.push(check(&format!("check_{text}"), text)),
        Index(_, name, columns) => table.indexes.push(schema::Index {
            name: (*name).to_owned(),
            columns: owned(columns).into_iter().map(|name| IndexColumn { name, descending: false }).collect(),
            only: None,
        }),
        Cluster(_) => table.clustered = !table.clustered,
    }
    schema
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_two_schemas_make_a_panic(
        old in edited(),
        new in edited(),
        backfill in proptest::option::of(select(&["1", BACKFILL][..])),
        drop_old_owner: bool,
        owner_types in proptest::array::uniform2(select(&[None, Some("user"), Some("team")][..])),
        taken in proptest::collection::vec(select(NAMES).prop_map(str::to_owned), 0..3),
        added in proptest::option::of(select(NAMES)),
    ) {
        let additions: Vec<_> = added.into_iter().map(|name| Addition {
            table: "sagents_conversations".to_owned(),
            column: name.to_owned(),
            definition: format!("\"{name}\" TEXT GENERATED ALWAYS AS (user_id || title)"),
            generated: true,
        }).collect();
        let wish = Wish { backfill, drop_old_owner, owner_types, reading: None, additions: &additions, taken: &taken };
        if let Ok(transition) = transition(&old, &new, &wish) {
            for database in BOTH {
                let _ = (transition.up(database), transition.down(database), transition.name());
                let _ = (transition.additions(database), transition.refuse_obstacles(&Catalog::new(database), database));
            }
        }
    }
}
