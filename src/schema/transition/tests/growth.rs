//! What a newer version adds to the tables, and what of it is additive: old processes run while it is deployed.

use super::*;
use crate::schema::{ForeignKey, Index, IndexColumn};

/// A schema with what the next version is going to add.
pub fn upcoming(schema: &mut Schema) {
    let prefix = schema.prefix().unwrap().to_owned();
    let owner = schema.owner().cloned();
    let of_owner = || owner.iter().map(|owner| owner.name.clone());
    let columns = |names: &[&str]| of_owner().chain(names.iter().map(|&name| name.to_owned())).collect::<Vec<_>>();
    let [conversations, states, messages, ..] = &mut schema.tables[..] else { panic!("there are more tables") };
    conversations.columns.push(nullable("pinned_at", Kind::Time));
    let by_pin = columns(&["pinned_at", "id"]);
    let by_pin = by_pin.into_iter().map(|name| IndexColumn { name, descending: false }).collect();
    conversations.indexes.push(Index { name: format!("{prefix}pinned"), columns: by_pin, only: None });
    states.columns.push(defaulted("runs", Kind::BigInteger, DefaultValue::Zero));
    messages.columns.push(defaulted("marked", Kind::BigInteger, DefaultValue::Zero));
    let name = format!("{prefix}agent_runs");
    let own = [
        ("conversation_id", Kind::Uuid),
        ("run", Kind::BigInteger),
        ("position", Kind::Integer),
        ("message_id", Kind::Uuid),
        ("data", Kind::ExactJson),
    ];
    let own = own.map(|(name, kind)| Column { nullable: false, ..nullable(name, kind) });
    schema.tables.push(Table {
        about: "The runs of a conversation's agent.".to_owned(),
        columns: owner.iter().cloned().chain(own).collect(),
        primary_key: Key { name: format!("{name}_pkey"), columns: columns(&["conversation_id", "run", "position"]) },
        unique: Vec::new(),
        foreign_keys: vec![ForeignKey {
            name: format!("{name}_fkey"),
            columns: columns(&["conversation_id"]),
            schema: None,
            table: format!("{prefix}conversations"),
            references: columns(&["id"]),
        }],
        checks: Vec::new(),
        indexes: Vec::new(),
        clustered: true,
        name,
    });
}

pub fn grown(mut schema: Schema) -> Schema {
    upcoming(&mut schema);
    schema
}

#[test]
fn what_is_upcoming_is_only_added_on_sqlite() {
    let transition = change(&user(), &grown(user()), same_owner());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- New columns.
    ALTER TABLE "sagents_conversations" ADD COLUMN "pinned_at" TEXT;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "runs" INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "marked" INTEGER NOT NULL DEFAULT 0;

    -- Indexes as they are from now on.
    CREATE INDEX "sagents_pinned" ON "sagents_conversations" ("user_id", "pinned_at", "id");

    -- New tables.
    -- The runs of a conversation's agent.
    CREATE TABLE "sagents_agent_runs" (
        "user_id" INTEGER NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "run" INTEGER NOT NULL,
        "position" INTEGER NOT NULL,
        "message_id" BLOB NOT NULL,
        "data" TEXT NOT NULL,
        CONSTRAINT "sagents_agent_runs_pkey" PRIMARY KEY ("user_id", "conversation_id", "run", "position"),
        CONSTRAINT "sagents_agent_runs_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "message_id_is_uuid" CHECK (length("message_id") = 16)
    ) STRICT, WITHOUT ROWID;
    "#);
    insta::assert_snapshot!(transition.down(Database::Sqlite), @r#"
    -- Stops, with nothing changed, if sagents_agent_runs has rows, which would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are rows in sagents_agent_runs, and they would be lost; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_agent_runs"
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if sagents_conversations has a value of pinned_at that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are rows in sagents_conversations with a value of pinned_at that would be lost; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "pinned_at" IS NOT NULL
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if sagents_agent_states has a value of runs that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are rows in sagents_agent_states with a value of runs that would be lost; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_agent_states" WHERE "runs" <> 0
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if sagents_display_messages has a value of marked that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are rows in sagents_display_messages with a value of marked that would be lost; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_display_messages" WHERE "marked" <> 0
    );
    DROP TABLE "sagents_guard";

    -- Tables that are no more.
    DROP TABLE "sagents_agent_runs";

    -- Indexes that change go first.
    DROP INDEX "sagents_pinned";

    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "pinned_at";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "runs";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "marked";
    "#);
}

#[test]
fn what_is_upcoming_is_only_added_on_postgres() {
    let transition = change(&user(), &grown(user()), same_owner());
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Says what is missing before anything is changed.
    DO $$
    BEGIN
        IF NOT has_schema_privilege(current_schema(), 'CREATE') THEN
            RAISE EXCEPTION 'the role % may not create tables in the schema %: let its owner GRANT CREATE ON SCHEMA % TO %',
                current_user, current_schema(), current_schema(), current_user;
        END IF;
    END
    $$;

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_conversations" ADD COLUMN "pinned_at" TIMESTAMPTZ;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "runs" BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "marked" BIGINT NOT NULL DEFAULT 0;

    -- New tables, keys, checks and indexes.
    CREATE INDEX "sagents_pinned" ON "sagents_conversations" ("user_id", "pinned_at", "id");
    -- The runs of a conversation's agent.
    CREATE TABLE "sagents_agent_runs" (
        "user_id" BIGINT NOT NULL,
        "conversation_id" UUID NOT NULL,
        "run" BIGINT NOT NULL,
        "position" INTEGER NOT NULL,
        "message_id" UUID NOT NULL,
        "data" JSON NOT NULL,
        CONSTRAINT "sagents_agent_runs_pkey" PRIMARY KEY ("user_id", "conversation_id", "run", "position"),
        CONSTRAINT "sagents_agent_runs_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE
    );
    "#);
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage", "sagents_agent_runs" IN ACCESS EXCLUSIVE MODE;

    -- Stops, with nothing changed, if sagents_agent_runs has rows, which would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_agent_runs") THEN
            RAISE EXCEPTION 'there are rows in sagents_agent_runs, and they would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Stops, with nothing changed, if sagents_conversations has a value of pinned_at that would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "pinned_at" IS NOT NULL) THEN
            RAISE EXCEPTION 'there are rows in sagents_conversations with a value of pinned_at that would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Stops, with nothing changed, if sagents_agent_states has a value of runs that would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_agent_states" WHERE "runs" <> 0) THEN
            RAISE EXCEPTION 'there are rows in sagents_agent_states with a value of runs that would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Stops, with nothing changed, if sagents_display_messages has a value of marked that would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_display_messages" WHERE "marked" <> 0) THEN
            RAISE EXCEPTION 'there are rows in sagents_display_messages with a value of marked that would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Tables, keys, checks and indexes that are no more.
    DROP TABLE "sagents_agent_runs";
    DROP INDEX "sagents_pinned";

    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "pinned_at";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "runs";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "marked";
    "#);
}

#[test]
fn other_names_of_constraints_are_a_difference_on_postgres_alone() {
    let mut named = user();
    let mut renamed = 0;
    for table in &mut named.tables {
        for check in &mut table.checks {
            check.name.insert_str(0, "is_");
            renamed += 1;
        }
    }
    let transition = change(&user(), &named, same_owner());
    assert_eq!(rebuilt(&transition), [""; 0]);
    assert_eq!(transition.up(Database::Sqlite), "");
    assert_eq!(transition.up(Database::Postgres).matches("RENAME CONSTRAINT").count(), renamed);
}

#[test]
fn a_column_that_is_not_used_any_more_stays_until_somebody_drops_it() {
    let old = grown(user());
    let transition = change(&old, &user(), same_owner());
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- pinned_at of sagents_conversations is not used any more. It stays until a run with --drop-old-owner.
    -- runs of sagents_agent_states is not used any more. It stays until a run with --drop-old-owner.
    -- marked of sagents_display_messages is not used any more. It stays until a run with --drop-old-owner.
    -- sagents_agent_runs is not used any more. It stays as it is, and is yours from now on.

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Tables, keys, checks and indexes that are no more.
    DROP INDEX "sagents_pinned";
    "#);
    assert_eq!(rebuilt(&transition), [""; 0]);
    let gone = change(transition.schema(), &user(), Wish { drop_old_owner: true, ..same_owner() });
    assert_eq!(gone.schema(), &user());
    insta::assert_snapshot!(gone.up(Database::Sqlite), @r#"
    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "pinned_at";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "runs";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "marked";
    "#);
}

#[test]
fn a_column_that_is_required_is_not_so_when_it_is_not_used_any_more() {
    let mut newer = user();
    newer.tables[1].columns.retain(|column| column.name != "version");
    let transition = change(&user(), &newer, same_owner());
    assert_eq!(rebuilt(&transition), ["sagents_agent_states"]);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- version of sagents_agent_states is not used any more. It stays until a run with --drop-old-owner.

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_agent_states" ALTER COLUMN "version" DROP NOT NULL;
    "#);
}

#[test]
fn a_table_that_is_not_used_any_more_is_the_hosts() {
    let transition = change(&grown(user()), &team(), backfill(BACKFILL));
    for database in BOTH {
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(&grown(user()), database));
        let refused = transition.refuse_obstacles(&catalog, database).unwrap_err().to_string();
        assert!(refused.contains("the table `sagents_agent_runs` has a foreign key"), "{refused}");
        assert!(!transition.up(database).contains("DROP TABLE \"sagents_agent_runs\""));
    }
}

#[test]
fn a_conversion_that_would_change_values_is_refused() {
    let mut newer = user();
    newer.tables[2].columns[6].kind = Kind::Boolean;
    insta::assert_snapshot!(transition_error(&user(), &newer, &same_owner()), @"
    the recorded tables are not ones that this version can change: `content_type` in `sagents_display_messages` is a text, and would have to become a boolean
    help: restore .sagents from version control, then run this again
    ");
}

#[test]
fn a_column_of_the_hosts_own_is_in_the_way_of_a_new_one() {
    let additions = [Addition {
        table: "sagents_conversations".to_owned(),
        column: "pinned_at".to_owned(),
        definition: "pinned_at TEXT".to_owned(),
        generated: false,
    }];
    let wish = Wish { additions: &additions, ..same_owner() };
    insta::assert_snapshot!(transition_error(&user(), &grown(user()), &wish), @"
    the table `sagents_conversations` has a column `pinned_at` of your own, and would get one of that name
    help: rename or drop yours in a migration
    ");
}

/// Another table may have a column of that name, which is used.
#[test]
fn a_column_is_retired_in_its_table_alone() {
    let mut newer = user();
    newer.tables[2].columns.retain(|column| column.name != "metadata");
    let there = changed(&user(), &newer, same_owner());
    assert!(is_unchanged(&there, &newer, &same_owner()));
    let mut renamed = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    renamed.tables[2].columns.retain(|column| column.name != "metadata");
    let renamed = changed(&there, &renamed, same_owner());
    assert!(renamed.tables[0].columns.iter().all(|column| !column.retired), "{:?}", renamed.tables[0]);
    assert_eq!(columns(&renamed.tables[2]).last(), Some(&"metadata"));
    let back = changed(&there, &user(), same_owner());
    let expected = ["metadata", "tool_call_id", "status", "inserted_at", "changed", "delivery", "old_metadata"];
    assert_eq!(columns(&back.tables[2])[8..], expected);
}

/// `PostgreSQL` changes the type of no column that a view has.
#[test]
fn a_view_of_the_hosts_own_is_in_the_way_of_another_type() {
    let mut newer = user();
    newer.tables[2].columns[4].kind = Kind::BigInteger;
    let transition = change(&user(), &newer, same_owner());
    let refused = |database| {
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(&user(), database));
        catalog.apply("CREATE VIEW items AS SELECT item FROM sagents_display_messages;");
        transition.refuse_obstacles(&catalog, database)
    };
    refused(Database::Sqlite).unwrap();
    insta::assert_snapshot!(refused(Database::Postgres).unwrap_err().to_string(), @"
    the view `items` of your own needs the column `item` of `sagents_display_messages`, whose type changes
    help: drop or redefine the view in a migration of your own, and run this again
    ");
}

#[test]
fn what_a_newer_generator_adds_is_added() {
    let mut older = user();
    older.tables[2].columns.retain(|column| column.name != "metadata");
    older.tables[2].indexes.clear();
    let transition = change(&older, &user(), same_owner());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- New columns.
    ALTER TABLE "sagents_display_messages" ADD COLUMN "metadata" TEXT NOT NULL DEFAULT '{}' CONSTRAINT "metadata_is_json" CHECK (json_valid("metadata"));

    -- Indexes as they are from now on.
    CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "sagents_display_messages_changed" ON "sagents_display_messages" ("user_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "sagents_display_messages_unsettled" ON "sagents_display_messages" ("user_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    "#);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_display_messages" ADD COLUMN "metadata" JSONB NOT NULL DEFAULT '{}';

    -- New tables, keys, checks and indexes.
    CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "sagents_display_messages_changed" ON "sagents_display_messages" ("user_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "sagents_display_messages_unsettled" ON "sagents_display_messages" ("user_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    "#);
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Stops, with nothing changed, if sagents_display_messages has a value of metadata that would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_display_messages" WHERE CAST("metadata" AS TEXT) <> '{}') THEN
            RAISE EXCEPTION 'there are rows in sagents_display_messages with a value of metadata that would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Tables, keys, checks and indexes that are no more.
    DROP INDEX "sagents_display_messages_tool_calls";
    DROP INDEX "sagents_display_messages_changed";
    DROP INDEX "sagents_display_messages_unsettled";

    -- Columns that are no more.
    ALTER TABLE "sagents_display_messages" DROP COLUMN "metadata";
    "#);
}

#[test]
fn what_a_newer_generator_makes_stricter_is_made_so() {
    let mut older = user();
    let messages = &mut older.tables[2];
    messages.unique.clear();
    messages.columns.retain(|column| column.name != "status");
    messages.checks.retain(|check| !check.condition.contains("status") && check.name != "valid_item");
    messages.columns[6].default = Some(DefaultValue::Zero);
    messages.columns[6].nullable = true;
    let transition = change(&older, &user(), same_owner());
    assert_eq!(rebuilt(&transition), ["sagents_display_messages"]);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Stops, with nothing changed, if sagents_display_messages has no value of content_type: a text is needed.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_display_messages" WHERE "content_type" IS NULL) THEN
            RAISE EXCEPTION 'there are rows in sagents_display_messages with no value of content_type: a text is needed; nothing was changed';
        END IF;
    END
    $$;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_display_messages"
        ADD COLUMN "status" TEXT,
        ALTER COLUMN "content_type" SET NOT NULL,
        ALTER COLUMN "content_type" DROP DEFAULT;

    -- New tables, keys, checks and indexes.
    ALTER TABLE "sagents_display_messages"
        ADD CONSTRAINT "sagents_display_messages_key" UNIQUE ("user_id", "conversation_id", "message_id", "item"),
        ADD CONSTRAINT "valid_item" CHECK (item >= 0),
        ADD CONSTRAINT "valid_status" CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled', 'unknown')),
        ADD CONSTRAINT "status_of_tool_call" CHECK ((content_type = 'tool_call') = (status IS NOT NULL));
    "#);
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Stops, with nothing changed, if sagents_display_messages has a value of status that would be lost.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_display_messages" WHERE "status" IS NOT NULL) THEN
            RAISE EXCEPTION 'there are rows in sagents_display_messages with a value of status that would be lost; nothing was changed';
        END IF;
    END
    $$;

    -- Tables, keys, checks and indexes that are no more.
    ALTER TABLE "sagents_display_messages"
        DROP CONSTRAINT "sagents_display_messages_key",
        DROP CONSTRAINT "valid_item",
        DROP CONSTRAINT "valid_status",
        DROP CONSTRAINT "status_of_tool_call";

    -- Columns that are no more.
    ALTER TABLE "sagents_display_messages" DROP COLUMN "status";

    -- Columns as they are from now on.
    ALTER TABLE "sagents_display_messages"
        ALTER COLUMN "content_type" DROP NOT NULL,
        ALTER COLUMN "content_type" SET DEFAULT 0;
    "#);
}

#[test]
fn a_new_column_needs_a_value() {
    let mut newer = user();
    let shape = Column { name: "shape".to_owned(), ..newer.tables[1].columns[2].clone() };
    newer.tables[1].columns.push(shape);
    insta::assert_snapshot!(transition_error(&user(), &newer, &same_owner()), @"
    the recorded tables are not ones that this version can change: `shape` in `sagents_agent_states` is missing, and every row needs a 32-bit integer for it: it has no default
    help: restore .sagents from version control, then run this again
    ");
}
