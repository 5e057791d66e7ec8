pub struct User {
    pub id: i64,
}

pub struct Scope {
    pub user: User,
}
