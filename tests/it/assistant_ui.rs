//! The page on assistant-ui (`examples/assistant-ui`) in a real browser.

use crate::previews::{World, server};
use crate::support::{Browser, Embedded, SamplePage, call, in_repository};
use serde_json::json;

const SAID: [&str; 3] = ["pay the bill", "Pay", r#"{"note":"10"}"#];
const ASKS: [&str; 3] = [
    "Risk: high. pay runs only with a person's approval",
    "Reason for denyingDenyApprove",
    "Waits for you. Nothing has run.",
];

/// A server whose model asks for a payment of 10 once a user posts a message.
async fn with_a_hold() -> Embedded {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
    app
}

#[tokio::test]
async fn a_call_waits_for_a_click_survives_a_reload_and_runs_once() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_approves").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay the bill").await;
    let asks = [&SAID[..], &ASKS].concat();
    tab.shows(&asks).await;
    tab.reloads().await;
    tab.shows(&asks).await;
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    tab.approves("pay", 0).await;
    let done = [&SAID[..], &[r#"Done: {"paid":"10"}"#, "Paid."]].concat();
    tab.shows(&done).await;
    tab.reloads().await;
    tab.shows(&done).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
async fn the_model_reads_a_rejection_with_its_reason() {
    let app = with_a_hold().await;
    app.scene.answers("Understood.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_rejects").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay the bill").await;
    tab.shows(&[&SAID[..], &ASKS].concat()).await;
    tab.denies("pay", 0, "not this month").await;
    let denied = [&SAID[..], &["Did not run: not this month", "Understood."]].concat();
    tab.shows(&denied).await;
    tab.reloads().await;
    tab.shows(&denied).await;
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}

/// Approves the only pending call outside the page.
async fn approve_elsewhere(app: &Embedded, resume: bool) {
    let pending = app.client.get("/approvals").await.body;
    let [call] = &pending["results"].as_array().unwrap()[..] else { panic!("{pending}") };
    let yes = json!({ "toolCallId": call["tool_call_id"], "isValidated": true, "resume": resume });
    assert_eq!(app.client.validate(&yes).await.status, 200);
}

#[tokio::test]
async fn a_call_that_waits_while_the_conversation_continues_can_still_be_approved() {
    let app = with_a_hold().await;
    app.scene.answers("Sunny.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_goes_on").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay the bill").await;
    let asks = [&SAID[..], &ASKS].concat();
    tab.shows(&asks).await;
    tab.sends("and the weather?").await;
    tab.shows(&[&asks[..], &["and the weather?", "Sunny."]].concat()).await;
    tab.approves("pay", 0).await;
    let done = [&SAID[..], &[r#"Done: {"paid":"10"}"#, "and the weather?", "Sunny."]].concat();
    tab.shows(&done).await;
    tab.reloads().await;
    tab.shows(&done).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
async fn an_idle_page_shows_that_a_call_was_approved_elsewhere() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_idle").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay the bill").await;
    tab.shows(&[&SAID[..], &ASKS].concat()).await;
    approve_elsewhere(&app, true).await;
    tab.shows(&[&SAID[..], &[r#"Done: {"paid":"10"}"#, "Paid."]].concat()).await;
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
async fn a_rejection_that_comes_too_late_does_not_hide_that_the_call_ran() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let mut page = SamplePage::start(&in_repository("examples/assistant-ui"), &app.client.base);
    page.opens_without_events().await;
    page.sends("pay the bill").await;
    page.shows(&["Waits for you. Nothing has run."], &[]).await;
    approve_elsewhere(&app, false).await;
    page.clicks("Deny").await;
    let done = ["Your answer came too late: user:local had decided.", r#"Done: {"paid":"10"}"#, "Paid."];
    page.shows(&done, &["Did not run", "Waits for you"]).await;
    assert_eq!(page.alerts().await, Vec::<String>::new());
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_card_shows_what_the_tool_says_that_the_call_would_do() {
    let app = server(&World::that_reports("wipes {note}\u{202e}"), |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]);
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_previews").await;
    let tab = browser.tab("tab").await;
    tab.sends("wipe it").await;
    let texts = "[...document.querySelectorAll('section pre')].map(it => it.innerText)";
    tab.becomes(texts, json!([r#"{"note":"10"}"#, r"wipes 10\u{202e}"])).await;
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}
