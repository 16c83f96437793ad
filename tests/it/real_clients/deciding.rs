//! What a page shows of calls that wait for a person, by each way it has to go on.

use super::page::{Page, drive, reload};
use super::saying::{Piece, step};
use crate::support::Embedded;
use serde_json::{Value, json};

const GO_ON: &str = "POST /qa/chat_streamed";
const DECIDE: &str = "POST /qa/validate_tool";

/// A model that asks for a payment and then says that it is done, and a page that decides and goes on so.
async fn decide(scenario: &str, after: &str, flags: &[&str]) -> (Embedded, Page) {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")])).says("Done.");
    let flags = [&["--message", "pay", "--message", "go on", "--after", after], flags].concat();
    let page = drive(&app, scenario, &flags).await;
    (app, page)
}

/// The result that the model read last.
fn read(app: &Embedded) -> String {
    let requests = app.scene.requests();
    let messages = requests.last().unwrap().messages.iter().map(|message| format!("{message:?}"));
    messages.collect::<Vec<_>>().join("\n")
}

/// The one call of a message, as the page shows it.
fn shown(message: &Value) -> (&Value, &Value) {
    let [call] = &message["toolInvocations"].as_array().unwrap()[..] else { panic!("{message}") };
    (&call["state"], &call["result"])
}

fn rejected() -> Value {
    json!({ "error": "Tool execution rejected by user." })
}

#[tokio::test]
async fn an_approval_and_a_new_message_leave_the_card_as_it_was_until_the_reload() {
    let (app, page) = decide("approve", "next-turn", &[]).await;
    page.looks_like("d-approve-next-turn.2");
    assert_eq!(page.validated[0]["answer"]["state"], "succeeded");
    page.equals_reload_but_for(&app, &page.calls()).await;
    assert_eq!(shown(&reload(&app).await[1]), (&json!("result"), &json!({ "paid": "10" })));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert!(read(&app).contains(r#"{\"paid\":\"10\"}"#), "{}", read(&app));
}

#[tokio::test]
async fn a_denial_and_a_new_message_leave_the_card_as_it_was_until_the_reload() {
    let (app, page) = decide("deny", "next-turn", &[]).await;
    page.looks_like("d-deny-next-turn.2");
    page.equals_reload_but_for(&app, &page.calls()).await;
    assert_eq!(shown(&reload(&app).await[1]), (&json!("result"), &rejected()));
    assert!(app.ledger.lines().is_empty());
    assert!(read(&app).contains("Tool execution rejected by user."), "{}", read(&app));
}

#[tokio::test]
async fn an_empty_body_goes_on_in_the_same_message() {
    for (scenario, result) in [("approve", json!({ "paid": "10" })), ("deny", rejected())] {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")])).says("Done.");
        // The body names no thread, so the path does.
        let path = format!("/qa/chat_streamed/{}", app.client.thread().await);
        let page = drive(&app, scenario, &["--path", &path, "--after", "empty"]).await;
        assert_eq!(page.error, None);
        assert_eq!(page.asked(), [format!("POST {path}"), DECIDE.to_owned(), format!("POST {path}")]);
        assert_eq!(page.requests[2]["body"], "{}");
        assert_eq!(page.messages.len(), 2);
        assert_eq!(page.last()["content"], "I will pay. Done.");
        assert_eq!(shown(page.last()), (&json!("result"), &result));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_tool_result_goes_on_in_the_same_message() {
    for (scenario, result) in [("approve", json!({ "paid": "10" })), ("deny", rejected())] {
        let (app, page) = decide(scenario, "result", &[]).await;
        assert_eq!(page.asked(), [GO_ON, DECIDE, GO_ON]);
        assert_eq!(page.messages.len(), 2);
        assert_eq!(page.last()["content"], "I will pay. Done.");
        assert_eq!(shown(page.last()), (&json!("result"), &result));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_resume_goes_on_in_the_same_message() {
    for (scenario, result) in [("approve", json!({ "paid": "10" })), ("deny", rejected())] {
        let (app, page) = decide(scenario, "resume", &[]).await;
        page.looks_like(&format!("d-{scenario}-resume.2"));
        assert_eq!(page.asked(), [GO_ON, DECIDE, "GET /qa/chat_streamed?chatId=chat-1"]);
        assert_eq!(shown(page.last()), (&json!("result"), &result));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_result_that_a_client_makes_up_is_not_believed() {
    let claim = json!({ "paid": "a million" }).to_string();
    for (scenario, result, lines) in
        [("approve", json!({ "paid": "10" }), &["pay 10"][..]), ("deny", rejected(), &[])]
    {
        let (app, page) = decide(scenario, "result", &["--claim", &claim]).await;
        assert!(page.requests[2]["body"].as_str().unwrap().contains("a million"), "it was claimed");
        assert_eq!(shown(page.last()), (&json!("result"), &result), "the server corrects the page");
        page.equals_reload(&app).await;
        assert!(!read(&app).contains("a million"), "{}", read(&app));
        assert_eq!(app.ledger.lines(), lines);
    }
}

#[tokio::test]
async fn a_result_that_a_client_makes_up_decides_nothing() {
    let claim = json!({ "paid": "a million" }).to_string();
    let (app, page) = decide("claim", "none", &["--claim", &claim]).await;
    assert_eq!((page.error.as_deref(), page.asked()), (None, vec![GO_ON.to_owned(); 2]));
    assert!(page.requests[1]["body"].as_str().unwrap().contains("a million"), "it was claimed");
    let words: Vec<&Value> =
        page.last()["annotations"].as_array().unwrap().iter().map(|it| &it["validated"]).collect();
    assert_eq!(words, ["pending", "pending"], "the page is told again");
    assert_eq!(app.scene.requests().len(), 1, "no model is asked");
    let reloaded = reload(&app).await;
    assert_eq!(shown(&reloaded[1]), (&json!("call"), &Value::Null));
    page.equals_reload_but_for(&app, &page.calls()).await;
}

#[tokio::test]
async fn a_message_past_a_call_leaves_it_waiting() {
    let (app, page) = decide("ignore-approval", "none", &[]).await;
    assert_eq!((page.error.as_deref(), page.messages.len()), (None, 4));
    assert_eq!(page.last()["content"], "Done.");
    assert_eq!(shown(&page.messages[1]), (&json!("call"), &Value::Null));
    page.equals_reload(&app).await;
    assert_eq!(app.client.call(page.calls()[0]).await["state"], "pending");
}

#[tokio::test]
async fn edited_inputs_are_shown_once_the_page_is_loaded_anew() {
    let (app, page) = decide("approve", "resume", &["--edited-inputs", r#"{"note":"7"}"#]).await;
    assert_eq!(shown(page.last()), (&json!("result"), &json!({ "paid": "7" })));
    assert_eq!(page.last()["toolInvocations"][0]["args"], json!({ "note": "10" }));
    let reloaded = reload(&app).await;
    assert_eq!(reloaded[1]["toolInvocations"][0]["args"], json!({ "note": "7" }));
    page.equals_reload_but_for(&app, &page.calls()).await;
}

#[tokio::test]
async fn one_yes_and_one_no_are_both_told() {
    for after in ["resume", "result"] {
        let app = Embedded::start().await;
        let asked = [
            Piece::Call("pay", "1"),
            Piece::Call("look", "2"),
            Piece::Call("pay", "3"),
            Piece::Text("Well?"),
        ];
        app.scene.then(step(&asked)).says("Half of it.");
        let page = drive(&app, "mixed", &["--after", after, "--reason", "too much"]).await;
        assert_eq!(page.error, None);
        let calls = page.last()["toolInvocations"].as_array().unwrap();
        let results: Vec<&Value> = calls.iter().map(|call| &call["result"]).collect();
        let no = json!({ "error": "Tool execution rejected by user. Reason: too much" });
        assert_eq!(results, [&json!({ "paid": "1" }), &json!({ "seen": "2" }), &no]);
        assert_eq!(page.last()["content"], "Well?Half of it.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn calls_behind_a_hold_have_the_steps_that_the_page_counts() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Call("look", "1")])).then(step(&[Piece::Call("pay", "2")]));
    app.scene.then(step(&[Piece::Text("Now "), Piece::Call("look", "3")]));
    app.scene.then(step(&[Piece::Call("look", "4")])).says("All.");
    let page = drive(&app, "approve", &["--after", "resume"]).await;
    let calls = page.last()["toolInvocations"].as_array().unwrap();
    let steps: Vec<&Value> = calls.iter().map(|call| &call["step"]).collect();
    assert_eq!(steps, [0, 1, 3, 4], "what tells the decision is a step of its own");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_tool_that_fails_is_told_as_its_result() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Call("refuse", "1"), Piece::Call("break", "2")])).says("It failed.");
    let page = drive(&app, "approve", &["--after", "resume"]).await;
    assert_eq!(page.error, None);
    let calls = page.last()["toolInvocations"].as_array().unwrap();
    assert!(calls.iter().all(|call| call["result"]["error"].is_string()), "{calls:?}");
    assert!(!page.last().to_string().contains("secret"), "{}", page.last());
    assert_eq!(page.last()["content"], "It failed.");
    page.equals_reload(&app).await;
}
