//! Errors as `application/problem+json`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::Error;
use crate::session::SessionError;

/// The result of a handler.
pub(super) type Result<T> = std::result::Result<T, Problem>;

/// After how many seconds a client may try again.
const RETRY_AFTER: &str = "2";

/// An error response, as `application/problem+json`. It tells the client what to do about it, and no internals.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: Option<String>,
}

impl Problem {
    /// A problem with this status.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, detail: None }
    }

    /// Sets the detail, which the page shows to people.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The request doesn't fit the route.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY).detail(detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT).detail(detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, detail } = self;
        let mut body = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
        });
        if let Some(detail) = detail {
            body["detail"] = detail.into();
        }
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], Json(body)).into_response();
        let is_transient = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
        if is_transient.contains(&status) {
            let seconds = HeaderValue::from_static(RETRY_AFTER);
            drop(response.headers_mut().insert(header::RETRY_AFTER, seconds));
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let status = StatusCode::from_u16(error.status_code());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            let source = error as &dyn std::error::Error;
            tracing::error!(target: "sagents", error = source, hint = error.hint(), "a request failed");
        }
        match error {
            Error::Invalid(detail) => Self::invalid(detail),
            Error::Conflict { .. } => Self::conflict("The conversation has changed. Try again."),
            Error::NoOwner => Self::new(status).detail("You may read this, but not change it."),
            Error::Ambiguous => Self::conflict("Several members of the group have this conversation."),
            Error::Host { message, .. } => Self::new(status).detail(message),
            _ => Self::new(status),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        if matches!(error, SessionError::StateOnly) {
            tracing::error!(target: "sagents", "the coordinator of the web routes needs a store");
        }
        match error {
            SessionError::Storage(error) => Self::from(&*error),
            SessionError::Conflict { .. } => Self::conflict("The conversation has changed. Try again."),
            SessionError::Undecided { .. } => Self::conflict("Tool calls wait for a decision."),
            SessionError::TimedOut | SessionError::Ended => Self::new(StatusCode::SERVICE_UNAVAILABLE),
            SessionError::StateOnly => Self::new(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}
