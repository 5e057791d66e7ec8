//! The parts of a request. If one is wrong, the response is a [`Problem`].

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{self, FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Problem;

/// The id of the conversation in the path.
#[derive(Deserialize)]
pub(super) struct Id {
    conversation: Uuid,
}

/// The conversation and the tool call in the path.
#[derive(Deserialize)]
pub(super) struct Call {
    pub conversation: Uuid,
    pub tool_call: String,
}

/// The query string.
pub(super) struct Query<T>(pub T);

/// The body, which is JSON.
pub(super) struct Body<T>(pub T);

impl Id {
    pub(super) fn get(&self) -> Uuid {
        self.conversation
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path(parts, state).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path(parts, state).await
    }
}

/// Text that isn't an id is the id of nothing.
async fn path<T, S>(parts: &mut Parts, state: &S) -> Result<T, Problem>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    match Path::from_request_parts(parts, state).await {
        Ok(Path(value)) => Ok(value),
        Err(_) => Err(Problem::new(StatusCode::NOT_FOUND)),
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Query::from_request_parts(parts, state).await {
            Ok(extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::invalid(rejection.body_text())),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(JsonRejection::BytesRejection(rejection)) => Err(Problem::new(rejection.status())),
            Err(JsonRejection::MissingJsonContentType(rejection)) => Err(Problem::new(rejection.status())),
            Err(rejection) => Err(Problem::invalid(rejection.body_text())),
        }
    }
}
