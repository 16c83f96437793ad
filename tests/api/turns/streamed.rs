//! A turn: the events of its stream, their order, and the stored result.

use holdpoint::llm::FinishReason;
use holdpoint::llm::{ModelEvent, ToolChoice};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn text_is_streamed_and_stored() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let turn = app.client.send_message(&thread, "hi").await;
    assert_eq!(turn.codes(), "f0ed");
    assert_eq!(turn.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(turn.headers["x-vercel-ai-data-stream"], "v1");
    let usage = json!({ "promptTokens": 10, "completionTokens": 5 });
    assert_eq!(*turn.one('e'), json!({ "finishReason": "stop", "usage": usage, "isContinued": false }));
    assert_eq!(*turn.one('d'), json!({ "finishReason": "stop", "usage": usage }));

    let messages = app.client.get(&format!("/threads/{thread}/messages")).await.body;
    let answer = &messages["results"][1];
    assert_eq!(answer["message_id"], turn.one('f')["messageId"]);
    assert_eq!(answer["parts"], json!([{ "type": "step_start" }, { "type": "text", "text": "Hello." }]));
    assert_eq!((&answer["role"], &answer["status"]), (&json!("assistant"), &json!("complete")));
    assert_eq!(answer["usage"], json!({ "input_tokens": 10, "output_tokens": 5 }));
    assert_eq!(answer["run_id"].as_str(), turn.headers["x-run-id"].to_str().ok());
}

#[tokio::test]
async fn ungated_calls_run_within_the_turn_and_the_model_continues() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let two = [call("a", "look", &json!({"note": "1"})), call("b", "look", &json!({"note": "2"}))];
    app.scene.calls(&two).answers("Seen.");
    let turn = app.client.send_message(&thread, "look").await;
    assert_eq!(turn.codes(), "fbcbc99aaef0ed");
    let mut seen: Vec<&Value> = turn.all('a').iter().map(|line| &line["result"]["seen"]).collect();
    seen.sort_by_key(|it| it.as_str());
    assert_eq!(seen, ["1", "2"], "side by side, in any order");
    assert_eq!(turn.all('f')[0], turn.all('f')[1], "one message id in every f:");
    let usage = json!({ "promptTokens": 20, "completionTokens": 10 });
    assert_eq!(turn.one('d')["usage"], usage, "the sum of the steps");
}

#[tokio::test]
async fn a_hold_ends_the_turn_and_the_model_is_not_called_again() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let two = [call("a", "look", &json!({"note": "1"})), call("b", "pay", &json!({"note": "2"}))];
    app.scene.calls(&two).answers("never asked for");
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!(turn.codes(), "fbcbc99a8ed");
    let held = turn.all('9')[1]["toolCallId"].clone();
    assert_eq!(*turn.one('8'), json!([{ "toolCallId": held, "validated": "pending" }]));
    assert_eq!(turn.one('e')["finishReason"], "tool-calls");
    assert_eq!(turn.one('a')["toolCallId"], turn.all('9')[0]["toolCallId"]);
    assert_eq!(app.scene.requests().len(), 1);
    assert_eq!(app.ledger.lines(), ["look 1"]);
    let row = app.rows.all("SELECT state, validated, held FROM tool_calls WHERE name = 'pay'").await;
    assert_eq!(row, [json!({ "state": "pending", "validated": null, "held": true })]);
    let thread = app.client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(thread["pending_count"], 1);
    assert_eq!(thread["active_run_id"].as_str(), turn.headers["x-run-id"].to_str().ok());
}

#[tokio::test]
async fn a_continuation_emits_the_state_of_the_holds_and_extends_the_same_message() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let three = ["1", "2", "3"].map(|note| call(note, "pay", &json!({ "note": note })));
    app.scene.calls(&three);
    let turn = app.client.send_message(&thread, "pay").await;
    let held = turn.pending();
    app.client.approve(&held[0]).await;
    app.client.reject(&held[1]).await;

    let waiting = app.client.resume(&thread).await;
    assert_eq!(waiting.codes(), "aa8ed", "one is pending: no model is asked");
    let words: Vec<&Value> = waiting.one('8').as_array().unwrap().iter().map(|it| &it["validated"]).collect();
    assert_eq!(words, ["approved", "rejected", "pending"]);
    assert_eq!(app.scene.requests().len(), 1);

    app.client.approve(&held[2]).await;
    app.scene.answers("All told.");
    let done = app.client.resume(&thread).await;
    assert_eq!(done.codes(), "aaa8ef0ed");
    assert_eq!(done.all('a')[0], &json!({ "toolCallId": held[0], "result": { "paid": "1" } }));
    assert_eq!(done.all('a')[1]["result"], json!({ "error": "Tool execution rejected by user." }));
    assert_eq!(done.one('f'), turn.one('f'), "the same message");
    let states = app.client.resume(&thread).await;
    assert_eq!(states.codes(), "aaa8ed", "the states again, and no model is asked");
    assert_eq!((states.one('8'), app.scene.requests().len()), (done.one('8'), 2));
    let messages = app.client.get(&format!("/threads/{thread}/messages")).await.body;
    assert_eq!(messages.list("results").len(), 2);
}

#[tokio::test]
async fn of_many_continuations_one_calls_the_model() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    app.scene.answers("Paid.");
    let turns = (0..10).map(|_| app.client.resume(&thread));
    let turns = futures::future::join_all(turns).await;
    let output = turns.iter().filter(|turn| turn.status == 200 && turn.text() == "Paid.").count();
    assert!(output >= 1);
    // One that came after the end gets the states alone.
    assert!(
        turns.iter().all(|turn| turn.status == 200 && (turn.text() == "Paid." || turn.text().is_empty()))
    );
    assert_eq!(app.scene.requests().len(), 2);
}

#[tokio::test]
async fn a_model_error_is_emitted_and_a_continuation_retries() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.then(vec![Ok(ModelEvent::Text("Half".to_owned())), Err("key sk-123 is bad".to_owned())]);
    let turn = app.client.send_message(&thread, "hi").await;
    assert_eq!((turn.status, turn.codes().as_str()), (200, "f03"));
    let error = turn.error();
    assert!(error.starts_with("upstream_error: ") && error.contains("(request "), "{error}");
    assert!(!turn.raw.contains("sk-123"), "{error}");
    let messages = app.client.get(&format!("/threads/{thread}/messages")).await.body;
    assert_eq!(messages["results"][1]["status"], "interrupted");
    assert_eq!(messages["results"][1]["parts"][1]["text"], "Half");

    let path = format!("/runs/{}", turn.headers["x-run-id"].to_str().unwrap());
    let mut run = app.client.get(&path).await.body;
    let finished = run.as_object_mut().unwrap().remove("finished_at").unwrap();
    let expected = json!({
        "run_id": turn.headers["x-run-id"].to_str().unwrap(), "thread_id": thread, "session_id": thread,
        "status": "failed", "pending": [], "created_at": messages["results"][1]["created_at"],
        "error": { "code": "upstream_error", "message": "The model could not be reached, or refused." },
    });
    assert_eq!(run, expected);
    assert!(finished.as_str() > run["created_at"].as_str());

    app.scene.answers("Whole.");
    let again = app.client.resume(&thread).await;
    assert_eq!(again.text(), "Whole.");
    assert_eq!(again.one('f'), turn.one('f'), "the next step of the same message");
    let run = app.client.get(&path).await.body;
    assert_eq!((&run["status"], run.get("error")), (&json!("completed"), None));
    let reported = app.scene.requests()[1].messages.clone();
    assert_eq!(reported.len(), 1, "what broke off is never sent: {reported:?}");
}

#[tokio::test]
async fn an_answer_whose_step_was_closed_meanwhile_ends_no_run_as_completed() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Hello.");
    let close = "UPDATE message_steps SET status = 'interrupted', finished_at = 1 WHERE status = 'streaming'";
    let closed = async {
        eventually("the step is closed", async || (app.rows.change(close).await == Ok(1)).then_some(()))
            .await;
        gate.add_permits(usize::MAX >> 4);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "hi"), closed);
    assert!(turn.codes().ends_with('3'), "{}", turn.raw);
    assert_eq!(app.rows.count("runs WHERE status = 'failed'").await, 1);
    assert_eq!(app.rows.count("events WHERE type = 'run.completed'").await, 0);
    assert_eq!(app.rows.count("message_steps WHERE status = 'complete'").await, 0);
}

#[tokio::test]
async fn a_truncated_call_is_not_held() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let started =
        ModelEvent::CallStarted { index: 0, provider_call_id: "a".to_owned(), tool_name: "pay".to_owned() };
    let part = ModelEvent::CallArguments { index: 0, delta: "{\"note\":\"10\"}".to_owned() };
    let cut = ModelEvent::Finished { reason: FinishReason::Length, usage: None, provider_state: None };
    app.scene.then(vec![Ok(started), Ok(part), Ok(cut)]).answers("Again?");
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!((turn.pending().len(), turn.text().as_str()), (0, "Again?"));
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);
}

#[tokio::test]
async fn the_last_step_has_the_same_tools_and_may_not_call_them() {
    let app = Embedded::with(|config| config.model.max_steps = 2).await;
    let thread = app.client.thread().await;
    let look = [call("", "look", &json!({ "note": "1" }))];
    app.scene.calls(&look).calls(&look).answers("Enough.");
    let turn = app.client.send_message(&thread, "look").await;
    assert_eq!(turn.text(), "Enough.");
    let requests = app.scene.requests();
    let choices: Vec<_> = requests.iter().map(|request| request.tool_choice).collect();
    assert_eq!(choices, [ToolChoice::Auto, ToolChoice::Auto, ToolChoice::None]);
    assert!(!requests[0].tools.is_empty() && requests.iter().all(|it| it.tools == requests[0].tools));
}

#[tokio::test]
async fn only_chosen_tools_are_offered_and_others_are_unknown() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]).answers("No.");
    let turn = app.client.turn(&thread, &json!({ "content": "pay", "tool_selection": ["look"] })).await;
    assert_eq!(turn.pending(), Vec::<String>::new());
    assert_eq!(app.scene.requests()[0].tools.len(), 1);
    for (body, code) in [
        (json!({ "content": "x", "tool_selection": ["steal"] }), "unknown_tool"),
        (json!({ "content": "x", "model": "gpt-0" }), "unknown_model"),
    ] {
        let path = format!("/qa/chat_streamed/{thread}");
        let refused = app.client.post(&path, &body).await;
        assert_eq!(refused.failure(), (422, code));
    }
}

#[tokio::test]
async fn on_sqlite_a_turn_that_broke_after_its_hold_still_stops_at_it() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (thread, id) = app.held("pay", "10").await;
    // The state that a crash leaves between the commit of the hold and the commit of the turn's end.
    app.rows.change("DROP TRIGGER runs_moves").await.unwrap();
    let broken =
        "UPDATE runs SET status = 'failed', error_code = 'interrupted', error_message = 'x', finished_at = 1";
    assert_eq!(app.rows.change(broken).await, Ok(1));
    let waiting = app.client.resume(&thread).await;
    assert_eq!((waiting.codes().as_str(), app.scene.requests().len()), ("8ed", 1));
    app.client.approve(&id).await;
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
}

#[tokio::test]
async fn on_sqlite_a_waiting_continuation_calls_no_model_after_a_newer_user_message() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (thread, first) = app.held("wait_for_me", "1").await;
    app.rows.change("DROP TRIGGER runs_moves").await.unwrap();
    let broken =
        "UPDATE runs SET status = 'failed', error_code = 'interrupted', error_message = 'x', finished_at = 1";
    assert_eq!(app.rows.change(broken).await, Ok(1));
    let write_on = async {
        app.ledger.wait_started().await;
        let waiting = app.client.begin_resume(&thread).await;
        let second = app.hold_in(&thread, "pay", "2").await;
        app.ledger.release.add_permits(1);
        (app.client.read_on(waiting).await, second)
    };
    let (approved, (waited, second)) = futures::join!(app.client.approve(&first), write_on);
    assert_eq!(approved.body["state"], "succeeded");
    assert_eq!(waited.codes(), "a8ed", "the outcome of the call, and no model call after the second hold");
    assert_eq!(app.scene.requests().len(), 2);
    assert_eq!(app.client.call(&second).await["state"], "pending");
}

#[tokio::test]
async fn a_call_decided_while_another_runs_is_not_reported_as_pending() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let two = [call("a", "dawdle", &json!({"note": "1"})), call("b", "pay", &json!({"note": "2"}))];
    app.scene.calls(&two);
    let decide = async {
        app.ledger.wait_started().await;
        let pending = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending'").await;
        app.client.reject(pending[0].text("tool_call_id")).await;
        app.ledger.release.add_permits(1);
    };
    let (turn, ()) = futures::join!(app.client.send_message(&thread, "both"), decide);
    assert_eq!(turn.codes(), "fbcbc99aa8ed");
    assert_eq!(turn.one('8')[0]["validated"], "rejected");
    assert_eq!(turn.all('a')[1]["result"], json!({ "error": "Tool execution rejected by user." }));
}

#[tokio::test]
async fn every_continuation_that_awaits_a_running_call_emits_its_outcome() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.scene.answers("It waited.");
    let go_on = async {
        app.ledger.wait_started().await;
        let first = app.client.begin_resume(&thread).await;
        let second = app.client.begin_resume(&thread).await;
        app.ledger.release.add_permits(1);
        futures::join!(app.client.read_on(first), app.client.read_on(second))
    };
    let (approved, (first, second)) = futures::join!(app.client.approve(&id), go_on);
    assert_eq!(approved.body["state"], "succeeded");
    for turn in [&first, &second] {
        assert_eq!(*turn.one('8'), json!([{ "toolCallId": id, "validated": "approved" }]));
        assert_eq!(turn.one('a')["result"], json!({ "waited": "10" }));
    }
    assert!(first.text() == "It waited." || second.text() == "It waited.");
    assert_eq!(app.scene.requests().len(), 2, "the model was asked once");
}
