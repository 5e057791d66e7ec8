//! The quota of `create_conversation` at the routes.

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use customized::accounts::Scope;
use customized::conversations::NewConversation;
use sagents::session::Coordinator;
use sagents::web::{Agent, AgentError, AgentRun, Outcome, Web};
use tower::ServiceExt as _;

use crate::columns::{open, scope};

impl<S: Sync> FromRequestParts<S> for Scope {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(scope())
    }
}

struct Silent;

impl Agent for Silent {
    async fn run(&self, _: AgentRun) -> Result<Outcome, AgentError> {
        Ok(Outcome::Finished)
    }
}

#[tokio::test]
async fn the_quota_stops_the_route_with_the_hosts_own_error() {
    let (_database, conversations) = open().await;
    for _ in 0..99 {
        conversations.create_conversation(&scope(), NewConversation::default()).await.unwrap();
    }
    let coordinator = Coordinator::new(conversations.store());
    let router = Web::new(conversations, coordinator, Silent).router::<()>();
    let create = async || {
        let request = Request::post("/api/conversations").header("content-type", "application/json");
        let reply = router.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
        let status = reply.status();
        let body = to_bytes(reply.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(create().await.0, StatusCode::CREATED);
    let (status, problem) = create().await;
    assert_eq!(status, StatusCode::PAYMENT_REQUIRED);
    assert!(problem.contains("You can have 100 conversations."), "{problem}");
}
