//! The database refuses invalid states of delegated calls, whatever the writer.

use super::{Errand, start, with_agents};
use holdpoint_testkit::{Embedded, JsonFields, postgres, sqlite};
use std::time::Duration;

/// A refused statement, and the error text where both databases have the same.
type Attack = (String, Option<&'static str>);

const ONCE: &str = "a running call is delegated once, to a child thread of its own";

async fn attack(app: &Embedded) {
    let (errand, hold) = Errand::held(app).await;
    let (second, _) = Errand::held(app).await;
    let child = errand.child(&app.client).await;
    let other = second.child(&app.client).await;
    // A call that a tool executes.
    let (_, running) = app.held("wait_for_me", "1").await;
    app.client.validate(&serde_json::json!({ "toolCallId": running, "isValidated": true })).await;
    app.ledger.wait_started().await;
    let thread = app.client.call(&running).await.text("thread_id").to_owned();
    // A child thread with a completed turn in its run.
    let below = app.client.post("/threads", &serde_json::json!({ "parent_id": thread })).await.body;
    let below = below.text("thread_id");
    app.scene.answers("Done.");
    let ended =
        app.client.send_message(below, "do it").await.headers["x-run-id"].to_str().unwrap().to_owned();

    let call = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
    let attacks: Vec<Attack> = vec![
        // `child_run_id` is set once.
        (call(&errand.call, &format!("child_run_id = '{other}'")), Some(ONCE)),
        (call(&errand.call, "child_run_id = NULL, lease_until = 1"), Some(ONCE)),
        // Only a running call has a child run, and the child run waits in a child thread of the call's own
        // thread.
        (call(&hold, &format!("child_run_id = '{ended}'")), Some(ONCE)),
        (call(&running, &format!("lease_until = NULL, child_run_id = '{other}'")), Some(ONCE)),
        (call(&running, &format!("lease_until = NULL, child_run_id = '{child}'")), Some(ONCE)),
        (call(&running, &format!("lease_until = NULL, child_run_id = '{ended}'")), Some(ONCE)),
        (call(&running, &format!("lease_until = NULL, child_run_id = '{}'", errand.run)), Some(ONCE)),
        (call(&running, "lease_until = NULL, child_run_id = 'x'"), Some(ONCE)),
        // A running call has either a lease or a child run.
        (call(&running, "lease_until = NULL"), None),
        (call(&errand.call, "lease_until = 1"), None),
        // A delegated call is not started again. It can only end.
        (call(&errand.call, "state = 'approved', start_deadline = 1"), None),
        (call(&errand.call, "state = 'approved', start_deadline = 1, child_run_id = NULL"), Some(ONCE)),
        (call(&errand.call, "state = 'pending', validated = NULL"), None),
    ];
    let everything = async || {
        let mut all = Vec::new();
        for table in ["tool_calls", "runs", "threads"] {
            // Running calls and runs get new leases.
            let sql = format!("SELECT * FROM {table} ORDER BY 1");
            let mut rows = app.rows.all(&sql).await;
            rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("lease_until")));
            all.push(rows);
        }
        all
    };
    let before = everything().await;
    for (sql, words) in attacks {
        let refused = app.rows.change(&sql).await;
        let refused = refused.expect_err(&sql);
        assert!(words.is_none_or(|words| refused.contains(words)), "{sql}: {refused}");
    }
    assert_eq!(everything().await, before);
    // A call is not inserted with a child run.
    let copy = format!(
        "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
             wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, state, validated, decided_by,
             decided_at, exec_id, exec_owner, exec_attempt, started_at, child_run_id, created_at)
         SELECT 'copy', thread_id, tenant_id, message_id, step, 99, run_id, '', 'copy', name, arguments, schema_hash, FALSE,
             idempotent, risk_level, 'executing', TRUE, 'system:policy', 1, 'x', 'x', 1, 1, '{other}', created_at
         FROM tool_calls WHERE tool_call_id = '{}'",
        errand.call
    );
    let refused = app.rows.change(&copy).await.expect_err("a call is not inserted with a child");
    assert!(refused.contains(ONCE), "{refused}");
    app.ledger.release.add_permits(1);
}

#[tokio::test]
async fn a_delegated_call_is_not_forged_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let app = with_agents(|config| {
        config.database.url = sqlite(&dir).into();
        config.approval.wait = Duration::ZERO;
    });
    attack(&app.await).await;
}

#[tokio::test]
async fn a_delegated_call_is_not_forged_on_postgres() {
    let url = postgres().await;
    let app = with_agents(|config| {
        config.database.url = url.into();
        config.approval.wait = Duration::ZERO;
    });
    attack(&app.await).await;
}

#[tokio::test]
async fn a_child_has_one_call_and_is_found_from_it() {
    let app = start().await;
    let (errand, _) = Errand::held(&app).await;
    let child = errand.child(&app.client).await;
    assert_eq!(app.rows.count(&format!("tool_calls WHERE child_run_id = '{child}'")).await, 1);
    let below = errand.child_thread(&app.client).await;
    assert_eq!(app.client.get(&format!("/threads/{below}")).await.body["parent_id"], errand.thread.as_str());
}
