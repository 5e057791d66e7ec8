//! What keeps other sites away, and what tells browsers what the page may do.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Problem;

/// No script but those of the page, nothing from elsewhere, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers that tell a browser what the page may do.
pub async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        drop(headers.insert(name, HeaderValue::from_static(value)));
    }
    let cache = headers.entry(header::CACHE_CONTROL);
    let _ = cache.or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refuses what another site makes a browser send. A client that is not a browser has no cookies of
/// anybody else.
pub async fn same_site(request: Request, next: Next) -> Response {
    if is_own(request.headers()) {
        return next.run(request).await;
    }
    let detail = "The request comes from another site.";
    Problem::new(StatusCode::FORBIDDEN).detail(detail).into_response()
}

fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return matches!(site, "same-origin" | "none");
    }
    // Browsers leave it out where a server has no HTTPS.
    let host = text(header::HOST);
    text(header::ORIGIN).is_none_or(|origin| origin.split_once("://").map(|(_, origin)| origin) == host)
}
