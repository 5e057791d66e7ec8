-- Says what is missing before anything is made.
DO $$
BEGIN
    IF NOT has_schema_privilege(current_schema(), 'CREATE') THEN
        RAISE EXCEPTION 'the role % may not create tables in the schema %: let its owner GRANT CREATE ON SCHEMA % TO %',
            current_user, current_schema(), current_schema(), current_user;
    END IF;
END
$$;

-- Conversations, and where each one's next message goes.
CREATE TABLE "as_long_as_a_prefix_may_be_in_tablesconversations" (
    "id" UUID NOT NULL,
    "title" TEXT,
    "scope" JSONB NOT NULL,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "interrupted" BOOLEAN NOT NULL DEFAULT FALSE,
    "next_sequence" BIGINT NOT NULL DEFAULT 0,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesconversations_pkey" PRIMARY KEY ("id"),
    CHECK (next_sequence >= 0)
);
CREATE INDEX "as_long_as_a_prefix_may_be_in_tablesconversations_updated" ON "as_long_as_a_prefix_may_be_in_tablesconversations" ("updated_at" DESC, "id" DESC);

-- What a conversation's agent knows.
CREATE TABLE "as_long_as_a_prefix_may_be_in_tablesagent_states" (
    "conversation_id" UUID NOT NULL,
    "version" INTEGER NOT NULL,
    "revision" BIGINT NOT NULL,
    "write_id" UUID NOT NULL,
    "data" JSON NOT NULL,
    "unreadable_data" JSON,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesagent_states_pkey" PRIMARY KEY ("conversation_id"),
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesagent_states_fkey" FOREIGN KEY ("conversation_id") REFERENCES "as_long_as_a_prefix_may_be_in_tablesconversations" ("id") ON DELETE CASCADE,
    CHECK (revision >= 1)
);

-- What a person sees of a conversation, in order.
CREATE TABLE "as_long_as_a_prefix_may_be_in_tablesdisplay_messages" (
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
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesdisplay_messages_pkey" PRIMARY KEY ("conversation_id", "sequence"),
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesdisplay_messages_key" UNIQUE ("conversation_id", "message_id", "item"),
    CONSTRAINT "as_long_as_a_prefix_may_be_in_tablesdisplay_messages_fkey" FOREIGN KEY ("conversation_id") REFERENCES "as_long_as_a_prefix_may_be_in_tablesconversations" ("id") ON DELETE CASCADE,
    CHECK (sequence >= 0),
    CHECK (item >= 0),
    CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    CHECK (content_type IN ('text', 'thinking', 'image', 'file_reference', 'structured_data', 'notification', 'error', 'tool_call', 'tool_result', 'todo_snapshot')),
    CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
    CHECK ((content_type = 'tool_call') = (status IS NOT NULL)),
    CHECK (content_type <> 'tool_call' OR tool_call_id IS NOT NULL)
);
CREATE INDEX "as_long_as_a_prefix_may_be_in_tablesdisplay_messages_tool_calls" ON "as_long_as_a_prefix_may_be_in_tablesdisplay_messages" ("conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
