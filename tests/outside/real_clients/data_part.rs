//! Pending calls on a page of AI SDK 5, which has no approvals of its own. A data part carries the state of a
//! call, `validate_tool` decides the call, and the page resumes by posting its history again.

use super::deciding::validate;
use super::output::{Piece, read, step};
use super::page::{CHAT, POST, Page, Version, reload};
use holdpoint::config::UiDialect;
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

const PAY: [Piece; 1] = [Piece::Call("pay", "10")];

async fn held_call(pieces: &[Piece], flags: &[&str]) -> (Embedded, Page) {
    let app = Embedded::start().await;
    app.scene.then(step(pieces)).answers("Done.");
    let mut page = Page::open_with(&app, Version::V5, flags).await;
    page.send("pay").await;
    assert_eq!((page.error.as_deref(), page.requests.len()), (None, 1));
    (app, page)
}

/// The `validated` states in the data parts of the last message, in order.
fn data(page: &Page) -> Vec<&Value> {
    let parts = page.last().list("parts").iter();
    let data = parts.filter(|part| part["type"] == "data-tool-validation");
    data.map(|part| &part["data"]["validated"]).collect()
}

const REJECTED: &str = "Tool execution rejected by user.";

#[tokio::test]
async fn after_a_decision_the_message_continues_and_its_data_part_is_replaced() {
    for yes in [true, false] {
        let (app, mut page) = held_call(&PAY, &[]).await;
        let recording = if yes { "d-approve-data-part" } else { "d-deny-data-part" };
        page.looks_like(&format!("{recording}.1"));
        page.equals_reload(&app).await;
        validate(&app, &page, yes).await;
        page.send_nothing().await;
        page.looks_like(&format!("{recording}.2"));
        assert_eq!((page.error.as_deref(), page.requests()), (None, vec![POST.to_owned(); 2]));
        assert_eq!(page.posted()["messageId"], page.last()["id"]);
        let [call] = &page.calls()[..] else { panic!("{page:#?}") };
        if yes {
            assert_eq!(call.output, json!({ "paid": "10" }));
        } else {
            assert_eq!(call.error.as_deref(), Some(REJECTED));
        }
        assert_eq!(page.text(), "Done.");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines().len(), usize::from(yes));
    }
}

#[tokio::test]
async fn a_page_that_resumes_too_early_gets_the_pending_call_again() {
    let (app, mut page) = held_call(&PAY, &[]).await;
    page.send_nothing().await;
    page.looks_like("d-approve-data-part.1");
    assert_eq!((page.requests.len(), app.scene.requests().len()), (2, 1));
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn of_two_calls_one_is_approved_and_one_denied() {
    let asks = [Piece::Call("pay", "1"), Piece::Call("look", "2"), Piece::Call("pay", "3")];
    let (app, mut page) = held_call(&asks, &[]).await;
    let calls = page.call_ids();
    app.client.approve(&calls[0]).await;
    page.send_nothing().await;
    assert_eq!(data(&page), ["approved", "pending"]);
    assert_eq!(app.scene.requests().len(), 1, "one call is still pending");
    page.equals_reload(&app).await;
    let no = json!({ "toolCallId": calls[2], "isValidated": false, "reason": "too much" });
    app.client.validate(&no).await.has_status(200);
    page.send_nothing().await;
    assert_eq!(data(&page), ["approved", "rejected"]);
    assert_eq!(page.states(), ["output-available", "output-available", "output-error"]);
    assert_eq!(page.calls()[2].error, Some(format!("{REJECTED} Reason: too much")));
    assert_eq!((page.text().as_str(), page.requests.len()), ("Done.", 3));
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_decision_and_a_new_message_leave_the_card_as_it_was_until_the_reload() {
    let (app, mut page) = held_call(&PAY, &[]).await;
    validate(&app, &page, true).await;
    page.send("go on").await;
    assert_eq!((page.error.as_deref(), page.messages.len()), (None, 4));
    assert_eq!(page.text(), "Done.");
    page.equals_reload_but_for(&app, &page.call_ids()).await;
    assert_eq!(page.states(), ["input-available"]);
    assert_eq!(Page::load(&app, Version::V5).await.states(), ["output-available"]);
    assert!(read(&app).contains(r#"{\"paid\":\"10\"}"#), "{}", read(&app));
}

#[tokio::test]
async fn a_new_message_after_a_pending_call_leaves_it_pending() {
    let (app, mut page) = held_call(&PAY, &[]).await;
    page.send("never mind").await;
    assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Done."));
    page.equals_reload(&app).await;
    assert_eq!(app.client.call(&page.call_ids()[0]).await["state"], "pending");
}

#[tokio::test]
async fn edited_inputs_are_shown_before_the_output() {
    let (app, mut page) = held_call(&PAY, &[]).await;
    let edited = json!({ "note": "7" });
    let body = json!({ "toolCallId": page.call_ids()[0], "validatedInputs": edited, "isValidated": true });
    app.client.validate(&body).await.has_status(200);
    page.send_nothing().await;
    page.looks_like("d-approve-data-part.2");
    let [call] = &page.calls()[..] else { panic!("{page:#?}") };
    assert_eq!((&call.input, &call.output), (&edited, &json!({ "paid": "7" })));
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_tool_that_fails_after_the_approval_is_shown_with_its_error() {
    let (app, mut page) = held_call(&[Piece::Call("refuse", "1"), Piece::Call("break", "2")], &[]).await;
    for call in page.call_ids() {
        app.client.approve(&call).await;
    }
    page.send_nothing().await;
    assert_eq!(page.states(), ["output-error"; 2]);
    assert!(!page.last().to_string().contains("secret"), "{}", page.last());
    assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Done."));
    page.equals_reload(&app).await;
}

/// With these flags a page that sets outputs posts by itself, as long as its last message has all outputs.
const OUTPUTS: [&str; 2] = ["--automatically", "outputs"];

#[tokio::test]
async fn an_output_invented_by_a_page_is_corrected() {
    for yes in [true, false] {
        let (app, mut page) = held_call(&PAY, &OUTPUTS).await;
        validate(&app, &page, yes).await;
        page.set_output(&page.call_ids()[0], &json!({ "paid": "a million" })).await;
        assert!(page.posted().to_string().contains("a million"), "the page posted the invented output");
        assert_eq!((page.error.as_deref(), page.requests.len()), (None, 2));
        let [call] = &page.calls()[..] else { panic!("{page:#?}") };
        if yes {
            assert_eq!(call.output, json!({ "paid": "10" }));
        } else {
            assert_eq!(call.error.as_deref(), Some(REJECTED));
        }
        assert_eq!(page.text(), "Done.");
        page.equals_reload(&app).await;
        assert!(!read(&app).contains("a million"), "{}", read(&app));
    }
}

#[tokio::test]
async fn an_output_invented_by_a_page_decides_nothing_and_starts_no_endless_posts() {
    let (app, mut page) = held_call(&PAY, &OUTPUTS).await;
    let call = page.call_ids()[0].clone();
    page.set_output(&call, &json!({ "paid": "a million" })).await;
    assert_eq!((page.error.as_deref(), page.requests.len()), (None, 2));
    assert_eq!(page.states(), ["input-available"], "the page gets the pending call again");
    assert_eq!(app.scene.requests().len(), 1, "the model gets no request");
    assert_eq!(app.client.call(&call).await["state"], "pending");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_resume_request_decides_no_call_and_resumes_no_run() {
    let (app, mut page) = held_call(&PAY, &[]).await;
    validate(&app, &page, true).await;
    page.resume().await;
    assert_eq!(page.requests()[1], format!("GET /qa/chat_streamed/{CHAT}/stream"));
    assert_eq!((page.error.as_deref(), page.requests[1]["status"].as_u64()), (None, Some(204)));
    assert_eq!((page.states(), app.scene.requests().len()), (vec!["input-available".to_owned()], 1));
    assert_eq!(super::page::calls(&reload(&app, Version::V5).await[1])[0].state, "output-available");
}

#[tokio::test]
async fn a_page_of_5_that_names_no_dialect_fails_at_its_first_hold() {
    let app = Embedded::start().await;
    app.scene.answers("Hello.").then(step(&PAY));
    let mut page = Page::open_with(&app, Version::V5, &["--header", "accept: */*"]).await;
    page.send("hi").await;
    assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Hello."));
    page.send("pay").await;
    let error = page.error.as_deref().unwrap();
    assert!(error.contains("Type validation failed") && error.contains("tool-approval-request"), "{error}");
    // After a reload in its own format the page has the card.
    assert_eq!(Page::load(&app, Version::V5).await.states(), ["input-available"]);
}

#[tokio::test]
async fn the_default_dialect_may_be_that_of_pages_of_5() {
    let app = Embedded::with(|config| config.stream.default_ui_dialect = UiDialect::V5).await;
    app.scene.then(step(&PAY)).answers("Done.");
    let mut page = Page::open_with(&app, Version::V5, &["--header", "accept: */*"]).await;
    page.send("pay").await;
    page.looks_like("d-approve-data-part.1");
    validate(&app, &page, true).await;
    page.send_nothing().await;
    page.looks_like("d-approve-data-part.2");
    page.equals_reload(&app).await;

    let app = Embedded::with(|config| config.stream.default_ui_dialect = UiDialect::V5).await;
    app.scene.then(step(&PAY)).answers("Done.");
    let mut page = Page::open_with(&app, Version::V7, &["--header", "x-stream-protocol: ui-v6"]).await;
    page.send("pay").await;
    page.approve(&page.call_ids()[0]).await;
    assert_eq!((page.states(), page.requests.len()), (vec!["output-available".to_owned()], 2));
    page.equals_reload(&app).await;
}
