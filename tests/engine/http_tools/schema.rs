//! The database refuses invalid states of calls with an owner, whatever the writer.

use super::{Office, hold};
use holdpoint_testkit::ServiceAction;

const ONCE: &str = "a running call gets an owner once";

#[tokio::test]
async fn an_owner_is_not_forged() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "idempotent = true").await;
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s"), ("HOLDPOINT_APPROVAL__LEASE", "60s")]);
    let client = &server.client;
    let (pending, succeeded) = (hold(client, "a").await, hold(client, "b").await);
    office.remote.next([
        ServiceAction::answers(200, "1"),
        ServiceAction::answers(202, ""),
        ServiceAction::Hangs,
    ]);
    client.approve(&succeeded).await;
    client.becomes(&succeeded, "succeeded").await;
    let owned = hold(client, "c").await;
    client.approve(&owned).await;
    let has_owner = async || client.call(&owned).await["result_deadline"].is_string().then_some(());
    holdpoint_testkit::eventually("the call has an owner", has_owner).await;
    let running = hold(client, "d").await;
    client.approve(&running).await;
    office.remote.wait_received(3).await;

    let rows = office.rows().await;
    let call = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
    let everything = "SELECT * FROM tool_calls ORDER BY tool_call_id";
    let before = rows.all(everything).await;
    for (sql, words) in [
        // It is set once, for a running call, and stays.
        (call(&pending, "result_deadline = 1"), Some(ONCE)),
        (call(&succeeded, "result_deadline = 1"), Some(ONCE)),
        (call(&owned, "result_deadline = result_deadline + 1"), Some(ONCE)),
        (call(&owned, "result_deadline = NULL, lease_until = 1"), Some(ONCE)),
        (call(&owned, "state = 'approved', start_deadline = 1, result_deadline = NULL"), Some(ONCE)),
        (
            call(
                &running,
                "state = 'succeeded', lease_until = NULL, output = '1', result = '1', finished_at = 1, result_deadline = 1",
            ),
            Some(ONCE),
        ),
        // A running call has exactly one of a lease, a child run and an owner.
        (call(&running, "result_deadline = 1"), None),
        (call(&owned, "lease_until = 1"), None),
        (call(&running, "lease_until = NULL"), None),
        (call(&owned, "child_run_id = run_id"), None),
        // It is not started again. It can only end.
        (call(&owned, "state = 'approved', start_deadline = 1"), None),
        (
            format!(
                "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id,
                     provider_call_id, wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, state,
                     validated, decided_by, decided_at, exec_id, exec_owner, exec_attempt, started_at, result_deadline,
                     created_at)
                 SELECT 'copy', thread_id, tenant_id, message_id, step, 99, run_id, '', 'copy', name, arguments,
                     schema_hash, FALSE, idempotent, risk_level, 'executing', TRUE, 'system:policy', 1, 'x', 'x', 1, 1, 1,
                     created_at
                 FROM tool_calls WHERE tool_call_id = '{owned}'"
            ),
            Some(ONCE),
        ),
    ] {
        let refused = rows.change(&sql).await.expect_err(&sql);
        assert!(words.is_none_or(|words| refused.contains(words)), "{sql}: {refused}");
    }
    assert_eq!(rows.all(everything).await, before);
    let owner = call(&running, "lease_until = NULL, result_deadline = 1");
    assert_eq!(rows.change(&owner).await, Ok(1), "a schema that refuses everything protects nothing");
}
