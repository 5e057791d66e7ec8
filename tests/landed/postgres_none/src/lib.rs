pub mod conversations;
pub mod sagents;
pub mod scope;
