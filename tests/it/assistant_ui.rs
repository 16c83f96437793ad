//! The page on assistant-ui (`examples/assistant-ui`) in a real browser.

use crate::support::{Browser, Embedded, call};
use serde_json::json;

const SAID: [&str; 3] = ["pay the bill", "pay", r#"{"note":"10"}"#];
const ASKS: [&str; 2] = ["Reason for denyingDenyApprove", "Waits for you. Nothing has run."];

/// A server whose model asks for a payment of 10 once a user posts a message.
async fn with_a_hold() -> Embedded {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
    app
}

#[tokio::test]
async fn a_call_waits_for_a_click_survives_a_reload_and_runs_once() {
    let app = with_a_hold().await;
    app.scene.says("Paid.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_approves").await;
    let tab = browser.tab("tab").await;
    tab.says("pay the bill").await;
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
async fn a_rejection_with_a_reason_is_told_to_the_model() {
    let app = with_a_hold().await;
    app.scene.says("Understood.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_rejects").await;
    let tab = browser.tab("tab").await;
    tab.says("pay the bill").await;
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
