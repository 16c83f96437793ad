-- The same guards as in guards_sqlite.sql.

-- In the order of the numbering, so that a pass reads the index from its beginning. Such a scan, unlike a bitmap, forgets
-- the entries of events that have got their numbers.
CREATE INDEX events_unnumbered ON events (place) WHERE seq IS NULL;

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
    IF NEW.state NOT IN ('pending', 'approved', 'executing', 'rejected', 'cancelled', 'invalid')
        OR (NEW.state IN ('approved', 'executing') AND (NEW.held OR NEW.decided_by <> 'system:policy'))
        OR (NEW.state = 'approved' AND (NOT NEW.by_worker OR NEW.exec_attempt <> 0))
        OR (NEW.state = 'executing' AND NEW.by_worker)
        OR (NEW.state = 'cancelled' AND (NEW.held OR NEW.decided_by <> 'system:duplicate'))
        OR (NEW.state = 'rejected' AND (NEW.held OR NEW.decided_by NOT IN ('system:policy', 'system:rejected')))
        OR (NEW.decided_by = 'system:rejected' AND NOT EXISTS (SELECT 1 FROM tool_calls
            WHERE message_id = NEW.message_id AND run_id = NEW.run_id AND state = 'rejected' AND held AND name = NEW.name
                AND decided_by LIKE 'user:%'))
    THEN RAISE EXCEPTION 'a tool call begins as pending, invalid, a repeat, or decided by the policy'; END IF;
    IF NEW.child_run_id IS NOT NULL
    THEN RAISE EXCEPTION 'a running call is delegated once, to a child thread of its own'; END IF;
    IF NEW.result_deadline IS NOT NULL
    THEN RAISE EXCEPTION 'a running call gets an owner once'; END IF;
    IF NEW.held OR NEW.listed_for IS NOT NULL THEN
        IF NEW.listed_for IS DISTINCT FROM (CASE WHEN NEW.held THEN
            (SELECT user_id FROM threads WHERE thread_id = NEW.thread_id AND deleted_at IS NULL) END)
        THEN RAISE EXCEPTION 'a held call is listed for the user of its thread'; END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_tool_call_moves() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    erasing BOOLEAN := OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL;
BEGIN
    -- The lists lose a call with its thread, an erased call too. Nothing else of the call changes then.
    IF OLD.listed_for IS DISTINCT FROM NEW.listed_for THEN
        NEW.listed_for := OLD.listed_for;
        -- Postgres computes it after this function, whatever it is here.
        NEW.due_at := OLD.due_at;
        IF NEW IS DISTINCT FROM OLD OR NOT EXISTS (
            SELECT 1 FROM threads WHERE thread_id = NEW.thread_id AND deleted_at IS NOT NULL)
        THEN RAISE EXCEPTION 'a held call is listed for the user of its thread'; END IF;
        NEW.listed_for := NULL;
        RETURN NEW;
    END IF;
    -- An erased row stays erased. The erasing update changes only payloads.
    IF OLD.erased_at IS NOT NULL OR (NEW.erased_at IS NOT NULL AND (NOT erasing OR OLD.state <> NEW.state))
    THEN RAISE EXCEPTION 'only ended rows are erased, once'; END IF;
    IF (OLD.tool_call_id, OLD.thread_id, OLD.tenant_id, OLD.message_id, OLD.step, OLD.ordinal, OLD.run_id,
        OLD.provider_call_id, OLD.wire_call_id, OLD.name, OLD.schema_hash, OLD.held, OLD.idempotent,
        OLD.by_worker, OLD.risk_level, OLD.created_at, OLD.preview_failed, OLD.secret_paths)
       IS DISTINCT FROM
       (NEW.tool_call_id, NEW.thread_id, NEW.tenant_id, NEW.message_id, NEW.step, NEW.ordinal, NEW.run_id,
        NEW.provider_call_id, NEW.wire_call_id, NEW.name, NEW.schema_hash, NEW.held, NEW.idempotent,
        NEW.by_worker, NEW.risk_level, NEW.created_at, NEW.preview_failed, NEW.secret_paths)
       OR ((OLD.arguments, OLD.model_arguments, OLD.preview)
           IS DISTINCT FROM (NEW.arguments, NEW.model_arguments, NEW.preview) AND NOT erasing)
    THEN RAISE EXCEPTION 'the content of a call does not change'; END IF;
    IF OLD.validated IS NOT NULL AND (
        (OLD.validated, OLD.decided_by, OLD.decided_at, OLD.validated_preview_failed)
            IS DISTINCT FROM (NEW.validated, NEW.decided_by, NEW.decided_at, NEW.validated_preview_failed)
        OR ((OLD.validated_inputs, OLD.validated_preview)
            IS DISTINCT FROM (NEW.validated_inputs, NEW.validated_preview) AND NOT erasing))
    THEN RAISE EXCEPTION 'a decision is final'; END IF;
    IF (OLD.escalate_at, OLD.escalate_to) IS DISTINCT FROM (NEW.escalate_at, NEW.escalate_to)
        OR ((OLD.remind_at, OLD.escalated_at) IS DISTINCT FROM (NEW.remind_at, NEW.escalated_at)
            AND NOT (OLD.state = 'pending' AND NEW.state = 'pending'))
        OR (OLD.escalated_at IS NOT NULL AND OLD.escalated_at IS DISTINCT FROM NEW.escalated_at)
    THEN RAISE EXCEPTION 'a pending call is escalated once, to the roles of its hold'; END IF;
    IF OLD.expires_at IS DISTINCT FROM NEW.expires_at AND NOT (OLD.state = 'pending' AND NEW.state = 'pending')
    THEN RAISE EXCEPTION 'the deadline of a decision changes only while the call is pending'; END IF;
    IF OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
        'pending>approved', 'pending>executing', 'pending>rejected', 'pending>expired', 'pending>cancelled',
        'approved>executing', 'approved>cancelled', 'approved>failed', 'approved>interrupted',
        'executing>succeeded', 'executing>failed', 'executing>interrupted', 'executing>approved',
        'interrupted>succeeded', 'interrupted>failed')
    THEN RAISE EXCEPTION 'illegal transition of a tool call'; END IF;
    -- A condition with a subquery is a query of its own, so it is read only where it matters.
    IF OLD.state = 'approved' AND NEW.state = 'executing' AND (NEW.held OR NEW.by_worker) THEN
        IF NOT EXISTS (
            SELECT 1 FROM decisions WHERE tool_call_id = NEW.tool_call_id AND final AND verdict = 'approve')
        THEN RAISE EXCEPTION 'a held call and a call of a worker begin on a decision'; END IF;
    END IF;
    -- What an approval requires. That the decision is there follows after the statement: tool_calls_begun.
    IF OLD.state = 'pending' AND NEW.state = 'executing' AND (NEW.by_worker OR NEW.start_deadline IS NULL)
    THEN RAISE EXCEPTION 'a call begins with its approval only in the process that decides'; END IF;
    IF NEW.permit_hash IS DISTINCT FROM OLD.permit_hash AND NEW.exec_id IS NOT DISTINCT FROM OLD.exec_id
    THEN RAISE EXCEPTION 'the token of an execution does not change'; END IF;
    IF OLD.state = 'approved' AND OLD.state <> NEW.state AND (
        (NEW.state IN ('cancelled', 'failed') AND OLD.exec_attempt > 0)
        OR (NEW.state = 'interrupted' AND OLD.exec_attempt = 0))
    THEN RAISE EXCEPTION 'only a call that was never claimed did not run'; END IF;
    IF (OLD.state = 'executing' AND NEW.state = 'approved' AND NOT (OLD.idempotent AND OLD.exec_attempt < 3
            AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NULL))
        OR (OLD.state IN ('pending', 'approved') AND NEW.state = 'executing' AND (
            NEW.exec_attempt <> OLD.exec_attempt + 1 OR NEW.exec_id IS NOT DISTINCT FROM OLD.exec_id))
        OR (NEW.exec_attempt <> OLD.exec_attempt AND NOT (OLD.state IN ('pending', 'approved')
            AND NEW.state = 'executing' AND NEW.exec_attempt = OLD.exec_attempt + 1))
        OR (NEW.exec_id IS DISTINCT FROM OLD.exec_id
            AND NOT (OLD.state IN ('pending', 'approved') AND NEW.state = 'executing'))
    THEN RAISE EXCEPTION 'a call runs once, and again only if it is idempotent, at most three times'; END IF;
    IF NEW.child_run_id IS DISTINCT FROM OLD.child_run_id THEN
        IF NOT (OLD.child_run_id IS NULL AND OLD.state = 'executing' AND NEW.state = 'executing' AND EXISTS (
            SELECT 1 FROM runs JOIN threads ON threads.thread_id = runs.thread_id
            WHERE runs.run_id = NEW.child_run_id AND runs.status = 'waiting'
                AND threads.parent_id = NEW.thread_id AND threads.tenant_id = NEW.tenant_id))
        THEN RAISE EXCEPTION 'a running call is delegated once, to a child thread of its own'; END IF;
    END IF;
    IF (NEW.result_deadline, NEW.mcp_server) IS DISTINCT FROM (OLD.result_deadline, OLD.mcp_server)
        AND NOT (OLD.result_deadline IS NULL AND OLD.state = 'executing' AND NEW.state = 'executing'
            AND (NEW.mcp_server IS NULL) = (NEW.task_id IS NULL AND NEW.input_round IS NULL))
    THEN RAISE EXCEPTION 'a running call gets an owner once'; END IF;
    -- A round is taken by the process that polls the call, before that process sends the call again. It stores the next
    -- task or round, if the answer of the server is one.
    IF (NEW.task_id, NEW.input_round) IS DISTINCT FROM (OLD.task_id, OLD.input_round)
        AND NOT (OLD.result_deadline IS NULL AND NEW.result_deadline IS NOT NULL)
        AND NOT (OLD.input_round IS NOT NULL AND NEW.input_round IS NULL AND NEW.task_id IS NULL
            AND (NEW.state <> 'executing'
                OR (NEW.polled_by IS NOT DISTINCT FROM OLD.polled_by AND NEW.cancel_requested_at IS NULL)))
        AND NOT (OLD.mcp_server IS NOT NULL AND OLD.task_id IS NULL AND OLD.input_round IS NULL
            AND OLD.state = 'executing' AND NEW.state = 'executing'
            AND NEW.polled_by IS NOT DISTINCT FROM OLD.polled_by)
    THEN RAISE EXCEPTION 'a call is sent again once for each round of answers'; END IF;
    IF NEW.progress IS DISTINCT FROM OLD.progress AND OLD.state <> 'executing' AND NOT erasing
    THEN RAISE EXCEPTION 'progress is reported while the call executes'; END IF;
    IF OLD.finished_at IS NOT NULL AND OLD.state = NEW.state AND NOT erasing
        AND (OLD.result, OLD.output, OLD.finished_at)
            IS DISTINCT FROM (NEW.result, NEW.output, NEW.finished_at)
    THEN RAISE EXCEPTION 'an outcome does not change'; END IF;
    RETURN NEW;
END $$;

-- A call that begins with its approval: the same statement has inserted the decision, because no earlier one lets a
-- final decision into a pending call.
CREATE FUNCTION holdpoint_tool_call_begun() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM decisions WHERE tool_call_id = NEW.tool_call_id AND final AND verdict = 'approve')
    THEN RAISE EXCEPTION 'a held call and a call of a worker begin on a decision'; END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_decision_said() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id
        AND CASE WHEN NEW.final THEN decided_by = NEW.actor ELSE held AND state = 'pending' END)
    THEN RAISE EXCEPTION 'a final decision has moved its call, and a vote has not'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_decision_delegated() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM delegations WHERE tool_call_id = NEW.tool_call_id AND replaced_at IS NULL
            AND 'user:' || delegator = NEW.on_behalf_of AND 'user:' || delegate = NEW.actor AND until > NEW.at)
    THEN RAISE EXCEPTION 'a delegate decides under a delegation in force'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_escalation_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id AND tenant_id = NEW.tenant_id
        AND state = 'pending' AND NEW.state = state AND escalated_at IS NOT NULL)
    THEN RAISE EXCEPTION 'the roles of an escalation are those of an escalated call'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_escalation_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.tool_call_id, OLD.tenant_id, OLD.role) IS DISTINCT FROM (NEW.tool_call_id, NEW.tenant_id, NEW.role)
        OR NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id AND state = NEW.state)
    THEN RAISE EXCEPTION 'an escalation has the state of its call, and nothing else of it changes'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_escalation_moves() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE escalations SET state = NEW.state WHERE tool_call_id = NEW.tool_call_id;
    RETURN NULL;
END $$;

-- The calls of a deleted thread are in no list.
CREATE FUNCTION holdpoint_thread_unlisted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tool_calls SET listed_for = NULL WHERE thread_id = NEW.thread_id AND listed_for IS NOT NULL;
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_delegation_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.replaced_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tool_calls JOIN threads ON threads.thread_id = tool_calls.thread_id
        WHERE tool_calls.tool_call_id = NEW.tool_call_id AND tool_calls.tenant_id = NEW.tenant_id
            AND tool_calls.held AND tool_calls.state = 'pending' AND NEW.until <= tool_calls.expires_at
            AND threads.user_id <> NEW.delegate)
    THEN RAISE EXCEPTION 'a pending call is delegated, until its deadline, and not to its requester'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_delegation_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.replaced_at IS NOT NULL
       OR (OLD.delegation_id, OLD.tool_call_id, OLD.tenant_id, OLD.delegator, OLD.delegate, OLD.roles, OLD.reason,
           OLD.created_at, OLD.until)
          IS DISTINCT FROM
          (NEW.delegation_id, NEW.tool_call_id, NEW.tenant_id, NEW.delegator, NEW.delegate, NEW.roles, NEW.reason,
           NEW.created_at, NEW.until)
    THEN RAISE EXCEPTION 'a delegation is replaced once, and nothing else of it changes'; END IF;
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

CREATE FUNCTION holdpoint_step_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.status <> 'streaming' AND NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
    THEN RAISE EXCEPTION 'a step is written once'; END IF;
    IF OLD.erased_at IS NOT NULL OR (NEW.erased_at IS NOT NULL
        AND (OLD.finished_at IS NULL OR OLD.status <> NEW.status OR OLD.finished_at <> NEW.finished_at))
    THEN RAISE EXCEPTION 'only ended rows are erased, once'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_sent_answer_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.erased_at IS NOT NULL OR NEW.erased_at IS NULL
       OR (OLD.tool_call_id, OLD.n, OLD.kind, OLD.message_id, OLD.step, OLD.at)
          IS DISTINCT FROM
          (NEW.tool_call_id, NEW.n, NEW.kind, NEW.message_id, NEW.step, NEW.at)
    THEN RAISE EXCEPTION 'a text sent to the model does not change'; END IF;
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
           AND OLD.superseded_at IS DISTINCT FROM NEW.superseded_at)
       OR (OLD.superseded_at IS NOT NULL AND OLD.superseded_at IS DISTINCT FROM NEW.superseded_at)
    THEN RAISE EXCEPTION 'the content of a message does not change'; END IF;
    -- A message that a turn writes is not erased.
    IF OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL AND OLD.superseded_at IS NULL AND EXISTS (
        SELECT 1 FROM runs WHERE assistant_message_id = OLD.message_id AND status = 'running')
    THEN RAISE EXCEPTION 'the content of a message does not change'; END IF;
    RETURN NEW;
END $$;

-- The number of an event is set once. The other columns never change.
CREATE FUNCTION holdpoint_event_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.event_id, OLD.type, OLD.at, OLD.actor, OLD.tenant_id, OLD.user_id, OLD.held_tool, OLD.session_id,
        OLD.thread_id, OLD.run_id, OLD.tool_call_id, OLD.data, OLD.place)
       IS DISTINCT FROM
       (NEW.event_id, NEW.type, NEW.at, NEW.actor, NEW.tenant_id, NEW.user_id, NEW.held_tool, NEW.session_id,
        NEW.thread_id, NEW.run_id, NEW.tool_call_id, NEW.data, NEW.place)
       OR (OLD.seq IS NOT NULL AND OLD.seq IS DISTINCT FROM NEW.seq)
    THEN RAISE EXCEPTION 'events never change'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_grant_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.revoked_at IS NOT NULL OR NEW.uses_left IS DISTINCT FROM NEW.uses OR NOT EXISTS (
        SELECT 1 FROM decisions
        JOIN tool_calls ON tool_calls.tool_call_id = decisions.tool_call_id
        JOIN threads ON threads.thread_id = tool_calls.thread_id
        WHERE decisions.tool_call_id = NEW.tool_call_id AND decisions.actor = NEW.granted_by
            AND decisions.final AND decisions.remember = 'session'
            AND tool_calls.name = NEW.tool_name AND tool_calls.schema_hash = NEW.schema_hash
            AND threads.session_id = NEW.session_id AND threads.tenant_id = NEW.tenant_id)
    THEN RAISE EXCEPTION 'a grant needs a remembered approval'; END IF;
    RETURN NEW;
END $$;

-- Of a revoked grant a purge erases the bounds, and nothing else changes.
CREATE FUNCTION holdpoint_grant_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.revoked_at IS NOT NULL AND (OLD.revoked_at, OLD.revoked_by, OLD.uses_left)
            IS DISTINCT FROM (NEW.revoked_at, NEW.revoked_by, NEW.uses_left))
       OR (OLD.input_bounds IS DISTINCT FROM NEW.input_bounds
           AND (OLD.revoked_at IS NULL OR NEW.input_bounds IS DISTINCT FROM ''))
       OR NEW.uses_left > OLD.uses_left
       OR (OLD.grant_id, OLD.tenant_id, OLD.session_id, OLD.tool_name, OLD.schema_hash, OLD.input_hash, OLD.until,
           OLD.uses, OLD.process_id, OLD.granted_by, OLD.roles, OLD.tool_call_id, OLD.created_at)
          IS DISTINCT FROM
          (NEW.grant_id, NEW.tenant_id, NEW.session_id, NEW.tool_name, NEW.schema_hash, NEW.input_hash, NEW.until,
           NEW.uses, NEW.process_id, NEW.granted_by, NEW.roles, NEW.tool_call_id, NEW.created_at)
    THEN RAISE EXCEPTION 'a grant is used and revoked once, and nothing else of it changes'; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER tool_calls_born BEFORE INSERT ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_call_born();

CREATE TRIGGER tool_calls_moves BEFORE UPDATE ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_call_moves();

CREATE TRIGGER tool_calls_kept BEFORE DELETE ON tool_calls
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

-- Here and below, a condition of a trigger or its list of columns leaves out rows that the function would accept: each
-- call of a function sets its search_path, which costs more than the function.
CREATE TRIGGER runs_moves BEFORE UPDATE OF status ON runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION holdpoint_run_moves();

CREATE TRIGGER message_steps_written BEFORE UPDATE ON message_steps
    FOR EACH ROW WHEN (OLD.status <> 'streaming' OR OLD.erased_at IS NOT NULL OR NEW.erased_at IS NOT NULL)
    EXECUTE FUNCTION holdpoint_step_written();

-- After the statement, which may move the call too, see store/batch.rs.
CREATE TRIGGER decisions_consistent AFTER INSERT ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_decision_said();

CREATE TRIGGER decisions_delegated AFTER INSERT ON decisions
    FOR EACH ROW WHEN (NEW.on_behalf_of IS NOT NULL) EXECUTE FUNCTION holdpoint_decision_delegated();

CREATE TRIGGER escalations_born BEFORE INSERT ON escalations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_escalation_born();

CREATE TRIGGER escalations_fixed BEFORE UPDATE ON escalations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_escalation_fixed();

CREATE TRIGGER tool_calls_begun AFTER UPDATE OF state ON tool_calls
    FOR EACH ROW WHEN (OLD.state = 'pending' AND NEW.state = 'executing')
    EXECUTE FUNCTION holdpoint_tool_call_begun();

CREATE TRIGGER tool_calls_escalated AFTER UPDATE OF state ON tool_calls
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND NEW.escalated_at IS NOT NULL)
    EXECUTE FUNCTION holdpoint_escalation_moves();

CREATE TRIGGER threads_unlisted AFTER UPDATE OF deleted_at ON threads
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION holdpoint_thread_unlisted();

CREATE TRIGGER escalations_kept BEFORE DELETE ON escalations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER escalations_whole BEFORE TRUNCATE ON escalations
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER delegations_born BEFORE INSERT ON delegations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_delegation_born();

CREATE TRIGGER delegations_fixed BEFORE UPDATE ON delegations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_delegation_fixed();

CREATE TRIGGER delegations_kept BEFORE DELETE ON delegations
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER delegations_whole BEFORE TRUNCATE ON delegations
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER decisions_fixed BEFORE UPDATE ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_changed();

CREATE TRIGGER decisions_kept BEFORE DELETE ON decisions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER sent_answers_fixed BEFORE UPDATE ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_sent_answer_fixed();

CREATE TRIGGER sent_answers_kept BEFORE DELETE ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER events_fixed BEFORE UPDATE OF event_id, type, at, actor, tenant_id, user_id, held_tool, session_id,
    thread_id, run_id, tool_call_id, data, place ON events
    FOR EACH ROW EXECUTE FUNCTION holdpoint_event_fixed();

CREATE TRIGGER events_numbered BEFORE UPDATE OF seq ON events
    FOR EACH ROW WHEN (OLD.seq IS NOT NULL) EXECUTE FUNCTION holdpoint_event_fixed();

CREATE TRIGGER events_kept BEFORE DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER messages_fixed BEFORE UPDATE OF message_id, thread_id, run_id, ordinal, role, client_id, content,
    created_at, erased_at ON messages
    FOR EACH ROW EXECUTE FUNCTION holdpoint_message_fixed();

CREATE TRIGGER messages_superseded BEFORE UPDATE OF superseded_at ON messages
    FOR EACH ROW WHEN (OLD.superseded_at IS NOT NULL) EXECUTE FUNCTION holdpoint_message_fixed();

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

CREATE FUNCTION holdpoint_accepted_definition_listed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.n <> 1 + COALESCE((SELECT MAX(n) FROM accepted_definitions WHERE tool_name = NEW.tool_name), 0)
        OR NOT EXISTS (SELECT 1 FROM listed_definitions WHERE tool_name = NEW.tool_name AND server = NEW.server
            AND hash = NEW.hash AND definition = NEW.definition)
    THEN RAISE EXCEPTION 'an acceptance has the next definition, as its server lists it'; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER accepted_definitions_listed BEFORE INSERT ON accepted_definitions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_accepted_definition_listed();

CREATE TRIGGER accepted_definitions_fixed BEFORE UPDATE ON accepted_definitions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_changed();

CREATE TRIGGER accepted_definitions_kept BEFORE DELETE ON accepted_definitions
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER accepted_definitions_whole BEFORE TRUNCATE ON accepted_definitions
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE FUNCTION holdpoint_tool_request_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.state <> 'open' OR NEW.erased_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tool_calls JOIN threads ON threads.thread_id = tool_calls.thread_id
        WHERE tool_calls.tool_call_id = NEW.tool_call_id AND tool_calls.tenant_id = NEW.tenant_id
            AND tool_calls.state = 'executing' AND tool_calls.exec_id = NEW.exec_id AND threads.user_id = NEW.user_id
            AND NEW.held_tool IS NOT DISTINCT FROM CASE WHEN tool_calls.held THEN tool_calls.name END)
    THEN RAISE EXCEPTION 'a request begins as open, while its call executes'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_tool_request_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.erased_at IS NOT NULL
        OR (OLD.request_id, OLD.tool_call_id, OLD.tenant_id, OLD.user_id, OLD.held_tool, OLD.exec_id, OLD.kind,
            OLD.created_at, OLD.expires_at)
           IS DISTINCT FROM
           (NEW.request_id, NEW.tool_call_id, NEW.tenant_id, NEW.user_id, NEW.held_tool, NEW.exec_id, NEW.kind,
            NEW.created_at, NEW.expires_at)
        OR ((OLD.message, OLD.answer_schema, OLD.server_key)
            IS DISTINCT FROM (NEW.message, NEW.answer_schema, NEW.server_key) AND NEW.erased_at IS NULL)
        OR (OLD.state <> 'open' AND (
            (OLD.state, OLD.answered_by, OLD.answered_at, OLD.content_hash)
                IS DISTINCT FROM (NEW.state, NEW.answered_by, NEW.answered_at, NEW.content_hash)
            OR (NEW.content IS NOT NULL AND OLD.content IS DISTINCT FROM NEW.content)))
    THEN RAISE EXCEPTION 'a request is answered once, and nothing else of it changes'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION holdpoint_tool_request_vote_born() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.content IS NULL OR NOT EXISTS (
        SELECT 1 FROM tool_requests WHERE request_id = NEW.request_id AND state = 'open')
    THEN RAISE EXCEPTION 'people propose an answer while the request is open'; END IF;
    RETURN NEW;
END $$;

-- A person may change their proposal while the request is open. After that its content alone is removed.
CREATE FUNCTION holdpoint_tool_request_vote_fixed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.request_id, OLD.actor) IS DISTINCT FROM (NEW.request_id, NEW.actor)
        OR (CASE WHEN EXISTS (SELECT 1 FROM tool_requests WHERE request_id = OLD.request_id AND state = 'open')
            THEN NEW.content IS NULL
            ELSE NEW.content IS NOT NULL OR (OLD.content_hash, OLD.at) IS DISTINCT FROM (NEW.content_hash, NEW.at) END)
    THEN RAISE EXCEPTION 'people propose an answer while the request is open'; END IF;
    RETURN NEW;
END $$;

-- What people proposed is kept no longer than the request is open.
CREATE FUNCTION holdpoint_tool_request_ended() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tool_request_votes SET content = NULL WHERE request_id = NEW.request_id AND content IS NOT NULL;
    RETURN NULL;
END $$;

-- A request ends with the execution of its call, and what a person entered is kept no longer.
CREATE FUNCTION holdpoint_tool_call_answered() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tool_requests SET state = CASE WHEN state = 'open' THEN 'withdrawn' ELSE state END, content = NULL
    WHERE tool_call_id = NEW.tool_call_id AND (state = 'open' OR content IS NOT NULL);
    RETURN NULL;
END $$;

CREATE TRIGGER tool_requests_born BEFORE INSERT ON tool_requests
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_request_born();

CREATE TRIGGER tool_requests_fixed BEFORE UPDATE ON tool_requests
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_request_fixed();

CREATE TRIGGER tool_requests_kept BEFORE DELETE ON tool_requests
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER tool_requests_whole BEFORE TRUNCATE ON tool_requests
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER tool_requests_ended AFTER UPDATE OF state ON tool_requests
    FOR EACH ROW WHEN (OLD.state = 'open' AND NEW.state <> 'open')
    EXECUTE FUNCTION holdpoint_tool_request_ended();

CREATE TRIGGER tool_request_votes_born BEFORE INSERT ON tool_request_votes
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_request_vote_born();

CREATE TRIGGER tool_request_votes_fixed BEFORE UPDATE ON tool_request_votes
    FOR EACH ROW EXECUTE FUNCTION holdpoint_tool_request_vote_fixed();

CREATE TRIGGER tool_request_votes_kept BEFORE DELETE ON tool_request_votes
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER tool_request_votes_whole BEFORE TRUNCATE ON tool_request_votes
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER tool_calls_answered AFTER UPDATE OF state ON tool_calls
    FOR EACH ROW WHEN (OLD.state = 'executing' AND NEW.state <> 'executing')
    EXECUTE FUNCTION holdpoint_tool_call_answered();

-- A delivered event is never delivered again by a cursor that moves back.
CREATE FUNCTION holdpoint_endpoint_grows() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.name <> OLD.name OR NEW.cursor < OLD.cursor
    THEN RAISE EXCEPTION 'the cursor of an endpoint only grows'; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER endpoints_grow BEFORE UPDATE ON endpoints
    FOR EACH ROW EXECUTE FUNCTION holdpoint_endpoint_grows();

CREATE TRIGGER endpoints_kept BEFORE DELETE ON endpoints
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER endpoints_whole BEFORE TRUNCATE ON endpoints
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER slack_messages_fixed BEFORE UPDATE ON slack_messages
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_changed();

CREATE TRIGGER slack_messages_kept BEFORE DELETE ON slack_messages
    FOR EACH ROW EXECUTE FUNCTION holdpoint_never_deleted();

CREATE TRIGGER slack_messages_whole BEFORE TRUNCATE ON slack_messages
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_never_deleted();
