//! Killed processes, servers that go away, full disks, locked rows, and calls that are given up.
//!
//! Some tests need a process of their own: they run this program again with the name of an ignored test.

mod clock;
mod crash;
mod disk;
mod files;
mod housekeeping;
mod killed;
mod locks;
mod outage;
mod round_trips;
mod searches;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod writers;

use std::env;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::Arc;

use sagents::{Content, DisplayMessage, MessagePage, NewDisplayMessage, Owner, Result, Role, State};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::support::context::Conversations;
use crate::support::pool::Pool;
use crate::support::postgres::Server;
use crate::support::{Kind, TABLES, TestDatabase};

fn user(id: i64) -> Owner {
    Owner::new("user", id)
}

fn alice() -> Owner {
    user(1)
}

fn bob() -> Owner {
    user(2)
}

/// A store with a pool of its own, on a database that has its tables.
async fn connect(url: &str) -> Conversations {
    let pool = if url.starts_with("sqlite") {
        Pool::Sqlite(sagents::sqlite::connect(url).await.unwrap())
    } else {
        Pool::Postgres(sagents::postgres::connect(url).await.unwrap())
    };
    pool.store(&TABLES)
}

/// A store on a new `SQLite` database.
async fn sqlite() -> (TestDatabase, sagents::sqlite::Store) {
    let database = TestDatabase::new(Kind::Sqlite);
    let store = database.sqlite(&TABLES).await;
    sagents::testing::create_tables(&store).await.unwrap();
    (database, store)
}

/// A server of its own with a database.
async fn server() -> (Arc<Server>, String) {
    let server = Arc::new(Server::start());
    server.create_database("app");
    let url = server.url("app");
    let store = connect(&url).await;
    sagents::testing::create_tables(&store).await.unwrap();
    (server, url)
}

/// Makes a call that blocks while it waits for the server.
async fn on_server(server: &Arc<Server>, call: impl FnOnce(&Server) + Send + 'static) {
    let server = Arc::clone(server);
    spawn_blocking(move || call(&server)).await.unwrap();
}

async fn conversation(store: &sagents::Store, owner: &Owner) -> Uuid {
    sagents::testing::create_conversation(store, owner).await.unwrap()
}

async fn append(
    store: &sagents::Store,
    owner: &Owner,
    id: Uuid,
    text: impl Into<String> + Send,
) -> Result<DisplayMessage> {
    store.append_display_message(owner, id, NewDisplayMessage::text(Role::User, text)).await
}

/// All display messages of alice's conversation.
async fn shown(store: &sagents::Store, id: Uuid) -> Vec<DisplayMessage> {
    let (mut rows, mut page) = (Vec::new(), MessagePage::first());
    loop {
        let loaded = store.load_display_messages(&alice(), id, page.limit(MessagePage::MAX_LIMIT)).await.unwrap();
        rows.extend(loaded.items);
        let Some(next) = loaded.next else { return rows };
        page = MessagePage::next(next);
    }
}

/// The texts of the agent's messages.
fn said(state: &State) -> Vec<String> {
    let contents = state.messages.iter().map(|message| message.content.as_ref());
    contents.map(|content| content.map(Content::text).unwrap_or_default()).collect()
}

/// A call that failed in the database, and its hint.
fn hint<T: std::fmt::Debug>(called: Result<T>) -> &'static str {
    let error = called.unwrap_err();
    error.hint().unwrap_or_else(|| panic!("{error:?} has no hint"))
}

/// This program again, to run one of its ignored tests.
fn this_program(test: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(arguments(test));
    program
}

fn arguments(test: &str) -> [&OsStr; 4] {
    ["--exact", test, "--ignored", "--nocapture"].map(OsStr::new)
}
