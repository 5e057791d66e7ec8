pub mod chat;
pub mod sagents;
pub mod scope;
