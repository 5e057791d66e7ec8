DROP TABLE "ai_display_messages";
DROP TABLE "ai_agent_states";
DROP TABLE "ai_conversations";
