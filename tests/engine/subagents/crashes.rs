//! A process may die at any moment of a sub-agent's life: nothing is lost, and nothing happens twice.

use super::{child_of, hold_in, resumed};
use holdpoint_testkit::runs::{approve, last_words, run_becomes};
use holdpoint_testkit::{Client, Deployment, JsonFields, Rows, UNKNOWN, eventually};
use serde_json::{Value, json};

/// The words of the model after a transfer.
const DONE: &str = "{\"transferred\":\"10\"}";

/// Has `helper` transfer 10 in a new thread, up to the hold of its child. Returns the thread, the call and
/// the hold.
async fn held(client: &Client) -> (String, String, String) {
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "helper transfer 10").await;
    let call = turn.one('9').text("toolCallId").to_owned();
    let hold = hold_in(client, &thread).await;
    (thread, call, hold)
}

/// Makes the database refuse updates of calls that match this condition.
pub(super) async fn forbid(rows: &Rows, when: &str) {
    let sql = if rows.is_postgres() {
        format!(
            "CREATE OR REPLACE FUNCTION not_this() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'not now'; END $$;
             CREATE TRIGGER not_this BEFORE UPDATE ON tool_calls FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION not_this()"
        )
    } else {
        format!(
            "CREATE TRIGGER not_this BEFORE UPDATE ON tool_calls WHEN {when}
                 BEGIN SELECT RAISE(ABORT, 'not now'); END"
        )
    };
    rows.change(&sql).await.unwrap();
}

pub(super) async fn allow(rows: &Rows) {
    let on = if rows.is_postgres() { " ON tool_calls" } else { "" };
    rows.change(&format!("DROP TRIGGER not_this{on}")).await.unwrap();
}

const SETTLES: &str = "OLD.child_run_id IS NOT NULL AND OLD.state = 'executing' AND NEW.state <> 'executing'";
pub(super) const DELEGATES: &str = "OLD.child_run_id IS NULL AND NEW.child_run_id IS NOT NULL";

#[tokio::test]
async fn after_a_kill_while_the_child_holds_the_next_process_completes_both_runs() {
    let deployment = Deployment::new().await;
    deployment.release();
    let mut server = deployment.start("30s");
    let (thread, call, hold) = held(&server.client).await;
    let child = child_of(&server.client, &call).await;
    run_becomes(&server.client, &child, "waiting").await;
    server.kill();

    let server = deployment.start("30s");
    let client = &server.client;
    assert_eq!(client.call(&call).await["state"], "executing", "neither a restart nor a lease ends it");
    approve(client, &hold).await.has_status(200);
    let run = client.run_of(&call).await;
    run_becomes(client, &run, "completed").await;
    assert_eq!(last_words(client, &thread).await, DONE);
    assert_eq!(client.call(&call).await["result"], DONE);
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
    let rows = deployment.rows().await;
    assert_eq!((resumed(&rows, &run).await, resumed(&rows, &child).await), (1, 2));
}

#[tokio::test]
async fn a_delegated_call_outlives_any_number_of_leases() {
    let deployment = Deployment::new().await;
    let server = deployment.start("0s");
    let (_, call, _) = held(&server.client).await;
    // The sweeper reaps another call in the meantime, so it has looked at the delegated call too.
    let rows = deployment.rows().await;
    let other = server.client.thread().await;
    let turn = server.client.begin(&other, &json!({ "content": "sync 1" })).await;
    deployment.wait_started(&["sync 1"]).await;
    let lapse = "UPDATE tool_calls SET lease_until = 1000000 WHERE name = 'sync'";
    let swept = async || {
        let _renewed = rows.change(lapse).await;
        (rows.count("tool_calls WHERE name = 'sync' AND state = 'interrupted'").await > 0).then_some(())
    };
    eventually("the sweeper has looked", swept).await;
    assert_eq!(server.client.call(&call).await["state"], "executing");
    deployment.release();
    drop(turn);
}

#[tokio::test]
async fn after_a_kill_before_the_child_exists_the_call_is_started_again() {
    let deployment = Deployment::new().await;
    deployment.release();
    let rows = {
        // Creates the schema.
        deployment.start("0s").finish();
        deployment.rows().await
    };
    forbid(&rows, DELEGATES).await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let turn = server.client.begin(&thread, &json!({ "content": "helper transfer 10" })).await;
    let claimed = async || (rows.count("tool_calls WHERE state = 'executing'").await > 0).then_some(());
    eventually("the call is claimed", claimed).await;
    server.kill();
    drop(turn);
    assert_eq!(rows.count("threads WHERE parent_id IS NOT NULL").await, 0, "no part of a child exists");
    allow(&rows).await;

    let server = deployment.start("0s");
    let client = &server.client;
    let hold = hold_in(client, &thread).await;
    assert_eq!(rows.count("threads WHERE parent_id IS NOT NULL").await, 1);
    approve(client, &hold).await.has_status(200);
    let calls = rows.all("SELECT tool_call_id, exec_attempt FROM tool_calls WHERE name = 'helper'").await;
    let [helper] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(helper["exec_attempt"], 2);
    let call = helper.text("tool_call_id");
    client.becomes(call, "succeeded").await;
    run_becomes(client, &client.run_of(call).await, "completed").await;
    assert_eq!(last_words(client, &thread).await, DONE);
}

#[tokio::test]
async fn after_a_kill_between_the_ends_of_child_and_call_the_next_process_settles_once() {
    let deployment = Deployment::new().await;
    deployment.release();
    let mut server = deployment.start("30s");
    let (thread, call, hold) = held(&server.client).await;
    let rows = deployment.rows().await;
    forbid(&rows, SETTLES).await;
    approve(&server.client, &hold).await.has_status(200);
    let child = child_of(&server.client, &call).await;
    run_becomes(&server.client, &child, "completed").await;
    let run = server.client.run_of(&call).await;
    assert_eq!(server.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    server.kill();
    allow(&rows).await;

    let server = deployment.start("30s");
    run_becomes(&server.client, &run, "completed").await;
    assert_eq!(last_words(&server.client, &thread).await, DONE);
    settled_once(&rows, &call, &run).await;
}

async fn settled_once(rows: &Rows, call: &str, run: &str) {
    let ends = rows.count(&format!("events WHERE tool_call_id = '{call}' AND type = 'tool.succeeded'")).await;
    assert_eq!((ends, resumed(rows, run).await), (1, 1));
}

#[tokio::test]
async fn on_postgres_the_other_process_settles_the_call_of_a_killed_one_exactly_once() {
    let deployment = Deployment::on_postgres().await;
    deployment.release();
    let (mut dead, other) = (deployment.start("30s"), deployment.start("30s"));
    let (thread, call, hold) = held(&dead.client).await;
    let rows = deployment.rows().await;
    forbid(&rows, SETTLES).await;
    approve(&dead.client, &hold).await.has_status(200);
    let child = child_of(&other.client, &call).await;
    run_becomes(&other.client, &child, "completed").await;
    dead.kill();
    allow(&rows).await;
    let run = other.client.run_of(&call).await;
    run_becomes(&other.client, &run, "completed").await;
    assert_eq!(last_words(&other.client, &thread).await, DONE);
    settled_once(&rows, &call, &run).await;

    // With two processes side by side, a decision at either one resumes each run once.
    let third = deployment.start("30s");
    for round in 0..4 {
        let (at, by) = if round % 2 == 0 { (&other, &third) } else { (&third, &other) };
        let (_, call, hold) = held(&at.client).await;
        approve(&by.client, &hold).await.has_status(200);
        let run = at.client.run_of(&call).await;
        run_becomes(&at.client, &run, "completed").await;
        settled_once(&rows, &call, &run).await;
        let child = child_of(&at.client, &call).await;
        assert_eq!(resumed(&rows, &child).await, 2, "started once, and resumed once");
    }
}

#[tokio::test]
async fn on_postgres_a_cancel_reaches_a_child_that_another_process_runs() {
    let deployment = Deployment::on_postgres().await;
    let (one, other) = (deployment.start("0s"), deployment.start("0s"));
    let thread = one.client.thread().await;
    let turn = one.client.send_message(&thread, "helper think").await;
    let call = turn.one('9').text("toolCallId").to_owned();
    deployment.wait_started(&["think"]).await;
    let run = one.client.run_of(&call).await;
    other.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    let child = child_of(&one.client, &call).await;
    run_becomes(&other.client, &child, "cancelled").await;
    let ended = other.client.becomes(&call, "interrupted").await;
    assert_eq!(ended["result"], UNKNOWN);
    deployment.release();
}

#[tokio::test]
async fn a_child_whose_process_dies_in_its_turn_ends_its_call_with_an_unknown_outcome() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "helper think").await;
    let call = turn.one('9').text("toolCallId").to_owned();
    deployment.wait_started(&["think"]).await;
    server.kill();
    let server = deployment.start("0s");
    let ended = server.client.becomes(&call, "interrupted").await;
    assert_eq!(ended["result"], UNKNOWN);
    run_becomes(&server.client, &server.client.run_of(&call).await, "completed").await;
    assert_eq!(last_words(&server.client, &thread).await, UNKNOWN);
}

#[tokio::test]
async fn a_fence_ends_the_call_and_its_child_does_not_resume() {
    let deployment = Deployment::new().await;
    deployment.release();
    let server = deployment.start("0s");
    let (thread, call, hold) = held(&server.client).await;
    let run = server.client.run_of(&call).await;
    let child = child_of(&server.client, &call).await;
    run_becomes(&server.client, &child, "waiting").await;
    let listed = deployment.operate(&["approvals", "list", "--state", "executing"]).stdout_of_success();
    server.finish();
    assert!(listed.contains("helper"), "{listed}");
    let fenced = deployment.operate(&["fence", "--by", "mel"]).stdout_of_success();
    let numbers: Vec<u64> =
        fenced.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, [1, 0, 1, 0, 0, 0], "{fenced}");

    let server = deployment.start("0s");
    let client = &server.client;
    assert_eq!(client.call(&call).await["state"], "interrupted");
    assert_eq!(client.call(&hold).await["state"], "cancelled");
    // Another call runs from its start to its end, so the server has looked.
    let (_, other, again) = held(client).await;
    approve(client, &again).await;
    client.becomes(&other, "succeeded").await;
    for stays in [&run, &child] {
        assert_eq!(client.get(&format!("/runs/{stays}")).await.body["status"], "waiting");
    }
    assert_eq!(last_words(client, &thread).await, "");
}

#[tokio::test]
async fn a_child_whose_turn_broke_after_its_hold_resumes_after_the_decision() {
    let app = super::watchful().await;
    let (errand, hold) = super::Errand::held(&app).await;
    let child = errand.child(&app.client).await;
    run_becomes(&app.client, &child, "waiting").await;
    // The state that a process leaves if it dies between the hold and the end of the turn.
    let dead =
        format!("UPDATE runs SET status = 'running', owner = 'x', lease_until = 1 WHERE run_id = '{child}'");
    assert_eq!(app.rows.change(&dead).await, Ok(1));
    run_becomes(&app.client, &child, "failed").await;
    assert_eq!(app.client.call(&errand.call).await["state"], "executing", "its hold is still pending");
    app.scene.answers("Paid below.").answers("All is paid.");
    app.client.approve(&hold).await.has_status(200);
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(app.client.call(&errand.call).await["result"], "Paid below.");
}

#[tokio::test]
async fn a_reaped_execution_starts_no_child_beside_the_child_of_the_next_attempt() {
    let app = super::start().await;
    forbid(&app.rows, DELEGATES).await;
    app.scene.calls(&[super::helper("p", "x")]).answers("Meanwhile.");
    let thread = app.client.thread().await;
    let turn = app.client.begin(&thread, &json!({ "content": "get help" })).await;
    // Simulates another process that reaps the execution and claims the call again.
    let far = "253370764800000000";
    let lost = format!(
        "UPDATE tool_calls SET state = 'approved', lease_until = NULL, start_deadline = {far} WHERE state = 'executing'"
    );
    let lost = async || (app.rows.change(&lost).await == Ok(1)).then_some(());
    eventually("the call was claimed", lost).await;
    let again = format!(
        "UPDATE tool_calls SET state = 'executing', exec_attempt = 2, exec_owner = 'other', lease_until = {far},
             exec_id = '01890a5d-ac96-774b-bcce-b302099a8057' WHERE state = 'approved'"
    );
    assert_eq!(app.rows.change(&again).await, Ok(1));
    allow(&app.rows).await;
    let sent = turn.text().await.unwrap();
    assert!(sent.contains("Meanwhile."), "the turn does not wait for the other execution: {sent}");
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 0);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'executing' AND exec_attempt = 2").await, 1);
}
