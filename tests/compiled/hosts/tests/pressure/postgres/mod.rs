//! What can happen on `PostgreSQL` only.

mod searches;
mod writers;

use matrix::scopes::{Scope, User};

static ALICE: Scope = user(1);
static BOB: Scope = user(2);

const USERS: &str = "INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')";

const fn user(id: i64) -> Scope {
    let name = String::new();
    Scope {
        user: User { id, name },
    }
}
