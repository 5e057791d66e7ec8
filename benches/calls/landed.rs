//! Saving states with what the first version generated, which kept a state with its messages in one column. Its tables are
//! in a database of their own.

use landed::conversations::{Conversations, NewConversation};
use landed::sagents::{Expect, Message, Revision, State};
use uuid::Uuid;

use crate::database::{LANDED_SCOPE, Place, settle};
use crate::{metadata, text};

pub struct Landed(Conversations);

/// A conversation with the state to save in it next.
pub struct Saved {
    id: Uuid,
    state: State,
    revision: i64,
}

impl Landed {
    /// As large as the database that it is beside.
    pub async fn new(place: &Place, conversations: usize) -> Self {
        let pool = place.landed().await;
        let landed = Self(Conversations::new(pool.clone()));
        for _ in 0..conversations {
            landed.conversation(0).await;
        }
        settle(&pool).await;
        landed
    }

    pub async fn conversation(&self, messages: usize) -> Saved {
        let new = NewConversation::new().title("A conversation").metadata(metadata());
        let id = self.0.create_conversation(&LANDED_SCOPE, new).await.unwrap().id;
        let mut saved = Saved { id, state: State::new(), revision: 0 };
        saved.add(messages);
        saved
    }

    pub async fn save(&self, saved: &mut Saved) {
        let expect = Expect::Revision(Revision(saved.revision));
        let revision = self.0.save_agent_state(&LANDED_SCOPE, saved.id, &saved.state, expect).await;
        saved.revision = revision.unwrap().0;
    }
}

impl Saved {
    pub fn add(&mut self, messages: usize) {
        self.state.add_messages((0..messages).map(|n| match n % 2 {
            0 => Message::user(text(n)),
            _ => Message::assistant(text(n)),
        }));
    }
}
