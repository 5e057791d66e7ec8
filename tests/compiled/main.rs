//! Hosts that are compiled and linted, and whose generated tests run, on real databases.

#[path = "../support/mod.rs"]
mod support;
