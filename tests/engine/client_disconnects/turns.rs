//! Clients that disconnect during a turn or a continuation.

use super::{ROUNDS, a_while, all_is_whole, in_rounds};
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{DisconnectKind, Embedded, Leaver, eventually};
use serde_json::{Value, json};

fn path(thread: &str) -> String {
    format!("/qa/chat_streamed/{thread}")
}

async fn answer(app: &Embedded, thread: &str) -> Value {
    app.client.messages(thread).await.pop().unwrap()
}

async fn ended(app: &Embedded, thread: &str) -> Value {
    let over = async || Some(answer(app, thread).await).filter(|answer| answer["status"] != "streaming");
    eventually("the turn ends", over).await
}

/// The status of the thread's runs, oldest first.
async fn runs(app: &Embedded, thread: &str) -> Vec<Value> {
    let sql = format!("SELECT status, error_code FROM runs WHERE thread_id = '{thread}' ORDER BY run_id");
    app.rows.all(&sql).await
}

fn run(status: &str) -> Value {
    json!({ "status": status, "error_code": null })
}

/// The lines of the ledger with this note.
fn ran(app: &Embedded, note: &str) -> Vec<String> {
    let with_note = |line: &String| line.split_once(' ').is_some_and(|(_, written)| written == note);
    app.ledger.lines().into_iter().filter(with_note).collect()
}

/// How far a turn got before its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The model is called; no byte of the answer has been read.
    ModelCalled,
    InWords,
    InArguments,
    InTool,
    /// The hold has been emitted, and the end has not, unless it was faster.
    Held,
}

/// The number of model events: text, a call that runs at once and a call that is held.
const EVENTS: usize = 10;

fn words_and_calls(note: &str) -> [ModelEvent; EVENTS] {
    let begins = |index: usize, tool: &str| ModelEvent::CallStarted {
        index,
        provider_call_id: format!("{tool}-{note}"),
        tool_name: tool.to_owned(),
    };
    let arguments = |index: usize, delta: &str| ModelEvent::CallArguments { index, delta: delta.to_owned() };
    [
        ModelEvent::Text("I will ".to_owned()),
        ModelEvent::Text("pay.".to_owned()),
        begins(0, "dawdle"),
        arguments(0, "{\"note\":"),
        arguments(0, &format!("\"{note}\"}}")),
        ModelEvent::CallFinished { index: 0 },
        begins(1, "pay"),
        arguments(1, &format!("{{\"note\":\"{note}\"}}")),
        ModelEvent::CallFinished { index: 1 },
        ModelEvent::Finished { reason: FinishReason::ToolCalls, usage: None, provider_state: None },
    ]
}

async fn a_turn_continues_after_a_disconnect(phase: Phase) {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    for how in DisconnectKind::ALL {
        let note = format!("{how:?}");
        let thread = app.client.thread().await;
        app.scene.then(words_and_calls(&note).map(Ok).to_vec());
        let asked_before = app.scene.requests().len();

        let mut client = Leaver::sends(&app.client, how, &path(&thread), &json!({ "content": "pay" })).await;
        let (output, received) = match phase {
            Phase::ModelCalled => (0, None),
            Phase::InWords => (1, Some("0:\"I will \"")),
            Phase::InArguments => (4, Some("c:{")),
            Phase::InTool => (EVENTS, Some("9:{")),
            Phase::Held => (EVENTS, Some("8:[{")),
        };
        gate.add_permits(output);
        if phase == Phase::Held {
            app.ledger.release.add_permits(1);
        }
        match received {
            None => app.wait_for_model_requests(asked_before + 1).await,
            Some(text) => client.receives(text).await,
        }
        if phase == Phase::InTool {
            let started = async || (!ran(&app, &note).is_empty()).then_some(());
            eventually("the tool runs", started).await;
        }
        let _connection = client.leaves().await;
        if phase != Phase::Held {
            assert_eq!(
                answer(&app, &thread).await["status"],
                "streaming",
                "{how:?}: the model has more events"
            );
            gate.add_permits(EVENTS - output);
            app.ledger.release.add_permits(1);
        }

        let whole = ended(&app, &thread).await;
        assert_eq!(whole["status"], "complete", "{how:?}: held is complete");
        assert_eq!(whole["parts"][1], json!({ "type": "text", "text": "I will pay." }), "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("waiting")], "{how:?}");
        assert_eq!(ran(&app, &note), [format!("dawdle {note}")], "{how:?}: it ran, the other waits");

        let held = app.client.resume(&thread).await;
        let [id] = &held.pending()[..] else { panic!("{how:?}: {}", held.raw) };
        assert_eq!(app.client.call(id).await["state"], "pending", "{how:?}");
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded", "{how:?}");
        app.scene.answers("Paid.").answers("Still here.");
        gate.add_permits(4);
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.", "{how:?}");
        assert_eq!(app.client.send_message(&thread, "and now?").await.text(), "Still here.", "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("completed"), run("completed")], "{how:?}");
        assert_eq!(ran(&app, &note), [format!("dawdle {note}"), format!("pay {note}")], "{how:?}");
        assert_eq!(gate.available_permits(), 0, "{how:?}: every event was sent");
    }
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_turn_continues_when_its_client_disconnects_before_the_first_byte_of_the_answer() {
    a_turn_continues_after_a_disconnect(Phase::ModelCalled).await;
}

#[tokio::test]
async fn a_turn_continues_when_its_client_disconnects_mid_text() {
    a_turn_continues_after_a_disconnect(Phase::InWords).await;
}

#[tokio::test]
async fn a_turn_continues_when_its_client_disconnects_mid_arguments() {
    a_turn_continues_after_a_disconnect(Phase::InArguments).await;
}

#[tokio::test]
async fn a_turn_continues_when_its_client_disconnects_while_a_tool_runs() {
    a_turn_continues_after_a_disconnect(Phase::InTool).await;
}

#[tokio::test]
async fn a_turn_completes_when_its_client_disconnects_right_after_the_hold() {
    a_turn_continues_after_a_disconnect(Phase::Held).await;
}

#[tokio::test]
async fn a_text_only_turn_completes_without_its_client() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    for how in DisconnectKind::ALL {
        let thread = app.client.thread().await;
        app.scene.answers("Nobody hears this.").answers("Still here.");
        let mut client = Leaver::sends(&app.client, how, &path(&thread), &json!({ "content": "hi" })).await;
        client.receives("f:{").await;
        let _connection = client.leaves().await;
        assert_eq!(answer(&app, &thread).await["status"], "streaming", "{how:?}: no text was sent yet");

        gate.add_permits(2);
        let whole = ended(&app, &thread).await;
        assert_eq!(whole["status"], "complete", "{how:?}");
        assert_eq!(whole["parts"][1]["text"], "Nobody hears this.", "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("completed")], "{how:?}");
        gate.add_permits(2);
        assert_eq!(app.client.send_message(&thread, "and now?").await.text(), "Still here.", "{how:?}");
    }
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_question_with_a_truncated_body_starts_no_turn() {
    let app = Embedded::start().await;
    let mut left = Vec::new();
    for how in DisconnectKind::ALL {
        let thread = app.client.thread().await;
        let half = json!({ "content": "never mind" });
        let client = Leaver::sends_half(&app.client, how, &path(&thread), &half).await;
        left.push((how, thread, client.leaves().await));
    }
    // After all of them, so that a turn that one of them began would be visible.
    for (how, thread, _connection) in left {
        assert!(runs(&app, &thread).await.is_empty(), "{how:?}");
        app.scene.answers("Hello.");
        assert_eq!(app.client.send_message(&thread, "hi").await.text(), "Hello.", "{how:?}");
        assert_eq!(app.client.questions(&thread).await, ["hi"], "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("completed")], "{how:?}");
    }
    assert_eq!(app.scene.requests().len(), DisconnectKind::ALL.len());
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_question_posted_again_after_a_disconnect_reaches_the_model_once() {
    let app = Embedded::start().await;
    for (round, how) in in_rounds() {
        let thread = app.client.thread().await;
        app.scene.answers("Once.");
        let question = json!({ "message": { "id": "m", "role": "user", "content": "hi" } });
        let client = Leaver::sends(&app.client, how, &path(&thread), &question).await;
        a_while(&app, round).await;
        let _connection = client.leaves().await;

        // It is unknown whether the first post arrived. The second starts the turn, tails it, or gets the
        // stored answer.
        let again = app.client.turn(&thread, &question).await;
        assert_eq!((again.status, again.text().as_str()), (200, "Once."), "{how:?}: {}", again.raw);
        assert_eq!(ended(&app, &thread).await["parts"][1]["text"], "Once.", "{how:?}");
        assert_eq!(app.client.questions(&thread).await, ["hi"], "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("completed")], "{how:?}");
    }
    assert_eq!(app.scene.requests().len(), ROUNDS * DisconnectKind::ALL.len());
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_continuation_completes_when_its_client_disconnects_before_the_outcome() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    for how in DisconnectKind::ALL {
        let note = format!("{how:?}");
        gate.add_permits(4);
        let (thread, id) = app.held("wait_for_me", &note).await;
        let yes = json!({ "toolCallId": id, "isValidated": true });
        let mut decider = Leaver::sends(&app.client, DisconnectKind::Fin, "/qa/validate_tool", &yes).await;
        app.ledger.wait_started().await;
        app.scene.answers("Waited.").answers("Still here.");
        let asked_before = app.scene.requests().len();

        let mut client = Leaver::sends(&app.client, how, &path(&thread), &json!({})).await;
        client.receives_head().await;
        let _connection = client.leaves().await;
        assert_eq!(app.client.call(&id).await["state"], "executing", "{how:?}");
        assert_eq!(runs(&app, &thread).await, [run("waiting")], "{how:?}");

        app.ledger.release.add_permits(1);
        decider.receives("succeeded").await;
        // No other request resumes the turn.
        app.wait_for_model_requests(asked_before + 1).await;
        let later = app.client.begin_resume(&thread).await;
        gate.add_permits(2);
        let later = app.client.read_on(later).await;
        assert_eq!(later.one('a'), &json!({ "toolCallId": id, "result": { "waited": note } }), "{how:?}");
        assert_eq!(later.text(), "Waited.", "{how:?}");
        gate.add_permits(2);
        assert_eq!(app.client.send_message(&thread, "and now?").await.text(), "Still here.", "{how:?}");
        assert_eq!(app.scene.requests().len(), asked_before + 2, "{how:?}");
        assert_eq!(ran(&app, &note), [format!("wait_for_me {note}")], "{how:?}");
    }
    all_is_whole(&app).await;
}
