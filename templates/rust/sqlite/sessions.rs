{% extends "rust/sessions.rs" %}

{% block is_permanent %}
/// Whether the database refuses what it was given, which it will do again: too much of it, the wrong
/// type, or against a constraint. So does a pool that was closed. Everything else may have passed by
/// the next time.
fn is_permanent(error: &sqlx::Error) -> bool {
    const SQLITE_TOOBIG: u32 = 18;
    const SQLITE_CONSTRAINT: u32 = 19;
    const SQLITE_MISMATCH: u32 = 20;
    let permanent = [SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH];
    matches!(error, sqlx::Error::PoolClosed)
        || code(error).is_some_and(|code| permanent.contains(&code))
}
{%- endblock %}
