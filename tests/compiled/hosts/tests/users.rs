use matrix::conversations::{self as layer, Conversations as Context};
use matrix::scopes::{Scope, User};

const CLEAR: &str = "DELETE FROM sagents_conversations";
const INSERT_OWNERS: &str = "INSERT INTO users (id, name) VALUES (0, 'a'), (1, 'b'), (2, 'c')";

fn scope(owner: usize) -> Scope {
    let id = i64::try_from(owner).unwrap();
    let name = "somebody".to_owned();
    Scope {
        user: User { id, name },
    }
}

/// The owners whose rows are the same ones.
fn space(owner: usize) -> usize {
    owner
}

fn created_by(owner: usize) -> Value {
    json!({ "type": "user", "id": owner })
}

fn key(owner: usize) -> Value {
    json!(owner)
}

macro_rules! key_of {
    ($row:expr) => {
        json!($row.user_id)
    };
}

/// There are no groups.
static GROUPS: usize = 0;

fn group(_: usize) -> Scope {
    scope(0)
}

fn member(_: usize, owner: usize) -> Scope {
    scope(owner)
}

fn join(_: usize, _: usize) -> String {
    String::new()
}

fn leave(_: usize, _: usize) -> String {
    String::new()
}
