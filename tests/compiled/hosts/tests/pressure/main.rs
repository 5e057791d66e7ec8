//! Much at once, on a real database.

#[path = "../database/mod.rs"]
mod database;
mod sessions;
#[path = "../storage/mod.rs"]
mod storage;
