//! What must stop a migration with nothing changed, and what must pass it unharmed.

use std::path::{Path, PathBuf};

use crate::catalogue::Catalogue;
use crate::database::{Migrations, Place, Session};
use crate::moves::{CHANGED, CREATED, Result, State, same};
use crate::rows;
use crate::sets::{Database, Set};

/// A second conversation of the same id, for another user of the same team.
const SAME_ID: &str = "INSERT INTO sagents_conversations (user_id, id, scope, inserted_at, updated_at)
    SELECT 20, id, scope, inserted_at, updated_at FROM sagents_conversations WHERE user_id = 10;";
const NOT_SAME_ID: &str = "DELETE FROM sagents_conversations WHERE title IS NULL;";
const NO_USER: &str = "UPDATE sagents_conversations SET user_id = 7777 WHERE title = '2' AND next_sequence = 102;";
const USER_AGAIN: &str = "UPDATE sagents_conversations SET user_id = 20 WHERE user_id = 7777;";
const REFERENCE: &str = "CREATE TABLE stars (user_id {{ integer }}, id {{ uuid }},
        FOREIGN KEY (user_id, id) REFERENCES sagents_conversations (user_id, id) ON DELETE CASCADE);
    INSERT INTO stars SELECT user_id, id FROM sagents_conversations;";

/// Why a migration stops, by database; nothing where it does not.
struct Stop {
    migrations: &'static str,
    old: &'static str,
    new: &'static str,
    cause: &'static str,
    on_sqlite: Option<&'static str>,
    on_postgres: Option<&'static str>,
    /// What takes the cause away.
    fix: &'static str,
}

const STOPS: &[Stop] = &[
    Stop {
        migrations: "special/without_backfill",
        old: "user",
        new: "team",
        cause: "",
        on_sqlite: Some(
            "there are conversations already: say with --backfill what their team_id is; nothing was changed",
        ),
        on_postgres: Some(
            "there are conversations already: say with --backfill what their team_id is; nothing was changed",
        ),
        fix: "DELETE FROM sagents_conversations;",
    },
    Stop {
        migrations: "special/partial_backfill",
        old: "user",
        new: "team",
        cause: "",
        on_sqlite: Some("the backfill leaves conversations without a team_id; nothing was changed"),
        on_postgres: Some("the backfill leaves conversations without a team_id; nothing was changed"),
        fix: "DELETE FROM sagents_conversations WHERE user_id = 10;",
    },
    Stop {
        migrations: "pairs/user/none",
        old: "user",
        new: "none",
        cause: SAME_ID,
        on_sqlite: Some("conversations of one id, which only their owners tell apart; nothing was changed"),
        on_postgres: Some("conversations of one id, which only their owners tell apart; nothing was changed"),
        fix: NOT_SAME_ID,
    },
    Stop {
        migrations: "pairs/user/team",
        old: "user",
        new: "team",
        cause: SAME_ID,
        on_sqlite: Some("conversations of one id that would have the same team_id; nothing was changed"),
        on_postgres: Some("conversations of one id that would have the same team_id; nothing was changed"),
        fix: NOT_SAME_ID,
    },
    Stop {
        migrations: "pairs/user_without_table/user",
        old: "user_without_table",
        new: "user",
        cause: NO_USER,
        on_sqlite: Some("there are conversations whose user_id is not in users; nothing was changed"),
        on_postgres: Some("violates foreign key constraint \"sagents_conversations_fkey\""),
        fix: USER_AGAIN,
    },
    Stop {
        migrations: "pairs/user/team",
        old: "user",
        new: "team",
        cause: REFERENCE,
        on_sqlite: Some("a table of your own has a foreign key onto these"),
        on_postgres: Some("cannot drop constraint sagents_conversations_pkey on table sagents_conversations"),
        fix: "DROP TABLE stars;",
    },
    Stop {
        migrations: "pairs/user/team",
        old: "user",
        new: "team",
        cause: "CREATE INDEX host_index ON sagents_conversations (title, user_id);",
        on_sqlite: Some("the tables have an index or a trigger of your own"),
        on_postgres: None,
        fix: "DROP INDEX host_index;",
    },
    Stop {
        migrations: "pairs/user/team",
        old: "user",
        new: "team",
        cause: "CREATE VIEW host_view AS SELECT user_id, id, title FROM sagents_conversations;",
        on_sqlite: Some("error in view host_view"),
        on_postgres: None,
        fix: "DROP VIEW host_view;",
    },
    Stop {
        migrations: "pairs/user/team",
        old: "user",
        new: "team",
        cause: "ALTER TABLE sagents_agent_states ADD COLUMN shape TEXT;",
        on_sqlite: Some("the tables have a column that no migration of this project adds"),
        on_postgres: None,
        fix: "ALTER TABLE sagents_agent_states DROP COLUMN shape;",
    },
];

/// The failures, each with its name.
pub async fn run(place: &Place, root: &Path, fresh: impl Fn(&str) -> Catalogue) -> Vec<String> {
    let mut failures = Vec::new();
    let mut note =
        |name: String, result: Result<()>| failures.extend(result.err().map(|error| format!("== {name}\n{error}")));
    for stop in STOPS {
        let scenario = Scenario::open(place, root.join(stop.migrations)).await;
        note(format!("{} {}", stop.migrations, stop.cause), scenario.stops(stop, &fresh(stop.new)).await);
        scenario.session.close().await;
    }
    let special = |name: &str| Scenario::open(place, root.join("special").join(name));
    let scenario = special("there_and_back").await;
    note("there and back".to_owned(), scenario.there_and_back(&fresh("user")).await);
    scenario.session.close().await;
    let scenario = special("host_column").await;
    note("columns of the host's own".to_owned(), scenario.host_column().await);
    scenario.session.close().await;
    for name in ["older", "laxer"] {
        let scenario = special(name).await;
        note(format!("tables of an older generator: {name}"), scenario.newer_generator(&fresh("user")).await);
        scenario.session.close().await;
    }
    if matches!(place, Place::Server(_)) {
        for new in ["team", "user_in_chat"] {
            let scenario = Scenario::open(place, root.join("pairs/user").join(new)).await;
            note(format!("what a host has on its tables, to {new}"), scenario.keeps_what_is_on_tables(new).await);
            scenario.session.close().await;
        }
    }
    failures
}

struct Scenario {
    session: Session,
    migrations: Migrations,
}

impl Scenario {
    async fn open(place: &Place, directory: PathBuf) -> Self {
        Self { session: Session::open(place).await, migrations: Migrations::read(&directory) }
    }

    /// A cause stops the migration and changes nothing; without it, it runs.
    async fn stops(&self, stop: &Stop, fresh: &Catalogue) -> Result<()> {
        let (old, new) = (Set::find(stop.old), Set::find(stop.new));
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(old, self.database())).await?;
        let (integer, uuid, refusal) = match self.database() {
            Database::Sqlite => ("INTEGER", "BLOB", stop.on_sqlite),
            Database::Postgres => ("BIGINT", "UUID", stop.on_postgres),
        };
        self.session.execute(&stop.cause.replace("{{ integer }}", integer).replace("{{ uuid }}", uuid)).await?;
        let Some(refusal) = refusal else { return self.migrate(CHANGED).await };
        let before = self.state(old).await;
        let error = self.migrate(CHANGED).await.err().unwrap_or_default();
        if !error.contains(refusal) {
            return Err(format!("expected {refusal:?}, but: {error:?}"));
        }
        same("state after a stop", &before, &self.state(old).await)?;
        self.session.execute(stop.fix).await?;
        self.migrate(CHANGED).await?;
        same("tables", fresh, &self.state(new).await.catalogue.without_retired())
    }

    /// From users to teams and back to users, whose column is still there.
    async fn there_and_back(&self, fresh: &Catalogue) -> Result<()> {
        const BACK: u32 = CHANGED + 1;
        let (user, team) = (Set::find("user"), Set::find("team"));
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(user, self.database())).await?;
        let before = self.state(user).await;
        self.migrate(CHANGED).await?;
        let there = self.state(team).await;
        self.session.execute(&rows::write(team, self.database())).await?;
        let error = self.migrate(BACK).await.err().unwrap_or_default();
        if !error
            .contains("there are conversations without a former user_id: say with --backfill what their user_id is")
        {
            return Err(format!("a conversation without a former owner must be refused, but: {error:?}"));
        }
        self.session.execute(&rows::remove_written(team)).await?;
        self.migrate(BACK).await?;
        self.session.undo(&self.migrations, CHANGED).await?;
        same("state after the way back was undone", &there, &self.state(team).await)?;
        self.migrate(BACK + 1).await?;
        let expected = State { catalogue: fresh.clone(), rows: before.rows };
        same("state in the end", &expected, &self.state(user).await)
    }

    /// Columns that the host's own migration added keep their definition and their values, also those that it renamed
    /// or that the database computes; its tables whose names a rebuild would like to have are left alone.
    async fn host_column(&self) -> Result<()> {
        let (user, chat) = (Set::find("user"), Set::find("user_in_chat"));
        let (added, changed) = (CREATED + 1, CREATED + 2);
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(user, self.database())).await?;
        self.migrate(added).await?;
        self.session.execute("UPDATE sagents_conversations SET pinned = 7 WHERE title = '2';").await?;
        self.session.execute("UPDATE sagents_display_messages SET note = 'mine' WHERE sequence = 1;").await?;
        let before = self.state(user).await;
        self.migrate(changed).await?;
        let after = self.state(chat).await;
        for (name, column) in [("conversations", "pinned"), ("conversations", "label"), ("display_messages", "note")] {
            let of = |state: &State, set: &Set| {
                let values = state.rows.values(name, column).join(" ");
                format!("{} {values}", state.catalogue.column(&set.table(name), column))
            };
            same(column, &of(&before, user), &of(&after, chat))?;
        }
        self.session.undo(&self.migrations, added).await?;
        same("state after going back", &before, &self.state(user).await)
    }

    /// Tables of an older generator, which had no metadata of messages, become those of this one.
    async fn newer_generator(&self, fresh: &Catalogue) -> Result<()> {
        let user = Set::find("user");
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(user, self.database())).await?;
        let before = self.state(user).await;
        self.migrate(CHANGED).await?;
        let expected = State { catalogue: fresh.clone(), rows: before.rows.with_metadata() };
        same("state after the update", &expected, &self.state(user).await)?;
        self.session.undo(&self.migrations, CREATED).await?;
        same("state after going back", &before, &self.state(user).await)?;
        self.migrate(CHANGED).await?;
        same("state after the same update again", &expected, &self.state(user).await)
    }

    /// Tables that change in place keep their grants, triggers, views and indexes.
    async fn keeps_what_is_on_tables(&self, new: &str) -> Result<()> {
        let (user, new) = (Set::find("user"), Set::find(new));
        self.migrate(CREATED).await?;
        self.session.execute(&rows::fill(user, self.database())).await?;
        self.session
            .execute(
                "CREATE VIEW host_view AS SELECT user_id, id, title FROM sagents_conversations;
                 CREATE INDEX host_index ON sagents_conversations (title, user_id);
                 CREATE FUNCTION host_function() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
                 CREATE TRIGGER host_trigger BEFORE UPDATE ON sagents_conversations
                     FOR EACH ROW EXECUTE FUNCTION host_function();
                 GRANT SELECT ON sagents_conversations TO PUBLIC;",
            )
            .await?;
        let view = "SELECT (user_id, id, title)::text FROM host_view ORDER BY 1";
        let before = self.session.query(view).await;
        self.migrate(CHANGED).await?;
        same("rows of a view", &before, &self.session.query(view).await)?;
        let kept = format!(
            "SELECT (EXISTS (SELECT FROM pg_trigger WHERE tgname = 'host_trigger' AND tgrelid = c.oid AND tgenabled = 'O')
                 AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indexrelid = 'host_index'::regclass)
                 AND EXISTS (SELECT FROM aclexplode(c.relacl) WHERE grantee = 0 AND privilege_type = 'SELECT'))::text
             FROM pg_class AS c WHERE c.oid = '{}'::regclass",
            new.table("conversations")
        );
        same("what is on the table", &vec![vec!["true".to_owned()]], &self.session.query(&kept).await)?;
        self.session.undo(&self.migrations, CREATED).await?;
        same("rows of a view after going back", &before, &self.session.query(view).await)?;
        Ok(())
    }

    async fn migrate(&self, version: u32) -> Result<()> {
        self.session.migrate(&self.migrations, version).await
    }

    fn database(&self) -> Database {
        self.session.database()
    }

    async fn state(&self, set: &Set) -> State {
        State::read(&self.session, set).await
    }
}
