//! Sessions write only the rows that differ, and give a message one id.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::messages::message;
use crate::sagents::session::Coordinator;
use crate::sagents::stored::SavePoint;
use crate::sagents::{
    AgentPersistence, BeginRun, Claim, Cut, Decided, Decision, Delivery, Expect, Failure, LoadContext, Loaded, Message,
    PersistContext, Point, Revision, Run, RunSignal, RunStatus, SessionPersistence, State, StoredCall, ToolResult,
    ToolStatus,
};

/// A storage that records what it is asked to write.
struct Storage {
    /// The positions of each save.
    saves: Mutex<Vec<Vec<i32>>>,
    /// The ids of the messages that are displayed.
    displayed: Mutex<Vec<Uuid>>,
    /// The ids of the messages in the last save that wrote something.
    message_ids: Mutex<Vec<Uuid>>,
    /// How many saves may begin.
    permits: Semaphore,
}

impl AgentPersistence for Arc<Storage> {
    type Scope = ();
    type Error = Infallible;

    async fn persist_state(
        &self,
        _scope: &(),
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision, Infallible> {
        self.permits.acquire().await.unwrap().forget();
        let PersistContext { conversation_id, write_id, .. } = *context;
        let rows = state.to_rows(conversation_id, expect).unwrap();
        self.message_ids.lock().unwrap().extend(rows.changed.iter().map(|row| row.message_id));
        let mut saves = self.saves.lock().unwrap();
        saves.push(rows.changed.iter().map(|row| row.position).collect());
        let revision = Revision(i64::try_from(saves.len()).unwrap());
        state.remember(&rows, SavePoint { conversation_id, revision, write_id });
        Ok(revision)
    }

    async fn load_state(&self, _scope: &(), _context: &LoadContext) -> Result<Loaded, Infallible> {
        Ok(Loaded::Nothing)
    }

    async fn set_interrupted(&self, (): &(), _: &LoadContext, _: bool) -> Result<(), Infallible> {
        Ok(())
    }
}

impl SessionPersistence for Arc<Storage> {
    type Owner = ();
    type DisplayMessage = ();

    fn owner(&self, _scope: &()) -> Result<(), Infallible> {
        Ok(())
    }

    async fn save_message(
        &self,
        (): &(),
        _: &LoadContext,
        id: Uuid,
        _: &Message,
        _: Delivery,
    ) -> Result<Vec<()>, Infallible> {
        self.displayed.lock().unwrap().push(id);
        Ok(Vec::new())
    }

    async fn unsettled_messages(&self, (): &(), _: &LoadContext) -> Result<Vec<(Uuid, Delivery)>, Infallible> {
        Ok(Vec::new())
    }

    async fn settle_messages(&self, (): &(), _: &LoadContext, _: &[(Uuid, Delivery)]) -> Result<Vec<()>, Infallible> {
        Ok(Vec::new())
    }

    async fn change_tool_call(
        &self,
        (): &(),
        _: &LoadContext,
        _: &str,
        _: ToolStatus,
        _: Map<String, Value>,
    ) -> Result<(), Infallible> {
        Ok(())
    }

    async fn claim_tool_call(&self, (): &(), _: &LoadContext, _: &str, _: Uuid) -> Result<Claim<()>, Infallible> {
        Ok(Claim::Claimed(()))
    }

    async fn decide_tool_call(
        &self,
        (): &(),
        _: &LoadContext,
        _: &str,
        _: &Decision,
        _: Uuid,
    ) -> Result<Decided<()>, Infallible> {
        Ok(Decided::Claimed(()))
    }

    async fn cancel_unstarted_tool_call(
        &self,
        (): &(),
        _: &LoadContext,
        _: &str,
        _: bool,
    ) -> Result<Option<((), bool)>, Infallible> {
        Ok(None)
    }

    async fn seal_tool_call(&self, (): &(), _: &LoadContext, _: &str) -> Result<Option<StoredCall>, Infallible> {
        Ok(None)
    }

    async fn resolve_tool_result(&self, (): &(), _: &LoadContext, _: &ToolResult) -> Result<(), Infallible> {
        Ok(())
    }

    async fn begin_run(
        &self,
        (): &(),
        context: &LoadContext,
        run_id: Uuid,
        holder: &str,
        _: Duration,
    ) -> Result<BeginRun, Infallible> {
        Ok(BeginRun::Started(Run {
            conversation_id: context.conversation_id,
            id: run_id,
            holder: holder.to_owned(),
            status: RunStatus::Running,
            waiting_for: None,
            cancel_requested: false,
            started_at: Utc::now(),
            seen_at: Utc::now(),
            resumed: false,
        }))
    }

    async fn renew_run(&self, (): &(), _: &LoadContext, _: Uuid) -> Result<RunSignal, Infallible> {
        Ok(RunSignal::Go)
    }

    async fn wait_run(&self, (): &(), _: &LoadContext, _: Uuid, _: &Value) -> Result<RunSignal, Infallible> {
        Ok(RunSignal::Go)
    }

    async fn end_run(&self, (): &(), _: &LoadContext, _: Uuid, _: RunStatus) -> Result<(), Infallible> {
        Ok(())
    }

    async fn request_cancel(&self, (): &(), _: &LoadContext) -> Result<bool, Infallible> {
        Ok(false)
    }

    async fn get_run(&self, (): &(), _: &LoadContext) -> Result<Option<Run>, Infallible> {
        Ok(None)
    }

    async fn rewind(&self, (): &(), _: &LoadContext, _: Point) -> Result<Cut, Infallible> {
        Ok(Cut::default())
    }

    async fn delete_conversation(&self, (): &(), _: &LoadContext) -> Result<(), Infallible> {
        Ok(())
    }

    async fn set_title(&self, (): &(), _: &LoadContext, _: &str) -> Result<(), Infallible> {
        Ok(())
    }

    fn failure(error: &Infallible) -> Failure {
        match *error {}
    }

    fn is_missing(error: &Infallible) -> bool {
        match *error {}
    }
}

#[test]
fn a_session_writes_the_rows_that_differ_with_the_ids_that_are_displayed() {
    let storage = Arc::new(Storage {
        saves: Mutex::default(),
        displayed: Mutex::default(),
        message_ids: Mutex::default(),
        permits: Semaphore::new(0),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let added: Vec<_> = runtime.block_on(async {
        let coordinator = Coordinator::new(Arc::clone(&storage));
        let session = coordinator.start(&(), Uuid::now_v7()).await.unwrap();
        let mut added = vec![session.add_message(message(0)).unwrap(), session.add_message(message(1)).unwrap()];
        session.completed().unwrap();
        // The task takes its snapshot, and waits in the save.
        while storage.displayed.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        added.push(session.add_message(message(2)).unwrap());
        session.change(|state| state.messages[0] = message(3)).unwrap();
        storage.permits.add_permits(10);
        session.save().await.unwrap();
        session.change_extensions(|extensions| extensions.insert(42_u8)).unwrap();
        assert!(session.is_saved(), "what belongs to the process is not saved");
        assert_eq!(session.read(|state| state.extensions.get::<u8>().copied()), Some(42));
        session.change(|state| state.put_metadata("key", 1)).unwrap();
        session.shutdown().await.unwrap();
        let ids: Vec<_> = session.read(|state| (0..3).map(|index| state.messages.id(index).unwrap()).collect());
        assert_eq!(ids, added);
        added
    });
    assert_eq!(*storage.saves.lock().unwrap(), [vec![0, 1], vec![0, 2], vec![]]);
    assert_eq!(*storage.displayed.lock().unwrap(), added);
    assert_eq!(*storage.message_ids.lock().unwrap(), [added[0], added[1], added[0], added[2]]);
}
