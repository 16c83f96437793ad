//! Lists, events, streams and their reloads have masks.

use super::{assert_hidden, held, input, masked, pointers, server};
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, Socket, Sse, call};
use serde_json::{Value, json};

/// The paths at which people read about a call of a thread.
fn read_at(thread: &str, id: &str) -> Vec<String> {
    let mut paths = vec![
        format!("/tool_calls/{id}"),
        format!("/approvals/{id}"),
        "/approvals".to_owned(),
        "/approvals?state=succeeded".to_owned(),
        format!("/threads/{thread}/approvals"),
        format!("/sessions/{thread}/approvals"),
        format!("/threads/{thread}/messages"),
        format!("/tool_calls/{id}/events"),
    ];
    for dialect in ["v4", "ui-v5", "ui-v6", "ui-v7"] {
        paths.push(format!("/threads/{thread}/messages?format={dialect}"));
    }
    paths
}

async fn assert_masked_everywhere(app: &Embedded, thread: &str, id: &str) {
    for path in read_at(thread, id) {
        let answer = app.client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
        assert_hidden(&answer.body.to_string());
    }
}

#[tokio::test]
async fn a_secret_is_masked_in_lists_events_streams_and_reloads_and_the_tool_and_the_model_have_it() {
    let app = server(|_| {}).await;
    let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
    let mut stream = Sse::open(&app.client, "/events/stream").await;
    let id = held(&app, "login").await;
    for event in stream.until("tool.requires_approval").await {
        assert_hidden(&event.to_string());
    }
    loop {
        let event = socket.next().await.unwrap().unwrap();
        assert_hidden(&event.to_string());
        if event["event"]["type"] == "tool.requires_approval" {
            assert_eq!(event["event"]["data"]["args"], masked());
            break;
        }
    }
    let call = app.client.call(&id).await;
    let thread = call.text("thread_id").to_owned();
    assert_eq!((&call["input"], &call["secret_inputs"]), (&masked(), &pointers()));
    let card = app.client.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(card["card_parts"], json!(["inputs", "secrets"]));
    assert_eq!(card["headline"], "Log ada in with •••?");
    assert_masked_everywhere(&app, &thread, &id).await;

    let approved = app.client.approve(&id).await;
    approved.has_status(200);
    assert_hidden(&approved.body.to_string());
    assert_eq!(app.ledger.lines(), [input().to_string()], "the tool has the inputs as they are");
    app.scene.answers("Done.");
    assert_hidden(&app.client.resume(&thread).await.raw);
    let told = format!("{:?}", app.scene.requests().pop().unwrap().messages);
    assert!(told.contains("hunter2-canary"), "the model reads its own call: {told}");
    assert_masked_everywhere(&app, &thread, &id).await;
}

#[tokio::test]
async fn no_piece_of_a_secret_is_streamed_in_any_dialect_and_a_page_gets_the_masked_inputs_whole() {
    let app = server(|_| {}).await;
    for tool in ["login", "login_now"] {
        for dialect in ["ui-v5", "ui-v6", "ui-v7"] {
            app.scene.calls(&[call("p", tool, &input())]).answers("Done.");
            let chat = format!("{tool}-{dialect}");
            let body = ui_submit(&chat, &[ui_user("u", "log in")]);
            let turn = app.client.ui_turn_as(dialect, &body).await;
            assert_hidden(&turn.raw);
            assert_eq!(turn.all("tool-input-start").len(), 1, "{}", turn.raw);
            assert!(turn.all("tool-input-delta").is_empty(), "{}", turn.raw);
            assert_eq!(turn.one("tool-input-available")["input"], masked());
            app.scene.forget();
        }
        app.scene.calls(&[call("p", tool, &input())]).answers("Done.");
        let turn = app.client.send_message(&app.client.thread().await, "log in").await;
        assert_hidden(&turn.raw);
        assert!(turn.all('c').is_empty(), "{}", turn.raw);
        assert_eq!(turn.one('9')["args"], masked());
        app.scene.forget();
        app.scene.calls(&[call("p", tool, &input())]).answers("Done.");
        let thread = app.client.thread().await;
        let body = json!({ "content": "log in" });
        let turn = app.client.post(&format!("/threads/{thread}/turns"), &body).await;
        turn.has_status(200);
        assert_hidden(&turn.body.to_string());
        app.scene.forget();
    }
    // The pieces of a tool without secrets are streamed.
    app.scene.calls(&[call("p", "pay", &json!({ "note": "1" }))]);
    let turn = app.client.send_message(&app.client.thread().await, "pay").await;
    assert_eq!(turn.all('c').len(), 1);
}

#[tokio::test]
async fn the_card_of_a_stream_names_the_masks_and_the_part_that_an_approval_needs() {
    let app = server(|_| {}).await;
    for (tool, parts) in [("login", json!(["inputs", "secrets"])), ("login_low", json!(["inputs"]))] {
        app.scene.calls(&[call("p", tool, &input())]);
        let body = ui_submit(tool, &[ui_user("u", "log in")]);
        let turn = app.client.ui_turn_as("ui-v7", &body).await;
        let card = turn.parts.iter().find(|part| part["type"] == "data-tool-hold").unwrap()["data"].clone();
        assert_eq!((&card["input"], &card["secretInputs"]), (&masked(), &pointers()));
        assert_eq!(card["cardParts"], parts);
    }
    let (_, plain) = app.held("pay", "1").await;
    let card = app.client.get(&format!("/approvals/{plain}")).await.body;
    assert_eq!((card.get("secret_inputs"), &card["card_parts"]), (None, &json!(["inputs"])));
}

#[tokio::test]
async fn an_error_about_inputs_of_a_tool_with_secrets_quotes_no_value() {
    let app = server(|_| {}).await;
    let wrong = [
        json!({ "user": "ada", "password": ["hunter2-canary"] }),
        json!({ "user": "ada", "card": { "pin": "48151623" } }),
        json!({ "user": "ada", "card": "hunter2-canary" }),
        json!({ "user": "ada", "keys": ["tok-canary-one"] }),
        json!({ "password": "hunter2-canary" }),
    ];
    for (n, arguments) in wrong.iter().enumerate() {
        app.scene.calls(&[call(&format!("w-{n}"), "login", arguments)]).answers("I see.");
        let thread = app.client.thread().await;
        let turn = app.client.send_message(&thread, "log in").await;
        assert_hidden(&turn.raw);
        let stored =
            app.rows.all("SELECT tool_call_id FROM tool_calls ORDER BY tool_call_id DESC LIMIT 1").await;
        let id = stored[0].text("tool_call_id");
        let call = app.client.call(id).await;
        assert_eq!((&call["state"], &call["input"]), (&json!("invalid"), &json!({})), "{call}");
        assert_hidden(&call.to_string());
        let read = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
        assert_hidden(&read.to_string());
    }
    let id = held(&app, "login").await;
    let edit = json!({ "user": "ada", "password": 5, "card": { "pin": "tok-canary-two" } });
    let body = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": edit });
    let refused = app.client.validate(&body).await;
    refused.has_status(422);
    assert_hidden(&refused.body.to_string());
}

#[tokio::test]
async fn a_call_stays_masked_when_its_tool_is_gone_or_has_no_secrets_any_more() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let call = app.client.call(&id).await;
    let thread = call.text("thread_id").to_owned();
    let plain = holdpoint_testkit::probes(&app.ledger);
    let app = app.redeploy(plain).await;
    assert_eq!(app.client.call(&id).await["input"], masked());
    assert_masked_everywhere(&app, &thread, &id).await;
}

#[tokio::test]
async fn the_record_of_an_edit_has_masks_for_people_and_in_the_text_about_it() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let thread = app.client.call(&id).await.text("thread_id").to_owned();
    let mut edit: Value = input();
    edit["password"] = json!("tok-canary-one");
    let body = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": edit });
    let approved = app.client.validate(&body).await;
    approved.has_status(200);
    assert_hidden(&approved.body.to_string());
    assert_eq!(approved.body["validatedInputs"], masked());
    assert!(approved.body.text("result").contains("A person changed the inputs from"));
    let call = app.client.call(&id).await;
    assert_eq!((&call["input"], &call["validated_inputs"]), (&masked(), &masked()));
    assert_eq!(app.ledger.lines(), [edit.to_string()]);
    assert_masked_everywhere(&app, &thread, &id).await;
}
