//! `cargo run` serves a page for conversations with an agent, and prints its URL.

use std::error::Error;
use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use sagents::session::{Coordinator, SessionOptions};
use sagents::web::Web;
use tokio::net::TcpListener;
{%- if let Some(members) = members && members.uses_uuid %}
use uuid::Uuid;
{%- endif %}

use {{ krate }}::agent::Assistant;
{% if has_login %}use {{ krate }}::login;
{% endif -%}
use {{ krate }}::model::Model;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let log = tracing_subscriber::fmt().with_ansi(stderr().is_terminal());
    log.with_writer(stderr).init();
    let url = {{ opening.url }};
    let pool = sagents::{{ opening.database }}::connect(&url).await?;
    sqlx::migrate!({{ opening.migrations }}).run(&pool).await?;
    println!("{{ opening.opened }}");
{%- if let Some(members) = members %}

    // Both are in the {{ members.noun }}.
    for user in [{{ members.owner_ids }}] {
        sqlx::query({{ members.join }})
            .bind(user)
            .bind({{ members.group_id }})
            .execute(&pool)
            .await?;
    }
{%- endif %}
    let model = Model::from_env()?;
    println!("the model is {}", model.name());

    let conversations = {{ module }}::{{ context }}::new(pool);
    // After a kill, the next process continues an answer this much later.
    let run_lease = Duration::from_secs(6);
    let options = SessionOptions { run_lease, ..SessionOptions::default() };
    let coordinator = Coordinator::with_options(conversations.store(), options);
    let agent = Assistant::new(conversations.clone(), model);
    let web = Web::new(conversations, coordinator.clone(), agent);
    let app = {% if has_login %}login::routes().merge(web.router()){% else %}web.router(){% endif %};

    let port = std::env::var("PORT").unwrap_or_else(|_| "8080".into());
    let address = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind(&address).await;
    let failed = |error| format!("can't listen on {address}: {error}; set PORT to another one");
    let listener = listener.map_err(failed)?;
    println!("http://{}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served?,
        () = stopped() => eprintln!("stopping"),
    }
    web.close_streams();
    for lost in coordinator.shutdown(Duration::from_secs(10)).await.unsaved {
        let (id, error) = (lost.conversation_id, lost.error);
        eprintln!("conversation {id} isn't saved: {error}");
    }
    Ok(())
}

/// Waits until the process has to end.
async fn stopped() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
        return;
    }
    drop(interrupted.await);
}
