//! Threads at their size limit: they refuse new messages, and turns and decisions in progress complete.

use holdpoint_testkit::{Embedded, JsonFields, Turn, call};
use serde_json::{Value, json};

fn full() -> (u16, String) {
    (409, "thread_full".to_owned())
}

/// Every way to add a message to a thread that has the message `u1`.
async fn additions(app: &Embedded, thread: &str) -> Vec<Turn> {
    let user = |id: &str, words: &str| json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": words }] });
    let bodies = [
        json!({ "content": "more" }),
        json!({ "messages": [{ "role": "user", "content": "one" }, { "role": "user", "content": "more" }] }),
        json!({ "trigger": "submit-message", "messageId": "u1", "message": user("u1", "another") }),
        json!({ "trigger": "regenerate-message", "message": user("u1", "one") }),
    ];
    let mut turns = Vec::new();
    for body in bodies {
        turns.push(app.client.turn(thread, &body).await);
    }
    turns
}

#[tokio::test]
async fn the_message_limit_of_a_thread_counts_superseded_messages() {
    let app = Embedded::with(|config| config.limits.thread_messages = 4).await;
    let thread = app.client.thread().await;
    let first = json!({ "message": { "id": "u1", "role": "user", "content": "one" } });
    app.scene.answers("1").answers("2");
    assert_eq!(app.client.turn(&thread, &first).await.text(), "1");
    assert_eq!(app.client.send_message(&thread, "two").await.text(), "2");
    let before = app.client.messages(&thread).await;
    for turn in additions(&app, &thread).await {
        assert_eq!(turn.refused(), full());
        assert!(turn.raw.contains("4 messages"), "{}", turn.raw);
    }
    assert_eq!(app.client.messages(&thread).await, before, "nothing is cut off");
    app.rows.assert_counted().await;

    // Another thread has its own count, and superseded messages count too.
    let other = app.client.thread().await;
    app.scene.answers("1").answers("1 again").answers("1 once more");
    app.client.turn(&other, &first).await;
    let again = json!({ "messages": [{ "role": "user", "content": "one" }] });
    assert_eq!(app.client.turn(&other, &again).await.text(), "1 again");
    assert_eq!(app.client.turn(&other, &again).await.text(), "1 once more");
    assert_eq!(app.client.turn(&other, &again).await.refused(), full());
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_full_thread_accepts_decisions_and_resumes_its_turn() {
    let app = Embedded::with(|config| config.limits.thread_messages = 2).await;
    let (thread, id) = app.held("pay", "10").await;
    assert_eq!(app.client.send_message(&thread, "and?").await.refused(), full());
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    app.rows.assert_counted().await;
}

/// A server with room for a call with a long note and its result, and for no step after it.
async fn narrow() -> Embedded {
    Embedded::with(|config| {
        config.limits.message_bytes = 200;
        config.limits.thread_bytes = 400;
    })
    .await
}

/// The run of the thread's last message, with its status and error.
async fn run(app: &Embedded, thread: &str) -> Value {
    let messages = app.client.messages(thread).await;
    let run = messages.last().unwrap().text("run_id").to_owned();
    app.client.get(&format!("/runs/{run}")).await.body
}

#[tokio::test]
async fn a_run_ends_before_a_step_that_has_no_room() {
    let app = narrow().await;
    let thread = app.client.thread().await;
    let note = "x".repeat(100);
    app.scene.calls(&[call("a", "look", &json!({ "note": note }))]).answers("never said");
    let turn = app.client.send_message(&thread, "look").await;
    turn.has_status(200);
    assert_eq!(turn.one('a')["result"], json!({ "seen": note }));
    let texts = turn.error();
    assert!(texts.starts_with("thread_full: The conversation is full. Begin a new one."), "{texts}");
    let run = run(&app, &thread).await;
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("thread_full")));
    assert_eq!(app.scene.requests().len(), 1, "the model is not asked again");
    let messages = app.client.messages(&thread).await;
    assert_eq!(messages[1]["status"], "interrupted");
    assert_eq!(messages[1]["parts"][1]["tool_call"]["state"], "succeeded");

    // Resuming is no new message, and ends in the same way.
    let again = app.client.resume(&thread).await;
    again.has_status(200);
    again.failed_with("thread_full");
    let refused = app.client.send_message(&thread, "hi").await;
    assert_eq!(refused.refused(), full());
    assert!(refused.raw.contains("400 bytes"), "{}", refused.raw);
    assert!(app.rows.assert_counted().await >= 400);
    assert_eq!(app.ledger.lines(), [format!("look {note}")]);
}

#[tokio::test]
async fn a_decision_in_a_full_thread_is_accepted_and_its_outcome_is_streamed() {
    let app = narrow().await;
    let note = "x".repeat(100);
    let thread = app.client.thread().await;
    app.scene
        .calls(&[call("a", "pay", &json!({ "note": note })), call("b", "refuse", &json!({ "note": note }))]);
    let held = app.client.send_message(&thread, "pay").await.pending();
    let [pay, refuse] = held.as_slice() else { panic!("{held:?}") };
    assert_eq!(app.client.approve(pay).await.body["state"], "succeeded");
    assert_eq!(app.client.reject(refuse).await.body["state"], "rejected");
    let turn = app.client.resume(&thread).await;
    assert_eq!((turn.status, turn.all('a').len()), (200, 2), "{}", turn.raw);
    turn.failed_with("thread_full");
    assert_eq!(run(&app, &thread).await["error"]["code"], "thread_full");
    assert_eq!(app.ledger.lines(), [format!("pay {note}")]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_message_that_leaves_no_room_for_an_answer_is_rejected() {
    let app = narrow().await;
    let thread = app.client.thread().await;
    for n in 0..2 {
        app.scene.answers("ok");
        assert_eq!(app.client.send_message(&thread, &"x".repeat(150)).await.text(), "ok", "{n}");
    }
    let held = app.rows.assert_counted().await;
    let room = 400 - usize::try_from(held).unwrap();
    assert_eq!(app.client.send_message(&thread, &"x".repeat(room)).await.refused(), full());
    app.scene.answers("ok");
    assert_eq!(app.client.send_message(&thread, &"x".repeat(room - 1)).await.text(), "ok");
    assert_eq!(app.client.send_message(&thread, "x").await.refused(), full());
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_size_of_a_thread_is_counted_on_every_write() {
    let app = Embedded::start().await;
    let (thread, edited) = app.held("pay", "10 é").await;
    let body = json!({ "toolCallId": edited, "isValidated": true, "validatedInputs": { "note": "20 €" } });
    assert_eq!(app.client.validate(&body).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    app.client.resume(&thread).await;
    let rejected = app.hold_in(&thread, "refuse", "a").await;
    app.client.reject(&rejected).await;
    app.scene.then(vec![Ok(holdpoint::llm::ModelEvent::Text("half".to_owned())), Err("broken".to_owned())]);
    app.client.resume(&thread).await;
    app.scene.calls(&[call("", "look", &json!({ "note": "x" })), call("", "none", &json!({}))]).answers("ok");
    app.client.resume(&thread).await;
    let failed = app.hold_in(&thread, "refuse", "b").await;
    app.client.approve(&failed).await;
    app.scene.answers("ok").answers("ok");
    app.client.send_message(&thread, "passed").await;
    let words = app.client.questions(&thread).await;
    let posted: Vec<Value> =
        words.iter().take(2).map(|words| json!({ "role": "user", "content": words })).collect();
    app.client.turn(&thread, &json!({ "messages": posted })).await;
    assert!(app.rows.assert_counted().await > 500);
}
