//! The guards of the database for calls of workers, on both databases.

use super::{approved, claim, cleared, start};
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::json;

/// Asserts that the database refuses this statement, with this text in its error.
async fn refused(app: &Embedded, sql: &str, words: &str) {
    let why = app.rows.change(sql).await.expect_err(sql);
    assert!(why.contains(words), "{sql}\n  expected {words}\n  found {why}");
}

const CHECK: &str = "check constraint";

async fn breaks_a_check(app: &Embedded, sql: &str) {
    let why = app.rows.change(sql).await.expect_err(sql).to_lowercase();
    assert!(why.contains(CHECK), "{sql}: {why}");
}

#[tokio::test]
async fn only_an_unheld_call_for_a_worker_begins_as_approved() {
    let app = start().await;
    let (_, waits) = cleared(&app, "pack", "1").await;
    let (_, held) = app.held("ship", "2").await;
    app.scene.calls(&[call("l", "look", &json!({ "note": "3" }))]).answers("Seen.");
    let looked = app.client.send_message(&app.client.thread().await, "look").await;
    let look = looked.one('9').text("toolCallId").to_owned();
    let born = "a tool call begins as pending, invalid, a repeat, or decided by the policy";
    // A copy of a call, as approved or as executing.
    let copy = |id: &str, set: [&str; 4]| {
        let [state, decided_by, held, by_worker] = set;
        let executes = state == "executing";
        let execution = if executes { "'x', 'x', 1, 1, 1" } else { "NULL, NULL, NULL, 0, NULL" };
        let hash =
            if executes && by_worker == "TRUE" { format!("'{}'", "a".repeat(64)) } else { "NULL".to_owned() };
        format!(
            "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id,
                 provider_call_id, wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, created_at, listed_for,
                 state, validated, decided_by, decided_at, start_deadline, by_worker, permit_hash,
                 exec_id, exec_owner, started_at, exec_attempt, lease_until)
             SELECT 'copy {state} {by_worker}', thread_id, tenant_id, message_id, step, 99, run_id, provider_call_id,
                 'copy', name, arguments, schema_hash, {held}, idempotent, risk_level, created_at,
                 CASE WHEN {held} THEN listed_for END, '{state}', TRUE, '{decided_by}', 1, 1, {by_worker}, {hash}, {execution}
             FROM tool_calls WHERE tool_call_id = '{id}'"
        )
    };
    for (id, set) in [
        (&look, ["approved", "system:policy", "FALSE", "FALSE"]),
        (&held, ["approved", "user:x", "TRUE", "TRUE"]),
        (&waits, ["approved", "user:x", "FALSE", "TRUE"]),
        (&waits, ["executing", "system:policy", "FALSE", "TRUE"]),
    ] {
        refused(&app, &copy(id, set), born).await;
    }
    let fits = copy(&waits, ["approved", "system:policy", "FALSE", "TRUE"]);
    assert_eq!(app.rows.change(&fits).await, Ok(1));
    // The copy has no decision.
    let token = "a".repeat(64);
    let begin = format!(
        "UPDATE tool_calls SET state = 'executing', exec_id = 'x', exec_owner = 'x', exec_attempt = 1,
             started_at = 1, lease_until = 1, permit_hash = '{token}' WHERE wire_call_id = 'copy'"
    );
    refused(&app, &begin, "a held call and a call of a worker begin on a decision").await;
}

#[tokio::test]
async fn a_pending_call_of_a_worker_does_not_begin_with_its_approval() {
    let app = start().await;
    let (_, waits) = app.held("ship", "1").await;
    let begin = format!(
        "UPDATE tool_calls SET state = 'executing', validated = TRUE, decided_by = 'user:x', decided_at = 1,
             start_deadline = 1, exec_id = 'x', exec_owner = 'x', exec_attempt = 1, started_at = 1, lease_until = 1,
             permit_hash = '{}' WHERE tool_call_id = '{waits}'",
        "a".repeat(64)
    );
    let words = if app.rows.is_postgres() {
        "a call begins with its approval only in the process that decides"
    } else {
        "a call runs once, and again only if it is idempotent, at most three times"
    };
    refused(&app, &begin, words).await;
}

#[tokio::test]
async fn each_execution_of_a_worker_has_one_permit_and_no_other_execution_has_one() {
    let app = start().await;
    let (_, waits) = approved(&app, "ship", "1").await;
    let (_, ours) = app.held("pay", "2").await;
    app.client.approve(&ours).await;
    let (_, id) = approved(&app, "reship", "3").await;
    claim(&app.client, "reship").await;
    let token = "a".repeat(64);
    let set = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
    let execution = "exec_id = 'x', exec_owner = 'x', exec_attempt = 1, started_at = 1, lease_until = 1";
    breaks_a_check(&app, &set(&waits, &format!("state = 'executing', {execution}"))).await;
    let short = format!("state = 'executing', permit_hash = 'x', {execution}");
    breaks_a_check(&app, &set(&waits, &short)).await;
    let same = "the token of an execution does not change";
    refused(&app, &set(&waits, &format!("permit_hash = '{token}'")), same).await;
    refused(&app, &set(&ours, &format!("permit_hash = '{token}'")), same).await;
    refused(&app, &set(&id, &format!("permit_hash = '{token}'")), same).await;
    refused(&app, &set(&id, "permit_hash = NULL"), same).await;
    let fixed = "the content of a call does not change";
    refused(&app, &set(&id, "by_worker = FALSE"), fixed).await;
    refused(&app, &set(&ours, "by_worker = TRUE"), fixed).await;
    let by_worker = format!("state = 'executing', permit_hash = '{token}', {execution}");
    assert_eq!(app.rows.change(&set(&waits, &by_worker)).await, Ok(1));
}
