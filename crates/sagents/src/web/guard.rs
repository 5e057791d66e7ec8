//! Headers that limit what a browser allows the page, and a check that refuses requests from other sites.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Problem;

/// Only scripts of the page itself, nothing from other origins, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Middleware that adds security headers to responses: a content security policy, and no caching unless the response
/// says otherwise.
///
/// The routes have it already. Add it with [`from_fn`](axum::middleware::from_fn) to pages of your own.
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

/// Middleware that refuses requests which another site makes a browser send (CSRF). Clients that aren't browsers pass:
/// they have nobody else's cookies.
///
/// The routes have it already. Add it with [`from_fn`](axum::middleware::from_fn) to forms of your own.
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
    // Browsers omit it if the server has no HTTPS.
    let host = text(header::HOST);
    text(header::ORIGIN).is_none_or(|origin| origin.split_once("://").map(|(_, origin)| origin) == host)
}
