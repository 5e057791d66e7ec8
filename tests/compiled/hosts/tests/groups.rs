//! A member of a group who imports a file with the id of another member's conversation.

use crate::database::Database;

use matrix::devices::{
    ChangeCursor, Conversation, Devices, Error, ListConversations, MessagePage, NewConversation,
    NewDisplayMessage, Owner, OwnerScope, Reach, Role, SearchPage, connect,
};
use matrix::scopes::DeviceScope;
use uuid::Uuid;

const INSERT: &str = "
    INSERT INTO devices (id) VALUES
        ('00000000-0000-0000-0000-000000000001'), ('00000000-0000-0000-0000-000000000002'),
        ('00000000-0000-0000-0000-000000000003');
    INSERT INTO club_devices (club, device) VALUES
        ('ours', '00000000-0000-0000-0000-000000000001'), ('ours', '00000000-0000-0000-0000-000000000002'),
        ('others', '00000000-0000-0000-0000-000000000003')";

/// Both are in the same club; a third one is not.
const VICTIM: u128 = 1;
const FORGER: u128 = 2;
const OUTSIDER: u128 = 3;

fn device(id: u128) -> DeviceScope {
    DeviceScope {
        device_id: Some(Uuid::from_u128(id)),
        club: Some("ours".to_owned()),
    }
}

fn club() -> DeviceScope {
    DeviceScope {
        device_id: None,
        club: Some("ours".to_owned()),
    }
}

/// The club, which names one device.
fn club_about(id: u128) -> Reach {
    club().member(Owner::new(Uuid::from_u128(id))).unwrap()
}

/// A conversation with a message, imported with this id and as one of 1999.
async fn forge(layer: &Devices, forger: &DeviceScope, id: Uuid) -> Conversation {
    let new = NewConversation::new().title("forged");
    let own = layer.create_conversation(forger, new).await.unwrap().id;
    let message = NewDisplayMessage::text(Role::User, "forged");
    let message = layer.append_display_message(forger, own, message).await;
    message.unwrap();
    let mut file = Vec::new();
    let export = layer.export_conversation_to(forger, own, &mut file);
    export.await.unwrap();
    let file = String::from_utf8(file)
        .unwrap()
        .replace(&own.to_string(), &id.to_string());
    let time = file.find("\"inserted_at\":\"").unwrap() + "\"inserted_at\":\"".len();
    let file = format!("{}1999{}", &file[..time], &file[time + 4..]);
    layer.delete_conversation(forger, own).await.unwrap();
    let imported = layer.import_conversation_from(forger, file.as_bytes());
    let imported = imported.await.unwrap();
    assert!(imported.created);
    imported.conversation
}

#[tokio::test]
async fn a_forged_conversation_is_never_read_in_the_place_of_the_real_one() {
    let database = Database::migrated(INSERT).await;
    let layer = Devices::new(connect(&database.url()).await.unwrap());
    let victim = device(VICTIM);
    let new = NewConversation::new().title("real");
    let real = layer.create_conversation(&victim, new).await.unwrap();
    let id = real.id;
    let message = NewDisplayMessage::text(Role::User, "real");
    let message = layer.append_display_message(&victim, id, message).await;
    let message = message.unwrap();
    let real = layer.get_conversation(&victim, id).await.unwrap();
    // Somebody else's club has nothing to do with it.
    forge(&layer, &device(OUTSIDER), id).await;
    assert_eq!(layer.get_conversation(&club(), id).await.unwrap(), real);
    let mut watch = layer.watch(&club(), id, ChangeCursor::START).unwrap();
    let seen = watch.next().await.unwrap();
    assert_eq!(seen.items, std::slice::from_ref(&message));

    let forged = forge(&layer, &device(FORGER), id).await;
    assert!(forged.inserted_at < real.inserted_at);
    macro_rules! assert_several {
        ($call:expr) => {
            let answer = $call.await;
            assert!(matches!(answer, Err(Error::SeveralOwners)), "{answer:?}");
        };
    }
    let (page, start) = (MessagePage::first(), ChangeCursor::START);
    assert_several!(layer.get_conversation(&club(), id));
    assert_several!(layer.load_display_messages(&club(), id, page));
    assert_several!(layer.changes(&club(), id, start, 10));
    assert_several!(watch.next());
    assert_several!(layer.get_tool_call(&club(), id, "call_1"));
    assert_several!(layer.get_run(&club(), id));
    assert_several!(layer.usage(&club(), id));
    assert_several!(layer.load_agent_state(&club(), id));
    assert_several!(layer.load_todos(&club(), id));
    assert_several!(layer.list_unreadable(&club(), id));
    assert_several!(layer.load_unreadable(&club(), id, 0));
    assert_several!(layer.export_conversation(&club(), id));
    let mut file = Vec::new();
    assert_several!(layer.export_conversation_to(&club(), id, &mut file));
    assert_eq!(file, b"");

    // Rows say whose they are, and the club may name one of the two.
    let list = ListConversations::new();
    let listed = layer.list_conversations(&club(), list).await.unwrap();
    assert_eq!(listed.items.len(), 2);
    for (owner, expected) in [(VICTIM, &real), (FORGER, &forged)] {
        let (club, device) = (club_about(owner), device(owner));
        assert_eq!(layer.get_conversation(&club, id).await.unwrap(), *expected);
        let listed = layer.list_conversations(&club, list).await.unwrap();
        assert_eq!(listed.items, std::slice::from_ref(expected));
        let messages = layer.load_display_messages(&club, id, page).await.unwrap();
        let own = layer
            .load_display_messages(&device, id, page)
            .await
            .unwrap();
        assert_eq!(messages, own);
        assert_eq!(messages.items.len(), 1);
        let found = layer.search_messages(&club, "", SearchPage::first()).await;
        assert_eq!(found.unwrap(), own);
    }
    let mut watch = layer.watch(&club_about(VICTIM), id, start).unwrap();
    assert_eq!(watch.next().await.unwrap().items, [message]);

    // Naming somebody reaches nobody else.
    let outsider = Owner::new(Uuid::from_u128(OUTSIDER));
    let named = layer.get_conversation(&club_about(OUTSIDER), id).await;
    assert!(matches!(named, Err(Error::NotFound)), "{named:?}");
    for caller in [&victim as &dyn OwnerScope, &club_about(VICTIM)] {
        let named = caller.member(outsider.clone());
        assert!(matches!(named, Err(Error::NotFound)), "{named:?}");
    }
}
