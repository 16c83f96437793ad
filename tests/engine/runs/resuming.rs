//! Runs that the server resumes, because the last decision about their calls left the continuation to the
//! server.

use super::{HELD_AND_APPROVED, approve, events_of, last_words, model_requests, reject, run_becomes};
use holdpoint::llm::ModelMessage;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A server with a short sweep interval.
async fn watchful() -> Embedded {
    Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await
}

/// A thread in which the model made these calls of `pay` in one step.
async fn held(app: &Embedded, notes: &[&str]) -> (String, Vec<String>) {
    let thread = app.client.thread().await;
    let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
    app.scene.calls(&calls);
    let turn = app.client.send_message(&thread, "pay").await;
    (thread, turn.pending())
}

/// The tool results in the last request to the model.
fn sent(app: &Embedded) -> Vec<String> {
    let messages = app.scene.requests().pop().unwrap().messages;
    let sent = messages.into_iter().filter_map(|message| match message {
        ModelMessage::Tool { text, .. } => Some(text),
        _ => None,
    });
    sent.collect()
}

/// Completes once the server has looked for runs to resume: it has resumed a run that began later than any
/// other.
async fn the_server_has_looked(app: &Embedded) {
    let (_, id) = app.held("pay", "of another").await;
    app.scene.answers("Paid, of another.");
    approve(&app.client, &id).await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&id).await, "completed").await;
}

#[tokio::test]
async fn an_approved_call_runs_and_the_run_resumes_to_its_answer() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    app.scene.answers("Paid.");
    approve(&app.client, &id).await.has_status(200);
    let ended = run_becomes(&app.client, &run, "completed").await;
    assert_eq!(ended["pending"], json!([]));
    assert_eq!(last_words(&app.client, &thread).await, "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(sent(&app), ["{\"paid\":\"10\"}"]);
    assert_eq!(model_requests(&app), 2, "the model is not asked for the call again");
    assert_eq!(events_of(&app.rows, &run).await, HELD_AND_APPROVED);
    assert_eq!(app.client.messages(&thread).await.len(), 2, "in the same message");
}

#[tokio::test]
async fn the_run_resumes_after_a_rejection_and_the_model_reads_the_reason() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("As you like.");
    reject(&app.client, &id, "too much").await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&id).await, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "As you like.");
    assert_eq!(sent(&app), ["Tool execution rejected by user. Reason: too much"]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_run_resumes_after_the_last_of_several_decisions_and_may_hold_again() {
    let app = watchful().await;
    let (thread, ids) = held(&app, &["1", "2", "3"]).await;
    let run = app.client.run_of(&ids[0]).await;
    approve(&app.client, &ids[0]).await;
    reject(&app.client, &ids[1], "not this").await;
    app.client.becomes(&ids[0], "succeeded").await;
    the_server_has_looked(&app).await;
    let waits = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!((&waits["status"], &waits["pending"]), (&json!("waiting"), &json!([ids[2]])));

    // The model asks for another call in its next step, and the server resumes that hold too.
    app.scene.calls(&[call("4", "pay", &json!({ "note": "4" }))]);
    approve(&app.client, &ids[2]).await;
    let next = async || {
        let run = app.client.get(&format!("/runs/{run}")).await.body;
        run["pending"][0].as_str().map(str::to_owned).filter(|id| *id != ids[2] && run["status"] == "waiting")
    };
    let next = eventually("it waits again", next).await;
    let outcomes =
        ["{\"paid\":\"1\"}", "Tool execution rejected by user. Reason: not this", "{\"paid\":\"3\"}"];
    assert_eq!(sent(&app), outcomes);
    the_server_has_looked(&app).await;
    app.scene.answers("All told.");
    approve(&app.client, &next).await.has_status(200);
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "All told.");
    let resumed = events_of(&app.rows, &run).await;
    assert_eq!(resumed.iter().filter(|event| *event == "run.resumed").count(), 2);
}

#[tokio::test]
async fn the_last_decision_about_the_calls_of_a_run_determines_its_resumer() {
    let app = watchful().await;
    let validate = async |id: &str, resume: Value| {
        let mut body = json!({ "toolCallId": id, "isValidated": true });
        if !resume.is_null() {
            body["resume"] = resume;
        }
        let answer = app.client.validate(&body).await;
        answer.has(200, "state", "succeeded");
    };
    // A page makes the last decision, without `resume` or with `resume: false`.
    for resume in [Value::Null, json!(false)] {
        let (thread, ids) = held(&app, &["1", "2"]).await;
        approve(&app.client, &ids[0]).await.has_status(200);
        app.client.becomes(&ids[0], "succeeded").await;
        validate(&ids[1], resume).await;
        the_server_has_looked(&app).await;
        let run = app.client.run_of(&ids[0]).await;
        assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
        app.scene.answers("By the page.");
        assert_eq!(app.client.resume(&thread).await.text(), "By the page.");
    }
    // A client without a page makes the last decision, or a page with `resume: true`.
    for by_page in [false, true] {
        let (thread, ids) = held(&app, &["1", "2"]).await;
        validate(&ids[0], json!(false)).await;
        app.scene.answers("By the server.");
        if by_page {
            validate(&ids[1], json!(true)).await;
        } else {
            approve(&app.client, &ids[1]).await.has_status(200);
        }
        run_becomes(&app.client, &app.client.run_of(&ids[0]).await, "completed").await;
        assert_eq!(last_words(&app.client, &thread).await, "By the server.");
    }
    // In a batch each decision has its own `resume`.
    let (thread, ids) = held(&app, &["1", "2"]).await;
    app.scene.answers("By the server.");
    let decisions = [
        json!({ "toolCallId": ids[0], "isValidated": false, "resume": false }),
        json!({ "toolCallId": ids[1], "isValidated": true, "resume": true }),
    ];
    app.client.post("/qa/validate_tools", &json!({ "decisions": decisions })).await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&ids[0]).await, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "By the server.");
    let wrong = json!({ "toolCallId": ids[0], "isValidated": true, "resume": "yes" });
    let wrong = app.client.validate(&wrong).await;
    wrong.failed_with(400, "bad_request");
    assert!(wrong.message().starts_with("resume: "), "{}", wrong.message());
}

#[tokio::test]
async fn a_call_that_ends_without_a_decision_does_not_change_the_resumer() {
    let app = watchful().await;
    let expire = async |id: &str| {
        let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
        assert_eq!(app.rows.change(&end).await, Ok(1));
        app.client.becomes(id, "expired").await;
    };
    // No decision has left the continuation to the server.
    let (_, alone) = app.held("pay", "1").await;
    expire(&alone).await;
    the_server_has_looked(&app).await;
    let run = app.client.run_of(&alone).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");

    // The decision about the other call left the continuation to the server. A cancel counts like an expiry.
    for cancelled in [false, true] {
        let (thread, ids) = held(&app, &["2", "3"]).await;
        approve(&app.client, &ids[0]).await.has_status(200);
        app.client.becomes(&ids[0], "succeeded").await;
        app.scene.answers("One paid.");
        if cancelled {
            let cancelled = app.client.post(&format!("/tool_calls/{}/cancel", ids[1]), &Value::Null).await;
            cancelled.has_status(200);
        } else {
            expire(&ids[1]).await;
        }
        run_becomes(&app.client, &app.client.run_of(&ids[0]).await, "completed").await;
        assert_eq!(last_words(&app.client, &thread).await, "One paid.");
    }
}

#[tokio::test]
async fn after_a_newer_message_the_run_is_not_resumed_and_the_outcome_becomes_a_note() {
    let app = watchful().await;
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    app.scene.answers("Hello.");
    assert_eq!(app.client.send_message(&thread, "by the way").await.text(), "Hello.");
    approve(&app.client, &id).await.has_status(200);
    run_becomes(&app.client, &run, "completed").await;
    app.client.becomes(&id, "succeeded").await;
    let before = model_requests(&app);
    the_server_has_looked(&app).await;
    assert_eq!(model_requests(&app), before + 2, "the two requests of the other run");
    app.scene.answers("I see.");
    app.client.send_message(&thread, "well?").await;
    let messages = app.scene.requests().pop().unwrap().messages;
    let notes = messages.iter().filter(
        |message| matches!(message, ModelMessage::User(text) if text.starts_with("[tool outcome] pay")),
    );
    assert_eq!(notes.count(), 1, "{messages:#?}");
    assert!(!events_of(&app.rows, &run).await.contains(&"run.resumed".to_owned()));
}

#[tokio::test]
async fn a_cancelled_run_does_not_resume_after_earlier_decisions() {
    let app = watchful().await;
    let (thread, ids) = held(&app, &["1", "2"]).await;
    let run = app.client.run_of(&ids[0]).await;
    approve(&app.client, &ids[0]).await.has_status(200);
    app.client.becomes(&ids[0], "succeeded").await;
    let cancelled = app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    cancelled.has(200, "status", "cancelled");
    the_server_has_looked(&app).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "cancelled");
    app.client.resume(&thread).await.assert_states_only();
}

#[tokio::test]
async fn a_run_in_a_deleted_thread_does_not_resume() {
    let app = watchful().await;
    let (thread, id) = app.held("wait_for_me", "1").await;
    let run = app.client.run_of(&id).await;
    approve(&app.client, &id).await.has_status(200);
    app.ledger.wait_started().await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    app.ledger.release.add_permits(1);
    let settled = async || {
        let settled = format!("tool_calls WHERE tool_call_id = '{id}' AND state = 'succeeded'");
        (app.rows.count(&settled).await == 1).then_some(())
    };
    eventually("the call has ended", settled).await;
    the_server_has_looked(&app).await;
    assert!(!events_of(&app.rows, &run).await.contains(&"run.resumed".to_owned()));
}

#[tokio::test]
async fn a_run_of_a_user_at_the_turn_limit_resumes_when_another_turn_ends() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        config.approval.sweep = Duration::from_millis(20);
        config.limits.turns_per_user = Some(1);
    })
    .await;
    let nobody = app.client.clone();
    let (alice, bob) = (nobody.as_user("acme", "alice", &[]), nobody.as_user("acme", "bob", &[]));
    app.client = alice.clone();
    let (thread, id) = app.held("pay", "10").await;
    let run = alice.run_of(&id).await;
    let other = alice.thread().await;
    app.scene.calls(&[call("d", "dawdle", &json!({ "note": "1" }))]);
    let busy = alice.begin(&other, &json!({ "content": "be busy" })).await;
    app.ledger.wait_started().await;
    approve(&alice, &id).await.has_status(200);
    alice.becomes(&id, "succeeded").await;
    app.client = bob;
    the_server_has_looked(&app).await;
    assert_eq!(alice.get(&format!("/runs/{run}")).await.body["status"], "waiting");

    app.scene.answers("Busy.").answers("Paid.");
    app.ledger.release.add_permits(1);
    assert_eq!(alice.read_on(busy).await.text(), "Busy.");
    run_becomes(&alice, &run, "completed").await;
    assert_eq!(last_words(&alice, &thread).await, "Paid.");
}

#[tokio::test]
async fn a_run_decided_while_its_turn_still_runs_resumes_after_the_turn() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene
        .calls(&[call("a", "dawdle", &json!({ "note": "1" })), call("b", "pay", &json!({ "note": "2" }))]);
    app.scene.answers("Both done.");
    let turn = app.client.begin(&thread, &json!({ "content": "both" })).await;
    app.ledger.wait_started().await;
    let calls = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE name = 'pay'").await;
    let id = calls[0].text("tool_call_id");
    approve(&app.client, id).await.has_status(200);
    app.client.becomes(id, "succeeded").await;
    app.ledger.release.add_permits(1);
    let turn = app.client.read_on(turn).await;
    assert_eq!(turn.pending(), Vec::<String>::new(), "no call is pending any more: {}", turn.raw);
    run_becomes(&app.client, &app.client.run_of(id).await, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Both done.");
}

#[tokio::test]
async fn a_page_attaches_to_a_turn_that_the_server_resumed() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("Paid.");
    let gate = app.scene.gate();
    approve(&app.client, &id).await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&id).await, "running").await;
    let path = format!("/qa/chat_streamed/{thread}");
    let old = app.client.http.get(app.client.url(&format!("{path}?chatId=x"))).send().await.unwrap();
    let new = app.client.http.get(app.client.url(&format!("{path}/stream"))).send().await.unwrap();
    let posts = app.client.begin_resume(&thread).await;
    assert_eq!((old.status().as_u16(), new.status().as_u16(), posts.status().as_u16()), (200, 200, 200));
    gate.add_permits(100);
    for turn in [app.client.read_on(old).await, app.client.read_on(posts).await] {
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("a8ef0ed", "Paid."));
    }
    let whole = new.text().await.unwrap();
    assert!(whole.contains(&id) && whole.contains("\"Paid.\""), "{whole}");
    assert_eq!(model_requests(&app), 2);
}
