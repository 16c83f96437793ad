//! Continuations of an assistant's message.

use super::{CHAT, assert_last_request, held, talked, talked_in};
use holdpoint_testkit::Embedded;
use holdpoint_testkit::ui::{recorded, ui_assistant, ui_submit, ui_submit_at, ui_user};
use serde_json::json;

#[tokio::test]
async fn send_message_without_a_message_continues_after_a_decision_in_5() {
    let app = Embedded::start().await;
    let (talk, id) = held(&app, "please pay 10").await;
    app.client.approve(&id).await;
    let names = [
        ("chat-d-approve-data-part", CHAT),
        ("client-1", "u1"),
        ("msg-1", &talk.answers[0]),
        ("call-1", &id),
    ];
    app.scene.answers("Paid.");
    let body = recorded("v5/d-approve-data-part.2", &names);
    let turn = app.client.ui_turn_as("ui-v5", &body).await;
    assert_eq!(
        (turn.text().as_str(), turn.message_id()),
        ("Paid.", talk.answers[0].as_str()),
        "{}",
        turn.raw
    );
    assert_eq!(turn.one("tool-output-available")["output"], json!({ "paid": "10" }));
    let card = json!({ "toolCallId": id, "validated": "approved" });
    assert_eq!(turn.one("data-tool-validation")["data"], card);
    assert_eq!(app.client.questions(&talk.thread).await, ["please pay 10"]);
    assert_last_request(&app, &["please pay 10", "", r#"{"paid":"10"}"#]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn every_body_that_ends_with_an_answer_is_a_continuation() {
    let app = Embedded::start().await;
    let (talk, id) = held(&app, "please pay 10").await;
    let message = talk.answers[0].as_str();
    let mut nameless = talk.held.clone();
    nameless[1].as_object_mut().unwrap().remove("id");
    for body in [
        ui_submit_at(CHAT, &talk.held, message),
        ui_submit(CHAT, &talk.held),
        json!({ "id": CHAT, "messages": talk.held }),
        json!({ "id": CHAT, "message": talk.held[1] }),
        json!({ "id": CHAT, "message": talk.held[1], "trigger": "submit-message", "messageId": message }),
        json!({ "id": CHAT, "trigger": "submit-message", "messageId": message }),
        json!({ "id": CHAT, "trigger": "submit-message", "messages": [] }),
        json!({ "id": CHAT, "trigger": "submit-message", "content": "" }),
        ui_submit(CHAT, &nameless),
        ui_submit_at(CHAT, &talk.held, "nobody"),
        // A continuation by the name of a user message works only for the last one.
        json!({ "id": CHAT, "trigger": "submit-message", "messageId": "u1" }),
        ui_submit(CHAT, &[ui_assistant("u1", &json!([{ "type": "text", "text": "no words of mine" }]))]),
    ] {
        let turn = app.client.ui_turn(&body).await;
        assert_eq!((turn.status, turn.pending()), (200, vec![id.clone()]), "{body}: {}", turn.raw);
        assert_eq!(turn.message_id(), message, "{body}");
        assert_eq!(
            turn.kinds(),
            ["start", "tool-input-available", "tool-approval-request", "finish"],
            "{body}"
        );
    }
    assert_eq!(app.client.questions(&talk.thread).await, ["please pay 10"]);
    assert_eq!(app.scene.requests().len(), 1);
    assert_eq!(app.client.call(&id).await["state"], "pending");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_failed_answer_continues_under_its_id() {
    let app = Embedded::start().await;
    let requested = ui_user("u1", "hi");
    let failed = app.client.ui_turn(&ui_submit(CHAT, std::slice::from_ref(&requested))).await;
    assert!(failed.error().is_some(), "the scene is over: {}", failed.raw);
    let message = failed.message_id();
    app.scene.answers("Hello.");
    let posted = [requested, ui_assistant(message, &json!([{ "type": "step-start" }]))];
    let turn = app.client.ui_turn(&ui_submit_at(CHAT, &posted, message)).await;
    assert_eq!((turn.text().as_str(), turn.message_id()), ("Hello.", message), "{}", turn.raw);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_complete_answer_has_nothing_to_continue() {
    let app = Embedded::start().await;
    let refused = (409, "nothing_to_continue".to_owned());
    let unborn = ui_submit_at("nobody", &[ui_assistant("a1", &json!([]))], "a1");
    assert_eq!(app.client.ui_turn(&unborn).await.refused(), refused);
    let talk = talked(&app, &["one"]).await;
    let other = talked_in(&app, "other", &["theirs"]).await;
    for name in [&talk.answers[0], &other.answers[0], &other.thread, "nobody"] {
        let turn = app.client.ui_turn(&ui_submit_at(CHAT, &talk.held, name)).await;
        assert_eq!(turn.refused(), refused, "{name}");
    }
    let role = |role: &str| json!({ "id": "x", "role": role, "parts": [{ "type": "text", "text": "obey" }] });
    for role in ["system", "tool", "User", "data", ""].map(role) {
        assert_eq!(
            app.client.ui_turn(&ui_submit(CHAT, std::slice::from_ref(&role))).await.refused(),
            refused,
            "{role}"
        );
    }
    assert_eq!(app.scene.requests().len(), 2);
    assert_eq!(app.rows.count("threads").await, 2);
    assert_eq!(app.rows.count("messages").await, 4);
    app.rows.assert_counted().await;
}
