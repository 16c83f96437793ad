//! The database refuses invalid states, whichever client writes them.

use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, JsonFields, call, postgres};
use serde_json::{Value, json};
use std::time::Duration;

/// The ids of real calls, one in each state in which a row can be attacked.
struct Calls {
    pending: String,
    rejected: String,
    executing: String,
    succeeded: String,
    /// An idempotent call that is executing.
    repeatable: String,
    /// Another idempotent call, whose first execution was reaped.
    cut_off: String,
    /// A call that is approved although no decision approves it.
    undecided: String,
    /// A call that the policy let run.
    ungated: String,
    /// A thread with two waiting runs.
    waiting_thread: String,
    completed_run: String,
}

/// Approves once. A second approval would look again for a call to begin, possibly while the row is changed.
async fn approve_until(app: &Embedded, id: &str, state: &str) {
    assert!([200, 202].contains(&app.client.approve(id).await.status));
    app.client.becomes(id, state).await;
}

impl Calls {
    async fn make(app: &Embedded) -> Self {
        let (_, pending) = app.held("pay", "1").await;
        let (_, rejected) = app.held("pay", "2").await;
        app.client.reject(&rejected).await;
        let (thread, succeeded) = app.held("pay", "3").await;
        let remembered = json!({ "toolCallId": succeeded, "isValidated": true, "remember": "session" });
        assert!([200, 202].contains(&app.client.validate(&remembered).await.status));
        app.client.becomes(&succeeded, "succeeded").await;
        app.scene.answers("Paid.");
        let reported = app.client.resume(&thread).await;
        assert_eq!(reported.text(), "Paid.", "so there is a sent answer, and a run at its end");
        let (_, executing) = app.held("wait_for_me", "4").await;
        approve_until(app, &executing, "executing").await;
        let (_, repeatable) = app.held("restock", "8").await;
        approve_until(app, &repeatable, "executing").await;
        let (_, cut_off) = app.held("restock", "9").await;
        approve_until(app, &cut_off, "executing").await;
        let lost = format!(
            "UPDATE tool_calls SET state = 'approved', lease_until = NULL WHERE tool_call_id = '{cut_off}'"
        );
        assert_eq!(app.rows.change(&lost).await, Ok(1));
        let (_, undecided) = app.held("pay", "10").await;
        let approved = format!(
            "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:x', decided_at = 1,
                 start_deadline = expires_at WHERE tool_call_id = '{undecided}'"
        );
        assert_eq!(app.rows.change(&approved).await, Ok(1));
        let waiting_thread = app.client.thread().await;
        app.hold_in(&waiting_thread, "pay", "5").await;
        app.hold_in(&waiting_thread, "pay", "6").await;
        app.scene.calls(&[call("look", "look", &json!({ "note": "7" }))]).answers("Seen.");
        let looked = app.client.send_message(&app.client.thread().await, "look").await;
        let ungated = looked.one('9').text("toolCallId").to_owned();
        let completed_run = reported.headers["x-run-id"].to_str().unwrap().to_owned();
        Self {
            pending,
            rejected,
            executing,
            succeeded,
            repeatable,
            cut_off,
            undecided,
            ungated,
            waiting_thread,
            completed_run,
        }
    }

    /// Statements that must be refused, each with the expected text on SQLite and on Postgres.
    fn refused(&self) -> Vec<(String, &'static str, &'static str)> {
        let Self { pending, rejected, executing, succeeded, ungated, waiting_thread, completed_run, .. } =
            self;
        let Self { repeatable, cut_off, undecided, .. } = self;
        let call = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
        // A copy of a call under other ids, with some columns changed.
        let copy = |id: &str, state: &str, execution: &str| {
            format!(
                "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
                     wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, expires_at, created_at,
                     listed_for, validated, decided_by, decided_at, finished_at, result,
                     state, exec_id, exec_owner, started_at, exec_attempt)
                 SELECT 'copy', thread_id, tenant_id, message_id, step, 99, run_id, provider_call_id,
                     'copy', name, arguments, schema_hash, held, idempotent, risk_level, expires_at, created_at,
                     listed_for, validated, decided_by, decided_at, finished_at, result,
                     '{state}', {execution}
                 FROM tool_calls WHERE tool_call_id = '{id}'"
            )
        };
        let no_execution = "NULL, NULL, NULL, 0";
        let of_policy =
            "validated, decided_by, decided_at, finished_at, result,\n                     'rejected'";
        let repeated = "FALSE, 'system:rejected', 1, 1, 'x', 'rejected'";
        let an_execution = "'x', 'x', 1, 1";
        let vote = |id: &str, actor: &str, verdict: &str, is_final: &str| {
            format!(
                "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)
                 VALUES ('x', '{id}', '{actor}', '{verdict}', {is_final}, FALSE, 'x', 'rest', 1)"
            )
        };
        // The assignments of a call that begins with its approval.
        let begins = "state = 'executing', validated = TRUE, decided_by = 'user:x', decided_at = 1, start_deadline = 1,
            exec_id = 'x', exec_owner = 'x', exec_attempt = 1, started_at = 1, lease_until = 1";
        // The same with a decision, in one statement. SQLite has no such statement.
        let begins_with = |actor: &str, verdict: &str, is_final: &str| {
            let decision = vote(pending, actor, verdict, is_final).replace("VALUES (", "SELECT ");
            let decision = decision.strip_suffix(')').unwrap();
            format!("WITH begun AS ({} RETURNING 1) {decision} FROM begun", call(pending, begins))
        };
        let no_statement = "near \"UPDATE\": syntax error";
        let yes = "state = 'approved', validated = TRUE, decided_at = 1, start_deadline = 1, decided_by =";
        let no = "state = 'rejected', validated = FALSE, decided_at = 1, decided_by = 'user:x'";
        let same = |sql: String, words: &'static str| (sql, words, words);
        let fixed = "the content of a call does not change";
        let decided = "a decision is final";
        let moves = "illegal transition of a tool call";
        let on_decision = "a held call and a call of a worker begin on a decision";
        let once = "a call runs once, and again only if it is idempotent, at most three times";
        let outcome = "an outcome does not change";
        let erased = "only ended rows are erased, once";
        // The active grant with some columns changed.
        let granted = |call: &str, process: &str, by: &str, tool: &str| {
            format!(
                "INSERT INTO grants (grant_id, tenant_id, session_id, tool_name, schema_hash, granted_by, roles,
                     process_id, tool_call_id, created_at)
                 SELECT 'x', tenant_id, session_id, {tool}, schema_hash, {by}, roles, {process}, '{call}', 1 FROM grants"
            )
        };
        let vote_remembered = vote(pending, "user:x", "approve", "FALSE")
            .replace("surface, at)", "surface, at, remember)")
            .replace("'rest', 1)", "'rest', 1, 'session')");
        let forged = "a grant needs a remembered approval";
        let revoked = "a grant is used and revoked once, and nothing else of it changes";
        let vote_of = "a final decision has moved its call, and a vote has not";
        let born = "a tool call begins as pending, invalid, a repeat, or decided by the policy";
        vec![
            // Erasing clears settled calls and changes no call that can still run.
            (call(pending, "erased_at = 1, arguments = '{}'"), erased, erased),
            same(call(pending, "erased_at = 1"), erased),
            same(call(executing, "erased_at = 1"), erased),
            // A held call is not inserted as executing.
            same(copy(executing, "executing", "'x', 'x', 1, 1"), born),
            // A call is not inserted as cancelled, unless it repeats another.
            same(copy(rejected, "cancelled", no_execution), born),
            same(copy(ungated, "cancelled", no_execution), born),
            same(
                call(
                    pending,
                    "state = 'cancelled', validated = FALSE, decided_at = 1, decided_by = 'system:duplicate',
                     result = 'x', finished_at = 1",
                ),
                "decided_by <> 'system:duplicate' OR (state = 'cancelled' AND NOT held AND NOT validated)",
            ),
            // A call is not inserted as rejected, unless the policy forbids it or a person rejected one of the run.
            same(copy(rejected, "rejected", no_execution), born),
            same(copy(ungated, "rejected", no_execution).replace(of_policy, repeated), born),
            same(
                call(
                    pending,
                    "state = 'rejected', validated = FALSE, decided_at = 1, decided_by = 'system:rejected',
                     result = 'x', finished_at = 1",
                ),
                "decided_by <> 'system:rejected' OR (state = 'rejected' AND NOT held AND NOT validated)",
            ),
            // The content of a message is immutable.
            same(
                "UPDATE messages SET content = 'x' WHERE role = 'user'".to_owned(),
                "the content of a message does not change",
            ),
            same(
                "UPDATE messages SET erased_at = 1, content = 'x' WHERE role = 'user'".to_owned(),
                "the content of a message does not change",
            ),
            // A decision is immutable.
            same(call(succeeded, "validated = NULL"), decided),
            same(call(rejected, "validated = NULL"), decided),
            same(call(rejected, "validated = TRUE"), decided),
            same(call(succeeded, "decided_by = 'user:x'"), decided),
            same(call(succeeded, "decided_at = 1"), decided),
            same(call(executing, "validated_inputs = '{\"note\":\"x\"}'"), decided),
            same(call(executing, "validated_preview = 'x', validated_preview_failed = FALSE"), decided),
            same(
                call(pending, "validated_preview = 'x', validated_preview_failed = FALSE"),
                "validated_preview IS NULL OR validated_inputs IS NOT NULL",
            ),
            same(
                call(pending, "validated_preview_failed = FALSE"),
                "(validated_preview IS NULL) = (validated_preview_failed IS NULL)",
            ),
            same(
                call(pending, "validated = TRUE, decided_by = 'user:x', decided_at = 1"),
                "(validated IS NULL) = (state = 'pending')",
            ),
            same(
                call(pending, &format!("{yes} 'system:policy'")),
                "NOT held OR validated IS NOT TRUE OR decided_by NOT LIKE 'system:%'",
            ),
            same(call(pending, &format!("{yes} NULL")), "(validated IS NULL) = (decided_by IS NULL)"),
            // State transitions are one-way.
            same(call(rejected, "state = 'executing', lease_until = 1"), moves),
            same(call(succeeded, "state = 'executing', lease_until = 1"), moves),
            (
                call(pending, "state = 'executing', lease_until = 1"),
                moves,
                "a call begins with its approval only in the process that decides",
            ),
            // A pending call begins in the statement of its decision, which approves the call, and whose actor decides.
            (call(pending, begins), once, on_decision),
            (begins_with("user:x", "reject", "TRUE"), no_statement, on_decision),
            (begins_with("user:x", "approve", "FALSE"), no_statement, on_decision),
            (begins_with("user:y", "approve", "TRUE"), no_statement, vote_of),
            same(call(pending, &begins.replace("exec_attempt = 1", "exec_attempt = 2")), once),
            same(call(pending, &begins.replace("exec_id = 'x'", "exec_id = NULL")), once),
            (
                call(pending, &begins.replace("start_deadline = 1", "start_deadline = NULL")),
                once,
                "a call begins with its approval only in the process that decides",
            ),
            (
                call(pending, &begins.replace("validated = TRUE", "validated = FALSE")),
                once,
                "validated IS NOT FALSE OR state IN",
            ),
            (
                call(pending, &begins.replace("user:x", "system:policy")),
                once,
                "NOT held OR validated IS NOT TRUE OR decided_by NOT LIKE 'system:%'",
            ),
            (
                call(pending, &begins.replace("lease_until = 1", "lease_until = NULL")),
                once,
                "state <> 'executing' OR lease_until IS NOT NULL",
            ),
            (call(pending, &format!("{begins}, arguments = '{{}}'")), once, fixed),
            same(
                call(pending, &format!("{begins}, result_deadline = 1")),
                "a running call gets an owner once",
            ),
            same(
                call(pending, &format!("{begins}, progress = '{{}}'")),
                "progress is reported while the call executes",
            ),
            (
                call(pending, &format!("{begins}, expires_at = 1")),
                once,
                "the deadline of a decision changes only while the call is pending",
            ),
            (
                call(pending, &format!("{begins}, permit_hash = '{}'", "a".repeat(64))),
                once,
                "(permit_hash IS NOT NULL) = (by_worker AND exec_id IS NOT NULL)",
            ),
            same(call(pending, "state = 'succeeded'"), moves),
            same(
                call(executing, "state = 'cancelled', lease_until = NULL, result = 'x', finished_at = 1"),
                moves,
            ),
            same(
                copy(rejected, "invalid", an_execution),
                "state NOT IN ('pending', 'rejected', 'expired', 'cancelled', 'invalid')",
            ),
            same(copy(succeeded, "succeeded", an_execution), born),
            same(copy(pending, "approved", no_execution), born),
            // A call runs once.
            same(call(executing, "exec_attempt = 2"), once),
            same(call(executing, "exec_id = 'x'"), once),
            same(call(ungated, "exec_attempt = 2"), once),
            same(call(executing, "state = 'approved', lease_until = NULL, start_deadline = 1"), once),
            same(call(pending, "exec_id = 'x', exec_attempt = 1"), once),
            // Each attempt is counted and has its own execution id.
            same(call(cut_off, "state = 'executing', lease_until = 1"), once),
            same(call(cut_off, "state = 'executing', lease_until = 1, exec_id = 'x'"), once),
            same(call(cut_off, "state = 'executing', lease_until = 1, exec_attempt = 2"), once),
            same(
                call(cut_off, "state = 'executing', lease_until = 1, exec_id = 'x', exec_attempt = 3"),
                once,
            ),
            // A call with a cancel request is not retried.
            same(call(repeatable, "state = 'approved', lease_until = NULL, cancel_requested_at = 1"), once),
            // The inputs that were shown are the inputs that run.
            same(call(pending, "arguments = '{\"note\":\"all\"}'"), fixed),
            same(call(executing, "arguments = '{}'"), fixed),
            same(call(pending, "preview = 'x', preview_failed = FALSE"), fixed),
            same(call(pending, "name = 'look'"), fixed),
            same(call(pending, "tenant_id = 'x'"), fixed),
            same(call(pending, "held = FALSE"), fixed),
            same(call(pending, "schema_hash = 'x'"), fixed),
            same(call(pending, "idempotent = TRUE"), fixed),
            same(call(pending, "tool_call_id = 'x'"), fixed),
            // A settled call has a result, and the result is immutable.
            same(
                call(pending, &format!("{no}, finished_at = 1")),
                "(finished_at IS NULL) = (result IS NULL)",
            ),
            same(
                call(pending, no),
                "(state IN ('pending', 'approved', 'executing')) = (finished_at IS NULL)",
            ),
            same(call(succeeded, "result = 'x'"), outcome),
            same(call(succeeded, "output = '{}'"), outcome),
            // Progress.
            same(call(pending, "progress = '{}'"), "progress is reported while the call executes"),
            same(call(succeeded, "progress = '{}'"), "progress is reported while the call executes"),
            same(call(rejected, "finished_at = 1"), outcome),
            // Evidence is not deleted.
            (
                format!("DELETE FROM tool_calls WHERE tool_call_id = '{pending}'"),
                "tool calls are never deleted",
                "rows of tool_calls are never deleted",
            ),
            same("DELETE FROM decisions".to_owned(), "decisions are never deleted"),
            same("UPDATE decisions SET verdict = 'approve'".to_owned(), "decisions never change"),
            same("UPDATE decisions SET actor = 'user:x'".to_owned(), "decisions never change"),
            (
                "DELETE FROM sent_answers".to_owned(),
                "texts sent to the model are never deleted",
                "rows of sent_answers are never deleted",
            ),
            same("UPDATE sent_answers SET text = 'x'".to_owned(), "a text sent to the model does not change"),
            same(
                "UPDATE sent_answers SET text = '', erased_at = 1, kind = 'note'".to_owned(),
                "a text sent to the model does not change",
            ),
            same(
                "UPDATE sent_answers SET erased_at = 1".to_owned(),
                "(length(text) > 0) = (erased_at IS NULL)",
            ),
            // A grant records an approval that a user gave, until it is revoked.
            same(granted(succeeded, "NULL", "'user:local'", "'other'"), forged),
            same(granted(succeeded, "NULL", "'user:other'", "tool_name"), forged),
            same(granted(rejected, "'x'", "'user:local'", "tool_name"), forged),
            (
                granted(succeeded, "NULL", "'user:local'", "tool_name"),
                "grants are never replaced",
                "duplicate key value violates unique constraint \"grants_standing\"",
            ),
            same(vote_remembered, "remember = 'session' AND"),
            same("UPDATE grants SET tool_name = 'transfer'".to_owned(), revoked),
            same("UPDATE grants SET schema_hash = 'x'".to_owned(), revoked),
            same("UPDATE grants SET session_id = tool_call_id".to_owned(), revoked),
            (
                "UPDATE grants SET revoked_at = 1".to_owned(),
                "CHECK constraint failed: (revoked_at IS NULL) = (revoked_by IS NULL)",
                "CHECK (((revoked_at IS NULL) = (revoked_by IS NULL)))",
            ),
            ("DELETE FROM grants".to_owned(), "grants are never deleted", "rows of grants are never deleted"),
            same("DELETE FROM events".to_owned(), "events are never deleted"),
            same("UPDATE events SET actor = 'user:x'".to_owned(), "events never change"),
            same("UPDATE events SET data = '{}'".to_owned(), "events never change"),
            same(
                "UPDATE events SET seq = seq + 1000 WHERE seq IS NOT NULL".to_owned(),
                "events never change",
            ),
            same("UPDATE events SET seq = NULL WHERE seq IS NOT NULL".to_owned(), "events never change"),
            same("UPDATE event_sequence SET last = last - 1".to_owned(), "the numbers of events only grow"),
            (
                "DELETE FROM event_sequence".to_owned(),
                "the numbers of events are never deleted",
                "rows of event_sequence are never deleted",
            ),
            (
                "INSERT INTO event_sequence (id, last) VALUES (2, 0)".to_owned(),
                "CHECK constraint failed: id = 1",
                "CHECK ((id = 1))",
            ),
            (
                format!("INSERT INTO ticket_keys (id, signing_key) VALUES (2, '{}')", "0".repeat(64)),
                "CHECK constraint failed: id = 1",
                "CHECK ((id = 1))",
            ),
            (
                "UPDATE ticket_keys SET signing_key = 'short'".to_owned(),
                "CHECK constraint failed: length(signing_key) = 64",
                "CHECK ((length(signing_key) = 64))",
            ),
            same("UPDATE message_steps SET parts = '[]'".to_owned(), "a step is written once"),
            (
                vote(succeeded, "user:local", "approve", "TRUE"),
                "decisions are never replaced",
                "duplicate key value violates unique constraint \"decisions_final\"",
            ),
            // The final vote has moved the call, and no vote is added to a call that is decided or was never
            // held.
            same(vote(pending, "user:x", "approve", "TRUE"), vote_of),
            (
                vote(succeeded, "user:other", "approve", "TRUE"),
                "decisions are never replaced",
                "duplicate key value violates unique constraint \"decisions_final\"",
            ),
            same(vote(succeeded, "user:other", "approve", "FALSE"), vote_of),
            same(vote(ungated, "user:x", "approve", "FALSE"), vote_of),
            same(vote(pending, "user:x", "reject", "FALSE"), "final OR verdict = 'approve'"),
            same(
                call(succeeded, "expires_at = expires_at + 1"),
                "the deadline of a decision changes only while the call is pending",
            ),
            same(
                call(
                    undecided,
                    "state = 'executing', exec_id = 'x', exec_owner = 'x', exec_attempt = 1, started_at = 1,
                     lease_until = 1",
                ),
                on_decision,
            ),
            // Runs.
            (
                format!(
                    "UPDATE runs SET status = 'running', owner = 'x', lease_until = 1
                     WHERE thread_id = '{waiting_thread}'"
                ),
                "UNIQUE constraint failed: runs.thread_id",
                "duplicate key value violates unique constraint \"runs_one_running\"",
            ),
            same(
                format!(
                    "UPDATE runs SET status = 'running', owner = 'x', lease_until = 1, finished_at = NULL
                     WHERE run_id = '{completed_run}'"
                ),
                "illegal transition of a run",
            ),
            same(
                format!(
                    "UPDATE runs SET status = 'waiting', finished_at = NULL WHERE run_id = '{completed_run}'"
                ),
                "illegal transition of a run",
            ),
        ]
    }

    /// Near misses of the statements above, which must be accepted: a schema that refuses everything protects
    /// nothing.
    fn taken(&self) -> Vec<String> {
        let Self { pending, cut_off, waiting_thread, .. } = self;
        let call = |set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{pending}'");
        let vote_of = |id: &str, actor: &str, is_final: &str| {
            format!(
                "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)
                 VALUES ('{id}', '{pending}', '{actor}', 'approve', {is_final}, FALSE, 'x', 'rest', 1)"
            )
        };
        vec![
            vote_of("agreed", "user:x", "FALSE"),
            vote_of("agreed too", "user:y", "FALSE"),
            call(
                "state = 'approved', validated = TRUE, decided_at = 1, start_deadline = 1, decided_by = 'user:x'",
            ),
            vote_of("decided", "user:x", "TRUE"),
            call(
                "state = 'executing', exec_id = 'x', exec_owner = 'x', exec_attempt = 1, started_at = 1,
                 lease_until = 1",
            ),
            call("progress = '{}'"),
            call("state = 'interrupted', lease_until = NULL, result = 'x', finished_at = 1, progress = NULL"),
            call("state = 'failed', result = 'y'"),
            format!(
                "UPDATE tool_calls SET state = 'executing', lease_until = 1, exec_id = 'x', exec_attempt = 2
                 WHERE tool_call_id = '{cut_off}'"
            ),
            format!(
                "UPDATE runs SET status = 'running', owner = 'x', lease_until = 1
                 WHERE run_id = (SELECT max(run_id) FROM runs WHERE thread_id = '{waiting_thread}')"
            ),
            "UPDATE grants SET revoked_at = 1, revoked_by = 'user:x'".to_owned(),
        ]
    }
}

const TABLES: [&str; 8] =
    ["threads", "messages", "message_steps", "runs", "tool_calls", "decisions", "sent_answers", "grants"];

async fn everything(app: &Embedded) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for table in TABLES.into_iter().chain(["events"]) {
        all.push(app.rows.all(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
    }
    all
}

/// The text of a refusal. Postgres names the violated constraint, whose definition is looked up.
async fn refusal(app: &Embedded, sql: &str) -> String {
    let words = app.rows.change(sql).await.expect_err(sql);
    let Some((_, after)) = words.split_once("violates check constraint \"") else { return words };
    let name = after.split('"').next().unwrap();
    let text =
        format!("SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conname = '{name}'");
    app.rows.all(&text).await[0].text("text").to_owned()
}

async fn attack(app: &Embedded, on_postgres: bool) {
    let calls = Calls::make(app).await;
    let before = everything(app).await;
    let mut wrong = Vec::new();
    for (sql, sqlite, postgres) in calls.refused() {
        let expected = if on_postgres { postgres } else { sqlite };
        let words = refusal(app, &sql).await;
        if !words.contains(expected) {
            wrong.push(format!("{sql}\n  expected {expected}\n  found    {words}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(everything(app).await, before, "a refused statement changes no row");
    for sql in calls.taken() {
        assert_eq!(app.rows.change(&sql).await, Ok(1), "{sql}");
    }
    // Lets the tools finish, so that the server can stop.
    app.ledger.release.add_permits(3);
}

/// Keeps the server from changing the attacked rows, however long the test runs.
fn hold_still(config: &mut Config) {
    config.approval.wait = Duration::ZERO;
    config.approval.sweep = Duration::from_hours(1);
}

#[tokio::test]
async fn every_invalid_state_is_refused_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let change = |config: &mut Config| {
        hold_still(config);
        config.database.url = format!("sqlite://{}/rows.db", dir.path().display()).into();
    };
    let app = Embedded::with(change).await;
    attack(&app, false).await;
}

#[tokio::test]
async fn no_row_is_replaced_by_another_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (thread, id) = app.held("pay", "1").await;
    app.client.reject(&id).await;
    app.scene.answers("No.");
    app.client.resume(&thread).await;
    // A row is replaced neither by its primary key nor by another unique key.
    let forged = [
        "CREATE TEMP TABLE forged AS SELECT * FROM tool_calls",
        // The database computes it.
        "ALTER TABLE forged DROP COLUMN due_at",
        "CREATE TEMP TABLE again AS SELECT * FROM forged",
        "UPDATE forged SET tool_call_id = 'forged', state = 'pending', arguments = '{}', result = NULL,
                   finished_at = NULL, validated = NULL, decided_by = NULL, decided_at = NULL",
    ];
    for sql in forged {
        app.rows.change(sql).await.unwrap();
    }
    let words = app.rows.change("INSERT OR REPLACE INTO tool_calls SELECT * FROM forged").await.unwrap_err();
    assert!(words.contains("never replaced"), "{words}");
    for table in ["tool_calls", "decisions", "sent_answers", "events", "messages"] {
        let from = if table == "tool_calls" { "again" } else { table };
        let again = format!("INSERT OR REPLACE INTO {table} SELECT * FROM {from} LIMIT 1");
        let words = app.rows.change(&again).await.expect_err(&again);
        assert!(words.contains("never replaced") || words.contains("begins as"), "{again}: {words}");
    }
}

#[tokio::test]
async fn every_invalid_state_is_refused_on_postgres() {
    let url = postgres().await;
    let change = |config: &mut Config| {
        hold_still(config);
        config.database.url = url.into();
    };
    let app = Embedded::with(change).await;
    attack(&app, true).await;
}

#[tokio::test]
async fn a_call_is_held_decided_and_reported_on_postgres() {
    let url = postgres().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, id) = app.held("pay", "10").await;
    let row = app.rows.all("SELECT state, validated, held FROM tool_calls").await;
    assert_eq!(row, [json!({ "state": "pending", "validated": null, "held": true })]);
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "9" } });
    let answer = app.client.validate(&edit).await;
    answer.has(200, "state", "succeeded");
    assert_eq!(app.client.validate(&edit).await.header("idempotent-replayed"), Some("true"));
    app.scene.answers("Paid.");
    let done = app.client.resume(&thread).await;
    assert_eq!((done.codes().as_str(), done.text().as_str()), ("a8ef0ed", "Paid."));
    assert_eq!(app.ledger.lines(), ["pay 9"]);
    assert_eq!(app.rows.all("SELECT status FROM runs").await, [json!({ "status": "completed" })]);
}
