mod databases;
mod growth;

use super::*;
use crate::host::migrations::Catalog;
use crate::names::TablePrefix;
use crate::schema::{self, Default, Key, Kind, LONGEST_SUFFIX, OwnerColumn, OwnerKey, check, sql};
use growth::grown;

const BOTH: [Database; 2] = [Database::Sqlite, Database::Postgres];

fn tables(prefix: &str, owner: Option<(&str, Kind, Option<&str>)>) -> Schema {
    let prefix = TablePrefix::parse(prefix, LONGEST_SUFFIX, 63).unwrap();
    let owner = owner.map(|(name, kind, table)| OwnerColumn {
        name: name.to_owned(),
        kind,
        references: table.map(|table| OwnerKey { schema: None, table: table.to_owned(), column: "id".to_owned() }),
    });
    schema::schema(&prefix, owner.as_ref(), false)
}

fn user() -> Schema {
    tables("sagents_", Some(("user_id", Kind::BigInteger, Some("users"))))
}

fn team() -> Schema {
    tables("sagents_", Some(("team_id", Kind::Uuid, Some("teams"))))
}

fn none() -> Schema {
    tables("sagents_", None)
}

const BACKFILL: &str = "(SELECT team_id FROM users WHERE users.id = conversation.user_id)";

fn same_owner() -> Wish<'static> {
    Wish { same_owner: true, ..Wish::default() }
}

fn backfill(text: &str) -> Wish<'_> {
    Wish { backfill: Some(text), ..Wish::default() }
}

fn change(old: &Schema, new: &Schema, wish: Wish) -> Transition {
    let transition = transition(old, new, &wish).unwrap();
    assert!(BOTH.iter().any(|&database| !transition.up(database).is_empty()), "nothing changes");
    transition
}

fn is_unchanged(old: &Schema, new: &Schema, wish: &Wish) -> bool {
    let transition = transition(old, new, wish).unwrap();
    BOTH.iter().all(|&database| transition.up(database).is_empty() && transition.down(database).is_empty())
}

/// The tables that `SQLite` rebuilds on the way there, by their new names.
fn rebuilt(transition: &Transition) -> Vec<&str> {
    sqlite::rebuilt(&transition.path_up())
}

/// The tables after a change, with what former owners left.
fn changed(old: &Schema, new: &Schema, wish: Wish) -> Schema {
    change(old, new, wish).schema().clone()
}

fn columns(table: &Table) -> Vec<&str> {
    table.columns.iter().map(|column| column.name.as_str()).collect()
}

/// The parts of a migration that have a word, for a look at one matter.
fn steps(sql: &str, word: &str) -> String {
    sql.split("\n\n").filter(|step| step.contains(word)).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn tables_that_are_as_they_should_be_need_no_migration() {
    let with_former = changed(&user(), &team(), backfill(BACKFILL));
    let mut reworded = user();
    reworded.tables[0].about = "Another comment.".to_owned();
    reworded.tables[1].columns.reverse();
    for (old, new, wish) in [
        (user(), user(), Wish::default()),
        (user(), user(), Wish { backfill: Some("1"), drop_old_owner: true, ..same_owner() }),
        (user(), reworded, Wish::default()),
        (none(), none(), Wish::default()),
        (with_former, team(), Wish::default()),
    ] {
        assert!(is_unchanged(&old, &new, &wish));
    }
}

#[test]
fn a_migration_is_called_by_what_it_does() {
    let chat = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let bare = tables("", Some(("user_id", Kind::BigInteger, Some("users"))));
    let member = tables("sagents_", Some(("member_id", Kind::BigInteger, Some("users"))));
    let people = tables("sagents_", Some(("user_id", Kind::BigInteger, Some("people"))));
    let with_former = changed(&user(), &team(), backfill(BACKFILL));
    let mut newer = user();
    newer.tables[0].checks.push(check("in_order", "updated_at >= inserted_at"));
    let drop = Wish { drop_old_owner: true, ..Wish::default() };
    let names = [
        change(&user(), &team(), backfill(BACKFILL)),
        change(&user(), &none(), Wish::default()),
        change(&none(), &user(), Wish::default()),
        change(&user(), &chat, same_owner()),
        change(&bare, &user(), same_owner()),
        change(&user(), &member, same_owner()),
        change(&user(), &people, same_owner()),
        change(&with_former, &team(), drop),
        change(&user(), &newer, same_owner()),
    ]
    .map(|transition| transition.name());
    insta::assert_snapshot!(names.join("\n"), @r#"
    change_sagents_owner_to_team_id
    change_sagents_owner_to_none
    change_sagents_owner_to_user_id
    rename_sagents_to_chat
    rename_conversations_to_sagents
    rename_sagents_owner_to_member_id
    change_sagents_owner_table
    drop_sagents_old_owner
    update_sagents
    "#);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it holds a whole migration")]
fn an_owner_comes_on_sqlite() {
    let transition = change(&user(), &team(), backfill(BACKFILL));
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- The owner is team_id from now on. What user_id held stays, until a run with --drop-old-owner.

    -- Stops, with nothing changed, if the old tables have a column that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the tables have a column that no migration of this project adds, and that would be lost; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM pragma_table_xinfo('sagents_conversations') WHERE name NOT IN ('user_id', 'id', 'title', 'scope', 'metadata', 'interrupted', 'next_sequence', 'inserted_at', 'updated_at', 'last_change', 'last_removal', 'archived_at')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_agent_states') WHERE name NOT IN ('user_id', 'conversation_id', 'version', 'revision', 'write_id', 'data', 'unreadable_data', 'inserted_at', 'updated_at', 'epoch')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_display_messages') WHERE name NOT IN ('user_id', 'conversation_id', 'sequence', 'message_id', 'item', 'role', 'content_type', 'content', 'metadata', 'tool_call_id', 'status', 'inserted_at', 'changed', 'delivery')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_agent_messages') WHERE name NOT IN ('user_id', 'conversation_id', 'epoch', 'position', 'message_id', 'data')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_unreadable_states') WHERE name NOT IN ('user_id', 'conversation_id', 'epoch', 'data', 'set_aside_at')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_runs') WHERE name NOT IN ('user_id', 'conversation_id', 'run_id', 'holder', 'status', 'waiting_for', 'cancel_requested', 'started_at', 'seen_at')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_usage') WHERE name NOT IN ('user_id', 'conversation_id', 'message_id', 'model', 'input_tokens', 'output_tokens', 'cached_tokens', 'inserted_at')
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if the old tables have an index or a trigger that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the tables have an index or a trigger of your own: drop it in a migration before this one, and make it again after; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
        AND tbl_name IN ('sagents_conversations', 'sagents_agent_states', 'sagents_display_messages', 'sagents_agent_messages', 'sagents_unreadable_states', 'sagents_runs', 'sagents_usage')
        AND name NOT IN ('sagents_conversations_updated', 'sagents_conversations_active', 'sagents_conversations_archived', 'sagents_display_messages_tool_calls', 'sagents_display_messages_changed', 'sagents_display_messages_unsettled', 'sagents_runs_unfinished', 'sagents_usage_times')
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if another table refers to the old ones: its rows would be deleted.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "a table of your own has a foreign key onto these: drop it in a migration before this one, and make it again after; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM sqlite_schema AS host, pragma_foreign_key_list(host.name) AS key
        WHERE host.type = 'table' AND key."table" COLLATE NOCASE IN ('sagents_conversations', 'sagents_agent_states', 'sagents_display_messages', 'sagents_agent_messages', 'sagents_unreadable_states', 'sagents_runs', 'sagents_usage')
        AND host.name NOT IN ('sagents_conversations', 'sagents_agent_states', 'sagents_display_messages', 'sagents_agent_messages', 'sagents_unreadable_states', 'sagents_runs', 'sagents_usage')
    );
    DROP TABLE "sagents_guard";

    -- Every conversation gets its team_id.
    ALTER TABLE "sagents_conversations" ADD COLUMN "sagents_new_owner" BLOB;
    UPDATE "sagents_conversations" AS conversation SET "sagents_new_owner" = (SELECT team_id FROM users WHERE users.id = conversation.user_id);

    -- Stops, with nothing changed, if a conversation is without a team_id.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the backfill leaves conversations without a team_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if two conversations would have the same key.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations of one id that would have the same team_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" GROUP BY "sagents_new_owner", "id" HAVING count(*) > 1
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if a team_id is not in teams.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations whose team_id is not in teams; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE NOT EXISTS (
            SELECT 1 FROM "teams" AS owner WHERE owner."id" = conversation."sagents_new_owner"
        )
    );
    DROP TABLE "sagents_guard";

    -- The new tables, beside the old ones.
    -- Conversations, and where each one's next message goes.
    CREATE TABLE "sagents_conversations_new" (
        "team_id" BLOB NOT NULL,
        "id" BLOB NOT NULL,
        "title" TEXT,
        "scope" TEXT NOT NULL,
        "metadata" TEXT NOT NULL DEFAULT '{}',
        "interrupted" INTEGER NOT NULL DEFAULT 0,
        "next_sequence" INTEGER NOT NULL DEFAULT 0,
        "inserted_at" TEXT NOT NULL,
        "updated_at" TEXT NOT NULL,
        "last_change" INTEGER NOT NULL DEFAULT 0,
        "last_removal" INTEGER NOT NULL DEFAULT 0,
        "archived_at" TEXT,
        "user_id" INTEGER,
        CONSTRAINT "sagents_conversations_pkey" PRIMARY KEY ("team_id", "id"),
        CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("team_id") REFERENCES "teams" ("id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "id_is_uuid" CHECK (length("id") = 16),
        CONSTRAINT "scope_is_json" CHECK (json_valid("scope")),
        CONSTRAINT "metadata_is_json" CHECK (json_valid("metadata")),
        CONSTRAINT "interrupted_is_boolean" CHECK ("interrupted" IN (0, 1)),
        CONSTRAINT "valid_next_sequence" CHECK (next_sequence >= 0)
    ) STRICT, WITHOUT ROWID;
    -- Agent states without their messages; the messages are those of the epoch.
    CREATE TABLE "sagents_agent_states_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "version" INTEGER NOT NULL,
        "revision" INTEGER NOT NULL,
        "write_id" BLOB NOT NULL,
        "data" TEXT NOT NULL,
        "unreadable_data" TEXT,
        "inserted_at" TEXT NOT NULL,
        "updated_at" TEXT NOT NULL,
        "epoch" INTEGER NOT NULL DEFAULT 0,
        "user_id" INTEGER,
        CONSTRAINT "sagents_agent_states_pkey" PRIMARY KEY ("team_id", "conversation_id"),
        CONSTRAINT "sagents_agent_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "write_id_is_uuid" CHECK (length("write_id") = 16),
        CONSTRAINT "valid_revision" CHECK (revision >= 1)
    ) STRICT;
    -- What a person sees of a conversation, in order.
    CREATE TABLE "sagents_display_messages_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "sequence" INTEGER NOT NULL,
        "message_id" BLOB NOT NULL,
        "item" INTEGER NOT NULL,
        "role" TEXT NOT NULL,
        "content_type" TEXT NOT NULL,
        "content" TEXT NOT NULL,
        "metadata" TEXT NOT NULL DEFAULT '{}',
        "tool_call_id" TEXT,
        "status" TEXT,
        "inserted_at" TEXT NOT NULL,
        "changed" INTEGER NOT NULL DEFAULT 0,
        "delivery" TEXT,
        "user_id" INTEGER,
        CONSTRAINT "sagents_display_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "sequence"),
        CONSTRAINT "sagents_display_messages_key" UNIQUE ("team_id", "conversation_id", "message_id", "item"),
        CONSTRAINT "sagents_display_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "message_id_is_uuid" CHECK (length("message_id") = 16),
        CONSTRAINT "metadata_is_json" CHECK (json_valid("metadata")),
        CONSTRAINT "valid_sequence" CHECK (sequence >= 0),
        CONSTRAINT "valid_item" CHECK (item >= 0),
        CONSTRAINT "valid_role" CHECK (role IN ('user', 'assistant', 'tool', 'system')),
        CONSTRAINT "valid_content_type" CHECK (content_type IN ('text', 'thinking', 'image', 'file_reference', 'structured_data', 'notification', 'error', 'tool_call', 'tool_result', 'todo_snapshot')),
        CONSTRAINT "valid_status" CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
        CONSTRAINT "status_of_tool_call" CHECK ((content_type = 'tool_call') = (status IS NOT NULL)),
        CONSTRAINT "id_of_tool_call" CHECK (content_type <> 'tool_call' OR tool_call_id IS NOT NULL),
        CONSTRAINT "valid_delivery" CHECK (delivery IN ('draft', 'unsaved', 'interrupted', 'unknown'))
    ) STRICT, WITHOUT ROWID;
    -- The messages of agent states, in order.
    CREATE TABLE "sagents_agent_messages_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "epoch" INTEGER NOT NULL,
        "position" INTEGER NOT NULL,
        "message_id" BLOB NOT NULL,
        "data" TEXT NOT NULL,
        "user_id" INTEGER,
        CONSTRAINT "sagents_agent_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "epoch", "position"),
        CONSTRAINT "sagents_agent_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "message_id_is_uuid" CHECK (length("message_id") = 16),
        CONSTRAINT "valid_epoch" CHECK (epoch >= 0),
        CONSTRAINT "valid_position" CHECK (position >= 0)
    ) STRICT;
    -- Agent states that were set aside, each with its epoch.
    CREATE TABLE "sagents_unreadable_states_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "epoch" INTEGER NOT NULL,
        "data" TEXT NOT NULL,
        "set_aside_at" TEXT NOT NULL,
        "user_id" INTEGER,
        CONSTRAINT "sagents_unreadable_states_pkey" PRIMARY KEY ("team_id", "conversation_id", "epoch"),
        CONSTRAINT "sagents_unreadable_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "valid_epoch" CHECK (epoch >= 0)
    ) STRICT;
    -- The current or last run of each conversation.
    CREATE TABLE "sagents_runs_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "run_id" BLOB NOT NULL,
        "holder" TEXT NOT NULL,
        "status" TEXT NOT NULL,
        "waiting_for" TEXT,
        "cancel_requested" INTEGER NOT NULL DEFAULT 0,
        "started_at" TEXT NOT NULL,
        "seen_at" TEXT NOT NULL,
        "user_id" INTEGER,
        CONSTRAINT "sagents_runs_pkey" PRIMARY KEY ("team_id", "conversation_id"),
        CONSTRAINT "sagents_runs_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "run_id_is_uuid" CHECK (length("run_id") = 16),
        CONSTRAINT "cancel_requested_is_boolean" CHECK ("cancel_requested" IN (0, 1)),
        CONSTRAINT "valid_status" CHECK (status IN ('running', 'waiting', 'finished', 'failed', 'cancelled'))
    ) STRICT, WITHOUT ROWID;
    -- The tokens that each message cost. Rows stay when messages are deleted.
    CREATE TABLE "sagents_usage_new" (
        "team_id" BLOB NOT NULL,
        "conversation_id" BLOB NOT NULL,
        "message_id" BLOB NOT NULL,
        "model" TEXT,
        "input_tokens" INTEGER NOT NULL,
        "output_tokens" INTEGER NOT NULL,
        "cached_tokens" INTEGER NOT NULL,
        "inserted_at" TEXT NOT NULL,
        "user_id" INTEGER,
        CONSTRAINT "sagents_usage_pkey" PRIMARY KEY ("team_id", "conversation_id", "message_id"),
        CONSTRAINT "sagents_usage_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "message_id_is_uuid" CHECK (length("message_id") = 16),
        CONSTRAINT "valid_input_tokens" CHECK (input_tokens >= 0),
        CONSTRAINT "valid_output_tokens" CHECK (output_tokens >= 0),
        CONSTRAINT "valid_cached_tokens" CHECK (cached_tokens >= 0)
    ) STRICT, WITHOUT ROWID;

    -- Every row is copied, parents first.
    INSERT INTO "sagents_conversations_new"
        ("team_id", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "user_id")
        SELECT "sagents_new_owner", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "user_id"
        FROM "sagents_conversations";
    INSERT INTO "sagents_agent_states_new"
        ("team_id", "conversation_id", "version", "revision", "write_id", "data", "unreadable_data", "inserted_at", "updated_at", "epoch", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."version", child."revision", child."write_id", child."data", child."unreadable_data", child."inserted_at", child."updated_at", child."epoch", child."user_id"
        FROM "sagents_agent_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_display_messages_new"
        ("team_id", "conversation_id", "sequence", "message_id", "item", "role", "content_type", "content", "metadata", "tool_call_id", "status", "inserted_at", "changed", "delivery", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."sequence", child."message_id", child."item", child."role", child."content_type", child."content", child."metadata", child."tool_call_id", child."status", child."inserted_at", child."changed", child."delivery", child."user_id"
        FROM "sagents_display_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_agent_messages_new"
        ("team_id", "conversation_id", "epoch", "position", "message_id", "data", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."position", child."message_id", child."data", child."user_id"
        FROM "sagents_agent_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_unreadable_states_new"
        ("team_id", "conversation_id", "epoch", "data", "set_aside_at", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."data", child."set_aside_at", child."user_id"
        FROM "sagents_unreadable_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_runs_new"
        ("team_id", "conversation_id", "run_id", "holder", "status", "waiting_for", "cancel_requested", "started_at", "seen_at", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."run_id", child."holder", child."status", child."waiting_for", child."cancel_requested", child."started_at", child."seen_at", child."user_id"
        FROM "sagents_runs" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_usage_new"
        ("team_id", "conversation_id", "message_id", "model", "input_tokens", "output_tokens", "cached_tokens", "inserted_at", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."message_id", child."model", child."input_tokens", child."output_tokens", child."cached_tokens", child."inserted_at", child."user_id"
        FROM "sagents_usage" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";

    -- The old tables go, children first.
    DROP TABLE "sagents_usage";
    DROP TABLE "sagents_runs";
    DROP TABLE "sagents_unreadable_states";
    DROP TABLE "sagents_agent_messages";
    DROP TABLE "sagents_display_messages";
    DROP TABLE "sagents_agent_states";
    DROP TABLE "sagents_conversations";

    -- The new tables take their names; foreign keys follow.
    ALTER TABLE "sagents_conversations_new" RENAME TO "sagents_conversations";
    ALTER TABLE "sagents_agent_states_new" RENAME TO "sagents_agent_states";
    ALTER TABLE "sagents_display_messages_new" RENAME TO "sagents_display_messages";
    ALTER TABLE "sagents_agent_messages_new" RENAME TO "sagents_agent_messages";
    ALTER TABLE "sagents_unreadable_states_new" RENAME TO "sagents_unreadable_states";
    ALTER TABLE "sagents_runs_new" RENAME TO "sagents_runs";
    ALTER TABLE "sagents_usage_new" RENAME TO "sagents_usage";

    -- Indexes, whose names are free now.
    CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC);
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("team_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "sagents_display_messages_changed" ON "sagents_display_messages" ("team_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "sagents_display_messages_unsettled" ON "sagents_display_messages" ("team_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    CREATE INDEX "sagents_runs_unfinished" ON "sagents_runs" ("team_id", "started_at")
        WHERE status IN ('running', 'waiting');
    CREATE INDEX "sagents_usage_times" ON "sagents_usage" ("team_id", "inserted_at");
    "#);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a whole migration")]
fn an_owner_comes_on_postgres() {
    let chat = tables("chat_", Some(("team_id", Kind::Uuid, Some("teams"))));
    let transition = change(&user(), &chat, backfill(BACKFILL));
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- The owner is team_id from now on. What user_id held stays, until a run with --drop-old-owner.

    -- Says what is missing before anything is changed.
    DO $$
    BEGIN
        IF to_regclass('"teams"') IS NULL THEN
            RAISE EXCEPTION 'the table "teams" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
        END IF;
        IF NOT has_table_privilege('"teams"', 'REFERENCES') THEN
            RAISE EXCEPTION 'the role % may not refer to "teams": let its owner GRANT REFERENCES ON "teams" TO %',
                current_user, current_user;
        END IF;
    END
    $$;

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Every conversation gets its team_id.
    ALTER TABLE "sagents_conversations" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_conversations" AS conversation SET "sagents_new_owner" = (SELECT team_id FROM users WHERE users.id = conversation.user_id);

    -- Stops, with nothing changed, if a conversation is without a team_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL) THEN
            RAISE EXCEPTION 'the backfill leaves conversations without a team_id; nothing was changed';
        END IF;
    END
    $$;

    -- Stops, with nothing changed, if two conversations would have the same key.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" GROUP BY "sagents_new_owner", "id" HAVING count(*) > 1) THEN
            RAISE EXCEPTION 'there are conversations of one id that would have the same team_id; nothing was changed';
        END IF;
    END
    $$;

    -- What belongs to a conversation follows it.
    ALTER TABLE "sagents_agent_states" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_agent_states" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    ALTER TABLE "sagents_display_messages" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_display_messages" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    ALTER TABLE "sagents_agent_messages" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_agent_messages" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    ALTER TABLE "sagents_unreadable_states" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_unreadable_states" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    ALTER TABLE "sagents_runs" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_runs" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    ALTER TABLE "sagents_usage" ADD COLUMN "sagents_new_owner" UUID;
    UPDATE "sagents_usage" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";

    -- Tables, keys, checks and indexes that are no more.
    DROP INDEX "sagents_usage_times";
    ALTER TABLE "sagents_usage"
        DROP CONSTRAINT "sagents_usage_pkey",
        DROP CONSTRAINT "sagents_usage_fkey";
    DROP INDEX "sagents_runs_unfinished";
    ALTER TABLE "sagents_runs"
        DROP CONSTRAINT "sagents_runs_pkey",
        DROP CONSTRAINT "sagents_runs_fkey";
    ALTER TABLE "sagents_unreadable_states"
        DROP CONSTRAINT "sagents_unreadable_states_pkey",
        DROP CONSTRAINT "sagents_unreadable_states_fkey";
    ALTER TABLE "sagents_agent_messages"
        DROP CONSTRAINT "sagents_agent_messages_pkey",
        DROP CONSTRAINT "sagents_agent_messages_fkey";
    DROP INDEX "sagents_display_messages_tool_calls";
    DROP INDEX "sagents_display_messages_changed";
    DROP INDEX "sagents_display_messages_unsettled";
    ALTER TABLE "sagents_display_messages"
        DROP CONSTRAINT "sagents_display_messages_pkey",
        DROP CONSTRAINT "sagents_display_messages_key",
        DROP CONSTRAINT "sagents_display_messages_fkey";
    ALTER TABLE "sagents_agent_states"
        DROP CONSTRAINT "sagents_agent_states_pkey",
        DROP CONSTRAINT "sagents_agent_states_fkey";
    DROP INDEX "sagents_conversations_updated";
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    ALTER TABLE "sagents_conversations"
        DROP CONSTRAINT "sagents_conversations_pkey",
        DROP CONSTRAINT "sagents_conversations_fkey";

    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "sagents_new_owner" TO "team_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "sagents_new_owner" TO "team_id";

    -- Columns as they are from now on.
    ALTER TABLE "sagents_conversations"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_agent_states"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_display_messages"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_agent_messages"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_unreadable_states"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_runs"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;
    ALTER TABLE "sagents_usage"
        ALTER COLUMN "team_id" SET NOT NULL,
        ALTER COLUMN "user_id" DROP NOT NULL;

    -- Everything gets its new name.
    ALTER TABLE "sagents_conversations" RENAME TO "chat_conversations";
    ALTER TABLE "sagents_agent_states" RENAME TO "chat_agent_states";
    ALTER TABLE "sagents_display_messages" RENAME TO "chat_display_messages";
    ALTER TABLE "sagents_agent_messages" RENAME TO "chat_agent_messages";
    ALTER TABLE "sagents_unreadable_states" RENAME TO "chat_unreadable_states";
    ALTER TABLE "sagents_runs" RENAME TO "chat_runs";
    ALTER TABLE "sagents_usage" RENAME TO "chat_usage";

    -- New tables, keys, checks and indexes.
    ALTER TABLE "chat_conversations"
        ADD CONSTRAINT "chat_conversations_pkey" PRIMARY KEY ("team_id", "id"),
        ADD CONSTRAINT "chat_conversations_fkey" FOREIGN KEY ("team_id") REFERENCES "teams" ("id") ON DELETE CASCADE;
    CREATE INDEX "chat_conversations_updated" ON "chat_conversations" ("team_id", "updated_at" DESC, "id" DESC);
    CREATE INDEX "chat_conversations_active" ON "chat_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived" ON "chat_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    ALTER TABLE "chat_agent_states"
        ADD CONSTRAINT "chat_agent_states_pkey" PRIMARY KEY ("team_id", "conversation_id"),
        ADD CONSTRAINT "chat_agent_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    ALTER TABLE "chat_display_messages"
        ADD CONSTRAINT "chat_display_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "sequence"),
        ADD CONSTRAINT "chat_display_messages_key" UNIQUE ("team_id", "conversation_id", "message_id", "item"),
        ADD CONSTRAINT "chat_display_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    CREATE INDEX "chat_display_messages_tool_calls" ON "chat_display_messages" ("team_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "chat_display_messages_changed" ON "chat_display_messages" ("team_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "chat_display_messages_unsettled" ON "chat_display_messages" ("team_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    ALTER TABLE "chat_agent_messages"
        ADD CONSTRAINT "chat_agent_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "epoch", "position"),
        ADD CONSTRAINT "chat_agent_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    ALTER TABLE "chat_unreadable_states"
        ADD CONSTRAINT "chat_unreadable_states_pkey" PRIMARY KEY ("team_id", "conversation_id", "epoch"),
        ADD CONSTRAINT "chat_unreadable_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    ALTER TABLE "chat_runs"
        ADD CONSTRAINT "chat_runs_pkey" PRIMARY KEY ("team_id", "conversation_id"),
        ADD CONSTRAINT "chat_runs_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    CREATE INDEX "chat_runs_unfinished" ON "chat_runs" ("team_id", "started_at")
        WHERE status IN ('running', 'waiting');
    ALTER TABLE "chat_usage"
        ADD CONSTRAINT "chat_usage_pkey" PRIMARY KEY ("team_id", "conversation_id", "message_id"),
        ADD CONSTRAINT "chat_usage_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "chat_conversations" ("team_id", "id") ON DELETE CASCADE;
    CREATE INDEX "chat_usage_times" ON "chat_usage" ("team_id", "inserted_at");
    "#);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a whole migration")]
fn an_owner_comes_back_on_postgres() {
    let transition = change(&user(), &team(), backfill(BACKFILL));
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- The owner is user_id again.

    -- Says what is missing before anything is changed.
    DO $$
    BEGIN
        IF to_regclass('"users"') IS NULL THEN
            RAISE EXCEPTION 'the table "users" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
        END IF;
        IF NOT has_table_privilege('"users"', 'REFERENCES') THEN
            RAISE EXCEPTION 'the role % may not refer to "users": let its owner GRANT REFERENCES ON "users" TO %',
                current_user, current_user;
        END IF;
    END
    $$;

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Stops, with nothing changed, if a conversation is without a user_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "user_id" IS NULL) THEN
            RAISE EXCEPTION 'there are conversations without a former user_id, so it cannot be restored; nothing was changed';
        END IF;
    END
    $$;

    -- Stops, with nothing changed, if two conversations would have the same key.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" GROUP BY "user_id", "id" HAVING count(*) > 1) THEN
            RAISE EXCEPTION 'there are conversations of one id that would have the same user_id; nothing was changed';
        END IF;
    END
    $$;

    -- What belongs to a conversation follows it.
    UPDATE "sagents_agent_states" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";
    UPDATE "sagents_display_messages" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";
    UPDATE "sagents_agent_messages" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";
    UPDATE "sagents_unreadable_states" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";
    UPDATE "sagents_runs" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";
    UPDATE "sagents_usage" AS child SET "user_id" = conversation."user_id"
        FROM "sagents_conversations" AS conversation
        WHERE conversation."team_id" = child."team_id" AND conversation."id" = child."conversation_id"
        AND child."user_id" IS DISTINCT FROM conversation."user_id";

    -- Tables, keys, checks and indexes that are no more.
    DROP INDEX "sagents_usage_times";
    ALTER TABLE "sagents_usage"
        DROP CONSTRAINT "sagents_usage_pkey",
        DROP CONSTRAINT "sagents_usage_fkey";
    DROP INDEX "sagents_runs_unfinished";
    ALTER TABLE "sagents_runs"
        DROP CONSTRAINT "sagents_runs_pkey",
        DROP CONSTRAINT "sagents_runs_fkey";
    ALTER TABLE "sagents_unreadable_states"
        DROP CONSTRAINT "sagents_unreadable_states_pkey",
        DROP CONSTRAINT "sagents_unreadable_states_fkey";
    ALTER TABLE "sagents_agent_messages"
        DROP CONSTRAINT "sagents_agent_messages_pkey",
        DROP CONSTRAINT "sagents_agent_messages_fkey";
    DROP INDEX "sagents_display_messages_tool_calls";
    DROP INDEX "sagents_display_messages_changed";
    DROP INDEX "sagents_display_messages_unsettled";
    ALTER TABLE "sagents_display_messages"
        DROP CONSTRAINT "sagents_display_messages_pkey",
        DROP CONSTRAINT "sagents_display_messages_key",
        DROP CONSTRAINT "sagents_display_messages_fkey";
    ALTER TABLE "sagents_agent_states"
        DROP CONSTRAINT "sagents_agent_states_pkey",
        DROP CONSTRAINT "sagents_agent_states_fkey";
    DROP INDEX "sagents_conversations_updated";
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    ALTER TABLE "sagents_conversations"
        DROP CONSTRAINT "sagents_conversations_pkey",
        DROP CONSTRAINT "sagents_conversations_fkey";

    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "team_id";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "team_id";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "team_id";
    ALTER TABLE "sagents_agent_messages" DROP COLUMN "team_id";
    ALTER TABLE "sagents_unreadable_states" DROP COLUMN "team_id";
    ALTER TABLE "sagents_runs" DROP COLUMN "team_id";
    ALTER TABLE "sagents_usage" DROP COLUMN "team_id";

    -- Columns as they are from now on.
    ALTER TABLE "sagents_conversations" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_agent_states" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_display_messages" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_agent_messages" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_unreadable_states" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_runs" ALTER COLUMN "user_id" SET NOT NULL;
    ALTER TABLE "sagents_usage" ALTER COLUMN "user_id" SET NOT NULL;

    -- New tables, keys, checks and indexes.
    ALTER TABLE "sagents_conversations"
        ADD CONSTRAINT "sagents_conversations_pkey" PRIMARY KEY ("user_id", "id"),
        ADD CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE;
    CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC);
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    ALTER TABLE "sagents_agent_states"
        ADD CONSTRAINT "sagents_agent_states_pkey" PRIMARY KEY ("user_id", "conversation_id"),
        ADD CONSTRAINT "sagents_agent_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    ALTER TABLE "sagents_display_messages"
        ADD CONSTRAINT "sagents_display_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "sequence"),
        ADD CONSTRAINT "sagents_display_messages_key" UNIQUE ("user_id", "conversation_id", "message_id", "item"),
        ADD CONSTRAINT "sagents_display_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "sagents_display_messages_changed" ON "sagents_display_messages" ("user_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "sagents_display_messages_unsettled" ON "sagents_display_messages" ("user_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    ALTER TABLE "sagents_agent_messages"
        ADD CONSTRAINT "sagents_agent_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "epoch", "position"),
        ADD CONSTRAINT "sagents_agent_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    ALTER TABLE "sagents_unreadable_states"
        ADD CONSTRAINT "sagents_unreadable_states_pkey" PRIMARY KEY ("user_id", "conversation_id", "epoch"),
        ADD CONSTRAINT "sagents_unreadable_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    ALTER TABLE "sagents_runs"
        ADD CONSTRAINT "sagents_runs_pkey" PRIMARY KEY ("user_id", "conversation_id"),
        ADD CONSTRAINT "sagents_runs_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    CREATE INDEX "sagents_runs_unfinished" ON "sagents_runs" ("user_id", "started_at")
        WHERE status IN ('running', 'waiting');
    ALTER TABLE "sagents_usage"
        ADD CONSTRAINT "sagents_usage_pkey" PRIMARY KEY ("user_id", "conversation_id", "message_id"),
        ADD CONSTRAINT "sagents_usage_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE;
    CREATE INDEX "sagents_usage_times" ON "sagents_usage" ("user_id", "inserted_at");
    "#);
}

#[test]
fn a_backfill_is_evaluated_on_the_old_columns_also_where_the_name_is_the_same() {
    let by_uuid = tables("sagents_", Some(("user_id", Kind::Uuid, Some("people"))));
    let transition = change(&user(), &by_uuid, backfill("unhex(printf('%032x', user_id))"));
    assert_eq!(columns(&transition.schema().tables[1]).last(), Some(&"old_user_id"));
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "sagents_new_owner"), @r#"
    -- Every conversation gets its user_id.
    ALTER TABLE "sagents_conversations" ADD COLUMN "sagents_new_owner" BLOB;
    UPDATE "sagents_conversations" AS conversation SET "sagents_new_owner" = (unhex(printf('%032x', user_id)));

    -- Stops, with nothing changed, if a conversation is without a user_id.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the backfill leaves conversations without a user_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if two conversations would have the same key.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations of one id that would have the same user_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" GROUP BY "sagents_new_owner", "id" HAVING count(*) > 1
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if a user_id is not in people.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations whose user_id is not in people; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE NOT EXISTS (
            SELECT 1 FROM "people" AS owner WHERE owner."id" = conversation."sagents_new_owner"
        )
    );
    DROP TABLE "sagents_guard";

    -- Every row is copied, parents first.
    INSERT INTO "sagents_conversations_new"
        ("user_id", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "old_user_id")
        SELECT "sagents_new_owner", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "user_id"
        FROM "sagents_conversations";
    INSERT INTO "sagents_agent_states_new"
        ("user_id", "conversation_id", "version", "revision", "write_id", "data", "unreadable_data", "inserted_at", "updated_at", "epoch", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."version", child."revision", child."write_id", child."data", child."unreadable_data", child."inserted_at", child."updated_at", child."epoch", child."user_id"
        FROM "sagents_agent_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_display_messages_new"
        ("user_id", "conversation_id", "sequence", "message_id", "item", "role", "content_type", "content", "metadata", "tool_call_id", "status", "inserted_at", "changed", "delivery", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."sequence", child."message_id", child."item", child."role", child."content_type", child."content", child."metadata", child."tool_call_id", child."status", child."inserted_at", child."changed", child."delivery", child."user_id"
        FROM "sagents_display_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_agent_messages_new"
        ("user_id", "conversation_id", "epoch", "position", "message_id", "data", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."position", child."message_id", child."data", child."user_id"
        FROM "sagents_agent_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_unreadable_states_new"
        ("user_id", "conversation_id", "epoch", "data", "set_aside_at", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."data", child."set_aside_at", child."user_id"
        FROM "sagents_unreadable_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_runs_new"
        ("user_id", "conversation_id", "run_id", "holder", "status", "waiting_for", "cancel_requested", "started_at", "seen_at", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."run_id", child."holder", child."status", child."waiting_for", child."cancel_requested", child."started_at", child."seen_at", child."user_id"
        FROM "sagents_runs" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_usage_new"
        ("user_id", "conversation_id", "message_id", "model", "input_tokens", "output_tokens", "cached_tokens", "inserted_at", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."message_id", child."model", child."input_tokens", child."output_tokens", child."cached_tokens", child."inserted_at", child."user_id"
        FROM "sagents_usage" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    "#);
    let up = transition.up(Database::Postgres);
    insta::assert_snapshot!(steps(&up, "RENAME"), @r#"
    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_conversations" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "sagents_new_owner" TO "user_id";
    "#);
    insta::assert_snapshot!(steps(&transition.down(Database::Postgres), "RENAME"), @r#"
    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "old_user_id" TO "user_id";
    "#);
}

#[test]
fn without_a_backfill_only_empty_tables_can_change() {
    let transition = change(&user(), &team(), Wish::default());
    assert!(transition.lacks_backfill());
    for database in BOTH {
        let up = transition.up(database);
        assert!(!up.contains("UPDATE \"sagents_conversations\""), "{up}");
    }
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "--backfill"), @r#"
    -- Stops, with nothing changed, if a conversation is without a team_id.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations already: say with --backfill what their team_id is; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL
    );
    DROP TABLE "sagents_guard";
    "#);
    insta::assert_snapshot!(steps(&transition.up(Database::Postgres), "--backfill"), @r#"
    -- Stops, with nothing changed, if a conversation is without a team_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL) THEN
            RAISE EXCEPTION 'there are conversations already: say with --backfill what their team_id is; nothing was changed';
        END IF;
    END
    $$;
    "#);
}

#[test]
fn there_and_back_needs_no_backfill() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let back = change(&there, &user(), Wish::default());
    assert!(!back.lacks_backfill());
    insta::assert_snapshot!(steps(&back.up(Database::Postgres), "former"), @r#"
    -- Stops, with nothing changed, if a conversation is without a user_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL) THEN
            RAISE EXCEPTION 'there are conversations without a former user_id: say with --backfill what their user_id is; nothing was changed';
        END IF;
    END
    $$;
    "#);
    insta::assert_snapshot!(columns(&back.schema().tables[1]).join(" "), @"user_id conversation_id version revision write_id data unreadable_data inserted_at updated_at epoch team_id old_user_id");
    // Another type would need a conversion.
    let by_uuid = tables("sagents_", Some(("user_id", Kind::Uuid, None)));
    assert!(change(&there, &by_uuid, Wish::default()).lacks_backfill());
}

#[test]
fn former_owners_have_names_of_their_own() {
    let mut schema = user();
    for kind in [Kind::Text, Kind::Uuid, Kind::Text] {
        schema = changed(&schema, &tables("sagents_", Some(("user_id", kind, None))), Wish::default());
    }
    assert_eq!(columns(&schema.tables[0])[12..], ["old_user_id_3", "old_user_id_2", "old_user_id"]);
    let long = "u".repeat(63);
    let before = tables("sagents_", Some((&long, Kind::Text, None)));
    let after = changed(&before, &tables("sagents_", Some((&long, Kind::Uuid, None))), Wish::default());
    assert_eq!(columns(&after.tables[0])[12], format!("old_{}", &long[4..]));
}

#[test]
fn the_old_owner_goes_by_a_run_of_its_own() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let transition = change(&there, &team(), Wish { drop_old_owner: true, ..same_owner() });
    assert_eq!(transition.schema(), &team());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_unreadable_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_runs" DROP COLUMN "user_id";
    ALTER TABLE "sagents_usage" DROP COLUMN "user_id";
    "#);
    insta::assert_snapshot!(transition.down(Database::Sqlite), @r#"
    -- The columns that were not used come back, without their values.

    -- New columns.
    ALTER TABLE "sagents_conversations" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_agent_messages" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_unreadable_states" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_runs" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_usage" ADD COLUMN "user_id" INTEGER;
    "#);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_unreadable_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_runs" DROP COLUMN "user_id";
    ALTER TABLE "sagents_usage" DROP COLUMN "user_id";
    "#);
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- The columns that were not used come back, without their values.

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_conversations" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_agent_messages" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_unreadable_states" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_runs" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_usage" ADD COLUMN "user_id" BIGINT;
    "#);
}

#[test]
fn an_owner_that_leaves_now_is_not_dropped_now() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let org = tables("sagents_", Some(("org_id", Kind::Text, Some("orgs"))));
    let transition = change(&there, &org, Wish { drop_old_owner: true, ..backfill("'one'") });
    assert_eq!(columns(&transition.schema().tables[1])[10..], ["team_id"]);
}

#[test]
fn a_field_that_is_renamed_keeps_its_values() {
    let member = tables("sagents_", Some(("member_id", Kind::BigInteger, Some("users"))));
    let transition = change(&user(), &member, same_owner());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "user_id" TO "member_id";
    "#);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "user_id" TO "member_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "user_id" TO "member_id";
    "#);
    // Where somebody says whose they are, that counts.
    assert_eq!(changed(&user(), &member, backfill("7")).tables[0].columns.len(), 13);
}

#[test]
fn another_kind_of_owner_without_a_table_is_another_owner() {
    let loose = tables("sagents_", Some(("owner_id", Kind::BigInteger, None)));
    assert!(is_unchanged(&loose, &loose, &same_owner()));
    assert!(change(&loose, &loose, Wish::default()).lacks_backfill());
    assert_eq!(columns(&changed(&loose, &loose, backfill("7")).tables[1])[10..], ["old_owner_id"]);
    // A table tells whose the values are, unless somebody says otherwise.
    assert!(is_unchanged(&user(), &user(), &Wish::default()));
    assert_eq!(columns(&changed(&user(), &user(), backfill("7")).tables[1])[10..], ["old_user_id"]);
}

#[test]
fn a_field_may_take_the_name_of_a_former_owner() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let renamed = tables("sagents_", Some(("user_id", Kind::Uuid, Some("teams"))));
    let transition = change(&there, &renamed, same_owner());
    assert_eq!(columns(&transition.schema().tables[1])[10..], ["old_user_id"]);
    let names = |sql: &str| sql.lines().filter(|line| line.contains("states\" RENAME")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(names(&transition.up(Database::Sqlite)), @r#"
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "team_id" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "team_id" TO "user_id";
    "#);
    insta::assert_snapshot!(names(&transition.down(Database::Sqlite)), @r#"
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "team_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "team_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "old_user_id" TO "user_id";
    "#);
}

#[test]
fn a_prefix_changes_in_place() {
    let chat = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let transition = change(&user(), &chat, same_owner());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- Indexes that change go first.
    DROP INDEX "sagents_conversations_updated";
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    DROP INDEX "sagents_display_messages_tool_calls";
    DROP INDEX "sagents_display_messages_changed";
    DROP INDEX "sagents_display_messages_unsettled";
    DROP INDEX "sagents_runs_unfinished";
    DROP INDEX "sagents_usage_times";

    -- Tables by their new names.
    ALTER TABLE "sagents_conversations" RENAME TO "chat_conversations";
    ALTER TABLE "sagents_agent_states" RENAME TO "chat_agent_states";
    ALTER TABLE "sagents_display_messages" RENAME TO "chat_display_messages";
    ALTER TABLE "sagents_agent_messages" RENAME TO "chat_agent_messages";
    ALTER TABLE "sagents_unreadable_states" RENAME TO "chat_unreadable_states";
    ALTER TABLE "sagents_runs" RENAME TO "chat_runs";
    ALTER TABLE "sagents_usage" RENAME TO "chat_usage";

    -- Indexes as they are from now on.
    CREATE INDEX "chat_conversations_updated" ON "chat_conversations" ("user_id", "updated_at" DESC, "id" DESC);
    CREATE INDEX "chat_conversations_active" ON "chat_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived" ON "chat_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "chat_display_messages_tool_calls" ON "chat_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
        WHERE tool_call_id IS NOT NULL;
    CREATE INDEX "chat_display_messages_changed" ON "chat_display_messages" ("user_id", "conversation_id", "changed", "sequence")
        WHERE changed >= 0;
    CREATE INDEX "chat_display_messages_unsettled" ON "chat_display_messages" ("user_id", "conversation_id", "delivery", "message_id")
        WHERE delivery IN ('draft', 'unsaved');
    CREATE INDEX "chat_runs_unfinished" ON "chat_runs" ("user_id", "started_at")
        WHERE status IN ('running', 'waiting');
    CREATE INDEX "chat_usage_times" ON "chat_usage" ("user_id", "inserted_at");
    "#);
    insta::assert_snapshot!(steps(&transition.up(Database::Postgres), "_states"), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Everything gets its new name.
    ALTER TABLE "sagents_conversations" RENAME TO "chat_conversations";
    ALTER TABLE "chat_conversations" RENAME CONSTRAINT "sagents_conversations_pkey" TO "chat_conversations_pkey";
    ALTER TABLE "chat_conversations" RENAME CONSTRAINT "sagents_conversations_fkey" TO "chat_conversations_fkey";
    ALTER INDEX "sagents_conversations_updated" RENAME TO "chat_conversations_updated";
    ALTER INDEX "sagents_conversations_active" RENAME TO "chat_conversations_active";
    ALTER INDEX "sagents_conversations_archived" RENAME TO "chat_conversations_archived";
    ALTER TABLE "sagents_agent_states" RENAME TO "chat_agent_states";
    ALTER TABLE "chat_agent_states" RENAME CONSTRAINT "sagents_agent_states_pkey" TO "chat_agent_states_pkey";
    ALTER TABLE "chat_agent_states" RENAME CONSTRAINT "sagents_agent_states_fkey" TO "chat_agent_states_fkey";
    ALTER TABLE "sagents_display_messages" RENAME TO "chat_display_messages";
    ALTER TABLE "chat_display_messages" RENAME CONSTRAINT "sagents_display_messages_pkey" TO "chat_display_messages_pkey";
    ALTER TABLE "chat_display_messages" RENAME CONSTRAINT "sagents_display_messages_key" TO "chat_display_messages_key";
    ALTER TABLE "chat_display_messages" RENAME CONSTRAINT "sagents_display_messages_fkey" TO "chat_display_messages_fkey";
    ALTER INDEX "sagents_display_messages_tool_calls" RENAME TO "chat_display_messages_tool_calls";
    ALTER INDEX "sagents_display_messages_changed" RENAME TO "chat_display_messages_changed";
    ALTER INDEX "sagents_display_messages_unsettled" RENAME TO "chat_display_messages_unsettled";
    ALTER TABLE "sagents_agent_messages" RENAME TO "chat_agent_messages";
    ALTER TABLE "chat_agent_messages" RENAME CONSTRAINT "sagents_agent_messages_pkey" TO "chat_agent_messages_pkey";
    ALTER TABLE "chat_agent_messages" RENAME CONSTRAINT "sagents_agent_messages_fkey" TO "chat_agent_messages_fkey";
    ALTER TABLE "sagents_unreadable_states" RENAME TO "chat_unreadable_states";
    ALTER TABLE "chat_unreadable_states" RENAME CONSTRAINT "sagents_unreadable_states_pkey" TO "chat_unreadable_states_pkey";
    ALTER TABLE "chat_unreadable_states" RENAME CONSTRAINT "sagents_unreadable_states_fkey" TO "chat_unreadable_states_fkey";
    ALTER TABLE "sagents_runs" RENAME TO "chat_runs";
    ALTER TABLE "chat_runs" RENAME CONSTRAINT "sagents_runs_pkey" TO "chat_runs_pkey";
    ALTER TABLE "chat_runs" RENAME CONSTRAINT "sagents_runs_fkey" TO "chat_runs_fkey";
    ALTER INDEX "sagents_runs_unfinished" RENAME TO "chat_runs_unfinished";
    ALTER TABLE "sagents_usage" RENAME TO "chat_usage";
    ALTER TABLE "chat_usage" RENAME CONSTRAINT "sagents_usage_pkey" TO "chat_usage_pkey";
    ALTER TABLE "chat_usage" RENAME CONSTRAINT "sagents_usage_fkey" TO "chat_usage_fkey";
    ALTER INDEX "sagents_usage_times" RENAME TO "chat_usage_times";
    "#);
    assert!(rebuilt(&transition).is_empty());
}

#[test]
fn a_foreign_key_is_replaced() {
    let people = tables("sagents_", Some(("user_id", Kind::BigInteger, Some("people"))));
    let transition = change(&user(), &people, same_owner());
    assert_eq!(transition.schema(), &people);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Says what is missing before anything is changed.
    DO $$
    BEGIN
        IF to_regclass('"people"') IS NULL THEN
            RAISE EXCEPTION 'the table "people" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
        END IF;
        IF NOT has_table_privilege('"people"', 'REFERENCES') THEN
            RAISE EXCEPTION 'the role % may not refer to "people": let its owner GRANT REFERENCES ON "people" TO %',
                current_user, current_user;
        END IF;
    END
    $$;

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Tables, keys, checks and indexes that are no more.
    ALTER TABLE "sagents_conversations" DROP CONSTRAINT "sagents_conversations_fkey";

    -- New tables, keys, checks and indexes.
    ALTER TABLE "sagents_conversations" ADD CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "people" ("id") ON DELETE CASCADE;
    "#);
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "is not in"), @r#"
    -- Stops, with nothing changed, if a user_id is not in people.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations whose user_id is not in people; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE NOT EXISTS (
            SELECT 1 FROM "people" AS owner WHERE owner."id" = conversation."user_id"
        )
    );
    DROP TABLE "sagents_guard";
    "#);
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
fn what_a_host_has_on_tables_is_no_obstacle_to_a_change_in_place() {
    let mut older = user();
    older.tables[2].columns.retain(|column| column.name != "metadata");
    let transition = change(&older, &user(), same_owner());
    assert_eq!(sqlite::rebuilt(&transition.path_down(&[])), ["sagents_display_messages"], "on the way back");
    for database in BOTH {
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(&older, database));
        catalog.apply("CREATE INDEX host ON sagents_display_messages (content);");
        catalog.apply("CREATE VIEW host_view AS SELECT * FROM sagents_display_messages;");
        transition.refuse_obstacles(&catalog, database).unwrap();
    }
}

#[test]
fn what_a_newer_generator_makes_stricter_is_made_so() {
    let mut older = user();
    let messages = &mut older.tables[2];
    messages.unique.clear();
    messages.columns.retain(|column| column.name != "status");
    messages.checks.retain(|check| !check.condition.contains("status") && check.name != "valid_item");
    messages.columns[6].default = Some(Default::Zero);
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
        ADD CONSTRAINT "valid_status" CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
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

#[test]
fn columns_of_the_host_are_carried_along() {
    let additions = [Addition {
        table: "sagents_conversations".to_owned(),
        column: "pinned".to_owned(),
        definition: "pinned INTEGER NOT NULL DEFAULT 0".to_owned(),
        generated: false,
    }];
    let chat = tables("chat_", Some(("team_id", Kind::Uuid, Some("teams"))));
    let transition = change(&user(), &chat, Wish { additions: &additions, ..backfill(BACKFILL) });
    for sql in [transition.up(Database::Sqlite), transition.down(Database::Sqlite)] {
        assert_eq!(sql.matches("pinned INTEGER NOT NULL DEFAULT 0,").count(), 1, "{sql}");
        assert_eq!(sql.matches("\"pinned\"").count(), 2, "{sql}");
        assert!(sql.contains("'pinned')"), "{sql}");
    }
    let additions = [Addition { column: "Team_Id".to_owned(), ..additions[0].clone() }];
    let refused = transition_error(&user(), &team(), &Wish { additions: &additions, ..backfill(BACKFILL) });
    insta::assert_snapshot!(refused, @r#"
    the table `sagents_conversations` has a column `Team_Id` of your own, and would get one of that name
    help: rename or drop yours in a migration, or choose another name with --owner-field
    "#);
}

/// The name of the old owner's column is needed for the new one, also in what the host computes from it.
#[test]
fn a_computed_column_of_the_host_is_made_again_but_not_copied() {
    let additions = [Addition {
        table: "sagents_conversations".to_owned(),
        column: "label".to_owned(),
        definition: "label TEXT GENERATED ALWAYS AS (user_id || title) VIRTUAL".to_owned(),
        generated: true,
    }];
    let person = tables("sagents_", Some(("user_id", Kind::Uuid, Some("people"))));
    let transition = change(&user(), &person, Wish { additions: &additions, ..backfill("1") });
    let (up, down) = (transition.up(Database::Sqlite), transition.down(Database::Sqlite));
    assert!(up.contains("    label TEXT GENERATED ALWAYS AS (\"old_user_id\" || title) VIRTUAL,\n"), "{up}");
    assert!(down.contains("    label TEXT GENERATED ALWAYS AS (\"user_id\" || title) VIRTUAL,\n"), "{down}");
    assert!(!up.contains("\"label\"") && !down.contains("\"label\""), "{up}{down}");
}

#[test]
fn the_default_schema_may_be_named_or_not() {
    let mut named = user();
    named.tables[0].foreign_keys[0].schema = Some("public".to_owned());
    let mut elsewhere = user();
    elsewhere.tables[0].foreign_keys[0].schema = Some("audit".to_owned());
    assert!(is_unchanged(&user(), &named, &same_owner()));
    assert!(is_unchanged(&named, &user(), &same_owner()));
    assert_eq!(change(&user(), &elsewhere, same_owner()).name(), "change_sagents_owner_table");
    let chat = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let renamed = change(&named, &chat, same_owner()).up(Database::Postgres);
    assert!(!renamed.contains("DROP CONSTRAINT"), "{renamed}");
}

fn transition_error(old: &Schema, new: &Schema, wish: &Wish) -> String {
    transition(old, new, wish).unwrap_err().to_string()
}

/// The next run reads the columns of a host's own from its migrations, ours among them.
#[test]
fn a_host_that_reads_its_migrations_finds_the_tables_that_are_recorded() {
    let schemas = [
        user(),
        team(),
        none(),
        tables("chat_", Some(("user_id", Kind::Uuid, None))),
        tables("", Some(("member_id", Kind::BigInteger, Some("users")))),
        grown(user()),
    ];
    let pairs = schemas.iter().flat_map(|old| schemas.iter().map(move |new| (old, new)));
    for (database, (old, new)) in pairs.flat_map(|pair| BOTH.map(|database| (database, pair))) {
        let there = transition(old, new, &same_owner()).unwrap();
        let dropped = transition(there.schema(), new, &Wish { drop_old_owner: true, ..same_owner() }).unwrap();
        let mut catalog = Catalog::new(database);
        catalog.apply(&sql::create(old, database));
        catalog.apply(&there.up(database));
        assert_eq!(found(&catalog, there.schema()), recorded(there.schema()));
        catalog.apply(&dropped.up(database));
        assert_eq!(found(&catalog, new), recorded(new));
        catalog.apply(&dropped.down(database));
        catalog.apply(&there.down(database));
        assert_eq!(found(&catalog, old), recorded(old));
    }
}

fn found(catalog: &Catalog, schema: &Schema) -> Vec<Vec<String>> {
    let columns = |table: &Table| {
        let found = catalog.table(&table.name).unwrap_or_else(|| panic!("{} is not found", table.name));
        let mut names: Vec<_> = found.columns.iter().map(|column| column.name.clone()).collect();
        names.sort();
        names
    };
    schema.tables.iter().map(columns).collect()
}

fn recorded(schema: &Schema) -> Vec<Vec<String>> {
    let columns = |table: &Table| {
        let mut names: Vec<_> = table.columns.iter().map(|column| column.name.clone()).collect();
        names.sort();
        names
    };
    schema.tables.iter().map(columns).collect()
}

#[test]
fn a_recorded_schema_keeps_its_former_owners() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let json = serde_json::to_string(&there).unwrap();
    assert_eq!(json.matches("\"retired\":true").count(), there.tables.len());
    assert!(!json.contains("\"retired\":false"));
    assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), there);
}

/// What somebody may make of a recorded schema by hand.
mod edited {
    use proptest::prelude::*;
    use proptest::sample::{Index as Place, select};

    use super::*;
    use crate::schema::{ForeignKey, IndexColumn};

    #[derive(Debug, Clone)]
    enum Edit {
        RenameTable(Place, &'static str),
        DropTable(Place),
        RepeatTable(Place),
        RenameColumn(Place, Place, &'static str),
        DropColumn(Place, Place),
        RepeatColumn(Place, Place),
        Kind(Place, Place, Kind),
        Nullable(Place, Place),
        Default(Place, Place),
        Retire(Place, Place),
        Key(Place, Vec<&'static str>),
        Unique(Place, Option<Vec<&'static str>>),
        References(Place, Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)>),
        Check(Place, &'static str),
        Index(Place, &'static str, Vec<&'static str>),
        Cluster(Place),
    }

    const NAMES: &[&str] = &[
        "",
        "id",
        "ID",
        "user_id",
        "team_id",
        "old_user_id",
        "conversation_id",
        "title",
        "users",
        "sagents_conversations",
        "sagents_conversations_new",
        "chat_agent_states",
        "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        "\"; DROP TABLE users; --",
        "\0",
    ];

    fn edit() -> impl Strategy<Value = Edit> {
        let (place, name) = (any::<Place>, || select(NAMES));
        let names = || proptest::collection::vec(select(NAMES), 0..4);
        let kind = select(&[Kind::Boolean, Kind::BigInteger, Kind::Uuid, Kind::Text, Kind::Time][..]);
        prop_oneof![
            (place(), name()).prop_map(|(t, name)| Edit::RenameTable(t, name)),
            place().prop_map(Edit::DropTable),
            place().prop_map(Edit::RepeatTable),
            (place(), place(), name()).prop_map(|(t, c, name)| Edit::RenameColumn(t, c, name)),
            (place(), place()).prop_map(|(t, c)| Edit::DropColumn(t, c)),
            (place(), place()).prop_map(|(t, c)| Edit::RepeatColumn(t, c)),
            (place(), place(), kind).prop_map(|(t, c, kind)| Edit::Kind(t, c, kind)),
            (place(), place()).prop_map(|(t, c)| Edit::Nullable(t, c)),
            (place(), place()).prop_map(|(t, c)| Edit::Default(t, c)),
            (place(), place()).prop_map(|(t, c)| Edit::Retire(t, c)),
            (place(), names()).prop_map(|(t, names)| Edit::Key(t, names)),
            (place(), proptest::option::of(names())).prop_map(|(t, names)| Edit::Unique(t, names)),
            (place(), proptest::collection::vec((name(), names(), names()), 0..3))
                .prop_map(|(t, keys)| Edit::References(t, keys)),
            (place(), name()).prop_map(|(t, name)| Edit::Check(t, name)),
            (place(), name(), names()).prop_map(|(t, name, names)| Edit::Index(t, name, names)),
            place().prop_map(Edit::Cluster),
        ]
    }

    /// One that the generator makes, and what comes of it by a few edits.
    fn edited() -> impl Strategy<Value = Schema> {
        let made = [
            user(),
            team(),
            none(),
            tables("chat_", Some(("user_id", Kind::BigInteger, Some("users")))),
            tables("", Some(("title_id", Kind::Text, None))),
            changed(&user(), &team(), backfill(BACKFILL)),
            changed(&user(), &none(), Wish::default()),
            grown(user()),
        ];
        let edits = proptest::collection::vec(edit(), 0..4);
        (proptest::sample::select(made.to_vec()), edits).prop_map(|(schema, edits)| edits.iter().fold(schema, apply))
    }

    fn apply(mut schema: Schema, edit: &Edit) -> Schema {
        use Edit::*;
        let (RenameTable(t, _)
        | DropTable(t)
        | RepeatTable(t)
        | RenameColumn(t, ..)
        | DropColumn(t, _)
        | RepeatColumn(t, _)
        | Kind(t, ..)
        | Nullable(t, _)
        | Default(t, _)
        | Retire(t, _)
        | Key(t, _)
        | Unique(t, _)
        | References(t, _)
        | Check(t, _)
        | Index(t, ..)
        | Cluster(t)) = edit;
        if schema.tables.is_empty() {
            return schema;
        }
        let place = t.index(schema.tables.len());
        let table = &mut schema.tables[place];
        let column = |c: &Place, table: &Table| c.index(table.columns.len().max(1));
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        match edit {
            RenameTable(_, name) => table.name = (*name).to_owned(),
            DropTable(_) => drop(schema.tables.remove(place)),
            RepeatTable(_) => schema.tables.push(schema.tables[place].clone()),
            DropColumn(_, c) => {
                let place = column(c, table);
                table.columns =
                    table.columns.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, c)| c.clone()).collect();
            }
            RepeatColumn(_, c) => table.columns.extend(table.columns.get(column(c, table)).cloned()),
            RenameColumn(_, c, _) | Kind(_, c, _) | Nullable(_, c) | Default(_, c) | Retire(_, c) => {
                let place = column(c, table);
                let Some(column) = table.columns.get_mut(place) else { return schema };
                match edit {
                    RenameColumn(_, _, name) => column.name = (*name).to_owned(),
                    Kind(_, _, kind) => column.kind = *kind,
                    Nullable(..) => column.nullable = !column.nullable,
                    Default(..) => column.default = Some(schema::Default::Zero),
                    _ => column.retired = !column.retired,
                }
            }
            Key(_, names) => table.primary_key.columns = owned(names),
            Unique(_, names) => {
                let key = |names: &Vec<&str>| schema::Key { name: "unique".to_owned(), columns: owned(names) };
                table.unique = names.iter().map(key).collect();
            }
            References(_, keys) => {
                let key = |(name, columns, references): &(&str, Vec<&str>, Vec<&str>)| ForeignKey {
                    name: format!("to_{name}"),
                    columns: owned(columns),
                    schema: None,
                    table: (*name).to_owned(),
                    references: owned(references),
                };
                table.foreign_keys = keys.iter().map(key).collect();
            }
            Check(_, text) => table.checks.push(check(&format!("check_{text}"), text)),
            Index(_, name, columns) => table.indexes.push(schema::Index {
                name: (*name).to_owned(),
                columns: owned(columns).into_iter().map(|name| IndexColumn { name, descending: false }).collect(),
                only: None,
            }),
            Cluster(_) => table.clustered = !table.clustered,
        }
        schema
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn no_two_schemas_make_a_panic(
            old in edited(),
            new in edited(),
            backfill in proptest::option::of(select(&["1", BACKFILL][..])),
            drop_old_owner: bool,
            same_owner: bool,
            taken in proptest::collection::vec(select(NAMES).prop_map(str::to_owned), 0..3),
            added in proptest::option::of(select(NAMES)),
        ) {
            let additions: Vec<_> = added.into_iter().map(|name| Addition {
                table: "sagents_conversations".to_owned(),
                column: name.to_owned(),
                definition: format!("\"{name}\" TEXT GENERATED ALWAYS AS (user_id || title)"),
                generated: true,
            }).collect();
            let wish = Wish { backfill, drop_old_owner, same_owner, additions: &additions, taken: &taken };
            if let Ok(transition) = transition(&old, &new, &wish) {
                for database in BOTH {
                    let _ = (transition.up(database), transition.down(database), transition.name());
                    let _ = (transition.additions(database), transition.refuse_obstacles(&Catalog::new(database), database));
                }
            }
        }
    }
}
