-- The same guards as in guards_sqlite.sql.

CREATE FUNCTION holdpoint_never_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted', TG_TABLE_NAME;
END $$;

CREATE FUNCTION holdpoint_never_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'rows of % never change', TG_TABLE_NAME;
END $$;

CREATE FUNCTION holdpoint_tool_call_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.state NOT IN ('pending', 'executing', 'rejected', 'cancelled', 'invalid')
        OR (NEW.state = 'executing' AND (NEW.held OR NEW.decided_by <> 'system:policy'))
        OR (NEW.state = 'cancelled' AND (NEW.held OR NEW.decided_by <> 'system:duplicate'))
    THEN RAISE EXCEPTION 'a tool call begins as pending, invalid, a duplicate, or decided by the policy'; END IF;
    IF NEW.child_run_id IS NOT NULL
    THEN RAISE EXCEPTION 'a running call is delegated once, to a child thread of its own'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_tool_call_moves() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    erasing BOOLEAN := OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL;
BEGIN
    -- An erased row stays erased. The erasing update changes only payloads.
    IF OLD.erased_at IS NOT NULL OR (NEW.erased_at IS NOT NULL AND (NOT erasing OR OLD.state <> NEW.state))
    THEN RAISE EXCEPTION 'only what has ended is erased, once'; END IF;
    IF (OLD.tool_call_id, OLD.thread_id, OLD.tenant_id, OLD.message_id, OLD.step, OLD.ordinal, OLD.run_id,
        OLD.provider_call_id, OLD.wire_call_id, OLD.name, OLD.schema_hash, OLD.held, OLD.idempotent,
        OLD.risk_level, OLD.created_at)
       IS DISTINCT FROM
       (NEW.tool_call_id, NEW.thread_id, NEW.tenant_id, NEW.message_id, NEW.step, NEW.ordinal, NEW.run_id,
        NEW.provider_call_id, NEW.wire_call_id, NEW.name, NEW.schema_hash, NEW.held, NEW.idempotent,
        NEW.risk_level, NEW.created_at)
       OR (OLD.arguments IS DISTINCT FROM NEW.arguments AND NOT erasing)
    THEN RAISE EXCEPTION 'what was shown does not change'; END IF;
    IF OLD.validated IS NOT NULL AND (
        (OLD.validated, OLD.decided_by, OLD.decided_at)
            IS DISTINCT FROM (NEW.validated, NEW.decided_by, NEW.decided_at)
        OR (OLD.validated_inputs IS DISTINCT FROM NEW.validated_inputs AND NOT erasing))
    THEN RAISE EXCEPTION 'a decision is final'; END IF;
    IF OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
        'pending>approved', 'pending>rejected', 'pending>expired', 'pending>cancelled',
        'approved>executing', 'approved>cancelled', 'approved>failed', 'approved>interrupted',
        'executing>succeeded', 'executing>failed', 'executing>interrupted', 'executing>approved',
        'interrupted>succeeded', 'interrupted>failed')
    THEN RAISE EXCEPTION 'illegal transition of a tool call'; END IF;
    IF NEW.held AND OLD.state = 'approved' AND NEW.state = 'executing' AND NOT EXISTS (
        SELECT 1 FROM decisions WHERE tool_call_id = NEW.tool_call_id AND final AND verdict = 'approve')
    THEN RAISE EXCEPTION 'what a person was asked about begins on a decision'; END IF;
    IF OLD.state = 'approved' AND OLD.state <> NEW.state AND (
        (NEW.state IN ('cancelled', 'failed') AND OLD.exec_attempt > 0)
        OR (NEW.state = 'interrupted' AND OLD.exec_attempt = 0))
    THEN RAISE EXCEPTION 'only a call that was never claimed did not run'; END IF;
    IF (OLD.state = 'executing' AND NEW.state = 'approved' AND NOT (OLD.idempotent AND OLD.exec_attempt < 3
            AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NULL))
        OR (OLD.state = 'approved' AND NEW.state = 'executing' AND (NEW.exec_attempt <> OLD.exec_attempt + 1
            OR NEW.exec_id IS NOT DISTINCT FROM OLD.exec_id))
        OR (NEW.exec_attempt <> OLD.exec_attempt AND NOT (OLD.state = 'approved'
            AND NEW.state = 'executing' AND NEW.exec_attempt = OLD.exec_attempt + 1))
        OR (NEW.exec_id IS DISTINCT FROM OLD.exec_id
            AND NOT (OLD.state = 'approved' AND NEW.state = 'executing'))
    THEN RAISE EXCEPTION 'a call runs once, and again only if it is idempotent, at most three times'; END IF;
    IF NEW.child_run_id IS DISTINCT FROM OLD.child_run_id AND NOT (OLD.child_run_id IS NULL
        AND OLD.state = 'executing' AND NEW.state = 'executing' AND EXISTS (
            SELECT 1 FROM runs JOIN threads ON threads.thread_id = runs.thread_id
            WHERE runs.run_id = NEW.child_run_id AND runs.status = 'waiting'
                AND threads.parent_id = NEW.thread_id AND threads.tenant_id = NEW.tenant_id))
    THEN RAISE EXCEPTION 'a running call is delegated once, to a child thread of its own'; END IF;
    IF OLD.finished_at IS NOT NULL AND OLD.state = NEW.state AND NOT erasing
        AND (OLD.result, OLD.output, OLD.finished_at)
            IS DISTINCT FROM (NEW.result, NEW.output, NEW.finished_at)
    THEN RAISE EXCEPTION 'an outcome does not change'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_decision_said() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id
        AND CASE WHEN NEW.final THEN decided_by = NEW.actor ELSE held AND state = 'pending' END)
    THEN RAISE EXCEPTION 'who decides has moved the call, and who only agrees has not'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_run_moves() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.status <> NEW.status AND (OLD.status || '>' || NEW.status) NOT IN (
        'running>waiting', 'running>completed', 'running>failed', 'running>cancelled',
        'waiting>running', 'waiting>completed', 'waiting>cancelled', 'failed>running', 'failed>cancelled')
    THEN RAISE EXCEPTION 'illegal transition of a run'; END IF;
    RETURN NEW;
END $$;

-- An answer is shown as its run stands. A superseded answer stays superseded.
CREATE FUNCTION holdpoint_run_shown() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE messages SET status = CASE WHEN NEW.status = 'running' THEN 'streaming'
        WHEN NEW.status IN ('waiting', 'completed') THEN 'complete' ELSE 'interrupted' END
    WHERE message_id = NEW.assistant_message_id AND status <> 'superseded';
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_step_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.status <> 'streaming' AND NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
    THEN RAISE EXCEPTION 'a step is written once'; END IF;
    IF OLD.erased_at IS NOT NULL OR (NEW.erased_at IS NOT NULL
        AND (OLD.finished_at IS NULL OR OLD.status <> NEW.status OR OLD.finished_at <> NEW.finished_at))
    THEN RAISE EXCEPTION 'only what has ended is erased, once'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_sent_answer_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.erased_at IS NOT NULL OR NEW.erased_at IS NULL
       OR (OLD.tool_call_id, OLD.n, OLD.kind, OLD.message_id, OLD.step, OLD.at)
          IS DISTINCT FROM
          (NEW.tool_call_id, NEW.n, NEW.kind, NEW.message_id, NEW.step, NEW.at)
    THEN RAISE EXCEPTION 'what the model was told does not change'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_message_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.message_id, OLD.thread_id, OLD.run_id, OLD.ordinal, OLD.role, OLD.client_id, OLD.created_at)
       IS DISTINCT FROM
       (NEW.message_id, NEW.thread_id, NEW.run_id, NEW.ordinal, NEW.role, NEW.client_id, NEW.created_at)
       OR (OLD.content IS DISTINCT FROM NEW.content
           AND NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL AND NEW.content = ''))
       OR (OLD.erased_at IS NOT NULL AND OLD.erased_at IS DISTINCT FROM NEW.erased_at)
       OR (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL
           AND (OLD.status = 'streaming' OR OLD.status <> NEW.status))
       OR (OLD.status = 'superseded' AND NEW.status <> 'superseded')
    THEN RAISE EXCEPTION 'what was said does not change'; END IF;
    RETURN NEW;
END $$;

-- The columns seq, hash and prev_hash are set once. The other columns never change.
CREATE FUNCTION holdpoint_event_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.event_id, OLD.type, OLD.at, OLD.actor, OLD.tenant_id, OLD.user_id, OLD.held_tool, OLD.session_id,
        OLD.thread_id, OLD.run_id, OLD.tool_call_id, OLD.data, OLD.place)
       IS DISTINCT FROM
       (NEW.event_id, NEW.type, NEW.at, NEW.actor, NEW.tenant_id, NEW.user_id, NEW.held_tool, NEW.session_id,
        NEW.thread_id, NEW.run_id, NEW.tool_call_id, NEW.data, NEW.place)
       OR (OLD.seq IS NOT NULL AND OLD.seq IS DISTINCT FROM NEW.seq)
       OR (OLD.hash IS NOT NULL AND (OLD.hash, OLD.prev_hash) IS DISTINCT FROM (NEW.hash, NEW.prev_hash))
    THEN RAISE EXCEPTION 'events never change'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_grant_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.revoked_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM decisions
        JOIN tool_calls ON tool_calls.tool_call_id = decisions.tool_call_id
        JOIN threads ON threads.thread_id = tool_calls.thread_id
        WHERE decisions.tool_call_id = NEW.tool_call_id AND decisions.actor = NEW.granted_by
            AND decisions.final AND decisions.remember = 'session'
            AND tool_calls.name = NEW.tool_name AND tool_calls.schema_hash = NEW.schema_hash
            AND threads.session_id = NEW.session_id AND threads.tenant_id = NEW.tenant_id)
    THEN RAISE EXCEPTION 'a grant is a yes that was to be remembered'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_grant_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.revoked_at IS NOT NULL
       OR (OLD.grant_id, OLD.tenant_id, OLD.session_id, OLD.tool_name, OLD.schema_hash, OLD.input_hash,
           OLD.process_id, OLD.granted_by, OLD.roles, OLD.tool_call_id, OLD.created_at)
          IS DISTINCT FROM
          (NEW.grant_id, NEW.tenant_id, NEW.session_id, NEW.tool_name, NEW.schema_hash, NEW.input_hash,
           NEW.process_id, NEW.granted_by, NEW.roles, NEW.tool_call_id, NEW.created_at)
    THEN RAISE EXCEPTION 'a grant is revoked once, and nothing else of it changes'; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER tool_calls_born BEFORE INSERT ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_call_born();

CREATE TRIGGER tool_calls_moves BEFORE UPDATE ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_call_moves();

CREATE TRIGGER tool_calls_kept BEFORE DELETE ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER runs_moves BEFORE UPDATE ON runs
    FOR EACH ROW EXECUTE FUNCTION holdpoint_run_moves();

CREATE TRIGGER runs_shown AFTER UPDATE OF status ON runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND 'running' IN (OLD.status, NEW.status))
    EXECUTE FUNCTION holdpoint_run_shown();

CREATE TRIGGER message_steps_written BEFORE UPDATE ON message_steps
    FOR EACH ROW EXECUTE FUNCTION holdpoint_step_written();

CREATE TRIGGER decisions_said BEFORE INSERT ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_decision_said();

CREATE TRIGGER decisions_fixed BEFORE UPDATE ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_changed();

CREATE TRIGGER decisions_kept BEFORE DELETE ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER sent_answers_fixed BEFORE UPDATE ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_sent_answer_fixed();

CREATE TRIGGER sent_answers_kept BEFORE DELETE ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER events_fixed BEFORE UPDATE ON events
    FOR EACH ROW EXECUTE FUNCTION holdpoint_event_fixed();

CREATE TRIGGER events_kept BEFORE DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER messages_fixed BEFORE UPDATE ON messages
    FOR EACH ROW EXECUTE FUNCTION holdpoint_message_fixed();

CREATE TRIGGER messages_kept BEFORE DELETE ON messages
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

-- TRUNCATE deletes rows without firing the DELETE triggers.
CREATE TRIGGER messages_whole BEFORE TRUNCATE ON messages
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER tool_calls_whole BEFORE TRUNCATE ON tool_calls
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER decisions_whole BEFORE TRUNCATE ON decisions
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER sent_answers_whole BEFORE TRUNCATE ON sent_answers
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER events_whole BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

-- Each number is given once, and no number is taken back.
CREATE FUNCTION holdpoint_sequence_grows() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.id <> OLD.id OR NEW.last < OLD.last
    THEN RAISE EXCEPTION 'the numbers of events only grow'; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER event_sequence_grows BEFORE UPDATE ON event_sequence
    FOR EACH ROW EXECUTE FUNCTION holdpoint_sequence_grows();

CREATE TRIGGER event_sequence_kept BEFORE DELETE ON event_sequence
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER event_sequence_whole BEFORE TRUNCATE ON event_sequence
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER grants_born BEFORE INSERT ON grants
    FOR EACH ROW EXECUTE FUNCTION holdpoint_grant_born();

CREATE TRIGGER grants_fixed BEFORE UPDATE ON grants
    FOR EACH ROW EXECUTE FUNCTION holdpoint_grant_fixed();

CREATE TRIGGER grants_kept BEFORE DELETE ON grants
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER grants_whole BEFORE TRUNCATE ON grants
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();
