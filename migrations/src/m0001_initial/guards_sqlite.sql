-- The same guards as in guards_postgres.sql.

CREATE INDEX events_unnumbered ON events (place) WHERE seq IS NULL;

CREATE TRIGGER tool_calls_born BEFORE INSERT ON tool_calls
WHEN NEW.state NOT IN ('pending', 'approved', 'executing', 'rejected', 'cancelled', 'invalid')
  OR (NEW.state IN ('approved', 'executing') AND (NEW.held OR NEW.decided_by <> 'system:policy'))
  OR (NEW.state = 'approved' AND (NOT NEW.by_worker OR NEW.exec_attempt <> 0))
  OR (NEW.state = 'executing' AND NEW.by_worker)
  OR (NEW.state = 'cancelled' AND (NEW.held OR NEW.decided_by <> 'system:duplicate'))
  OR (NEW.state = 'rejected' AND (NEW.held OR NEW.decided_by NOT IN ('system:policy', 'system:rejected')))
  OR (NEW.decided_by = 'system:rejected' AND NOT EXISTS (SELECT 1 FROM tool_calls
      WHERE message_id = NEW.message_id AND run_id = NEW.run_id AND state = 'rejected' AND held AND name = NEW.name
          AND decided_by LIKE 'user:%'))
BEGIN SELECT RAISE(ABORT, 'a tool call begins as pending, invalid, a repeat, or decided by the policy'); END;

CREATE TRIGGER tool_calls_listed BEFORE INSERT ON tool_calls
WHEN NEW.listed_for IS NOT CASE WHEN NEW.held THEN
    (SELECT user_id FROM threads WHERE thread_id = NEW.thread_id AND deleted_at IS NULL) END
BEGIN SELECT RAISE(ABORT, 'a held call is listed for the user of its thread'); END;

CREATE TRIGGER tool_calls_unlisted BEFORE UPDATE ON tool_calls
WHEN OLD.listed_for IS NOT NEW.listed_for AND (NEW.listed_for IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM threads WHERE thread_id = NEW.thread_id AND deleted_at IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'a held call is listed for the user of its thread'); END;

-- The calls of a deleted thread are in no list.
CREATE TRIGGER threads_unlisted AFTER UPDATE OF deleted_at ON threads
WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    UPDATE tool_calls SET listed_for = NULL WHERE thread_id = NEW.thread_id AND listed_for IS NOT NULL;
END;

CREATE TRIGGER tool_calls_kept BEFORE DELETE ON tool_calls
BEGIN SELECT RAISE(ABORT, 'tool calls are never deleted'); END;

CREATE TRIGGER tool_calls_frozen BEFORE UPDATE ON tool_calls
WHEN OLD.tool_call_id IS NOT NEW.tool_call_id OR OLD.thread_id IS NOT NEW.thread_id
  OR OLD.tenant_id IS NOT NEW.tenant_id
  OR OLD.message_id IS NOT NEW.message_id OR OLD.step IS NOT NEW.step OR OLD.ordinal IS NOT NEW.ordinal
  OR OLD.run_id IS NOT NEW.run_id OR OLD.provider_call_id IS NOT NEW.provider_call_id
  OR OLD.wire_call_id IS NOT NEW.wire_call_id OR OLD.name IS NOT NEW.name
  OR OLD.schema_hash IS NOT NEW.schema_hash OR OLD.held IS NOT NEW.held
  OR OLD.idempotent IS NOT NEW.idempotent OR OLD.risk_level IS NOT NEW.risk_level
  OR OLD.by_worker IS NOT NEW.by_worker OR OLD.created_at IS NOT NEW.created_at
  OR OLD.preview_failed IS NOT NEW.preview_failed OR OLD.secret_paths IS NOT NEW.secret_paths
  OR ((OLD.arguments IS NOT NEW.arguments OR OLD.model_arguments IS NOT NEW.model_arguments OR OLD.preview IS NOT NEW.preview) AND NOT (OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'the content of a call does not change'); END;

CREATE TRIGGER tool_calls_decided BEFORE UPDATE ON tool_calls
WHEN OLD.validated IS NOT NULL AND (
     OLD.validated IS NOT NEW.validated OR OLD.decided_by IS NOT NEW.decided_by
  OR OLD.decided_at IS NOT NEW.decided_at
  OR OLD.validated_preview_failed IS NOT NEW.validated_preview_failed
  OR ((OLD.validated_inputs IS NOT NEW.validated_inputs OR OLD.validated_preview IS NOT NEW.validated_preview)
      AND NOT (OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)))
BEGIN SELECT RAISE(ABORT, 'a decision is final'); END;

CREATE TRIGGER tool_calls_extended BEFORE UPDATE ON tool_calls
WHEN OLD.expires_at IS NOT NEW.expires_at AND NOT (OLD.state = 'pending' AND NEW.state = 'pending')
BEGIN SELECT RAISE(ABORT, 'the deadline of a decision changes only while the call is pending'); END;

CREATE TRIGGER tool_calls_noticed BEFORE UPDATE ON tool_calls
WHEN OLD.escalate_at IS NOT NEW.escalate_at OR OLD.escalate_to IS NOT NEW.escalate_to
  OR ((OLD.remind_at IS NOT NEW.remind_at OR OLD.escalated_at IS NOT NEW.escalated_at)
      AND NOT (OLD.state = 'pending' AND NEW.state = 'pending'))
  OR (OLD.escalated_at IS NOT NULL AND OLD.escalated_at IS NOT NEW.escalated_at)
BEGIN SELECT RAISE(ABORT, 'a pending call is escalated once, to the roles of its hold'); END;

CREATE TRIGGER escalations_born BEFORE INSERT ON escalations
WHEN NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id AND tenant_id = NEW.tenant_id
    AND state = 'pending' AND NEW.state = state AND escalated_at IS NOT NULL)
  OR EXISTS (SELECT 1 FROM escalations WHERE tool_call_id = NEW.tool_call_id AND role = NEW.role)
BEGIN SELECT RAISE(ABORT, 'the roles of an escalation are those of an escalated call'); END;

CREATE TRIGGER escalations_fixed BEFORE UPDATE ON escalations
WHEN OLD.tool_call_id IS NOT NEW.tool_call_id OR OLD.tenant_id IS NOT NEW.tenant_id OR OLD.role IS NOT NEW.role
  OR NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id AND state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'an escalation has the state of its call, and nothing else of it changes'); END;

CREATE TRIGGER tool_calls_escalated AFTER UPDATE OF state ON tool_calls
WHEN OLD.state IS NOT NEW.state AND NEW.escalated_at IS NOT NULL
BEGIN
    UPDATE escalations SET state = NEW.state WHERE tool_call_id = NEW.tool_call_id;
END;

CREATE TRIGGER escalations_kept BEFORE DELETE ON escalations
BEGIN SELECT RAISE(ABORT, 'escalations are never deleted'); END;

-- A pending call never begins in one step: no statement of SQLite inserts the decision with it.
CREATE TRIGGER tool_calls_moves BEFORE UPDATE ON tool_calls
WHEN OLD.state IS NOT NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
    'pending>approved', 'pending>rejected', 'pending>expired', 'pending>cancelled',
    'approved>executing', 'approved>cancelled', 'approved>failed', 'approved>interrupted',
    'executing>succeeded', 'executing>failed', 'executing>interrupted', 'executing>approved',
    'interrupted>succeeded', 'interrupted>failed')
BEGIN SELECT RAISE(ABORT, 'illegal transition of a tool call'); END;

CREATE TRIGGER tool_calls_unclaimed BEFORE UPDATE ON tool_calls
WHEN OLD.state = 'approved' AND OLD.state IS NOT NEW.state AND (
     (NEW.state IN ('cancelled', 'failed') AND OLD.exec_attempt > 0)
  OR (NEW.state = 'interrupted' AND OLD.exec_attempt = 0))
BEGIN SELECT RAISE(ABORT, 'only a call that was never claimed did not run'); END;

CREATE TRIGGER tool_calls_attempts BEFORE UPDATE ON tool_calls
WHEN (OLD.state = 'executing' AND NEW.state = 'approved' AND NOT (OLD.idempotent AND OLD.exec_attempt < 3
      AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NULL))
  OR (OLD.state = 'approved' AND NEW.state = 'executing' AND (NEW.exec_attempt <> OLD.exec_attempt + 1
      OR NEW.exec_id IS OLD.exec_id))
  OR (NEW.exec_attempt IS NOT OLD.exec_attempt
      AND NOT (OLD.state = 'approved' AND NEW.state = 'executing' AND NEW.exec_attempt = OLD.exec_attempt + 1))
  OR (NEW.exec_id IS NOT OLD.exec_id AND NOT (OLD.state = 'approved' AND NEW.state = 'executing'))
BEGIN SELECT RAISE(ABORT, 'a call runs once, and again only if it is idempotent, at most three times'); END;

CREATE TRIGGER tool_calls_born_alone BEFORE INSERT ON tool_calls
WHEN NEW.child_run_id IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a running call is delegated once, to a child thread of its own'); END;

-- The last condition refuses a child that another call has: UPDATE OR REPLACE would delete the other call.
CREATE TRIGGER tool_calls_delegated BEFORE UPDATE ON tool_calls
WHEN NEW.child_run_id IS NOT OLD.child_run_id AND NOT (OLD.child_run_id IS NULL
  AND OLD.state = 'executing' AND NEW.state = 'executing' AND EXISTS (
    SELECT 1 FROM runs JOIN threads ON threads.thread_id = runs.thread_id
    WHERE runs.run_id = NEW.child_run_id AND runs.status = 'waiting'
        AND threads.parent_id = NEW.thread_id AND threads.tenant_id = NEW.tenant_id)
  AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE child_run_id = NEW.child_run_id))
BEGIN SELECT RAISE(ABORT, 'a running call is delegated once, to a child thread of its own'); END;

CREATE TRIGGER tool_calls_born_unowned BEFORE INSERT ON tool_calls
WHEN NEW.result_deadline IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a running call gets an owner once'); END;

CREATE TRIGGER tool_calls_owned BEFORE UPDATE ON tool_calls
WHEN (NEW.result_deadline IS NOT OLD.result_deadline OR NEW.mcp_server IS NOT OLD.mcp_server)
  AND NOT (OLD.result_deadline IS NULL AND OLD.state = 'executing' AND NEW.state = 'executing'
      AND (NEW.mcp_server IS NULL) = (NEW.task_id IS NULL AND NEW.input_round IS NULL))
BEGIN SELECT RAISE(ABORT, 'a running call gets an owner once'); END;

-- A round is taken by the process that polls the call, before that process sends the call again. It stores the next
-- task or round, if the answer of the server is one.
CREATE TRIGGER tool_calls_rounds BEFORE UPDATE ON tool_calls
WHEN (NEW.task_id IS NOT OLD.task_id OR NEW.input_round IS NOT OLD.input_round)
  AND NOT (OLD.result_deadline IS NULL AND NEW.result_deadline IS NOT NULL)
  AND NOT (OLD.input_round IS NOT NULL AND NEW.input_round IS NULL AND NEW.task_id IS NULL
      AND (NEW.state <> 'executing'
          OR (NEW.polled_by IS OLD.polled_by AND NEW.cancel_requested_at IS NULL)))
  AND NOT (OLD.mcp_server IS NOT NULL AND OLD.task_id IS NULL AND OLD.input_round IS NULL
      AND OLD.state = 'executing' AND NEW.state = 'executing' AND NEW.polled_by IS OLD.polled_by)
BEGIN SELECT RAISE(ABORT, 'a call is sent again once for each round of answers'); END;

CREATE TRIGGER tool_calls_progressed BEFORE UPDATE ON tool_calls
WHEN NEW.progress IS NOT OLD.progress AND OLD.state <> 'executing'
  AND NOT (OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'progress is reported while the call executes'); END;

CREATE TRIGGER tool_calls_ended BEFORE UPDATE ON tool_calls
WHEN OLD.finished_at IS NOT NULL AND OLD.state IS NEW.state
  AND (OLD.result IS NOT NEW.result OR OLD.output IS NOT NEW.output OR OLD.finished_at IS NOT NEW.finished_at)
  AND NOT (OLD.finished_at IS NOT NULL AND OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'an outcome does not change'); END;

CREATE TRIGGER runs_moves BEFORE UPDATE ON runs
WHEN OLD.status IS NOT NEW.status AND (OLD.status || '>' || NEW.status) NOT IN (
    'running>waiting', 'running>completed', 'running>failed', 'running>cancelled',
    'waiting>running', 'waiting>completed', 'waiting>cancelled', 'failed>running', 'failed>cancelled')
BEGIN SELECT RAISE(ABORT, 'illegal transition of a run'); END;

CREATE TRIGGER message_steps_written BEFORE UPDATE ON message_steps
WHEN OLD.status <> 'streaming' AND NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'a step is written once'); END;

CREATE TRIGGER tool_calls_approved BEFORE UPDATE ON tool_calls
WHEN (NEW.held OR NEW.by_worker) AND OLD.state = 'approved' AND NEW.state = 'executing' AND NOT EXISTS (
    SELECT 1 FROM decisions WHERE tool_call_id = NEW.tool_call_id AND final AND verdict = 'approve')
BEGIN SELECT RAISE(ABORT, 'a held call and a call of a worker begin on a decision'); END;

CREATE TRIGGER tool_calls_permitted BEFORE UPDATE ON tool_calls
WHEN NEW.permit_hash IS NOT OLD.permit_hash AND NEW.exec_id IS OLD.exec_id
BEGIN SELECT RAISE(ABORT, 'the token of an execution does not change'); END;

CREATE TRIGGER decisions_consistent BEFORE INSERT ON decisions
WHEN NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id
    AND CASE WHEN NEW.final THEN decided_by = NEW.actor ELSE held AND state = 'pending' END)
BEGIN SELECT RAISE(ABORT, 'a final decision has moved its call, and a vote has not'); END;

CREATE TRIGGER decisions_delegated BEFORE INSERT ON decisions
WHEN NEW.on_behalf_of IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM delegations WHERE tool_call_id = NEW.tool_call_id AND replaced_at IS NULL
        AND 'user:' || delegator = NEW.on_behalf_of AND 'user:' || delegate = NEW.actor AND until > NEW.at)
BEGIN SELECT RAISE(ABORT, 'a delegate decides under a delegation in force'); END;

CREATE TRIGGER delegations_born BEFORE INSERT ON delegations
WHEN NEW.replaced_at IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM tool_calls JOIN threads ON threads.thread_id = tool_calls.thread_id
    WHERE tool_calls.tool_call_id = NEW.tool_call_id AND tool_calls.tenant_id = NEW.tenant_id
        AND tool_calls.held AND tool_calls.state = 'pending' AND NEW.until <= tool_calls.expires_at
        AND threads.user_id <> NEW.delegate)
BEGIN SELECT RAISE(ABORT, 'a pending call is delegated, until its deadline, and not to its requester'); END;

CREATE TRIGGER delegations_fixed BEFORE UPDATE ON delegations
WHEN OLD.replaced_at IS NOT NULL OR OLD.delegation_id IS NOT NEW.delegation_id
  OR OLD.tool_call_id IS NOT NEW.tool_call_id OR OLD.tenant_id IS NOT NEW.tenant_id
  OR OLD.delegator IS NOT NEW.delegator OR OLD.delegate IS NOT NEW.delegate OR OLD.roles IS NOT NEW.roles
  OR OLD.reason IS NOT NEW.reason OR OLD.created_at IS NOT NEW.created_at OR OLD.until IS NOT NEW.until
BEGIN SELECT RAISE(ABORT, 'a delegation is replaced once, and nothing else of it changes'); END;

CREATE TRIGGER delegations_kept BEFORE DELETE ON delegations
BEGIN SELECT RAISE(ABORT, 'delegations are never deleted'); END;

CREATE TRIGGER delegations_new BEFORE INSERT ON delegations
WHEN EXISTS (SELECT 1 FROM delegations WHERE delegation_id = NEW.delegation_id
    OR (tool_call_id = NEW.tool_call_id AND delegator = NEW.delegator AND replaced_at IS NULL))
BEGIN SELECT RAISE(ABORT, 'delegations are never overwritten'); END;

CREATE TRIGGER decisions_fixed BEFORE UPDATE ON decisions
BEGIN SELECT RAISE(ABORT, 'decisions never change'); END;

CREATE TRIGGER decisions_kept BEFORE DELETE ON decisions
BEGIN SELECT RAISE(ABORT, 'decisions are never deleted'); END;

CREATE TRIGGER sent_answers_fixed BEFORE UPDATE ON sent_answers
WHEN OLD.erased_at IS NOT NULL OR NEW.erased_at IS NULL
  OR OLD.tool_call_id IS NOT NEW.tool_call_id OR OLD.n IS NOT NEW.n OR OLD.kind IS NOT NEW.kind
  OR OLD.message_id IS NOT NEW.message_id OR OLD.step IS NOT NEW.step OR OLD.at IS NOT NEW.at
BEGIN SELECT RAISE(ABORT, 'a text sent to the model does not change'); END;

CREATE TRIGGER sent_answers_kept BEFORE DELETE ON sent_answers
BEGIN SELECT RAISE(ABORT, 'texts sent to the model are never deleted'); END;

-- The number of an event is set once. The other columns never change.
CREATE TRIGGER events_fixed BEFORE UPDATE ON events
WHEN OLD.event_id IS NOT NEW.event_id OR OLD.type IS NOT NEW.type OR OLD.at IS NOT NEW.at
  OR OLD.actor IS NOT NEW.actor OR OLD.tenant_id IS NOT NEW.tenant_id
  OR OLD.user_id IS NOT NEW.user_id OR OLD.held_tool IS NOT NEW.held_tool
  OR OLD.session_id IS NOT NEW.session_id OR OLD.thread_id IS NOT NEW.thread_id
  OR OLD.run_id IS NOT NEW.run_id OR OLD.tool_call_id IS NOT NEW.tool_call_id OR OLD.data IS NOT NEW.data
  OR (OLD.seq IS NOT NULL AND OLD.seq IS NOT NEW.seq)
  OR OLD.place IS NOT NEW.place
BEGIN SELECT RAISE(ABORT, 'events never change'); END;

CREATE TRIGGER events_kept BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;

-- An erased row stays erased. The erasing update changes only payloads. The lists lose an erased call with its thread.
CREATE TRIGGER tool_calls_erased BEFORE UPDATE ON tool_calls
WHEN (OLD.erased_at IS NOT NULL AND OLD.listed_for IS NEW.listed_for)
  OR (NEW.erased_at IS NOT NULL AND (OLD.finished_at IS NULL OR OLD.state IS NOT NEW.state))
BEGIN SELECT RAISE(ABORT, 'only ended rows are erased, once'); END;

CREATE TRIGGER message_steps_erased BEFORE UPDATE ON message_steps
WHEN OLD.erased_at IS NOT NULL OR (NEW.erased_at IS NOT NULL AND
     (OLD.finished_at IS NULL OR OLD.status IS NOT NEW.status OR OLD.finished_at IS NOT NEW.finished_at))
BEGIN SELECT RAISE(ABORT, 'only ended rows are erased, once'); END;

CREATE TRIGGER messages_fixed BEFORE UPDATE ON messages
WHEN OLD.message_id IS NOT NEW.message_id OR OLD.thread_id IS NOT NEW.thread_id
  OR OLD.run_id IS NOT NEW.run_id OR OLD.ordinal IS NOT NEW.ordinal OR OLD.role IS NOT NEW.role
  OR OLD.client_id IS NOT NEW.client_id OR OLD.created_at IS NOT NEW.created_at
  OR (OLD.content IS NOT NEW.content
      AND NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL AND NEW.content = ''))
  OR (OLD.erased_at IS NOT NULL AND OLD.erased_at IS NOT NEW.erased_at)
  -- A message that a turn writes is not erased.
  OR (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL
      AND (OLD.superseded_at IS NOT NEW.superseded_at OR (OLD.superseded_at IS NULL AND EXISTS (
          SELECT 1 FROM runs WHERE assistant_message_id = OLD.message_id AND status = 'running'))))
  OR (OLD.superseded_at IS NOT NULL AND OLD.superseded_at IS NOT NEW.superseded_at)
BEGIN SELECT RAISE(ABORT, 'the content of a message does not change'); END;

CREATE TRIGGER messages_kept BEFORE DELETE ON messages
BEGIN SELECT RAISE(ABORT, 'messages are never deleted'); END;

-- INSERT OR REPLACE deletes rows without firing the DELETE triggers.
CREATE TRIGGER tool_calls_new BEFORE INSERT ON tool_calls
WHEN EXISTS (SELECT 1 FROM tool_calls WHERE tool_call_id = NEW.tool_call_id
    OR (thread_id = NEW.thread_id AND wire_call_id = NEW.wire_call_id)
    OR (message_id = NEW.message_id AND step = NEW.step AND ordinal = NEW.ordinal))
BEGIN SELECT RAISE(ABORT, 'tool calls are never replaced'); END;

CREATE TRIGGER decisions_new BEFORE INSERT ON decisions
WHEN EXISTS (SELECT 1 FROM decisions WHERE tool_call_id = NEW.tool_call_id
    AND (decision_id = NEW.decision_id OR (final AND NEW.final)
        OR (NOT final AND NOT NEW.final AND input_hash = NEW.input_hash AND (actor = NEW.actor
            OR COALESCE(on_behalf_of, actor) = COALESCE(NEW.on_behalf_of, NEW.actor)))))
BEGIN SELECT RAISE(ABORT, 'decisions are never replaced'); END;

CREATE TRIGGER sent_answers_new BEFORE INSERT ON sent_answers
WHEN EXISTS (SELECT 1 FROM sent_answers WHERE tool_call_id = NEW.tool_call_id AND n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'texts sent to the model are never replaced'); END;

CREATE TRIGGER events_new BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE place = NEW.place OR seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'events are never replaced'); END;

CREATE TRIGGER messages_new BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE message_id = NEW.message_id
    OR (thread_id = NEW.thread_id AND ordinal = NEW.ordinal)
    OR (thread_id = NEW.thread_id AND client_id = NEW.client_id AND superseded_at IS NULL))
BEGIN SELECT RAISE(ABORT, 'messages are never replaced'); END;

CREATE TRIGGER grants_born BEFORE INSERT ON grants
WHEN NEW.revoked_at IS NOT NULL OR NEW.uses_left IS NOT NEW.uses OR NOT EXISTS (
    SELECT 1 FROM decisions
    JOIN tool_calls ON tool_calls.tool_call_id = decisions.tool_call_id
    JOIN threads ON threads.thread_id = tool_calls.thread_id
    WHERE decisions.tool_call_id = NEW.tool_call_id AND decisions.actor = NEW.granted_by
        AND decisions.final AND decisions.remember = 'session'
        AND tool_calls.name = NEW.tool_name AND tool_calls.schema_hash = NEW.schema_hash
        AND threads.session_id = NEW.session_id AND threads.tenant_id = NEW.tenant_id)
BEGIN SELECT RAISE(ABORT, 'a grant needs a remembered approval'); END;

-- Of a revoked grant a purge erases the bounds, and nothing else changes.
CREATE TRIGGER grants_fixed BEFORE UPDATE ON grants
WHEN (OLD.revoked_at IS NOT NULL AND (OLD.revoked_at IS NOT NEW.revoked_at OR OLD.revoked_by IS NOT NEW.revoked_by
    OR OLD.uses_left IS NOT NEW.uses_left))
  OR (OLD.input_bounds IS NOT NEW.input_bounds AND (OLD.revoked_at IS NULL OR NEW.input_bounds IS NOT ''))
  OR OLD.until IS NOT NEW.until OR OLD.uses IS NOT NEW.uses OR NEW.uses_left > OLD.uses_left
  OR OLD.grant_id IS NOT NEW.grant_id OR OLD.tenant_id IS NOT NEW.tenant_id
  OR OLD.session_id IS NOT NEW.session_id OR OLD.tool_name IS NOT NEW.tool_name
  OR OLD.schema_hash IS NOT NEW.schema_hash OR OLD.input_hash IS NOT NEW.input_hash
  OR OLD.process_id IS NOT NEW.process_id OR OLD.granted_by IS NOT NEW.granted_by
  OR OLD.roles IS NOT NEW.roles OR OLD.tool_call_id IS NOT NEW.tool_call_id
  OR OLD.created_at IS NOT NEW.created_at
BEGIN SELECT RAISE(ABORT, 'a grant is used and revoked once, and nothing else of it changes'); END;

CREATE TRIGGER grants_kept BEFORE DELETE ON grants
BEGIN SELECT RAISE(ABORT, 'grants are never deleted'); END;

CREATE TRIGGER grants_new BEFORE INSERT ON grants
WHEN EXISTS (SELECT 1 FROM grants WHERE grant_id = NEW.grant_id
    OR (revoked_at IS NULL AND session_id = NEW.session_id AND tool_name = NEW.tool_name
        AND schema_hash = NEW.schema_hash AND granted_by = NEW.granted_by AND input_hash IS NEW.input_hash
        AND input_bounds IS NEW.input_bounds AND process_id IS NEW.process_id))
BEGIN SELECT RAISE(ABORT, 'grants are never replaced'); END;

-- Each number is given once, and no number is taken back.
CREATE TRIGGER event_sequence_grows BEFORE UPDATE ON event_sequence
WHEN NEW.id <> OLD.id OR NEW.last < OLD.last
BEGIN SELECT RAISE(ABORT, 'the numbers of events only grow'); END;

CREATE TRIGGER event_sequence_kept BEFORE DELETE ON event_sequence
BEGIN SELECT RAISE(ABORT, 'the numbers of events are never deleted'); END;

CREATE TRIGGER event_sequence_new BEFORE INSERT ON event_sequence
WHEN EXISTS (SELECT 1 FROM event_sequence WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the numbers of events are never replaced'); END;

CREATE TRIGGER accepted_definitions_listed BEFORE INSERT ON accepted_definitions
WHEN NEW.n <> 1 + COALESCE((SELECT MAX(n) FROM accepted_definitions WHERE tool_name = NEW.tool_name), 0)
  OR NOT EXISTS (SELECT 1 FROM listed_definitions WHERE tool_name = NEW.tool_name AND server = NEW.server
      AND hash = NEW.hash AND definition = NEW.definition)
BEGIN SELECT RAISE(ABORT, 'an acceptance has the next definition, as its server lists it'); END;

CREATE TRIGGER accepted_definitions_fixed BEFORE UPDATE ON accepted_definitions
BEGIN SELECT RAISE(ABORT, 'accepted definitions never change'); END;

CREATE TRIGGER accepted_definitions_kept BEFORE DELETE ON accepted_definitions
BEGIN SELECT RAISE(ABORT, 'accepted definitions are never deleted'); END;

CREATE TRIGGER tool_requests_born BEFORE INSERT ON tool_requests
WHEN NEW.state <> 'open' OR NEW.erased_at IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM tool_calls JOIN threads ON threads.thread_id = tool_calls.thread_id
    WHERE tool_calls.tool_call_id = NEW.tool_call_id AND tool_calls.tenant_id = NEW.tenant_id
        AND tool_calls.state = 'executing' AND tool_calls.exec_id = NEW.exec_id AND threads.user_id = NEW.user_id
        AND NEW.held_tool IS CASE WHEN tool_calls.held THEN tool_calls.name END)
BEGIN SELECT RAISE(ABORT, 'a request begins as open, while its call executes'); END;

CREATE TRIGGER tool_requests_new BEFORE INSERT ON tool_requests
WHEN EXISTS (SELECT 1 FROM tool_requests WHERE request_id = NEW.request_id
    OR (tool_call_id = NEW.tool_call_id AND exec_id = NEW.exec_id AND server_key = NEW.server_key))
BEGIN SELECT RAISE(ABORT, 'requests are never replaced'); END;

CREATE TRIGGER tool_requests_fixed BEFORE UPDATE ON tool_requests
WHEN OLD.erased_at IS NOT NULL
  OR OLD.request_id IS NOT NEW.request_id OR OLD.tool_call_id IS NOT NEW.tool_call_id
  OR OLD.tenant_id IS NOT NEW.tenant_id OR OLD.user_id IS NOT NEW.user_id OR OLD.held_tool IS NOT NEW.held_tool
  OR OLD.exec_id IS NOT NEW.exec_id OR OLD.kind IS NOT NEW.kind
  OR OLD.created_at IS NOT NEW.created_at OR OLD.expires_at IS NOT NEW.expires_at
  OR ((OLD.message IS NOT NEW.message OR OLD.answer_schema IS NOT NEW.answer_schema
      OR OLD.server_key IS NOT NEW.server_key) AND NEW.erased_at IS NULL)
  OR (OLD.state <> 'open' AND (OLD.state IS NOT NEW.state OR OLD.answered_by IS NOT NEW.answered_by
      OR OLD.answered_at IS NOT NEW.answered_at OR OLD.content_hash IS NOT NEW.content_hash
      OR (NEW.content IS NOT NULL AND OLD.content IS NOT NEW.content)))
BEGIN SELECT RAISE(ABORT, 'a request is answered once, and nothing else of it changes'); END;

CREATE TRIGGER tool_requests_kept BEFORE DELETE ON tool_requests
BEGIN SELECT RAISE(ABORT, 'requests are never deleted'); END;

CREATE TRIGGER tool_request_votes_born BEFORE INSERT ON tool_request_votes
WHEN NEW.content IS NULL OR NOT EXISTS (
    SELECT 1 FROM tool_requests WHERE request_id = NEW.request_id AND state = 'open')
BEGIN SELECT RAISE(ABORT, 'people propose an answer while the request is open'); END;

CREATE TRIGGER tool_request_votes_new BEFORE INSERT ON tool_request_votes
WHEN EXISTS (SELECT 1 FROM tool_request_votes WHERE request_id = NEW.request_id AND actor = NEW.actor)
BEGIN SELECT RAISE(ABORT, 'a person has one proposal'); END;

-- A person may change their proposal while the request is open. After that its content alone is removed.
CREATE TRIGGER tool_request_votes_fixed BEFORE UPDATE ON tool_request_votes
WHEN OLD.request_id IS NOT NEW.request_id OR OLD.actor IS NOT NEW.actor
  OR CASE WHEN EXISTS (SELECT 1 FROM tool_requests WHERE request_id = OLD.request_id AND state = 'open')
      THEN NEW.content IS NULL
      ELSE NEW.content IS NOT NULL OR OLD.content_hash IS NOT NEW.content_hash OR OLD.at IS NOT NEW.at END
BEGIN SELECT RAISE(ABORT, 'people propose an answer while the request is open'); END;

CREATE TRIGGER tool_request_votes_kept BEFORE DELETE ON tool_request_votes
BEGIN SELECT RAISE(ABORT, 'proposals are never deleted'); END;

-- What people proposed is kept no longer than the request is open.
CREATE TRIGGER tool_requests_ended AFTER UPDATE OF state ON tool_requests
WHEN OLD.state = 'open' AND NEW.state <> 'open'
BEGIN
    UPDATE tool_request_votes SET content = NULL WHERE request_id = NEW.request_id AND content IS NOT NULL;
END;

-- A request ends with the execution of its call, and what a person entered is kept no longer.
CREATE TRIGGER tool_calls_answered AFTER UPDATE OF state ON tool_calls
WHEN OLD.state = 'executing' AND NEW.state <> 'executing'
BEGIN
    UPDATE tool_requests SET state = CASE WHEN state = 'open' THEN 'withdrawn' ELSE state END, content = NULL
    WHERE tool_call_id = NEW.tool_call_id AND (state = 'open' OR content IS NOT NULL);
END;

-- A delivered event is never delivered again by a cursor that moves back.
CREATE TRIGGER endpoints_grow BEFORE UPDATE ON endpoints
WHEN NEW.name IS NOT OLD.name OR NEW.cursor < OLD.cursor
BEGIN SELECT RAISE(ABORT, 'the cursor of an endpoint only grows'); END;

CREATE TRIGGER endpoints_kept BEFORE DELETE ON endpoints
BEGIN SELECT RAISE(ABORT, 'endpoints are never deleted'); END;

CREATE TRIGGER slack_messages_fixed BEFORE UPDATE ON slack_messages
BEGIN SELECT RAISE(ABORT, 'messages in Slack never change'); END;

CREATE TRIGGER slack_messages_kept BEFORE DELETE ON slack_messages
BEGIN SELECT RAISE(ABORT, 'messages in Slack are never deleted'); END;
