//! A group reads what its members have, and changes nothing.

use sagents::{Group, KeyKind, OwnerColumn, Tables};
use serde_json::json;
use uuid::Uuid;

use crate::context::Member;
use crate::support::{Kind, TestDatabase};
use crate::{conversation, on_both_databases, said, send, serve_context};

const OF_DEVICES: Tables = Tables::new(1, "sagents_", OwnerColumn::uuid("device_id")).group(Group {
    table: "club_devices",
    group: "club",
    kind: KeyKind::Text,
    member: "device",
});

on_both_databases!(a_group_reads_and_follows_its_members_conversations_and_changes_nothing);

async fn a_group_reads_and_follows_its_members_conversations_and_changes_nothing(database: &TestDatabase) {
    let device = Uuid::from_u128(1);
    let (kind, value) = match database.kind {
        Kind::Sqlite => ("BLOB", format!("X'{}'", device.simple())),
        Kind::Postgres => ("UUID", format!("'{device}'")),
    };
    database
        .execute(&format!(
            "CREATE TABLE club_devices (club TEXT NOT NULL, device {kind} NOT NULL);
             INSERT INTO club_devices (club, device) VALUES ('ours', {value})"
        ))
        .await;
    let store = database.store(&OF_DEVICES).await;
    let client = serve_context::<Member>(&store, |web| web).await;
    let member = client.with("x-device", device);
    let (ours, others) = (client.with("x-club", "ours"), client.with("x-club", "others"));
    let path = conversation(&member).await;
    let mut events = ours.follow(&format!("{path}/events")).await.unwrap();
    send(&member, &path, "Good morning").await;
    events.rows_until("You said Good morning").await;
    events.run("finished").await;

    let rows = ours.get(&format!("{path}/messages")).await.expect(200);
    assert_eq!(said(&rows), ["user Good morning", "assistant You said Good morning"]);
    let found = ours.get("/api/search?q=morning").await.expect(200);
    assert_eq!(said(&found), ["assistant You said Good morning", "user Good morning"]);
    assert_eq!(ours.get("/api/conversations").await.expect(200)["items"].as_array().unwrap().len(), 1);
    for route in ["", "/todos", "/usage"] {
        ours.get(&format!("{path}{route}")).await.expect(200);
    }
    assert_eq!(ours.get(&format!("{path}/export")).await.status, 200);
    for route in ["/archive", "/unarchive", "/run", "/stop"] {
        ours.post(&format!("{path}{route}"), json!({})).await.problem(403);
    }
    let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
    ours.post(&format!("{path}/messages"), message).await.problem(403);
    ours.post("/api/conversations", json!({})).await.problem(403);
    ours.post(&format!("{path}/fork"), json!({})).await.problem(403);
    ours.post(&format!("{path}/rewind"), json!({ "to": "end" })).await.problem(403);
    ours.patch(&path, json!({ "title": "x" })).await.problem(403);
    ours.request("DELETE", &path, None).await.problem(403);

    for route in ["", "/messages", "/todos", "/usage", "/export", "/events"] {
        others.get(&format!("{path}{route}")).await.problem(404);
    }
    assert_eq!(others.get("/api/conversations").await.expect(200)["items"], json!([]));
    client.get("/api/conversations").await.problem(403);
}
