//! A crate that knows who is asking.

/// A caller. There may be more kinds of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Caller {
    /// Somebody who looks around.
    Visitor {
        /// The visitor that the caller acts for.
        id: i64,
        /// What the visitor speaks.
        language: String,
    },
}
