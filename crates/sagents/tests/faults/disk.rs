//! A disk that's full for a while, and one that can't be written to.
//!
//! Each test runs in a process of its own: with a small file system that only this process sees, or with a limit on the
//! size of its files.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use sagents::{Message, Result, Store, sqlx};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::{alice, append, arguments, conversation, hint, said, shown};
use crate::support::TABLES;

const DIRECTORY: &str = "SAGENTS_SMALL_DISK";
const SESSIONS: usize = 8;
const WRITES: usize = 64;

#[test]
fn after_a_full_disk_everything_is_written_again() {
    const MOUNT: &str = r#"mount -t tmpfs -o size=32m small "$SAGENTS_SMALL_DISK" && exec "$@""#;
    const WAYS: [&[&str]; 3] = [
        &["unshare", "--mount"],
        &["unshare", "--map-root-user", "--mount"],
        &["sudo", "--non-interactive", "--preserve-env", "unshare", "--mount"],
    ];

    let is_possible = |way: &&&[&str]| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["mount", "-t", "tmpfs", "small", "/mnt"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let way = WAYS.iter().find(is_possible);
    let way = way.expect("root, or a user in a namespace, can mount a file system");
    run(way, MOUNT, "disk::with_a_full_disk");
}

#[test]
fn after_errors_of_the_disk_everything_is_written_again() {
    // A write beyond the limit fails; otherwise a signal would end the process.
    run(&["env"], r#"trap "" XFSZ && exec "$@""#, "disk::with_a_limit_on_files");
}

/// Runs a test of this file in another process.
fn run(way: &[&str], script: &str, test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(way[0])
        .args(&way[1..])
        .args(["sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments(test))
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}\n{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of another test"]
async fn with_a_full_disk() {
    let Some(directory) = directory() else { return };
    let filler = directory.join("filler");
    let fill = || {
        let mut file = File::create(&filler).unwrap();
        for size in [1 << 16, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    };
    let free = || {
        let bytes = fs::metadata(&filler).unwrap().len();
        // Otherwise the database would fill the disk itself, and writes would fail for ever.
        assert!(bytes > 16 << 20, "only {bytes} bytes can be freed");
        fs::remove_file(&filler).unwrap();
    };
    everything_is_written_again(&directory, fill, free, "free space on the disk").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of another test"]
async fn with_a_limit_on_files() {
    let Some(directory) = directory() else { return };
    let limit = |bytes: &str| {
        let (pid, limit) = (std::process::id().to_string(), format!("--fsize={bytes}:"));
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    };
    let hint = "check the disk, its file system and the limits of the process";
    everything_is_written_again(&directory, || limit("4096"), || limit("unlimited"), hint).await;
}

fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Nothing can be written for a while.
async fn everything_is_written_again(
    directory: &std::path::Path,
    break_disk: impl FnOnce(),
    repair: impl FnOnce(),
    expected: &str,
) {
    let pool = sagents::sqlite::connect(&format!("sqlite://{}", directory.join("test.db").display())).await.unwrap();
    let store = sagents::sqlite::Store::new(pool.clone(), &TABLES);
    sagents::testing::create_tables(&store).await.unwrap();
    let users = "CREATE TABLE users (name TEXT); INSERT INTO users VALUES ('a')";
    sqlx::raw_sql(users).execute(&pool).await.unwrap();
    let options = SessionOptions {
        auto_save: AutoSave { interval: Some(Duration::from_millis(20)), ..AutoSave::default() },
        initial_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_millis(200),
        ..SessionOptions::default()
    };
    let coordinator = Coordinator::with_options(&store, options.clone());
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let id = conversation(&store, &alice()).await;
        sessions.push(coordinator.start(&alice(), id).await.unwrap());
    }
    let impatient = Coordinator::with_options(&store, options);
    let last = impatient.start(&alice(), conversation(&store, &alice()).await).await.unwrap();
    let id = conversation(&store, &alice()).await;

    break_disk();
    for session in &sessions {
        say(session, &"x".repeat(100_000));
    }
    for failed in write(&store, id).await {
        assert_eq!(hint(failed), expected);
    }
    // Reads still work.
    assert_eq!(shown(&store, id).await, []);
    // The application's own writes in the same pool fail, too.
    for _ in 0..WRITES {
        let Ok(mut transaction) = pool.begin().await else { continue };
        let rename = sqlx::query("UPDATE users SET name = $1").bind("x".repeat(100_000));
        let is_renamed = rename.execute(&mut *transaction).await.is_ok();
        assert!(!is_renamed || transaction.commit().await.is_err());
    }
    while coordinator.stats().failures < 3 * SESSIONS as u64 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(coordinator.stats().unsaved, SESSIONS);
    // A shutdown that doesn't wait for the disk reports what isn't stored.
    say(&last, "not stored");
    let report = impatient.shutdown(Duration::from_millis(50)).await;
    assert_eq!((report.saved, report.unsaved.len()), (0, 1));
    repair();

    let written = write(&store, id).await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(shown(&store, id).await.len(), WRITES);
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("UPDATE users SET name = 'renamed'").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();

    // Every session stores its messages with its next attempt.
    while coordinator.stats().unsaved > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    for session in &sessions {
        say(session, "at the end");
    }
    let report = coordinator.shutdown(Duration::MAX).await;
    assert_eq!((report.saved, report.unsaved.len()), (SESSIONS, 0));
    for session in sessions {
        let stored = store.load_agent_state(&alice(), session.conversation_id()).await.unwrap();
        assert_eq!(said(&stored.state), session.read(said));
    }
}

fn say(session: &AgentSession, text: &str) {
    session.add_message(Uuid::now_v7(), Message::user(text)).unwrap();
}

/// Makes many writes at once, which use every connection.
async fn write(store: &Store, id: Uuid) -> Vec<Result<()>> {
    let mut writes = JoinSet::new();
    for _ in 0..WRITES {
        let store = store.clone();
        writes.spawn(async move { append(&store, &alice(), id, "y".repeat(20_000)).await.map(drop) });
    }
    writes.join_all().await
}
