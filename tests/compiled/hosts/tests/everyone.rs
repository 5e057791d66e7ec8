use matrix::notes::{self as layer, Notes as Context};
use matrix::scopes::{Scope, User};

const CLEAR: &str = "DELETE FROM conversations";
const INSERT_OWNERS: &str = "";

fn scope(owner: usize) -> Scope {
    let id = i64::try_from(owner).unwrap();
    let name = "somebody".to_owned();
    Scope {
        user: User { id, name },
    }
}

/// The owners whose rows are the same ones.
fn space(_: usize) -> usize {
    0
}

fn created_by(_: usize) -> Value {
    json!({ "type": "none" })
}

fn with_owner(row: Value, _: usize) -> Value {
    row
}

/// There are no groups.
static GROUPS: usize = 0;

fn group(_: usize) -> Scope {
    scope(0)
}

fn join(_: usize, _: usize) -> String {
    String::new()
}

fn leave(_: usize, _: usize) -> String {
    String::new()
}
