//! Moves real databases along the migrations that the test generated, with the sqlx that it is compiled with: forwards,
//! back, forwards again and on to the end, and compares catalogue and rows with what they should be.
//!
//! `runner sqlite DIRECTORY` or `runner postgres DIRECTORY URL`. The directory has `fresh/<set>`, the migrations of a
//! fresh install, `pairs/<old>/<new>`, those of a project that went from one set to the other, and `special/`, those of
//! projects with a history of their own.

mod catalogue;
mod database;
mod rows;
mod scenarios;
#[path = "../sets.rs"]
mod sets;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use catalogue::Catalogue;
use database::{Migrations, Place, Session};
use rows::Rows;
use sets::{Change, Database, SETS, Set, change};

/// The versions of the migrations: the host's owners, our tables, their change, and the end of the old owner.
const CREATED: i64 = 2;
const CHANGED: i64 = 3;
const DROPPED: i64 = 4;

type Result<T, E = String> = std::result::Result<T, E>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (place, root) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sqlite", root] => (Place::Memory, root),
        ["postgres", root, url] => (Place::Server(url.to_owned()), root),
        _ => panic!("runner sqlite DIRECTORY | runner postgres DIRECTORY URL"),
    };
    let mut fresh = BTreeMap::new();
    for set in SETS {
        let session = Session::open(&place).await;
        let migrations = Migrations::read(&Path::new(root).join("fresh").join(set.name)).await;
        session.migrate(&migrations, CREATED).await.unwrap();
        fresh.insert(set.name, Catalogue::read(&session).await);
        session.close().await;
    }
    let (mut proven, mut failed) = (0, 0);
    for (old, new) in SETS.iter().flat_map(|old| SETS.iter().map(move |new| (old, new))) {
        let directory = Path::new(root).join("pairs").join(old.name).join(new.name);
        if !directory.exists() {
            continue;
        }
        let migrations = Migrations::read(&directory).await;
        let session = Session::open(&place).await;
        let pair = Pair { old, new, migrations, session: &session, fresh: &fresh[new.name] };
        match pair.prove().await {
            Ok(()) => proven += 1,
            Err(error) => {
                failed += 1;
                eprintln!("== from {} to {}\n{error}\n", old.name, new.name);
            }
        }
        session.close().await;
    }
    let failures = scenarios::run(&place, Path::new(root), |set| fresh[set].clone()).await;
    for failure in &failures {
        failed += 1;
        eprintln!("{failure}\n");
    }
    println!("{proven} proven, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A database that goes from one set to another.
struct Pair<'a> {
    old: &'static Set,
    new: &'static Set,
    migrations: Migrations,
    session: &'a Session,
    fresh: &'a Catalogue,
}

impl Pair<'_> {
    async fn prove(&self) -> Result<()> {
        let (old, new) = (self.old, self.new);
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(old, self.database())).await?;
        let before = self.state(old).await;

        self.migrate(CHANGED).await?;
        let changed = self.state(new).await;
        same("rows after the change", &before.rows.moved(old, new, self.database()), &changed.rows)?;
        same("tables after the change", self.fresh, &changed.catalogue.without_retired())?;
        self.go_back(&before).await?;

        self.migrate(CHANGED).await?;
        same("state after the same change again", &changed, &self.state(new).await)?;
        self.finish(&changed).await?;
        self.call(&changed.rows).await
    }

    /// The generated code of the new set answers for every owner. That of its kind has other names.
    #[cfg(feature = "calls")]
    async fn call(&self, rows: &Rows) -> Result<()> {
        let kind = self.new.kind();
        self.session.execute(&rows::rename(self.new, kind)).await?;
        for (owner, talks) in rows.talks(self.new) {
            let answered = match self.session.pool() {
                database::Pool::Sqlite(pool) => contexts::calls::on_sqlite(kind.name, pool, &owner, &talks).await,
                database::Pool::Postgres { pool, .. } => {
                    contexts::calls::on_postgres(kind.name, pool, &owner, &talks).await
                }
            };
            answered.map_err(|error| format!("calls for {owner:?}: {error}"))?;
        }
        Ok(())
    }

    #[cfg(not(feature = "calls"))]
    async fn call(&self, _: &Rows) -> Result<()> {
        Ok(())
    }

    /// As the code of the new set does, also into conversations of the old one.
    async fn write_as_new(&self) -> Result<()> {
        self.session.execute(&rows::write(self.new, self.database())).await
    }

    /// Down again. What was written since has an old owner only if its conversation has one.
    async fn go_back(&self, before: &State) -> Result<()> {
        let (old, new) = (self.old, self.new);
        self.write_as_new().await?;
        let mut written = rows::WRITTEN;
        if old.owner.is_some() && change(old, new) != Change::Stays {
            let state = self.state(new).await;
            let refusal = self.undo(CREATED).await.err().unwrap_or_default();
            if !refusal.contains("so it cannot be restored; nothing was changed") {
                return Err(format!("a conversation without an old owner must be refused, but: {refusal:?}"));
            }
            same("state after a refusal", &state, &self.state(new).await)?;
            self.session.execute(&rows::remove_new_conversation(new)).await?;
            written = rows::WRITTEN_IN_OLD;
        }
        self.undo(CREATED).await?;
        let back = self.state(old).await;
        same("tables after going back", &before.catalogue, &back.catalogue)?;
        let owner = old.owner.as_ref().map(|owner| rows::shown(&owner.key.of(1, self.database()), self.database()));
        let owners = vec![owner.as_deref(); written];
        same("owners of what was written in the meantime", &owners, &back.rows.late_owners(old))?;
        self.session.execute(&rows::remove_written(old)).await?;
        same("state after going back", before, &self.state(old).await)
    }

    /// The old owner goes: the tables are those of a fresh install.
    async fn finish(&self, changed: &State) -> Result<()> {
        let rows = changed.rows.without_retired(self.new, &changed.catalogue);
        let expected = State { catalogue: self.fresh.clone(), rows };
        if change(self.old, self.new) == Change::Stays || self.old.owner.is_none() {
            return same("state at the end", &expected, changed);
        }
        self.migrate(DROPPED).await?;
        same("state at the end", &expected, &self.state(self.new).await)?;
        self.undo(CHANGED).await?;
        let back = self.state(self.new).await;
        same("tables after the end was undone", &changed.catalogue, &back.catalogue)?;
        if self.undo(CREATED).await.is_ok() {
            return Err("an old owner that was dropped must not be restored".to_owned());
        }
        same("state after a refusal", &back, &self.state(self.new).await)?;
        self.migrate(DROPPED).await?;
        same("state at the end, again", &expected, &self.state(self.new).await)
    }

    fn database(&self) -> Database {
        self.session.database()
    }

    async fn migrate(&self, version: i64) -> Result<()> {
        let migrated = self.session.migrate(&self.migrations, version).await;
        migrated.map_err(|error| format!("migrating to version {version}: {error}"))
    }

    async fn undo(&self, version: i64) -> Result<()> {
        let undone = self.session.undo(&self.migrations, version).await;
        undone.map_err(|error| format!("going back to version {version}: {error}"))
    }

    async fn state(&self, set: &Set) -> State {
        State::read(self.session, set).await
    }
}

#[derive(Debug, Clone, PartialEq)]
struct State {
    catalogue: Catalogue,
    rows: Rows,
}

impl State {
    async fn read(session: &Session, set: &Set) -> Self {
        let catalogue = Catalogue::read(session).await;
        let rows = Rows::read(session, set, &catalogue).await;
        Self { catalogue, rows }
    }
}

/// The lines that are only in one of two values.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let lines = |value: &T| format!("{value:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
    let (expected, found) = (lines(expected), lines(found));
    let only = |sign: &str, here: &[String], there: &[String]| {
        here.iter().filter(|line| !there.contains(line)).map(|line| format!("{sign}{line}")).collect::<Vec<_>>()
    };
    let difference = [only("-", &expected, &found), only("+", &found, &expected)].concat();
    Err(format!("{what}\n{}", difference.join("\n")))
}
