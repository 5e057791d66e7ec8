//! The hosts that the server accepts.
//!
//! A login protects itself: browsers send a cookie only to the host that set it. Without one, a site whose name
//! resolves to this server has the same origin as the page, and could read everything.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Backend;
use super::problem::{Problem, Result};

/// This computer's names for itself.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The hosts that the server accepts.
#[derive(Debug, Clone)]
pub(super) enum Hosts {
    Any,
    /// In lower case, without ports.
    Named(Arc<[String]>),
}

/// Refuses requests for other hosts.
pub(super) async fn known_host(Extension(web): Extension<Backend>, request: Request, next: Next) -> Response {
    match web.hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Hosts {
    pub(super) fn local() -> Self {
        Self::named::<&str>([])
    }

    pub(super) fn named<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        let name = |name: T| host(name.as_ref()).unwrap_or_else(|| name.as_ref().to_lowercase());
        let names = names.into_iter().map(name);
        Self::Named(LOCAL.map(str::to_owned).into_iter().chain(names).collect())
    }

    /// A request of HTTP/2 has its host in the URI. If a request names several hosts, all of them must be accepted.
    fn check(&self, request: &Request) -> Result<()> {
        let Self::Named(names) = self else {
            return Ok(());
        };
        let uri = request.uri().authority().map(Authority::as_str);
        let headers = request.headers().get_all(header::HOST).into_iter();
        let headers = headers.map(|value| value.to_str().unwrap_or_default());
        let mut hosts = uri.into_iter().chain(headers).map(host).peekable();
        if hosts.peek().is_none() {
            return Err(misdirected("The request does not say for which host it is."));
        }
        for host in hosts {
            let Some(host) = host else {
                return Err(misdirected("The request is for a host without a valid name."));
            };
            if !names.contains(&host) {
                return Err(misdirected(format!(
                    "This server does not answer for the host `{host}`. If it is one of its names, the \
                     application has to list it with `Web::with_hosts`."
                )));
            }
        }
        Ok(())
    }
}

/// The host of `host:port`, in lower case.
fn host(authority: &str) -> Option<String> {
    let authority = authority.parse::<Authority>().ok()?;
    Some(authority.host().to_ascii_lowercase())
}

fn misdirected(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::MISDIRECTED_REQUEST).detail(detail)
}
