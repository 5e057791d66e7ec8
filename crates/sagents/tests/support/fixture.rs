//! A store with its pool and its owners.

use std::ops::Deref;

use sagents::{DisplayMessage, Group, Key, KeyKind, MessagePage, Owner, OwnerColumn, Store, Tables, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::TestDatabase;
use super::context::{Conversations, NewConversation};
use super::pool::Pool;

/// The group that alice and bob are members of.
pub const GROUP: i64 = 7;

/// Tables with each kind of key; they fit into one database.
pub const KINDS: [Tables; 4] = [
    Tables::new(1, "sagents_", OwnerColumn::integer("user_id")),
    Tables::new(1, "teams_", OwnerColumn::uuid("team_id")),
    Tables::new(1, "accounts_", OwnerColumn::text("account")),
    Tables::new(1, "nobodys_", OwnerColumn::none()),
];

/// Dereferences to its store.
#[derive(Clone)]
pub struct Fixture {
    pub pool: Pool,
    pub tables: Tables,
    /// The same owner as alice where nobody owns anything.
    pub alice: Owner,
    pub bob: Owner,
    store: Conversations,
}

impl Deref for Fixture {
    type Target = Conversations;

    fn deref(&self) -> &Conversations {
        &self.store
    }
}

impl Fixture {
    /// Creates the tables.
    pub async fn new(database: &TestDatabase, tables: Tables) -> Self {
        let pool = database.pool().await;
        let store = pool.store(&tables);
        sagents::testing::create_tables(&store).await.unwrap();
        let (alice, bob) = (owner(&tables, 1), owner(&tables, 2));
        Self { pool, tables, alice, bob, store }
    }

    /// Tables of integers with a group, whose members are the first of the owners.
    pub async fn with_group(database: &TestDatabase, tables: Tables, members: u8) -> Self {
        let group = Group { table: "memberships", group: "org_id", kind: KeyKind::Integer, member: "user_id" };
        database
            .execute("CREATE TABLE memberships (org_id BIGINT, user_id BIGINT, PRIMARY KEY (org_id, user_id))")
            .await;
        for member in 1..=members {
            database.execute(&format!("INSERT INTO memberships VALUES ({GROUP}, {member})")).await;
        }
        Self::new(database, tables.group(group)).await
    }

    pub fn store(&self) -> Store {
        (*self.store).clone()
    }

    pub fn owner(&self, number: u8) -> Owner {
        owner(&self.tables, number)
    }

    pub fn has_owners(&self) -> bool {
        self.alice != self.bob
    }

    /// A new conversation of alice's.
    pub async fn conversation(&self) -> Uuid {
        self.conversation_of(&self.alice).await
    }

    pub async fn conversation_of(&self, owner: &Owner) -> Uuid {
        self.create_conversation(owner, NewConversation::new()).await.unwrap().id
    }

    /// A table's name.
    pub fn table(&self, name: &str) -> String {
        format!("{}{name}", self.tables.prefix())
    }

    /// A number in the row of a conversation.
    pub async fn counter(&self, id: Uuid, column: &str) -> i64 {
        let (table, id) = (self.table("conversations"), self.pool.uuid(id));
        self.pool.number(format!("SELECT {column} FROM {table} WHERE id = {id}")).await
    }

    /// When alice's conversation was updated.
    pub async fn updated(&self, id: Uuid) -> Timestamp {
        self.get_conversation(&self.alice, id).await.unwrap().updated_at
    }

    /// The display messages of alice's conversation.
    pub async fn shown(&self, id: Uuid) -> Vec<DisplayMessage> {
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        self.load_display_messages(&self.alice, id, page).await.unwrap().items
    }
}

/// The owner with a number, as these tables have it.
pub fn owner(tables: &Tables, number: u8) -> Owner {
    let key = match tables.prefix() {
        "teams_" => Key::Uuid(Uuid::from_bytes([number; 16])),
        "accounts_" => Key::Text(format!("account {number}")),
        "nobodys_" => return Owner::none(),
        _ => Key::Integer(number.into()),
    };
    Owner::new("user", key)
}

pub fn sequences(messages: &[DisplayMessage]) -> Vec<i64> {
    messages.iter().map(|message| message.sequence).collect()
}

pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} isn't an object"),
    }
}

/// Awaits a call that must fail with [`Error::NotFound`](sagents::Error::NotFound).
#[macro_export]
macro_rules! assert_not_found {
    ($call:expr) => {
        match $call.await {
            Err(sagents::Error::NotFound) => {}
            other => panic!("{}: {other:?}", stringify!($call)),
        }
    };
}

/// Awaits a call that must fail with [`Error::Invalid`](sagents::Error::Invalid).
#[macro_export]
macro_rules! assert_invalid {
    ($call:expr) => {
        match $call.await {
            Err(sagents::Error::Invalid(_)) => {}
            other => panic!("{}: {other:?}", stringify!($call)),
        }
    };
}
