//! Hosts that are compiled, linted and documented without a warning, and whose generated tests pass on a real database.
//!
//! Compiling takes the time here. So there are few workspaces with many contexts, each at the same place in every run, and
//! all share their dependencies. While the tests of one run, the next one is compiled.

mod customized;
mod documents;
mod edited;
mod init;
#[path = "../support/markdown.rs"]
mod markdown;
mod matrix;
#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod postgres;
mod sea_orm;
#[path = "../support/mod.rs"]
mod support;
mod workspace;
