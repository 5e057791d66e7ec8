//! Moves real databases along the migrations that the generator made: forwards, back, forwards again and on to the end,
//! and compares catalogue and rows with what they should be.

use std::collections::BTreeMap;
use std::path::Path;

use crate::catalogue::Catalogue;
use crate::database::{Migrations, Place, Session};
use crate::rows::{self, Rows};
use crate::scenarios;
use crate::sets::{Change, Database, SETS, Set, change};

/// The versions of the migrations: the host's owners, our tables, their change, and the end of the old owner.
pub const CREATED: u32 = 2;
pub const CHANGED: u32 = 3;
const DROPPED: u32 = 4;

pub type Result<T, E = String> = std::result::Result<T, E>;

/// The number of pairs that were proven, and the failures. The directory has `fresh/<set>`, the migrations of a fresh
/// install, `pairs/<old>/<new>`, those of a project that went from one set to the other, and `special/`, those of
/// projects with a history of their own.
pub async fn prove(place: &Place, root: &Path) -> (usize, Vec<String>) {
    let mut fresh = BTreeMap::new();
    for set in SETS {
        let session = Session::open(place).await;
        let migrations = Migrations::read(&root.join("fresh").join(set.name));
        session.migrate(&migrations, CREATED).await.unwrap();
        fresh.insert(set.name, Catalogue::read(&session).await);
        session.close().await;
    }
    let (mut proven, mut failures) = (0, Vec::new());
    for (old, new) in SETS.iter().flat_map(|old| SETS.iter().map(move |new| (old, new))) {
        if old.name == new.name {
            continue;
        }
        let migrations = Migrations::read(&root.join("pairs").join(old.name).join(new.name));
        let session = Session::open(place).await;
        let pair = Pair { old, new, migrations, session: &session, fresh: &fresh[new.name] };
        match pair.prove().await {
            Ok(()) => proven += 1,
            Err(error) => failures.push(format!("== from {} to {}\n{error}\n", old.name, new.name)),
        }
        session.close().await;
    }
    failures.extend(scenarios::run(place, root, |set| fresh[set].clone()).await);
    (proven, failures)
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
        self.check_with_former_owner().await?;
        self.go_back(&before).await?;

        self.migrate(CHANGED).await?;
        same("state after the same change again", &changed, &self.state(new).await)?;
        self.finish(&changed).await?;
        self.call(&changed.rows).await
    }

    /// The library answers for every owner.
    async fn call(&self, rows: &Rows) -> Result<()> {
        let tables = self.new.tables();
        self.session.calls().check(&tables).await?;
        for (owner, talks) in rows.talks(self.new) {
            self.session.calls().call(&tables, &owner, &talks).await?;
        }
        Ok(())
    }

    /// The library accepts the columns of former owners, if it knows them.
    async fn check_with_former_owner(&self) -> Result<()> {
        let is_left = self.old.owner.is_some() && change(self.old, self.new) != Change::Stays;
        let is_taken = self.new.field() == self.old.field();
        let columns = match (is_left, self.old.owner) {
            (false, _) | (_, None) => Vec::new(),
            (true, Some(owner)) if is_taken => vec![&*format!("old_{}", owner.field).leak()],
            (true, Some(owner)) => vec![owner.field],
        };
        self.session.calls().check(&self.new.tables().former_owner_columns(columns.leak())).await
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
        let owner = rows::shown(&old.owner_of(1, self.database()), self.database());
        let owners = vec![owner.as_str(); written];
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

    async fn migrate(&self, version: u32) -> Result<()> {
        let migrated = self.session.migrate(&self.migrations, version).await;
        migrated.map_err(|error| format!("migrating to version {version}: {error}"))
    }

    async fn undo(&self, version: u32) -> Result<()> {
        let undone = self.session.undo(&self.migrations, version).await;
        undone.map_err(|error| format!("going back to version {version}: {error}"))
    }

    async fn state(&self, set: &Set) -> State {
        State::read(self.session, set).await
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub catalogue: Catalogue,
    pub rows: Rows,
}

impl State {
    pub async fn read(session: &Session, set: &Set) -> Self {
        let catalogue = Catalogue::read(session).await;
        let rows = Rows::read(session, set, &catalogue).await;
        Self { catalogue, rows }
    }
}

/// The lines that are only in one of two values.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<()> {
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
