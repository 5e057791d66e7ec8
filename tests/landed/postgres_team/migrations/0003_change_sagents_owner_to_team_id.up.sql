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
LOCK TABLE "ai_conversations", "ai_agent_states", "ai_display_messages" IN ACCESS EXCLUSIVE MODE;

-- Every conversation gets its team_id.
ALTER TABLE "ai_conversations" ADD COLUMN "sagents_new_owner" UUID;
UPDATE "ai_conversations" SET "sagents_new_owner" = (SELECT team_id FROM users WHERE users.id = user_id);

-- Stops, with nothing changed, if a conversation is without a team_id.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM "ai_conversations" WHERE "sagents_new_owner" IS NULL) THEN
        RAISE EXCEPTION 'the backfill leaves conversations without a team_id; nothing was changed';
    END IF;
END
$$;

-- Stops, with nothing changed, if two conversations would have the same key.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM "ai_conversations" GROUP BY "sagents_new_owner", "id" HAVING count(*) > 1) THEN
        RAISE EXCEPTION 'there are conversations of one id that would have the same team_id; nothing was changed';
    END IF;
END
$$;

-- What belongs to a conversation follows it.
ALTER TABLE "ai_agent_states" ADD COLUMN "sagents_new_owner" UUID;
UPDATE "ai_agent_states" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
    FROM "ai_conversations" AS conversation
    WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
ALTER TABLE "ai_display_messages" ADD COLUMN "sagents_new_owner" UUID;
UPDATE "ai_display_messages" AS child SET "sagents_new_owner" = conversation."sagents_new_owner"
    FROM "ai_conversations" AS conversation
    WHERE conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";

-- Keys, checks and indexes that change go first.
DROP INDEX "ai_display_messages_tool_calls";
ALTER TABLE "ai_display_messages"
    DROP CONSTRAINT "ai_display_messages_fkey",
    DROP CONSTRAINT "ai_display_messages_key",
    DROP CONSTRAINT "ai_display_messages_pkey";
ALTER TABLE "ai_agent_states"
    DROP CONSTRAINT "ai_agent_states_fkey",
    DROP CONSTRAINT "ai_agent_states_pkey";
DROP INDEX "ai_conversations_updated";
ALTER TABLE "ai_conversations"
    DROP CONSTRAINT "ai_conversations_fkey",
    DROP CONSTRAINT "ai_conversations_pkey";

-- Columns by their new names.
ALTER TABLE "ai_conversations" RENAME COLUMN "sagents_new_owner" TO "team_id";
ALTER TABLE "ai_agent_states" RENAME COLUMN "sagents_new_owner" TO "team_id";
ALTER TABLE "ai_display_messages" RENAME COLUMN "sagents_new_owner" TO "team_id";

-- Columns as they are from now on.
ALTER TABLE "ai_conversations"
    ALTER COLUMN "team_id" SET NOT NULL,
    ALTER COLUMN "user_id" DROP NOT NULL;
ALTER TABLE "ai_agent_states"
    ALTER COLUMN "team_id" SET NOT NULL,
    ALTER COLUMN "user_id" DROP NOT NULL;
ALTER TABLE "ai_display_messages"
    ALTER COLUMN "team_id" SET NOT NULL,
    ALTER COLUMN "user_id" DROP NOT NULL;

-- Everything gets its new name.
ALTER TABLE "ai_conversations" RENAME TO "sagents_conversations";
ALTER TABLE "sagents_conversations" RENAME CONSTRAINT "ai_conversations_next_sequence_check" TO "sagents_conversations_next_sequence_check";
ALTER TABLE "ai_agent_states" RENAME TO "sagents_agent_states";
ALTER TABLE "sagents_agent_states" RENAME CONSTRAINT "ai_agent_states_revision_check" TO "sagents_agent_states_revision_check";
ALTER TABLE "ai_display_messages" RENAME TO "sagents_display_messages";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_sequence_check" TO "sagents_display_messages_sequence_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_item_check" TO "sagents_display_messages_item_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_role_check" TO "sagents_display_messages_role_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_content_type_check" TO "sagents_display_messages_content_type_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_status_check" TO "sagents_display_messages_status_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_check" TO "sagents_display_messages_check";
ALTER TABLE "sagents_display_messages" RENAME CONSTRAINT "ai_display_messages_check1" TO "sagents_display_messages_check1";

-- Keys, checks and indexes as they are from now on.
ALTER TABLE "sagents_conversations"
    ADD CONSTRAINT "sagents_conversations_pkey" PRIMARY KEY ("team_id", "id"),
    ADD CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("team_id") REFERENCES "teams" ("id") ON DELETE CASCADE;
CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC);
ALTER TABLE "sagents_agent_states"
    ADD CONSTRAINT "sagents_agent_states_pkey" PRIMARY KEY ("team_id", "conversation_id"),
    ADD CONSTRAINT "sagents_agent_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations" ("team_id", "id") ON DELETE CASCADE;
ALTER TABLE "sagents_display_messages"
    ADD CONSTRAINT "sagents_display_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "sequence"),
    ADD CONSTRAINT "sagents_display_messages_key" UNIQUE ("team_id", "conversation_id", "message_id", "item"),
    ADD CONSTRAINT "sagents_display_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations" ("team_id", "id") ON DELETE CASCADE;
CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("team_id", "conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
