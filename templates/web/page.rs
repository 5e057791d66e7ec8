//! The page, which is in the binary.

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};

const INDEX: &str = include_str!("assets/index.html");

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    const STYLE: &str = "text/css; charset=utf-8";
    const IMAGE: &str = "image/svg+xml";

    Router::new()
        .route("/", get(index))
        .route("/assets/api.js", file(SCRIPT, include_str!("assets/api.js")))
        .route("/assets/app.css", file(STYLE, include_str!("assets/app.css")))
        .route("/assets/app.js", file(SCRIPT, include_str!("assets/app.js")))
        .route("/assets/chat.js", file(SCRIPT, include_str!("assets/chat.js")))
        .route("/assets/composer.js", file(SCRIPT, include_str!("assets/composer.js")))
        .route("/assets/conversation.js", file(SCRIPT, include_str!("assets/conversation.js")))
        .route("/assets/dialog.js", file(SCRIPT, include_str!("assets/dialog.js")))
        .route("/assets/dom.js", file(SCRIPT, include_str!("assets/dom.js")))
        .route("/assets/icon.svg", file(IMAGE, include_str!("assets/icon.svg")))
        .route("/assets/inline.js", file(SCRIPT, include_str!("assets/inline.js")))
        .route("/assets/list.js", file(SCRIPT, include_str!("assets/list.js")))
        .route("/assets/markdown.js", file(SCRIPT, include_str!("assets/markdown.js")))
        .route("/assets/message.js", file(SCRIPT, include_str!("assets/message.js")))
        .route("/assets/outbox.js", file(SCRIPT, include_str!("assets/outbox.js")))
        .route("/assets/panel.js", file(SCRIPT, include_str!("assets/panel.js")))
        .route("/assets/stream.js", file(SCRIPT, include_str!("assets/stream.js")))
        .route("/assets/tool.js", file(SCRIPT, include_str!("assets/tool.js")))
}

async fn index(OriginalUri(uri): OriginalUri) -> Response {
    match index_at(&uri) {
        Some(text) => with_type("text/html; charset=utf-8", text),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The links of the page are relative to its directory. A router that is nested at `/chat` has the page
/// there, which is a file in the directory above.
fn index_at(uri: &Uri) -> Option<String> {
    let (_, name) = uri.path().rsplit_once('/')?;
    if name.is_empty() {
        return Some(INDEX.to_owned());
    }
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte));
    is_plain.then(|| INDEX.replace("\"assets/", &format!("\"{name}/assets/")))
}

fn file<S: Clone + Send + Sync + 'static>(kind: &'static str, text: &'static str) -> MethodRouter<S> {
    get(async move || with_type(kind, text))
}

/// A new version of the program has other files at the same addresses, so browsers have to ask again.
fn with_type(kind: &'static str, text: impl IntoResponse) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}
