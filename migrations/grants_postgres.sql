-- What a server's role needs on Postgres (15 or later) where the schema belongs to another role. That one runs
-- `holdpoint migrate`, and then this, both again with each release. The server's is `holdpoint_app` here, made by
--     CREATE ROLE holdpoint_app LOGIN PASSWORD '…';
-- It reads and writes rows. It deletes none but used tickets, and changes no table, no guard, and not who may do what.
GRANT USAGE ON SCHEMA public TO holdpoint_app;
GRANT SELECT ON seaql_migrations TO holdpoint_app;
GRANT SELECT, INSERT
    ON threads, messages, message_steps, runs, tool_calls, decisions, sent_answers, events, grants
    TO holdpoint_app;
-- What was decided, told and recorded stays as it was written.
GRANT UPDATE ON threads, messages, message_steps, runs, tool_calls TO holdpoint_app;
-- But for the numbers of events, which they get once they are committed.
GRANT SELECT, UPDATE (last) ON event_sequence TO holdpoint_app;
GRANT UPDATE (seq) ON events TO holdpoint_app;
-- The key of tickets is made by the first server, and stays. A used ticket is removed once it is over.
GRANT SELECT, INSERT ON ticket_keys TO holdpoint_app;
GRANT SELECT, INSERT, DELETE ON used_tickets TO holdpoint_app;
-- What was remembered is revoked, and else stays too.
GRANT UPDATE (revoked_at, revoked_by) ON grants TO holdpoint_app;
