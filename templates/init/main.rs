//! `cargo run` opens a database, migrates it, and holds a short conversation in which a tool needs
//! a person's approval.

use sagents::session::Coordinator;
use sagents::{Claim, Decision, ListConversations, Message, MessagePage, ToolCall, ToolResult};
use serde_json::json;
use uuid::Uuid;

{% if let Some(import) = scope_import -%}
use {{ import }};
{% endif -%}
use {{ module }}::{ {{ context }}, NewConversation };

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = {{ opening.url }};
    let pool = sagents::{{ opening.database }}::connect(&url).await?;
    sqlx::migrate!({{ opening.migrations }}).run(&pool).await?;
    println!("{{ opening.opened }}");
{%- if let Some(group) = group %}

    // Make the {{ group.owner }} a member of the {{ group.noun }}.
    sqlx::query({{ group.join }})
        .bind({{ group.owner_id }})
        .bind({{ group.group_id }})
        .execute(&pool)
        .await?;
{%- endif %}

    let conversations = {{ context }}::new(pool);
    let scope = {{ scope }};
    let title = Some("A first conversation".to_owned());
    let new = NewConversation { title, ..NewConversation::default() };
    let id = conversations.create_conversation(&scope, new).await?.id;
    println!("created conversation {id}");

    // A session stores a turn of the agent. Here, a script plays the model.
    let coordinator = Coordinator::new(conversations.store());
    let session = coordinator.start(&scope, id).await?;
    let message = Message::user("Send a postcard to Paris.");
    session.send_message(Uuid::now_v7(), message).await?;
    let call = ToolCall::new("call_1", "postcard", json!({ "to": "Paris" }));
    session.add_message(Uuid::now_v7(), Message::tool_calls([call]))?;

    // The tool waits for a person, and the application may restart before the decision. Only one
    // caller gets `Claimed` and runs the tool.
    session.interrupt_tool_call("call_1", json!({ "question": "Send it?" }))?;
    session.wait_run(json!({ "tool_call_id": "call_1" }))?;
    session.decide_tool_call("call_1", Decision::Approve).await?;
    if let Claim::Claimed(call) = session.claim_tool_call("call_1").await? {
        println!("approved: {}", call.content);
        session.continue_run()?;
        session.add_tool_result(ToolResult::new("call_1", "postcard", "sent"))?;
    }
    session.add_message(Uuid::now_v7(), Message::assistant("It's on its way."))?;
    session.complete_run()?;
    session.shutdown().await?;

    let page = MessagePage::first();
    let messages = conversations.load_display_messages(&scope, id, page);
    for message in messages.await?.items {
        println!("  {} {:?}: {}", message.sequence, message.role, message.content);
    }

    let list = ListConversations::new();
    let recent = conversations.list_conversations(&scope, list).await?;
    println!("the newest conversations ({} shown):", recent.items.len());
    for conversation in recent.items {
        println!("  {} {}", conversation.id, conversation.title.unwrap_or_default());
    }
{%- if let Some(group) = group %}

    // The {{ group.noun }} reads its members' conversations, and can't change them.
    let group = {{ group.scope }};
    let shared = conversations.list_conversations(&group, list).await?;
    println!("the {{ group.noun }} reads {} of them", shared.items.len());
    let refused = conversations.delete_conversation(&group, id).await;
    println!("and deletes none: {}", refused.is_err());
{%- endif %}
    Ok(())
}
