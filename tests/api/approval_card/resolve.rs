//! `POST /tool_calls/{tool_call_id}/resolve`: an operator records the outcome of an interrupted call.

use super::{acme, chief, office, office_with};
use futures::future::join_all;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call};
use serde_json::{Value, json};

async fn resolve(client: &Client, id: &str, body: &Value) -> Answer {
    client.post(&format!("/tool_calls/{id}/resolve"), body).await
}

/// A call of `break` with an unknown outcome: its thread and its id.
async fn interrupted(app: &Embedded) -> (String, String) {
    let (thread, id) = app.held("break", "1").await;
    app.client.approve(&id).await;
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
    (thread, id)
}

fn operator(app: &Embedded) -> Client {
    acme(app, "oscar", &["admin"])
}

#[tokio::test]
async fn an_operator_records_that_an_interrupted_call_succeeded_and_the_model_reads_it() {
    let app = office().await;
    let (thread, id) = interrupted(&app).await;
    let oscar = operator(&app);
    assert_eq!(oscar.get(&format!("/approvals/{id}")).await.body["can_resolve"], true);
    assert_eq!(app.client.get(&format!("/approvals/{id}")).await.body["can_resolve"], false);
    let body = json!({ "outcome": "succeeded", "result": { "n": 12_345_678_901_234_567_u64 }, "reason": "I looked." });
    let answer = resolve(&oscar, &id, &body).await;
    assert_eq!((answer.status, answer.body), (200, json!({ "tool_call_id": id, "state": "succeeded" })));

    let result = "An operator established that the tool ran and succeeded. Its output: {\"n\":12345678901234567} \
                  Reason: I looked.";
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["result"]), (&json!("succeeded"), &json!(result)));
    assert_eq!(call["decision"]["by"], "user:alice", "the approver stays the decider");
    let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let last = events.list("results").last().unwrap();
    assert_eq!(
        (&last["type"], &last["actor"], &last["data"]["resolved_by"], &last["data"]["reason"]),
        (&json!("tool.succeeded"), &json!("user:oscar"), &json!("operator"), &json!("I looked."))
    );
    let stored = app.rows.all("SELECT data FROM events WHERE type = 'tool.succeeded'").await;
    assert!(stored[0].text("data").contains(r#""surface":"rest""#), "{stored:?}");
    app.scene.answers("I see.").answers("Good.");
    app.client.send_message(&thread, "and now?").await;
    let sent = format!("{:?}", app.scene.requests());
    assert!(sent.contains("An operator established"), "{sent}");
    assert!(
        app.ledger.lines().iter().filter(|line| line.starts_with("break")).count() <= 1,
        "nothing ran again"
    );
}

#[tokio::test]
async fn a_failure_has_its_text_and_no_output() {
    let app = office().await;
    let (_, id) = interrupted(&app).await;
    let body = json!({ "outcome": "failed", "error": "The bank refused it." });
    assert_eq!(resolve(&operator(&app), &id, &body).await.body["state"], "failed");
    let call = app.client.call(&id).await;
    let result = "An operator established that the tool failed: The bank refused it.";
    assert_eq!(
        (&call["state"], &call["result"], call.get("output")),
        (&json!("failed"), &json!(result), None)
    );
}

#[tokio::test]
async fn only_an_operator_of_the_tenant_resolves_a_call() {
    let app = office().await;
    let (_, id) = interrupted(&app).await;
    let body = json!({ "outcome": "failed", "error": "no" });
    for (client, status) in [
        (app.client.clone(), 403),
        (chief(&app), 403),
        (acme(&app, "bob", &[]), 404),
        (app.client.as_user("other", "oscar", &["admin"]), 404),
    ] {
        assert_eq!(resolve(&client, &id, &body).await.status, status);
    }
    resolve(&operator(&app), "no-id", &body).await.has_status(404);
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
    resolve(&operator(&app), &id, &body).await.has_status(200);
}

#[tokio::test]
async fn without_authentication_the_one_user_resolves_a_call() {
    let app = Embedded::start().await;
    let (_, id) = interrupted(&app).await;
    assert_eq!(app.client.get(&format!("/approvals/{id}")).await.body["can_resolve"], true);
    assert_eq!(
        resolve(&app.client, &id, &json!({ "outcome": "succeeded" })).await.body["state"],
        "succeeded"
    );
    assert_eq!(app.client.call(&id).await["output"], Value::Null);
}

#[tokio::test]
async fn of_several_resolutions_at_once_the_first_one_counts() {
    let app = office().await;
    let (_, id) = interrupted(&app).await;
    let oscar = operator(&app);
    let bodies: Vec<Value> = (0..6)
        .map(|n| match n % 2 {
            0 => json!({ "outcome": "succeeded", "result": n }),
            _ => json!({ "outcome": "failed", "error": format!("no {n}") }),
        })
        .collect();
    let answers = join_all(bodies.iter().map(|body| resolve(&oscar, &id, body))).await;
    let (done, late): (Vec<&Answer>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    let state = &app.client.call(&id).await["state"];
    assert_eq!((done.len(), &done[0].body["state"]), (1, state));
    for answer in late {
        answer.failed_with(409, "not_interrupted");
        assert_eq!(&answer.body["error"]["details"]["state"], state);
    }
    assert_eq!(app.rows.count("events WHERE type IN ('tool.succeeded', 'tool.failed')").await, 1);
}

#[tokio::test]
async fn a_call_that_is_not_interrupted_is_not_resolved() {
    let app = office().await;
    let (_, pending) = app.held("pay", "1").await;
    let (_, rejected) = app.held("pay", "2").await;
    app.client.reject(&rejected).await;
    let (_, succeeded) = app.held("pay", "3").await;
    app.client.approve(&succeeded).await;
    for (id, state) in [(pending, "pending"), (rejected, "rejected"), (succeeded, "succeeded")] {
        for body in [json!({ "outcome": "succeeded" }), json!({ "outcome": "failed", "error": "no" })] {
            let answer = resolve(&operator(&app), &id, &body).await;
            assert_eq!(answer.failure(), (409, "not_interrupted"), "{state}");
            assert_eq!(answer.body["error"]["details"], json!({ "state": state }));
        }
        assert_eq!(app.client.call(&id).await["state"], state);
    }
}

#[tokio::test]
async fn an_interrupted_call_that_was_never_held_is_resolved_too() {
    let app = office_with(|config| config.approval.always_allow = vec!["break".to_owned()]).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("b", "break", &json!({ "note": "1" }))]).answers("Oh.");
    app.client.send_message(&thread, "break it").await;
    let row = app.rows.all("SELECT tool_call_id, state FROM tool_calls").await.remove(0);
    let id = row.text("tool_call_id");
    assert_eq!(row["state"], "interrupted");
    let answer = resolve(&operator(&app), id, &json!({ "outcome": "succeeded" })).await;
    answer.has(200, "state", "succeeded");
}

#[tokio::test]
async fn a_body_that_is_no_outcome_is_refused_and_names_the_field() {
    let app = office().await;
    let (_, id) = interrupted(&app).await;
    let long = "x".repeat(2001);
    for (body, field) in [
        (json!({}), "outcome"),
        (json!({ "outcome": "unknown" }), "outcome"),
        (json!({ "outcome": "failed" }), "error"),
        (json!({ "outcome": "failed", "error": " " }), "error"),
        (json!({ "outcome": "failed", "error": long }), "error"),
        (json!({ "outcome": "failed", "error": "no", "result": 1 }), "result"),
        (json!({ "outcome": "succeeded", "error": "no" }), "error"),
        (json!({ "outcome": "succeeded", "reason": long }), "reason"),
        (json!({ "outcome": "succeeded", "by": "mel" }), "by"),
    ] {
        let answer = resolve(&operator(&app), &id, &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        assert!(answer.message().contains(field), "{body}: {}", answer.message());
    }
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
}
