//! Random reruns and edits of the scope, on a database with rows. A model of its own says whose each row is: an owner is
//! the way in which a scope names it, and the id that it has there. Only a person changes either: with `--backfill`, with
//! `--scope-owner`, or by going back to an owner that the rows had before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseResult};
use tempfile::TempDir;

use super::SCOPE_RS;
use super::story::{Real, Session};
use crate::support::{self, Host, Run, cargo_that_knows};

proptest! {
    // Each step runs the program once.
    #![proptest_config(Config {
        cases: 16,
        max_shrink_iters: 64,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    #[test]
    fn every_row_stays_with_its_owner(
        first in proptest::sample::subsequence(WAYS.to_vec(), 1..4),
        steps in proptest::collection::vec(step(), 5..9),
    ) {
        let real = Real::Sqlite;
        let mut world = World::new(&real, first.into_iter().collect());
        for step in steps {
            world.take(&step)?;
        }
    }
}

/// The fields that a scope may have. Each of them may name somebody else.
const WAYS: [&str; 6] = ["user.id", "user_id", "current_user.id", "account_id", "team.id", "team_id"];

/// Tables of owners. One id is in all of them, and is another owner's in each.
const TABLES: [&str; 4] = ["users", "people", "accounts", "teams"];

const IDS: i64 = 5;

/// What a person does: an edit of the scope, then a run with options.
#[derive(Debug, Clone, Default)]
struct Step {
    toggled: Vec<&'static str>,
    owner_type: Option<&'static str>,
    owner_field: Option<&'static str>,
    owner_table: Option<&'static str>,
    scope: Option<&'static str>,
    /// One of the ways that the scope has.
    scope_owner: Option<Index>,
    /// One of them, given where the owner's name does not lead to a single one.
    scope_owner_if_needed: Option<Index>,
    backfill: Option<Backfill>,
    drop_old_owner: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backfill {
    /// The owner whom the row is about.
    ByTitle,
    None,
}

/// Mostly a change of one thing.
fn step() -> impl Strategy<Value = Step> {
    // Names that say nothing, or the wrong thing.
    let field = || select(&["owner_id", "owner_id", "owner_id", "user_id", "account_id"][..]);
    let table = || select(&["none", "users", "people", "accounts"][..]);
    let owner_type = select(&["user", "user", "account", "account", "team", "none"][..]);
    let way = |share| weighted(share, any::<Index>());
    let backfill = || prop_oneof![9 => Just(None), 9 => Just(Some(Backfill::ByTitle)), 1 => Just(Some(Backfill::None))];
    let other_owner = (owner_type, weighted(0.6, field()), weighted(0.1, table()), way(0.3), backfill());
    let other_table = (table(), way(0.2), backfill());
    let other_fields = (proptest::collection::vec(select(&WAYS[..]), 1..3), way(0.2));
    let other_scope = (weighted(0.4, field()), weighted(0.3, select(&["Scope", "Session"][..])), way(0.4));
    let change = prop_oneof![
        6 => other_owner.prop_map(|(owner_type, owner_field, owner_table, scope_owner, backfill)| {
            let owner_type = Some(owner_type);
            Step { owner_type, owner_field, owner_table, scope_owner, backfill, ..Step::default() }
        }),
        2 => other_table.prop_map(|(table, scope_owner, backfill)| {
            Step { owner_table: Some(table), scope_owner, backfill, ..Step::default() }
        }),
        2 => other_fields.prop_map(|(toggled, scope_owner)| Step { toggled, scope_owner, ..Step::default() }),
        1 => other_scope.prop_map(|(owner_field, scope, scope_owner)| {
            Step { owner_field, scope, scope_owner, ..Step::default() }
        }),
    ];
    (change, way(0.7), proptest::bool::weighted(0.05)).prop_map(|(step, scope_owner_if_needed, drop_old_owner)| Step {
        scope_owner_if_needed,
        drop_old_owner,
        ..step
    })
}

/// The kind of an owner: its type, and its table if a foreign key ever named one.
type Kind = (&'static str, Option<&'static str>);

/// Whose a row is: the way in which a scope names them, and the id that it has then.
type Owner = (String, i64);

#[derive(Debug, Clone)]
struct Row {
    /// The person it is about, who has an id in every table.
    title: i64,
    owner: Option<Owner>,
    /// Whose it was before, of every kind that can be gone back to.
    former: BTreeMap<Kind, Owner>,
}

/// What holds after the last run that succeeded.
#[derive(Debug, Clone)]
struct Model {
    kind: Kind,
    scope: &'static str,
    way: Option<String>,
    /// What a person said, as long as it describes this owner and this scope.
    given_table: Option<&'static str>,
    given_way: Option<&'static str>,
    /// How kinds of owners that can be gone back to were read.
    former: BTreeMap<Kind, String>,
    rows: Vec<Row>,
}

struct World<'a> {
    host: Host,
    /// Cargo, whose answers stay the same.
    cargo: PathBuf,
    _tools: TempDir,
    database: Session<'a>,
    fields: BTreeSet<&'static str>,
    model: Model,
    runs: usize,
}

impl World<'_> {
    /// A project whose owner is the account.
    fn new<'a>(real: &'a Real, mut fields: BTreeSet<&'static str>) -> World<'a> {
        fields.insert("account_id");
        let ids = (1..=IDS).map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
        let tables = TABLES.map(|table| {
            format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY);\nINSERT INTO {table} VALUES {ids};\n")
        });
        let columns = TABLES.map(|table| format!("{table}_key INTEGER"));
        let mut script = format!("{}CREATE TABLE identities (k INTEGER, {});\n", tables.concat(), columns.join(", "));
        for person in 1..=IDS {
            let keys = TABLES.map(|table| key(table, person).to_string());
            writeln!(script, "INSERT INTO identities VALUES ({person}, {});", keys.join(", ")).unwrap();
        }
        let host = Host::with_accounts("").file("migrations/0001_owners.sql", &script);
        let database = real.open();
        let model = Model {
            kind: ("account", Some("accounts")),
            scope: "Scope",
            way: Some("account_id".to_owned()),
            given_table: None,
            given_way: None,
            former: BTreeMap::new(),
            rows: Vec::new(),
        };
        let tools = support::temporary("sagents-tools-");
        let cargo = cargo_that_knows(&host, tools.path());
        let mut world = World { host, cargo, _tools: tools, database, fields, model, runs: 0 };
        world.write_scopes();
        let run = world.run(&["-s", "crate::accounts::Scope", "-t", "account", "-f", "owner_id"]);
        assert_eq!(run.code, 0, "{run:?}");
        world.migrate(&BTreeSet::new()).unwrap();
        world.add_row();
        world
    }

    fn write_scopes(&self) {
        let fields = |ways: &mut dyn Iterator<Item = &&str>| -> String {
            let field = |way: &str| match way.strip_suffix(".id") {
                Some(name) => format!("    pub {name}: Holder,\n"),
                None => format!("    pub {way}: i64,\n"),
            };
            ways.map(|way| field(way)).collect()
        };
        let text = format!(
            "pub struct Holder {{\n    pub id: i64,\n}}\n\npub struct Scope {{\n{}}}\n\npub struct Session {{\n{}}}\n",
            fields(&mut self.fields.iter()),
            fields(&mut SESSION.iter())
        );
        self.host.write("src/accounts.rs", &text);
    }

    fn run(&mut self, options: &[&str]) -> Run {
        self.runs += 1;
        let line = ["gen", "persistence", "conversations", "--no-tests", "--no-wire"];
        self.host.unformatted_by(&self.cargo, &[&line, options].concat())
    }

    fn take(&mut self, step: &Step) -> TestCaseResult {
        for way in &step.toggled {
            if !self.fields.remove(way) {
                self.fields.insert(way);
            }
        }
        self.write_scopes();
        let before = self.host.files();
        let scripts = self.scripts();
        let scope = step.scope.map(|scope| format!("crate::accounts::{scope}"));
        let given_way = self.given_way(step);
        let changes = self.kind_after(step) != Some(self.model.kind) || given_way.is_some();
        let step = &Step { backfill: step.backfill.filter(|_| changes), ..step.clone() };
        let backfill = step.backfill.map(|backfill| self.expression(step, backfill));
        let mut options = Vec::new();
        for (flag, value) in [
            ("--owner-type", step.owner_type),
            ("--owner-field", step.owner_field.filter(|_| self.has_owner_after(step))),
            ("--owner-table", step.owner_table.filter(|_| self.has_owner_after(step))),
            ("--scope", scope.as_deref()),
            ("--scope-owner", given_way),
            ("--backfill", backfill.as_deref()),
        ] {
            options.extend(value.iter().flat_map(|value| [flag, value]));
        }
        options.extend(step.drop_old_owner.then_some("--drop-old-owner"));
        let run = self.run(&options);
        if run.code != 0 {
            prop_assert!([2, 5].contains(&run.code), "{run:?}");
            prop_assert!(self.host.files() == before, "{run:?}");
            prop_assert!(!self.must_succeed(step), "{run:?}");
            return Ok(());
        }
        let way = read_by(&self.host);
        let expected = self.after(step, way.as_deref()).map_err(|reason| {
            TestCaseError::fail(format!("{reason}, and exit 0\n{options:?}\n{}\n{:#?}", run.stdout, self.model))
        })?;
        if let Err(error) = self.migrate(&scripts) {
            prop_assert!(expected.is_none(), "{error}\n{options:?}");
            // Nothing happened.
            self.restore(&before);
            return Ok(());
        }
        prop_assert!(
            expected.is_some(),
            "rows without an owner, and the migration ran: {options:?}\n{:#?}",
            self.model
        );
        self.model = expected.unwrap();
        let owners = self.model.rows.iter().map(|row| row.owner.as_ref().map(|(_, id)| *id)).collect::<Vec<_>>();
        prop_assert_eq!(self.stored(), owners, "{:?}\n{:#?}", options, self.model);
        self.add_row();
        Ok(())
    }

    fn has_owner_after(&self, step: &Step) -> bool {
        step.owner_type.unwrap_or(self.model.kind.0) != "none"
    }

    /// The ways that the scope has after a step.
    fn ways(&self, step: &Step) -> Vec<&'static str> {
        let scope = step.scope.unwrap_or(self.model.scope);
        if scope == "Scope" { self.fields.iter().copied().collect() } else { SESSION.to_vec() }
    }

    fn given_way(&self, step: &Step) -> Option<&'static str> {
        let ways = self.ways(step);
        let noun = step.owner_type.unwrap_or(self.model.kind.0);
        let is_clear = ways.iter().filter(|way| names(way, noun)).count() == 1;
        let index = step.scope_owner.or(step.scope_owner_if_needed.filter(|_| step.owner_type.is_some() && !is_clear));
        index.filter(|_| self.has_owner_after(step) && !ways.is_empty()).map(|index| *index.get(&ways))
    }

    /// The owner whom a row is about. No two are written alike: one that was used before has another meaning.
    fn expression(&self, step: &Step, backfill: Backfill) -> String {
        match backfill {
            Backfill::ByTitle => format!(
                "(SELECT {}_key FROM identities WHERE k = CAST(conversation.title AS INTEGER) AND {} > 0)",
                self.kind_after(step).map_or("users", table_of),
                self.runs + 1
            ),
            Backfill::None => "none".to_owned(),
        }
    }

    /// The owner's kind, if there is an owner after a step.
    fn kind_after(&self, step: &Step) -> Option<Kind> {
        let noun = step.owner_type.unwrap_or(self.model.kind.0);
        let kept = self.model.given_table.filter(|_| noun == self.model.kind.0);
        let table = match step.owner_table.or(kept) {
            Some("none") => None,
            Some(table) => Some(table),
            None => Some(table_of((noun, None))),
        };
        // A foreign key that goes does not make them other owners, if they keep their ids.
        let keeps_ids = noun == self.model.kind.0 && step.backfill != Some(Backfill::ByTitle);
        let table = table.or(self.model.kind.1.filter(|_| keeps_ids));
        (noun != "none").then_some((noun, table))
    }

    /// What a run that was accepted has to make of the model; nothing if rows would be without an owner.
    fn after(&self, step: &Step, way: Option<&str>) -> Result<Option<Model>, String> {
        let before = &self.model;
        let kind = self.kind_after(step).unwrap_or(("none", None));
        let scope = step.scope.unwrap_or(before.scope);
        let same_noun = kind.0 == before.kind.0;
        // Of one table and none, the table counts.
        let is_same = same_noun && (kind.1 == before.kind.1 || before.kind.1.is_none());
        let given_way = self.given_way(step).or(before.given_way.filter(|_| same_noun && scope == before.scope));
        let given_table = step.owner_table.or(before.given_table.filter(|_| same_noun));
        let backfill = step.backfill.filter(|_| kind.0 != "none");
        let mut model = Model { kind, scope, way: way.map(str::to_owned), given_way, given_table, ..before.clone() };

        // Whom the code asks for.
        let ways = self.ways(step);
        let fits: Vec<_> = ways.iter().filter(|way| names(way, kind.0)).collect();
        let known = if same_noun { before.way.clone() } else { before.former.get(&kind).cloned() };
        match (way, given_way, known, &*fits) {
            (None, ..) if kind.0 == "none" => {}
            (Some(way), Some(given), ..) if way == given => {}
            (Some(way), None, known, [fit]) if way == **fit && known.as_deref().is_none_or(|known| known == way) => {}
            (way, given, known, fits) => {
                return Err(format!("reads {way:?}; given {given:?}, before {known:?}, fitting {fits:?}"));
            }
        }

        // Whose the rows are.
        let leaves = !is_same || backfill == Some(Backfill::ByTitle);
        if step.drop_old_owner {
            model.former.clear();
        }
        if let (true, Some(way)) = (leaves, &before.way) {
            // Only the last one of a type can be gone back to.
            model.former.retain(|kind, _| kind.0 != before.kind.0);
            model.former.insert(before.kind, way.clone());
        }
        let mut is_complete = true;
        for row in &mut model.rows {
            let earlier_owner = row.owner.clone();
            let id = match (way, backfill) {
                (Some(_), Some(Backfill::ByTitle)) => Some(key(table_of(kind), row.title)),
                (Some(_), _) if is_same => earlier_owner.as_ref().map(|(_, id)| *id),
                (Some(_), _) if before.former.contains_key(&kind) => row.former.get(&kind).map(|(_, id)| *id),
                (None, _) | (Some(_), Some(Backfill::None)) => None,
                (Some(_), None) => return Err("another owner without a backfill".to_owned()),
            };
            is_complete &= id.is_some() || way.is_none();
            row.owner = way.map(str::to_owned).zip(id);
            if step.drop_old_owner {
                row.former.clear();
            }
            if leaves && before.way.is_some() {
                row.former.retain(|kind, _| kind.0 != before.kind.0);
                row.former.extend(earlier_owner.map(|owner| (before.kind, owner)));
            }
        }
        Ok(is_complete.then_some(model))
    }

    /// Whether a run has no reason to ask.
    fn must_succeed(&self, step: &Step) -> bool {
        let Model { kind, way, given_way, .. } = &self.model;
        let ways = self.ways(step);
        let is_there = |way: &str| ways.contains(&way);
        let is_clear = given_way.is_some() || ways.iter().filter(|way| names(way, kind.0)).count() == 1;
        let renames = step.owner_type.or(step.owner_table).or(step.scope).is_none()
            && (step.scope_owner.is_none(), step.backfill) == (true, None)
            && way.as_deref().is_some_and(|way| is_there(way) && is_clear);
        let decides = self.given_way(step).is_some()
            && step.backfill == Some(Backfill::ByTitle)
            && step.owner_type.is_some_and(|noun| noun != kind.0);
        renames || decides
    }

    fn scripts(&self) -> BTreeSet<String> {
        self.host.files().into_keys().filter(|path| path.starts_with("migrations/")).collect()
    }

    /// Runs the migrations that are new.
    fn migrate(&self, known: &BTreeSet<String>) -> Result<(), String> {
        let new: Vec<_> = self.scripts().difference(known).map(|path| self.host.read(path)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.database.run(&format!("BEGIN;\n{}\nCOMMIT;", new.join("\n"))).map(drop)
    }

    fn restore(&self, before: &BTreeMap<String, Vec<u8>>) {
        for path in self.host.files().into_keys().filter(|path| !before.contains_key(path)) {
            std::fs::remove_file(self.host.root().join(path)).unwrap();
        }
        for (path, bytes) in before {
            std::fs::write(self.host.root().join(path), bytes).unwrap();
        }
    }

    /// Somebody else than those before has a conversation, with a row that follows it.
    fn add_row(&mut self) {
        let number = i64::try_from(self.model.rows.len()).unwrap() + 1;
        let (title, id) = (number % IDS + 1, (2 * number) % IDS + 1);
        let owner = self.model.way.clone().map(|way| (way, id));
        let (column, value) = match &owner {
            Some((_, id)) => (self.owner_column(), *id),
            None => ("sagents_owner".to_owned(), 0),
        };
        let uuid = format!("x'{number:032x}'");
        let now = "'2026-01-02T03:04:05.000000Z'";
        let script = format!(
            "INSERT INTO sagents_conversations (\"{column}\", id, title, scope, inserted_at, updated_at)
                VALUES ({value}, {uuid}, '{title}', '{{}}', {now}, {now});
             INSERT INTO sagents_usage
                (\"{column}\", conversation_id, message_id, input_tokens, output_tokens, cached_tokens, inserted_at)
                VALUES ({value}, {uuid}, {uuid}, 1, 1, 1, {now});"
        );
        self.database.run(&script).unwrap();
        self.model.rows.push(Row { title, owner, former: BTreeMap::new() });
    }

    /// The first column of the key, as the database has it.
    fn owner_column(&self) -> String {
        let key = "SELECT name FROM pragma_table_info('sagents_conversations') WHERE pk = 1;";
        self.database.run(key).unwrap().trim().to_owned()
    }

    /// The owners of all rows, where there are some.
    fn stored(&self) -> Vec<Option<i64>> {
        let column = match self.owner_column().as_str() {
            "sagents_owner" => "NULL".to_owned(),
            column => format!("\"{column}\""),
        };
        let query = format!(
            "SELECT coalesce(c.owner, '-') FROM (SELECT {column} AS owner, id FROM sagents_conversations) AS c
                JOIN (SELECT {column} AS owner, conversation_id FROM sagents_usage) AS u
                ON u.owner IS c.owner AND u.conversation_id = c.id ORDER BY c.id;"
        );
        self.database.run(&query).unwrap().lines().map(|line| line.parse().ok()).collect()
    }
}

/// The fields of the other scope.
const SESSION: [&str; 3] = ["user_id", "account_id", "team_id"];

/// Whether a way is called like an owner.
fn names(way: &str, noun: &str) -> bool {
    let name = way.strip_suffix(".id").or(way.strip_suffix("_id")).unwrap_or(way);
    name.strip_prefix("current_").unwrap_or(name) == noun
}

fn table_of((noun, table): Kind) -> &'static str {
    table.unwrap_or(match noun {
        "account" => "accounts",
        "team" => "teams",
        _ => "users",
    })
}

/// The id of a person in a table.
fn key(table: &str, person: i64) -> i64 {
    let shift = TABLES.iter().position(|known| *known == table).unwrap();
    let shift = i64::try_from(shift).unwrap();
    (person + shift) % IDS + 1
}

/// How the generated code reads the owner from a scope.
fn read_by(host: &Host) -> Option<String> {
    let text = host.read(SCOPE_RS);
    let (_, rest) = text.split_once("Owner::new(")?;
    let (_, way) = rest.split_once(')').unwrap_or_default().0.split_once("self.")?;
    Some(way.to_owned())
}
