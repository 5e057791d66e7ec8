//! Shows the layer at work: `cargo run` opens a database, migrates it, and holds a short
//! conversation.

{% if let Some(import) = scope_import -%}
use {{ import }};
{% endif -%}
use {{ module }}::{
    {{ context }}, ListConversations, MessagePage, NewConversation, NewDisplayMessage, Role, connect,
};
{%- if uses_uuid %}
use uuid::Uuid;
{%- endif %}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = {{ url }};
    let pool = connect(&url).await?;
    sqlx::migrate!({{ migrations }}).run(&pool).await?;
    println!("{{ opened }}");
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

    for (role, text) in [
        (Role::User, "What is the capital of France?"),
        (Role::Assistant, "Paris."),
    ] {
        let message = NewDisplayMessage::text(role, text);
        conversations.append_display_message(&scope, conversation.id, message).await?;
    }
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
