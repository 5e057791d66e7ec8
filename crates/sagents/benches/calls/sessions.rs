//! What sessions cost: a thousand of them in one process, beside their states in mutexes.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use sagents::{Message, State, Store};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

use crate::hand::Place;
use crate::measure::{at_most, compared, header, median, row};
use crate::{SCOPE, create_conversation, id, new_message};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const SESSIONS: usize = 1000;
/// A change is too short to be timed alone.
const CHANGES: u32 = 1000;
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVALS: usize = 5;
/// Sessions with large states, and the bytes of one.
const HERD: usize = 3000;
const SIZE: usize = 100_000;

pub async fn thousand(place: &impl Place) {
    let (store, _) = &place.database("sessions", &[0; SESSIONS]).await;
    // Each saved twice: the pool has its connections, and their caches are full.
    for _ in 0..2 {
        let coordinator = Coordinator::new(store);
        let sessions = start(&coordinator, SESSIONS).await;
        sessions.iter().for_each(say);
        assert!(coordinator.shutdown(Duration::MAX).await.unsaved.is_empty());
    }

    header(["1,000 conversations", "sessions", "mutexes", "ratio", "target"]);
    let before = allocated();
    let states: Vec<_> = (0..SESSIONS).map(|_| Arc::new(Mutex::new(State::new()))).collect();
    for state in &states {
        let load = store.load_agent_state(&SCOPE, id(0)).await;
        *state.lock().unwrap() = load.unwrap().state;
    }
    let bare = allocated() - before;
    let coordinator = Coordinator::new(store);
    let before = allocated();
    let sessions = start(&coordinator, SESSIONS).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let kept = allocated() - before;
    let each = |bytes: isize| format!("{} bytes", bytes / SESSIONS.cast_signed());
    row(["memory of one that is idle", &each(kept), &each(bare), &format!("{:.2}", kept as f64 / bare as f64), ""]);
    change(&sessions, &states);
    drop(coordinator.shutdown(Duration::MAX).await);
    drop((sessions, states));
    intervals(store).await;
    herd(place).await;
    println!();
}

async fn start(coordinator: &Coordinator, count: usize) -> Vec<AgentSession> {
    let mut sessions = Vec::with_capacity(count);
    for n in 0..count {
        sessions.push(coordinator.start(&SCOPE, id(n)).await.unwrap());
    }
    sessions
}

fn say(session: &AgentSession) {
    session.change(|state| state.add_message(Message::user("Hello!"))).unwrap();
}

/// A change of a state that is to be saved anyway, and the same in a mutex.
fn change(sessions: &[AgentSession], states: &[Arc<Mutex<State>>]) {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for (session, state) in sessions.iter().zip(states) {
        say(session);
        let start = Instant::now();
        for n in 0..CHANGES {
            session.change(|state| state.put_metadata("step", n)).unwrap();
        }
        ours.push(start.elapsed() / CHANGES);
        let start = Instant::now();
        for n in 0..CHANGES {
            state.lock().unwrap().put_metadata("step", n);
        }
        bare.push(start.elapsed() / CHANGES);
        black_box(state);
    }
    let (ours, bare) = (median(ours), median(bare));
    let nanos = |time: Duration| format!("{} ns", time.as_nanos());
    let ratio = format!("{:.2}", ours.as_secs_f64() / bare.as_secs_f64());
    row(["a change that needs no save", &nanos(ours), &nanos(bare), &ratio, ""]);
}

/// All sessions save large states at the same time, and another conversation is written to.
async fn herd(place: &impl Place) {
    let herd = at_most(HERD, 30);
    let (store, _) = &place.database("herd", &vec![0; herd]).await;
    let coordinator = Coordinator::new(store);
    let before = allocated();
    let sessions = start(&coordinator, herd).await;
    let text = "a sentence of a long conversation. ".repeat(SIZE / 35);
    for session in &sessions {
        session.change(|state| state.add_message(Message::user(text.clone()))).unwrap();
    }
    let other = create_conversation(store).await;
    let append = async || {
        let start = Instant::now();
        store.append_display_message(&SCOPE, other, new_message()).await.unwrap();
        start.elapsed()
    };
    let mut alone = Vec::new();
    for _ in 0..100 {
        alone.push(append().await);
    }
    let kept = allocated() - before;
    for session in &sessions {
        session.complete_run().unwrap();
    }
    let (mut most, mut beside) = (kept, Vec::new());
    while coordinator.stats().saves < herd as u64 {
        beside.push(append().await);
        most = most.max(allocated() - before);
    }
    assert!(coordinator.shutdown(Duration::MAX).await.unsaved.is_empty());
    println!();
    header([&format!("{herd} of 100 KB that all save"), "saving", "idle", "ratio", "target"]);
    let each = |bytes: isize| format!("{} KB", bytes / herd.cast_signed() / 1000);
    row(["memory of one", &each(most), &each(kept), &format!("{:.2}", most as f64 / kept as f64), ""]);
    compared("append to another, median", median(beside.clone()), median(alone.clone()), "");
    compared("append to another, slowest", beside.into_iter().max().unwrap(), alone.into_iter().max().unwrap(), "");
}

/// Every session is changed all the time; the database sees each once an interval.
async fn intervals(store: &Store) {
    let auto_save = AutoSave { interval: Some(INTERVAL), ..AutoSave::default() };
    let times = u32::try_from(at_most(INTERVALS, 1)).unwrap();
    let options = SessionOptions { auto_save, ..SessionOptions::default() };
    let coordinator = Coordinator::with_options(store, options);
    let mut work = JoinSet::new();
    for session in start(&coordinator, SESSIONS).await {
        work.spawn(async move {
            let start = Instant::now();
            let mut changes = 0_u64;
            while start.elapsed() < INTERVAL * times {
                session.change(|state| state.put_metadata("step", changes)).unwrap();
                changes += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            (session, changes)
        });
    }
    let mut changes = 0;
    let mut sessions = Vec::new();
    while let Some(done) = work.join_next().await {
        let (session, made) = done.unwrap();
        changes += made;
        sessions.push(session);
    }
    // The end of a session saves once more.
    let saves = coordinator.stats().saves;
    assert!(coordinator.shutdown(Duration::MAX).await.unsaved.is_empty());
    let expected = SESSIONS as u64 * u64::from(times);
    let ratio = format!("{:.2}", saves as f64 / expected as f64);
    println!();
    header([&format!("in {times} intervals of 2 s"), "saves", "intervals", "ratio", "target"]);
    let name = format!("{changes} changes");
    row([&name, &saves.to_string(), &expected.to_string(), &ratio, "<= 1.00"]);
}

/// The bytes that are allocated now.
fn allocated() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
}
