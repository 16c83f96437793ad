-- The types are those that SQLite and Postgres share. Times are microseconds since 1970. JSON is TEXT,
-- because jsonb rewrites numbers and refuses the escape \u0000. The shown inputs must be the inputs that run,
-- byte for byte. SQLite gets no line that ends with `-- Postgres only`, and Postgres none that ends with `-- SQLite only`.
-- On Postgres the tables of a hold round have no foreign keys, and their CHECKs are triggers, see round_tables.rs.

CREATE TABLE threads (
    thread_id   TEXT NOT NULL PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL REFERENCES threads (thread_id),
    parent_id   TEXT REFERENCES threads (thread_id),
    client_id   TEXT,
    title       TEXT NOT NULL,
    policy      TEXT,
    -- Number of messages, and bytes of texts, arguments and results: the store adds what each transaction adds.
    messages    BIGINT NOT NULL DEFAULT 0,
    bytes       BIGINT NOT NULL DEFAULT 0,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    deleted_at  BIGINT,
    -- When the payloads of the whole thread were erased.
    erased_at   BIGINT,
    UNIQUE (thread_id, tenant_id), -- SQLite only
    CHECK (client_id IS NULL OR length(client_id) BETWEEN 1 AND 64),
    CHECK ((parent_id IS NULL) = (session_id = thread_id)),
    -- A session has one policy, which the root thread stores.
    CHECK (policy IS NULL OR parent_id IS NULL),
    CHECK (messages >= 0 AND bytes >= 0),
    CHECK (erased_at IS NULL OR deleted_at IS NOT NULL)
);

CREATE UNIQUE INDEX threads_client_id ON threads (tenant_id, user_id, client_id)
    WHERE client_id IS NOT NULL AND deleted_at IS NULL;

-- For lists of threads, whose statements repeat the condition, which is always true. A statement that looks one
-- thread up does not. Without statistics Postgres would take this index for it, and read all threads of the user.
-- Deleted threads are in no list.
CREATE INDEX threads_owner ON threads (tenant_id, user_id, thread_id) WHERE created_at > 0 AND deleted_at IS NULL;

-- For the list of all sessions of a tenant, by the same rules.
CREATE INDEX threads_root ON threads (tenant_id, thread_id)
    WHERE parent_id IS NULL AND created_at > 0 AND deleted_at IS NULL;

CREATE INDEX threads_session ON threads (session_id);

CREATE INDEX threads_to_erase ON threads (thread_id) WHERE deleted_at IS NOT NULL AND erased_at IS NULL;

CREATE TABLE messages (
    message_id  TEXT NOT NULL PRIMARY KEY,
    thread_id   TEXT NOT NULL REFERENCES threads (thread_id),
    run_id      TEXT NOT NULL,
    ordinal     BIGINT NOT NULL,
    role        TEXT NOT NULL,
    client_id   TEXT,
    content     TEXT,
    created_at  BIGINT NOT NULL,
    -- When an edit or another answer replaced the message. Apart from that, the status of an answer follows its run.
    superseded_at BIGINT,
    erased_at   BIGINT,
    UNIQUE (thread_id, ordinal),
    CHECK (role IN ('user', 'assistant')),
    CHECK ((role = 'user') = (content IS NOT NULL))
);

-- A retry of a message finds the stored message, unless that message is superseded.
CREATE UNIQUE INDEX messages_client_id ON messages (thread_id, client_id)
    WHERE client_id IS NOT NULL AND superseded_at IS NULL;

CREATE TABLE message_steps (
    message_id     TEXT NOT NULL REFERENCES messages (message_id),
    n              INTEGER NOT NULL,
    status         TEXT NOT NULL,
    parts          TEXT NOT NULL,
    finish_reason  TEXT,
    input_tokens   BIGINT,
    output_tokens  BIGINT,
    origin         TEXT,
    provider_state TEXT,
    -- The window of the request: of how many of the oldest turns the model got nothing, and of how many the results
    -- shortened. And the tokens of a longer request that the server refused before this one.
    turns_left_out  INTEGER NOT NULL DEFAULT 0,
    turns_shortened INTEGER NOT NULL DEFAULT 0,
    refused_tokens  BIGINT,
    created_at     BIGINT NOT NULL,
    finished_at    BIGINT,
    erased_at      BIGINT,
    PRIMARY KEY (message_id, n),
    CHECK (n >= 0),
    CHECK (turns_left_out >= 0 AND turns_shortened >= 0 AND (refused_tokens IS NULL OR refused_tokens > 0)),
    CHECK (status IN ('streaming', 'complete', 'interrupted')),
    CHECK ((status = 'streaming') = (finished_at IS NULL))
);

CREATE TABLE runs (
    run_id               TEXT NOT NULL PRIMARY KEY,
    thread_id            TEXT NOT NULL REFERENCES threads (thread_id),
    user_message_id      TEXT NOT NULL REFERENCES messages (message_id),
    assistant_message_id TEXT NOT NULL UNIQUE REFERENCES messages (message_id),
    status               TEXT NOT NULL,
    model                TEXT,
    tools                TEXT,
    -- The instructions for the model, if they differ from those of the server.
    instructions         TEXT,
    roles                TEXT NOT NULL,
    owner                TEXT,
    lease_until          BIGINT,
    cancel_requested_at  BIGINT,
    -- Whether the run was cancelled in a turn or after a failed one, so that its answer is not whole.
    cut_short            BOOLEAN NOT NULL DEFAULT FALSE,
    server_resumes       BOOLEAN NOT NULL,
    -- Whether an expiry has had the server resume the run, and no person has acted since.
    resumed_alone        BOOLEAN NOT NULL DEFAULT FALSE,
    error_code           TEXT,
    error_message        TEXT,
    created_at           BIGINT NOT NULL,
    finished_at          BIGINT,
    CHECK (status IN ('running', 'waiting', 'completed', 'failed', 'cancelled')),
    CHECK ((status = 'running') = (owner IS NOT NULL)),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK (NOT cut_short OR status = 'cancelled'),
    CHECK ((status = 'failed') = (error_code IS NOT NULL)),
    CHECK ((error_code IS NULL) = (error_message IS NULL)),
    CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL))
);

-- Also for the runs whose lease is over: an index of the leases would be written with each renewal.
CREATE UNIQUE INDEX runs_one_running ON runs (thread_id) WHERE status = 'running';

CREATE INDEX runs_thread ON runs (thread_id, run_id);

CREATE INDEX runs_resumed ON runs (run_id) WHERE server_resumes AND status IN ('waiting', 'failed');

CREATE TABLE tool_calls (
    tool_call_id        TEXT NOT NULL PRIMARY KEY,
    thread_id           TEXT NOT NULL,
    -- The tenant of the thread, copied so that lists of the calls of a tenant use an index.
    tenant_id           TEXT NOT NULL,
    message_id          TEXT NOT NULL,
    step                INTEGER NOT NULL,
    ordinal             INTEGER NOT NULL,
    run_id              TEXT NOT NULL REFERENCES runs (run_id),
    provider_call_id    TEXT NOT NULL,
    wire_call_id        TEXT NOT NULL,
    name                TEXT NOT NULL,
    arguments           TEXT NOT NULL,
    -- The arguments as the model wrote them, if tools.repair changed them (JSON).
    model_arguments     TEXT,
    -- The places of the secrets in the inputs, by the schema of the tool when the model made the call (JSON): lists of
    -- keys, with null for each property or item. NULL without secrets.
    secret_paths        TEXT,
    schema_hash         TEXT NOT NULL,
    held                BOOLEAN NOT NULL,
    -- The user of the thread of a held call, copied so that lists of held calls use an index. NULL for another call, and
    -- after the deletion of the thread.
    listed_for          TEXT,
    idempotent          BOOLEAN NOT NULL,
    risk_level          TEXT NOT NULL,
    reason              TEXT,
    -- What the tool said that the call would do, or why it said nothing.
    preview             TEXT,
    preview_failed      BOOLEAN,
    state               TEXT NOT NULL,
    validated           BOOLEAN,
    validated_inputs    TEXT,
    -- The preview of validated_inputs that the decider was shown.
    validated_preview   TEXT,
    validated_preview_failed BOOLEAN,
    decided_by          TEXT,
    decided_at          BIGINT,
    expires_at          BIGINT,
    -- When people are reminded of the deadline; NULL if they were, or are not to be.
    remind_at           BIGINT,
    -- When the roles escalate_to (JSON) may decide too, as it was when the call was held.
    escalate_at         BIGINT,
    escalate_to         TEXT,
    escalated_at        BIGINT,
    start_deadline      BIGINT,
    exec_id             TEXT,
    exec_owner          TEXT,
    exec_attempt        INTEGER NOT NULL,
    lease_until         BIGINT,
    started_at          BIGINT,
    -- The run of the child thread that executes the call. The child run ends the call, and no lease does.
    child_run_id        TEXT REFERENCES runs (run_id),
    -- Whether a worker executes the call, outside of the servers.
    by_worker           BOOLEAN NOT NULL DEFAULT FALSE,
    -- The SHA-256 hash of the token with which a worker proves that it holds the execution exec_id.
    permit_hash         TEXT,
    -- Set if the call has or had an owner: a service that accepted the call and reports its outcome before this time.
    result_deadline     BIGINT,
    -- Set if the owner is the work of an MCP server: the name of the server, and the id of a task or, as JSON, a round of
    -- answers with which the call is sent again. A call without both was sent again, and has no answer yet. The processes
    -- of holdpoint poll the work, one at a time: polled_by, until polled_until.
    mcp_server          TEXT,
    task_id             TEXT,
    input_round         TEXT,
    polled_by           TEXT,
    polled_until        BIGINT,
    -- The last stored report of progress of the last execution (JSON).
    progress            TEXT,
    cancel_requested_at BIGINT,
    output              TEXT,
    result              TEXT,
    created_at          BIGINT NOT NULL,
    finished_at         BIGINT,
    erased_at           BIGINT,
    -- Since when a process has something to do with the call, or from when on: the first deadline of a pending call, the
    -- decision of an approved call that no worker executes, the end of a lease, the end of an execution in doubt. The
    -- sweeper looks for the moment, and then at the columns with the deadlines. NULL if nothing is ever to be done.
    due_at              BIGINT GENERATED ALWAYS AS (CASE state
        WHEN 'pending' THEN CASE
            WHEN remind_at < expires_at AND (escalated_at IS NOT NULL OR escalate_at IS NULL OR remind_at <= escalate_at)
                THEN remind_at
            WHEN escalated_at IS NULL AND escalate_at < expires_at THEN escalate_at
            ELSE expires_at END
        WHEN 'approved' THEN CASE WHEN by_worker THEN start_deadline ELSE decided_at END
        WHEN 'executing' THEN CASE WHEN polled_until < result_deadline THEN polled_until
            ELSE COALESCE(lease_until, result_deadline) END
        WHEN 'interrupted' THEN finished_at END) STORED,
    FOREIGN KEY (thread_id, tenant_id) REFERENCES threads (thread_id, tenant_id),
    FOREIGN KEY (message_id, step) REFERENCES message_steps (message_id, n),
    -- The calls of a message are those of its run: the index of lookups by either.
    UNIQUE (message_id, step, ordinal),
    CHECK (length(wire_call_id) > 0),
    CHECK (risk_level IN ('low', 'medium', 'high')),
    CHECK (state IN ('pending', 'approved', 'executing', 'succeeded', 'failed', 'interrupted',
                     'rejected', 'expired', 'cancelled', 'invalid')),
    CHECK ((validated IS NULL) = (state = 'pending')),
    CHECK (validated IS NOT TRUE OR state IN ('approved', 'executing', 'succeeded', 'failed',
                                              'interrupted', 'cancelled')),
    CHECK (validated IS NOT FALSE OR state IN ('rejected', 'expired', 'cancelled', 'invalid')),
    CHECK ((validated IS NULL) = (decided_by IS NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    -- A held call runs only after the approval of a person or a handler, never of the system.
    CHECK (NOT held OR validated IS NOT TRUE OR decided_by NOT LIKE 'system:%'),
    -- A duplicate is never held. A call that is not held is cancelled only as a duplicate, or while it waits for
    -- a worker.
    CHECK (decided_by <> 'system:duplicate' OR (state = 'cancelled' AND NOT held AND NOT validated)),
    CHECK (state <> 'cancelled' OR held OR decided_by = 'system:duplicate' OR (by_worker AND validated)),
    -- The repeat of a call that a person rejected is never held.
    CHECK (decided_by <> 'system:rejected' OR (state = 'rejected' AND NOT held AND NOT validated)),
    CHECK (state NOT IN ('pending', 'expired') OR (held AND expires_at IS NOT NULL)),
    CHECK (remind_at IS NULL OR held),
    CHECK ((escalate_at IS NULL) = (escalate_to IS NULL)),
    CHECK (escalate_at IS NULL OR held),
    CHECK (escalated_at IS NULL OR escalate_at <= escalated_at),
    CHECK (state <> 'approved' OR start_deadline IS NOT NULL),
    CHECK (validated_inputs IS NULL OR validated IS TRUE),
    CHECK ((preview IS NULL) = (preview_failed IS NULL)),
    CHECK (preview IS NULL OR held),
    CHECK ((validated_preview IS NULL) = (validated_preview_failed IS NULL)),
    CHECK (validated_preview IS NULL OR validated_inputs IS NOT NULL),
    -- A decision that saw a preview of the proposed inputs needs a preview of edited inputs too.
    CHECK (preview IS NULL OR validated_inputs IS NULL OR validated_preview IS NOT NULL),
    CHECK ((exec_id IS NULL) = (exec_attempt = 0)),
    CHECK ((exec_id IS NULL) = (started_at IS NULL)),
    CHECK ((exec_id IS NULL) = (exec_owner IS NULL)),
    CHECK (state NOT IN ('executing', 'succeeded', 'interrupted') OR exec_id IS NOT NULL),
    CHECK (state NOT IN ('pending', 'rejected', 'expired', 'cancelled', 'invalid') OR exec_id IS NULL),
    CHECK (child_run_id IS NULL OR state IN ('executing', 'succeeded', 'failed', 'interrupted')),
    CHECK (child_run_id IS NULL OR NOT by_worker),
    -- Each execution of a worker has a token, and no other execution has one.
    CHECK ((permit_hash IS NOT NULL) = (by_worker AND exec_id IS NOT NULL)),
    CHECK (permit_hash IS NULL OR length(permit_hash) = 64),
    CHECK (result_deadline IS NULL OR state IN ('executing', 'succeeded', 'failed', 'interrupted')),
    CHECK (result_deadline IS NULL OR NOT by_worker),
    -- An executing call has exactly one of a lease, a child run and an owner.
    CHECK (child_run_id IS NULL OR result_deadline IS NULL),
    CHECK (lease_until IS NULL OR (state = 'executing' AND child_run_id IS NULL AND result_deadline IS NULL)),
    CHECK (state <> 'executing' OR lease_until IS NOT NULL OR child_run_id IS NOT NULL
           OR result_deadline IS NOT NULL),
    CHECK (mcp_server IS NULL OR result_deadline IS NOT NULL),
    CHECK (task_id IS NULL OR (mcp_server IS NOT NULL AND length(task_id) BETWEEN 1 AND 1024)),
    CHECK (input_round IS NULL OR (mcp_server IS NOT NULL AND task_id IS NULL AND state = 'executing'
                                   AND length(input_round) <= 524288)),
    CHECK ((polled_until IS NOT NULL) = (state = 'executing' AND mcp_server IS NOT NULL)),
    CHECK ((polled_until IS NULL) = (polled_by IS NULL)),
    CHECK (progress IS NULL OR (exec_id IS NOT NULL AND length(progress) <= 8192)),
    CHECK (exec_attempt BETWEEN 0 AND 3 AND (idempotent OR exec_attempt <= 1)),
    CHECK ((state IN ('pending', 'approved', 'executing')) = (finished_at IS NULL)),
    -- A call has a text for the model if and only if the call has ended.
    CHECK ((finished_at IS NULL) = (result IS NULL)),
    CHECK ((state = 'succeeded') = (output IS NOT NULL))
);

-- With the state, so that lists of threads count pending calls without their rows.
CREATE UNIQUE INDEX tool_calls_thread ON tool_calls (thread_id, wire_call_id)
    INCLUDE (state) -- Postgres only
;

CREATE UNIQUE INDEX tool_calls_child ON tool_calls (child_run_id) WHERE child_run_id IS NOT NULL;

-- For the lists of held calls: all of a tenant, those of a tool, and those of a user.
CREATE INDEX tool_calls_inbox ON tool_calls (tenant_id, state, tool_call_id) WHERE listed_for IS NOT NULL;

CREATE INDEX tool_calls_tool ON tool_calls (tenant_id, state, name, tool_call_id) WHERE listed_for IS NOT NULL;

CREATE INDEX tool_calls_user ON tool_calls (tenant_id, state, listed_for, tool_call_id) WHERE listed_for IS NOT NULL;

-- For the work of a sweep.
CREATE INDEX tool_calls_due ON tool_calls (state, due_at, tool_call_id) WHERE due_at IS NOT NULL;

CREATE INDEX tool_calls_delegated ON tool_calls (tool_call_id) WHERE state = 'executing' AND child_run_id IS NOT NULL;

CREATE INDEX tool_calls_workers ON tool_calls (tenant_id, name, tool_call_id) WHERE by_worker AND state = 'approved';

CREATE TABLE decisions (
    decision_id  TEXT NOT NULL,
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    actor        TEXT NOT NULL,
    -- The approver as whose delegate the actor decides.
    on_behalf_of TEXT,
    verdict      TEXT NOT NULL,
    final        BOOLEAN NOT NULL,
    edited       BOOLEAN NOT NULL,
    input_hash   TEXT NOT NULL,
    reason       TEXT,
    remember     TEXT,
    surface      TEXT NOT NULL,
    source       TEXT,
    at           BIGINT NOT NULL,
    -- With a quorum, each approval is a row. The approval that completes the quorum is the final row.
    PRIMARY KEY (tool_call_id, decision_id),
    CHECK (final OR verdict = 'approve'),
    CHECK (verdict IN ('approve', 'reject', 'expire', 'cancel')),
    CHECK (remember IS NULL OR (remember = 'session' AND verdict = 'approve' AND final)),
    CHECK (NOT edited OR verdict = 'approve'),
    -- A person decides on behalf of another person, about one call only.
    CHECK (on_behalf_of IS NULL OR (on_behalf_of LIKE 'user:%' AND actor LIKE 'user:%' AND on_behalf_of <> actor
                                    AND verdict IN ('approve', 'reject') AND remember IS NULL)),
    CHECK (surface IN ('rest', 'stream', 'websocket', 'webhook', 'terminal', 'slack', 'handler', 'policy', 'sweeper'))
);

CREATE UNIQUE INDEX decisions_final ON decisions (tool_call_id) WHERE final;

-- Each person votes once for the same inputs, and so does each approver, in person or by a delegate.
CREATE UNIQUE INDEX decisions_voice ON decisions (tool_call_id, actor, input_hash) WHERE NOT final;

CREATE UNIQUE INDEX decisions_represented ON decisions (tool_call_id, COALESCE(on_behalf_of, actor), input_hash)
    WHERE NOT final;

-- Delegations: for one call, a person decides in place of an approver. Users without the prefix of actors.
CREATE TABLE delegations (
    delegation_id TEXT NOT NULL PRIMARY KEY,
    tool_call_id  TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    -- The tenant of the thread, copied so that lists of the delegated calls of a user use an index.
    tenant_id     TEXT NOT NULL,
    delegator     TEXT NOT NULL,
    delegate      TEXT NOT NULL,
    -- The roles of the delegator at that time.
    roles         TEXT NOT NULL,
    reason        TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    until         BIGINT NOT NULL,
    -- When another delegation of the same approver replaced this one.
    replaced_at   BIGINT,
    CHECK (delegator <> delegate),
    CHECK (length(reason) BETWEEN 1 AND 2000),
    CHECK (until > created_at),
    CHECK (replaced_at IS NULL OR replaced_at >= created_at)
);

CREATE UNIQUE INDEX delegations_standing ON delegations (tool_call_id, delegator) WHERE replaced_at IS NULL;

-- For the calls that are delegated to a user now.
CREATE INDEX delegations_delegate ON delegations (tenant_id, delegate, until) WHERE replaced_at IS NULL;

-- The roles to which calls are escalated: escalate_to of the call, one row for each role, so that lists use an index.
CREATE TABLE escalations (
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    tenant_id    TEXT NOT NULL,
    role         TEXT NOT NULL,
    -- The state of the call. A trigger copies it.
    state        TEXT NOT NULL,
    PRIMARY KEY (tool_call_id, role)
);

CREATE INDEX escalations_role ON escalations (tenant_id, state, role, tool_call_id);

CREATE INDEX escalations_any ON escalations (tenant_id, role);

-- Requests of executing calls to people. A request ends with its call at the latest.
CREATE TABLE tool_requests (
    request_id    TEXT NOT NULL PRIMARY KEY,
    tool_call_id  TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    -- The tenant and the user of the thread, and the tool of a held call, copied so that lists of requests use an index.
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    held_tool     TEXT,
    exec_id       TEXT NOT NULL,
    -- The name of the request at an MCP server that states its open requests again and again.
    server_key    TEXT,
    kind          TEXT NOT NULL,
    message       TEXT NOT NULL,
    -- The JSON Schema of the content of an answer.
    answer_schema TEXT NOT NULL,
    state         TEXT NOT NULL,
    -- What a person entered. NULL again after the end of the call.
    content       TEXT,
    content_hash  TEXT,
    answered_by   TEXT,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    -- Set with answered_by: a person or a handler answered.
    answered_at   BIGINT,
    erased_at     BIGINT,
    CHECK (kind IN ('elicitation', 'custom')),
    CHECK (server_key IS NULL OR length(server_key) <= 1024),
    CHECK (state IN ('open', 'accepted', 'declined', 'cancelled', 'expired', 'withdrawn')),
    CHECK ((state IN ('accepted', 'declined', 'cancelled')) = (answered_by IS NOT NULL)),
    CHECK ((answered_by IS NULL) = (answered_at IS NULL)),
    CHECK ((state = 'accepted') = (content_hash IS NOT NULL)),
    CHECK (content IS NULL OR state = 'accepted'),
    CHECK (content_hash IS NULL OR length(content_hash) = 64),
    CHECK (answered_by NOT LIKE 'system:%'),
    CHECK (erased_at IS NULL OR (state <> 'open' AND content IS NULL AND message = '' AND server_key IS NULL))
);

CREATE INDEX tool_requests_call ON tool_requests (tool_call_id);

CREATE UNIQUE INDEX tool_requests_key ON tool_requests (tool_call_id, exec_id, server_key)
    WHERE server_key IS NOT NULL;

CREATE INDEX tool_requests_inbox ON tool_requests (tenant_id, state, request_id);

CREATE INDEX tool_requests_user ON tool_requests (tenant_id, state, user_id, request_id);

CREATE INDEX tool_requests_tool ON tool_requests (tenant_id, state, held_tool, request_id) WHERE held_tool IS NOT NULL;

-- What people propose as the answer to an open request whose call needs several people. Each person has one proposal.
CREATE TABLE tool_request_votes (
    request_id   TEXT NOT NULL REFERENCES tool_requests (request_id),
    actor        TEXT NOT NULL,
    -- NULL after the end of the request.
    content      TEXT,
    content_hash TEXT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (request_id, actor),
    CHECK (length(content_hash) = 64),
    CHECK (actor NOT LIKE 'system:%')
);

CREATE TABLE sent_answers (
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    n            INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    text         TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    step         INTEGER NOT NULL,
    at           BIGINT NOT NULL,
    erased_at    BIGINT,
    PRIMARY KEY (tool_call_id, n),
    FOREIGN KEY (message_id, step) REFERENCES message_steps (message_id, n),
    CHECK (kind IN ('answer', 'placeholder', 'note')),
    CHECK (n >= 0 AND (n = 0 OR kind = 'note')),
    CHECK ((length(text) > 0) = (erased_at IS NULL))
);

CREATE INDEX sent_answers_step ON sent_answers (message_id, step);

CREATE TABLE events (
    -- The order in which the events of a thread were written. The clocks of two processes do not give this order.
    place        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- Postgres only
    place        INTEGER PRIMARY KEY, -- SQLite only
    event_id     TEXT NOT NULL,
    seq          BIGINT,
    type         TEXT NOT NULL,
    at           BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    -- Copies of the tenant and the user of the thread, and the tool of a held call, so that reads of visible
    -- events use an index. The rows of the thread and of the call determine the visibility.
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    held_tool    TEXT,
    session_id   TEXT NOT NULL,
    thread_id    TEXT NOT NULL,
    run_id       TEXT,
    tool_call_id TEXT,
    data         TEXT NOT NULL,
    CHECK (held_tool IS NULL OR tool_call_id IS NOT NULL)
);

-- A number is given once. On Postgres each event is written twice, without its number and with it. The indexes leave out
-- events without a number where they can, so an event enters them once.
CREATE UNIQUE INDEX events_seq ON events (seq) WHERE seq IS NOT NULL;

-- One index for each kind of reader, in the order of the numbers. The events of a call are among those of its run, those
-- of a thread among those of its session.
CREATE INDEX events_run ON events (run_id, seq);

CREATE INDEX events_session ON events (session_id, seq) WHERE seq IS NOT NULL;

CREATE INDEX events_tenant ON events (tenant_id, seq) WHERE seq IS NOT NULL;

CREATE INDEX events_user ON events (tenant_id, user_id, seq) WHERE seq IS NOT NULL;

CREATE INDEX events_held ON events (tenant_id, held_tool, seq) WHERE seq IS NOT NULL AND held_tool IS NOT NULL;

-- The decisions about the calls of a tool that a user's threads held. The statement repeats the condition on the type.
CREATE INDEX events_decided ON events (tenant_id, held_tool, user_id, at)
    WHERE held_tool IS NOT NULL AND type IN ('tool.approved', 'tool.rejected');

-- The highest seq of all events. The transaction that numbers events locks this row, so a reader that has
-- seen a number never finds a lower number later.
CREATE TABLE event_sequence (
    id   INTEGER NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL,
    CHECK (id = 1),
    CHECK (last >= 0)
);

INSERT INTO event_sequence (id, last) VALUES (1, 0);

-- The key that signs tickets, the same for all servers: 256 random bits in hexadecimal.
CREATE TABLE ticket_keys (
    id          INTEGER NOT NULL PRIMARY KEY,
    signing_key TEXT NOT NULL,
    CHECK (id = 1),
    CHECK (length(signing_key) = 64)
);

-- Used tickets. A row outlives the time in which its ticket is valid.
CREATE TABLE used_tickets (
    ticket_id  TEXT NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL,
    CHECK (length(ticket_id) = 36)
);

CREATE INDEX used_tickets_over ON used_tickets (expires_at);

-- The links in messages to one person, each to the card of one call. A link gives no right. Only the hash of its token
-- is stored. A decision uses a link once, before its end. The sweeper deletes links after their end.
CREATE TABLE links (
    token_hash   TEXT NOT NULL PRIMARY KEY,
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    input_hash   TEXT NOT NULL,
    expires_at   BIGINT NOT NULL,
    used_at      BIGINT,
    CHECK (length(token_hash) = 64),
    CHECK (user_id <> ''),
    CHECK (used_at < expires_at)
);

CREATE INDEX links_over ON links (expires_at);

-- The sign-ins of people at the console that the server keeps. A row exists as long as its sign-in, whose end deletes it.
CREATE TABLE sign_ins (
    sign_in_id  TEXT NOT NULL PRIMARY KEY,
    -- The hash of the secret in the cookie of the browser.
    secret_hash TEXT NOT NULL UNIQUE,
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    -- The roles of the last access token, and when servers stop accepting it.
    roles       TEXT NOT NULL,
    known_until BIGINT NOT NULL,
    -- What the issuer gave with it, encrypted with `auth.session_key`.
    tokens      TEXT NOT NULL,
    -- What the browser calls itself.
    browser     TEXT NOT NULL,
    begun_at    BIGINT NOT NULL,
    ends_at     BIGINT NOT NULL,
    -- The attempt that asks the issuer for new tokens, if one does, and until when no other one begins.
    asked_by    TEXT,
    rests_until BIGINT,
    CHECK (length(secret_hash) = 64),
    CHECK (user_id <> ''),
    CHECK (length(browser) <= 200),
    CHECK (begun_at < ends_at),
    CHECK (asked_by IS NULL OR rests_until IS NOT NULL)
);

CREATE INDEX sign_ins_user ON sign_ins (tenant_id, user_id, begun_at);

CREATE INDEX sign_ins_over ON sign_ins (ends_at);

CREATE TABLE grants (
    grant_id     TEXT NOT NULL PRIMARY KEY,
    tenant_id    TEXT NOT NULL,
    session_id   TEXT NOT NULL REFERENCES threads (thread_id),
    tool_name    TEXT NOT NULL,
    schema_hash  TEXT NOT NULL,
    -- If set, the grant covers only calls with these inputs.
    input_hash   TEXT,
    -- If set, the grant covers only calls with inputs within these bounds. A purge leaves an empty text.
    input_bounds TEXT,
    -- If set, the grant covers no call from this time on.
    until        BIGINT,
    -- If set, how many later calls the grant covers, and how many of them are left.
    uses         INTEGER,
    uses_left    INTEGER,
    -- If set, the grant holds only in this process, and ends with the process.
    process_id   TEXT,
    granted_by   TEXT NOT NULL,
    roles        TEXT NOT NULL,
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT,
    revoked_by   TEXT,
    CHECK (granted_by NOT LIKE 'system:%'),
    CHECK (input_hash IS NULL OR input_bounds IS NULL),
    CHECK (until > created_at),
    CHECK ((uses IS NULL) = (uses_left IS NULL)),
    CHECK (uses_left BETWEEN 0 AND uses),
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);

CREATE UNIQUE INDEX grants_standing
    ON grants (session_id, tool_name, schema_hash, granted_by, COALESCE(input_hash, ''), COALESCE(input_bounds, ''),
               COALESCE(process_id, ''))
    WHERE revoked_at IS NULL;

-- What each MCP server says about its tools now. A row goes with its tool.
CREATE TABLE listed_definitions (
    -- The name of the tool in holdpoint, which begins with the name of the server.
    tool_name  TEXT NOT NULL PRIMARY KEY,
    server     TEXT NOT NULL,
    hash       TEXT NOT NULL,
    definition TEXT NOT NULL,
    listed_at  BIGINT NOT NULL,
    CHECK (length(hash) = 64)
);

CREATE INDEX listed_definitions_server ON listed_definitions (server);

-- The accepted definitions. Rows are never deleted. Of the rows of a tool, the one with the highest n is in force.
CREATE TABLE accepted_definitions (
    tool_name   TEXT NOT NULL,
    n           INTEGER NOT NULL,
    server      TEXT NOT NULL,
    hash        TEXT NOT NULL,
    definition  TEXT NOT NULL,
    accepted_by TEXT NOT NULL,
    accepted_at BIGINT NOT NULL,
    PRIMARY KEY (tool_name, n),
    CHECK (n >= 1),
    CHECK (length(hash) = 64),
    -- Only the first listing of a server is accepted without a person.
    CHECK (accepted_by NOT LIKE 'system:%' OR (accepted_by = 'system:first_listing' AND n = 1))
);

CREATE INDEX accepted_definitions_server ON accepted_definitions (server);

-- The endpoints of events, as the configuration names them, and how far the delivery to each went. The numbered events
-- are the queue.
CREATE TABLE endpoints (
    name            TEXT NOT NULL PRIMARY KEY,
    tenant_id       TEXT NOT NULL,
    channel         TEXT NOT NULL,
    -- Each event of the tenant up to this number is delivered, or is of no type that the endpoint gets.
    cursor          BIGINT NOT NULL,
    state           TEXT NOT NULL,
    -- The failed attempts since the last success.
    failures        INTEGER NOT NULL,
    failing_since   BIGINT,
    last_failure    TEXT,
    next_attempt_at BIGINT,
    disabled_at     BIGINT,
    disabled_reason TEXT,
    -- The messages that a mail server or Slack refused for good. The delivery went on after each.
    refused         INTEGER NOT NULL,
    refused_at      BIGINT,
    refused_status  INTEGER,
    -- The one process that delivers, until the lease ends.
    holder          TEXT,
    lease_until     BIGINT,
    CHECK (cursor >= 0),
    CHECK (state IN ('delivering', 'failing', 'disabled')),
    CHECK ((state = 'delivering') = (failures = 0)),
    CHECK (failures >= 0),
    CHECK ((failures = 0) = (failing_since IS NULL)),
    CHECK ((failures = 0) = (last_failure IS NULL)),
    CHECK ((state = 'failing') = (next_attempt_at IS NOT NULL)),
    CHECK ((state = 'disabled') = (disabled_at IS NOT NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    CHECK (disabled_reason IN ('gone', 'failed_too_long')),
    CHECK (channel IN ('webhook', 'mail', 'template', 'slack', 'ntfy')),
    CHECK (channel NOT IN ('mail', 'slack') OR disabled_reason <> 'gone'),
    CHECK (channel IN ('mail', 'slack') OR refused = 0),
    CHECK (refused >= 0),
    CHECK ((refused = 0) = (refused_at IS NULL)),
    CHECK ((refused_at IS NULL) = (refused_status IS NULL)),
    CHECK ((holder IS NULL) = (lease_until IS NULL)),
    CHECK (state <> 'disabled' OR holder IS NULL)
);

-- The message in Slack that each endpoint has about a call. Later messages about the call change it.
CREATE TABLE slack_messages (
    endpoint     TEXT NOT NULL REFERENCES endpoints (name),
    tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
    -- The conversation, and the id of the message in it.
    channel      TEXT NOT NULL,
    ts           TEXT NOT NULL,
    PRIMARY KEY (endpoint, tool_call_id),
    CHECK (length(channel) BETWEEN 1 AND 64),
    CHECK (length(ts) BETWEEN 1 AND 64)
);
