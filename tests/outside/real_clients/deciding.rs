//! Pending calls on a page of AI SDK 4, for each way to resume after a decision.

use super::output::{Piece, read, step};
use super::page::{POST, Page, ShownCall, Version, calls, reload};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

/// A model that requests a payment and then completes, and a page with the pending call.
async fn held_call() -> (Embedded, Page) {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")])).answers("Done.");
    let mut page = Page::open(&app, Version::V4).await;
    page.send("pay").await;
    (app, page)
}

/// Decides the only call, and has the page resume in this way.
async fn decide(yes: bool, resume: impl AsyncFnOnce(&mut Page, &str, Value)) -> (Embedded, Page) {
    let (app, mut page) = held_call().await;
    let answer = validate(&app, &page, yes).await;
    let call = answer.text("toolCallId").to_owned();
    resume(&mut page, &call, answer).await;
    assert_eq!(page.error, None);
    (app, page)
}

/// Decides the only call as pages of 4 do: they send back the inputs that they show.
pub(super) async fn validate(app: &Embedded, page: &Page, yes: bool) -> Value {
    let [call] = &page.calls()[..] else { panic!("{page:?}") };
    let body = json!({ "toolCallId": call.id, "validatedInputs": call.input, "isValidated": yes });
    app.client.validate(&body).await.body_of(200)
}

/// The only call of a message, as the page shows it.
fn shown(message: &Value) -> (String, Value) {
    let [ShownCall { state, output, .. }] = &calls(message)[..] else { panic!("{message}") };
    (state.clone(), output.clone())
}

fn rejected() -> Value {
    json!({ "error": "Tool execution rejected by user." })
}

fn result(of: Value) -> (String, Value) {
    ("result".to_owned(), of)
}

fn waits() -> (String, Value) {
    ("call".to_owned(), Value::Null)
}

const OUTCOMES: [bool; 2] = [true, false];

fn outcome(yes: bool) -> Value {
    if yes { json!({ "paid": "10" }) } else { rejected() }
}

#[tokio::test]
async fn an_approval_and_a_new_message_leave_the_card_as_it_was_until_the_reload() {
    let (app, page) = decide(true, async |page, _, answer| {
        assert_eq!(answer["state"], "succeeded");
        page.send("go on").await;
    })
    .await;
    page.looks_like("d-approve-next-turn.2");
    page.equals_reload_but_for(&app, &page.call_ids()).await;
    assert_eq!(shown(&reload(&app, Version::V4).await[1]), result(json!({ "paid": "10" })));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert!(read(&app).contains(r#"{\"paid\":\"10\"}"#), "{}", read(&app));
}

#[tokio::test]
async fn a_denial_and_a_new_message_leave_the_card_as_it_was_until_the_reload() {
    let (app, page) = decide(false, async |page, _, _| page.send("go on").await).await;
    page.looks_like("d-deny-next-turn.2");
    page.equals_reload_but_for(&app, &page.call_ids()).await;
    assert_eq!(shown(&reload(&app, Version::V4).await[1]), result(rejected()));
    assert!(app.ledger.lines().is_empty());
    assert!(read(&app).contains("Tool execution rejected by user."), "{}", read(&app));
}

#[tokio::test]
async fn an_empty_body_continues_the_same_message() {
    for yes in OUTCOMES {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")])).answers("Done.");
        // The body names no thread; the path does.
        let path = format!("/qa/chat_streamed/{}", app.client.thread().await);
        let mut page = Page::open_with(&app, Version::V4, &["--path", &path, "--posts", "nothing"]).await;
        page.send("pay").await;
        let answer = validate(&app, &page, yes).await;
        // The SDK posts once every call of the step has a result.
        page.set_output(answer.text("toolCallId"), &answer["result"]).await;
        assert_eq!(page.error, None);
        assert_eq!(page.requests(), [format!("POST {path}"), format!("POST {path}")]);
        assert_eq!(page.posted(), json!({}));
        assert_eq!(page.messages.len(), 2);
        assert_eq!(page.text(), "I will pay. Done.");
        assert_eq!(shown(page.last()), result(outcome(yes)));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_tool_result_continues_the_same_message() {
    for yes in OUTCOMES {
        let (app, page) =
            decide(yes, async |page, call, answer| page.set_output(call, &answer["result"]).await).await;
        assert_eq!(page.requests(), [POST; 2]);
        assert_eq!(page.messages.len(), 2);
        assert_eq!(page.text(), "I will pay. Done.");
        assert_eq!(shown(page.last()), result(outcome(yes)));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_resume_continues_the_same_message() {
    for yes in OUTCOMES {
        let (app, page) = decide(yes, async |page, _, _| page.resume().await).await;
        page.looks_like(if yes { "d-approve-resume.2" } else { "d-deny-resume.2" });
        assert_eq!(page.requests(), [POST, "GET /qa/chat_streamed?chatId=chat-1"]);
        assert_eq!(shown(page.last()), result(outcome(yes)));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_result_invented_by_a_client_is_corrected() {
    let claim = json!({ "paid": "a million" });
    for (yes, lines) in [(true, &["pay 10"][..]), (false, &[])] {
        let (app, page) = decide(yes, async |page, call, _| page.set_output(call, &claim).await).await;
        assert!(page.posted().to_string().contains("a million"), "the page posted the invented result");
        assert_eq!(shown(page.last()), result(outcome(yes)), "the server corrects the page");
        page.equals_reload(&app).await;
        assert!(!read(&app).contains("a million"), "{}", read(&app));
        assert_eq!(app.ledger.lines(), lines);
    }
}

#[tokio::test]
async fn a_result_invented_by_a_client_decides_nothing() {
    let (app, mut page) = held_call().await;
    let call = page.call_ids()[0].clone();
    page.set_output(&call, &json!({ "paid": "a million" })).await;
    assert_eq!((page.error.as_deref(), page.requests()), (None, vec![POST.to_owned(); 2]));
    assert!(page.posted().to_string().contains("a million"), "the page posted the invented result");
    let words: Vec<&Value> = page.last().list("annotations").iter().map(|it| &it["validated"]).collect();
    assert_eq!(words, ["pending", "pending"], "the page gets the pending state again");
    assert_eq!(app.scene.requests().len(), 1, "the model gets no request");
    assert_eq!(shown(&reload(&app, Version::V4).await[1]), waits());
    page.equals_reload_but_for(&app, &page.call_ids()).await;
}

#[tokio::test]
async fn a_new_message_after_a_pending_call_leaves_it_pending() {
    let (app, mut page) = held_call().await;
    page.send("never mind").await;
    assert_eq!((page.error.as_deref(), page.messages.len()), (None, 4));
    assert_eq!(page.text(), "Done.");
    assert_eq!(shown(&page.messages[1]), waits());
    page.equals_reload(&app).await;
    assert_eq!(app.client.call(&page.call_ids()[0]).await["state"], "pending");
}

#[tokio::test]
async fn edited_inputs_are_shown_after_a_reload() {
    let (app, mut page) = held_call().await;
    let edited = json!({ "note": "7" });
    let body = json!({ "toolCallId": page.call_ids()[0], "validatedInputs": edited, "isValidated": true });
    app.client.validate(&body).await.has_status(200);
    page.resume().await;
    assert_eq!(shown(page.last()), result(json!({ "paid": "7" })));
    assert_eq!(page.calls()[0].input, json!({ "note": "10" }));
    assert_eq!(calls(&reload(&app, Version::V4).await[1])[0].input, edited);
    page.equals_reload_but_for(&app, &page.call_ids()).await;
}

#[tokio::test]
async fn an_approval_and_a_rejection_are_both_sent_to_the_model_and_the_page() {
    for resumes in [true, false] {
        let app = Embedded::start().await;
        let held_call = [
            Piece::Call("pay", "1"),
            Piece::Call("look", "2"),
            Piece::Call("pay", "3"),
            Piece::Text("Well?"),
        ];
        app.scene.then(step(&held_call)).answers("Half of it.");
        let mut page = Page::open(&app, Version::V4).await;
        page.send("pay").await;
        let ids = page.call_ids();
        let yes = app.client.approve(&ids[0]).await;
        let no = json!({ "toolCallId": ids[2], "isValidated": false, "reason": "too much" });
        let no = app.client.validate(&no).await;
        if resumes {
            page.resume().await;
        } else {
            page.set_output(&ids[0], &yes.body["result"]).await;
            page.set_output(&ids[2], &no.body["result"]).await;
        }
        assert_eq!(page.error, None);
        let results: Vec<Value> = page.calls().into_iter().map(|call| call.output).collect();
        let no = json!({ "error": "Tool execution rejected by user. Reason: too much" });
        assert_eq!(results, [json!({ "paid": "1" }), json!({ "seen": "2" }), no]);
        assert_eq!(page.text(), "Well?Half of it.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn calls_after_a_hold_have_the_step_numbers_of_the_page() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Call("look", "1")])).then(step(&[Piece::Call("pay", "2")]));
    app.scene.then(step(&[Piece::Text("Now "), Piece::Call("look", "3")]));
    app.scene.then(step(&[Piece::Call("look", "4")])).answers("All.");
    let mut page = Page::open(&app, Version::V4).await;
    page.send("pay").await;
    app.client.approve(&page.call_ids()[1]).await;
    page.resume().await;
    let calls = page.last().list("toolInvocations");
    let steps: Vec<&Value> = calls.iter().map(|call| &call["step"]).collect();
    assert_eq!(steps, [0, 1, 3, 4], "the decision has its own step");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn the_error_of_a_tool_is_sent_as_its_result() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Call("refuse", "1"), Piece::Call("break", "2")])).answers("It failed.");
    let mut page = Page::open(&app, Version::V4).await;
    page.send("pay").await;
    for call in page.call_ids() {
        app.client.approve(&call).await;
    }
    page.resume().await;
    assert_eq!(page.error, None);
    assert!(page.calls().iter().all(|call| call.error.is_some()), "{:?}", page.calls());
    assert!(!page.last().to_string().contains("secret"), "{}", page.last());
    assert_eq!(page.text(), "It failed.");
    page.equals_reload(&app).await;
}
