//! Exports and imports: any conversation survives them, and what cannot be imported is refused with its place.

use crate::database;
use crate::storage::alone;
use crate::strategies;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use database::{Database, STORE};
use matrix::conversations::{
    Claim, ContentType, Conversations, Decision, Delivery, Error, Export, Fork, HitlDecision,
    ListConversations, MessagePage, NewConversation, NewDisplayMessage, Point, Role, SearchPage,
    ToolStatus, connect,
};
use matrix::sagents::{
    Expect, ExportedConversation, ExportedMessage, ExportedUsage, Message, ReadError, State,
    serializer, timestamp,
};
use matrix::scopes::{Scope, User};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use uuid::Uuid;

fn scope(id: i64) -> &'static Scope {
    let name = "a".into();
    let user = User { id, name };
    Box::leak(Box::new(Scope { user }))
}

struct Db {
    layer: Conversations,
    _database: Database,
}

impl Db {
    async fn new() -> Self {
        let database =
            Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')").await;
        Self {
            layer: Conversations::new(connect(&database.url()).await.unwrap()),
            _database: database,
        }
    }

    async fn import(&self, owner: i64, export: &Export) -> bool {
        let import = self.layer.import_conversation(scope(owner), export.clone());
        import.await.unwrap().created
    }

    async fn export(&self, owner: i64, id: Uuid) -> Export {
        let export = self.layer.export_conversation(scope(owner), id).await;
        export.unwrap()
    }

    async fn file(&self, owner: i64, id: Uuid) -> Vec<u8> {
        let mut file = Vec::new();
        let export = self
            .layer
            .export_conversation_to(scope(owner), id, &mut file);
        export.await.unwrap();
        file
    }

    async fn count(&self, owner: i64) -> usize {
        let list = ListConversations::new();
        let page = self.layer.list_conversations(scope(owner), list).await;
        page.unwrap().items.len()
    }
}

/// An export with something of everything.
fn example() -> Export {
    let now = timestamp::now();
    let message = |sequence: i64, content: &str| ExportedMessage {
        sequence,
        message_id: Uuid::now_v7(),
        item: 0,
        role: Role::User,
        content_type: ContentType::Text,
        content: content.into(),
        metadata: Map::new(),
        tool_call_id: None,
        status: None,
        inserted_at: now,
        delivery: Delivery::Stored,
    };
    let mut state = State::new();
    for message in [
        Message::user("Where to?"),
        Message::assistant("To the sea."),
    ] {
        state.messages.push_with_id(Uuid::now_v7(), message);
    }
    Export {
        conversation: ExportedConversation {
            id: Uuid::now_v7(),
            title: Some("Plans".into()),
            metadata: Map::new(),
            interrupted: true,
            inserted_at: now,
            updated_at: now,
            archived_at: None,
        },
        state: Some(state),
        messages: vec![
            message(0, "Where to?"),
            ExportedMessage {
                role: Role::Assistant,
                content_type: ContentType::ToolCall,
                tool_call_id: Some("call_1".into()),
                status: Some(ToolStatus::Completed),
                ..message(4, "search")
            },
        ],
        usage: vec![ExportedUsage {
            message_id: Uuid::now_v7(),
            model: None,
            input_tokens: 1,
            output_tokens: 2,
            cached_tokens: 0,
            inserted_at: now,
        }],
    }
}

/// An export with any texts, values and state.
fn any_export() -> impl Strategy<Value = Export> {
    let metadata = || strategies::value().prop_map(|value| json!({ "any": value }));
    let object = |value: Value| value.as_object().unwrap().clone();
    let display = (strategies::text(), metadata(), 0..5_usize, any::<bool>());
    let display = proptest::collection::vec(display, 0..4);
    let usage = (proptest::option::of(strategies::text()), 0..=i64::MAX);
    let usage = proptest::collection::vec(usage, 0..3);
    let state = proptest::option::of(strategies::state());
    let title = proptest::option::of(strategies::text());
    (title, metadata(), state, display, usage).prop_map(
        move |(title, metadata, state, display, usage)| {
            let mut export = example();
            export.conversation.title = title;
            export.conversation.metadata = object(metadata);
            export.conversation.archived_at = export.state.as_ref().map(|_| timestamp::now());
            export.state = state;
            let (text, call) = (export.messages[0].clone(), export.messages[1].clone());
            let deliveries = [
                Delivery::Stored,
                Delivery::Draft,
                Delivery::Unsaved,
                Delivery::Interrupted,
                Delivery::Unknown,
            ];
            let display = (3..).zip(display);
            let display =
                display.map(
                    |(sequence, (content, metadata, delivery, is_call))| ExportedMessage {
                        sequence: sequence * 2,
                        message_id: Uuid::now_v7(),
                        content,
                        metadata: object(metadata),
                        delivery: deliveries[delivery],
                        ..if is_call { call.clone() } else { text.clone() }
                    },
                );
            export.messages = display.collect();
            let template = export.usage[0].clone();
            let usage = usage.into_iter().map(|(model, tokens)| ExportedUsage {
                message_id: Uuid::now_v7(),
                model,
                input_tokens: tokens,
                ..template.clone()
            });
            export.usage = usage.collect();
            export
        },
    )
}

#[test]
fn any_conversation_is_the_same_after_an_export_and_an_import() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let db = runtime.block_on(Db::new());
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    });
    let outcome = runner.run(&any_export(), |given| {
        runtime.block_on(async {
            let id = given.conversation.id;
            assert!(db.import(1, &given).await);
            assert!(!db.import(1, &given).await, "a repeat");
            let export = db.export(1, id).await;
            // U+0000 and drafts are not kept; everything else is.
            assert_eq!(export.conversation.id, id);
            assert_eq!(export.state, given.state);
            assert_eq!(export.messages.len(), given.messages.len());

            let file = db.file(1, id).await;
            let mut written = Vec::new();
            export.write_to(&mut written).unwrap();
            assert_eq!(written, file);
            let read = Export::read_from(&*file).unwrap();
            assert_eq!(read, export);
            let json = serde_json::to_string(&export).unwrap();
            assert_eq!(serde_json::from_str::<Export>(&json).unwrap(), export);

            let layer = &db.layer;
            let imported = layer.import_conversation_from(scope(2), &*file).await;
            assert!(imported.unwrap().created);
            assert_eq!(db.export(2, id).await, export);
            assert_eq!(db.file(2, id).await, file);
            let loaded = layer.load_agent_state(scope(2), id).await.ok();
            assert_eq!(loaded.map(|saved| saved.state), export.state);

            for owner in [1, 2] {
                layer.delete_conversation(scope(owner), id).await.unwrap();
            }
        });
        Ok(())
    });
    outcome.unwrap();
}

/// A decision belongs to the conversation in which it was made.
#[tokio::test]
async fn nobody_has_approved_or_started_a_call_in_a_copy() {
    let db = Db::new().await;
    let (layer, owner) = (&db.layer, scope(1));
    let id = make_calls(layer, owner).await;
    let fork = layer
        .fork_conversation(owner, id, Fork::new())
        .await
        .unwrap()
        .conversation;
    assert!(fork.interrupted);
    let file = db.file(1, id).await;
    layer
        .import_conversation_from(scope(2), &*file)
        .await
        .unwrap();
    for (owner, id) in [(owner, fork.id), (scope(2), id)] {
        for (call, status, started) in [
            ("approved", ToolStatus::Interrupted, false),
            ("started", ToolStatus::Interrupted, true),
            ("recorded", ToolStatus::Interrupted, false),
            ("waits", ToolStatus::Interrupted, false),
            ("done", ToolStatus::Completed, false),
            ("rejected", ToolStatus::Cancelled, false),
            ("runs", ToolStatus::Unknown, true),
            ("pending", ToolStatus::Pending, false),
        ] {
            let row = layer.get_tool_call(owner, id, call).await.unwrap();
            assert_eq!(row.status, Some(status), "{call}");
            assert_eq!(
                row.metadata.contains_key("started_elsewhere"),
                started,
                "{call}"
            );
            let is_decided = ["done", "rejected"].contains(&call);
            assert_eq!(row.decision().is_some(), is_decided, "{call}");
            let claim = layer
                .claim_tool_call(owner, id, call, Uuid::now_v7())
                .await
                .unwrap();
            assert_eq!(
                matches!(claim, Claim::Claimed(_)),
                call == "pending",
                "{call}"
            );
        }
        let page = layer
            .load_display_messages(owner, id, MessagePage::first())
            .await
            .unwrap();
        let results = page
            .items
            .iter()
            .filter(|row| row.content_type == ContentType::ToolResult);
        let decided: Vec<_> = results
            .filter(|row| row.metadata.contains_key("hitl_decision"))
            .map(|row| row.tool_call_id.as_deref().unwrap())
            .collect();
        assert_eq!(decided, ["rejected"]);
    }
}

/// A conversation with calls that are named after their status.
async fn make_calls(layer: &Conversations, owner: &Scope) -> Uuid {
    let id = layer
        .create_conversation(owner, NewConversation::new())
        .await
        .unwrap()
        .id;
    let approved = ["approved", "started", "recorded", "done"];
    for call in approved
        .into_iter()
        .chain(["waits", "rejected", "runs", "pending"])
    {
        let new = NewDisplayMessage::tool_call(call, "pay");
        layer.append_display_message(owner, id, new).await.unwrap();
        if call == "runs" || call == "pending" {
            continue;
        }
        let question = json!({ "is_interrupt": true }).as_object().unwrap().clone();
        let result = NewDisplayMessage::tool_result(call, "?").metadata(question);
        layer
            .append_display_message(owner, id, result)
            .await
            .unwrap();
        layer
            .interrupt_tool_call(owner, id, call, Map::new())
            .await
            .unwrap();
    }
    for call in ["approved", "started", "done"] {
        let edit = Decision::Edit {
            arguments: json!({ "amount": 5 }),
        };
        layer
            .decide_tool_call(owner, id, call, &edit, Uuid::now_v7())
            .await
            .unwrap();
    }
    let reject = Decision::Reject { reason: None };
    layer
        .decide_tool_call(owner, id, "rejected", &reject, Uuid::now_v7())
        .await
        .unwrap();
    layer
        .record_hitl_decision(owner, id, "recorded", HitlDecision::Approved)
        .await
        .unwrap();
    for call in ["started", "done", "runs"] {
        layer
            .claim_tool_call(owner, id, call, Uuid::now_v7())
            .await
            .unwrap();
    }
    layer
        .complete_tool_call(owner, id, "done", Map::new())
        .await
        .unwrap();
    id
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "it is a table")]
async fn what_cannot_be_imported_is_refused_with_line_and_place_and_nothing_is_stored() {
    let db = Db::new().await;
    let mut export = example();
    export
        .state
        .as_mut()
        .unwrap()
        .put_metadata("plan", json!({}));
    let mut file = Vec::new();
    export.write_to(&mut file).unwrap();
    let file = String::from_utf8(file).unwrap();
    let lines: Vec<_> = file.lines().collect();
    // 1 conversation, 2 state, 3 and 4 agent messages, 5 and 6 display messages, 7 usage, 8 end.
    assert_eq!(lines.len(), 8);

    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deep = [deep(110), deep(200)];
    let cases: &[(usize, &str, &str, &str)] = &[
        (
            1,
            r#"{"type""#,
            "nonsense",
            "line 1: column 2: expected ident",
        ),
        (1, r#"{"type""#, r#"["type""#, "line 1: column "),
        (1, lines[0], "[]", "line 1: expected an object"),
        (
            1,
            lines[0],
            "",
            "line 1: column 0: EOF while parsing a value",
        ),
        (
            1,
            lines[0],
            lines[1],
            "line 1: type: this record may not be here",
        ),
        (
            1,
            r#""version":1"#,
            r#""version":2"#,
            "line 1: version: expected 1, found 2",
        ),
        (1, r#""version":1,"#, "", "line 1: version: missing"),
        (
            1,
            r#""interrupted":true"#,
            r#""interrupted":1"#,
            "line 1: interrupted: invalid type",
        ),
        (1, r#""title":"#, r#""name":"#, "line 1: title: missing"),
        (
            1,
            r#""title":"#,
            r#""color":1,"title":"#,
            "line 1: color: unknown key",
        ),
        (
            1,
            r#""metadata":{}"#,
            r#""metadata":[]"#,
            "line 1: metadata: invalid type",
        ),
        (
            1,
            r#""archived_at":null"#,
            r#""archived_at":"soon""#,
            "line 1: archived_at: ",
        ),
        (
            1,
            r#""inserted_at":""#,
            r#""inserted_at":"+1"#,
            "line 1: inserted_at: ",
        ),
        (
            2,
            r#""version":2"#,
            r#""version":9"#,
            "line 2: envelope.version: expected 2, found 9",
        ),
        (2, r#""plan":{}"#, r#""plan":{"#, "line 2: column "),
        (
            2,
            r#""todos":[]"#,
            r#""todos":[1]"#,
            "line 2: envelope.state.todos[0]: expected",
        ),
        (
            2,
            r#""messages":[]"#,
            r#""messages":[{"role":"user"}]"#,
            "line 2: envelope.state.messages: ",
        ),
        (
            2,
            r#""undisplayed":[]"#,
            r#""undisplayed":["x"]"#,
            "line 2: undisplayed: ",
        ),
        (
            2,
            lines[1],
            lines[0],
            "line 2: type: this record may not be here",
        ),
        (
            2,
            lines[1],
            lines[2],
            "line 2: type: this record may not be here",
        ),
        (
            3,
            r#""role":"user""#,
            r#""role":"king""#,
            "line 3: message.role: ",
        ),
        (3, r#""id":""#, r#""id":"x"#, "line 3: id: "),
        (
            3,
            r#""message":"#,
            r#""massage":"#,
            "line 3: message: missing",
        ),
        (
            4,
            lines[3],
            lines[1],
            "line 4: type: this record may not be here",
        ),
        (
            5,
            r#""sequence":0"#,
            r#""sequence":-1"#,
            "line 5: sequence: -1 is out of range",
        ),
        (
            5,
            r#""sequence":0"#,
            r#""sequence":9223372036854775807"#,
            "line 5: sequence: ",
        ),
        (
            5,
            r#""sequence":0"#,
            r#""sequence":9007199254740992"#,
            "line 5: sequence: 9007199254740992 is out of range",
        ),
        (
            5,
            r#""sequence":0"#,
            r#""sequence":0.5"#,
            "line 5: sequence: invalid type",
        ),
        (
            5,
            r#""item":0"#,
            r#""item":-1"#,
            "line 5: item: it is negative",
        ),
        (
            5,
            r#""item":0"#,
            r#""item":3000000000"#,
            "line 5: item: invalid value",
        ),
        (
            5,
            r#""role":"user""#,
            r#""role":"king""#,
            "line 5: role: unknown variant `king`",
        ),
        (
            5,
            r#""content_type":"text""#,
            r#""content_type":"film""#,
            "line 5: content_type: unknown",
        ),
        (
            5,
            r#""delivery":"stored""#,
            r#""delivery":"lost""#,
            "line 5: delivery: unknown variant",
        ),
        (
            5,
            r#""status":null"#,
            r#""status":"pending""#,
            "line 5: status: a tool call has one",
        ),
        (
            6,
            r#""status":"completed""#,
            r#""status":null"#,
            "line 6: status: a tool call has one",
        ),
        (
            6,
            r#""status":"completed""#,
            r#""status":"late""#,
            "line 6: status: unknown variant",
        ),
        (
            6,
            r#""tool_call_id":"call_1""#,
            r#""tool_call_id":null"#,
            "line 6: tool_call_id: ",
        ),
        (
            6,
            r#""sequence":4"#,
            r#""sequence":0"#,
            "line 6: sequence: not after that of",
        ),
        (6, lines[5], lines[4], "line 6: sequence: not after that of"),
        (
            7,
            r#""input_tokens":1"#,
            r#""input_tokens":-1"#,
            "line 7: input_tokens: it is negative",
        ),
        (
            7,
            r#""usage""#,
            r#""price""#,
            "line 7: type: unknown record `price`",
        ),
        (
            7,
            lines[6],
            lines[7],
            "line 7: usage: the file should have 1 of them, and has 0",
        ),
        (
            8,
            lines[7],
            lines[6],
            "line 8: message_id: not after that of the record before",
        ),
        (
            8,
            r#""agent_messages":2"#,
            r#""agent_messages":3"#,
            "line 8: agent_messages: the file",
        ),
        (
            8,
            r#""display_messages":2"#,
            r#""display_messages":1"#,
            "line 8: display_messages: the",
        ),
        (8, lines[7], "", "line 8: expected another record"),
        (
            1,
            r#""metadata":{}"#,
            &format!(r#""metadata":{{"a":{}}}"#, deep[0]),
            "line 1: metadata: ",
        ),
        (
            5,
            r#""metadata":{}"#,
            &format!(r#""metadata":{{"a":{}}}"#, deep[0]),
            "line 5: metadata: ",
        ),
        (
            5,
            r#""metadata":{}"#,
            &format!(r#""metadata":{{"a":{}}}"#, deep[1]),
            "line 5: column ",
        ),
        (
            2,
            r#""plan":{}"#,
            &format!(r#""plan":{}"#, deep[0]),
            "line 2: state.metadata.plan: ",
        ),
        (
            3,
            r#""message":{"#,
            &format!(r#""message":{{"x":{},"#, deep[0]),
            "line 3: message.x: ",
        ),
    ];
    for (line, old, new, expected) in cases {
        let mut edited: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        assert!(edited[line - 1].contains(old), "line {line} has no {old}");
        edited[line - 1] = edited[line - 1].replacen(old, new, 1);
        refused(&db, edited.join("\n").as_bytes(), expected).await;
    }

    // Not a UUIDv7; another item of the same message; bytes that are no text.
    let other = Uuid::from_u128(1).to_string();
    let id = export.conversation.id.to_string();
    refused(&db, file.replace(&id, &other).as_bytes(), "line 1: id: ").await;
    let [first, second] = [0, 1].map(|index| export.messages[index].message_id.to_string());
    refused(
        &db,
        file.replace(&second, &first).as_bytes(),
        "line 6: item: ",
    )
    .await;
    let mut bytes = file.clone().into_bytes();
    let place = file.find("Where to?").unwrap();
    bytes[place] = 0xff;
    refused(&db, &bytes, "line 3: column ").await;
    let nanoseconds = file.replacen("Z\"", "123Z\"", 1);
    refused(&db, nanoseconds.as_bytes(), "line 1: inserted_at: ").await;

    // The same for a value, which has no lines.
    let mut wrong = export.clone();
    wrong.messages[1].status = None;
    let refused = db.layer.import_conversation(scope(1), wrong).await;
    let expected = "invalid: messages[1].status: a tool call has one, and nothing else has";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    assert_eq!(db.count(1).await, 0);

    assert!(db.import(1, &export).await);
}

async fn refused(db: &Db, file: &[u8], expected: &str) {
    let import = db.layer.import_conversation_from(scope(1), file).await;
    let error = match import {
        Err(error @ Error::Invalid(_)) => error.to_string(),
        other => panic!("{expected}: {other:?}"),
    };
    assert!(
        error.starts_with(&format!("invalid: {expected}")),
        "{error}, not {expected}"
    );
    assert_eq!(db.count(1).await, 0, "{expected}");
}

#[test]
fn no_beginning_of_a_file_is_a_file() {
    let mut file = Vec::new();
    example().write_to(&mut file).unwrap();
    for length in 0..file.len() - 1 {
        assert!(Export::read_from(&file[..length]).is_err(), "{length}");
    }
    // Its last line may lack its end.
    assert!(Export::read_from(&file[..file.len() - 1]).is_ok());
}

#[tokio::test]
async fn files_may_follow_each_other() {
    let db = Db::new().await;
    let exports = [example(), example(), example()];
    assert!(db.import(1, &exports[1]).await);
    let mut file = Vec::new();
    for export in &exports {
        export.write_to(&mut file).unwrap();
    }
    let mut rest = &*file;
    let mut created = Vec::new();
    while !rest.is_empty() {
        let import = db.layer.import_conversation_from(scope(1), &mut rest);
        created.push(import.await.unwrap().created);
    }
    assert_eq!(created, [true, false, true]);
    for export in exports {
        assert_eq!(db.export(1, export.conversation.id).await, export);
    }
}

#[tokio::test]
async fn an_import_that_is_dropped_halfway_stores_nothing() {
    let db = Db::new().await;
    let mut export = example();
    let message = export.messages[0].clone();
    export.messages = (0..5_000)
        .map(|sequence| ExportedMessage {
            sequence,
            message_id: Uuid::now_v7(),
            ..message.clone()
        })
        .collect();
    // It is dropped wherever it waits for the database.
    for waits in [1, 2, 3, 5] {
        let mut import = Box::pin(db.layer.import_conversation(scope(1), export.clone()));
        for _ in 0..waits {
            assert!(next_wait(&mut import).await.is_none());
        }
        drop(import);
        assert_eq!(db.count(1).await, 0);
    }
    assert!(db.import(1, &export).await);
    assert_eq!(db.export(1, export.conversation.id).await, export);
}

/// Waits until a future is woken, if it is not ready.
async fn next_wait<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    let mut was_woken = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut was_woken, true) {
            return std::task::Poll::Ready(None);
        }
        std::pin::Pin::new(&mut *future).poll(context).map(Some)
    })
    .await
}

#[tokio::test]
async fn a_writer_or_a_reader_that_fails_is_reported() {
    struct Failing;

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("full"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }

    let db = Db::new().await;
    let export = example();
    assert!(db.import(1, &export).await);
    let id = export.conversation.id;
    let written = db.layer.export_conversation_to(scope(1), id, Failing).await;
    assert!(matches!(written, Err(Error::Io(_))), "{written:?}");
    let mut file = Vec::new();
    export.write_to(&mut file).unwrap();
    let half = file.len() / 2;
    let reader = BufReader::new(file[..half].chain(Failing));
    let read = db.layer.import_conversation_from(scope(2), reader).await;
    assert!(matches!(read, Err(Error::Io(_))), "{read:?}");
    assert_eq!(db.count(2).await, 0);
    assert_eq!(
        db.export(1, id).await,
        export,
        "the connections are free again"
    );
}

#[tokio::test]
async fn a_state_with_its_messages_inside_is_exported_and_a_damaged_one_is_not() {
    let db = Db::new().await;
    let export = example();
    let id = export.conversation.id;
    assert!(db.import(1, &export).await);
    let store = async |text: String| {
        let store = sqlx::query(STORE).bind(text).execute(db.layer.pool());
        assert!(store.await.unwrap().rows_affected() > 0);
    };
    let envelope = serializer::to_text(export.state.as_ref().unwrap()).unwrap();

    store(envelope.clone()).await;
    let whole = db.export(1, id).await;
    assert_eq!(
        whole, export,
        "its messages have no ids, which are not compared"
    );
    let copied = db
        .layer
        .import_conversation_from(scope(2), &*db.file(1, id).await)
        .await;
    assert!(copied.unwrap().created);
    assert_eq!(db.export(2, id).await, whole);

    for (text, path) in [
        (
            envelope.replace(r#""role":"user""#, r#""role":"king""#),
            "state.messages[0].role",
        ),
        (
            r#"{"version":3,"state":{"messages":{"count":3}}}"#.to_owned(),
            "state.messages",
        ),
        (
            r#"{"version":3,"state":{"messages":{"count":1}}}"#.to_owned(),
            "state.messages",
        ),
    ] {
        store(text).await;
        let error = db
            .layer
            .export_conversation(scope(1), id)
            .await
            .unwrap_err();
        let Error::DeserializationFailed(ReadError::Damaged { path: found, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(found, path);
    }
    store(r#"{"version":99}"#.to_owned()).await;
    let error = db
        .layer
        .export_conversation(scope(1), id)
        .await
        .unwrap_err();
    let expected = ReadError::FutureVersion { version: 99 };
    assert!(matches!(error, Error::DeserializationFailed(error) if error == expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_of_one_point_in_time() {
    /// Waits in its first write until somebody has written to the conversation.
    struct Waiting(mpsc::Sender<()>, mpsc::Receiver<()>, Vec<u8>);

    impl Write for Waiting {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.2.is_empty() {
                self.0.send(()).unwrap();
                self.1.recv().unwrap();
            }
            self.2.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let db = Db::new().await;
    let export = example();
    let id = export.conversation.id;
    assert!(db.import(1, &export).await);
    let (begun, begins) = mpsc::channel();
    let (done, ends) = mpsc::channel();
    let layer = db.layer.clone();
    let runtime = tokio::runtime::Handle::current();
    let writer = std::thread::spawn(move || {
        begins.recv().unwrap();
        runtime.block_on(async {
            let message = NewDisplayMessage::text(Role::User, "late");
            layer
                .append_display_message(scope(1), id, message)
                .await
                .unwrap();
            let mut saved = layer.load_agent_state(scope(1), id).await.unwrap();
            saved.state.add_message(Message::user("late"));
            let expect = Expect::Revision(saved.revision);
            layer
                .save_agent_state(scope(1), id, &saved.state, expect)
                .await
                .unwrap();
        });
        done.send(()).unwrap();
    });
    let mut waiting = Waiting(begun, ends, Vec::new());
    let written = db.layer.export_conversation_to(scope(1), id, &mut waiting);
    written.await.unwrap();
    writer.join().unwrap();
    assert_eq!(Export::read_from(&*waiting.2).unwrap(), export);
    assert_eq!(db.export(1, id).await.messages.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_imports_at_the_same_time_one_stores() {
    let db = Db::new().await;
    let export = example();
    let imports: Vec<_> = (0..8)
        .map(|_| {
            let (layer, export) = (db.layer.clone(), export.clone());
            tokio::spawn(async move { layer.import_conversation(scope(1), export).await })
        })
        .collect();
    let mut created = 0;
    for import in imports {
        created += usize::from(import.await.unwrap().unwrap().created);
    }
    assert_eq!(created, 1);
    assert_eq!(db.export(1, export.conversation.id).await, export);
}

/// Two conversations have the highest sequences there can be: earlier versions imported them.
#[tokio::test]
async fn a_message_with_the_highest_sequence_stops_neither_its_conversation_nor_housekeeping() {
    const LAST: &str = "UPDATE sagents_conversations SET next_sequence = 9223372036854775807";

    let db = Db::new().await;
    let mut export = example();
    export.messages[1].sequence = (1 << 53) - 1;
    let id = export.conversation.id;
    assert!(db.import(1, &export).await);
    let message = NewDisplayMessage::text(Role::User, "hello");
    let appended = db.layer.append_display_message(scope(1), id, message).await;
    assert_eq!(appended.unwrap().sequence, 1 << 53);
    let rewind = db.layer.rewind_conversation(scope(1), id, Point::End).await;
    assert_eq!(rewind.unwrap().removed, 0);

    assert!(db.import(2, &example()).await);
    let pool = db.layer.pool();
    sqlx::raw_sql(LAST).execute(pool).await.unwrap();
    let cutoff = "3000-01-01T00:00:00Z".parse().unwrap();
    let deleted = db.layer.delete_conversations_before(cutoff).await;
    assert_eq!(deleted.unwrap(), 2);
}

#[tokio::test]
async fn an_import_of_any_year_is_listed_and_found() {
    let db = Db::new().await;
    let times = [
        "0000-01-01T00:00:00Z",
        "2000-01-01T00:00:00Z",
        "9000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
    ];
    for time in times {
        let (mut export, time) = (example(), time.parse().unwrap());
        export.conversation.updated_at = time;
        export.messages[0].inserted_at = time;
        assert!(db.import(1, &export).await);
    }
    assert_eq!(db.count(1).await, times.len());
    let search = db
        .layer
        .search_messages(scope(1), "where", SearchPage::first());
    assert_eq!(search.await.unwrap().items.len(), times.len());
}

#[tokio::test]
async fn an_imported_conversation_goes_on() {
    let db = Db::new().await;
    let new = NewConversation::new();
    let id = db
        .layer
        .create_conversation(scope(1), new)
        .await
        .unwrap()
        .id;
    let empty = db.export(1, id).await;
    assert!(db.import(2, &empty).await);
    assert_eq!(db.export(2, id).await, empty);

    let export = example();
    let id = export.conversation.id;
    assert!(db.import(1, &export).await);
    let message = NewDisplayMessage::text(Role::User, "hello");
    let appended = db.layer.append_display_message(scope(1), id, message).await;
    assert_eq!(appended.unwrap().sequence, 5);
    let page = db
        .layer
        .load_display_messages(scope(1), id, MessagePage::first())
        .await;
    let sequences: Vec<_> = page.unwrap().items.iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, [0, 4, 5]);
    let mut saved = db.layer.load_agent_state(scope(1), id).await.unwrap();
    saved.state.add_message(Message::user("hello"));
    let expect = Expect::Revision(saved.revision);
    let save = db
        .layer
        .save_agent_state(scope(1), id, &saved.state, expect);
    assert_eq!(save.await.unwrap().0, 2);
}

/// Produces the file of a conversation with many messages, line by line.
struct Large {
    id: Uuid,
    next: u64,
    line: Vec<u8>,
    read: u64,
}

impl Large {
    const MESSAGES: u64 = 50_000;

    fn make(&self) -> Option<Value> {
        let text = "A text of some length. ".repeat(8);
        let time = "2026-01-02T03:04:05.000006Z";
        let (id, n) = (self.id, self.next);
        // Ids in another order than the messages.
        let message_id = Uuid::from_u128(u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 32);
        Some(if n == 0 {
            json!({ "type": "conversation", "version": 1, "id": id, "title": null, "metadata": {},
                "interrupted": false, "inserted_at": time, "updated_at": time, "archived_at": null })
        } else if n == 1 {
            let state = json!({ "messages": [], "todos": [], "metadata": {} });
            let envelope = json!({ "version": 2, "state": state });
            json!({ "type": "state", "envelope": envelope, "undisplayed": [] })
        } else if n < 2 + Self::MESSAGES {
            let message = json!({ "role": "user", "content": text });
            json!({ "type": "agent_message", "id": message_id, "message": message })
        } else if n < 2 + 2 * Self::MESSAGES {
            json!({ "type": "display_message", "sequence": n, "message_id": message_id, "item": 0,
                "role": "user", "content_type": "text", "content": text, "metadata": {},
                "tool_call_id": null, "status": null, "inserted_at": time, "delivery": "stored" })
        } else if n == 2 + 2 * Self::MESSAGES {
            let messages = Self::MESSAGES;
            json!({ "type": "end", "agent_messages": messages, "display_messages": messages, "usage": 0 })
        } else {
            return None;
        })
    }
}

impl Read for Large {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.is_empty() {
            let Some(line) = self.make() else {
                return Ok(0);
            };
            self.next += 1;
            self.line = format!("{line}\n").into_bytes();
        }
        let length = buffer.len().min(self.line.len());
        buffer[..length].copy_from_slice(&self.line[..length]);
        drop(self.line.drain(..length));
        self.read += length as u64;
        Ok(length)
    }
}

/// Counts what is written, and keeps nothing.
#[derive(Default)]
struct Counting {
    bytes: usize,
    lines: usize,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        self.lines += bytes.split(|byte| *byte == b'\n').count() - 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the memory that is in use, and the most since the last reset.
struct Counted;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "it forwards every call")]
// SAFETY: as that of the system.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// Alone, so that the memory of other tests does not count.
#[test]
fn a_hundred_thousand_messages_need_little_memory() {
    if !alone(
        module_path!(),
        "a_hundred_thousand_messages_need_little_memory",
    ) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().unwrap().block_on(async {
        let db = Db::new().await;
        let id = Uuid::now_v7();
        let mut large = Large {
            id,
            next: 0,
            line: Vec::new(),
            read: 0,
        };
        let before = USED.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let import = db
            .layer
            .import_conversation_from(scope(1), BufReader::new(&mut large));
        assert!(import.await.unwrap().created);
        let import = MOST.load(Ordering::Relaxed) - before;
        assert!(large.read > 30_000_000, "{}", large.read);

        let before = USED.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let mut written = Counting::default();
        let export = db.layer.export_conversation_to(scope(1), id, &mut written);
        export.await.unwrap();
        let export = MOST.load(Ordering::Relaxed) - before;
        assert_eq!(written.lines, 100_003);
        assert!(written.bytes > 30_000_000, "{}", written.bytes);

        // The ids of all display messages, and a batch of rows.
        let limit = 12 * 1024 * 1024;
        assert!(
            import < limit && export < limit,
            "{import} and {export} bytes"
        );
    });
}
