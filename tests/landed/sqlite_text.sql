INSERT INTO logins VALUES ('it''s me'), ('you');
INSERT INTO "chat_conversations" ("login_id", id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at)
VALUES ('it''s me', x'0190c0de000070008000000000000001', 'it''s 0', '{"type": "someone", "id": 0}', '{"é": [1, null]}', 1, 3, '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "chat_agent_states" ("login_id", conversation_id, version, revision, write_id, data, unreadable_data, inserted_at, updated_at)
VALUES ('it''s me', x'0190c0de000070008000000000000001', 2, 7, x'0190c0de000070008000000000000100', '{"version": 2,  "state": {"messages": [], "n": 1.50}}', '"damaged"', '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "chat_display_messages" ("login_id", conversation_id, sequence, message_id, item, role, content_type, content, metadata, tool_call_id, status, inserted_at)
VALUES
    ('it''s me', x'0190c0de000070008000000000000001', 0, x'0190c0de000070008000000000000200', 0, 'user', 'text', 'it''s 🦀', '{}', NULL, NULL, '2026-01-02T03:04:05.000006+00:00'),
    ('it''s me', x'0190c0de000070008000000000000001', 1, x'0190c0de000070008000000000000201', 0, 'assistant', 'tool_call', 'find', '{"a": 1}', 'call 1', 'completed', '2026-01-02T03:04:05.000006+00:00'),
    ('it''s me', x'0190c0de000070008000000000000001', 2, x'0190c0de000070008000000000000202', 1, 'tool', 'tool_result', '', '{}', 'call 1', NULL, '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "chat_conversations" ("login_id", id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at)
VALUES ('you', x'0190c0de000070008000000000000002', 'it''s 1', '{"type": "someone", "id": 1}', '{"é": [1, null]}', 1, 3, '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "chat_agent_states" ("login_id", conversation_id, version, revision, write_id, data, unreadable_data, inserted_at, updated_at)
VALUES ('you', x'0190c0de000070008000000000000002', 2, 7, x'0190c0de000070008000000000000101', '{"version": 2,  "state": {"messages": [], "n": 1.50}}', '"damaged"', '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "chat_display_messages" ("login_id", conversation_id, sequence, message_id, item, role, content_type, content, metadata, tool_call_id, status, inserted_at)
VALUES
    ('you', x'0190c0de000070008000000000000002', 0, x'0190c0de000070008000000000000200', 0, 'user', 'text', 'it''s 🦀', '{}', NULL, NULL, '2026-01-02T03:04:05.000006+00:00'),
    ('you', x'0190c0de000070008000000000000002', 1, x'0190c0de000070008000000000000201', 0, 'assistant', 'tool_call', 'find', '{"a": 1}', 'call 1', 'completed', '2026-01-02T03:04:05.000006+00:00'),
    ('you', x'0190c0de000070008000000000000002', 2, x'0190c0de000070008000000000000202', 1, 'tool', 'tool_result', '', '{}', 'call 1', NULL, '2026-01-02T03:04:05.000006+00:00');
