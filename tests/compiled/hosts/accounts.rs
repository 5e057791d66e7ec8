//! Who is asking.

/// Somebody with an account.
#[derive(Debug, Clone)]
pub struct User {
    /// Where mail goes.
    pub email: String,
    /// The key.
    pub id: i64,
    /// Mail arrives there.
    pub confirmed: bool,
}

/// On whose behalf a call is made.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The caller.
    pub user: User,
}
