//! Tests of exports and imports in this host.

use super::super::*;
use super::database::{Database, alice{% if has_owner %}, bob{% endif %}{% if group.is_some() %}, group{% endif %}};
use super::state_of;
use crate::sagents::{Delivery, Expect, ExportedUsage, Message, ToolCall, timestamp};

/// An export with some of everything, which is stored as Alice's.
async fn stored(db: &Database) -> Export {
    let id = db.conversation().await;
    let title = ConversationChanges::default().title("Plans");
    db.update_conversation(&alice(), id, title).await.unwrap();
    let mut answer = Message::assistant("To the sea.");
    answer.tool_calls = vec![ToolCall::new("call_1", "search", serde_json::json!({ "query": "sea" }))];
    db.save_message(&alice(), id, Uuid::now_v7(), &answer).await.unwrap();
    db.save_draft(&alice(), id, Uuid::now_v7(), &Message::assistant("Or")).await.unwrap();
    let state = state_of(&["Where shall we go?", "And when?"]);
    db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    let mut export = db.export_conversation(&alice(), id).await.unwrap();
    export.usage.push(ExportedUsage {
        message_id: Uuid::now_v7(),
        model: Some("large".into()),
        input_tokens: 100,
        output_tokens: 20,
        cached_tokens: 50,
        inserted_at: timestamp::now(),
    });
    export.conversation.archived_at = Some(timestamp::now());
    export.conversation.id = Uuid::now_v7();
    assert!(db.import_conversation(&alice(), export.clone()).await.unwrap().created);
    export
}

#[tokio::test]
async fn an_import_is_equal_to_its_export() {
    let db = Database::new().await;
    let export = stored(&db).await;
    let id = export.conversation.id;
    assert_eq!(db.export_conversation(&alice(), id).await.unwrap(), export);
    assert_eq!(export.messages.len(), 3);
    assert_eq!(export.messages[2].delivery, Delivery::Interrupted);
    let state = db.load_agent_state(&alice(), id).await.unwrap().state;
    assert_eq!(state.messages.len(), 2);

    let mut copy = export.clone();
    copy.conversation.id = Uuid::now_v7();
    let imported = db.import_conversation(&alice(), copy.clone()).await.unwrap();
    assert!(imported.created);
    assert_eq!(imported.conversation.id, copy.conversation.id);
    assert_eq!(db.export_conversation(&alice(), copy.conversation.id).await.unwrap(), copy);

    let appended = NewDisplayMessage::text(Role::User, "hello");
    let appended = db.append_display_message(&alice(), id, appended).await.unwrap();
    assert_eq!(appended.sequence, export.messages[2].sequence + 1);
}
{%- if has_owner %}

#[tokio::test]
async fn an_import_belongs_to_the_caller() {
    let db = Database::new().await;
    let export = stored(&db).await;
    let id = export.conversation.id;
    let missing = db.export_conversation(&bob(), id).await;
    assert!(matches!(missing, Err(Error::NotFound)));
    let imported = db.import_conversation(&bob(), export.clone()).await.unwrap();
    assert!(imported.created);
    assert_eq!(imported.conversation.scope, bob().to_json());
    db.delete_conversation(&alice(), id).await.unwrap();
    assert_eq!(db.export_conversation(&bob(), id).await.unwrap(), export);
}
{%- endif %}
{%- if group.is_some() %}

#[tokio::test]
async fn a_group_exports_what_its_members_have_and_imports_nothing() {
    let db = Database::new().await;
    let export = stored(&db).await;
    let id = export.conversation.id;
    let missing = db.export_conversation(&group(), id).await;
    assert!(matches!(missing, Err(Error::NotFound)));
    db.join(&group(), &alice()).await;
    assert_eq!(db.export_conversation(&group(), id).await.unwrap(), export);
    let refused = db.import_conversation(&group(), export).await;
    assert!(matches!(refused, Err(Error::NoOwner)));
}
{%- endif %}

#[tokio::test]
async fn a_repeated_import_stores_nothing() {
    let db = Database::new().await;
    let mut export = stored(&db).await;
    let id = export.conversation.id;
    export.conversation.title = Some("Other".into());
    let repeated = db.import_conversation(&alice(), export).await.unwrap();
    assert!(!repeated.created);
    assert_eq!(repeated.conversation.title.as_deref(), Some("Plans"));
    assert_eq!(repeated.conversation, db.get_conversation(&alice(), id).await.unwrap());
}

#[tokio::test]
async fn a_file_is_imported_as_a_whole_or_not_at_all() {
    let db = Database::new().await;
    let export = stored(&db).await;
    let id = export.conversation.id;
    let mut file = Vec::new();
    db.export_conversation_to(&alice(), id, &mut file).await.unwrap();
    let mut written = Vec::new();
    export.write_to(&mut written).unwrap();
    assert_eq!(file, written);
    assert_eq!(Export::read_from(&*file).unwrap(), export);

    db.delete_conversation(&alice(), id).await.unwrap();
    let lines: Vec<_> = file.split_inclusive(|byte| *byte == b'\n').collect();
    for kept in 0..lines.len() {
        let begin = lines[..kept].concat();
        let refused = db.import_conversation_from(&alice(), &*begin).await.unwrap_err();
        let expected = format!("invalid: line {}: ", kept + 1);
        assert!(refused.to_string().starts_with(&expected), "{refused}");
        assert_eq!(refused.status_code(), 422);
        let missing = db.get_conversation(&alice(), id).await;
        assert!(matches!(missing, Err(Error::NotFound)));
    }
    assert!(db.import_conversation_from(&alice(), &*file).await.unwrap().created);
    assert_eq!(db.export_conversation(&alice(), id).await.unwrap(), export);
}
