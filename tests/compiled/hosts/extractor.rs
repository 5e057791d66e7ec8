
impl<S: Sync> FromRequestParts<S> for Scope {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let id = named(parts, "x-user").ok_or(StatusCode::UNAUTHORIZED)?;
        let name = "somebody".to_owned();
        Ok(Self {
            user: User { id, name },
        })
    }
}
