//! What a person has to have seen before the page offers an approval.

use super::{DECIDED, DONE, OPENED, asked_for, lines, pay, with_a_hold};
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::{Browser, Embedded, call};
use serde_json::json;

const PAY: &str = "pay";
const WIPE: &str = "wipe";
/// The buttons that decide or read on.
const BUTTONS: &str = "[...document.querySelectorAll('.call .buttons button')].map(it => it.innerText)";
/// The buttons beside the composer.
const TOGETHER: &str = "[...document.querySelectorAll('.waiting button')].map(it => it.innerText)";

/// A text of so many lines.
fn long(lines: usize) -> String {
    (0..lines).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn an_approval_is_offered_only_for_a_complete_card_that_was_in_view() {
    let app = Embedded::start().await;
    let browser = Browser::start(&app.client.base, "reads_cards").await;
    let tab = browser.tab("tab").await;
    let sizes = [(1280, 800), (320, 640), (390, 664), (640, 400), (320, 640), (1280, 800)];
    for (seed, (width, height)) in (1..).zip(sizes) {
        let faults = tab.faults_of_cards(seed, width, height).await;
        assert_eq!(faults, Vec::<String>::new(), "seed {seed}, {width} x {height}");
        assert_eq!(tab.faults().await, Vec::<String>::new(), "seed {seed}, {width} x {height}");
    }
    browser.close().await;
}

#[tokio::test]
async fn the_button_says_what_is_unread_goes_there_and_decides_nothing() {
    let app = server(&World::that_reports(&long(200)), |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]).answers("Wiped.");
    let browser = Browser::start(&app.client.base, "reads_on").await;
    let tab = browser.tab("tab").await;
    tab.sends("wipe it").await;
    let unread = json!(["Read on: what the tool says", "Deny", "Edit"]);
    // The log follows its end.
    tab.becomes(BUTTONS, json!(["Read on: inputs, what the tool says", "Deny", "Edit"])).await;
    tab.clicks_in(WIPE, "Read on: inputs, what the tool says").await;
    tab.becomes(BUTTONS, unread.clone()).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    // A long value has its beginning and its end.
    let texts = "[...document.querySelectorAll('[data-part=preview] pre')].map(it => it.textContent.trim().split('\\n'))
        .map(lines => [lines[0], lines.at(-1)])";
    tab.becomes(texts, json!([["line 0", "line 14"], ["line 192", "line 199"]])).await;
    tab.clicks_in(WIPE, "Read on: what the tool says").await;
    tab.becomes("document.activeElement.className", "cut").await;
    tab.presses("Enter").await;
    tab.becomes(texts, json!([["line 0", "line 199"]])).await;
    tab.becomes("document.activeElement.dataset.part", "preview").await;
    let first =
        "[...document.querySelectorAll('.unit')].findIndex(it => it.getBoundingClientRect().top > 60)";
    tab.clicks_in(WIPE, "Read on: what the tool says").await;
    let before = tab.value_of(first).await;
    tab.clicks_in(WIPE, "Read on: what the tool says").await;
    let after = tab.value_of(first).await;
    assert!(after.as_u64() > before.as_u64(), "{before} {after}");
    tab.becomes(BUTTONS, unread).await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 1);

    tab.approves("wipe", 0).await;
    tab.becomes("shown().lines.at(-1)", "Wiped.").await;
    assert_eq!(app.ledger.lines(), ["wipe 10"]);
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn blank_lines_push_nothing_out_of_view() {
    let world = World::that_reports(&format!("ls -la /var/log{}; rm -rf /srv", "\n".repeat(900)));
    let app = server(&world, |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]);
    let browser = Browser::start(&app.client.base, "blank_lines").await;
    let tab = browser.tab("tab").await;
    tab.sends("wipe it").await;
    let text = "document.querySelector('[data-part=preview] pre').textContent";
    tab.becomes(text, "ls -la /var/log↵ ×900; rm -rf /srv").await;
    tab.becomes(BUTTONS, json!(["Approve", "Deny", "Edit"])).await;
    browser.close().await;
}

#[tokio::test]
async fn a_word_that_mixes_alphabets_is_marked() {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "to p\u{430}ypal.com" }))]);
    let browser = Browser::start(&app.client.base, "alphabets").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.becomes("document.querySelector('.call mark.mixed').innerText", "p\u{430}ypal").await;
    tab.becomes(
        "document.querySelector('.call dd .warning').innerText",
        "Letters of several alphabets in p\u{430}ypal",
    )
    .await;
    browser.close().await;
}

#[tokio::test]
async fn a_part_can_be_read_without_a_view() {
    let app = server(&World::that_reports(&long(20)), |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]).answers("Wiped.");
    let browser = Browser::start(&app.client.base, "reads_without_a_view").await;
    let tab = browser.tab("tab").await;
    tab.resizes(1280, 500).await;
    tab.sends("wipe it").await;
    tab.becomes("document.querySelectorAll('.on-focus').length > 0", true).await;
    // As a screen reader presses a button: without scrolling.
    tab.value_of("document.querySelectorAll('.on-focus').forEach(button => button.click())").await;
    tab.becomes("document.activeElement.dataset.part", "preview").await;
    tab.becomes(BUTTONS, json!(["Approve", "Deny", "Edit"])).await;
    tab.becomes("document.querySelectorAll('.on-focus').length", 0).await;
    browser.close().await;
}

#[tokio::test]
async fn several_calls_are_approved_together_only_if_their_cards_were_read() {
    let app = server(&World::that_reports(&long(20)), |_| {}).await;
    let calls = ["1", "2", "3"].map(|note| call(&format!("p-{note}"), "wipe", &json!({ "note": note })));
    app.scene.calls(&calls).answers("Two of three.");
    let browser = Browser::start(&app.client.base, "reads_several").await;
    let tab = browser.tab("tab").await;
    tab.resizes(1280, 500).await;
    tab.sends("wipe three times").await;
    let says = "document.querySelector('.waiting p').innerText";
    tab.becomes(says, "3 calls wait for you. You have not read 3 of them.").await;
    tab.becomes(TOGETHER, json!(["Show"])).await;
    tab.reads(2).await;
    tab.becomes(says, "3 calls wait for you. You have not read 1 of them.").await;
    tab.becomes(TOGETHER, json!(["Show", "Approve the 2 that you have read"])).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    // To the first one that is unread.
    tab.clicks("Show").await;
    tab.becomes("[...document.querySelectorAll('.call')].indexOf(document.activeElement)", 2).await;
    tab.clicks("Approve the 2 that you have read").await;
    tab.becomes("document.querySelectorAll('.call.output-available').length", 2).await;
    tab.becomes(says, "A call waits for you.").await;
    let mut wiped = app.ledger.lines();
    wiped.sort();
    assert_eq!(wiped, ["wipe 1", "wipe 2"]);
    asked_for(&tab, &[OPENED, "POST /api/qa/validate_tools 200"]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_note_goes_with_an_approval() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "notes").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    // Before its hold has come, the call has a summary of its own.
    tab.becomes("document.querySelectorAll('section.call summary').length", 1).await;
    tab.value_of("document.querySelector('section.call summary').click()").await;
    tab.fills_in(PAY, "Note (kept with the approval)", " as agreed ").await;
    // Enter in the field approves nothing.
    tab.presses("Enter").await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 1);
    tab.approves("pay", 0).await;
    let noted = [DONE[0], "Note: as agreed", DONE[1]];
    tab.shows(&lines(&["pay"], &[pay(r#""10""#).with(&noted)], &["Paid."])).await;
    browser.close().await;
}
