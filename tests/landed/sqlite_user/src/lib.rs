pub mod accounts;
pub mod conversations;
pub mod sagents;
