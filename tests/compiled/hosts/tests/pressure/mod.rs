//! What happens to everybody else while a disk is full, a lock is held, many save at once, or calls take long and are
//! given up.

mod of_database;
mod sessions;
