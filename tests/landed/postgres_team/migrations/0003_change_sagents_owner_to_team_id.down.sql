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
LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages" IN ACCESS EXCLUSIVE MODE;

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

-- Keys, checks and indexes that change go first.
DROP INDEX "sagents_display_messages_tool_calls";
ALTER TABLE "sagents_display_messages"
    DROP CONSTRAINT "sagents_display_messages_fkey",
    DROP CONSTRAINT "sagents_display_messages_key",
    DROP CONSTRAINT "sagents_display_messages_pkey";
ALTER TABLE "sagents_agent_states"
    DROP CONSTRAINT "sagents_agent_states_fkey",
    DROP CONSTRAINT "sagents_agent_states_pkey";
DROP INDEX "sagents_conversations_updated";
ALTER TABLE "sagents_conversations"
    DROP CONSTRAINT "sagents_conversations_fkey",
    DROP CONSTRAINT "sagents_conversations_pkey";

-- Columns that are no more.
ALTER TABLE "sagents_conversations" DROP COLUMN "team_id";
ALTER TABLE "sagents_agent_states" DROP COLUMN "team_id";
ALTER TABLE "sagents_display_messages" DROP COLUMN "team_id";

-- Columns as they are from now on.
ALTER TABLE "sagents_conversations" ALTER COLUMN "user_id" SET NOT NULL;
ALTER TABLE "sagents_agent_states" ALTER COLUMN "user_id" SET NOT NULL;
ALTER TABLE "sagents_display_messages" ALTER COLUMN "user_id" SET NOT NULL;

-- Everything gets its new name.
ALTER TABLE "sagents_conversations" RENAME TO "ai_conversations";
ALTER TABLE "ai_conversations" RENAME CONSTRAINT "sagents_conversations_next_sequence_check" TO "ai_conversations_next_sequence_check";
ALTER TABLE "sagents_agent_states" RENAME TO "ai_agent_states";
ALTER TABLE "ai_agent_states" RENAME CONSTRAINT "sagents_agent_states_revision_check" TO "ai_agent_states_revision_check";
ALTER TABLE "sagents_display_messages" RENAME TO "ai_display_messages";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_sequence_check" TO "ai_display_messages_sequence_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_item_check" TO "ai_display_messages_item_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_role_check" TO "ai_display_messages_role_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_content_type_check" TO "ai_display_messages_content_type_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_status_check" TO "ai_display_messages_status_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_check" TO "ai_display_messages_check";
ALTER TABLE "ai_display_messages" RENAME CONSTRAINT "sagents_display_messages_check1" TO "ai_display_messages_check1";

-- Keys, checks and indexes as they are from now on.
ALTER TABLE "ai_conversations"
    ADD CONSTRAINT "ai_conversations_pkey" PRIMARY KEY ("user_id", "id"),
    ADD CONSTRAINT "ai_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE;
CREATE INDEX "ai_conversations_updated" ON "ai_conversations" ("user_id", "updated_at" DESC, "id" DESC);
ALTER TABLE "ai_agent_states"
    ADD CONSTRAINT "ai_agent_states_pkey" PRIMARY KEY ("user_id", "conversation_id"),
    ADD CONSTRAINT "ai_agent_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "ai_conversations" ("user_id", "id") ON DELETE CASCADE;
ALTER TABLE "ai_display_messages"
    ADD CONSTRAINT "ai_display_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "sequence"),
    ADD CONSTRAINT "ai_display_messages_key" UNIQUE ("user_id", "conversation_id", "message_id", "item"),
    ADD CONSTRAINT "ai_display_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "ai_conversations" ("user_id", "id") ON DELETE CASCADE;
CREATE INDEX "ai_display_messages_tool_calls" ON "ai_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
