//! The page on assistant-ui (`examples/assistant-ui`) in a real browser.

use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::{Browser, Embedded, JsonFields, SamplePage, call, eventually, in_repository};
use serde_json::json;

/// The card of a call that has ended begins with these lines.
const SAID: [&str; 5] = ["pay the bill", "Pay", "Inputs", "note", r#""10""#];
/// The conversation while the call waits.
const ASKS: [&str; 10] = [
    "pay the bill",
    "Pay",
    "Risk: high. pay runs only with a person's approval",
    "Inputs",
    "note",
    r#""10""#,
    "Reason for denying",
    "Deny",
    "Approve",
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
    tab.shows(&ASKS).await;
    tab.reloads().await;
    tab.shows(&ASKS).await;
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
    tab.shows(&ASKS).await;
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
    let [call] = &pending.list("results")[..] else { panic!("{pending}") };
    let yes = json!({ "toolCallId": call["tool_call_id"], "isValidated": true, "resume": resume });
    app.client.validate(&yes).await.has_status(200);
}

#[tokio::test]
async fn a_call_that_waits_while_the_conversation_continues_can_still_be_approved() {
    let app = with_a_hold().await;
    app.scene.answers("Sunny.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_goes_on").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay the bill").await;
    tab.shows(&ASKS).await;
    tab.sends("and the weather?").await;
    tab.shows(&[&ASKS[..], &["and the weather?", "Sunny."]].concat()).await;
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
    tab.shows(&ASKS).await;
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
    tab.becomes(texts, json!([r#""10""#, r"wipes 10\u{202e}"])).await;
    assert_eq!(tab.errors().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
async fn a_card_shows_the_whole_call_and_offers_an_approval_only_then() {
    let app = Embedded::start().await;
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_cards").await;
    let tab = browser.tab("tab").await;
    for seed in 1..=6 {
        assert_eq!(tab.faults_of_whole_cards(seed).await, Vec::<String>::new(), "seed {seed}");
        assert_eq!(tab.faults().await, Vec::<String>::new(), "seed {seed}");
    }
    browser.close().await;
}

#[tokio::test]
async fn an_approval_of_a_card_that_has_changed_runs_nothing_and_the_new_card_asks_again() {
    let steered = SteeredServer::with("act");
    let app = Box::pin(Embedded::with(|config| config.mcp = vec![steered.entry("s", &json!({}))])).await;
    let tool =
        async || Some(app.client.get("/tools/s__act").await.body).filter(|tool| tool["mcp"].is_object());
    eventually("the tool is there", &tool).await;
    app.scene.calls(&[call("p-1", "s__act", &json!({ "note": "10" }))]).answers("Acted.");
    let browser = Browser::start_example("assistant-ui", &app.client.base, "assistant_ui_changes").await;
    let tab = browser.tab("tab").await;
    tab.sends("act").await;
    let captions = "[...document.querySelectorAll('section figcaption')].map(it => it.innerText)";
    tab.becomes(captions, json!(["Inputs"])).await;
    // The page learns of the change by its refused approval. The events of the hold would have it load the new card: a
    // page that was loaded again has its messages twice, and then reads no event.
    tab.reloads().await;
    tab.becomes(captions, json!(["Inputs"])).await;
    let loads = "performance.getEntriesByType('resource').filter(it => /\\/messages/.test(it.name)).length";
    tab.becomes(&format!("{loads} >= 2"), true).await;
    steered.lists(&json!([definition("act", "Acts on all.")]));
    let changed = async || tool().await.filter(|tool| tool["unaccepted_definition"].is_object());
    eventually("the definition has changed", changed).await;
    tab.approves("s__act", 0).await;
    let cause =
        "The server of the tool has changed what it says about the tool, and no operator has accepted that";
    tab.becomes(captions, json!(["Inputs", cause])).await;
    tab.becomes(
        "document.querySelector('section [role=status]').innerText",
        "Waits for you. Nothing has run.",
    )
    .await;
    assert_eq!(steered.called(), Vec::<String>::new());
    tab.approves("s__act", 0).await;
    tab.becomes("shown().lines.at(-1)", "Acted.").await;
    assert_eq!(steered.called(), ["act"]);
    browser.close().await;
}
