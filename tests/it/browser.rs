//! The example page (`examples/page`) in a real browser.

use crate::support::{Browser, Embedded, Process, Tab, call, eventually};
use holdpoint::llm::{FinishReason, ModelEvent};
use serde_json::json;

const OPENED: [&str; 2] = ["POST /threads 201", "GET /qa/chat_streamed/{chat}/stream 204"];
const LOADED: [&str; 2] =
    ["GET /threads/{chat}/messages?format=ui-v6 200", "GET /qa/chat_streamed/{chat}/stream 204"];
const ATTACHED: [&str; 2] =
    ["GET /threads/{chat}/messages?format=ui-v6 200", "GET /qa/chat_streamed/{chat}/stream 200"];
const POSTED: [&str; 1] = ["POST /qa/chat_streamed 200"];

const ASKS: [&str; 3] = ["Approve", "Deny", "Waits for you. Nothing has run."];

/// The lines that a card shows of a payment.
fn pay<'a>(amount: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["pay", "{", amount, "}"], rest].concat()
}

const PAY_10: &str = r#""note": "10""#;
const PAID_10: [&str; 4] = ["Approved, and done.", "{", r#""paid": "10""#, "}"];

/// A server whose model asks for a payment of 10 once a user posts a message.
async fn with_a_hold() -> Embedded {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
    app
}

/// Asserts that the page sent exactly these requests and reported no error.
async fn asked_for(tab: &Tab, requests: &[&[&str]]) {
    assert_eq!((tab.asked().await, tab.errors().await), (own(&requests.concat()), Vec::new()));
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn a_call_waits_for_a_click_and_survives_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[]).await;
    let file = dir.path().join("holdpoint-files/<b>old.txt");
    std::fs::write(&file, "old news").unwrap();
    let browser = Browser::start(&server.client.base, "outlives_a_reload").await;
    let tab = browser.tab("tab").await;

    tab.says("delete <b>old.txt").await;
    let said = [
        "delete <b>old.txt",
        "I will delete <b>old.txt.",
        "delete_file",
        "{",
        r#""path": "<b>old.txt""#,
        "}",
    ];
    let asks = [&said[..], &ASKS].concat();
    tab.shows(&asks).await;
    tab.reloads().await;
    tab.shows(&asks).await;
    assert!(file.exists());

    tab.approves("delete_file", 0).await;
    let outcome = ["Approved, and done.", "{", r#""deleted": "<b>old.txt""#, "}"];
    let words = ["Done: <b>old.txt is deleted."];
    let done = [&said[..], &outcome, &words].concat();
    tab.shows(&done).await;
    assert!(!file.exists());
    tab.reloads().await;
    tab.shows(&done).await;
    asked_for(&tab, &[&OPENED, &POSTED, &LOADED, &POSTED, &LOADED]).await;
    browser.close().await;
}

#[tokio::test]
async fn the_model_reads_the_reason_that_the_user_types_when_rejecting() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[]).await;
    let file = dir.path().join("holdpoint-files/old.txt");
    std::fs::write(&file, "old news").unwrap();
    let browser = Browser::start(&server.client.base, "says_why").await;
    let tab = browser.tab("tab").await;

    tab.says("delete old.txt").await;
    let said = ["delete old.txt", "I will delete old.txt.", "delete_file", "{", r#""path": "old.txt""#, "}"];
    tab.shows(&[&said[..], &ASKS].concat()).await;
    tab.denies("delete_file", 0, "I still need it").await;
    let denied = ["Did not run: I still need it", "You rejected delete_file (old.txt): I still need it."];
    let denied = [&said[..], &denied].concat();
    tab.shows(&denied).await;
    tab.reloads().await;
    tab.shows(&denied).await;
    assert!(file.exists());
    asked_for(&tab, &[&OPENED, &POSTED, &POSTED, &LOADED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_page_that_is_loaded_during_a_turn_shows_the_rest() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    let words = |text: &str| Ok(ModelEvent::Text(text.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then(vec![words("Half "), words("of "), words("it."), Ok(end)]);
    let browser = Browser::start(&app.client.base, "during_a_turn").await;
    let tab = browser.tab("tab").await;

    tab.says("hi").await;
    gate.add_permits(1);
    tab.shows_so_far(&["hi", "Half"]).await;
    tab.reloads().await;
    tab.shows_so_far(&["hi", "Half"]).await;
    gate.add_permits(1);
    tab.shows_so_far(&["hi", "Half of"]).await;
    gate.add_permits(2);
    tab.shows(&["hi", "Half of it."]).await;
    asked_for(&tab, &[&OPENED, &POSTED, &ATTACHED]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_answer_that_completes_during_a_page_load_is_shown() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.says("All of it.");
    let browser = Browser::start(&app.client.base, "ends_while_loaded").await;
    let tab = browser.tab("tab").await;
    tab.says("hi").await;
    let begun = async || (app.rows.count("runs WHERE status = 'running'").await == 1).then_some(());
    eventually("the turn is under way", begun).await;
    tab.reloads_held().await;
    tab.shows(&["hi"]).await;
    gate.add_permits(100);
    let ended = async || (app.rows.count("runs WHERE status = 'completed'").await == 1).then_some(());
    eventually("the turn has ended", ended).await;
    tab.is_let_go().await;
    tab.shows(&["hi", "All of it."]).await;
    let asked = tab.asked().await;
    let last = ["GET /threads/{chat}/messages?format=ui-v6 200"];
    assert_eq!(asked[asked.len() - 3..], own(&[&LOADED[..], &last].concat()));
    browser.close().await;
}

#[tokio::test]
async fn a_card_shows_characters_that_hide_or_reverse_text() {
    let app = Embedded::start().await;
    let hides = "<i>1\u{202e}0\u{200b} \u{3164}\u{a0}\u{2800}\u{9b}";
    let shown = r#""note": "<i>1\u{202e}0\u{200b} \u{3164}\u{a0}\u{2800}\u{9b}""#;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": hides }))]);
    let browser = Browser::start(&app.client.base, "shows_what_hides").await;
    let tab = browser.tab("tab").await;
    tab.says("pay").await;
    tab.shows(&[vec!["pay"], pay(shown, &ASKS)].concat()).await;
    browser.close().await;
}

#[tokio::test]
async fn of_several_cards_all_have_to_be_decided_before_the_page_posts() {
    let app = Embedded::start().await;
    let calls = ["1", "2"].map(|note| call(&format!("p-{note}"), "pay", &json!({ "note": note })));
    app.scene.calls(&calls).says("One of two.");
    let browser = Browser::start(&app.client.base, "several_cards").await;
    let tab = browser.tab("tab").await;

    tab.says("pay twice").await;
    let (one, two) = (r#""note": "1""#, r#""note": "2""#);
    tab.shows(&[vec!["pay twice"], pay(one, &ASKS), pay(two, &ASKS)].concat()).await;
    tab.approves("pay", 0).await;
    tab.shows(&[vec!["pay twice"], pay(one, &["Approved."]), pay(two, &ASKS)].concat()).await;
    tab.denies("pay", 1, "once is enough").await;
    let paid = ["Approved, and done.", "{", r#""paid": "1""#, "}"];
    let denied = ["Did not run: once is enough", "One of two."];
    tab.shows(&[vec!["pay twice"], pay(one, &paid), pay(two, &denied)].concat()).await;
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    asked_for(&tab, &[&OPENED, &POSTED, &POSTED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_tab_that_decides_too_late_shows_the_outcome_of_the_call() {
    let app = with_a_hold().await;
    app.scene.says("Paid.");
    let browser = Browser::start(&app.client.base, "too_late").await;
    let first = browser.tab("first").await;
    first.says("pay").await;
    let asks = [vec!["pay"], pay(PAY_10, &ASKS)].concat();
    first.shows(&asks).await;
    let here = format!("/?chat={}", first.chat().await);
    let (late, reloading) = (browser.tab_at("late", &here).await, browser.tab_at("reloading", &here).await);
    late.shows(&asks).await;
    reloading.shows(&asks).await;

    first.approves("pay", 0).await;
    let done = [vec!["pay"], pay(PAY_10, &PAID_10), vec!["Paid."]].concat();
    first.shows(&done).await;
    reloading.reloads().await;
    reloading.shows(&done).await;
    late.shows(&asks).await;
    late.denies("pay", 0, "too much").await;
    late.shows(&done).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    asked_for(&first, &[&OPENED, &POSTED, &POSTED]).await;
    asked_for(&reloading, &[&LOADED, &LOADED]).await;
    asked_for(&late, &[&LOADED, &POSTED]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_approval_that_comes_too_late_runs_nothing_and_the_page_shows_why() {
    let app = with_a_hold().await;
    app.scene.says("Too late.");
    let browser = Browser::start(&app.client.base, "says_why_not").await;
    let tab = browser.tab("tab").await;
    tab.says("pay").await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &ASKS)].concat()).await;
    assert_eq!(app.rows.change("UPDATE tool_calls SET expires_at = created_at").await, Ok(1));

    tab.approves("pay", 0).await;
    let why = "Nobody approved this in time, it expired. The tool did not run.";
    tab.shows(&[vec!["pay"], pay(PAY_10, &[why, "Too late."])].concat()).await;
    tab.reloads().await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &["Did not run: expired", "Too late."])].concat()).await;
    assert!(app.ledger.lines().is_empty());
    asked_for(&tab, &[&OPENED, &POSTED, &POSTED, &LOADED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_card_can_be_decided_after_a_later_user_message() {
    let app = with_a_hold().await;
    app.scene.says("Hello.");
    let browser = Browser::start(&app.client.base, "written_on").await;
    let tab = browser.tab("tab").await;
    tab.says("pay").await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &ASKS)].concat()).await;
    tab.says("hi").await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &ASKS), vec!["hi", "Hello."]].concat()).await;

    tab.approves("pay", 0).await;
    let done = [vec!["pay"], pay(PAY_10, &PAID_10), vec!["hi", "Hello."]].concat();
    tab.shows(&done).await;
    tab.reloads().await;
    tab.shows(&done).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    asked_for(&tab, &[&OPENED, &POSTED, &POSTED, &POSTED, &LOADED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_page_resumes_a_turn_that_was_decided_elsewhere() {
    let app = with_a_hold().await;
    app.scene.says("Paid.");
    let browser = Browser::start(&app.client.base, "decided_elsewhere").await;
    let tab = browser.tab("tab").await;
    tab.says("pay").await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &ASKS)].concat()).await;
    let messages = app.client.messages(&tab.chat().await).await;
    let held = messages[1]["parts"][1]["tool_call"]["tool_call_id"].as_str().unwrap();
    assert_eq!(app.client.approve(held).await.body["state"], "succeeded");

    tab.reloads().await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &PAID_10)].concat()).await;
    tab.clicks("Go on").await;
    tab.shows(&[vec!["pay"], pay(PAY_10, &PAID_10), vec!["Paid."]].concat()).await;
    asked_for(&tab, &[&OPENED, &POSTED, &LOADED, &POSTED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_page_that_is_loaded_while_an_approved_call_runs_waits_for_it() {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "wait_for_me", &json!({ "note": "1" }))]).says("Waited.");
    let browser = Browser::start(&app.client.base, "approved_call_runs").await;
    let tab = browser.tab("tab").await;
    tab.says("wait").await;
    let card = ["wait", "wait_for_me", "{", r#""note": "1""#, "}"];
    tab.shows(&[&card[..], &ASKS].concat()).await;
    tab.approves("wait_for_me", 0).await;
    app.ledger.wait_begun().await;
    let running = [&card[..], &["Approved."]].concat();
    tab.shows_so_far(&running).await;

    tab.reloads().await;
    tab.shows(&running).await;
    tab.clicks("Go on").await;
    tab.shows_so_far(&running).await;
    app.ledger.go.add_permits(1);
    let outcome = ["Approved, and done.", "{", r#""waited": "1""#, "}", "Waited."];
    tab.shows(&[&card[..], &outcome].concat()).await;
    assert_eq!(app.ledger.lines(), ["wait_for_me 1"]);
    browser.close().await;
}

#[tokio::test]
async fn a_failure_is_shown_and_can_be_retried() {
    let app = Embedded::start().await;
    app.scene
        .then(vec![Ok(ModelEvent::Text("Well, ".to_owned())), Err("broken".to_owned())])
        .says("at last.");
    let browser = Browser::start(&app.client.base, "tried_again").await;
    let tab = browser.tab("tab").await;
    tab.says("hi").await;
    tab.shows(&["hi", "Well,"]).await;
    let alert = tab.alert().await;
    assert!(alert.starts_with("upstream_error: "), "{alert}");
    tab.clicks("Go on").await;
    tab.shows(&["hi", "Well,", "at last."]).await;
    asked_for(&tab, &[&OPENED, &POSTED, &POSTED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_stop_button_ends_the_turn_and_keeps_its_text() {
    let app = Embedded::start().await;
    app.scene.says("Half an answer.");
    let gate = app.scene.gate();
    gate.add_permits(1);
    let browser = Browser::start(&app.client.base, "stopped").await;
    let tab = browser.tab("tab").await;
    tab.says("hi").await;
    tab.shows_so_far(&["hi", "Half an answer."]).await;
    tab.clicks("Stop").await;
    tab.shows(&["hi", "Half an answer."]).await;
    let answer = app.client.messages(&tab.chat().await).await.pop().unwrap();
    assert_eq!((&answer["role"], &answer["status"]), (&json!("assistant"), &json!("interrupted")));
    asked_for(&tab, &[&OPENED, &POSTED, &["POST /threads/{chat}/cancel 200"]]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_missing_chat_is_reported_as_missing() {
    let app = Embedded::start().await;
    let browser = Browser::start(&app.client.base, "not_there").await;
    let nobodys = "01890a5d-ac96-774b-bcce-b302099a8057";
    let tab = browser.tab_at("tab", &format!("/?chat={nobodys}")).await;
    let refused = app.client.get(&format!("/threads/{nobodys}")).await;
    assert_eq!((refused.status, tab.alert().await), (404, refused.message().to_owned()));
    assert_eq!(tab.asked().await, ["GET /threads/{chat}/messages?format=ui-v6 404"]);
    browser.close().await;
}
