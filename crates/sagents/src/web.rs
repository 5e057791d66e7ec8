//! HTTP for your conversations: JSON routes, server-sent events, and a page that uses them.
//!
//! Your application implements two traits: [`ConversationContext`], so that the routes create, list, change and delete
//! conversations through your own code, and [`Agent`], which answers messages. Who's calling is up to you, too: the
//! scope of your context is an axum extractor, and its rejection is the response to an unauthenticated request.
//!
//! ```no_run
//! # async fn serve<C, A>(conversations: C, coordinator: sagents::session::Coordinator, agent: A) -> std::io::Result<()>
//! # where
//! #     C: sagents::web::ConversationContext<Scope: axum::extract::FromRequestParts<()>>,
//! #     A: sagents::web::Agent,
//! # {
//! let web = sagents::web::Web::new(conversations, coordinator.clone(), agent);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, web.router()).await
//! # }
//! ```
//!
//! # Routes
//!
//! | route | what it does |
//! | --- | --- |
//! | `GET /api/conversations` | returns a page of the list: `order_by`, `archived`, `limit`, `after` |
//! | `POST /api/conversations` | creates a conversation: `id` and `title`, both optional |
//! | `GET /api/conversations/{id}` | returns it |
//! | `PATCH /api/conversations/{id}` | renames it: `title`, which may be null |
//! | `DELETE /api/conversations/{id}` | deletes it |
//! | `POST …/archive`, `POST …/unarchive` | |
//! | `POST …/fork` | copies it up to a point: `at`, `id`, `title`, all optional |
//! | `GET …/messages` | returns a page of display messages: `from` (`last`, or `next` of a page), `limit`. A page of large messages has fewer |
//! | `POST …/messages` | sends a message and starts the agent: `id` (a `UUIDv7`), `text` |
//! | `POST …/rewind` | stops the agent and takes back everything after a point: `to` |
//! | `POST …/run` | starts the agent, or lets it continue an answer that was interrupted |
//! | `POST …/stop` | asks the agent to stop, or takes back its question |
//! | `POST …/tool_calls/{tool_call_id}/decision` | stores a person's [`Decision`](crate::Decision) about a tool call |
//! | `GET …/todos`, `GET …/usage` | |
//! | `GET …/export` | returns the conversation as a file |
//! | `GET …/events` | server-sent events: messages as they're stored, drafts, todos, the run |
//! | `GET /api/search` | returns a page of display messages that contain the words of `q`: `limit`, `after` |
//! | `GET /`, `GET /assets/…` | the page |
//!
//! `…` is `/api/conversations/{id}`. A point is `"end"`, `{"through": id}` or `{"before": id}` with the id of a
//! message. Bodies are JSON.
//!
//! The page also calls `GET /api/me`, which your application may answer with `{"name": …}`. Optional keys are
//! `initials`, `read_only`, and `sign_out` with the URL of a form.
//!
//! # Errors
//!
//! Errors are `application/problem+json`:
//!
//! | status | when |
//! | --- | --- |
//! | 403 | the scope may not write, or another site made the browser send the request |
//! | 404 | the scope doesn't reach any such thing |
//! | 409 | somebody else was faster, or the agent is still working |
//! | 413, 415, 422 | the body is too long, not JSON, or doesn't fit the route |
//! | 421 | the request is for a host that the server doesn't accept; see [`Web::with_hosts`] |
//! | 429 | the caller has too much open, or all callers together have; see [`Limits`] |
//! | 503 | the database is unavailable; `Retry-After` says when to try again |
//!
//! An [`Error::Host`](crate::Error::Host) of your context has its own status, and its message is the detail.
//!
//! `axum::serve` waits forever for a request's headers. If the server is open to the internet, put a reverse proxy with
//! a timeout in front of it.

mod agent;
mod body;
mod caller;
mod context;
mod conversations;
mod events;
mod export;
mod guard;
mod hosts;
mod input;
mod limits;
mod messages;
mod page;
mod problem;
mod runner;
mod runs;
mod streams;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Request};
use axum::handler::Handler as _;
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Extension, Router};
use uuid::Uuid;

use self::caller::Caller;
use self::hosts::{Hosts, known_host};
use self::limits::Quota;
use self::runner::Runner;
use self::streams::Streams;
use crate::session::{AgentSession, Coordinator, SessionError};
use crate::{OwnerColumn, Store};

pub use self::agent::{Agent, AgentError, AgentRun, Outcome, StartCall};
pub use self::context::ConversationContext;
pub use self::guard::{headers, same_site};
pub use self::limits::{Limit, Limits};
pub use self::page::PageOptions;
pub use self::problem::Problem;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The routes of an application, before they're a [router](Self::router). Clones share everything.
pub struct Web<C> {
    context: Arc<C>,
    backend: Backend,
    page: Arc<PageOptions>,
}

impl<C: ConversationContext> Web<C> {
    /// Routes on a context and on sessions of the same store. The agent answers messages.
    #[must_use]
    pub fn new(context: C, coordinator: Coordinator, agent: impl Agent) -> Self {
        let backend = Backend::new(context.store(), coordinator, Runner::new(agent));
        Self { context: Arc::new(context), backend, page: Arc::default() }
    }

    /// Sets how much memory and how many connections callers can use.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.backend.limit(limits);
        self
    }

    /// Accepts only requests for these hosts, and for `localhost`, `127.0.0.1` and `[::1]`. Others get 421. Ports don't
    /// matter. An IPv6 address is in brackets.
    ///
    /// With an owner, requests for any host are accepted unless you call this. Without one, only those for the three
    /// local names are: nobody signs in, so a site whose name resolves to this server (DNS rebinding) could read and
    /// change every conversation.
    #[must_use]
    pub fn with_hosts(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.backend.hosts = Hosts::named(names);
        self
    }

    /// Accepts requests for any host, which is the default with an owner. Without one, call it only if your application
    /// has a login of its own, with cookies that browsers don't send to other hosts.
    #[must_use]
    pub fn with_any_host(mut self) -> Self {
        self.backend.hosts = Hosts::Any;
        self
    }

    /// Sets the page's title, colors and files.
    #[must_use]
    pub fn with_page(mut self, page: PageOptions) -> Self {
        self.page = Arc::new(page);
        self
    }

    /// Continues up to `limit` conversations of all owners whose process ended in the middle of a run, and returns their
    /// number; see [`Store::claim_abandoned_runs`]. Call it at the start and then periodically: otherwise such a
    /// conversation continues only when its owner opens it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the database fails. What was claimed until then continues after the lease.
    pub async fn resume_abandoned_runs(&self, limit: u32) -> Result<usize, SessionError> {
        self.backend.resume_abandoned_runs(limit).await
    }

    /// Ends the open event streams and refuses new ones. Call it when the server shuts down, which otherwise waits for
    /// them. Browsers reconnect by themselves.
    pub fn close_streams(&self) {
        self.backend.streams.close();
    }

    /// The routes and the page, to be merged or nested into the router of your application.
    pub fn router<S>(&self) -> Router<S>
    where
        C::Scope: FromRequestParts<S>,
        S: Clone + Send + Sync + 'static,
    {
        let mut api = Router::new();
        for (path, route) in routes() {
            api = api.route(path, self.with_caller(route));
        }
        let api = api
            .fallback(async || Problem::new(StatusCode::NOT_FOUND))
            .layer(DefaultBodyLimit::max(self.backend.limits.body_bytes))
            .layer(from_fn(same_site));
        Router::new()
            .nest("/api", api)
            .merge(page::routes(&self.page).with_state(()))
            .layer(from_fn(known_host))
            .layer(from_fn(headers))
            .layer(Extension(self.backend.clone()))
    }

    /// Only this depends on the types of the application. Behind it, a request has an erased caller, so the handlers
    /// are compiled with this library.
    fn with_caller<S>(&self, route: MethodRouter) -> MethodRouter<S>
    where
        C::Scope: FromRequestParts<S>,
        S: Clone + Send + Sync + 'static,
    {
        let context = Arc::clone(&self.context);
        any(move |scope: C::Scope, mut request: Request| {
            drop(request.extensions_mut().insert(Caller::new(context, scope)));
            route.call(request, ())
        })
    }
}

impl<C> Clone for Web<C> {
    fn clone(&self) -> Self {
        Self { context: Arc::clone(&self.context), backend: self.backend.clone(), page: Arc::clone(&self.page) }
    }
}

impl<C> fmt::Debug for Web<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web")
            .field("coordinator", &self.backend.coordinator)
            .field("limits", &self.backend.limits)
            .field("hosts", &self.backend.hosts)
            .finish_non_exhaustive()
    }
}

/// The routes under `/api`.
fn routes() -> impl Iterator<Item = (&'static str, MethodRouter)> {
    let routes = [
        ("/conversations", get(conversations::list).post(conversations::create)),
        (
            "/conversations/{conversation}",
            get(conversations::show).patch(conversations::rename).delete(conversations::delete),
        ),
        ("/conversations/{conversation}/archive", post(conversations::archive)),
        ("/conversations/{conversation}/unarchive", post(conversations::unarchive)),
        ("/conversations/{conversation}/fork", post(conversations::fork)),
        ("/conversations/{conversation}/todos", get(conversations::todos)),
        ("/conversations/{conversation}/usage", get(conversations::usage)),
        ("/conversations/{conversation}/export", get(export::export)),
        ("/conversations/{conversation}/messages", get(messages::list).post(messages::send)),
        ("/conversations/{conversation}/rewind", post(messages::rewind)),
        ("/conversations/{conversation}/run", post(runs::start)),
        ("/conversations/{conversation}/stop", post(runs::stop)),
        ("/conversations/{conversation}/tool_calls/{tool_call}/decision", post(runs::decide)),
        ("/conversations/{conversation}/events", get(events::follow)),
        ("/search", get(messages::search)),
    ];
    let not_allowed = async || Problem::new(StatusCode::METHOD_NOT_ALLOWED);
    routes.into_iter().map(move |(path, route)| (path, route.fallback(not_allowed)))
}

/// The part of [`Web`] that handlers work with.
#[derive(Clone)]
struct Backend {
    store: Store,
    coordinator: Coordinator,
    runner: Arc<Runner>,
    hosts: Hosts,
    limits: Limits,
    streams: Streams,
    exports: Quota,
    /// The exports that have a connection of the database.
    readers: Quota,
    pages: Quota,
}

impl Backend {
    fn new(store: &Store, coordinator: Coordinator, runner: Runner) -> Self {
        let is_shared = store.tables().owner() == OwnerColumn::none();
        let limits = Limits::default();
        Self {
            store: store.clone(),
            coordinator,
            runner: Arc::new(runner),
            hosts: if is_shared { Hosts::local() } else { Hosts::Any },
            streams: Streams::new(limits.streams),
            exports: Quota::new(limits.exports),
            readers: Quota::new(Limit::new(1, (store.max_connections() / 4).max(1) as usize)),
            pages: Quota::new(limits.page_bytes),
            limits,
        }
    }

    fn limit(&mut self, limits: Limits) {
        self.streams = Streams::new(limits.streams);
        self.exports = Quota::new(limits.exports);
        self.pages = Quota::new(limits.page_bytes);
        self.limits = limits;
    }

    /// The session of a conversation that the caller owns.
    async fn session(&self, caller: &Caller, id: Uuid) -> Result<AgentSession, SessionError> {
        self.coordinator.start(caller, id).await
    }
}

/// Finishes the work even if the client disconnects.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR)))
}
