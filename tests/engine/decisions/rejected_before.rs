//! A model that repeats a call which a person has rejected: the rejection is the answer, and no person is asked again.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};

/// The text that the model reads of a repeat.
const BEFORE: &str = "Tool execution rejected by user: the same call was rejected before, so no person was asked again. The \
                      tool did not run. Do not repeat the call before the user says something.";

fn pay(id: &str, note: &str) -> (String, String, String) {
    call(id, "pay", &json!({ "note": note }))
}

async fn events(app: &Embedded, id: &str) -> Vec<Value> {
    let sql = format!("SELECT type, actor, data FROM events WHERE tool_call_id = '{id}' ORDER BY event_id");
    app.rows.all(&sql).await
}

#[tokio::test]
async fn a_call_that_a_person_rejected_in_the_run_is_answered_with_that_rejection() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    let no = json!({ "toolCallId": first, "isValidated": false, "reason": "not this month" });
    assert_eq!(app.client.validate(&no).await.body["state"], "rejected");

    // The model insists, twice, and with the inputs spelt in another way.
    let spelt = ("spelt".to_owned(), "pay".to_owned(), "{ \"note\" : \"1\\u0030\" }".to_owned());
    app.scene.calls(&[pay("again", "10")]).calls(&[spelt]).answers("I leave it.");
    let turn = app.client.resume(&thread).await;
    assert_eq!((turn.pending(), turn.text().as_str()), (Vec::<String>::new(), "I leave it."), "{}", turn.raw);
    let repeats: Vec<_> = turn.all('9').iter().map(|call| call.text("toolCallId").to_owned()).collect();
    let words = format!("{BEFORE} Reason: not this month");
    let [again, _] = &repeats[..] else { panic!("{}", turn.raw) };
    for repeat in &repeats {
        let shown = app.client.call(repeat).await;
        let state =
            json!([shown["state"], shown["validated"], shown["held"], shown["result"], shown["input"]]);
        assert_eq!(state, json!(["rejected", false, false, words, { "note": "10" }]));
        let decision = &shown["decision"];
        let by = json!([decision["decision"], decision["by"], decision["surface"], decision["reason"]]);
        assert_eq!(by, json!(["reject", "system:rejected", "policy", "not this month"]));
        let [called, blocked] = &events(&app, repeat).await[..] else { panic!() };
        assert_eq!((&called["type"], &blocked["type"]), (&json!("tool.called"), &json!("tool.blocked")));
        assert_eq!(blocked["actor"], "system:rejected");
        let data = blocked.text("data");
        assert!(!data.contains("not this month"), "a person's words are in the decision alone: {data}");
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["decision"], &data["rejected_before"]), (&json!("reject"), &json!(first)));
        // It is not held: there is no call to decide.
        assert_eq!(app.client.approve(repeat).await.code(), "not_found");
    }
    let seen = app.client.get(&format!("/tool_calls/{again}/events")).await.body;
    let blocked = &seen["results"][1];
    assert_eq!((&blocked["type"], &blocked["data"]["state"]), (&json!("tool.blocked"), &json!("rejected")));
    assert_eq!(blocked["data"]["decision"]["reason"], "not this month");
    let last = app.scene.growing_requests().pop().unwrap();
    let read = last
        .messages
        .iter()
        .filter(|message| matches!(message, ModelMessage::Tool { text, .. } if *text == words));
    assert_eq!(read.count(), 2, "{last:#?}");
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);

    // The user's next message begins another run, in which people are asked.
    app.scene.calls(&[pay("later", "10")]);
    let [asked] = &app.client.send_message(&thread, "now you may").await.pending()[..] else { panic!() };
    assert_eq!(app.client.approve(asked).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_call_with_another_tool_inputs_or_run_is_asked_about_after_a_rejection() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    app.client.reject(&first).await;
    for step in [pay("inputs", "11"), call("tool", "mumble", &json!({ "note": "10" }))] {
        app.scene.calls(&[step]);
        let [id] = &app.client.resume(&thread).await.pending()[..] else { panic!() };
        app.client.reject(id).await;
    }
    // Of a step with both, the new one is held and ends the turn; the others are rejected.
    app.scene.calls(&[pay("first", "10"), pay("new", "12"), pay("second", "11")]);
    let turn = app.client.resume(&thread).await;
    let [held] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(app.client.call(held).await["input"], json!({ "note": "12" }));
    let own = "tool_calls WHERE decided_by = 'system:rejected'";
    assert_eq!(app.rows.count(own).await, 2);
    // An approved call may be repeated.
    app.client.approve(held).await;
    app.scene.calls(&[pay("more", "12")]);
    assert_eq!(app.client.resume(&thread).await.pending().len(), 1);
    // Another thread has other runs.
    let (_, elsewhere) = app.held("pay", "10").await;
    assert_eq!(app.client.call(&elsewhere).await["state"], "pending");
}

#[tokio::test]
async fn a_cancelled_call_is_no_rejected_one() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    let cancelled = app.client.post(&format!("/tool_calls/{first}/cancel"), &json!({})).await;
    assert_eq!(cancelled.body["state"], "cancelled");
    app.scene.calls(&[pay("again", "10")]);
    assert_eq!(app.client.resume(&thread).await.pending().len(), 1);
}
