INSERT INTO "as_long_as_a_prefix_may_be_in_tablesconversations" (id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at)
VALUES ('0190c0de-0000-7000-8000-000000000001', 'it''s 0', '{"type": "someone", "id": 0}', '{"é": [1, null]}', TRUE, 3, '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "as_long_as_a_prefix_may_be_in_tablesagent_states" (conversation_id, version, revision, write_id, data, unreadable_data, inserted_at, updated_at)
VALUES ('0190c0de-0000-7000-8000-000000000001', 2, 7, '0190c0de-0000-7000-8000-000000000100', '{"version": 2,  "state": {"messages": [], "n": 1.50}}', '"damaged"', '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "as_long_as_a_prefix_may_be_in_tablesdisplay_messages" (conversation_id, sequence, message_id, item, role, content_type, content, metadata, tool_call_id, status, inserted_at)
VALUES
    ('0190c0de-0000-7000-8000-000000000001', 0, '0190c0de-0000-7000-8000-000000000200', 0, 'user', 'text', 'it''s 🦀', '{}', NULL, NULL, '2026-01-02T03:04:05.000006+00:00'),
    ('0190c0de-0000-7000-8000-000000000001', 1, '0190c0de-0000-7000-8000-000000000201', 0, 'assistant', 'tool_call', 'find', '{"a": 1}', 'call 1', 'completed', '2026-01-02T03:04:05.000006+00:00'),
    ('0190c0de-0000-7000-8000-000000000001', 2, '0190c0de-0000-7000-8000-000000000202', 1, 'tool', 'tool_result', '', '{}', 'call 1', NULL, '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "as_long_as_a_prefix_may_be_in_tablesconversations" (id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at)
VALUES ('0190c0de-0000-7000-8000-000000000002', 'it''s 1', '{"type": "someone", "id": 1}', '{"é": [1, null]}', TRUE, 3, '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "as_long_as_a_prefix_may_be_in_tablesagent_states" (conversation_id, version, revision, write_id, data, unreadable_data, inserted_at, updated_at)
VALUES ('0190c0de-0000-7000-8000-000000000002', 2, 7, '0190c0de-0000-7000-8000-000000000101', '{"version": 2,  "state": {"messages": [], "n": 1.50}}', '"damaged"', '2026-01-02T03:04:05.000006+00:00', '2026-01-02T03:04:05.000006+00:00');
INSERT INTO "as_long_as_a_prefix_may_be_in_tablesdisplay_messages" (conversation_id, sequence, message_id, item, role, content_type, content, metadata, tool_call_id, status, inserted_at)
VALUES
    ('0190c0de-0000-7000-8000-000000000002', 0, '0190c0de-0000-7000-8000-000000000200', 0, 'user', 'text', 'it''s 🦀', '{}', NULL, NULL, '2026-01-02T03:04:05.000006+00:00'),
    ('0190c0de-0000-7000-8000-000000000002', 1, '0190c0de-0000-7000-8000-000000000201', 0, 'assistant', 'tool_call', 'find', '{"a": 1}', 'call 1', 'completed', '2026-01-02T03:04:05.000006+00:00'),
    ('0190c0de-0000-7000-8000-000000000002', 2, '0190c0de-0000-7000-8000-000000000202', 1, 'tool', 'tool_result', '', '{}', 'call 1', NULL, '2026-01-02T03:04:05.000006+00:00');
