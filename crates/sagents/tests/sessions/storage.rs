//! A conversation on a real database, with faults in the calls of its sessions.

use std::sync::Arc;

use sagents::session::{AgentSession, Coordinator, Faults, SessionOptions};
pub use sagents::session::{Fault, frozen};
use sagents::sqlx;
use sagents::{Error, Expect, Message, MessagePage, Owner, Revision, State};
use uuid::Uuid;

use crate::support::context::{Conversations, NewConversation};
use crate::support::pool::Pool;
use crate::support::{Kind, TABLES, TestDatabase};

pub fn said(state: &State) -> Vec<String> {
    let contents = state.messages.iter().map(|message| message.content.as_ref());
    contents.map(|content| content.map(sagents::Content::text).unwrap_or_default()).collect()
}

pub fn scope() -> Owner {
    user(1)
}

pub fn user(id: i64) -> Owner {
    Owner::new("user", id)
}

pub fn say(session: &AgentSession, text: &str) {
    let message = Message::user(text);
    session.change(|state| state.add_message(message)).unwrap();
}

/// Adds a message, and returns its id.
pub fn add(session: &AgentSession, message: Message) -> Uuid {
    let id = Uuid::now_v7();
    session.add_message(id, message).unwrap();
    id
}

/// With its tables.
pub async fn new_database(kind: Kind) -> Arc<TestDatabase> {
    let database = Arc::new(TestDatabase::new(kind));
    let store = database.connect(&TABLES).await;
    sagents::testing::create_tables(&store).await.unwrap();
    database
}

/// A conversation as one process sees it.
pub struct Talk {
    pub coordinator: Coordinator,
    pub layer: Conversations,
    pub record: Arc<Faults>,
    pub id: Uuid,
    pub database: Arc<TestDatabase>,
    options: SessionOptions,
    pool: Pool,
}

impl Talk {
    /// A new conversation on a new database.
    pub async fn new(kind: Kind, options: SessionOptions) -> Self {
        Self::on(frozen(new_database(kind)).await, options).await
    }

    /// A new conversation on a database that has its tables.
    pub async fn on(database: Arc<TestDatabase>, options: SessionOptions) -> Self {
        frozen(async {
            let pool = database.pool().await;
            let layer = pool.store(&TABLES);
            let id = layer.create_conversation(&scope(), NewConversation::new()).await.unwrap().id;
            let record = Arc::new(Faults::default());
            let coordinator = Coordinator::with_faults(&layer, options.clone(), Arc::clone(&record));
            Self { coordinator, layer, record, id, database, options, pool }
        })
        .await
    }

    /// The conversation in a process that continues after this one.
    pub async fn reconnected(&self) -> Self {
        let pool = frozen(self.database.pool()).await;
        let layer = pool.store(&TABLES);
        Self {
            coordinator: Coordinator::with_faults(&layer, self.options.clone(), Arc::clone(&self.record)),
            layer,
            record: Arc::clone(&self.record),
            id: self.id,
            database: Arc::clone(&self.database),
            options: self.options.clone(),
            pool,
        }
    }

    /// Another process that runs at the same time, on the same pool.
    pub fn other_process(&self) -> Coordinator {
        Coordinator::with_faults(&self.layer, self.options.clone(), Arc::clone(&self.record))
    }

    pub async fn start(&self) -> AgentSession {
        self.coordinator.start(&scope(), self.id).await.unwrap()
    }

    /// The session of another conversation.
    pub async fn start_another(&self) -> AgentSession {
        let created = frozen(self.layer.create_conversation(&scope(), NewConversation::new())).await;
        self.coordinator.start(&scope(), created.unwrap().id).await.unwrap()
    }

    /// The texts of the stored state, and its revision.
    pub async fn stored(&self) -> (Vec<String>, Revision) {
        match frozen(self.layer.load_agent_state(&scope(), self.id)).await {
            Ok(saved) => (said(&saved.state), saved.revision),
            Err(Error::NotFound) => (Vec::new(), Revision(0)),
            Err(error) => panic!("{error}"),
        }
    }

    /// The display messages.
    pub async fn shown(&self) -> Vec<String> {
        let (scope, page) = (scope(), MessagePage::first().limit(MessagePage::MAX_LIMIT));
        let messages = frozen(self.layer.load_display_messages(&scope, self.id, page)).await.unwrap().items;
        messages.into_iter().map(|message| message.content).collect()
    }

    /// Overwrites the data of the stored state.
    pub async fn store(&self, data: &str) {
        self.execute(&format!("UPDATE sagents_agent_states SET data = '{data}'")).await;
    }

    pub async fn execute(&self, sql: &str) {
        let _ = frozen(self.pool.execute(sql)).await;
    }

    pub async fn try_execute(&self, sql: &'static str) -> sqlx::Result<()> {
        match &self.pool {
            Pool::Sqlite(pool) => sqlx::query(sql).execute(pool).await.map(drop),
            Pool::Postgres(pool) => sqlx::query(sql).execute(pool).await.map(drop),
        }
    }

    /// The application closes its pool.
    pub async fn close(&self) {
        frozen(self.pool.close()).await;
    }

    /// Another process adds a message and saves.
    pub async fn other_process_says(&self, text: &str) -> Revision {
        frozen(async {
            let scope = scope();
            loop {
                let loaded = self.layer.load_agent_state(&scope, self.id).await;
                let (mut state, expect) = match loaded {
                    Ok(saved) => (saved.state, Expect::Revision(saved.revision)),
                    Err(_) => (State::new(), Expect::NOTHING),
                };
                state.add_message(Message::user(text));
                match self.layer.save_agent_state(&scope, self.id, &state, expect).await {
                    Err(Error::Conflict { .. }) => {}
                    saved => return saved.unwrap(),
                }
            }
        })
        .await
    }
}
