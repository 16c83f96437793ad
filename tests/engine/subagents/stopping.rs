//! Cancels of a sub-agent's call, or of anything that contains the call, stop the child.

use super::crashes::{DELEGATES, allow, forbid};
use super::{Errand, child_of, helper, hold_in, run_of_becomes, start, watchful};
use holdpoint_testkit::runs::{model_requests, run_becomes};
use holdpoint_testkit::{Embedded, JsonFields, UNKNOWN, call, eventually};
use serde_json::{Value, json};

/// Completes once the child, its hold and the call have ended.
async fn has_stopped(app: &Embedded, errand: &Errand, hold: &str) {
    let child = child_run(app, &errand.call).await;
    let stopped = async || {
        let status = app.rows.all(&format!("SELECT status FROM runs WHERE run_id = '{child}'")).await;
        let states = app
            .rows
            .all(&format!("SELECT state, result FROM tool_calls WHERE tool_call_id = '{}'", errand.call))
            .await;
        let ended = json!({ "state": "interrupted", "result": UNKNOWN });
        (status == [json!({ "status": "cancelled" })] && states == [ended]).then_some(())
    };
    eventually("the child has stopped and its call with it", stopped).await;
    let held = app.rows.all(&format!("SELECT state FROM tool_calls WHERE tool_call_id = '{hold}'")).await;
    assert_eq!(held, [json!({ "state": "cancelled" })]);
}

async fn child_run(app: &Embedded, call: &str) -> String {
    let sql = format!("SELECT child_run_id FROM tool_calls WHERE tool_call_id = '{call}'");
    app.rows.all(&sql).await[0].text("child_run_id").to_owned()
}

#[tokio::test]
async fn cancelling_the_parents_run_stops_a_child_that_holds() {
    let app = start().await;
    let (errand, hold) = Errand::held(&app).await;
    let before = model_requests(&app);
    let cancelled = app.client.post(&format!("/runs/{}/cancel", errand.run), &Value::Null).await;
    cancelled.has(200, "status", "cancelled");
    has_stopped(&app, &errand, &hold).await;
    assert_eq!(model_requests(&app), before);
    assert_eq!(app.client.approve(&hold).await.code(), "cancelled");
}

#[tokio::test]
async fn cancelling_the_parents_run_stops_a_child_that_runs() {
    let app = start().await;
    app.scene.calls(&[helper("p", "dawdle")]).calls(&[call("p", "dawdle", &json!({ "note": "1" }))]);
    let errand = Errand::begin(&app, "get help").await;
    app.ledger.wait_started().await;
    let child = errand.child(&app.client).await;
    app.client.post(&format!("/runs/{}/cancel", errand.run), &Value::Null).await;
    run_becomes(&app.client, &child, "cancelled").await;
    let ended = app.client.becomes(&errand.call, "interrupted").await;
    assert_eq!(ended["result"], UNKNOWN);
    app.ledger.release.add_permits(1);
}

#[tokio::test]
async fn cancelling_the_parents_running_turn_stops_its_child() {
    let app = start().await;
    let (helper, dawdle) = (helper("p", "pay"), call("d", "dawdle", &json!({ "note": "1" })));
    app.scene.calls(&[helper, dawdle]).calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let thread = app.client.thread().await;
    let turn = app.client.begin(&thread, &json!({ "content": "get help" })).await;
    let run = turn.headers()["x-run-id"].to_str().unwrap().to_owned();
    let hold = hold_in(&app.client, &thread).await;
    app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    run_of_becomes(&app.client, &hold, "cancelled").await;
    assert_eq!(app.client.call(&hold).await["state"], "cancelled");
    run_becomes(&app.client, &run, "cancelled").await;
    let left = "tool_calls WHERE state = 'executing' AND child_run_id IS NOT NULL";
    let none = async || (app.rows.count(left).await == 0).then_some(());
    eventually("the call has ended too", none).await;
    app.ledger.release.add_permits(1);
}

#[tokio::test]
async fn cancelling_the_session_the_call_or_the_child_stops_everything_below_it() {
    let app = start().await;
    for what in ["session", "call"] {
        let (errand, hold) = Errand::held(&app).await;
        let path = match what {
            "session" => format!("/sessions/{}/cancel", errand.thread),
            _ => format!("/tool_calls/{}/cancel", errand.call),
        };
        if what == "call" {
            app.scene.answers("As you like.");
        }
        let cancelled = app.client.post(&path, &Value::Null).await;
        assert_eq!(cancelled.status, 200, "{what}: {:?}", cancelled.body);
        if what == "call" {
            let stands = (&cancelled.body["success"], &cancelled.body["state"]);
            assert_eq!(stands, (&json!(false), &json!("interrupted")), "the answer waits for its end");
        }
        has_stopped(&app, &errand, &hold).await;
        let ends = if what == "session" { "cancelled" } else { "completed" };
        run_becomes(&app.client, &errand.run, ends).await;
    }
    // After a cancel of the child alone, its call ends and the parent resumes.
    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("They stopped it.");
    let child = errand.child(&app.client).await;
    let cancelled = app.client.post(&format!("/runs/{child}/cancel"), &Value::Null).await;
    cancelled.has_status(200);
    has_stopped(&app, &errand, &hold).await;
    run_becomes(&app.client, &errand.run, "completed").await;
}

#[tokio::test]
async fn deleting_the_parents_thread_stops_the_child_and_deleting_the_childs_thread_ends_the_call() {
    let app = start().await;
    let (errand, hold) = Errand::held(&app).await;
    let before = model_requests(&app);
    app.client.delete(&format!("/threads/{}", errand.thread)).await.has_status(204);
    has_stopped(&app, &errand, &hold).await;
    assert_eq!(model_requests(&app), before);

    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("It is gone.");
    let below = errand.child_thread(&app.client).await;
    app.client.delete(&format!("/threads/{below}")).await.has_status(204);
    has_stopped(&app, &errand, &hold).await;
    run_becomes(&app.client, &errand.run, "completed").await;
}

#[tokio::test]
async fn superseding_the_parents_answer_stops_the_child() {
    let app = watchful().await;
    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("Otherwise, then.");
    let question = app.client.messages(&errand.thread).await[0].text("message_id").to_owned();
    let part = json!({ "type": "text", "text": "do it otherwise" });
    let edit = json!({ "trigger": "submit-message", "messageId": question,
                       "messages": [{ "id": question, "role": "user", "parts": [part] }] });
    let turn = app.client.begin(&errand.thread, &edit).await;
    assert_eq!(turn.status(), 200);
    let sent = turn.text().await.unwrap();
    assert!(sent.contains("Otherwise, "), "{sent}");
    has_stopped(&app, &errand, &hold).await;
    run_becomes(&app.client, &errand.run, "cancelled").await;
}

#[tokio::test]
async fn stopping_the_root_stops_the_childs_child() {
    let app = start().await;
    app.scene.calls(&[helper("p", "1")]).calls(&[helper("p", "2")]);
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let errand = Errand::begin(&app, "get help").await;
    let hold = hold_in(&app.client, &errand.thread).await;
    let innermost = app.client.run_of(&hold).await;
    let child = errand.child(&app.client).await;
    let between = app.client.get(&format!("/runs/{child}/events")).await.body;
    let between = between["results"].as_array().map_or(0, Vec::len);
    assert!(between > 0);
    let inner_call =
        app.rows.all(&format!("SELECT tool_call_id FROM tool_calls WHERE run_id = '{child}'")).await[0]
            .text("tool_call_id")
            .to_owned();
    assert_eq!(child_of(&app.client, &inner_call).await, innermost);
    app.client.post(&format!("/runs/{}/cancel", errand.run), &Value::Null).await;
    for run in [&child, &innermost] {
        run_becomes(&app.client, run, "cancelled").await;
    }
    for call in [&errand.call, &inner_call] {
        app.client.becomes(call, "interrupted").await;
    }
    assert_eq!(app.client.call(&hold).await["state"], "cancelled");
}

#[tokio::test]
async fn a_call_stopped_before_its_child_exists_starts_none_and_reports_it() {
    let app = start().await;
    forbid(&app.rows, DELEGATES).await;
    app.scene.calls(&[helper("p", "x")]);
    let thread = app.client.thread().await;
    let turn = app.client.begin(&thread, &json!({ "content": "get help" })).await;
    let run = turn.headers()["x-run-id"].to_str().unwrap().to_owned();
    let call = async || {
        let found = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'executing'").await;
        found.first().map(|call| call.text("tool_call_id").to_owned())
    };
    let call = eventually("the call is claimed", call).await;
    app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    run_becomes(&app.client, &run, "cancelled").await;
    allow(&app.rows).await;
    let ended = app.client.becomes(&call, "failed").await;
    assert_eq!(
        ended["result"],
        "The tool failed: it was stopped before the sub-agent began; nothing was done"
    );
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 0);
}
