//! Files that can't be imported: the error has the line and the place, and nothing is stored.

use sagents::{Error, Export, ListConversations};
use serde_json::json;
use uuid::Uuid;

use crate::copies::example;
use crate::support::fixture::Fixture;
use crate::support::{TABLES, TestDatabase};
use crate::{bytes, on_both_databases};

on_both_databases!(a_file_that_cannot_be_imported_is_refused_with_line_and_place);

#[allow(clippy::too_many_lines, reason = "it is a table")]
async fn a_file_that_cannot_be_imported_is_refused_with_line_and_place(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let mut export = example();
    export.state.as_mut().unwrap().put_metadata("plan", json!({}));
    let file = String::from_utf8(bytes(&export)).unwrap();
    let lines: Vec<_> = file.lines().collect();
    // 1 conversation, 2 state, 3 and 4 agent messages, 5 and 6 display messages, 7 usage, 8 end.
    assert_eq!(lines.len(), 8);

    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deep = [deep(110), deep(200)];
    let cases: &[(usize, &str, &str, &str)] = &[
        (1, r#"{"type""#, "nonsense", "line 1: column 2: expected ident"),
        (1, r#"{"type""#, r#"["type""#, "line 1: column "),
        (1, lines[0], "[]", "line 1: expected an object"),
        (1, lines[0], "", "line 1: column 0: EOF while parsing a value"),
        (1, lines[0], lines[1], "line 1: type: this record may not be here"),
        (1, r#""version":1"#, r#""version":2"#, "line 1: version: expected 1, found 2"),
        (1, r#""version":1,"#, "", "line 1: version: missing"),
        (1, r#""interrupted":true"#, r#""interrupted":1"#, "line 1: interrupted: invalid type"),
        (1, r#""title":"#, r#""name":"#, "line 1: title: missing"),
        (1, r#""title":"#, r#""color":1,"title":"#, "line 1: color: unknown key"),
        (1, r#""metadata":{}"#, r#""metadata":[]"#, "line 1: metadata: invalid type"),
        (1, r#""archived_at":null"#, r#""archived_at":"soon""#, "line 1: archived_at: "),
        (1, r#""inserted_at":""#, r#""inserted_at":"+1"#, "line 1: inserted_at: "),
        (2, r#""version":2"#, r#""version":9"#, "line 2: envelope.version: expected 2, found 9"),
        (2, r#""plan":{}"#, r#""plan":{"#, "line 2: column "),
        (2, r#""todos":[]"#, r#""todos":[1]"#, "line 2: envelope.state.todos[0]: expected"),
        (2, r#""messages":[]"#, r#""messages":[{"role":"user"}]"#, "line 2: envelope.state.messages: "),
        (2, r#""undisplayed":[]"#, r#""undisplayed":["x"]"#, "line 2: undisplayed: "),
        (2, lines[1], lines[0], "line 2: type: this record may not be here"),
        (2, lines[1], lines[2], "line 2: type: this record may not be here"),
        (3, r#""role":"user""#, r#""role":"king""#, "line 3: message.role: "),
        (3, r#""id":""#, r#""id":"x"#, "line 3: id: "),
        (3, r#""message":"#, r#""massage":"#, "line 3: message: missing"),
        (4, lines[3], lines[1], "line 4: type: this record may not be here"),
        (5, r#""sequence":0"#, r#""sequence":-1"#, "line 5: sequence: -1 is out of range"),
        (5, r#""sequence":0"#, r#""sequence":9223372036854775807"#, "line 5: sequence: "),
        (5, r#""sequence":0"#, r#""sequence":9007199254740992"#, "line 5: sequence: 9007199254740992 is out of range"),
        (5, r#""sequence":0"#, r#""sequence":0.5"#, "line 5: sequence: invalid type"),
        (5, r#""item":0"#, r#""item":-1"#, "line 5: item: it is negative"),
        (5, r#""item":0"#, r#""item":3000000000"#, "line 5: item: invalid value"),
        (5, r#""role":"user""#, r#""role":"king""#, "line 5: role: unknown variant `king`"),
        (5, r#""content_type":"text""#, r#""content_type":"film""#, "line 5: content_type: unknown"),
        (5, r#""delivery":"stored""#, r#""delivery":"lost""#, "line 5: delivery: unknown variant"),
        (5, r#""status":null"#, r#""status":"pending""#, "line 5: status: a tool call has one"),
        (6, r#""status":"completed""#, r#""status":null"#, "line 6: status: a tool call has one"),
        (6, r#""status":"completed""#, r#""status":"late""#, "line 6: status: unknown variant"),
        (6, r#""tool_call_id":"call_1""#, r#""tool_call_id":null"#, "line 6: tool_call_id: "),
        (6, r#""sequence":4"#, r#""sequence":0"#, "line 6: sequence: not after that of"),
        (6, lines[5], lines[4], "line 6: sequence: not after that of"),
        (7, r#""input_tokens":1"#, r#""input_tokens":-1"#, "line 7: input_tokens: invalid value"),
        (7, r#""usage""#, r#""price""#, "line 7: type: unknown record `price`"),
        (7, lines[6], lines[7], "line 7: usage: the file should have 1 of them, and has 0"),
        (8, lines[7], lines[6], "line 8: message_id: not after that of the record before"),
        (8, r#""agent_messages":2"#, r#""agent_messages":3"#, "line 8: agent_messages: the file"),
        (8, r#""display_messages":2"#, r#""display_messages":1"#, "line 8: display_messages: the"),
        (8, lines[7], "", "line 8: expected another record"),
        (1, r#""metadata":{}"#, &format!(r#""metadata":{{"a":{}}}"#, deep[0]), "line 1: metadata: "),
        (5, r#""metadata":{}"#, &format!(r#""metadata":{{"a":{}}}"#, deep[0]), "line 5: metadata: "),
        (5, r#""metadata":{}"#, &format!(r#""metadata":{{"a":{}}}"#, deep[1]), "line 5: column "),
        (2, r#""plan":{}"#, &format!(r#""plan":{}"#, deep[0]), "line 2: state.metadata.plan: "),
        (3, r#""message":{"#, &format!(r#""message":{{"x":{},"#, deep[0]), "line 3: message.x: "),
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
    refused(&db, file.replace(&second, &first).as_bytes(), "line 6: item: ").await;
    let mut broken = file.clone().into_bytes();
    broken[file.find("Where to?").unwrap()] = 0xff;
    refused(&db, &broken, "line 3: column ").await;
    // A time is read to the microsecond.
    let nanoseconds = file.replacen("Z\"", "123Z\"", 1);
    assert_eq!(Export::read_from(nanoseconds.as_bytes()).unwrap(), export);

    // The same for a value, which has no lines.
    let mut wrong = export.clone();
    wrong.messages[1].status = None;
    let error = db.import_conversation(&db.alice, wrong).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid: messages[1].status: a tool call has one, and nothing else has");
    assert!(db.import_conversation(&db.alice, export).await.unwrap().created);
}

async fn refused(db: &Fixture, file: &[u8], expected: &str) {
    let error = match db.import_conversation_from(&db.alice, file).await {
        Err(error @ Error::Invalid(_)) => error.to_string(),
        other => panic!("{expected}: {other:?}"),
    };
    assert!(error.starts_with(&format!("invalid: {expected}")), "{error}, not {expected}");
    let stored = db.list_conversations(&db.alice, ListConversations::new()).await.unwrap();
    assert!(stored.items.is_empty(), "{expected}");
}

#[test]
fn no_beginning_of_a_file_is_a_file() {
    let file = bytes(&example());
    for length in 0..file.len() - 1 {
        assert!(Export::read_from(&file[..length]).is_err(), "{length}");
    }
    // Its last line may lack its end.
    assert!(Export::read_from(&file[..file.len() - 1]).is_ok());
}
