//! Other names of what stays.

use super::*;

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
fn a_field_may_take_the_name_of_a_former_owner() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let renamed = tables("sagents_", Some(("user_id", Kind::Uuid, Some("teams"))));
    let transition = change(&there, &renamed, same_owner());
    assert_eq!(columns(&transition.schema().tables[1])[9..], ["old_user_id"]);
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
    DROP INDEX "sagents_conversations_active";
    DROP INDEX "sagents_conversations_archived";
    DROP INDEX "sagents_conversations_active_id";
    DROP INDEX "sagents_conversations_archived_id";
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
    CREATE INDEX "chat_conversations_active" ON "chat_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived" ON "chat_conversations" ("user_id", "updated_at" DESC, "id" DESC)
        WHERE archived_at IS NOT NULL;
    CREATE INDEX "chat_conversations_active_id" ON "chat_conversations" ("user_id", "id")
        WHERE archived_at IS NULL;
    CREATE INDEX "chat_conversations_archived_id" ON "chat_conversations" ("user_id", "id")
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
    ALTER INDEX "sagents_conversations_active" RENAME TO "chat_conversations_active";
    ALTER INDEX "sagents_conversations_archived" RENAME TO "chat_conversations_archived";
    ALTER INDEX "sagents_conversations_active_id" RENAME TO "chat_conversations_active_id";
    ALTER INDEX "sagents_conversations_archived_id" RENAME TO "chat_conversations_archived_id";
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
