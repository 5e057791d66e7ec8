//! What one caller may not take from the others.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::support::{Kind, TestDatabase};
use crate::{Server, conversation, on_both_databases, send};

on_both_databases!(
    a_request_that_another_site_made_a_browser_send_is_refused,
    one_caller_has_so_many_streams_and_leaves_the_others_theirs,
);

async fn a_request_that_another_site_made_a_browser_send_is_refused(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let own = format!("http://{}", server.client.address);
    let message = || json!({ "id": Uuid::now_v7(), "text": "hello" });
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://elsewhere.example"),
        ("origin", "null"),
    ] {
        let other = user.with(name, value);
        assert!(other.post(&format!("{path}/messages"), message()).await.problem(403).is_some());
        other.get(&format!("{path}/events")).await.problem(403);
    }
    for (name, value) in [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none"), ("origin", &own)] {
        let page = user.with(name, value);
        page.post(&format!("{path}/messages"), message()).await.expect(202);
    }
    assert_eq!(user.with("sec-fetch-site", "cross-site").get("/").await.status, 200, "a link to the page");
}

async fn one_caller_has_so_many_streams_and_leaves_the_others_theirs(database: &TestDatabase) {
    const MOST: usize = 32;
    let server = Server::start(database).await;
    let (user, other) = (server.user(1), server.user(2));
    let path = format!("{}/events", conversation(&user).await);
    let mut streams = Vec::new();
    for _ in 0..MOST {
        streams.push(user.follow(&path).await.unwrap());
    }
    let refused = user.follow(&path).await.err().unwrap();
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert!(refused.problem(429).is_some());
    let others = format!("{}/events", conversation(&other).await);
    drop(other.follow(&others).await.unwrap());

    // The server notices that a client has gone when it has something to say.
    drop(streams.pop());
    while user.follow(&path).await.is_err() {
        send(&user, path.trim_end_matches("/events"), "hello").await;
        sleep(Duration::from_millis(50)).await;
    }

    server.web.close_streams();
    for mut stream in streams {
        while stream.next().await.is_some() {}
    }
    user.follow(&path).await.err().unwrap().problem(503);
}

/// What an open stream takes, its session and its two connections included, in bytes.
const PER_STREAM: usize = 256 * 1024;

/// In a process of its own, so that the memory is that of the streams.
#[test]
fn five_hundred_streams_take_little_memory_and_get_their_rows() {
    in_a_process_of_its_own("limits::five_hundred_streams");
}

const ALONE: &str = "RUNS_ALONE";

/// Whether [`in_a_process_of_its_own`] started this process. Otherwise other tests fill its memory, too.
pub(super) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

pub(super) fn in_a_process_of_its_own(test: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let run = command.args(["--exact", test, "--ignored"]).env(ALONE, "1").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in a process of its own"]
async fn five_hundred_streams() {
    const USERS: i64 = 20;
    const EACH: usize = 25;
    if !is_alone() {
        return;
    }
    let database = TestDatabase::new(Kind::Sqlite);
    let server = Server::start(&database).await;
    let mut paths = Vec::new();
    for id in 1..=USERS {
        let user = server.user(id);
        let path = conversation(&user).await;
        // Everything that is needed once is there.
        let mut stream = user.follow(&format!("{path}/events")).await.unwrap();
        send(&user, &path, "first").await;
        stream.rows_until("You said first").await;
        paths.push((user, path));
    }
    let before = resident();
    let mut streams = Vec::new();
    for (user, path) in &paths {
        for _ in 0..EACH {
            streams.push(user.follow(&format!("{path}/events")).await.unwrap());
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < streams.len() * PER_STREAM, "{} streams take {grown} bytes", streams.len());

    for (user, path) in &paths {
        send(user, path, "second").await;
    }
    let mut received = JoinSet::new();
    for mut stream in streams {
        received.spawn(async move { stream.rows_until("You said second").await });
    }
    assert_eq!(received.join_all().await.len(), usize::try_from(USERS).unwrap() * EACH);
    let grown = resident().saturating_sub(before);
    assert!(grown < 500 * PER_STREAM, "{grown} bytes after the rows");
}

/// The memory of this process, in bytes.
pub(super) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<usize>();
    kilobytes.unwrap() * 1024
}
