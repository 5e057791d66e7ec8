//! A disk that is full for a while, and one that cannot be written to.
//!
//! Each runs in a process of its own: with a small file system that only this process sees, or with a limit on the size
//! of its files.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use matrix::conversations::{Conversations, Error, MessagePage, connect};
use matrix::sagents::Message;
use matrix::sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{USERS, append, conversation};
use crate::storage::{said, scope};

const DIRECTORY: &str = "SMALL_DISK";
const SESSIONS: usize = 8;
const WRITES: usize = 64;

#[test]
fn after_a_full_disk_everything_is_written_again() {
    let mount = r#"mount -t tmpfs -o size=32m small "$SMALL_DISK" && exec "$@""#;
    let ways: [&[&str]; 3] = [
        &["unshare", "--mount"],
        &["unshare", "--map-root-user", "--mount"],
        &[
            "sudo",
            "--non-interactive",
            "--preserve-env",
            "unshare",
            "--mount",
        ],
    ];
    let is_possible = |way: &&&[&str]| {
        let mut command = Command::new(way[0]);
        command
            .args(&way[1..])
            .args(["mount", "-t", "tmpfs", "small", "/mnt"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let way = ways.iter().find(is_possible);
    let way = way.expect("a file system can be mounted, by root or in a namespace of a user");
    run(way, mount, "pressure::of_database::disk::with_a_full_disk");
}

#[test]
fn after_errors_of_the_disk_everything_is_written_again() {
    // A write beyond the limit fails; otherwise a signal would end the process.
    let ignore = r#"trap "" XFSZ && exec "$@""#;
    run(
        &["env"],
        ignore,
        "pressure::of_database::disk::with_a_limit_on_files",
    );
}

/// Runs a test of this file in another process.
fn run(way: &[&str], script: &str, test: &str) {
    let directory = std::env::temp_dir().join(format!("matrix-{}", Uuid::now_v7()));
    fs::create_dir(&directory).unwrap();
    let output = Command::new(way[0])
        .args(&way[1..])
        .args(["sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, &directory)
        .output()
        .unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && printed.contains("1 passed");
    assert!(passed, "{printed}\n{errors}");
}

fn directory() -> PathBuf {
    std::env::var_os(DIRECTORY).unwrap().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of another test"]
async fn with_a_full_disk() {
    let filler = directory().join("filler");
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
    survives(fill, free, "free space").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of another test"]
async fn with_a_limit_on_files() {
    let limit = |bytes: &str| {
        let pid = std::process::id().to_string();
        let limit = format!("--fsize={bytes}:");
        let mut prlimit = Command::new("prlimit");
        assert!(
            prlimit
                .args(["--pid", &pid, &limit])
                .status()
                .unwrap()
                .success()
        );
    };
    survives(|| limit("4096"), || limit("unlimited"), "check the disk").await;
}

/// Nothing can be written for a while.
async fn survives(break_disk: impl FnOnce(), repair: impl FnOnce(), hint: &str) {
    let url = format!("sqlite:{}", directory().join("test.db").display());
    let pool = connect(&url).await.unwrap();
    let migrations = sqlx::migrate::Migrator::new(Path::new("migrations"));
    migrations.await.unwrap().run(&pool).await.unwrap();
    sqlx::raw_sql(USERS).execute(&pool).await.unwrap();
    let layer = Conversations::new(pool.clone());
    let options = SessionOptions {
        auto_save: AutoSave {
            interval: Some(Duration::from_millis(20)),
            ..AutoSave::default()
        },
        initial_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_millis(200),
        ..SessionOptions::default()
    };
    let coordinator = Coordinator::with_options(layer.clone(), options.clone());
    let mut sessions: Vec<AgentSession<Conversations>> = Vec::new();
    for _ in 0..SESSIONS {
        let id = conversation(&layer, 1).await;
        sessions.push(coordinator.start(&scope(), id).await.unwrap());
    }
    let impatient = Coordinator::with_options(layer.clone(), options);
    let last = conversation(&layer, 1).await;
    let last = impatient.start(&scope(), last).await.unwrap();
    let id = conversation(&layer, 1).await;

    break_disk();
    for session in &sessions {
        session
            .add_message(Message::user("x".repeat(100_000)))
            .unwrap();
    }
    let failed = write(&layer, id).await;
    assert!(failed.iter().all(Result::is_err), "{failed:?}");
    for error in failed.into_iter().filter_map(Result::err) {
        assert!(
            error.hint().is_some_and(|text| text.contains(hint)),
            "{error:?}"
        );
    }
    // Readers do not notice.
    layer.get_conversation(&scope(), id).await.unwrap();
    // What an application writes in the same pool fails too.
    for _ in 0..WRITES {
        let Ok(mut transaction) = pool.begin().await else {
            continue;
        };
        let rename = sqlx::query("UPDATE users SET name = $1").bind("x".repeat(100_000));
        let renamed = rename.execute(&mut *transaction).await.is_ok();
        assert!(!renamed || transaction.commit().await.is_err());
    }
    while coordinator.stats().failures < 3 * SESSIONS as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(coordinator.stats().unsaved, SESSIONS);
    // Who does not wait for the disk is told what is not stored.
    last.add_message(Message::user("not stored")).unwrap();
    let report = impatient.shutdown(Duration::from_millis(50)).await;
    assert_eq!((report.saved, report.unsaved.len()), (0, 1));
    repair();
    let failures = coordinator.stats().failures;

    let written = write(&layer, id).await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let page = layer
        .load_display_messages(&scope(), id, page)
        .await
        .unwrap();
    assert_eq!(page.items.len(), WRITES);
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let rename = sqlx::query("UPDATE users SET name = 'renamed'");
    rename.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();

    // With its next attempt, every session stores what it has.
    while coordinator.stats().unsaved > 0 {
        let more = coordinator.stats().failures - failures;
        assert!(more <= 2 * SESSIONS as u64, "{more} failures with space");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for session in &sessions {
        session.add_message(Message::user("at the end")).unwrap();
    }
    let report = coordinator.shutdown(Duration::MAX).await;
    assert_eq!((report.saved, report.unsaved.len()), (SESSIONS, 0));
    for session in sessions {
        let stored = layer
            .load_agent_state(&scope(), session.conversation_id())
            .await;
        assert_eq!(said(&stored.unwrap().state), session.read(said));
    }
}

/// Makes many writes at once, which use every connection.
async fn write(layer: &Conversations, id: Uuid) -> Vec<Result<(), Error>> {
    let mut writes = JoinSet::new();
    for _ in 0..WRITES {
        let layer = layer.clone();
        writes.spawn(async move {
            let append = append(&layer, 1, id, "y".repeat(20_000));
            append.await.map(drop)
        });
    }
    writes.join_all().await
}
