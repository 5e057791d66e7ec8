//! What happens to everybody else while a disk is full, a lock is held, or calls take long and are given up.

#[path = "../database/mod.rs"]
mod database;
mod of_database;
#[path = "../storage/mod.rs"]
mod storage;
