-- The rights of the server's role on Postgres (15 or later) if another role owns the schema. The owner runs
-- `holdpoint migrate` and then this file, both again for each release. The schema is `holdpoint` here, the
-- default of `database.schema`. The server's role is `holdpoint_app` here, created by
--     CREATE ROLE holdpoint_app LOGIN PASSWORD '…';
-- The role reads and writes rows. It deletes only used tickets, links that have expired, sign-ins that have ended, and
-- definitions that no MCP server lists any more.
-- It cannot change tables, guards or rights.
BEGIN;
SET LOCAL search_path = holdpoint;
GRANT USAGE ON SCHEMA holdpoint TO holdpoint_app;
GRANT SELECT ON seaql_migrations TO holdpoint_app;
GRANT SELECT, INSERT
    ON threads, messages, message_steps, runs, tool_calls, tool_requests, tool_request_votes, decisions, sent_answers, events,
    grants, delegations, escalations
    TO holdpoint_app;
-- Decisions, sent answers and events are never updated,
GRANT UPDATE ON threads, messages, message_steps, runs, tool_calls, tool_requests, tool_request_votes TO holdpoint_app;
-- except for the number of an event, which the server sets after the commit of the event.
GRANT SELECT, UPDATE (last) ON event_sequence TO holdpoint_app;
GRANT UPDATE (seq) ON events TO holdpoint_app;
-- The first server creates the key of tickets, which never changes. Servers delete used tickets after their
-- expiry.
GRANT SELECT, INSERT ON ticket_keys TO holdpoint_app;
GRANT SELECT, INSERT, DELETE ON used_tickets TO holdpoint_app;
-- A decision uses a link once. No other column of a link is updated. Servers delete links after their expiry.
GRANT SELECT, INSERT, DELETE ON links TO holdpoint_app;
GRANT UPDATE (used_at) ON links TO holdpoint_app;
-- A renewal changes the tokens of a sign-in, and the roles with them. Its person and its end never change.
GRANT SELECT, INSERT, DELETE ON sign_ins TO holdpoint_app;
GRANT UPDATE (roles, known_until, tokens, asked_by, rests_until) ON sign_ins TO holdpoint_app;
-- The cursor of an endpoint, and how its delivery goes.
GRANT SELECT, INSERT, UPDATE ON endpoints TO holdpoint_app;
-- The messages in Slack, by their ids, which never change.
GRANT SELECT, INSERT ON slack_messages TO holdpoint_app;
-- A grant is revoked by an update. No other column of a grant is updated.
GRANT UPDATE (uses_left, input_bounds, revoked_at, revoked_by) ON grants TO holdpoint_app;
-- An escalation follows the state of its call. No other column of an escalation is updated.
GRANT UPDATE (state) ON escalations TO holdpoint_app;
-- A later delegation of the same approver replaces one. No other column of a delegation is updated.
GRANT UPDATE (replaced_at) ON delegations TO holdpoint_app;
-- The definitions of MCP tools follow their servers. What was accepted of them stays.
GRANT SELECT, INSERT, UPDATE, DELETE ON listed_definitions TO holdpoint_app;
GRANT SELECT, INSERT ON accepted_definitions TO holdpoint_app;
COMMIT;
