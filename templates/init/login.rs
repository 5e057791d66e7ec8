//! A login without passwords, to try the application as different users. Not for production.
//!
//! Replace it with your application's login. The routes only need [`{{ scope_type }}`] to be an extractor.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{Html, IntoResponse, Redirect};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use sagents::web::{Problem, headers, same_site};
use serde::Deserialize;
use serde_json::{Value, json};
{%- if uses_uuid %}
use uuid::Uuid;
{%- endif %}
{%- if let Some(import) = scope_import %}

use {{ import }};
{%- endif %}

/// A user of the example.
struct User {
    /// The value of the cookie.
    id: &'static str,
    name: &'static str,
    scope: {{ scope_type }},
}

fn users() -> [User; {{ users.len() }}] {
    [
{%- for (id, name, scope) in users %}
        User { id: "{{ id }}", name: "{{ name }}", scope: {{ scope }} },
{%- endfor %}
    ]
}

/// The caller, for every route of the conversations.
impl<S: Send + Sync> FromRequestParts<S> for {{ scope_type }} {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Ok(signed_in(&parts.headers)?.scope)
    }
}

/// The login, and who's logged in.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/login", post(log_in))
        .route("/logout", post(log_out))
        .layer(from_fn(same_site))
        .route("/login", get(page))
        .route("/api/me", get(me))
        .layer(from_fn(headers))
}

/// The user that the cookie names.
fn signed_in(headers: &HeaderMap) -> Result<User, Problem> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    let id = cookies.find_map(|cookie| cookie.trim().strip_prefix("user="));
    let user = users().into_iter().find(|user| Some(user.id) == id);
    user.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED).detail("Log in first."))
}

async fn me(headers: HeaderMap) -> Result<Json<Value>, Problem> {
    let user = signed_in(&headers)?;
{%- match reader %}
{%- when Some(field) %}
    let read_only = user.scope.{{ field }}.is_none();
    Ok(Json(json!({ "name": user.name, "read_only": read_only, "sign_out": "/logout" })))
{%- when None %}
    Ok(Json(json!({ "name": user.name, "sign_out": "/logout" })))
{%- endmatch %}
}

#[derive(Deserialize)]
struct LogIn {
    user: String,
}

async fn log_in(Form(LogIn { user }): Form<LogIn>) -> Result<impl IntoResponse, Problem> {
    let user = users().into_iter().find(|known| known.id == user);
    let user = user.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND).detail("There is no such user."))?;
    let cookie = format!("user={}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000", user.id);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")))
}

async fn log_out() -> impl IntoResponse {
    let cookie = "user=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0";
    ([(header::SET_COOKIE, cookie)], Redirect::to("/login"))
}

async fn page() -> Html<String> {
    let button = |user: &User| {
        let User { id, name, .. } = user;
        format!(r#"<p><button class="button" name="user" value="{id}">{name}</button></p>"#)
    };
    let buttons: String = users().iter().map(button).collect();
    Html(format!(
        r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in</title>
<link rel="icon" href="/assets/icon.svg">
<link rel="stylesheet" href="/assets/app.css">
<main>
<h1>Who are you?</h1>
<form method="post" action="/login">{buttons}</form>
<p>There's no password: this login isn't for production.</p>
</main>
</html>
"#
    ))
}
