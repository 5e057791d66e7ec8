{% extends "rust/sessions.rs" %}

{% block is_permanent %}
/// Whether the database refuses what it was given, which it will do again: a value that it cannot
/// hold, too much of it, or against a constraint. So does a pool that was closed. Everything else may
/// have passed by the next time.
fn is_permanent(error: &sqlx::Error) -> bool {
    // Classes of SQLSTATE: wrong data, violated constraint, exceeded limit.
    let permanent = ["22", "23", "54"];
    matches!(error, sqlx::Error::PoolClosed)
        || code(error).is_some_and(|code| permanent.iter().any(|class| code.starts_with(class)))
}
{%- endblock %}
