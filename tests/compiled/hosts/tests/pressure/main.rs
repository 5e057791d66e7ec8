//! What happens to everybody else while much is done at once, or some calls wait, take long or are given up.

#[path = "../database/mod.rs"]
mod database;
mod of_database;
mod sessions;
#[path = "../storage/mod.rs"]
mod storage;
