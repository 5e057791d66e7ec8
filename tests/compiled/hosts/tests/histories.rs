//! Whatever happens to a session, the stored state is the newest one that was acknowledged: any history of changes,
//! failures, other writers, crashes and restarts, against a model. Time is tokio's, paused.

mod database;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use database::Database;
use matrix::conversations::{Conversations, connect};
use matrix::sagents::Revision;
use matrix::sagents::session::{
    AgentSession, Coordinator, OnConflict, SessionError, SessionOptions,
};
use matrix::sagents::{Expect, Message};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use storage::{Fault, Storage, Talk, said, say};

/// What happens to a session.
#[derive(Debug, Clone)]
enum Happening {
    /// Something is said; with a number that is never used again.
    Said,
    SaidAloud,
    Completed,
    Interrupted,
    Titled,
    /// The application asks for a save and waits for it.
    Saved,
    Reloaded,
    /// Both at once.
    Raced,
    /// Time passes.
    Passed(Duration),
    /// Others get their turn, and no time passes.
    Yielded(usize),
    /// The next calls to the database fail.
    Failing(Vec<Option<Fault>>),
    /// Another process saves the state.
    Overtaken,
    /// The last handle is dropped, and the session looked for again.
    Dropped,
    /// The session is shut down, and started again.
    Restarted,
    /// The process is gone from one moment to the next. Another one goes on.
    Crashed,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let fault = prop_oneof![
        Just(None),
        Just(Some(Fault::Before)),
        Just(Some(Fault::After)),
        Just(Some(Fault::Silence)),
    ];
    prop_oneof![
        8 => Just(Said),
        4 => Just(SaidAloud),
        2 => Just(Completed),
        1 => Just(Interrupted),
        1 => Just(Titled),
        3 => Just(Saved),
        1 => Just(Reloaded),
        1 => Just(Raced),
        3 => (0_u64..50_000).prop_map(|ms| Passed(Duration::from_millis(ms))),
        3 => (1_usize..20).prop_map(Yielded),
        3 => proptest::collection::vec(fault, 1..6).prop_map(Failing),
        1 => Just(Overtaken),
        1 => Just(Dropped),
        1 => Just(Restarted),
        2 => Just(Crashed),
    ]
}

#[test]
fn the_stored_state_is_the_newest_that_was_acknowledged() {
    let insert = "INSERT INTO users (id, name) VALUES (1, 'a')";
    let database = process().block_on(storage::frozen(Database::migrated(insert)));
    let database = Arc::new(database);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    });
    let history = proptest::collection::vec(happening(), 1..60);
    let on_conflict = prop_oneof![Just(OnConflict::Report), Just(OnConflict::Reload)];
    let outcome = runner.run(&(history, on_conflict), |(history, on_conflict)| {
        let options = SessionOptions {
            on_conflict,
            ..SessionOptions::default()
        };
        let mut model = Model::new(Arc::clone(&database), options);
        for life in history.split_inclusive(|happening| matches!(happening, Happening::Crashed)) {
            model.live(life);
        }
        model.end();
        Ok(())
    });
    outcome.unwrap();
}

/// What must be true, whatever happened.
struct Model {
    talk: Talk,
    options: SessionOptions,
    /// The numbers that were used.
    numbers: usize,
    /// What others saved.
    others: Vec<(Revision, Vec<String>)>,
}

impl Model {
    fn new(database: Arc<Database>, options: SessionOptions) -> Self {
        let talk = process().block_on(Talk::on(database, options.clone()));
        Self {
            talk,
            options,
            numbers: 0,
            others: Vec::new(),
        }
    }

    /// The life of one process, until it crashes or the history is over.
    fn live(&mut self, life: &[Happening]) {
        let process = process();
        let session = process.block_on(async {
            self.connect().await;
            let mut session = self.talk.start().await;
            for happening in life {
                session = self.happen(session, happening).await;
            }
            session
        });
        // A handle that outlives the runtime is not dropped in good order.
        drop(process);
        drop(session);
        self.check();
    }

    /// After everything else nothing fails any more, and what is known is stored.
    fn end(mut self) {
        self.talk.record.forget_faults();
        process().block_on(async {
            self.connect().await;
            loop {
                let session = self.talk.start().await;
                self.say(&session);
                let known = session.read(said);
                let ended = session.shutdown().await;
                let (stored, _) = self.talk.stored().await;
                if ended.is_ok() && stored == known {
                    break;
                }
                // Only a save that a crashed process had sent off can have come in between.
                assert!(self.talk.coordinator.figures().conflicts > 0);
                self.connect().await;
            }
        });
        self.check();
    }

    async fn happen(
        &mut self,
        session: AgentSession<Storage>,
        happening: &Happening,
    ) -> AgentSession<Storage> {
        match happening {
            Happening::Said => self.say(&session),
            Happening::SaidAloud => {
                self.numbers += 1;
                let message = Message::user(self.numbers.to_string());
                session.add_message(message).unwrap();
            }
            Happening::Completed => session.completed().unwrap(),
            Happening::Interrupted => session.interrupted(serde_json::json!(1)).unwrap(),
            Happening::Titled => session.title_generated("Plans").unwrap(),
            Happening::Saved => self.save(&session).await,
            Happening::Reloaded => {
                session.reload().await.unwrap();
            }
            Happening::Raced => {
                let known = session.read(said);
                let (saved, reloaded) = tokio::join!(session.save(), session.reload());
                reloaded.unwrap();
                if saved.is_ok() {
                    assert!(self.talk.stored().await.0.starts_with(&known));
                }
            }
            Happening::Passed(time) => tokio::time::sleep(*time).await,
            Happening::Yielded(times) => {
                for _ in 0..*times {
                    tokio::task::yield_now().await;
                }
            }
            Happening::Failing(faults) => self.talk.record.fail(faults.clone()),
            Happening::Overtaken => {
                self.numbers += 1;
                let revision = self
                    .talk
                    .somebody_else_says(&self.numbers.to_string())
                    .await;
                let (said, current) = self.talk.stored().await;
                // The session may have followed at once.
                if current == revision {
                    self.others.push((revision, said));
                }
            }
            Happening::Dropped => {
                drop(session);
                return self.talk.start().await;
            }
            Happening::Restarted => {
                match session.shutdown().await {
                    Ok(()) => {
                        let (stored, known) = (self.talk.stored().await.0, session.read(said));
                        let overtaken = !self.others.is_empty();
                        assert!(stored == known || overtaken && stored.starts_with(&known));
                    }
                    Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
                    Err(error) => panic!("{error}"),
                }
                return self.talk.start().await;
            }
            Happening::Crashed => {}
        }
        session
    }

    fn say(&mut self, session: &AgentSession<Storage>) {
        self.numbers += 1;
        say(session, &self.numbers.to_string());
    }

    async fn save(&self, session: &AgentSession<Storage>) {
        let known = session.read(said);
        match session.save().await {
            Ok(revision) => {
                let (stored, current) = self.talk.stored().await;
                // What had not changed was not saved again, and somebody else may have gone on.
                let overtaken = self.others.iter().any(|(other, _)| *other > revision);
                assert!(current == revision && stored == known || overtaken);
            }
            Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
            Err(SessionError::Storage(_) | SessionError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A save of another process may be in the way, or one of a process that crashed.
    fn may_conflict(&self) -> bool {
        let saves = self.talk.record.saves();
        !self.others.is_empty() || saves.iter().any(|save| save.answer.is_none())
    }

    /// The stored state is the newest that was acknowledged, or a later one whose acknowledgement was lost; and every
    /// save has built on the one before.
    fn check(&mut self) {
        let (shown, stored) = process().block_on(async {
            self.connect().await;
            let (said, revision) = self.talk.stored().await;
            (self.talk.shown().await, (revision, said))
        });
        let shown: Vec<usize> = shown.iter().map(|text| text.parse().unwrap()).collect();
        let is_sorted = shown.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(is_sorted, "in order and once: {shown:?}");
        let saves = self.talk.record.saves();
        let answered = saves
            .iter()
            .filter_map(|save| Some((save.answer?, save.said.clone())));
        let mut known: Vec<_> = answered.chain(self.others.clone()).collect();
        known.sort();
        known.dedup();
        if let Some(newest) = known.last() {
            assert!(stored.0 >= newest.0, "{stored:?} is older than {newest:?}");
        }
        let is_known = stored.0 == Revision(0) || known.contains(&stored);
        let was_tried = saves.iter().any(|save| {
            save.said == stored.1 && save.expect == Expect::Revision(Revision(stored.0.0 - 1))
        });
        assert!(is_known || was_tried, "nobody saved {stored:?}");
        known.push(stored);
        for pair in known.windows(2) {
            assert!(
                pair[1].1.starts_with(&pair[0].1),
                "{:?} forgets {:?}",
                pair[1],
                pair[0]
            );
        }
    }

    /// A process has a pool and a coordinator of its own.
    async fn connect(&mut self) {
        let connected = storage::frozen(connect(&self.talk.keeper.url())).await;
        self.talk.layer = Conversations::new(connected.unwrap());
        let storage = Storage {
            layer: self.talk.layer.clone(),
            record: Arc::clone(&self.talk.record),
        };
        self.talk.coordinator = Coordinator::with_options(storage, self.options.clone());
    }
}

fn process() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}
