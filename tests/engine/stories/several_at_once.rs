//! An agent requests several calls in one step. A person answers all of them in one message, each by its id.
//! A missing answer is no approval, a rejection may have a reason, and a reloaded page shows each card in its
//! current state.

use super::{asks_for, cards};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

#[tokio::test]
async fn several_calls_are_decided_together_by_id_and_a_reloaded_page_shows_them_so() {
    let app = Embedded::start().await;
    let steps = [
        ("look", json!({ "note": "the pods" })),
        ("pay", json!({ "note": "1" })),
        ("pay", json!({ "note": "2" })),
        ("pay", json!({ "note": "3" })),
    ];
    let (thread, turn) = asks_for(&app, &steps).await;
    let [first, second, third] = &turn.pending()[..] else { panic!("{:?}", turn.lines) };
    assert_eq!(app.ledger.lines(), ["look the pods"], "the ungated call has run");

    let decisions = json!({ "decisions": [
        { "toolCallId": first, "isValidated": true },
        { "toolCallId": second, "isValidated": false, "reason": "it is the wrong cluster" },
    ] });
    let answer = app.client.post("/qa/validate_tools", &decisions).await;
    let results = answer.body.list("results");
    let reported: Vec<(&Value, &Value)> = results.iter().map(|one| (&one["status"], &one["state"])).collect();
    assert_eq!(reported, [(&json!(200), &json!("succeeded")), (&json!(200), &json!("rejected"))]);
    let why = "Tool execution rejected by user. Reason: it is the wrong cluster";
    assert_eq!(results[1]["result"], why);

    // Two tabs that reload the page.
    for tab in [&app.client, &app.client.clone()] {
        let cards = cards(tab, &thread).await;
        let states: Vec<&Value> = cards.iter().map(|card| &card["state"]).collect();
        assert_eq!(states, ["output-available", "output-available", "output-denied", "approval-requested"]);
        assert_eq!(cards[3]["approval"], json!({ "id": third }), "the third was not answered");
    }
    // Resuming requests the remaining approvals again and calls no model.
    let requests = app.scene.requests().len();
    assert_eq!(app.client.resume(&thread).await.pending(), std::slice::from_ref(third));
    assert_eq!(app.scene.requests().len(), requests);

    assert_eq!(app.client.approve(third).await.body["state"], "succeeded");
    app.scene.forget();
    app.scene.answers("Two are paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Two are paid.");
    let read = format!("{:?}", app.scene.growing_requests().last().unwrap());
    assert!(read.contains(why), "the model reads why: {read}");
    let mut ran = app.ledger.lines();
    ran.sort();
    assert_eq!(ran, ["look the pods", "pay 1", "pay 3"]);
    let states: Vec<Value> =
        cards(&app.client, &thread).await.iter().map(|card| card["state"].clone()).collect();
    assert_eq!(states, ["output-available", "output-available", "output-denied", "output-available"]);
}

#[tokio::test]
async fn a_batch_that_names_a_call_twice_or_no_call_decides_nothing() {
    let app = Embedded::start().await;
    let (_, turn) = asks_for(&app, &[("pay", json!({ "note": "1" })), ("pay", json!({ "note": "2" }))]).await;
    let [first, second] = &turn.pending()[..] else { panic!("{:?}", turn.lines) };
    let yes = |id: &str| json!({ "toolCallId": id, "isValidated": true });
    for wrong in [
        json!({ "decisions": [yes(first), yes(first)] }),
        json!({ "decisions": [yes(first), { "toolCallId": second }] }),
        json!({ "decisions": [yes(first), { "isValidated": true }] }),
    ] {
        assert_eq!(app.client.post("/qa/validate_tools", &wrong).await.status, 400, "{wrong}");
    }
    for id in [first, second] {
        assert_eq!(app.client.call(id).await["state"], "pending");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
