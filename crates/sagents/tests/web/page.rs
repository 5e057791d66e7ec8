//! The page and its files, at the root and where the application puts them.

use axum::Router;
use sagents::web::PageOptions;

use crate::support::TestDatabase;
use crate::{Server, on_both_databases, serve};

on_both_databases!(
    the_page_says_what_a_browser_may_do,
    an_application_nests_the_routes_where_it_likes,
    an_application_gives_the_page_its_own_looks,
);

async fn the_page_says_what_a_browser_may_do(database: &TestDatabase) {
    let server = Server::start(database).await;
    let page = server.client.get("/").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin")] {
        assert_eq!(page.header(name), Some(value));
    }
    let mut count = 0;
    for link in links(&page.body) {
        let file = server.client.get(&format!("/{link}")).await;
        assert_eq!(file.status, 200, "{link}");
        assert_eq!(file.header("cache-control"), Some("no-cache"));
        count += 1;
    }
    assert!(count >= 3, "{}", page.body);
    assert_eq!(server.user(1).get("/api/conversations").await.header("cache-control"), Some("no-store"));
}

async fn an_application_nests_the_routes_where_it_likes(database: &TestDatabase) {
    let server = Server::start(database).await;
    let routes = || server.web.router();
    let (client, _) = serve(Router::new().nest("/chat", routes()).nest("/team/{name}/talk/", routes())).await;
    for (page, directory) in [("/chat", "/"), ("/team/a/talk/", "/team/a/talk/")] {
        let text = client.get(page).await;
        assert_eq!(text.status, 200, "{page}");
        for link in links(&text.body) {
            assert_eq!(client.get(&format!("{directory}{link}")).await.status, 200, "{page} {link}");
        }
        let user = client.with("x-user", 1);
        let api = format!("{}/api/conversations", page.trim_end_matches('/'));
        let created = user.post(&api, serde_json::json!({})).await.expect(201);
        let path = format!("{api}/{}", created["id"].as_str().unwrap());
        user.get(&path).await.expect(200);
        user.get(&format!("{api}/nothing")).await.problem(404);
    }
}

async fn an_application_gives_the_page_its_own_looks(database: &TestDatabase) {
    let server = Server::start(database).await;
    let looks = PageOptions::new()
        .title("Acme & Sons")
        .sign_in("/in")
        .color("accent", "#7a1f5c", "#e7a6d0")
        .asset("icon.svg", "image/svg+xml", "<svg/>")
        .asset("logo.png", "image/png", vec![1, 2, 3]);
    let (client, _) = serve(server.web.clone().with_page(looks).router()).await;
    let page = client.get("/").await.body;
    assert!(page.contains("<title>Acme &amp; Sons</title>") && page.contains("content=\"/in\""), "{page}");
    assert!(links(&page).contains(&"assets/colors.css"), "{page}");
    let colors = client.get("/assets/colors.css").await;
    assert!(colors.body.contains("--accent: #7a1f5c;") && colors.body.contains("--accent: #e7a6d0;"), "{colors:?}");
    assert_eq!(client.get("/assets/icon.svg").await.body, "<svg/>");
    assert_eq!(client.get("/assets/logo.png").await.header("content-type"), Some("image/png"));
    assert_eq!(client.get("/assets/other.png").await.status, 404);
}

/// The files that the page links to.
fn links(page: &str) -> Vec<&str> {
    let attributes = page.split(['"']).skip(1).step_by(2);
    attributes.filter(|value| value.contains("assets/")).collect()
}
