//! Exports and imports.

mod copies;
mod moving;
mod refused;
#[path = "../strategies/mod.rs"]
mod strategies;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::io::{self, BufRead, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sagents::{
    ChangeCursor, ConversationChanges, Decision, Error, Expired, Export, Message, NewDisplayMessage, Role, State,
    Tables, Timestamp, ToolStatus,
};
use serde_json::{Map, Value, json};
use support::context::NewConversation;
use support::fixture::{Fixture, KINDS, object};
use support::pool::Pool;
use support::{Kind, TABLES, TestDatabase};
use tokio::io::{AsyncReadExt as _, AsyncWrite, duplex};
use tokio::time::sleep;
use uuid::Uuid;

on_both_databases!(
    an_export_is_imported_as_it_was,
    a_file_and_a_value_are_the_same,
    a_truncated_file_imports_nothing,
    two_files_can_follow_each_other,
    columns_that_cannot_be_stored_are_refused,
    times_in_the_future_become_now,
    an_import_counts_as_an_update,
    the_state_is_part_of_an_export,
    an_import_that_fails_leaves_nothing_behind,
    an_import_that_is_dropped_leaves_nothing_behind,
    parallel_imports_of_one_file_create_it_once,
    large_files_take_little_memory,
    an_export_waits_for_its_reader,
);

/// A store whose conversations have columns of the host's own.
async fn fixture(database: &TestDatabase, tables: Tables) -> Fixture {
    let types = match database.kind {
        Kind::Sqlite => ["BLOB", "BLOB", "TEXT"],
        Kind::Postgres => ["UUID", "BYTEA", "JSONB"],
    };
    let columns = &["id", "title", "project_id", "pinned", "payload", "extra"];
    let db = Fixture::new(database, tables.conversation_columns(columns)).await;
    let table = db.table("conversations");
    let [id, bytes, json] = types;
    let columns = [
        format!("project_id {id}"),
        "pinned INTEGER NOT NULL DEFAULT 7".into(),
        format!("payload {bytes}"),
        format!("extra {json}"),
    ];
    for column in columns {
        db.pool.execute(format!("ALTER TABLE {table} ADD COLUMN {column}")).await;
    }
    db
}

/// Fills the host's columns of every conversation.
async fn fill_own_columns(db: &Fixture, project: Uuid) {
    let (table, project) = (db.table("conversations"), db.pool.uuid(project));
    let rest = match db.pool {
        Pool::Sqlite(_) => "payload = x'00ff', extra = 'hello'",
        Pool::Postgres(_) => r#"payload = '\x00ff', extra = '{"a": [null, 1.5]}'"#,
    };
    db.pool.execute(format!("UPDATE {table} SET project_id = {project}, pinned = 1, {rest}")).await;
}

/// Five messages of alice's, and a call that someone approved.
async fn talk(db: &Fixture) -> Uuid {
    let alice = &db.alice;
    let new = NewConversation::new().title("T").metadata(object(json!({"a": [1, 2.5, "x"]})));
    let id = db.create_conversation(alice, new).await.unwrap().id;
    for n in 0..5 {
        let message = NewDisplayMessage::text(Role::User, format!("m{n}"));
        db.append_display_message(alice, id, message).await.unwrap();
    }
    let call = NewDisplayMessage::tool_call("call", "call").metadata(object(json!({"arguments": {}})));
    db.append_display_message(alice, id, call).await.unwrap();
    db.interrupt_tool_call(alice, id, "call", Map::new()).await.unwrap();
    db.decide_tool_call(alice, id, "call", &Decision::Approve, Uuid::now_v7()).await.unwrap();
    id
}

/// The export of a conversation that is no longer there.
async fn taken_away(db: &Fixture) -> Export {
    let id = talk(db).await;
    fill_own_columns(db, Uuid::now_v7()).await;
    let export = db.export_conversation(&db.alice, id).await.unwrap();
    db.delete_conversation(&db.alice, id).await.unwrap();
    export
}

fn with_new_id(export: &Export) -> Export {
    let mut export = export.clone();
    export.conversation.id = Uuid::now_v7();
    export
}

fn bytes(export: &Export) -> Vec<u8> {
    let mut bytes = Vec::new();
    export.write_to(&mut bytes).unwrap();
    bytes
}

async fn an_export_is_imported_as_it_was(database: &TestDatabase) {
    for tables in KINDS {
        let db = fixture(database, tables).await;
        let id = talk(&db).await;
        fill_own_columns(&db, Uuid::now_v7()).await;
        let export = db.export_conversation(&db.alice, id).await.unwrap();
        assert_eq!(export.conversation.columns.len(), 4);
        // Nobody's approval goes with the call.
        assert_eq!(export.messages[5].status, Some(ToolStatus::Interrupted));
        assert!(!export.messages[5].metadata.contains_key("decision"));
        assert_not_found!(db.export_conversation(&db.alice, Uuid::now_v7()));
        if db.has_owners() {
            assert_not_found!(db.export_conversation(&db.bob, id));
        } else {
            db.delete_conversation(&db.alice, id).await.unwrap();
        }
        let imported = db.import_conversation(&db.bob, export.clone()).await.unwrap();
        assert!(imported.created);
        assert_eq!(imported.conversation.scope, db.bob.to_json());
        let back = db.export_conversation(&db.bob, id).await.unwrap();
        assert_eq!(back, export);
        assert_eq!(back.conversation.columns, export.conversation.columns);
        assert!(back.conversation.updated_at > export.conversation.updated_at);
        assert!(!db.import_conversation_from(&db.bob, &*bytes(&export)).await.unwrap().created);
    }
}

async fn a_file_and_a_value_are_the_same(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let id = talk(&db).await;
    fill_own_columns(&db, Uuid::now_v7()).await;
    let export = db.export_conversation(&db.alice, id).await.unwrap();
    let mut file = Vec::new();
    db.export_conversation_to(&db.alice, id, &mut file).await.unwrap();
    assert_eq!(file, bytes(&export));
    assert_eq!(Export::read_from(&*file).unwrap(), export);
}

async fn a_truncated_file_imports_nothing(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let export = taken_away(&db).await;
    let file = bytes(&export);
    let lines: Vec<_> = file.split_inclusive(|byte| *byte == b'\n').collect();
    for kept in 0..lines.len() {
        let error = db.import_conversation_from(&db.alice, &*lines[..kept].concat()).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("invalid: line {}: ", kept + 1)), "{error}");
        assert_not_found!(db.get_conversation(&db.alice, export.conversation.id));
    }
}

async fn two_files_can_follow_each_other(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let export = taken_away(&db).await;
    let mut other = with_new_id(&export);
    other.conversation.columns.clear();
    let file = [bytes(&export), bytes(&other)].concat();
    let mut reader = &*file;
    for _ in 0..2 {
        assert!(db.import_conversation_from(&db.alice, &mut reader).await.unwrap().created);
    }
    let defaults = db.export_conversation(&db.alice, other.conversation.id).await.unwrap();
    assert_eq!(defaults.conversation.columns["pinned"], 7);
    assert_eq!(defaults.conversation.columns["project_id"], Value::Null);
}

async fn columns_that_cannot_be_stored_are_refused(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let export = taken_away(&db).await;
    for columns in [
        json!({"unknown": 1}),
        json!({"user_id": 1}),
        json!({"title": "x"}),
        json!({"pinned": null}),
        json!({"pinned": "many"}),
        json!({"pinned": [1]}),
    ] {
        let mut bad = with_new_id(&export);
        bad.conversation.columns = object(columns);
        assert_invalid!(db.import_conversation(&db.alice, bad.clone()));
        assert_not_found!(db.get_conversation(&db.alice, bad.conversation.id));
    }
}

async fn times_in_the_future_become_now(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let mut future = taken_away(&db).await;
    future.conversation.inserted_at = Timestamp::MAX;
    future.conversation.updated_at = Timestamp::MAX;
    future.conversation.archived_at = Some(Timestamp::MAX);
    future.messages[0].inserted_at = Timestamp::MAX;
    let usage = json!({
        "message_id": Uuid::now_v7(), "model": "m", "input_tokens": 1, "output_tokens": 2, "cached_tokens": 0,
        "inserted_at": Timestamp::MAX,
    });
    future.usage.push(serde_json::from_value(usage).unwrap());
    let imported = db.import_conversation(&db.alice, future).await.unwrap().conversation;
    let now = Timestamp::now();
    assert!(imported.inserted_at <= now && imported.updated_at <= now && imported.archived_at.unwrap() <= now);
    let export = db.export_conversation(&db.alice, imported.id).await.unwrap();
    assert!(export.messages[0].inserted_at <= now && export.usage[0].inserted_at <= now);
}

async fn an_import_counts_as_an_update(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let mut past = taken_away(&db).await;
    let then: Timestamp = "1999-01-01T00:00:00Z".parse().unwrap();
    past.conversation.inserted_at = then;
    past.conversation.updated_at = then;
    past.conversation.archived_at = Some(then);
    let imported = db.import_conversation(&db.alice, past).await.unwrap().conversation;
    assert_eq!(imported.inserted_at, then);
    // Housekeeping doesn't take a file's word for its age.
    let cutoff: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(db.delete_conversations(Expired::UpdatedBefore(cutoff)).await.unwrap(), 0);
    assert_eq!(db.delete_conversations(Expired::ArchivedBefore(cutoff)).await.unwrap(), 0);
}

async fn the_state_is_part_of_an_export(database: &TestDatabase) {
    let db = fixture(database, TABLES).await;
    let mut export = taken_away(&db).await;
    let mut state = State::new();
    state.add_messages(["a", "b"].map(Message::user));
    export.state = Some(state.clone());
    assert!(db.import_conversation(&db.alice, export.clone()).await.unwrap().created);
    let back = db.export_conversation(&db.alice, export.conversation.id).await.unwrap();
    assert_eq!(back, export);
    assert_eq!(db.load_agent_state(&db.alice, export.conversation.id).await.unwrap().state, state);
}

#[tokio::test]
async fn an_export_can_move_to_the_other_database() {
    let databases = (TestDatabase::new(Kind::Sqlite), TestDatabase::new(Kind::Postgres));
    let (from, to) = (fixture(&databases.0, TABLES).await, fixture(&databases.1, TABLES).await);
    let (id, project) = (talk(&from).await, Uuid::now_v7());
    let project_id = from.pool.uuid(project);
    from.pool.execute(format!("UPDATE sagents_conversations SET project_id = {project_id}, pinned = 3")).await;
    let export = from.export_conversation(&from.alice, id).await.unwrap();
    assert!(to.import_conversation(&to.alice, export.clone()).await.unwrap().created);
    let there = to.export_conversation(&to.alice, id).await.unwrap();
    assert_eq!(there.conversation.columns["project_id"], json!(project));
    assert_eq!(there.messages, export.messages);
}

/// A file with so many messages of so many bytes in its state, and as many displayed. It's never in memory as a whole.
struct Generated {
    id: Uuid,
    messages: usize,
    size: usize,
    /// How many lines there are before the disk fails.
    fail_at: usize,
    lines: usize,
    line: Vec<u8>,
    at: usize,
}

impl Generated {
    fn new(messages: usize, size: usize) -> Self {
        Self { id: Uuid::now_v7(), messages, size, fail_at: usize::MAX, lines: 0, line: Vec::new(), at: 0 }
    }

    fn next_line(&self) -> Option<Value> {
        let (line, messages, now) = (self.lines, self.messages, Timestamp::now());
        Some(if line == 0 {
            json!({
                "type": "conversation", "version": 1, "id": self.id, "title": null, "metadata": {},
                "interrupted": false, "inserted_at": now, "updated_at": "9998-01-01T00:00:00Z",
                "archived_at": "1999-01-01T00:00:00Z",
            })
        } else if line == 1 {
            empty_state()
        } else if line < 2 + messages {
            let message = Message::user("y".repeat(self.size));
            json!({"type": "agent_message", "id": Uuid::now_v7(), "message": message})
        } else if line < 2 + 2 * messages {
            json!({
                "type": "display_message", "sequence": line - 2 - messages, "message_id": Uuid::now_v7(), "item": 0,
                "role": "user", "content_type": "text", "content": "z".repeat(self.size), "metadata": {},
                "tool_call_id": null, "status": null, "inserted_at": now, "delivery": "stored",
            })
        } else if line == 2 + 2 * messages {
            json!({"type": "end", "agent_messages": messages, "display_messages": messages, "usage": 0})
        } else {
            return None;
        })
    }
}

/// The line of a state without messages.
fn empty_state() -> Value {
    let now = Timestamp::now();
    let conversation = json!({
        "id": Uuid::now_v7(), "title": null, "metadata": {}, "interrupted": false, "inserted_at": now,
        "updated_at": now, "archived_at": null,
    });
    let conversation = serde_json::from_value(conversation).unwrap();
    let export = Export { conversation, state: Some(State::new()), messages: Vec::new(), usage: Vec::new() };
    let file = String::from_utf8(bytes(&export)).unwrap();
    serde_json::from_str(file.lines().nth(1).unwrap()).unwrap()
}

impl BufRead for Generated {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.line.len() {
            if self.lines >= self.fail_at {
                return Err(io::Error::other("the disk failed"));
            }
            self.at = 0;
            self.line.clear();
            if let Some(line) = self.next_line() {
                self.line = serde_json::to_vec(&line).unwrap();
                self.line.push(b'\n');
            }
            self.lines += 1;
        }
        Ok(&self.line[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Generated {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

async fn an_import_that_fails_leaves_nothing_behind(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    for fail_at in [0, 1, 2, 3, 900, 1500, 3001, 3999, 4001, 4002] {
        let file = Generated { fail_at, ..Generated::new(2000, 600) };
        let id = file.id;
        let failed = db.import_conversation_from(&db.alice, file).await;
        assert!(matches!(failed, Err(Error::Io(_))), "{fail_at} {failed:?}");
        assert_not_found!(db.get_conversation(&db.alice, id));
    }
}

async fn an_import_that_is_dropped_leaves_nothing_behind(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let mut ids = Vec::new();
    for delay in [5, 20, 50, 120] {
        let (file, importer) = (Generated::new(3000, 1000), db.clone());
        ids.push(file.id);
        let import = tokio::spawn(async move {
            let _ = importer.import_conversation_from(&importer.alice, file).await;
        });
        sleep(Duration::from_millis(delay)).await;
        import.abort();
        let _ = import.await;
        db.conversation().await;
    }
    for id in ids {
        assert_not_found!(db.get_conversation(&db.alice, id));
    }
}

async fn parallel_imports_of_one_file_create_it_once(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = Uuid::now_v7();
    let mut imports = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (db, file) = (db.clone(), Generated { id, ..Generated::new(200, 100) });
        imports.spawn(async move { db.import_conversation_from(&db.alice, file).await.unwrap().created });
    }
    let created = imports.join_all().await;
    assert_eq!(created.iter().filter(|created| **created).count(), 1);
}

/// Counts what is written.
struct Count(u64);

impl AsyncWrite for Count {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0 += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The most memory that this process has had, in MB. Other systems than Linux don't say.
fn most_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

async fn large_files_take_little_memory(database: &TestDatabase) {
    const MESSAGES: usize = 10_000;
    const SIZE: usize = 10_000;

    let db = Fixture::new(database, TABLES).await;
    let before = most_memory();
    let file = Generated::new(MESSAGES, SIZE);
    let id = file.id;
    let imported = db.import_conversation_from(&db.alice, file).await.unwrap();
    assert!(imported.created);
    // The times of the file aren't possible, or would have it deleted.
    let (now, conversation) = (Timestamp::now(), imported.conversation);
    let is_recent = |time: Timestamp| time <= now && now.duration_since(time) < Duration::from_mins(15);
    assert!(is_recent(conversation.updated_at) && conversation.archived_at.is_some_and(is_recent));

    let mut count = Count(0);
    db.export_conversation_to(&db.alice, id, &mut count).await.unwrap();
    assert!(count.0 > 2 * (MESSAGES * SIZE) as u64);
    if let (Some(before), Some(after)) = (before, most_memory()) {
        // Other tests run beside this one.
        assert!(after < before + 120, "{before} MB became {after} MB, for a file of {} MB", count.0 >> 20);
    }
    let changes = db.changes(&db.alice, id, ChangeCursor::START, 100).await.unwrap();
    // A page of changes ends after 64 KiB.
    assert_eq!((changes.items.len(), changes.more), (6, true));
    let (mut read, mut cursor) = (0, ChangeCursor::START);
    loop {
        let changes = db.changes(&db.alice, id, cursor, 1000).await.unwrap();
        (read, cursor) = (read + changes.items.len(), changes.next);
        if !changes.more {
            break;
        }
    }
    assert_eq!(read, MESSAGES);
}

async fn an_export_waits_for_its_reader(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let file = Generated::new(1000, 1000);
    let id = file.id;
    db.import_conversation_from(&db.alice, file).await.unwrap();
    let (mut near, far) = duplex(1024);
    let exporter = db.clone();
    let export = tokio::spawn(async move { exporter.export_conversation_to(&exporter.alice, id, far).await });
    near.read_exact(&mut [0; 100]).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert!(!export.is_finished());
    export.abort();
    let _ = export.await;
    // Its connection is free again.
    for _ in 0..20 {
        db.get_conversation(&db.alice, id).await.unwrap();
        let changes = ConversationChanges::default().title("t");
        db.update_conversation(&db.alice, id, changes).await.unwrap();
    }
    let (near, far) = duplex(1024);
    drop(near);
    let failed = db.export_conversation_to(&db.alice, id, far).await;
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
}
