//! Sub-agents with an in-process handler.

use super::{answers, helper, run_of_becomes, unwatchful};
use holdpoint::handlers::HandlerAnswer;
use holdpoint_testkit::handlers::{Questions, desk};
use holdpoint_testkit::runs::{last_words, model_requests};
use holdpoint_testkit::{Embedded, JsonFields, Turn, add_agents, call, probes};
use serde_json::json;

const YES: HandlerAnswer = HandlerAnswer::Approved { inputs: None, remember: None };

/// A server with sub-agents and a desk.
async fn office() -> (Embedded, Questions) {
    let (desk, questions) = desk();
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    add_agents(&mut tools);
    (app.redeploy_with_handler(desk, tools, unwatchful).await, questions)
}

fn call_of(turn: &Turn, tool: &str) -> String {
    let calls = turn.all('9');
    let call = calls.iter().find(|call| call["toolName"] == tool).unwrap();
    call.text("toolCallId").to_owned()
}

#[tokio::test]
async fn the_handler_is_asked_about_a_childs_calls_too() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[helper("p", "pay 10")]).calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    app.scene.answers("I paid 10.").answers("All is paid.");
    let turn = app.client.send_message(&thread, "get help").await;
    let delegating = call_of(&turn, "helper");
    let question = questions.next().await;
    assert_eq!((question.request.tool_name.as_str(), question.note()), ("pay", "10"));
    assert_eq!(question.request.session_id.to_string(), thread);
    assert_ne!(question.request.thread_id.to_string(), thread);
    question.answer(YES);
    run_of_becomes(&app.client, &delegating, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "All is paid.");
    assert_eq!((app.ledger.lines(), model_requests(&app)), (vec!["pay 10".to_owned()], 4));
}

#[tokio::test]
async fn a_turn_does_not_wait_for_the_child_that_its_handler_approved() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "errand", &json!({ "note": "look" }))]);
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "go"), questions.answer(YES));
    assert_eq!(turn.codes().chars().last(), Some('d'), "{}", turn.raw);
    // The turn is over, and the child's call reaches the handler.
    let question = questions.next().await;
    app.scene.answers("Paid below.").answers("Paid.");
    question.answer(YES);
    run_of_becomes(&app.client, &id, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Paid.");
    assert_eq!(app.client.call(&id).await["result"], "Paid below.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn the_run_resumes_after_both_the_child_and_the_call_that_the_handler_approved() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[helper("one", "look for it"), call("two", "pay", &json!({ "note": "10" }))]);
    app.scene.answers("Found it.").answers("Both are done.");
    let (turn, paid) = tokio::join!(app.client.send_message(&thread, "do both"), questions.answer(YES));
    let delegating = call_of(&turn, "helper");
    run_of_becomes(&app.client, &delegating, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Both are done.");
    assert_eq!(app.client.call(&paid).await["state"], "succeeded");
    let sent = answers(&app.scene.requests().pop().unwrap());
    assert_eq!(sent, ["Found it.", "{\"paid\":\"10\"}"]);
    assert_eq!((app.ledger.lines(), model_requests(&app)), (vec!["pay 10".to_owned()], 3));
}

#[tokio::test]
async fn a_child_that_fails_after_its_handlers_approval_is_not_retried() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[helper("p", "pay 10")]).calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    app.scene.then(vec![Err("down".to_owned())]).answers("It broke.");
    let turn = app.client.send_message(&thread, "get help").await;
    let delegating = call_of(&turn, "helper");
    questions.answer(YES).await;
    run_of_becomes(&app.client, &delegating, "completed").await;
    assert_eq!(app.client.call(&delegating).await["state"], "failed");
    assert_eq!(last_words(&app.client, &thread).await, "It broke.");
    assert_eq!((app.ledger.lines(), model_requests(&app)), (vec!["pay 10".to_owned()], 4));
}
