//! Whole migrations from one owner to another, there and back.

use super::*;

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
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_agent_states') WHERE name NOT IN ('user_id', 'conversation_id', 'version', 'revision', 'write_id', 'data', 'inserted_at', 'updated_at', 'epoch')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_display_messages') WHERE name NOT IN ('user_id', 'conversation_id', 'sequence', 'message_id', 'item', 'role', 'content_type', 'content', 'metadata', 'tool_call_id', 'status', 'inserted_at', 'changed', 'delivery')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_agent_messages') WHERE name NOT IN ('user_id', 'conversation_id', 'epoch', 'position', 'message_id', 'data')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_unreadable_states') WHERE name NOT IN ('user_id', 'conversation_id', 'epoch', 'data', 'set_aside_at')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_runs') WHERE name NOT IN ('user_id', 'conversation_id', 'run_id', 'holder', 'status', 'waiting_for', 'cancel_requested', 'started_at', 'seen_at', 'resumed')
        UNION ALL SELECT 1 FROM pragma_table_xinfo('sagents_usage') WHERE name NOT IN ('user_id', 'conversation_id', 'message_id', 'model', 'input_tokens', 'output_tokens', 'cached_tokens', 'inserted_at')
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if the old tables have an index or a trigger that would be lost.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the tables have an index or a trigger of your own: drop it in a migration before this one, and make it again after; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
        AND tbl_name IN ('sagents_conversations', 'sagents_agent_states', 'sagents_display_messages', 'sagents_agent_messages', 'sagents_unreadable_states', 'sagents_runs', 'sagents_usage')
        AND name NOT IN ('sagents_conversations_active', 'sagents_conversations_archived', 'sagents_conversations_active_id', 'sagents_conversations_archived_id', 'sagents_display_messages_tool_calls', 'sagents_display_messages_changed', 'sagents_display_messages_unsettled', 'sagents_runs_unfinished', 'sagents_usage_times')
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

    -- Stops, with nothing changed, if a query of the backfill finds several rows.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "a query of the backfill finds several rows for a conversation; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE (SELECT count(*) FROM (
            SELECT team_id FROM users WHERE users.id = conversation.user_id
        )) > 1
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
        CONSTRAINT "valid_status" CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled', 'unknown')),
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
        "resumed" INTEGER NOT NULL DEFAULT 0,
        "user_id" INTEGER,
        CONSTRAINT "sagents_runs_pkey" PRIMARY KEY ("team_id", "conversation_id"),
        CONSTRAINT "sagents_runs_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations_new" ("team_id", "id") ON DELETE CASCADE,
        CONSTRAINT "team_id_is_uuid" CHECK (length("team_id") = 16),
        CONSTRAINT "conversation_id_is_uuid" CHECK (length("conversation_id") = 16),
        CONSTRAINT "run_id_is_uuid" CHECK (length("run_id") = 16),
        CONSTRAINT "cancel_requested_is_boolean" CHECK ("cancel_requested" IN (0, 1)),
        CONSTRAINT "resumed_is_boolean" CHECK ("resumed" IN (0, 1)),
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
        ("team_id", "conversation_id", "version", "revision", "write_id", "data", "inserted_at", "updated_at", "epoch", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."version", child."revision", child."write_id", child."data", child."inserted_at", child."updated_at", child."epoch", child."user_id"
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
        ("team_id", "conversation_id", "run_id", "holder", "status", "waiting_for", "cancel_requested", "started_at", "seen_at", "resumed", "user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."run_id", child."holder", child."status", child."waiting_for", child."cancel_requested", child."started_at", child."seen_at", child."resumed", child."user_id"
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
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "sagents_conversations_active_id" ON "sagents_conversations" ("team_id", "id")
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived_id" ON "sagents_conversations" ("team_id", "id")
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
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    DROP INDEX "sagents_conversations_active_id";
    DROP INDEX "sagents_conversations_archived_id";
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
    CREATE INDEX "chat_conversations_active" ON "chat_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived" ON "chat_conversations" ("team_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "chat_conversations_active_id" ON "chat_conversations" ("team_id", "id")
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived_id" ON "chat_conversations" ("team_id", "id")
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
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    DROP INDEX "sagents_conversations_active_id";
    DROP INDEX "sagents_conversations_archived_id";
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
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "sagents_conversations_active_id" ON "sagents_conversations" ("user_id", "id")
        WHERE archived_at IS NULL;
    CREATE INDEX "sagents_conversations_archived_id" ON "sagents_conversations" ("user_id", "id")
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
