//! A server is killed while tools run: none of them runs a second time, and people are told so.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::driver::{Browser, Patience};
use crate::http;
use crate::site::{Site, ready};

/// Longer than the lease of a run in a new package.
const AFTER_THE_LEASE: Duration = Duration::from_secs(8);
const AT_ONCE: Duration = Duration::from_millis(500);

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_tool_that_ran_when_the_server_was_killed_does_not_run_again() {
    let cases = [
        ("asked to continue", AFTER_THE_LEASE, true),
        ("asked to continue", AFTER_THE_LEASE, false),
        ("decided again", AFTER_THE_LEASE, true),
        ("decided again", AFTER_THE_LEASE, false),
        ("decided again", AT_ONCE, true),
        ("decided again", AT_ONCE, false),
        ("told something else", AFTER_THE_LEASE, true),
        ("told something else", AFTER_THE_LEASE, false),
        ("told something else", AT_ONCE, true),
        ("told something else", AT_ONCE, false),
        ("left alone", AT_ONCE, true),
    ];
    let mut site = Site::with_slow_tools(600);
    let started: Vec<_> = cases.into_iter().map(|case| (case, start_tool(&site))).collect();
    site.kill();
    site.restart();

    thread::scope(|scope| {
        for ((action, delay, has_page), path) in &started {
            let site = &site;
            scope.spawn(move || {
                let page = has_page.then(|| http::open(site.port, "ada", "GET", &format!("{path}/events"), None));
                thread::sleep(*delay);
                match *action {
                    "asked to continue" => post(site, &format!("{path}/run"), &json!({})),
                    "decided again" => approve(site, path),
                    "told something else" => say(site, path, "Are you there?"),
                    _ => Value::Null,
                };
                let answer = answer(site, path);
                drop(page);
                let case = format!("{action} after {delay:?}, page: {has_page}: {answer:#}");
                assert_eq!(row(&answer, "tool_call")["status"], "unknown", "{case}");
                assert!(row(&answer, "tool_result").to_string().contains("outcome is unknown"), "{case}");
                assert_eq!(row(&answer, "tool_call")["metadata"]["hitl_decision"], "approved", "{case}");
                assert!(!case.contains("did not respond"), "{case}");
            });
        }
    });
    assert_eq!(site.tool_runs(), started.len());

    let browser = site.browser("ada");
    show(&browser, &site, &started[0].1);
    browser.see("[data-status=unknown]", "Outcome unknown");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_tool_that_runs_in_a_conversation_does_not_run_in_its_fork() {
    let mut site = Site::with_slow_tools(600);
    let path = start_tool(&site);
    let fork = fork(&site, &path);
    // Nobody has approved anything in the fork.
    for is_killed in [false, true] {
        if is_killed {
            site.kill();
            site.restart();
        }
        post(&site, &format!("{fork}/run"), &json!({}));
        thread::sleep(Duration::from_secs(1));
        let copied = rows(&site, &fork);
        assert_eq!(row(&copied, "tool_call")["status"], "interrupted", "{copied:#}");
        assert_eq!(site.tool_runs(), 1);
    }

    let browser = site.browser("ada");
    show(&browser, &site, &fork);
    browser.see(".card.asks", "was already started in the original");
    browser.click(".card.asks .approve");
    browser.see("[data-status=completed]", "Done");
    assert_eq!(site.tool_runs(), 2, "a decision in the fork is one of its own");
}

#[test]
#[ignore = "needs a compiled package: run scripts/test"]
fn a_call_that_waits_in_a_conversation_and_in_its_fork_is_decided_in_each_of_them() {
    let site = Site::with_slow_tools(0);
    let path = ask(&site);
    let fork = fork(&site, &path);
    for (path, other, runs) in [(&path, &fork, 1), (&fork, &path, 2)] {
        approve(&site, path);
        assert_eq!(row(&answer(&site, path), "tool_call")["status"], "completed");
        assert_eq!(site.tool_runs(), runs);
        post(&site, &format!("{other}/run"), &json!({}));
    }
    // What was told to go on has nothing to do.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(site.tool_runs(), 2);
}

/// Opens a conversation.
fn show(browser: &Browser, site: &Site, path: &str) {
    let id = path.rsplit('/').next().unwrap();
    // From elsewhere: within the page it would be followed without a new start.
    browser.go("about:blank");
    browser.go(&format!("{}#{id}", site.address()));
    ready(browser);
}

/// A conversation whose tool runs, because somebody approved it.
fn start_tool(site: &Site) -> String {
    let (path, runs) = (ask(site), site.tool_runs());
    approve(site, &path);
    wait("the tool", || (site.tool_runs() > runs).then_some(()), || rows(site, &path));
    path
}

/// A conversation whose tool waits for a decision.
fn ask(site: &Site) -> String {
    let created = post(site, "/api/conversations", &json!({ "id": Uuid::now_v7() }));
    let path = format!("/api/conversations/{}", created["id"].as_str().unwrap());
    say(site, &path, "Send a postcard.");
    let waits = || (row(&rows(site, &path), "tool_call")["status"] == "interrupted").then_some(());
    wait("a question", waits, || rows(site, &path));
    path
}

fn say(site: &Site, path: &str, text: &str) -> Value {
    post(site, &format!("{path}/messages"), &json!({ "id": Uuid::now_v7(), "text": text }))
}

fn approve(site: &Site, path: &str) -> Value {
    let call = row(&rows(site, path), "tool_call")["tool_call_id"].clone();
    let decision = json!({ "type": "approve" });
    post(site, &format!("{path}/tool_calls/{}/decision", call.as_str().unwrap()), &decision)
}

fn fork(site: &Site, path: &str) -> String {
    let fork = post(site, &format!("{path}/fork"), &json!({}));
    format!("/api/conversations/{}", fork["conversation"]["id"].as_str().unwrap_or_else(|| panic!("{fork:#}")))
}

/// The rows, as soon as the agent has answered behind its tool.
fn answer(site: &Site, path: &str) -> Value {
    let answered = || {
        let rows = rows(site, path);
        let last = rows.as_array()?.last()?;
        let is_answer = last["role"] == "assistant" && last["content_type"] == "text" && last["delivery"] == "stored";
        is_answer.then_some(rows)
    };
    wait("an answer", answered, || rows(site, path))
}

fn rows(site: &Site, path: &str) -> Value {
    let (status, mut page) = http::send(site.port, "ada", "GET", &format!("{path}/messages"), None);
    assert_eq!(status, 200, "{page}");
    page["items"].take()
}

/// The last row of a kind.
fn row(rows: &Value, kind: &str) -> Value {
    let mut rows = rows.as_array().unwrap().iter();
    rows.rfind(|row| row["content_type"] == kind).cloned().unwrap_or_default()
}

fn post(site: &Site, path: &str, body: &Value) -> Value {
    let (status, reply) = http::send(site.port, "ada", "POST", path, Some(body));
    assert!(status < 300, "POST {path}: {status} {reply}");
    reply
}

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>, state: impl Fn() -> Value) -> T {
    let mut patience = Patience::new(what);
    loop {
        match look() {
            Some(found) => return found,
            None => patience.sleep(|| format!("{:#}", state())),
        }
    }
}
