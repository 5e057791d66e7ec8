//! A tool runs once, whatever happens to its process and whoever asks for what, and people are told the truth.

use std::fs;
use std::future::pending;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sagents::{Expect, Message, NewDisplayMessage, Owner, RunStatus, RunUpdate, State, ToolCall, ToolResult};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use uuid::Uuid;

use crate::client::Client;
use crate::support::context::{Conversations, NewConversation};
use crate::support::{TABLES, TestDatabase};
use crate::{Server, conversation, on_both_databases, said, send};

on_both_databases!(
    a_tool_that_ran_when_its_process_was_killed_does_not_run_again,
    of_several_calls_only_those_that_were_started_have_an_unknown_outcome,
    processes_that_are_told_to_go_on_at_once_run_a_tool_once,
    a_process_that_lost_its_run_while_a_tool_runs_does_not_contradict_the_next_one,
    a_fork_runs_no_tool_that_was_approved_elsewhere,
    a_fork_and_its_source_decide_about_a_waiting_call_separately,
    a_tool_whose_question_is_not_displayed_waits_for_a_decision,
    a_tool_that_panics_has_an_unknown_outcome,
);

/// Longer than the lease of a run.
const AFTER_THE_LEASE: Duration = Duration::from_millis(2500);
const AT_ONCE: Duration = Duration::from_millis(300);

async fn a_tool_that_ran_when_its_process_was_killed_does_not_run_again(database: &TestDatabase) {
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
    let process = Process::start(database).await;
    let mut talks = Vec::new();
    for _ in cases {
        talks.push(start_tool(&process.user, "ask").await);
    }
    process.kill();

    let server = Server::another(database).await;
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
            assert!(result(&rows, "call_1").contains("outcome is unknown"), "{case}");
        });
    }
    while let Some(end) = ends.join_next().await {
        end.unwrap();
    }
}

async fn of_several_calls_only_those_that_were_started_have_an_unknown_outcome(database: &TestDatabase) {
    let process = Process::start(database).await;
    let (waits, first) = start_tool(&process.user, "ask twice").await;
    let (is_told, second) = start_tool(&process.user, "ask twice").await;
    process.kill();

    let server = Server::another(database).await;
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

async fn processes_that_are_told_to_go_on_at_once_run_a_tool_once(database: &TestDatabase) {
    let mut servers = vec![Server::start(database).await];
    for _ in 0..2 {
        servers.push(Server::another(database).await);
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
    clients.join_all().await;
    // Renewed, the run goes on for longer than its lease.
    sleep(AFTER_THE_LEASE).await;
    tool.end();
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");
    assert_eq!(tool.runs(), 1);
}

async fn a_process_that_lost_its_run_while_a_tool_runs_does_not_contradict_the_next_one(database: &TestDatabase) {
    let (slow, other) = (Server::start(database).await, Server::another(database).await);
    let (path, tool) = start_tool(&slow.user(1), "ask twice").await;
    let (store, owner, id) = (database.connect(&TABLES).await, owner(), id(&path));
    let run = store.get_run(&owner, id).await.unwrap().unwrap();
    store.update_run(&owner, id, run.id, RunUpdate::End(RunStatus::Failed)).await.unwrap();

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
    let saved = store.load_agent_state(&owner, id).await.unwrap().state;
    assert!(saved.open_tool_calls().is_empty());
    let text = saved.result_of("call_1").unwrap().content.clone();
    assert!(text.unwrap().text().contains("outcome is unknown"));
}

async fn a_fork_runs_no_tool_that_was_approved_elsewhere(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let (path, tool) = start_tool(&user, "ask").await;
    let fork = fork(&user, &path).await;
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

async fn a_fork_and_its_source_decide_about_a_waiting_call_separately(database: &TestDatabase) {
    let server = Server::start(database).await;
    let (user, tool) = (server.user(1), Tool::new());
    let path = conversation(&user).await;
    ask(&user, &path, "ask").await;
    let fork = fork(&user, &path).await;
    tool.end();
    decide(&user, &path, "call_1", tool.approval()).await;
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");
    assert_eq!(tool.runs(), 1);

    // Nobody has approved anything in the fork.
    let mut events = user.follow(&format!("{fork}/events")).await.unwrap();
    go_on(&user, &fork).await;
    events.run("waiting").await;
    let rows = user.get(&format!("{fork}/messages")).await.expect(200);
    assert_eq!(call(&rows, "call_1")["status"], "interrupted", "{rows:#}");
    decide(&user, &fork, "call_1", json!({ "type": "reject" })).await;
    let rows = answered(&user, &fork).await;
    assert_eq!(call(&rows, "call_1")["status"], "cancelled", "{rows:#}");
    assert_eq!(tool.runs(), 1);
}

async fn a_tool_whose_question_is_not_displayed_waits_for_a_decision(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let owner = owner();
    let id = store.create_conversation(&owner, NewConversation::new()).await.unwrap().id;
    let mut state = State::new();
    state.add_message(Message::user("ask"));
    state.add_message(Message::tool_calls([ToolCall::new("call_1", "postcard", json!({}))]));
    let question = ToolResult::interrupt("call_1", "postcard", "?", json!({ "question": "?" }));
    state.add_message(Message::tool_results([question]));
    store.save_agent_state(&owner, id, &state, Expect::NOTHING).await.unwrap();
    let new = NewDisplayMessage::tool_call("call_1", "postcard");
    store.append_display_message(&owner, id, new).await.unwrap();

    let server = Server::on(store).await;
    let (user, path) = (server.user(1), format!("/api/conversations/{id}"));
    go_on(&user, &path).await;
    let is_asked = |rows: &Value| call(rows, "call_1")["status"] != "pending";
    let rows = until(&user, &path, is_asked).await;
    assert_eq!(call(&rows, "call_1")["status"], "interrupted", "{rows:#}");
    decide(&user, &path, "call_1", json!({ "type": "approve" })).await;
    let rows = answered(&user, &path).await;
    assert_eq!(call(&rows, "call_1")["status"], "completed", "{rows:#}");
}

async fn a_tool_that_panics_has_an_unknown_outcome(database: &TestDatabase) {
    let server = Server::start(database).await;
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
const LISTENS: &str = "listens on ";

/// A server in a process of its own.
struct Process {
    process: Child,
    user: Client,
}

impl Process {
    /// Creates the tables, too.
    async fn start(database: &TestDatabase) -> Self {
        drop(database.store(&TABLES).await);
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "calls::the_server_that_is_killed", "--ignored", "--nocapture"])
            .env(URL, &database.url)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of its own, which other tests start and kill"]
async fn the_server_that_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let store = if url.starts_with("sqlite") {
        let pool = sagents::sqlite::connect(&url).await.unwrap();
        Conversations::Sqlite(sagents::sqlite::Store::new(pool, &TABLES))
    } else {
        let pool = sagents::postgres::connect(&url).await.unwrap();
        Conversations::Postgres(sagents::postgres::Store::new(pool, &TABLES))
    };
    let server = Server::on(store).await;
    println!("{LISTENS}{}", server.client.address);
    pending::<()>().await;
}

/// A tool with files: one has a line for every run, the other one lets it end.
struct Tool {
    directory: TempDir,
}

impl Tool {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn runs(&self) -> usize {
        let log = fs::read_to_string(self.directory.path().join("log"));
        log.map_or(0, |log| log.lines().count())
    }

    fn end(&self) {
        fs::write(self.directory.path().join("end"), "").unwrap();
    }

    /// A decision after which the tool runs with these files.
    fn approval(&self) -> Value {
        let path = |name| self.directory.path().join(name);
        json!({ "type": "edit", "arguments": { "log": path("log"), "end": path("end") } })
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
    user.post(&format!("{path}/run"), json!({})).await.expect(202);
}

async fn fork(user: &Client, path: &str) -> String {
    let forked = user.post(&format!("{path}/fork"), json!({})).await.expect(201);
    format!("/api/conversations/{}", forked["conversation"]["id"].as_str().unwrap())
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
    const PATIENCE: Duration = Duration::from_mins(1);

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

/// The row of a call; null if there's none.
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

fn owner() -> Owner {
    Owner::new("user", 1)
}
