//! A tool runs once, whatever happens to its process and whoever asks for what, and people are told the truth.

use std::fs;
use std::future::pending;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use matrix::conversations::{
    Conversations, NewConversation, NewDisplayMessage, RunStatus, connect,
};
use matrix::sagents::{Expect, Message, State, ToolCall, ToolResult};
use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use uuid::Uuid;

use super::client::Client;
use super::{Server, conversation, database, said, send};
use crate::storage::scope;

/// Longer than the lease of a run.
const AFTER_THE_LEASE: Duration = Duration::from_millis(2500);
const AT_ONCE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_ran_when_its_process_was_killed_does_not_run_again() {
    let cases = [
        ("run", AFTER_THE_LEASE, true),
        ("run", AFTER_THE_LEASE, false),
        ("decide", AFTER_THE_LEASE, true),
        ("decide", AFTER_THE_LEASE, false),
        ("decide", AT_ONCE, true),
        ("decide", AT_ONCE, false),
        ("say", AFTER_THE_LEASE, true),
        ("say", AFTER_THE_LEASE, false),
        ("say", AT_ONCE, true),
        ("say", AT_ONCE, false),
        ("watch", AT_ONCE, true),
    ];
    let database = database().await;
    let process = Process::start(&database.url()).await;
    let mut talks = Vec::new();
    for _ in cases {
        talks.push(start_tool(&process.user, "ask").await);
    }
    process.kill();

    let server = Server::start(&database.url()).await;
    let mut ends = JoinSet::new();
    for ((action, delay, has_page), (path, tool)) in cases.into_iter().zip(talks) {
        let user = server.user(1);
        ends.spawn(async move {
            let mut page = None;
            if has_page {
                page = Some(user.follow(&format!("{path}/events")).await.unwrap());
            }
            sleep(delay).await;
            match action {
                "run" => go_on(&user, &path).await,
                "decide" => decide(&user, &path, "call_1", tool.approval()).await,
                "say" => drop(send(&user, &path, "hello").await),
                _ => {}
            }
            let rows = answered(&user, &path).await;
            drop(page);
            let case = format!("{action} after {delay:?}, page: {has_page}: {rows:#}");
            assert_eq!(tool.runs(), 1, "{case}");
            let call = call(&rows, "call_1");
            assert_eq!(call["status"], "unknown", "{case}");
            assert_eq!(call["metadata"]["hitl_decision"], "approved", "{case}");
            let result = result(&rows, "call_1");
            assert!(result.contains("outcome is unknown"), "{case}");
        });
    }
    while let Some(end) = ends.join_next().await {
        end.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_calls_only_those_that_were_started_have_an_unknown_outcome() {
    let database = database().await;
    let process = Process::start(&database.url()).await;
    let (waits, first) = start_tool(&process.user, "ask twice").await;
    let (is_told, second) = start_tool(&process.user, "ask twice").await;
    process.kill();

    let server = Server::start(&database.url()).await;
    let user = server.user(1);
    send(&user, &is_told, "hello").await;
    let rows = answered(&user, &is_told).await;
    assert_eq!(call(&rows, "call_1")["status"], "unknown", "{rows:#}");
    assert_eq!(call(&rows, "call_2")["status"], "cancelled", "{rows:#}");
    let text = result(&rows, "call_2");
    assert!(text.contains("did not respond"), "{text}");
    assert_eq!(second.runs(), 1);

    // The other one can still be decided.
    go_on(&user, &waits).await;
    let is_unknown = |rows: &Value| call(rows, "call_1")["status"] == "unknown";
    let rows = until(&user, &waits, is_unknown).await;
    assert_eq!(call(&rows, "call_2")["status"], "interrupted", "{rows:#}");
    decide(&user, &waits, "call_2", json!({ "type": "approve" })).await;
    let rows = answered(&user, &waits).await;
    assert_eq!(call(&rows, "call_2")["status"], "completed", "{rows:#}");
    assert_eq!(first.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_told_to_go_on_at_once_run_a_tool_once() {
    let database = database().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(&database.url()).await);
    }
    let (user, tool) = (servers[0].user(1), Tool::new());
    let path = conversation(&user).await;
    ask(&user, &path, "ask").await;
    let mut clients = JoinSet::new();
    for n in 0..12 {
        let (user, path, approval) = (servers[n % 3].user(1), path.clone(), tool.approval());
        clients.spawn(async move {
            if n < 6 {
                decide(&user, &path, "call_1", approval).await;
            }
            go_on(&user, &path).await;
        });
    }
    let _ = clients.join_all().await;
    // Renewed, the run goes on for longer than its lease.
    sleep(AFTER_THE_LEASE).await;
    tool.end();
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");
    assert_eq!(tool.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_lost_its_run_while_a_tool_runs_does_not_contradict_the_next_one() {
    let database = database().await;
    let (slow, other) = (
        Server::start(&database.url()).await,
        Server::start(&database.url()).await,
    );
    let (path, tool) = start_tool(&slow.user(1), "ask twice").await;
    let layer = layer(&database.url()).await;
    let (scope, id) = (scope(), id(&path));
    let run = layer.get_run(&scope, id).await.unwrap().unwrap();
    layer
        .end_run(&scope, id, run.id, RunStatus::Failed)
        .await
        .unwrap();

    let user = other.user(1);
    send(&user, &path, "hello").await;
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "unknown", "{rows:#}");
    // The tool ends in the slow process, where somebody says more.
    tool.end();
    send(&slow.user(1), &path, "more").await;
    let is_answered = |rows: &Value| said(rows).contains(&"assistant You said more".to_owned());
    let rows = until(&user, &path, is_answered).await;
    assert_eq!(call(&rows, "call_1")["status"], "unknown", "{rows:#}");
    let text = result(&rows, "call_1");
    assert!(text.contains("outcome is unknown"), "{text}");
    assert_eq!(call(&rows, "call_2")["status"], "cancelled", "{rows:#}");
    assert_eq!(tool.runs(), 1);
    let saved = layer.load_agent_state(&scope, id).await.unwrap().state;
    assert!(saved.open_tool_calls().is_empty());
    let text = saved.result_of("call_1").unwrap().content.clone();
    assert!(text.unwrap().text().contains("outcome is unknown"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_runs_no_tool_that_was_approved_elsewhere() {
    let database = database().await;
    let server = Server::start(&database.url()).await;
    let user = server.user(1);
    let (path, tool) = start_tool(&user, "ask").await;
    let forked = user.post(&format!("{path}/fork"), json!({})).await;
    let forked = forked.expect(201);
    let fork = forked["conversation"]["id"].as_str().unwrap();
    let fork = format!("/api/conversations/{fork}");
    let mut events = user.follow(&format!("{fork}/events")).await.unwrap();
    go_on(&user, &fork).await;
    events.run("waiting").await;
    let rows = user.get(&format!("{fork}/messages")).await.expect(200);
    let copy = call(&rows, "call_1");
    assert_eq!(copy["status"], "interrupted", "{rows:#}");
    assert_eq!(copy["metadata"]["started_elsewhere"], true);
    assert_eq!(tool.runs(), 1);
    tool.end();
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");

    // A decision in the fork is one of its own.
    decide(&user, &fork, "call_1", tool.approval()).await;
    let rows = answered(&user, &fork).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");
    assert_eq!(tool.runs(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_whose_question_is_not_displayed_waits_for_a_decision() {
    let database = database().await;
    let layer = layer(&database.url()).await;
    let new = NewConversation::new();
    let id = layer.create_conversation(&scope(), new).await.unwrap().id;
    let mut state = State::new();
    state.add_message(Message::user("ask"));
    let call = ToolCall::new("call_1", "postcard", json!({}));
    state.add_message(Message::tool_calls([call]));
    let question = ToolResult::interrupt("call_1", "postcard", "?", json!({ "question": "?" }));
    state.add_message(Message::tool_results([question]));
    layer
        .save_agent_state(&scope(), id, &state, Expect::NOTHING)
        .await
        .unwrap();
    let call = NewDisplayMessage::tool_call("call_1", "postcard");
    layer
        .append_display_message(&scope(), id, call)
        .await
        .unwrap();

    let server = Server::start(&database.url()).await;
    let (user, path) = (server.user(1), format!("/api/conversations/{id}"));
    go_on(&user, &path).await;
    let is_open = |rows: &Value| self::call(rows, "call_1")["status"] != "pending";
    let rows = until(&user, &path, is_open).await;
    assert_eq!(
        self::call(&rows, "call_1")["status"],
        "interrupted",
        "{rows:#}"
    );
    decide(&user, &path, "call_1", json!({ "type": "approve" })).await;
    let rows = answered(&user, &path).await;
    assert_eq!(
        self::call(&rows, "call_1")["status"],
        "completed",
        "{rows:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_panics_has_an_unknown_outcome() {
    let database = database().await;
    let server = Server::start(&database.url()).await;
    let (user, tool) = (server.user(1), Tool::new());
    let path = conversation(&user).await;
    ask(&user, &path, "ask").await;
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    let mut approval = tool.approval();
    approval["arguments"]["panics"] = json!(true);
    decide(&user, &path, "call_1", approval).await;
    events.run("failed").await;
    let rows = user.get(&format!("{path}/messages")).await.expect(200);
    assert_eq!(call(&rows, "call_1")["status"], "unknown", "{rows:#}");
    let text = result(&rows, "call_1");
    assert!(text.contains("outcome is unknown"), "{text}");
    go_on(&user, &path).await;
    answered(&user, &path).await;
    assert_eq!(tool.runs(), 1);
}

const URL: &str = "SERVER_URL";

/// A server in a process of its own.
struct Process {
    process: Child,
    user: Client,
}

impl Process {
    async fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "web::calls::the_server_that_is_killed"])
            .args(["--ignored", "--nocapture"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let find = move || {
            let mut lines = lines.map_while(Result::ok);
            lines.find_map(|line| line.split_once(LISTENS)?.1.parse().ok())
        };
        let address = spawn_blocking(find).await.unwrap().unwrap();
        let user = Client::new(address).with("x-user", 1);
        Self { process, user }
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

const LISTENS: &str = "listens on ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of its own, which another test starts and kills"]
async fn the_server_that_is_killed() {
    let url = std::env::var(URL).expect("another test starts this one");
    let server = Server::start(&url).await;
    println!("{LISTENS}{}", server.client.address);
    pending::<()>().await;
}

/// A tool with files: one has a line for every time that it ran, the other one lets it end.
struct Tool {
    directory: PathBuf,
}

impl Tool {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("matrix-tool-{}", Uuid::now_v7()));
        fs::create_dir(&directory).unwrap();
        Self { directory }
    }

    fn runs(&self) -> usize {
        let log = fs::read_to_string(self.directory.join("log"));
        log.map_or(0, |log| log.lines().count())
    }

    fn end(&self) {
        fs::write(self.directory.join("end"), "").unwrap();
    }

    /// A decision after which the tool runs with these files.
    fn approval(&self) -> Value {
        let (log, end) = (self.directory.join("log"), self.directory.join("end"));
        json!({ "type": "edit", "arguments": { "log": log, "end": end } })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A conversation whose tool runs, because somebody approved it.
async fn start_tool(user: &Client, text: &str) -> (String, Tool) {
    let (path, tool) = (conversation(user).await, Tool::new());
    ask(user, &path, text).await;
    decide(user, &path, "call_1", tool.approval()).await;
    while tool.runs() == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    (path, tool)
}

/// Makes the agent ask for a decision.
async fn ask(user: &Client, path: &str, text: &str) {
    send(user, path, text).await;
    let last = if text == "ask" { "call_1" } else { "call_2" };
    let is_asked = |rows: &Value| call(rows, last)["status"] == "interrupted";
    until(user, path, is_asked).await;
}

async fn decide(user: &Client, path: &str, call: &str, decision: Value) {
    let path = format!("{path}/tool_calls/{call}/decision");
    user.post(&path, decision).await.expect(200);
}

async fn go_on(user: &Client, path: &str) {
    let path = format!("{path}/run");
    user.post(&path, json!({})).await.expect(202);
}

/// The rows, as soon as the agent has answered.
async fn answered(user: &Client, path: &str) -> Value {
    until(user, path, |rows| {
        let last = rows["items"].as_array().unwrap().last().unwrap();
        let text = last["content"].as_str().unwrap();
        last["role"] == "assistant" && text.starts_with("You said ") && last["delivery"] == "stored"
    })
    .await
}

async fn until(user: &Client, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    const PATIENCE: Duration = Duration::from_secs(30);

    let look = async {
        loop {
            let rows = user.get(&format!("{path}/messages")).await.expect(200);
            if is_it(&rows) {
                return rows;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    if let Ok(rows) = tokio::time::timeout(PATIENCE, look).await {
        return rows;
    }
    let rows = user.get(&format!("{path}/messages")).await.json();
    panic!("{rows:#}");
}

/// The row of a call; null if there is none.
fn call(rows: &Value, call: &str) -> Value {
    row(rows, call, "tool_call")
}

/// The text of the newest result of a call.
fn result(rows: &Value, call: &str) -> String {
    let result = row(rows, call, "tool_result");
    result["content"].as_str().unwrap_or_default().to_owned()
}

fn row(rows: &Value, call: &str, kind: &str) -> Value {
    let mut rows = rows["items"].as_array().unwrap().iter();
    let is_it = |row: &&Value| row["tool_call_id"] == call && row["content_type"] == kind;
    rows.rfind(is_it).cloned().unwrap_or_default()
}

fn id(path: &str) -> Uuid {
    path.rsplit('/').next().unwrap().parse().unwrap()
}

async fn layer(url: &str) -> Conversations {
    Conversations::new(connect(url).await.unwrap())
}
