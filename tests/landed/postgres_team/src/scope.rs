pub struct Scope {
    pub user_id: i64,
    pub team_id: uuid::Uuid,
}
