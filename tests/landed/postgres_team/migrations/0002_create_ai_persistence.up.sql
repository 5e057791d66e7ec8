-- Says what is missing before anything is made.
DO $$
BEGIN
    IF NOT has_schema_privilege(current_schema(), 'CREATE') THEN
        RAISE EXCEPTION 'the role % may not create tables in the schema %: let its owner GRANT CREATE ON SCHEMA % TO %',
            current_user, current_schema(), current_schema(), current_user;
    END IF;
    IF to_regclass('"users"') IS NULL THEN
        RAISE EXCEPTION 'the table "users" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
    END IF;
    IF NOT has_table_privilege('"users"', 'REFERENCES') THEN
        RAISE EXCEPTION 'the role % may not refer to "users": let its owner GRANT REFERENCES ON "users" TO %',
            current_user, current_user;
    END IF;
END
$$;

-- Conversations, and where each one's next message goes.
CREATE TABLE "ai_conversations" (
    "user_id" BIGINT NOT NULL,
    "id" UUID NOT NULL,
    "title" TEXT,
    "scope" JSONB NOT NULL,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "interrupted" BOOLEAN NOT NULL DEFAULT FALSE,
    "next_sequence" BIGINT NOT NULL DEFAULT 0,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "ai_conversations_pkey" PRIMARY KEY ("user_id", "id"),
    CONSTRAINT "ai_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,
    CHECK (next_sequence >= 0)
);
CREATE INDEX "ai_conversations_updated" ON "ai_conversations" ("user_id", "updated_at" DESC, "id" DESC);

-- What a conversation's agent knows.
CREATE TABLE "ai_agent_states" (
    "user_id" BIGINT NOT NULL,
    "conversation_id" UUID NOT NULL,
    "version" INTEGER NOT NULL,
    "revision" BIGINT NOT NULL,
    "write_id" UUID NOT NULL,
    "data" JSON NOT NULL,
    "unreadable_data" JSON,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "ai_agent_states_pkey" PRIMARY KEY ("user_id", "conversation_id"),
    CONSTRAINT "ai_agent_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "ai_conversations" ("user_id", "id") ON DELETE CASCADE,
    CHECK (revision >= 1)
);

-- What a person sees of a conversation, in order.
CREATE TABLE "ai_display_messages" (
    "user_id" BIGINT NOT NULL,
    "conversation_id" UUID NOT NULL,
    "sequence" BIGINT NOT NULL,
    "message_id" UUID NOT NULL,
    "item" INTEGER NOT NULL,
    "role" TEXT NOT NULL,
    "content_type" TEXT NOT NULL,
    "content" TEXT NOT NULL,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "tool_call_id" TEXT,
    "status" TEXT,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "ai_display_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "sequence"),
    CONSTRAINT "ai_display_messages_key" UNIQUE ("user_id", "conversation_id", "message_id", "item"),
    CONSTRAINT "ai_display_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "ai_conversations" ("user_id", "id") ON DELETE CASCADE,
    CHECK (sequence >= 0),
    CHECK (item >= 0),
    CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    CHECK (content_type IN ('text', 'thinking', 'image', 'file_reference', 'structured_data', 'notification', 'error', 'tool_call', 'tool_result', 'todo_snapshot')),
    CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
    CHECK ((content_type = 'tool_call') = (status IS NOT NULL)),
    CHECK (content_type <> 'tool_call' OR tool_call_id IS NOT NULL)
);
CREATE INDEX "ai_display_messages_tool_calls" ON "ai_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
