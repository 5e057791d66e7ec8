DROP TABLE "sagents_display_messages";
DROP TABLE "sagents_agent_states";
DROP TABLE "sagents_conversations";
