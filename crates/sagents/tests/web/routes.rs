//! Every route: what it does, and how it refuses.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::TestDatabase;
use crate::{Server, conversation, on_both_databases, said, send};

on_both_databases!(
    conversations_are_created_listed_renamed_archived_forked_and_deleted,
    messages_are_sent_answered_paged_searched_exported_and_taken_back,
    a_tool_call_runs_after_one_decision,
    a_message_or_a_stop_takes_back_an_open_question,
    the_agent_is_stopped_continued_and_may_fail,
    what_is_wrong_with_a_request_is_a_problem_with_a_status_that_fits,
    nobody_reaches_what_another_user_has,
);

async fn conversations_are_created_listed_renamed_archived_forked_and_deleted(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let id = Uuid::now_v7();
    let new = json!({ "id": id, "title": "First" });
    let created = user.post("/api/conversations", new.clone()).await.expect(201);
    assert_eq!(user.post("/api/conversations", new).await.expect(201), created, "it can be repeated");
    assert_eq!(created["id"], id.to_string());
    assert!(created.get("user_id").is_none(), "the owner is nobody's business");

    let path = format!("/api/conversations/{id}");
    assert_eq!(user.get(&path).await.expect(200), created);
    let renamed = user.patch(&path, json!({ "title": "Renamed" })).await.expect(200);
    assert_eq!(renamed["title"], "Renamed");
    assert_eq!(user.patch(&path, json!({ "title": null })).await.expect(200)["title"], Value::Null);

    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    let first = send(&user, &path, "one").await;
    events.run("finished").await;
    send(&user, &path, "two").await;
    events.run("finished").await;
    let fork = json!({ "at": { "through": first } });
    let forked = user.post(&format!("{path}/fork"), fork).await.expect(201);
    assert_eq!(forked["cut"], json!({ "last": first, "moved": false }));
    let fork = forked["conversation"]["id"].as_str().unwrap();
    let copied = user.get(&format!("/api/conversations/{fork}/messages")).await.expect(200);
    assert_eq!(said(&copied), ["user one"]);

    let archived = user.post(&format!("{path}/archive"), json!({})).await.expect(200);
    assert!(archived["archived_at"].is_string());
    let list = async |query: &str| {
        let page = user.get(&format!("/api/conversations?{query}")).await.expect(200);
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, [fork]);
    assert_eq!(list("archived=true").await, [id.to_string()]);
    let unarchived = user.post(&format!("{path}/unarchive"), json!({})).await.expect(200);
    assert_eq!(unarchived["archived_at"], Value::Null);
    let first_page = user.get("/api/conversations?limit=1&order_by=created").await.expect(200);
    let next = first_page["next"].as_str().unwrap();
    let query = format!("limit=1&order_by=created&after={next}");
    assert_eq!(list(&query).await, [id.to_string()]);

    let deleted = user.request("DELETE", &path, None).await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    assert_eq!(events.until("gone", |_| true).await.data, json!({}));
    user.get(&path).await.problem(404);
    user.request("DELETE", &path, None).await.problem(404);
}

async fn messages_are_sent_answered_paged_searched_exported_and_taken_back(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    let id = Uuid::now_v7();
    let body = json!({ "id": id, "text": "  hello  " });
    let sent = user.post(&format!("{path}/messages"), body.clone()).await.expect(202);
    assert_eq!(said(&sent), ["user hello"]);
    events.run("finished").await;
    let again = user.post(&format!("{path}/messages"), body).await.expect(202);
    assert_eq!(again["items"][0]["sequence"], sent["items"][0]["sequence"], "it can be repeated");
    let second = send(&user, &path, "plan").await;
    events.run("finished").await;

    let all = user.get(&format!("{path}/messages")).await.expect(200);
    assert_eq!(said(&all), ["user hello", "assistant You said hello", "user plan", "assistant You said plan"]);
    assert!(all["cursor"].is_string());
    let last = user.get(&format!("{path}/messages?limit=1")).await.expect(200);
    assert_eq!(said(&last), ["assistant You said plan"]);
    let older = format!("{path}/messages?limit=1&from={}", last["next"].as_str().unwrap());
    let older = user.get(&older).await.expect(200);
    assert_eq!((said(&older), &older["cursor"]), (vec!["user plan".to_owned()], &Value::Null));
    let newer = user.get(&format!("{path}/messages?from=after:1&limit=1")).await.expect(200);
    assert_eq!(said(&newer), ["user plan"]);

    assert_eq!(user.get(&format!("{path}/todos")).await.expect(200)[0]["content"], "write");
    assert_eq!(user.get(&path).await.expect(200)["title"], "A plan");
    assert!(user.get(&format!("{path}/usage")).await.expect(200).is_object());
    let found = user.get("/api/search?q=said%20HELLO").await.expect(200);
    assert_eq!(said(&found), ["assistant You said hello"]);

    let export = user.get(&format!("{path}/export")).await;
    assert_eq!(export.header("content-type"), Some("application/jsonl"));
    assert!(export.header("content-disposition").unwrap().starts_with("attachment; filename="));
    let lines: Vec<Value> = export.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["display_messages"], 4);

    let to = json!({ "to": { "before": second } });
    let rewound = user.post(&format!("{path}/rewind"), to).await.expect(200);
    assert_eq!(rewound["cut"]["moved"], false);
    let reset = events.until("rows", |data| data["reset"] == true).await;
    assert_eq!(said(&reset.data), ["user hello", "assistant You said hello"]);
    user.post(&format!("{path}/rewind"), json!({ "to": { "before": second } })).await.problem(404);
}

async fn a_tool_call_runs_after_one_decision(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    for (decision, status, result) in [
        (json!({ "type": "approve" }), "completed", "sent"),
        (json!({ "type": "edit", "arguments": { "to": "Rome" } }), "completed", r#"{"to":"Rome"}"#),
        (json!({ "type": "reject", "reason": "no" }), "failed", "rejected"),
    ] {
        let path = conversation(&user).await;
        let mut events = user.follow(&format!("{path}/events")).await.unwrap();
        send(&user, &path, "ask").await;
        events.run("waiting").await;
        let decide = format!("{path}/tool_calls/call_1/decision");
        let decided = user.post(&decide, decision.clone()).await.expect(200);
        assert_eq!(decided["claimed"], true);
        assert_eq!(decided["items"][0]["tool_call_id"], "call_1");
        let again = user.post(&decide, json!({ "type": "approve" })).await.expect(200);
        assert_eq!(again["claimed"], false, "{again}");
        let (rows, _) = events.rows_until("You said ask").await;
        let last = |kind: &str| rows.iter().rfind(|row| row["content_type"] == kind).unwrap();
        let expected = if status == "failed" { "cancelled" } else { status };
        assert_eq!(last("tool_call")["status"], expected, "{decision}");
        assert_eq!(last("tool_call")["metadata"]["decision"]["by"], "caller Integer(1)");
        assert_eq!(last("tool_result")["content"], result);
        events.run("finished").await;
    }
    let path = conversation(&user).await;
    let nothing = user.post(&format!("{path}/tool_calls/call_1/decision"), json!({ "type": "approve" })).await;
    nothing.problem(404);
}

async fn a_message_or_a_stop_takes_back_an_open_question(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    send(&user, &path, "ask").await;
    events.run("waiting").await;
    send(&user, &path, "never mind").await;
    let (rows, _) = events.rows_until("You said never mind").await;
    let call = rows.iter().rfind(|row| row["content_type"] == "tool_call").unwrap();
    assert_eq!(call["status"], "cancelled");
    user.post(&format!("{path}/tool_calls/call_1/decision"), json!({ "type": "approve" })).await.problem(422);

    let path = conversation(&user).await;
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    send(&user, &path, "ask").await;
    events.run("waiting").await;
    user.post(&format!("{path}/stop"), json!({})).await.expect(202);
    events.run("cancelled").await;
}

async fn the_agent_is_stopped_continued_and_may_fail(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    send(&user, &path, "wait").await;
    let draft = events.until("draft", |_| true).await;
    assert_eq!(draft.data["items"][0]["content"], "so far");
    user.post(&format!("{path}/stop"), json!({})).await.expect(202);
    events.run("cancelled").await;
    let rows = user.get(&format!("{path}/messages")).await.expect(200);
    assert_eq!(rows["items"][1]["delivery"], "interrupted");
    assert_eq!(rows["items"][1]["message_id"], draft.data["message_id"]);
    user.post(&format!("{path}/run"), json!({})).await.expect(202);
    let (rows, _) = events.rows_until("so far continued").await;
    assert_eq!(rows.last().unwrap()["message_id"], draft.data["message_id"]);
    events.run("finished").await;

    // What the agent says while it stops does not come behind the cut.
    send(&user, &path, "wait").await;
    events.run("running").await;
    user.post(&format!("{path}/rewind"), json!({ "to": { "through": draft.data["message_id"] } })).await.expect(200);
    send(&user, &path, "fine").await;
    let (_, _) = events.rows_until("You said fine").await;
    events.run("finished").await;

    for text in ["fail", "panic"] {
        send(&user, &path, text).await;
        let (rows, _) = events.rows_until("The agent failed. Try again.").await;
        assert_eq!(rows.last().unwrap()["role"], "system");
        events.run("failed").await;
    }
    let rows = user.get(&format!("{path}/messages")).await;
    assert!(!rows.body.contains("secret"));
}

async fn what_is_wrong_with_a_request_is_a_problem_with_a_status_that_fits(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    assert_eq!(server.client.get(&path).await.status, 401, "as the application says");
    user.get("/api/nowhere").await.problem(404);
    user.request("PUT", "/api/conversations", None).await.problem(405);
    for id in ["7", "nothing", &Uuid::now_v7().to_string()] {
        let path = format!("/api/conversations/{id}");
        for route in ["", "/messages", "/todos", "/usage", "/export", "/events"] {
            user.get(&format!("{path}{route}")).await.problem(404);
        }
        for route in ["/archive", "/unarchive", "/run", "/stop"] {
            user.post(&format!("{path}{route}"), json!({})).await.problem(404);
        }
        let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
        user.post(&format!("{path}/messages"), message).await.problem(404);
        user.post(&format!("{path}/rewind"), json!({ "to": "end" })).await.problem(404);
        user.post(&format!("{path}/fork"), json!({})).await.problem(404);
        user.patch(&path, json!({ "title": "x" })).await.problem(404);
        let decide = format!("{path}/tool_calls/call_1/decision");
        user.post(&decide, json!({ "type": "approve" })).await.problem(404);
    }

    let messages = format!("{path}/messages");
    for body in [
        json!({}),
        json!({ "id": "x", "text": "hello" }),
        json!({ "id": Uuid::nil(), "text": "hello" }),
        json!({ "id": Uuid::now_v7(), "text": "  " }),
        json!({ "id": Uuid::now_v7(), "text": "x".repeat(32_001) }),
    ] {
        assert!(user.post(&messages, body).await.problem(422).is_some());
    }
    user.post(&format!("{path}/rewind"), json!({ "to": "nowhere" })).await.problem(422);
    user.patch(&path, json!({ "title": "x".repeat(201) })).await.problem(422);
    user.post("/api/conversations", json!({ "id": Uuid::nil() })).await.problem(422);
    for query in ["limit=0", "limit=many", "from=somewhere"] {
        user.get(&format!("{messages}?{query}")).await.problem(422);
    }
    user.get("/api/conversations?after=x").await.problem(422);
    user.get("/api/search").await.problem(422);
    user.get(&format!("/api/search?q={}", "x".repeat(201))).await.problem(422);
    user.get(&format!("{path}/events?after=x")).await.problem(422);
    user.with("last-event-id", "x").get(&format!("{path}/events")).await.problem(422);
    user.request("POST", &messages, Some(("application/json", "{"))).await.problem(422);
    user.request("POST", &messages, Some(("text/plain", "{}"))).await.problem(415);
    let long = format!("\"{}\"", "x".repeat(256 * 1024));
    user.request("POST", &messages, Some(("application/json", &long))).await.problem(413);
}

async fn nobody_reaches_what_another_user_has(database: &TestDatabase) {
    let server = Server::start(database).await;
    let (owner, other) = (server.user(1), server.user(2));
    let path = conversation(&owner).await;
    let mut events = owner.follow(&format!("{path}/events")).await.unwrap();
    send(&owner, &path, "ask").await;
    events.run("waiting").await;
    for route in ["", "/messages", "/todos", "/usage", "/export", "/events"] {
        other.get(&format!("{path}{route}")).await.problem(404);
    }
    for route in ["/archive", "/unarchive", "/run", "/stop"] {
        other.post(&format!("{path}{route}"), json!({})).await.problem(404);
    }
    let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
    other.post(&format!("{path}/messages"), message).await.problem(404);
    other.post(&format!("{path}/rewind"), json!({ "to": "end" })).await.problem(404);
    other.post(&format!("{path}/fork"), json!({})).await.problem(404);
    other.patch(&path, json!({ "title": "x" })).await.problem(404);
    let decide = format!("{path}/tool_calls/call_1/decision");
    other.post(&decide, json!({ "type": "approve" })).await.problem(404);
    other.request("DELETE", &path, None).await.problem(404);
    assert_eq!(other.get("/api/conversations").await.expect(200)["items"], json!([]));
    assert_eq!(other.get("/api/search?q=ask").await.expect(200)["items"], json!([]));

    owner.post(&decide, json!({ "type": "approve" })).await.expect(200);
    events.rows_until("You said ask").await;
}
