//! Answers of a service, and the states in which they leave a call.

use super::{HERE, Office, approved, hold, tool};
use holdpoint_testkit::{JsonFields, ServiceAction, UNKNOWN};
use serde_json::json;

#[tokio::test]
async fn a_refusal_in_words_is_a_failure_and_every_other_answer_leaves_the_outcome_unknown() {
    let office = Office::with_delete(ServiceAction::Hangs, "timeout = \"5s\"").await;
    let server = office.start(&[]);
    let elsewhere = format!("{}/elsewhere", office.remote.base);
    let mut sent = 0;
    let said = format!("{UNKNOWN} The service said: it broke");
    for (does, state, result) in [
        (ServiceAction::answers(200, "done"), "succeeded", "done"),
        (ServiceAction::answers(200, ""), "succeeded", "null"),
        (ServiceAction::AnswersTwice("\"once\"".to_owned()), "succeeded", "once"),
        (
            ServiceAction::answers(409, r#"{"error":"it is locked"}"#),
            "failed",
            "The tool failed: it is locked",
        ),
        (ServiceAction::answers(404, "not here"), "interrupted", UNKNOWN),
        (ServiceAction::answers(202, r#"{"error":"later"}"#), "interrupted", UNKNOWN),
        (ServiceAction::answers(204, ""), "interrupted", UNKNOWN),
        (ServiceAction::answers(500, r#"{"error":"it broke"}"#), "interrupted", said.as_str()),
        (ServiceAction::answers(503, ""), "interrupted", UNKNOWN),
        (ServiceAction::Redirects(elsewhere), "interrupted", UNKNOWN),
        (ServiceAction::Resets, "interrupted", UNKNOWN),
        (ServiceAction::BreaksOff, "interrupted", UNKNOWN),
    ] {
        sent += 1;
        office.remote.next([does.clone()]);
        let call = approved(&server.client, &format!("file-{sent}")).await;
        assert_eq!((&call["state"], &call["result"]), (&json!(state), &json!(result)), "{does:?}");
        assert_eq!(office.remote.received().len(), sent, "{does:?}: one request, and no other");
    }
    assert_eq!(office.remote.received_at("/elsewhere").len(), 0);
}

#[tokio::test]
async fn a_service_that_never_answers_leaves_the_outcome_unknown_after_the_timeout_of_the_tool() {
    let office = Office::with_delete(ServiceAction::Hangs, "timeout = \"300ms\"").await;
    let server = office.start(&[]);
    let call = approved(&server.client, "a").await;
    assert_eq!((&call["state"], &call["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    office.remote.wait_left().await;
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_and_the_connection_is_closed() {
    let office = Office::with_delete(ServiceAction::Floods(200), "").await;
    let server = office.start(&[("HOLDPOINT_LIMITS__RESULT_BYTES", "3000")]);
    let call = approved(&server.client, "a").await;
    let output = call.text("output");
    assert!(output.len() <= 3000 && output.starts_with("xxx") && output.ends_with(" […cut]"), "{output}");
    assert_eq!(call["state"], "succeeded");
    office.remote.wait_left().await;

    office.remote.now(ServiceAction::Floods(400));
    assert_eq!(approved(&server.client, "b").await["state"], "interrupted");
    office.remote.wait_left().await;
}

#[tokio::test]
async fn an_idempotent_tool_gets_the_same_request_again_after_an_unknown_outcome() {
    let office = Office::with_delete(ServiceAction::answers(200, "\"done\""), "idempotent = true").await;
    office.remote.next([ServiceAction::Resets, ServiceAction::answers(503, "")]);
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await;
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "done");
    let received = office.remote.received();
    let attempts: Vec<_> = received.iter().map(|it| it.json()["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(received.iter().all(|it| it.header("webhook-id") == id && it.header("idempotency-key") == id));
    assert!(received.iter().all(|it| it.json()["input"] == json!({ "path": "a" })));
}

#[tokio::test]
async fn a_turn_ends_without_waiting_for_the_next_attempt_and_the_model_reads_the_outcome_later() {
    let entry = tool("list_files", "{url}", "hil = false\nidempotent = true");
    let office =
        Office::new(ServiceAction::answers(200, r#"{"files":["a"]}"#), &format!("{HERE}{entry}")).await;
    office.remote.next([ServiceAction::answers(503, "")]);
    let server = office.start(&[]);
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "list files").await;
    assert_eq!(turn.one('d')["finishReason"], "stop", "{}", turn.raw);
    let id = turn.one('9').text("toolCallId").to_owned();
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], json!({ "files": ["a"] }));
    assert_eq!(office.remote.received().len(), 2);
    server.client.send_message(&thread, "what happened").await;
    let notes = office.rows().await.all("SELECT text FROM sent_answers WHERE kind = 'note'").await;
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.text("text").ends_with(r#": {"files":["a"]}"#), "{note}");
}

#[tokio::test]
async fn an_idempotent_tool_gets_no_fourth_request() {
    let office = Office::with_delete(ServiceAction::answers(503, ""), "idempotent = true").await;
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await;
    assert_eq!(server.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert_eq!(office.remote.received().len(), 3);
    let rows = office.rows().await;
    let sql = format!("SELECT type FROM events WHERE tool_call_id = '{id}' ORDER BY at, event_id");
    let events = rows.all(&sql).await;
    let started = events.iter().filter(|row| row["type"] == "tool.started").count();
    assert_eq!(started, 3, "{events:?}");
}

#[tokio::test]
async fn a_cancel_closes_the_connection_and_leaves_the_outcome_unknown() {
    let office = Office::with_delete(ServiceAction::Hangs, "idempotent = true").await;
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await.has_status(202);
    office.remote.wait_received(1).await;
    let cancel = server.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await;
    assert_eq!(cancel.body["success"], false, "{:?}", cancel.body);
    office.remote.wait_left().await;
    assert_eq!(server.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn the_service_is_asked_for_the_outcome_of_an_interrupted_call() {
    let lines = "verify_url = \"{url}/verify\"";
    let office = Office::with_delete(ServiceAction::answers(500, ""), lines).await;
    let server = office.start(&[]);
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "delete a").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    server.client.approve(id).await;
    assert_eq!(server.client.becomes(id, "interrupted").await["result"], UNKNOWN);
    office.remote.now(ServiceAction::answers(200, r#"{"outcome":"unknown"}"#));
    let requested = office.remote.received_at("/verify").len() + 2;
    let enough = async || (office.remote.received_at("/verify").len() >= requested).then_some(());
    holdpoint_testkit::eventually("the service is asked again", enough).await;
    assert_eq!(server.client.call(id).await["state"], "interrupted");
    office.remote.now(ServiceAction::answers(200, r#"{"outcome":"succeeded","result":{"deleted":"a"}}"#));
    assert_eq!(server.client.becomes(id, "succeeded").await["output"], json!({ "deleted": "a" }));

    assert_eq!(office.remote.received_at("/delete").len(), 1);
    let requested = office.remote.received_at("/verify");
    let question = json!({
        "type": "tool.verify",
        "tool_call_id": id,
        "tool_name": "delete_file",
        "requester": { "tenant_id": "default", "user_id": "local" },
    });
    assert!(requested.iter().all(|it| it.json() == question), "{requested:?}");
    let ids: std::collections::BTreeSet<&str> = requested.iter().map(|it| it.header("webhook-id")).collect();
    assert_eq!(ids.len(), requested.len(), "each question is a message of its own");
    assert!(requested.iter().all(|it| !it.headers.contains_key("idempotency-key")));
}

#[tokio::test]
async fn a_service_that_promises_that_nothing_happened_fails_the_call() {
    let lines = "verify_url = \"{url}/verify\"";
    let office = Office::with_delete(ServiceAction::answers(200, r#"{"outcome":"failed"}"#), lines).await;
    office.remote.next([ServiceAction::Resets]);
    let server = office.start(&[]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await;
    let call = server.client.becomes(&id, "failed").await;
    assert!(call.text("result").contains("nothing happened and nothing will"), "{call}");
}

#[tokio::test]
async fn a_tool_that_fails_in_a_later_attempt_leaves_the_outcome_unknown() {
    let then = ServiceAction::answers(409, r#"{"error":"the key is in use"}"#);
    let office = Office::with_delete(then, "idempotent = true").await;
    office.remote.next([ServiceAction::Resets]);
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await;
    let call = server.client.becomes(&id, "interrupted").await;
    assert!(call.text("result").contains("the key is in use"), "{call}");
}
