//! A group reads what its members have, and changes nothing.

use matrix::devices::web::{Agent, AgentError, AgentRun, Outcome, Web, router};
use matrix::devices::{Devices, Error, Group, NewConversation, Owner, OwnerScope, Reach, connect};
use matrix::sagents::Message;
use matrix::sagents::session::Coordinator;
use serde_json::json;
use uuid::Uuid;

use super::{conversation, said, send, serve};
use crate::database::Database;

struct Polite;

impl Agent for Polite {
    async fn run(&self, run: AgentRun) -> Result<Outcome, AgentError> {
        run.session.add_message(Message::assistant("Hello."))?;
        Ok(Outcome::Finished)
    }
}

/// Writes as a device, and reads what all of a club have.
struct Leader(Uuid);

impl OwnerScope for Leader {
    fn owner(&self) -> matrix::devices::Result<Owner> {
        Ok(Owner::new(self.0))
    }

    fn group(&self) -> matrix::devices::Result<Group> {
        Ok(Group::new("ours"))
    }

    fn reach(&self) -> matrix::devices::Result<Reach> {
        self.group().map(Reach::Group)
    }
}

#[tokio::test]
async fn a_caller_who_reads_as_a_group_writes_as_its_owner_only() {
    let database = Database::migrated(
        "INSERT INTO devices (id) VALUES
             ('00000000-0000-0000-0000-000000000001'), ('00000000-0000-0000-0000-000000000002');
         INSERT INTO club_devices (club, device) VALUES
             ('ours', '00000000-0000-0000-0000-000000000001'),
             ('ours', '00000000-0000-0000-0000-000000000002')",
    )
    .await;
    let layer = Devices::new(connect(&database.url()).await.unwrap());
    let (member, leader) = (Owner::new(Uuid::from_u128(1)), Leader(Uuid::from_u128(2)));
    let new = NewConversation::new();
    let id = layer.create_conversation(&member, new).await.unwrap().id;
    assert_eq!(layer.get_run(&leader, id).await.unwrap(), None);
    let cancel = layer.request_cancel(&leader, id).await;
    assert!(matches!(cancel, Err(Error::NotFound)), "{cancel:?}");
    let renewed = layer.renew_run(&leader, id, Uuid::now_v7()).await;
    assert!(matches!(renewed, Err(Error::NotFound)), "{renewed:?}");
    assert!(!layer.request_cancel(&member, id).await.unwrap());

    let export = layer.export_conversation(&leader, id).await.unwrap();
    for created in [true, false] {
        let import = layer.import_conversation(&leader, export.clone()).await;
        let imported = import.unwrap();
        assert_eq!(imported.created, created);
        assert_eq!(imported.conversation.device_id, leader.0);
    }
}

#[tokio::test]
async fn a_group_reads_and_follows_what_its_members_have_and_changes_nothing() {
    let database = Database::migrated(
        "INSERT INTO devices (id) VALUES ('00000000-0000-0000-0000-000000000001');
         INSERT INTO club_devices (club, device) VALUES ('ours', '00000000-0000-0000-0000-000000000001')",
    )
    .await;
    let layer = Devices::new(connect(&database.url()).await.unwrap());
    let web = Web::new(layer.clone(), Coordinator::new(layer), Polite);
    let (client, _) = serve(router(web)).await;
    let member = client.with("x-device", Uuid::from_u128(1));
    let (ours, others) = (
        client.with("x-club", "ours"),
        client.with("x-club", "others"),
    );
    let path = conversation(&member).await;
    let mut events = ours.follow(&format!("{path}/events")).await.unwrap();
    send(&member, &path, "Good morning").await;
    events.rows_until("Hello.").await;
    events.run("finished").await;

    let rows = ours.get(&format!("{path}/messages")).await.expect(200);
    assert_eq!(said(&rows), ["user Good morning", "assistant Hello."]);
    let found = ours.get("/api/search?q=morning").await.expect(200);
    assert_eq!(said(&found), ["user Good morning"]);
    assert_eq!(
        ours.get("/api/conversations").await.expect(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    for route in ["", "/todos", "/usage"] {
        ours.get(&format!("{path}{route}")).await.expect(200);
    }
    assert_eq!(ours.get(&format!("{path}/export")).await.status, 200);
    for route in ["/archive", "/unarchive", "/run", "/stop"] {
        ours.post(&format!("{path}{route}"), json!({}))
            .await
            .problem(403);
    }
    let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
    ours.post(&format!("{path}/messages"), message)
        .await
        .problem(403);
    ours.post("/api/conversations", json!({}))
        .await
        .problem(403);
    ours.post(&format!("{path}/fork"), json!({}))
        .await
        .problem(403);
    ours.post(&format!("{path}/rewind"), json!({ "to": "end" }))
        .await
        .problem(403);
    ours.patch(&path, json!({ "title": "x" }))
        .await
        .problem(403);
    ours.request("DELETE", &path, None).await.problem(403);

    for route in ["", "/messages", "/todos", "/usage", "/export", "/events"] {
        others.get(&format!("{path}{route}")).await.problem(404);
    }
    assert_eq!(
        others.get("/api/conversations").await.expect(200)["items"],
        json!([])
    );
    client.get("/api/conversations").await.problem(403);
}
