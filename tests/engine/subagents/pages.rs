//! Actions of pages and people while a child executes a call.

use super::{Errand, answers, hold_in, resumed, start, watchful};
use holdpoint::llm::ModelMessage;
use holdpoint_testkit::runs::{last_words, model_requests, run_becomes};
use holdpoint_testkit::ui::{UiTurn, ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{JsonFields, call, eventually};
use serde_json::json;

#[tokio::test]
async fn a_delegating_turn_ends_like_a_hold_without_an_approval_request() {
    let app = start().await;
    let (errand, hold) = Errand::held(&app).await;
    let thread = &errand.thread;
    let stored = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let invocation = &stored["results"][1]["toolInvocations"][0];
    assert_eq!((&invocation["state"], invocation.get("result")), (&json!("call"), None), "{stored}");
    assert_eq!(stored["results"][1].get("annotations"), None, "{stored}");

    // A continuation in the meantime gets an empty turn, and the model is not called.
    let before = model_requests(&app);
    let early = app.client.resume(thread).await;
    assert_eq!((early.status, early.text()), (200, String::new()), "{}", early.raw);
    assert_eq!(early.one('d')["finishReason"], "tool-calls", "{}", early.raw);
    assert!(early.all('8').is_empty() && early.all('a').is_empty(), "{}", early.raw);
    assert_eq!(model_requests(&app), before);

    // The resumed turn starts with the outcome.
    let gate = app.scene.gate();
    app.scene.answers("Paid below.").answers("All is paid.");
    gate.add_permits(2);
    app.client.approve(&hold).await;
    app.client.becomes(&errand.call, "succeeded").await;
    run_becomes(&app.client, &errand.run, "running").await;
    let url = app.client.url(&format!("/qa/chat_streamed/{thread}"));
    let along = app.client.http.get(url).send().await.unwrap();
    gate.add_permits(2);
    let along = app.client.read_on(along).await;
    assert_eq!(along.text(), "All is paid.", "{}", along.raw);
    let outcome = json!({ "toolCallId": errand.call, "result": "Paid below." });
    assert_eq!(along.lines[0], ('a', outcome), "{}", along.raw);
    let stored = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let invocation = &stored["results"][1]["toolInvocations"][0];
    assert_eq!((&invocation["state"], &invocation["result"]), (&json!("result"), &json!("Paid below.")));
    assert_eq!(resumed(&app.rows, &errand.run).await, 1);
}

#[tokio::test]
async fn a_childs_thread_takes_no_message_before_its_end() {
    let app = start().await;
    let (errand, hold) = Errand::held(&app).await;
    let below = errand.child_thread(&app.client).await;
    let question = app.client.messages(&below).await[0].text("message_id").to_owned();
    for body in [
        json!({ "content": "and now?" }),
        json!({ "trigger": "regenerate-message", "messages": [] }),
        json!({ "trigger": "submit-message", "messageId": question,
                "messages": [{ "id": question, "role": "user", "parts": [{ "type": "text", "text": "no" }] }] }),
    ] {
        let refused = app.client.turn(&below, &body).await;
        assert_eq!(refused.refused(), (409, "turn_in_progress".to_owned()), "{body}: {}", refused.raw);
    }
    assert_eq!(app.client.call(&hold).await["state"], "pending");
    app.scene.answers("Paid below.").answers("All is paid.");
    app.client.approve(&hold).await;
    run_becomes(&app.client, &errand.run, "completed").await;
    app.scene.answers("You are welcome.");
    let turn = app.client.send_message(&below, "thank you").await;
    assert_eq!((turn.status, turn.text()), (200, "You are welcome.".to_owned()), "{}", turn.raw);
}

#[tokio::test]
async fn after_a_newer_message_in_the_parents_thread_the_outcome_arrives_later_as_a_note() {
    let app = watchful().await;
    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("Still at it.");
    assert_eq!(app.client.send_message(&errand.thread, "how far is it?").await.text(), "Still at it.");
    let sent = answers(&app.scene.requests().pop().unwrap());
    assert!(sent[0].starts_with("Under way, or cut off"), "{sent:?}");

    app.scene.answers("Paid below.");
    app.client.approve(&hold).await;
    app.client.becomes(&errand.call, "succeeded").await;
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(last_words(&app.client, &errand.thread).await, "Still at it.");
    app.scene.answers("It is paid.");
    app.client.send_message(&errand.thread, "and now?").await;
    let last = app.scene.requests().pop().unwrap();
    let note = "[tool outcome] helper, call p: Paid below.";
    assert!(last.messages.contains(&ModelMessage::User(note.to_owned())), "{:?}", last.messages);
    assert_eq!(resumed(&app.rows, &errand.run).await, 0);
}

#[tokio::test]
async fn a_page_of_the_ui_stream_reads_the_outcome_after_the_run_resumed() {
    let app = start().await;
    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("Paid below.").answers("All is paid.");
    app.client.approve(&hold).await;
    run_becomes(&app.client, &errand.run, "completed").await;
    for format in ["ui-v5", "ui-v6"] {
        let path = format!("/threads/{}/messages?format={format}", errand.thread);
        let parts = async || {
            let stored = app.client.get(&path).await.body;
            let parts = stored["results"][1]["parts"].as_array().cloned()?;
            parts.iter().find(|part| part["type"] == "tool-helper").cloned()
        };
        let part = eventually("the part is there", parts).await;
        let shown = (&part["state"], &part["output"]);
        assert_eq!(shown, (&json!("output-available"), &json!("Paid below.")), "{format}: {part}");
    }
}

#[tokio::test]
async fn a_page_that_approves_a_sub_agent_in_its_post_reads_up_to_the_answer() {
    let app = start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "errand", &json!({ "note": "pay 10" }))]);
    let model_requests =
        app.client.ui_turn_in(&thread, &ui_submit(&thread, &[ui_user("u", "get help")])).await;
    let [id] = model_requests.pending().try_into().unwrap();
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let messages = [
        ui_user("u", "get help"),
        ui_assistant(model_requests.message_id(), &json!([ui_answer(&id, "any", true)])),
    ];
    let posted =
        app.client.begin(&thread, &ui_submit_at(&thread, &messages, model_requests.message_id())).await;
    let hold = hold_in(&app.client, &thread).await;
    app.scene.answers("Paid below.").answers("All is paid.");
    app.client.approve(&hold).await.has_status(200);
    let headers = posted.headers().clone();
    let turn = UiTurn::of(200, headers, posted.text().await.unwrap());
    assert_eq!(turn.text(), "All is paid.", "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["output"], "Paid below.", "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["toolCallId"], json!(id), "{}", turn.raw);
}

#[tokio::test]
async fn a_page_of_4_reads_at_once_that_the_sub_agent_is_running() {
    let app = start().await;
    let (thread, id) = app.held("errand", "pay 10").await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    app.client.approve(&id).await.has_status(202);
    hold_in(&app.client, &thread).await;
    let turn = app.client.resume(&thread).await;
    assert_eq!(turn.codes(), "8ed", "{}", turn.raw);
    assert_eq!(turn.one('8'), &json!([{ "toolCallId": id, "validated": "approved" }]));
    assert_eq!(app.scene.requests().len(), 2, "the model is not called in the meantime");
}
