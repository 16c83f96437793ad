//! A server on the SDK for Python (PyPI's `mcp`), which speaks the newest protocol.

use super::{approved, entry, hold, packages, tool};
use holdpoint_testkit::{Embedded, JsonFields, UNKNOWN, eventually};
use serde_json::json;
use std::path::Path;
use tempfile::TempDir;

/// The Python with the packages of `tests/mcp/requirements.txt`.
pub(super) fn python() -> String {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/python-mcp/bin/python");
    assert!(python.exists(), "run `cargo xtask test-only`, which installs {}", python.display());
    python.display().to_string()
}

/// A server of holdpoint with `tests/mcp/server.py`, and the folder of its log.
async fn started() -> (Embedded, TempDir) {
    let state = tempfile::tempdir().unwrap();
    let program = packages().join("server.py");
    let lines =
        json!({ "name": "py", "command": python(), "args": [program], "env": { "STATE": state.path() } });
    let server = super::with(entry(&lines)).await;
    tool(&server.client, "py__pay").await;
    (server, state)
}

/// The executions so far.
fn executed(state: &TempDir) -> Vec<String> {
    let log = std::fs::read_to_string(state.path().join("calls.log")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_call_is_held_and_runs_once_in_the_newest_protocol() {
    let (server, state) = started().await;
    let id = hold(&server, "py__pay", &json!({ "amount": 12 })).await;
    assert_eq!(executed(&state), [""; 0]);
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    assert_eq!(server.client.call(&id).await["output"], json!({ "paid": 12 }));
    let again = server.client.approve(&id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(executed(&state), ["pay 12"]);
    let call = approved(&server, "py__protocol", &json!({})).await;
    assert!(call.text("result").contains("2026-07-28"), "{call}");
}

#[tokio::test]
async fn an_error_of_the_tool_is_a_failure_with_its_words_and_unfit_inputs_reach_no_tool() {
    let (server, state) = started().await;
    let call = approved(&server, "py__fail", &json!({})).await;
    assert_eq!(call["state"], "failed");
    assert!(call.text("result").contains("it is closed today"), "{call}");
    let turn = super::turn(&server, "py__pay", &json!({ "amount": "much" })).await;
    assert!(turn.pending().is_empty(), "{}", turn.raw);
    assert_eq!(executed(&state), ["fail"]);
}

#[tokio::test]
async fn after_a_changed_definition_a_held_call_needs_an_approval_of_the_new_one() {
    let (server, state) = started().await;
    let id = hold(&server, "py__pay", &json!({ "amount": 1 })).await;
    let shown = server.client.call(&id).await["input_hash"].clone();
    approved(&server, "py__redefine", &json!({ "description": "Pays to another account." })).await;
    let changed = async || {
        let tool = server.client.get("/tools/py__pay").await.body;
        (tool["description"] == "Pays to another account.").then_some(())
    };
    eventually("the definition has changed", changed).await;
    let decision = json!({ "toolCallId": id, "isValidated": true, "inputHash": shown });
    let refused = server.client.validate(&decision).await;
    refused.failed_with(409, "stale");
    assert_eq!(executed(&state), [""; 0]);
}

#[tokio::test]
async fn a_process_that_dies_in_mid_call_leaves_the_outcome_unknown_and_starts_again() {
    let (server, state) = started().await;
    let call = approved(&server, "py__die", &json!({})).await;
    assert_eq!((&call["state"], &call["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    tool(&server.client, "py__pay").await;
    let works = async || {
        let turn = super::turn(&server, "py__pay", &json!({ "amount": 3 })).await;
        let id = turn.pending().first().cloned()?;
        (server.client.approve(&id).await.body["state"] == "succeeded").then_some(())
    };
    eventually("the server started again", works).await;
    let executed = executed(&state);
    assert_eq!(executed.iter().filter(|line| *line == "die").count(), 1, "{executed:?}");
}
