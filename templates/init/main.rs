//! Shows the layer at work: `cargo run` opens a database, migrates it, and holds a short
//! conversation, in which a tool needs a person's approval.

{% if let Some(import) = scope_import -%}
use {{ import }};
{% endif -%}
use {{ module }}::{{ '{' }}{{ context }}, ListConversations, MessagePage, NewConversation, connect};
use {{ runtime }}::session::Coordinator;
use {{ runtime }}::{Claim, Decision, Message, ToolCall, ToolResult};
use serde_json::json;
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = {{ opening.url }};
    let pool = connect(&url).await?;
    sqlx::migrate!({{ opening.migrations }}).run(&pool).await?;
    println!("{{ opening.opened }}");
{%- if let Some(group) = group %}

    // Somebody who is in the {{ group.noun }}.
    sqlx::query(r#"{{ group.join }}"#)
        .bind({{ group.owner_id }})
        .bind({{ group.group_id }})
        .execute(&pool)
        .await?;
{%- endif %}

    let conversations = {{ context }}::new(pool);
    let scope = {{ scope }};
    let new = NewConversation::new().title("A first conversation");
    let conversation = conversations.create_conversation(&scope, new).await?;
    println!("created conversation {}", conversation.id);

    // A session stores what happens in a turn of the agent. Here a script plays the model.
    let coordinator = Coordinator::new(conversations.clone());
    let session = coordinator.start(&scope, conversation.id).await?;
    session.send(Uuid::now_v7(), Message::user("Send a postcard to Paris.")).await?;
    let call = ToolCall::new("call_1", "postcard", json!({ "to": "Paris" }));
    session.add_message(Message::tool_calls([call]))?;

    // The tool waits for a person, and the application may be restarted before the decision. Of all
    // callers, one gets `Claimed` and runs the tool.
    session.tool_interrupted("call_1", json!({ "question": "Send it?" }))?;
    session.interrupted(json!({ "call_id": "call_1" }))?;
    session.decide("call_1", Decision::Approve).await?;
    if let Claim::Claimed(call) = session.claim_call("call_1").await? {
        println!("approved: {}", call.content);
        session.resumed()?;
        session.tool_result(ToolResult::new("call_1", "postcard", "sent"))?;
    }
    session.add_message(Message::assistant("It is on its way."))?;
    session.completed()?;
    session.shutdown().await?;

    let messages = conversations
        .load_display_messages(&scope, conversation.id, MessagePage::first())
        .await?;
    for message in messages.items {
        println!("  {} {:?}: {}", message.sequence, message.role, message.content);
    }

    let recent = conversations.list_conversations(&scope, ListConversations::default()).await?;
    println!("the newest conversations ({} shown):", recent.items.len());
    for conversation in recent.items {
        let title = conversation.title.as_deref().unwrap_or("untitled");
        println!("  {} {} {title}", conversation.updated_at.format("%F %T"), conversation.id);
    }
{%- if let Some(group) = group %}

    // The {{ group.noun }} reads what its members have, and changes nothing.
    let group = {{ group.scope }};
    let shared = conversations.list_conversations(&group, ListConversations::default()).await?;
    println!("its {{ group.noun }} reads {} of them", shared.items.len());
    let refused = conversations.delete_conversation(&group, conversation.id).await;
    println!("and deletes none: {}", refused.is_err());
{%- endif %}
    Ok(())
}
