use matrix::devices::{self as layer, Devices as Context, Owner, Reach};
use matrix::scopes::DeviceScope;

const CLEAR: &str = "DELETE FROM device_conversations; DELETE FROM club_devices";
const INSERT_OWNERS: &str = "INSERT INTO devices (id) VALUES
    ('00000000-0000-0000-0000-000000000000'),
    ('00000000-0000-0000-0000-000000000001'),
    ('00000000-0000-0000-0000-000000000002')";

fn scope(owner: usize) -> DeviceScope {
    DeviceScope {
        device_id: Some(id(owner)),
        club: Some("nobody's".to_owned()),
    }
}

fn id(owner: usize) -> Uuid {
    Uuid::from_u128(owner as u128)
}

/// The owners whose rows are the same ones.
fn space(owner: usize) -> usize {
    owner
}

fn created_by(owner: usize) -> Value {
    json!({ "type": "device", "id": id(owner) })
}

fn key(owner: usize) -> Value {
    json!(id(owner))
}

macro_rules! key_of {
    ($row:expr) => {
        json!($row.device_id)
    };
}

/// An owner may be in all of them, and in each of them several times.
static GROUPS: usize = 2;

fn group(group: usize) -> DeviceScope {
    DeviceScope {
        device_id: None,
        club: Some(format!("club {group}")),
    }
}

fn member(of: usize, owner: usize) -> Reach {
    group(of).member(Owner::new(id(owner))).unwrap()
}

fn join(owner: usize, group: usize) -> String {
    let id = id(owner);
    format!("INSERT INTO club_devices (club, device) VALUES ('club {group}', '{id}')")
}

fn leave(owner: usize, group: usize) -> String {
    let id = id(owner);
    format!("DELETE FROM club_devices WHERE club = 'club {group}' AND device = '{id}'")
}
