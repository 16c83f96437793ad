//! A tool struct has a flag. Its call is stored with `validated` NULL, an annotation in the stream informs
//! the page, and the stream ends. `validate_tool` runs or rejects the call, and the next POST resumes the
//! turn.

use super::asks_for;
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

#[tokio::test]
async fn a_flagged_tool_is_approved_with_edited_inputs_and_the_next_turn_reads_the_output() {
    let app = Embedded::start().await;
    assert_eq!(app.client.get("/tools/pay").await.body["hil"], true);
    assert_eq!(app.client.get("/tools/look").await.body["hil"], false);

    let (thread, turn) = asks_for(&app, &[("pay", json!({ "note": "1000" }))]).await;
    let id = turn.one('9').text("toolCallId").to_owned();
    assert_eq!(turn.one('8'), &json!([{ "toolCallId": id, "validated": "pending" }]));
    assert!(turn.codes().ends_with("8ed"), "it ends after the annotation: {}", turn.codes());
    let stored = format!("SELECT validated, result FROM tool_calls WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.all(&stored).await, [json!({ "validated": null, "result": null })]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    // Invalid inputs leave the call pending.
    let edited = |inputs: Value| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    app.client.validate(&edited(json!({ "note": 10 }))).await.has_status(422);
    let yes = app.client.validate(&edited(json!({ "note": "10" }))).await;
    assert_eq!(
        (yes.status, &yes.body["success"], &yes.body["state"]),
        (200, &json!(true), &json!("succeeded"))
    );
    assert!(yes.body.text("result").contains("{\"paid\":\"10\"}"), "{:?}", yes.body);
    assert_eq!(
        app.client.validate(&edited(json!({ "note": "10" }))).await.header("idempotent-replayed"),
        Some("true")
    );
    assert_eq!(app.client.reject(&id).await.code(), "already_decided");
    assert_eq!(app.ledger.lines(), ["pay 10"]);

    app.scene.forget();
    app.scene.answers("Paid 10.");
    let reported = app.client.resume(&thread).await;
    assert_eq!(reported.one('8'), &json!([{ "toolCallId": id, "validated": "approved" }]));
    assert_eq!(
        (reported.one('a')["toolCallId"].as_str(), reported.text()),
        (Some(id.as_str()), "Paid 10.".to_owned())
    );
    let read = format!("{:?}", app.scene.growing_requests().last().unwrap());
    assert!(read.contains("paid"), "the model read it: {read}");
    let call = app.client.call(&id).await;
    assert_eq!((&call["validated"], &call["validated_inputs"]), (&json!(true), &json!({ "note": "10" })));
}

#[tokio::test]
async fn a_rejection_is_a_result_and_the_reloaded_page_shows_its_badge() {
    let app = Embedded::start().await;
    let (thread, turn) = asks_for(&app, &[("pay", json!({ "note": "1000" }))]).await;
    let [id] = &turn.pending()[..] else { panic!("{:?}", turn.lines) };
    let no = app.client.reject(id).await;
    no.has(200, "result", "Tool execution rejected by user.");
    app.scene.answers("Then not.");
    assert_eq!(app.client.resume(&thread).await.text(), "Then not.");
    let page = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let badge = &page["results"][1]["annotations"];
    assert_eq!(badge, &json!([{ "toolCallId": id, "validated": "rejected" }]), "{page}");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
