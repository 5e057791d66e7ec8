//! HTTP for the conversations: JSON routes, server-sent events, and a page that uses them.
//!
//! | route | what it does |
//! | --- | --- |
//! | `GET /api/conversations` | a page of the list: `order_by`, `archived`, `limit`, `after` |
//! | `POST /api/conversations` | creates one: `id` and `title`, both optional |
//! | `GET /api/conversations/{id}` | reads it |
//! | `PATCH /api/conversations/{id}` | renames it: `title`, which may be null |
//! | `DELETE /api/conversations/{id}` | deletes it |
//! | `POST …/archive`, `POST …/unarchive` | |
//! | `POST …/fork` | copies it up to a point: `at`, `id`, `title`, all optional |
//! | `GET …/messages` | a page of display messages: `from` (`last`, or `next` of a page), `limit`. It has fewer if they are large |
//! | `POST …/messages` | sends a message and starts the agent: `id` (a `UUIDv7`), `text` |
//! | `POST …/rewind` | stops the agent and takes back what is after a point: `to` |
//! | `POST …/run` | starts the agent, or lets it go on with an answer that was interrupted |
//! | `POST …/stop` | asks the agent to stop, or takes back its question |
//! | `POST …/tool_calls/{call}/decision` | a person's [`Decision`](super::Decision) about a tool call |
//! | `GET …/todos`, `GET …/usage` | |
//! | `GET …/export` | the conversation as a file |
//! | `GET …/events` | server-sent events: messages as they are stored, partial text, todos, the run |
//! | `GET /api/search` | a page of display messages that contain `q`: `limit`, `after` |
//! | `GET /`, `GET /assets/…` | the page |
//!
//! `…` is `/api/conversations/{id}`. A point is `"end"`, `{"through": id}` or `{"before": id}` with the id
//! of a message. Bodies are JSON. Errors are `application/problem+json`:
//!
//! | status | when |
//! | --- | --- |
//! | 403 | the scope may not write, or another site made the browser send the request |
//! | 404 | there is no such thing within the reach of the scope |
//! | 409 | somebody else was faster, or the agent is still working |
//! | 413, 415, 422 | the body is too long, not JSON, or not what the route takes |
//! | 421 | the host is not one of this server; see [`Web::with_hosts`] |
//! | 429 | the caller has too much open, or all callers together have; see [`Limits`] |
//! | 503 | the database is away; `Retry-After` says when to try again |
//!
//! Who is asking is decided by the application: [`router`] needs a scope that is an axum extractor.
//! The page also asks `GET /api/me` for `{"name": …}`, which is a route of the application's if there is
//! one.

mod agent;
mod body;
mod conversations;
mod events;
mod export;
mod guard;
mod hosts;
mod input;
mod limits;
mod messages;
{% if openai %}pub mod openai;
{% endif -%}
mod page;
mod problem;
mod runner;
mod runs;
mod streams;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use axum::{Extension, Router};
use uuid::Uuid;

use self::hosts::{Hosts, known_host};
use self::limits::Quota;
use self::runner::Runner;
use self::streams::Streams;
use super::{{ '{' }}{{ context }}, Error, Owner};
use crate::sagents::State;
use crate::sagents::session::{AgentSession, Coordinator, SessionError};
{%- if let Some(import) = scope_import %}
use {{ import }};
{%- endif %}

pub use self::agent::{Agent, AgentError, AgentRun, Outcome, StartCall};
pub use self::guard::{headers, same_site};
pub use self::limits::{Limit, Limits};
pub use self::problem::Problem;

/// The longest body of a request, in bytes.
const BODY_LIMIT: usize = 256 * 1024;

/// Who is asking.
type Caller = {{ scope_name }};

/// What the routes work with. Clones share it.
#[derive(Clone)]
pub struct Web {
    conversations: {{ context }},
    coordinator: Coordinator<{{ context }}>,
    runner: Arc<Runner>,
    hosts: Hosts,
    limits: Limits,
    streams: Streams,
    exports: Quota,
    pages: Quota,
}

impl Web {
    /// The agent answers what is sent.
    #[must_use]
    pub fn new(
        conversations: {{ context }},
        coordinator: Coordinator<{{ context }}>,
        agent: impl Agent,
    ) -> Self {
        let limits = Limits::default();
        Self {
            conversations,
            coordinator,
            runner: Arc::new(Runner::new(agent)),
            hosts: if Owner::IS_SHARED { Hosts::local() } else { Hosts::Any },
            streams: Streams::new(limits.streams),
            exports: Quota::new(limits.exports),
            pages: Quota::new(limits.page_bytes),
            limits,
        }
    }

    /// Sets what callers may have open at once. Call it before [`router`].
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self {
            streams: Streams::new(limits.streams),
            exports: Quota::new(limits.exports),
            pages: Quota::new(limits.page_bytes),
            limits,
            ..self
        }
    }

    /// Answers only requests for these hosts, and for `localhost`, `127.0.0.1` and `[::1]`. Others get 421.
    /// Ports don't matter. An IPv6 address is in brackets.
    ///
    /// With an owner, requests for any host are answered unless you call this. Without one, only those for
    /// the three local names are: nobody signs in, so a site whose name resolves to this server (DNS
    /// rebinding) could read and change every conversation.
    #[must_use]
    pub fn with_hosts(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.hosts = Hosts::named(names);
        self
    }

    /// Answers requests for any host, which is the default with an owner. Without one, call it only if the
    /// application has a login of its own, with cookies that browsers don't send for other hosts.
    #[must_use]
    pub fn with_any_host(mut self) -> Self {
        self.hosts = Hosts::Any;
        self
    }

    /// Ends the open event streams and refuses new ones. Call it when the server shuts down, which
    /// otherwise waits for them. Browsers connect again by themselves.
    pub fn close_streams(&self) {
        self.streams.close();
    }

    /// The session of a conversation that the caller owns.
    async fn session(
        &self,
        caller: &Arc<Caller>,
        id: Uuid,
    ) -> Result<AgentSession<{{ context }}>, SessionError<Error>> {
        let caller = Arc::clone(caller);
        self.coordinator.start_shared(caller, id, State::new()).await
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web")
            .field("coordinator", &self.coordinator)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

/// The routes and the page, to be merged or nested into the router of an application.
pub fn router<S>(web: Web) -> Router<S>
where
    Caller: FromRequestParts<S>,
    S: Clone + Send + Sync + 'static,
{
    let conversation = Router::new()
        .route(
            "/",
            get(conversations::show)
                .patch(conversations::rename)
                .delete(conversations::delete),
        )
        .route("/archive", post(conversations::archive))
        .route("/unarchive", post(conversations::unarchive))
        .route("/fork", post(conversations::fork))
        .route("/todos", get(conversations::todos))
        .route("/usage", get(conversations::usage))
        .route("/export", get(export::export))
        .route("/messages", get(messages::list).post(messages::send))
        .route("/rewind", post(messages::rewind))
        .route("/run", post(runs::start))
        .route("/stop", post(runs::stop))
        .route("/tool_calls/{call}/decision", post(runs::decide))
        .route("/events", get(events::follow));
    let api = Router::new()
        .route("/conversations", get(conversations::list).post(conversations::create))
        .nest("/conversations/{conversation}", conversation)
        .route("/search", get(messages::search))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || Problem::new(StatusCode::METHOD_NOT_ALLOWED))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(same_site));
    Router::new()
        .nest("/api", api)
        .merge(page::routes())
        .layer(from_fn(known_host))
        .layer(from_fn(headers))
        .layer(Extension(web))
}

/// Does something also if the client goes away in the middle of it.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR)))
}
{%- if is_own %}

/// Conversations have no owner: everybody who reaches the routes is asking.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        _: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self)
    }
}
{%- endif %}
