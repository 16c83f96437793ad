//! What a person does with the card of a held call.

use super::{Card, DECIDED, DONE, OPENED, PAY_10, asked_for, later_calls, lines, pay, with_a_hold};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::{Browser, Embedded, Process, call};
use serde_json::json;
use std::time::Duration;

const DELETE: Card = Card {
    risk: "High risk",
    title: "Delete file",
    headline: "Delete <b>old.txt?",
    description: "Deletes a file of the folder. It cannot be brought back.",
    name: "delete_file",
    input: ["path", "<b>old.txt"],
};

#[tokio::test]
async fn a_call_waits_for_a_click_and_survives_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[]).await;
    let file = dir.path().join("holdpoint-files/<b>old.txt");
    std::fs::write(&file, "old news").unwrap();
    let browser = Browser::start(&server.client.base, "outlives_a_reload").await;
    let tab = browser.tab("tab").await;

    tab.sends("delete <b>old.txt").await;
    let said = ["delete <b>old.txt", "I will delete <b>old.txt."];
    let asks = lines(&said, &[DELETE.asks()], &[]);
    tab.shows(&asks).await;
    tab.reloads().await;
    tab.shows(&asks).await;
    assert!(file.exists());

    tab.approves("delete_file", 0).await;
    let done = lines(&said, &[DELETE.with(&DONE)], &["Done: <b>old.txt is deleted."]);
    tab.shows(&done).await;
    assert!(!file.exists());
    tab.reloads().await;
    tab.shows(&done).await;
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn the_model_reads_the_reason_that_the_user_types_when_rejecting() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[]).await;
    let file = dir.path().join("holdpoint-files/<b>old.txt");
    std::fs::write(&file, "old news").unwrap();
    let browser = Browser::start(&server.client.base, "says_why").await;
    let tab = browser.tab("tab").await;

    tab.sends("delete <b>old.txt").await;
    let said = ["delete <b>old.txt", "I will delete <b>old.txt."];
    tab.shows(&lines(&said, &[DELETE.asks()], &[])).await;
    tab.denies("delete_file", 0, "I still need it").await;
    let why = "Denied by you: I still need it. It did not run.";
    let words = "You rejected delete_file (<b>old.txt): I still need it.";
    let denied = lines(&said, &[DELETE.with(&[why])], &[words]);
    tab.shows(&denied).await;
    tab.reloads().await;
    tab.shows(&denied).await;
    assert!(file.exists());
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_denial_asks_for_a_reason_that_may_stay_empty() {
    let app = with_a_hold().await;
    app.scene.answers("As you like.");
    let browser = Browser::start(&app.client.base, "denies_without_a_reason").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.clicks_in("pay", "Deny").await;
    tab.becomes(
        "document.activeElement.labels[0].innerText",
        "Reason for denying (optional, the model is told)",
    )
    .await;
    tab.clicks_in("pay", "Back").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.becomes("document.activeElement.innerText", "Deny").await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 1);

    tab.clicks_in("pay", "Deny").await;
    tab.presses("Enter").await;
    let denied = PAY_10.with(&["Denied by you. It did not run."]);
    tab.shows(&lines(&["pay"], &[denied], &["As you like."])).await;
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_card_shows_characters_that_hide_or_reverse_text() {
    let app = Embedded::start().await;
    let hides = "<i>1\u{202e}0\u{200b} \u{3164}\u{a0}\u{2800}\u{9b}";
    let shown = "<i>1U+202E0U+200B U+3164U+00A0U+2800U+009B";
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": hides }))]);
    let browser = Browser::start(&app.client.base, "shows_what_hides").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[pay(shown).asks()], &[])).await;
    browser.close().await;
}

#[tokio::test]
async fn each_of_several_cards_is_decided_at_once() {
    let app = Embedded::start().await;
    let calls = ["1", "2"].map(|note| call(&format!("p-{note}"), "pay", &json!({ "note": note })));
    app.scene.calls(&calls).answers("One of two.");
    let browser = Browser::start(&app.client.base, "several_cards").await;
    let tab = browser.tab("tab").await;

    tab.sends("pay twice").await;
    let (one, two) = (pay(r#""1""#), pay(r#""2""#));
    tab.becomes("document.querySelectorAll('.call.waits').length", 2).await;
    tab.reads(2).await;
    tab.shows(&lines(&["pay twice"], &[one.asks(), two.asks()], &[])).await;
    tab.approves("pay", 0).await;
    let half = lines(&["pay twice"], &[one.with(&DONE), two.asks()], &[]);
    tab.shows(&half).await;
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    tab.reloads().await;
    tab.shows(&half).await;
    tab.denies("pay", 1, "once is enough").await;
    let denied = two.with(&["Denied by you: once is enough. It did not run."]);
    tab.shows(&lines(&["pay twice"], &[one.with(&DONE), denied], &["One of two."])).await;
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    assert_eq!(app.scene.requests().len(), 2, "the run continues once");
    asked_for(&tab, &[OPENED, DECIDED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn the_calls_that_wait_are_counted_and_approved_in_one_request() {
    let app = Embedded::start().await;
    let calls = ["1", "2", "3"].map(|note| call(&format!("p-{note}"), "pay", &json!({ "note": note })));
    app.scene.calls(&calls).answers("All of them.");
    let browser = Browser::start(&app.client.base, "approves_all").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay three times").await;
    let badge = "document.querySelector('header .badge')?.innerText ?? null";
    tab.becomes(badge, "3 waiting").await;
    tab.becomes("document.querySelector('nav [aria-current] .badge')?.innerText", "3 waiting").await;
    tab.becomes("document.title", "(3) pay three times – holdpoint").await;

    tab.denies("pay", 1, "").await;
    tab.becomes(badge, "2 waiting").await;
    tab.reads(2).await;
    tab.clicks("Approve all 2").await;
    let cards = [
        pay(r#""1""#).with(&DONE),
        pay(r#""2""#).with(&["Denied by you. It did not run."]),
        pay(r#""3""#).with(&DONE),
    ];
    tab.shows(&lines(&["pay three times"], &cards, &["All of them."])).await;
    let mut paid = app.ledger.lines();
    paid.sort();
    assert_eq!(paid, ["pay 1", "pay 3"]);
    tab.becomes(badge, json!(null)).await;
    tab.becomes("document.querySelector('nav .badge') === null", true).await;
    tab.becomes("document.title", "pay three times – holdpoint").await;
    asked_for(&tab, &[OPENED, DECIDED, "POST /api/qa/validate_tools 200"]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_approval_for_the_conversation_covers_later_calls_of_the_tool() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "remembers").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.fills_in("pay", &later_calls("Pay"), true).await;
    tab.clicks_in("pay", "Approve, and later calls too").await;
    let done = lines(&["pay"], &[PAY_10.with(&DONE)], &["Paid."]);
    tab.shows(&done).await;

    app.scene.calls(&[call("p-2", "pay", &json!({ "note": "20" }))]).answers("Paid again.");
    tab.sends("pay 20").await;
    let after = lines(&[], &[done], &["pay 20", "pay: Done.", "Paid again."]);
    tab.shows(&after).await;
    assert_eq!(app.ledger.lines(), ["pay 10", "pay 20"]);
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_card_can_be_decided_after_a_later_user_message() {
    let app = with_a_hold().await;
    app.scene.answers("Hello.");
    let browser = Browser::start(&app.client.base, "written_on").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.sends("hi").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &["hi", "Hello."])).await;

    tab.approves("pay", 0).await;
    let done = lines(&["pay"], &[PAY_10.with(&DONE)], &["hi", "Hello."]);
    tab.shows(&done).await;
    tab.reloads().await;
    tab.shows(&done).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_page_that_is_loaded_while_an_approved_call_runs_shows_its_end() {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "wait_for_me", &json!({ "note": "1" }))]).answers("Waited.");
    let browser = Browser::start(&app.client.base, "approved_call_runs").await;
    let tab = browser.tab("tab").await;
    tab.sends("wait").await;
    let card = Card { title: "Wait for me", headline: "Wait for me?", name: "wait_for_me", ..pay(r#""1""#) };
    tab.shows(&lines(&["wait"], &[card.asks()], &[])).await;
    tab.approves("wait_for_me", 0).await;
    app.ledger.wait_started().await;
    let running = lines(&["wait"], &[card.with(&["Approved by you. Running."])], &[]);
    tab.shows(&running).await;

    tab.reloads().await;
    tab.shows(&running).await;
    app.ledger.release.add_permits(1);
    tab.shows(&lines(&["wait"], &[card.with(&DONE)], &["Waited."])).await;
    assert_eq!(app.ledger.lines(), ["wait_for_me 1"]);
    browser.close().await;
}

#[tokio::test]
async fn a_call_of_a_tool_that_is_gone_can_only_be_denied() {
    let app = Embedded::start().await;
    let (thread, _) = app.held("pay", "10").await;
    let app = app.redeploy(ToolRegistry::new()).await;
    app.scene.answers("As you like.");
    let browser = Browser::start(&app.client.base, "denies_only").await;
    let tab = browser.tab_at("tab", &format!("/?chat={thread}")).await;
    let buttons = "[...document.querySelectorAll('.call button')].map(button => button.innerText)";
    tab.becomes(buttons, json!(["Deny"])).await;
    tab.becomes("shown().lines.at(-1)", "Waits for another person. Nothing has run.").await;
    tab.denies("pay", 0, "").await;
    let denied = PAY_10.with(&["Denied by you. It did not run."]);
    tab.shows(&lines(&["please pay 10"], &[denied], &["As you like."])).await;
    browser.close().await;
}

#[tokio::test]
async fn the_time_to_decide_counts_down_and_is_not_announced() {
    let app = Embedded::with(|config| config.approval.pending_ttl = Duration::from_secs(100)).await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
    let browser = Browser::start(&app.client.base, "counts_down").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    let left = "document.querySelector('[role=timer]').innerText";
    let first = tab.value_of(left).await;
    let first = first.as_str().unwrap();
    assert!(first.starts_with("in 1 min 3"), "{first}");
    tab.becomes(&format!("{left} === {first:?}"), false).await;
    let later = tab.value_of(left).await;
    let later = later.as_str().unwrap();
    assert!(later.starts_with("in 1 min "), "{later}");
    assert_eq!(tab.value_of("announced").await, json!(["Pay? Waits for you. Nothing has run."]));
    assert_eq!(
        tab.value_of("document.querySelector('[role=timer]').closest('[aria-live]').ariaLive").await,
        "off"
    );
    browser.close().await;
}
