-- Conversations, and where each one's next message goes.
CREATE TABLE "sagents_conversations" (
    "id" BLOB NOT NULL,
    "title" TEXT,
    "scope" TEXT NOT NULL,
    "metadata" TEXT NOT NULL DEFAULT '{}',
    "interrupted" INTEGER NOT NULL DEFAULT 0,
    "next_sequence" INTEGER NOT NULL DEFAULT 0,
    "inserted_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    PRIMARY KEY ("id"),
    CHECK (length("id") = 16),
    CHECK (json_valid("scope")),
    CHECK (json_valid("metadata")),
    CHECK ("interrupted" IN (0, 1)),
    CHECK (next_sequence >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("updated_at" DESC, "id" DESC);

-- What a conversation's agent knows.
CREATE TABLE "sagents_agent_states" (
    "conversation_id" BLOB NOT NULL,
    "version" INTEGER NOT NULL,
    "revision" INTEGER NOT NULL,
    "write_id" BLOB NOT NULL,
    "data" TEXT NOT NULL,
    "unreadable_data" TEXT,
    "inserted_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    PRIMARY KEY ("conversation_id"),
    FOREIGN KEY ("conversation_id") REFERENCES "sagents_conversations" ("id") ON DELETE CASCADE,
    CHECK (length("conversation_id") = 16),
    CHECK (length("write_id") = 16),
    CHECK (revision >= 1)
) STRICT;

-- What a person sees of a conversation, in order.
CREATE TABLE "sagents_display_messages" (
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
    PRIMARY KEY ("conversation_id", "sequence"),
    UNIQUE ("conversation_id", "message_id", "item"),
    FOREIGN KEY ("conversation_id") REFERENCES "sagents_conversations" ("id") ON DELETE CASCADE,
    CHECK (length("conversation_id") = 16),
    CHECK (length("message_id") = 16),
    CHECK (json_valid("metadata")),
    CHECK (sequence >= 0),
    CHECK (item >= 0),
    CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    CHECK (content_type IN ('text', 'thinking', 'image', 'file_reference', 'structured_data', 'notification', 'error', 'tool_call', 'tool_result', 'todo_snapshot')),
    CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
    CHECK ((content_type = 'tool_call') = (status IS NOT NULL)),
    CHECK (content_type <> 'tool_call' OR tool_call_id IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
