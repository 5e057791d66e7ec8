//! The program in temporary hosts, without compiling them: what it says, writes and refuses. Most tests call it as a
//! function; those that ask about a process run the real program.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod chain;
mod docs;
mod groups;
mod help;
mod hosts;
mod interrupted;
mod laws;
mod library;
mod owners;
mod package;
mod refused;
mod report;
mod rerun;
mod seam;
mod shared_scopes;
mod size;
mod stacks;
mod surroundings;
mod tables;
mod tenants;
mod transcript;
mod up_to_date;
mod update;
mod web;
