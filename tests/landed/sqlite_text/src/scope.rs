pub struct Scope {
    pub login: String,
}
