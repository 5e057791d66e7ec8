use matrix::devices::{self as layer, Devices as Context};
use matrix::scopes::DeviceScope;

const CLEAR: &str = "DELETE FROM device_conversations";
const INSERT_OWNERS: &str = "INSERT INTO devices (id) VALUES
    ('00000000-0000-0000-0000-000000000000'),
    ('00000000-0000-0000-0000-000000000001'),
    ('00000000-0000-0000-0000-000000000002')";

fn scope(owner: usize) -> DeviceScope {
    DeviceScope {
        device_id: Uuid::from_u128(owner as u128),
    }
}

/// The owners whose rows are the same ones.
fn space(owner: usize) -> usize {
    owner
}

fn created_by(owner: usize) -> Value {
    json!({ "type": "device", "id": scope(owner).device_id })
}

fn with_owner(mut row: Value, owner: usize) -> Value {
    row["device_id"] = json!(scope(owner).device_id);
    row
}
