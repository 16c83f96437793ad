//! A new user message while a call is open: the effect on the call, the history that the model reads then and
//! later, and the effect of a late outcome.

use holdpoint::config::{Config, WhilePending};
use holdpoint::llm::{ModelMessage, ModelRequest};
use holdpoint_testkit::{Embedded, UNKNOWN, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

const AWAITING: &str = "Awaiting approval by a person. The tool has not run. Its outcome will be told later; do not \
                        repeat the call.";
const UNDER_WAY: &str =
    "Approved by a person and under way. Its outcome will be told later; do not repeat the call.";
const CANCELLED: &str = "Cancelled, the tool did not run.";
/// A time at which no sweeper begins an approved call within a test.
const IN_A_WHILE: &str = "created_at + 1000000000";

/// A server in this mode, whose deciders wait for no outcome.
async fn server(mode: WhilePending) -> Embedded {
    let change = |config: &mut Config| {
        config.approval.while_pending = mode;
        config.approval.wait = Duration::ZERO;
    };
    Embedded::with(change).await
}

/// The answers of calls in a request, by wire id.
fn answers(request: &ModelRequest) -> Vec<(&str, &str)> {
    let answers = request.messages.iter().filter_map(|message| match message {
        ModelMessage::Tool { call_id, text, .. } => Some((call_id.as_str(), text.as_str())),
        _ => None,
    });
    answers.collect()
}

/// The user messages of a request, including the notes.
fn texts_of(request: &ModelRequest) -> Vec<&str> {
    let texts_of = request.messages.iter().filter_map(|message| match message {
        ModelMessage::User(text) => Some(text.as_str()),
        _ => None,
    });
    texts_of.collect()
}

fn note(id: &str, tool: &str, outcome: &str) -> String {
    format!("[tool outcome] {tool}, call {id}: {outcome}")
}

/// The sent answers of the call with this wire id, in order.
async fn sealed(app: &Embedded, wire_id: &str) -> Vec<(String, String)> {
    let sql = format!(
        "SELECT kind, text FROM sent_answers JOIN tool_calls USING (tool_call_id)
         WHERE wire_call_id = '{wire_id}' ORDER BY n"
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    app.rows.all(&sql).await.iter().map(|row| (text(&row["kind"]), text(&row["text"]))).collect()
}

/// The status of the thread's runs, oldest first.
async fn runs(app: &Embedded, thread: &str) -> Vec<Value> {
    let sql = format!("SELECT status FROM runs WHERE thread_id = '{thread}' ORDER BY run_id");
    app.rows.all(&sql).await.into_iter().map(|row| row["status"].clone()).collect()
}

/// Posts the user's next message. Returns the request in which the model reads it.
async fn send_message(app: &Embedded, thread: &str, words: &str) -> ModelRequest {
    app.scene.answers("I see.");
    assert_eq!(app.client.send_message(thread, words).await.text(), "I see.", "{words}");
    let request = app.scene.growing_requests().pop().unwrap();
    assert_eq!(*texts_of(&request).last().unwrap(), words);
    request
}

/// A thread with a running call of `wait_for_me`, and the id of the call.
async fn running(app: &Embedded) -> (String, String) {
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    (thread, id)
}

/// A thread with one step that requests `pay` with these notes, and the ids of the calls.
async fn several(app: &Embedded, notes: &[&str]) -> (String, Vec<String>) {
    let thread = app.client.thread().await;
    let calls: Vec<_> =
        notes.iter().map(|it| call(&format!("p-{it}"), "pay", &json!({ "note": it }))).collect();
    app.scene.calls(&calls);
    let held = app.client.send_message(&thread, "pay all").await.pending();
    assert_eq!(held.len(), notes.len());
    (thread, held)
}

/// A new message passes a running call, or one that is about to run, in every mode: the call awaits no
/// decision any more.
async fn a_running_call_is_passed(mode: WhilePending) {
    let app = server(mode).await;
    let (thread, id) = running(&app).await;
    let request = send_message(&app, &thread, "and now?").await;
    assert_eq!(answers(&request), [("p-10", UNDER_WAY)]);
    assert_eq!(app.client.call(&id).await["state"], "executing");
    assert_eq!(runs(&app, &thread).await, ["waiting", "completed"]);

    app.ledger.release.add_permits(1);
    app.client.becomes(&id, "succeeded").await;
    assert_eq!(runs(&app, &thread).await, ["completed", "completed"]);
    let outcome = note("p-10", "wait_for_me", "{\"waited\":\"10\"}");
    for (words, expected) in [("is it done?", 1), ("sure?", 1)] {
        let request = send_message(&app, &thread, words).await;
        assert_eq!(texts_of(&request).iter().filter(|it| **it == outcome).count(), expected, "{words}");
        assert_eq!(answers(&request), [("p-10", UNDER_WAY)]);
    }
    let reported = sealed(&app, "p-10").await;
    assert_eq!(reported, [("placeholder".to_owned(), UNDER_WAY.to_owned()), ("note".to_owned(), outcome)]);
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn a_new_message_passes_a_running_call() {
    a_running_call_is_passed(WhilePending::Defer).await;
}

#[tokio::test]
async fn a_new_message_does_not_cancel_a_running_call() {
    a_running_call_is_passed(WhilePending::Cancel).await;
}

#[tokio::test]
async fn a_running_call_awaits_no_approval_and_blocks_no_new_message() {
    a_running_call_is_passed(WhilePending::Reject).await;
}

#[tokio::test]
async fn a_call_withdrawn_between_approval_and_claim_is_sent_as_withdrawn() {
    for mode in [WhilePending::Defer, WhilePending::Cancel, WhilePending::Reject] {
        let app = server(mode).await;
        let (thread, id) = app.held("pay", "10").await;
        app.commit_yes(&id, IN_A_WHILE, "expires_at").await;
        let request = send_message(&app, &thread, "and now?").await;
        assert_eq!(answers(&request), [("p-10", UNDER_WAY)], "{mode:?}");
        assert_eq!(app.client.call(&id).await["state"], "approved", "{mode:?}: the approval is kept");
        let cancelled = app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
        assert_eq!(cancelled.body["state"], "cancelled");
        let request = send_message(&app, &thread, "is it done?").await;
        let reported = ["please pay 10", "and now?", &note("p-10", "pay", CANCELLED), "is it done?"];
        assert_eq!(texts_of(&request), reported, "{mode:?}");
        assert_eq!(runs(&app, &thread).await, ["completed", "completed", "completed"]);
    }
}

#[tokio::test]
async fn of_two_calls_the_decided_one_is_answered_and_the_other_follows_as_a_note() {
    let app = server(WhilePending::Defer).await;
    let (thread, held) = several(&app, &["1", "2"]).await;
    app.client.approve(&held[0]).await;
    app.client.becomes(&held[0], "succeeded").await;
    let request = send_message(&app, &thread, "and the other?").await;
    assert_eq!(answers(&request), [("p-1", "{\"paid\":\"1\"}"), ("p-2", AWAITING)]);
    assert_eq!(runs(&app, &thread).await, ["waiting", "completed"]);
    let listed = app.client.get(&format!("/threads/{thread}")).await.body;
    let first_run = app.client.call(&held[1]).await["run_id"].clone();
    assert_eq!((&listed["pending_count"], &listed["active_run_id"]), (&json!(1), &first_run));
    app.client.resume(&thread).await.assert_states_only();

    let no = json!({ "toolCallId": held[1], "isValidated": false, "reason": "enough" });
    assert_eq!(app.client.validate(&no).await.body["state"], "rejected");
    assert_eq!(runs(&app, &thread).await, ["completed", "completed"]);
    app.client.resume(&thread).await.assert_states_only();
    let request = send_message(&app, &thread, "well?").await;
    let reported = note("p-2", "pay", "Tool execution rejected by user. Reason: enough");
    assert_eq!(texts_of(&request), ["pay all", "and the other?", reported.as_str(), "well?"]);
    assert_eq!(answers(&request), [("p-1", "{\"paid\":\"1\"}"), ("p-2", AWAITING)]);
}

#[tokio::test]
async fn several_late_outcomes_are_each_sent_once_in_the_order_of_the_calls() {
    let app = server(WhilePending::Defer).await;
    let (thread, held) = several(&app, &["1", "2", "3"]).await;
    send_message(&app, &thread, "and now?").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{}'", held[2]);
    assert_eq!(app.rows.change(&overdue).await, Ok(1));
    assert_eq!(app.client.approve(&held[2]).await.code(), "expired");
    app.client.reject(&held[1]).await;
    app.client.approve(&held[0]).await;
    app.client.becomes(&held[0], "succeeded").await;

    let first = send_message(&app, &thread, "how did they go?").await;
    let notes = [
        note("p-1", "pay", "{\"paid\":\"1\"}"),
        note("p-2", "pay", "Tool execution rejected by user."),
        note("p-3", "pay", "Nobody approved this in time, it expired. The tool did not run."),
    ];
    let mut reported = vec!["pay all", "and now?"];
    reported.extend(notes.iter().map(String::as_str));
    reported.push("how did they go?");
    assert_eq!(texts_of(&first), reported);
    assert_eq!(answers(&first), [("p-1", AWAITING), ("p-2", AWAITING), ("p-3", AWAITING)]);
    let last = send_message(&app, &thread, "thanks").await;
    reported.push("thanks");
    assert_eq!(texts_of(&last), reported, "once");
}

#[tokio::test]
async fn a_late_outcome_is_sent_a_second_time_and_not_a_third() {
    let app = server(WhilePending::Defer).await;
    let (thread, id) = running(&app).await;
    send_message(&app, &thread, "and now?").await;
    // Without a wait, the call may or may not be abandoned by the time of the response.
    let requested = app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await.status;
    assert!(matches!(requested, 200 | 202), "{requested}");
    app.client.becomes(&id, "interrupted").await;
    send_message(&app, &thread, "and?").await;
    // The row as the runner of a reaped call writes it.
    let late = format!(
        "UPDATE tool_calls SET state = 'succeeded', output = '{{}}', result = 'It went well.' WHERE tool_call_id = '{id}'"
    );
    assert_eq!(app.rows.change(&late).await, Ok(1));
    send_message(&app, &thread, "so?").await;
    let request = send_message(&app, &thread, "sure?").await;
    let (unknown, well) =
        (note("p-10", "wait_for_me", UNKNOWN), note("p-10", "wait_for_me", "It went well."));
    let reported = ["please wait_for_me 10", "and now?", &unknown, "and?", &well, "so?", "sure?"];
    assert_eq!(texts_of(&request), reported);
    let kinds: Vec<_> = sealed(&app, "p-10").await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["placeholder", "note", "note"]);
}

#[tokio::test]
async fn a_decision_during_the_next_turn_is_sent_before_the_message_after_it() {
    let app = server(WhilePending::Defer).await;
    let (thread, id) = app.held("pay", "10").await;
    let gate = app.scene.gate();
    app.scene.calls(&[call("l", "look", &json!({ "note": "x" }))]).answers("I see.");
    let decide = async {
        gate.add_permits(3);
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        app.client.approve(&id).await;
        app.client.becomes(&id, "succeeded").await;
        gate.add_permits(3);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "look"), decide);
    assert_eq!(turn.text(), "I see.", "{}", turn.raw);
    let [_, first, second] = &app.scene.growing_requests()[..] else { panic!() };
    assert_eq!(answers(first), [("p-10", AWAITING)]);
    assert_eq!(answers(second), [("p-10", AWAITING), ("l", "{\"seen\":\"x\"}")], "a turn reads one history");
    assert_eq!(texts_of(second), ["please pay 10", "look"]);
    gate.add_permits(4);
    let outcome = note("p-10", "pay", "{\"paid\":\"10\"}");
    let reported = ["please pay 10", "look", outcome.as_str(), "and?", "sure?"];
    assert_eq!(texts_of(&send_message(&app, &thread, "and?").await), reported[..4]);
    assert_eq!(texts_of(&send_message(&app, &thread, "sure?").await), reported);
}

#[tokio::test]
async fn a_decision_while_the_next_turn_is_held_is_sent_before_the_message_after_it() {
    let app = server(WhilePending::Defer).await;
    let (thread, first) = app.held("pay", "1").await;
    let second = app.hold_in(&thread, "pay", "2").await;
    for id in [&first, &second] {
        app.client.approve(id).await;
        app.client.becomes(id, "succeeded").await;
    }
    app.scene.answers("Both are paid?");
    assert_eq!(app.client.resume(&thread).await.text(), "Both are paid?");
    let went_on = app.scene.growing_requests().pop().unwrap();
    assert_eq!(answers(&went_on), [("p-1", AWAITING), ("p-2", "{\"paid\":\"2\"}")]);
    let request = send_message(&app, &thread, "and?").await;
    let reported = note("p-1", "pay", "{\"paid\":\"1\"}");
    assert_eq!(texts_of(&request), ["please pay 1", "please pay 2", reported.as_str(), "and?"]);
}

#[tokio::test]
async fn in_cancel_mode_decided_calls_keep_their_outcome_and_no_outcome_is_sent_twice() {
    let app = server(WhilePending::Cancel).await;
    let (thread, held) = several(&app, &["1", "2", "3"]).await;
    app.client.approve(&held[0]).await;
    app.client.becomes(&held[0], "succeeded").await;
    app.client.reject(&held[1]).await;
    let request = send_message(&app, &thread, "leave it").await;
    let reported =
        [("p-1", "{\"paid\":\"1\"}"), ("p-2", "Tool execution rejected by user."), ("p-3", CANCELLED)];
    assert_eq!(answers(&request), reported);
    assert_eq!(runs(&app, &thread).await, ["completed", "completed"]);
    for late in [app.client.approve(&held[2]).await, app.client.reject(&held[2]).await] {
        late.failed_with(409, "cancelled");
    }
    let request = send_message(&app, &thread, "and?").await;
    assert_eq!(texts_of(&request), ["pay all", "leave it", "and?"], "every outcome was sent in its place");
    assert_eq!(answers(&request), reported);
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    let cancelled = "events WHERE type = 'tool.cancelled' AND actor = 'user:local'";
    assert_eq!(app.rows.count(cancelled).await, 1);
}

#[tokio::test]
async fn in_reject_mode_a_new_message_passes_once_the_last_call_is_decided() {
    let app = server(WhilePending::Reject).await;
    let (thread, held) = several(&app, &["1", "2"]).await;
    app.client.approve(&held[0]).await;
    app.client.becomes(&held[0], "succeeded").await;
    let refused = app.client.send_message(&thread, "and?").await;
    assert_eq!(refused.refused(), (409, "awaiting_approval".to_owned()));
    assert_eq!(app.client.questions(&thread).await, ["pay all"]);
    assert_eq!((app.scene.requests().len(), app.rows.count("runs").await), (1, 1));
    app.client.reject(&held[1]).await;
    let request = send_message(&app, &thread, "and?").await;
    let reported = [("p-1", "{\"paid\":\"1\"}"), ("p-2", "Tool execution rejected by user.")];
    assert_eq!(answers(&request), reported);
    assert_eq!(app.rows.count("sent_answers WHERE kind <> 'answer'").await, 0);
    assert_eq!(app.rows.count("sent_answers").await, 2);
}

#[tokio::test]
async fn a_held_call_blocks_no_edit_and_no_regeneration_in_any_mode() {
    for mode in [WhilePending::Defer, WhilePending::Cancel, WhilePending::Reject] {
        let app = server(mode).await;
        let (thread, id) = app.held("pay", "10").await;
        app.scene.answers("Rather not.");
        let anew = json!({ "messages": [{ "role": "user", "content": "please pay 10" }] });
        assert_eq!(app.client.turn(&thread, &anew).await.text(), "Rather not.", "{mode:?}");
        assert_eq!(app.client.call(&id).await["state"], "cancelled", "{mode:?}");
        assert_eq!(texts_of(&app.scene.requests()[1]), ["please pay 10"], "{mode:?}");
    }
}
