//! The database refuses requests that no server writes.

use super::{SteeredServer, hold, tool};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A call whose tool waits for an answer, and its request.
async fn asked(server: &Embedded) -> (String, String) {
    let call = hold(server, "s__act", &json!({ "do": "ask" })).await;
    server.client.approve(&call).await;
    let open =
        format!("SELECT request_id FROM tool_requests WHERE state = 'open' AND tool_call_id = '{call}'");
    let found = async || server.rows.all(&open).await.into_iter().next();
    let row = eventually("the tool asks", found).await;
    (call, row.text("request_id").to_owned())
}

#[tokio::test]
async fn a_request_begins_open_is_answered_once_and_is_never_changed_or_deleted() {
    let steered = SteeredServer::with("act");
    let wait = |config: &mut Config| {
        config.mcp = vec![steered.entry("s", &json!({}))];
        config.approval.wait = Duration::ZERO;
    };
    let server = Box::pin(Embedded::with(wait)).await;
    tool(&server.client, "s__act").await;
    let hash = "0".repeat(64);
    let (call, id) = asked(&server).await;
    let change = |set: &str| format!("UPDATE tool_requests SET {set} WHERE request_id = '{id}'");
    let copy = |state: &str, of: &str| {
        format!(
            "INSERT INTO tool_requests (request_id, tool_call_id, tenant_id, user_id, held_tool, exec_id, kind, message, answer_schema, state,
                 created_at, expires_at)
             SELECT 'copy', tool_call_id, tenant_id, user_id, held_tool, {of}, kind, message, answer_schema, '{state}', created_at, expires_at
             FROM tool_requests WHERE request_id = '{id}'"
        )
    };
    let once = "a request is answered once";
    let begins = "a request begins as open";
    let accepted = format!(
        "state = 'accepted', content_hash = '{hash}', content = '{{}}', answered_by = 'user:x', answered_at = 1"
    );
    let before = server.rows.all("SELECT * FROM tool_requests").await;
    let refused = [
        (copy("declined", "exec_id"), begins),
        (copy("open", "'another'"), begins),
        (change("message = 'Which password?'"), once),
        (change("answer_schema = '{}'"), once),
        (change("expires_at = 0"), once),
        (change("exec_id = 'x'"), once),
        (change("server_key = 'x'"), once),
        (change("state = 'accepted'"), ""),
        (change("state = 'declined'"), ""),
        (change("state = 'expired', answered_by = 'user:x', answered_at = 1"), ""),
        (change("content = '{}'"), ""),
        (change("state = 'gone'"), ""),
        (change("erased_at = 1"), ""),
        (change("state = 'declined', answered_by = 'system:policy', answered_at = 1"), ""),
        (format!("DELETE FROM tool_requests WHERE request_id = '{id}'"), "never deleted"),
    ];
    for (sql, expected) in refused {
        let words = server.rows.change(&sql).await.expect_err(&sql);
        assert!(words.contains(expected), "{sql}: {words}");
    }
    assert_eq!(server.rows.all("SELECT * FROM tool_requests").await, before);

    assert_eq!(server.rows.change(&change(&accepted)).await, Ok(1));
    for set in ["state = 'open', content = NULL", "content = '{\"a\":1}'", "answered_by = 'user:y'"] {
        let words = server.rows.change(&change(set)).await.expect_err(set);
        assert!(words.contains(once) || words.contains("CHECK") || words.contains("check"), "{set}: {words}");
    }
    server.client.becomes(&call, "succeeded").await;
    let row = server.rows.all("SELECT state, content, content_hash FROM tool_requests").await;
    let kept = json!({ "state": "accepted", "content": Value::Null, "content_hash": hash });
    assert_eq!(row, [kept], "the content is kept no longer than its call");

    let thread = server.client.call(&call).await.text("thread_id").to_owned();
    server.client.resume(&thread).await;
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    server.operate(&["purge", "--older-than", "0s"]).stdout_of_success();
    let row = server.rows.all("SELECT message, answer_schema, content_hash FROM tool_requests").await;
    assert_eq!(row, [json!({ "message": "", "answer_schema": "{}", "content_hash": hash })]);
}

#[tokio::test]
async fn a_task_is_not_forged() {
    const ONCE: &str = "a running call gets an owner once";
    const AGAIN: &str = "a call is sent again once for each round of answers";
    let steered = SteeredServer::with("act");
    let change = |config: &mut Config| {
        config.mcp = vec![steered.entry("s", &json!({}))];
        config.approval.wait = Duration::ZERO;
    };
    let server = Box::pin(Embedded::with(change)).await;
    tool(&server.client, "s__act").await;
    let pending = hold(&server, "s__act", &json!({ "do": "hang" })).await;
    let running = hold(&server, "s__act", &json!({ "do": "hang" })).await;
    let owned = hold(&server, "s__act", &json!({ "do": "task" })).await;
    for call in [&running, &owned] {
        server.client.approve(call).await;
    }
    let has_owner = async || server.client.call(&owned).await["result_deadline"].is_string().then_some(());
    eventually("the call has an owner", has_owner).await;
    let call = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
    let task = "mcp_server = 's', task_id = 't', polled_by = 'x', polled_until = 1";
    // The renewals of the polls change nothing else.
    let fixed = "SELECT tool_call_id, state, mcp_server, task_id, polled_by, result_deadline, lease_until
                 FROM tool_calls ORDER BY tool_call_id";
    let before = server.rows.all(fixed).await;
    for (sql, words) in [
        // It comes with the owner, stays, and is whole.
        (call(&owned, "task_id = 'another'"), AGAIN),
        (call(&owned, "mcp_server = 'another'"), ONCE),
        (call(&owned, "task_id = NULL, mcp_server = NULL, polled_by = NULL, polled_until = NULL"), "once"),
        (call(&pending, task), ""),
        (call(&running, task), ""),
        (call(&running, "lease_until = NULL, result_deadline = 1, task_id = 't'"), ""),
        (call(&running, "lease_until = NULL, result_deadline = 1, mcp_server = 's'"), ""),
        (call(&running, &format!("lease_until = NULL, result_deadline = 1, {task}, task_id = ''")), ""),
        // A task of an executing call is polled, and no other call is.
        (call(&running, "lease_until = NULL, result_deadline = 1, mcp_server = 's', task_id = 't'"), ""),
        (call(&owned, "polled_until = NULL, polled_by = NULL"), ""),
        (call(&owned, "polled_by = NULL"), ""),
        (call(&running, "polled_by = 'x', polled_until = 1"), ""),
        (call(&owned, "state = 'interrupted', result = 'x', finished_at = 1"), ""),
    ] {
        let refused = server.rows.change(&sql).await.expect_err(&sql);
        assert!(refused.contains(words), "{sql}: {refused}");
    }
    assert_eq!(server.rows.all(fixed).await, before);
    let owner = call(&running, &format!("lease_until = NULL, result_deadline = 1, {task}"));
    assert_eq!(server.rows.change(&owner).await, Ok(1), "a schema that refuses everything protects nothing");
}

#[tokio::test]
async fn a_round_is_taken_once_and_is_not_forged() {
    const ONCE: &str = "a running call gets an owner once";
    const AGAIN: &str = "a call is sent again once for each round of answers";
    let steered = SteeredServer::with("act");
    let change = |config: &mut Config| {
        config.mcp = vec![steered.entry("s", &json!({}))];
        config.approval.wait = Duration::ZERO;
        // The rows stay as they are.
        config.approval.lease = Duration::from_secs(300);
    };
    let server = Box::pin(Embedded::with(change)).await;
    tool(&server.client, "s__act").await;
    let running = hold(&server, "s__act", &json!({ "do": "hang" })).await;
    let waiting = hold(&server, "s__act", &json!({ "do": "round" })).await;
    let task = hold(&server, "s__act", &json!({ "do": "task" })).await;
    for call in [&running, &waiting, &task] {
        server.client.approve(call).await;
    }
    for call in [&waiting, &task] {
        super::tasks::has_owner(&server.client, call).await;
    }
    let call = |id: &str, set: &str| format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'");
    let owner =
        "lease_until = NULL, result_deadline = 1, mcp_server = 's', polled_by = 'x', polled_until = 1";
    let fixed = "SELECT tool_call_id, state, mcp_server, task_id, input_round, polled_by, result_deadline, lease_until
                 FROM tool_calls ORDER BY tool_call_id";
    let before = server.rows.all(fixed).await;
    let long = "x".repeat(524_289);
    for (sql, words) in [
        // It comes with the owner, and never beside a task or a lease.
        (call(&running, "input_round = '{}'"), ""),
        (call(&running, "lease_until = NULL, result_deadline = 1, input_round = '{}'"), ""),
        (call(&running, owner), ONCE),
        (call(&running, &format!("{owner}, task_id = 't', input_round = '{{}}'")), ""),
        (call(&running, &format!("{owner}, input_round = '{long}'")), ""),
        (call(&task, "input_round = '{}'"), AGAIN),
        (call(&task, "task_id = NULL, input_round = '{}'"), AGAIN),
        (call(&task, "task_id = NULL"), AGAIN),
        // It stays as it is until it is taken, by the holder of the polls and for a call that is still wanted.
        (call(&waiting, "input_round = '{}'"), AGAIN),
        (call(&waiting, "input_round = NULL, task_id = 't'"), AGAIN),
        (call(&waiting, "input_round = NULL, polled_by = 'another'"), AGAIN),
        (call(&waiting, "input_round = NULL, cancel_requested_at = 1"), AGAIN),
        (call(&waiting, "mcp_server = 'another'"), ONCE),
        // It ends with the call.
        (
            call(
                &waiting,
                "state = 'interrupted', result = 'x', finished_at = 1, polled_by = NULL, polled_until = NULL",
            ),
            "",
        ),
    ] {
        let refused = server.rows.change(&sql).await.expect_err(&sql);
        assert!(refused.contains(words), "{sql}: {refused}");
    }
    assert_eq!(server.rows.all(fixed).await, before);

    // What is allowed, step by step.
    let change = async |set: &str| server.rows.change(&call(&waiting, set)).await;
    assert_eq!(change("input_round = NULL").await, Ok(1));
    let other = change("input_round = '{}', polled_by = 'another'").await.unwrap_err();
    assert!(other.contains(AGAIN), "{other}");
    assert_eq!(change("input_round = '{}'").await, Ok(1), "the next round");
    assert_eq!(change("input_round = NULL").await, Ok(1));
    assert_eq!(change("task_id = 't'").await, Ok(1), "the answer is a task");
    for set in ["input_round = '{}'", "task_id = NULL"] {
        let refused = change(set).await.unwrap_err();
        assert!(refused.contains(AGAIN), "{set}: {refused}");
    }
}
