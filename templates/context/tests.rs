//! Tests that prove this application's tables, its scope and one round trip. The library tests the
//! rest.

use sagents::testing::{self, TestDatabase};
use sagents::{
    ConversationOrder, Error, Expect, {% if group.is_some() %}Key, {% endif %}ListConversations, Message, MessagePage, NewDisplayMessage, Owner,
    OwnerScope, {% if group.is_some() %}Reach, {% endif %}Result, Revision, Role, State,
};
use uuid::Uuid;

use super::{ConversationChanges, {{ context }}, NewConversation, TABLES};
{%- if let Some(import) = scope_import %}
use {{ import }};
{%- endif %}

fn alice() -> Owner {
    {{ alice }}
}
{%- if has_owner %}

fn bob() -> Owner {
    {{ bob }}
}
{%- endif %}

/// The context on a new database with this application's tables. The database lives as long as the
/// first value.
async fn open() -> Result<(TestDatabase, {{ context }})> {
{%- if sqlite %}
    let database = TestDatabase::sqlite()?;
{%- else %}
    let database = TestDatabase::postgres().await?;
{%- endif %}
{%- match migrations %}
{%- when Some(directory) %}
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/{{ directory }}");
    database.run_migrations(migrations).await?;
{%- when None %}
{%- endmatch %}
    let pool = sagents::{{ database }}::connect(database.url()).await?;
    let conversations = {{ context }}::new(pool);
{%- if migrations.is_none() %}
    testing::create_tables(conversations.store()).await?;
{%- endif %}
{%- if has_owner %}
    for owner in [alice(), bob()] {
        testing::create_owner(conversations.store(), &owner).await?;
    }
{%- endif %}
    Ok((database, conversations))
}

#[tokio::test]
async fn the_tables_fit_the_library_and_the_models() -> Result<()> {
    let (_database, conversations) = open().await?;
    testing::check_tables(conversations.store()).await?;
    assert_eq!(*conversations.store().tables(), TABLES);
    Ok(())
}

#[test]
fn the_scope_has_an_owner() {
    fn is_owner_scope<T: OwnerScope>() {}
    is_owner_scope::<{{ scope_name }}>();
}

#[tokio::test]
async fn a_conversation_is_created_once_changed_and_deleted() -> Result<()> {
    let (_database, conversations) = open().await?;
    let mut new = NewConversation {
        title: Some("First".to_owned()),
        ..NewConversation::default()
    };
    let created = conversations.create_conversation(&alice(), new.clone()).await?;
    new.title = Some("Second".to_owned());
    let repeated = conversations.create_conversation(&alice(), new).await?;
    assert_eq!(repeated, created);
    let id = created.id;
    assert_eq!(conversations.get_conversation(&alice(), id).await?, created);

    let changes = ConversationChanges {
        title: Some(None),
        archived: Some(true),
        ..ConversationChanges::default()
    };
    let updated = conversations.update_conversation(&alice(), id, changes).await?;
    assert_eq!(updated.title, None);
    assert!(updated.archived_at.is_some());

    conversations.delete_conversation(&alice(), id).await?;
    let deleted = conversations.get_conversation(&alice(), id).await;
    assert!(matches!(deleted, Err(Error::NotFound)));
    Ok(())
}
{%- if has_owner %}

#[tokio::test]
async fn another_owner_finds_nothing() -> Result<()> {
    let (_database, conversations) = open().await?;
    let new = NewConversation::default();
    let id = conversations.create_conversation(&alice(), new).await?.id;
    let hello = NewDisplayMessage::text(Role::User, "Hello");
    let message = conversations.append_display_message(&alice(), id, hello.clone()).await?;
    assert_eq!(message.conversation_id, id);

    let refused = [
        conversations.get_conversation(&bob(), id).await.err(),
        conversations.update_conversation(&bob(), id, ConversationChanges::default()).await.err(),
        conversations.delete_conversation(&bob(), id).await.err(),
        conversations.get_agent_state(&bob(), id).await.err(),
        conversations.save_agent_state(&bob(), id, &State::new(), Expect::Any).await.err(),
        conversations.append_display_message(&bob(), id, hello).await.err(),
        conversations.load_display_messages(&bob(), id, MessagePage::first()).await.err(),
        conversations.clear_display_messages(&bob(), id).await.err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::NotFound)), "{error:?}");
    }
    let list = conversations.list_conversations(&bob(), ListConversations::new()).await?;
    assert!(list.items.is_empty());
    Ok(())
}
{%- endif %}

#[tokio::test]
async fn lists_have_pages() -> Result<()> {
    let (_database, conversations) = open().await?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let new = NewConversation::default();
        ids.push(conversations.create_conversation(&alice(), new).await?.id);
    }
    ids.reverse();
    for order in [ConversationOrder::Updated, ConversationOrder::Created] {
        let first = ListConversations::new().order_by(order).limit(2);
        let page = conversations.list_conversations(&alice(), first).await?;
        let rest = ListConversations { after: page.next, ..first };
        let rest = conversations.list_conversations(&alice(), rest).await?;
        let listed: Vec<_> = page.items.iter().chain(&rest.items).map(|row| row.id).collect();
        assert_eq!(listed, ids);

        let archived = first.archived(true);
        let page = conversations.list_conversations(&alice(), archived).await?;
        assert!(page.items.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn a_stale_writer_of_the_agent_state_gets_a_conflict() -> Result<()> {
    let (_database, conversations) = open().await?;
    let new = NewConversation::default();
    let id = conversations.create_conversation(&alice(), new).await?.id;
    let mut state = State::new();
    state.add_message(Message::user("Hello"));
    let saved = conversations.save_agent_state(&alice(), id, &state, Expect::NOTHING).await?;
    let refused = conversations.save_agent_state(&alice(), id, &state, Expect::NOTHING).await;
    assert!(matches!(refused, Err(Error::Conflict { current }) if current == saved));

    let loaded = conversations.load_agent_state(&alice(), id).await?;
    assert_eq!(loaded.state.messages.len(), 1);
    let header = conversations.get_agent_state(&alice(), id).await?;
    assert_eq!((header.conversation_id, header.revision), (id, Revision(1)));
    Ok(())
}

#[tokio::test]
async fn display_messages_are_stored_once_in_order() -> Result<()> {
    let (_database, conversations) = open().await?;
    let new = NewConversation::default();
    let id = conversations.create_conversation(&alice(), new).await?.id;
    let hello = NewDisplayMessage::text(Role::User, "Hello");
    let first = conversations.append_display_message(&alice(), id, hello.clone()).await?;
    let repeated = conversations.append_display_message(&alice(), id, hello).await?;
    assert_eq!(repeated, first);
    let answer = Message::assistant("Hello, Alice");
    let shown = conversations.save_message(&alice(), id, Uuid::now_v7(), &answer).await?;

    let page = conversations.load_display_messages(&alice(), id, MessagePage::first()).await?;
    assert_eq!(page.items, [vec![first], shown].concat());
    assert_eq!(conversations.clear_display_messages(&alice(), id).await?, 2);
    Ok(())
}
{%- if let Some(group) = group %}

#[tokio::test]
async fn a_group_reads_its_members_conversations_and_writes_nothing() -> Result<()> {
    let (_database, conversations) = open().await?;
    let group = Reach::Group(Key::from({{ group }}));
    testing::join_group(conversations.store(), &alice(), {{ group }}).await?;
    let new = NewConversation::default();
    let theirs = conversations.create_conversation(&alice(), new).await?;
    let new = NewConversation::default();
    let other = conversations.create_conversation(&bob(), new).await?;

    let found = conversations.get_conversation(&group, theirs.id).await?;
    assert_eq!(found, theirs);
    let hidden = conversations.get_conversation(&group, other.id).await;
    assert!(matches!(hidden, Err(Error::NotFound)));
    for order in [ConversationOrder::Updated, ConversationOrder::Created] {
        let list = ListConversations::new().order_by(order);
        for (list, count) in [(list, 1), (list.archived(true), 0)] {
            let page = conversations.list_conversations(&group, list).await?;
            assert_eq!(page.items, [theirs.clone()][..count]);
        }
    }
    let refused = conversations.delete_conversation(&group, theirs.id).await;
    assert!(matches!(refused, Err(Error::NoOwner)));
    Ok(())
}
{%- endif %}