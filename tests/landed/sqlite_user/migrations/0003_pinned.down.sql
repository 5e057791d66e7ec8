ALTER TABLE sagents_conversations DROP COLUMN pinned;
