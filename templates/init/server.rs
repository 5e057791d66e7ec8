//! `cargo run` serves a page for conversations with an agent, and prints its address.

use std::error::Error;
use std::io::{ErrorKind, IsTerminal as _, stderr};
use std::time::Duration;

use {{ krate }}::agent::Assistant;
use {{ module }}::web::{self, Web};
{% if has_login %}use {{ krate }}::login;
{% endif -%}
use {{ krate }}::model::Model;
use {{ runtime }}::session::{Coordinator, SessionOptions};
use tokio::net::TcpListener;
{%- if let Some(members) = members && members.uses_uuid %}
use uuid::Uuid;
{%- endif %}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
    let url = {{ opening.url }};
    let pool = {{ module }}::connect(&url).await?;
    sqlx::migrate!({{ opening.migrations }}).run(&pool).await?;
    println!("{{ opening.opened }}");
{%- if let Some(members) = members %}

    // Both are in the {{ members.noun }}.
    for user in [{{ members.owner_ids }}] {
        sqlx::query(r#"{{ members.join }}"#)
            .bind(user)
            .bind({{ members.group_id }})
            .execute(&pool)
            .await?;
    }
{%- endif %}
    let model = Model::from_env()?;
    println!("the model is {}", model.name());

    let conversations = {{ module }}::{{ context }}::new(pool);
    // After a kill, the next process goes on with the answer this much later.
    let run_lease = Duration::from_secs(6);
    let options = SessionOptions {
        run_lease,
        ..SessionOptions::default()
    };
    let coordinator = Coordinator::with_options(conversations.clone(), options);
    let web = Web::new(conversations, coordinator.clone(), Assistant::new(model));
    let app = {% if has_login %}login::routes().merge(web::router(web.clone())){% else %}web::router(web.clone()){% endif %};

    let listener = listen().await?;
    println!("http://{}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served?,
        () = stopped() => eprintln!("stopping"),
    }
    web.close_streams();
    let ended = coordinator.shutdown(Duration::from_secs(10)).await;
    for lost in &ended.unsaved {
        eprintln!(
            "conversation {} is not saved: {}",
            lost.conversation_id, lost.error
        );
    }
    Ok(())
}

/// Listens on the port that `PORT` names, and only to this computer.
async fn listen() -> Result<TcpListener, Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "8080".into());
    let port: u16 = port
        .parse()
        .map_err(|_| format!("PORT is {port:?}, which is not the number of a port"))?;
    match TcpListener::bind(("127.0.0.1", port)).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(format!("port {port} is taken: set PORT to another one, or to 0 for any").into())
        }
        listener => Ok(listener?),
    }
}

/// Waits until the process has to end.
async fn stopped() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminated) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
        return;
    }
    drop(interrupted.await);
}
