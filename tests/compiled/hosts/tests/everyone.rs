use matrix::notes::{self as layer, Everyone, Notes as Context};

const CLEAR: &str = "DELETE FROM conversations";
const INSERT_OWNERS: &str = "";

fn scope(_: usize) -> Everyone {
    Everyone
}

/// The owners whose rows are the same ones.
fn space(_: usize) -> usize {
    0
}

fn created_by(_: usize) -> Value {
    json!({ "type": "none" })
}

fn key(_: usize) -> Value {
    Value::Null
}

macro_rules! key_of {
    ($row:expr) => {
        Value::Null
    };
}

/// There are no groups.
static GROUPS: usize = 0;

fn group(_: usize) -> Everyone {
    scope(0)
}

fn member(_: usize, owner: usize) -> Everyone {
    scope(owner)
}

fn join(_: usize, _: usize) -> String {
    String::new()
}

fn leave(_: usize, _: usize) -> String {
    String::new()
}
