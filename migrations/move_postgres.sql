-- Moves the tables and functions of holdpoint on Postgres from the schema `public` to a schema of their own.
-- Stop the servers, run this file as the owner of the tables, and start the servers. The schema is `holdpoint`
-- here, the default of `database.schema`. If another role serves, run `grants_postgres.sql` before the start.
DO $$
DECLARE
    own CONSTANT TEXT := 'holdpoint';
    moved TEXT;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = own)
    THEN EXECUTE format('CREATE SCHEMA %I', own); END IF;
    FOREACH moved IN ARRAY ARRAY['threads', 'messages', 'message_steps', 'runs', 'tool_calls', 'tool_requests',
        'tool_request_votes', 'decisions', 'delegations', 'escalations', 'sent_answers', 'events', 'event_sequence',
        'ticket_keys', 'used_tickets', 'links', 'sign_ins', 'grants', 'listed_definitions', 'accepted_definitions', 'endpoints', 'slack_messages', 'seaql_migrations']
    LOOP EXECUTE format('ALTER TABLE public.%I SET SCHEMA %I', moved, own); END LOOP;
    -- The functions of the triggers: of those in `public`, the ones that the moved tables use.
    FOR moved IN SELECT DISTINCT proname FROM pg_proc JOIN pg_trigger ON tgfoid = pg_proc.oid
        JOIN pg_class ON pg_class.oid = tgrelid
        WHERE pronamespace = 'public'::regnamespace AND relnamespace = own::regnamespace
            AND proname LIKE 'holdpoint\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION public.%I() SET SCHEMA %I', moved, own);
        EXECUTE format('ALTER FUNCTION %I.%I() SET search_path = %I, pg_temp', own, moved, own);
    END LOOP;
END $$;
