//! Where nobody signs in, a site must not reach the server through a name of its own: DNS rebinding.

use sagents::web::Web;
use sagents::{OwnerColumn, Tables};
use serde_json::json;

use crate::client::Client;
use crate::context::{Context, Everybody};
use crate::support::TestDatabase;
use crate::support::context::Conversations;
use crate::{Server, on_both_databases, serve, serve_context};

on_both_databases!(
    without_a_login_another_name_of_the_server_is_refused,
    without_a_login_the_names_of_this_computer_and_those_of_the_application_are_known,
    a_refused_host_says_how_the_application_allows_it,
    with_a_login_any_host_is_known_unless_the_application_names_some,
);

const SHARED: Tables = Tables::new(1, "sagents_", OwnerColumn::none());

async fn without_a_login(
    store: &Conversations,
    configure: impl FnOnce(Web<Context<Everybody>>) -> Web<Context<Everybody>>,
) -> Client {
    serve_context(store, configure).await
}

/// As a browser sends it from a page of that host.
fn from_page(client: &Client, host: &str) -> Client {
    client.with("host", host).with("sec-fetch-site", "same-origin").with("origin", format!("http://{host}"))
}

async fn without_a_login_another_name_of_the_server_is_refused(database: &TestDatabase) {
    let store = database.store(&SHARED).await;
    let client = without_a_login(&store, |web| web).await;
    let evil = from_page(&client, "evil.example:18472");
    for reply in [
        evil.get("/api/conversations").await,
        evil.post("/api/conversations", json!({})).await,
        evil.get("/api/nowhere").await,
        evil.get("/").await,
        evil.get("/assets/app.js").await,
    ] {
        assert_eq!(reply.status, 421, "{reply:?}");
    }
    let list = client.get("/api/conversations").await.expect(200);
    assert_eq!(list["items"], json!([]), "nothing was created");
}

async fn without_a_login_the_names_of_this_computer_and_those_of_the_application_are_known(database: &TestDatabase) {
    let store = database.store(&SHARED).await;
    let client =
        without_a_login(&store, |web| web.with_hosts(["Chat.example.com", "192.0.2.7", "[2001:db8::7]"])).await;
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:8080",
        "[::1]:8080",
        "chat.example.com",
        "CHAT.example.com:443",
        "192.0.2.7",
        "[2001:db8::7]:8080",
    ] {
        let own = from_page(&client, host);
        own.get("/api/conversations").await.expect(200);
        assert_eq!(own.get("/").await.status, 200, "{host}");
    }
    for host in [
        "",
        "example.com",
        "localhost.evil.example",
        "localhost@evil.example",
        "chat.example.com.",
        "chat.example.com evil.example",
        "127.0.0.2",
        "2001:db8::7",
        "[::2]",
        "*",
    ] {
        let evil = from_page(&client, host);
        let detail = evil.get("/api/conversations").await.problem(421);
        assert!(detail.is_some(), "{host}");
    }
    // Neither may hide the other.
    let both = client.with("host", "localhost");
    let both = from_page(&both, "evil.example");
    both.get("/api/conversations").await.problem(421);
}

async fn a_refused_host_says_how_the_application_allows_it(database: &TestDatabase) {
    let store = database.store(&SHARED).await;
    let client = without_a_login(&store, |web| web).await;
    let refused = client.with("host", "Chat.example.com:8080");
    let detail = refused.get("/api/conversations").await.problem(421);
    assert_eq!(
        detail.unwrap(),
        "This server does not answer for the host `chat.example.com`. If it is one of its names, the \
         application has to list it with `Web::with_hosts`."
    );
    let any = without_a_login(&store, Web::with_any_host).await;
    let any = from_page(&any, "chat.example.com");
    any.get("/api/conversations").await.expect(200);
}

async fn with_a_login_any_host_is_known_unless_the_application_names_some(database: &TestDatabase) {
    let server = Server::start(database).await;
    let elsewhere = from_page(&server.user(1), "chat.example.com");
    elsewhere.get("/api/conversations").await.expect(200);

    let web = server.web.clone().with_hosts(["chat.example.com"]);
    let (client, _) = serve(web.router()).await;
    let user = client.with("x-user", 1);
    from_page(&user, "chat.example.com").get("/api/conversations").await.expect(200);
    from_page(&user, "evil.example").get("/api/conversations").await.problem(421);
}
