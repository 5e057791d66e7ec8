#[derive(Debug, Clone)]
pub struct User {
    pub id: i64,
}

#[derive(Debug, Clone)]
pub struct Team {
    pub id: i64,
}

#[derive(Debug, Clone)]
pub struct Scope {
    pub user: User,
    pub team: Team,
}
