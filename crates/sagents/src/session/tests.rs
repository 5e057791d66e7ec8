//! A save writes only the rows that differ, and a message has one id.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{Coordinator, SessionOptions};
use crate::messages::tests::message;
use crate::stored::SavePoint;
use crate::{AgentPersistence, Error, Expect, LoadContext, Loaded, Owner, PersistContext, Result, Revision, State};

/// Records what it's asked to write.
struct Recorder {
    /// The positions of each save.
    saves: Mutex<Vec<Vec<i32>>>,
    /// The ids of the messages that were written.
    message_ids: Mutex<Vec<Uuid>>,
    /// How many saves have begun, and may begin.
    began: Semaphore,
    permits: Semaphore,
}

impl AgentPersistence for Arc<Recorder> {
    type Scope = Owner;
    type Error = Error;

    async fn persist_state(
        &self,
        _: &Owner,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision> {
        self.began.add_permits(1);
        self.permits.acquire().await.unwrap().forget();
        let PersistContext { conversation_id, write_id, .. } = *context;
        let rows = state.to_rows(conversation_id, expect)?;
        self.message_ids.lock().unwrap().extend(rows.changed.iter().map(|row| row.message_id));
        let mut saves = self.saves.lock().unwrap();
        saves.push(rows.changed.iter().map(|row| row.position).collect());
        let revision = Revision(i64::try_from(saves.len()).unwrap());
        state.remember(&rows, SavePoint { conversation_id, revision, write_id });
        Ok(revision)
    }

    async fn load_state(&self, _: &Owner, _: &LoadContext) -> Result<Loaded> {
        Ok(Loaded::Nothing)
    }

    async fn set_interrupted(&self, _: &Owner, _: &LoadContext, _: bool) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_session_writes_the_rows_that_differ() {
    let recorder = Arc::new(Recorder {
        saves: Mutex::default(),
        message_ids: Mutex::default(),
        began: Semaphore::new(0),
        permits: Semaphore::new(0),
    });
    let coordinator = Coordinator::with_persistence(Arc::clone(&recorder), SessionOptions::default());
    let session = coordinator.start(&Owner::none(), Uuid::now_v7()).await.unwrap();
    let added = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
    let add = |index: u8| {
        let id = added[usize::from(index)];
        session.change(|state| state.messages.push_with_id(id, message(index))).unwrap();
    };
    add(0);
    add(1);
    session.complete_run().unwrap();
    // The task takes its snapshot, and waits in the save.
    recorder.began.acquire().await.unwrap().forget();
    add(2);
    session.change(|state| state.messages[0] = message(3)).unwrap();
    recorder.permits.add_permits(10);
    session.save().await.unwrap();
    session.change_extensions(|extensions| extensions.insert(42_u8)).unwrap();
    assert!(session.is_saved(), "values of the process aren't saved");
    assert_eq!(session.read(|state| state.extensions.get::<u8>().copied()), Some(42));
    session.change(|state| state.put_metadata("key", 1)).unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(*recorder.saves.lock().unwrap(), [vec![0, 1], vec![0, 2], vec![]]);
    assert_eq!(*recorder.message_ids.lock().unwrap(), [added[0], added[1], added[0], added[2]]);
}
