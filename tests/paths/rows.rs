//! The rows of several owners, and what they should be after a change.

use std::collections::BTreeMap;

use sagents::{Key, Owner};

use crate::calls::Talk;
use crate::catalogue::Catalogue;
use crate::database::Session;
use crate::sets::{Change, Database, PEOPLE, Set, change, uuid};

/// The tables of every set, by what is behind its prefix. Parents first.
pub const TABLES: [&str; 7] =
    ["conversations", "agent_states", "display_messages", "agent_messages", "unreadable_states", "runs", "usage"];

/// Every row of every table, as its columns and their literals.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    tables: BTreeMap<&'static str, Vec<Row>>,
}

type Row = BTreeMap<String, String>;

const TIME: &str = "'2026-01-02T03:04:05.000006+00:00'";
/// The time of what is written after the change.
const LATER: &str = "'2027-01-02T03:04:05.000006+00:00'";

impl Rows {
    pub async fn read(session: &Session, set: &Set, catalogue: &Catalogue) -> Self {
        let mut tables = BTreeMap::new();
        for name in TABLES {
            let table = set.table(name);
            let columns = catalogue.columns(&table);
            let literal = |column: &&str| match session.database() {
                Database::Sqlite => format!("quote(\"{column}\")"),
                Database::Postgres => format!("quote_nullable(\"{column}\"::text)"),
            };
            let literals: Vec<_> = columns.iter().map(literal).collect();
            let rows = session.query(&format!("SELECT {} FROM \"{table}\"", literals.join(", "))).await;
            let named = |row: Vec<String>| columns.iter().map(|&column| column.to_owned()).zip(row).collect();
            tables.insert(name, rows.into_iter().map(named).collect());
        }
        Self { tables }.sorted()
    }

    /// What these rows of an old set should be in a new one.
    pub fn moved(&self, old: &Set, new: &Set, database: Database) -> Self {
        let change = change(old, new);
        let mut moved = self.clone();
        for row in moved.tables.values_mut().flatten() {
            let person = person(row);
            let value = row.remove(old.field()).unwrap();
            if old.owner.is_some() && change != Change::Stays {
                let prefix = if new.field() == old.field() { "old_" } else { "" };
                row.insert(format!("{prefix}{}", old.field()), value.clone());
            }
            let value = match (&old.owner, &new.owner) {
                (Some(_), Some(_)) if change == Change::Stays => value,
                (Some(before), Some(owner)) => shown(&owner.key.of(before.key.first(person), database), database),
                (None, _) | (_, None) => shown(&new.owner_of(person, database), database),
            };
            row.insert(new.field().to_owned(), value);
        }
        moved.sorted()
    }

    pub fn without_retired(&self, set: &Set, catalogue: &Catalogue) -> Self {
        let mut rows = self.clone();
        for (name, rows) in &mut rows.tables {
            let table = set.table(name);
            for row in rows {
                row.retain(|column, _| !catalogue.is_retired(&table, column));
            }
        }
        rows.sorted()
    }

    /// The owners of what was written after the change.
    pub fn late_owners(&self, set: &Set) -> Vec<&str> {
        let is_late = |row: &&Row| row.get("inserted_at").is_some_and(|time| time.contains("2027-"));
        let late = self.tables.values().flatten().filter(is_late);
        late.map(|row| row[set.field()].as_str()).collect()
    }

    /// The messages with the default of a column that they did not have.
    pub fn with_metadata(&self) -> Self {
        let mut rows = self.clone();
        for row in rows.tables.get_mut("display_messages").unwrap() {
            row.insert("metadata".to_owned(), "'{}'".to_owned());
        }
        rows.sorted()
    }

    /// The values of a column, sorted.
    pub fn values(&self, table: &str, column: &str) -> Vec<&str> {
        let mut values: Vec<_> = self.tables[table].iter().map(|row| row[column].as_str()).collect();
        values.sort_unstable();
        values
    }

    /// Every owner with the conversations that the calls should find.
    pub fn talks(&self, set: &Set) -> Vec<(Owner, Vec<Talk>)> {
        let mut owners: Vec<(Owner, Vec<Talk>)> = Vec::new();
        for row in &self.tables["conversations"] {
            let owner = match &set.owner {
                None => Owner::none(),
                Some(owner) => {
                    let id = plain(&row[owner.field]);
                    let key = match owner.key.kind() {
                        "i64" => Key::Integer(id.parse().unwrap()),
                        "uuid" => Key::Uuid(id.parse().unwrap()),
                        _ => Key::Text(id),
                    };
                    Owner::new(owner.noun, key)
                }
            };
            let of_talk =
                |table: &str| self.tables[table].iter().filter(|other| other["conversation_id"] == row["id"]).count();
            let talk = Talk {
                id: plain(&row["id"]).parse().unwrap(),
                messages: of_talk("display_messages"),
                has_state: of_talk("agent_states") > 0,
                next_sequence: plain(&row["next_sequence"]).parse().unwrap(),
            };
            match owners.iter_mut().find(|(other, _)| *other == owner) {
                Some((_, talks)) => talks.push(talk),
                None => owners.push((owner, vec![talk])),
            }
        }
        owners
    }

    fn sorted(mut self) -> Self {
        self.tables.values_mut().for_each(|rows| rows.sort());
        self
    }
}

/// What a literal says.
fn plain(literal: &str) -> String {
    let text = literal.trim_start_matches('X');
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(text) => text.replace("''", "'"),
        None => text.to_owned(),
    }
}

/// Whose row it was at first: the number is a part of every conversation's id.
fn person(row: &Row) -> u8 {
    let id = row.get("conversation_id").or_else(|| row.get("id")).unwrap().trim_end_matches('\'');
    id[id.len() - 4..id.len() - 2].parse().unwrap()
}

/// A literal as the database shows it.
pub fn shown(literal: &str, database: Database) -> String {
    match database {
        Database::Sqlite if literal.starts_with('x') => literal.to_uppercase(),
        Database::Postgres if !literal.starts_with('\'') => format!("'{literal}'"),
        Database::Sqlite | Database::Postgres => literal.to_owned(),
    }
}

/// Two conversations for each person: one with a state and messages, one with nothing.
pub fn fill(set: &Set, database: Database) -> String {
    let mut sql = String::new();
    for person in 1..=PEOPLE {
        let writer = Writer { set, database, person, time: TIME };
        sql += &writer.conversation(1);
        sql += &writer.conversation(2);
        sql += &writer.state(1);
        for sequence in 0..3 {
            sql += &writer.message(1, sequence);
            sql += &writer.agent_message(1, sequence);
        }
        sql += &writer.unreadable_state(1);
        sql += &writer.run(1);
        sql += &writer.usage(1);
    }
    sql
}

/// What the code of a set writes after the change: a conversation of the first person's, and a message in an old one.
pub fn write(set: &Set, database: Database) -> String {
    let writer = Writer { set, database, person: 1, time: LATER };
    writer.conversation(3) + &writer.state(3) + &writer.message(3, 0) + &writer.message(1, 100)
}

/// How many rows that are, and how many of them are in an old conversation.
pub const WRITTEN: usize = 4;
pub const WRITTEN_IN_OLD: usize = 1;

pub fn remove_new_conversation(set: &Set) -> String {
    format!("DELETE FROM \"{}\" WHERE inserted_at = {LATER};", set.table("conversations"))
}

pub fn remove_written(set: &Set) -> String {
    format!(
        "{} DELETE FROM \"{}\" WHERE inserted_at = {LATER};",
        remove_new_conversation(set),
        set.table("display_messages")
    )
}

struct Writer<'a> {
    set: &'a Set,
    database: Database,
    person: u8,
    time: &'static str,
}

impl Writer<'_> {
    fn conversation(&self, number: u8) -> String {
        let (person, time) = (self.person, self.time);
        let yes = match self.database {
            Database::Sqlite => "1",
            Database::Postgres => "TRUE",
        };
        self.insert(
            "conversations",
            "id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at",
            &format!(
                "{}, '{person}', '{{\"type\": \"user\", \"id\": {person}}}', '{{\"é\": [1, null]}}', {yes}, 10{number}, \
                 {time}, {time}",
                self.id(number)
            ),
        )
    }

    fn state(&self, number: u8) -> String {
        let time = self.time;
        self.insert(
            "agent_states",
            "conversation_id, version, revision, write_id, data, inserted_at, updated_at",
            &format!(
                "{}, 2, 1{number}, {}, '{{\"n\":  1.50, \"z\": \"\\u0000\"}}', {time}, {time}",
                self.id(number),
                uuid("0190c0de00007000800000000000dddd", self.database)
            ),
        )
    }

    /// Every third one is a call of a tool.
    fn message(&self, number: u8, sequence: u8) -> String {
        let rest = match sequence % 3 {
            0 => "'user', 'text', 'it''s \u{1f980}', NULL, NULL",
            1 => "'assistant', 'tool_call', 'find', 'call 1', 'completed'",
            _ => "'tool', 'tool_result', '', 'call 1', NULL",
        };
        self.insert(
            "display_messages",
            "conversation_id, sequence, message_id, item, role, content_type, content, tool_call_id, status, inserted_at",
            &format!(
                "{}, {sequence}, {}, 0, {rest}, {}",
                self.id(number),
                uuid(&format!("0190c0de0000700080000000eeee{sequence:04}"), self.database),
                self.time
            ),
        )
    }

    /// The messages of a state are in two epochs: that of the state, and that of what was set aside.
    fn agent_message(&self, number: u8, position: u8) -> String {
        self.insert(
            "agent_messages",
            "conversation_id, epoch, position, message_id, data",
            &format!(
                "{}, {}, {position}, {}, '{{\"n\":  1.50, \"z\": \"\\u0000\"}}'",
                self.id(number),
                position % 2,
                uuid(&format!("0190c0de0000700080000000ffff{position:04}"), self.database),
            ),
        )
    }

    fn unreadable_state(&self, number: u8) -> String {
        self.insert(
            "unreadable_states",
            "conversation_id, epoch, data, set_aside_at",
            &format!("{}, 1, '[1.50,  \"\\u0000\"]', {}", self.id(number), self.time),
        )
    }

    fn run(&self, number: u8) -> String {
        let time = self.time;
        self.insert(
            "runs",
            "conversation_id, run_id, holder, status, waiting_for, started_at, seen_at",
            &format!("{0}, {0}, 'here', 'waiting', '[1, null]', {time}, {time}", self.id(number)),
        )
    }

    fn usage(&self, number: u8) -> String {
        self.insert(
            "usage",
            "conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at",
            &format!("{0}, {0}, 'large', 3, 2, 1, {1}", self.id(number), self.time),
        )
    }

    fn insert(&self, table: &str, columns: &str, values: &str) -> String {
        let (field, owner) = (self.set.field(), self.set.owner_of(self.person, self.database));
        let (names, literals) = (format!("\"{field}\", {columns}"), format!("{owner}, {values}"));
        format!("INSERT INTO \"{}\" ({names}) VALUES ({literals});\n", self.set.table(table))
    }

    fn id(&self, number: u8) -> String {
        uuid(&format!("0190c0de00007000800000000000{:02}{number:02}", self.person), self.database)
    }
}
