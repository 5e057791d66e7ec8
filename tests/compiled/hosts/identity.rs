//! A crate that knows who is asking.

/// A caller, whose source a generator does not read.
#[derive(Debug, Clone)]
pub struct Caller {
    visitor_id: i64,
}

impl Caller {
    /// The visitor that the caller acts for.
    #[must_use]
    pub fn visitor_id(&self) -> i64 {
        self.visitor_id
    }
}
