//! What an open page shows of decisions that others make.

use super::{DECIDED, DONE, OPENED, PAY_10, asked_for, lines, with_a_hold};
use holdpoint_testkit::{Browser, Embedded, JsonFields, call};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn an_open_tab_follows_what_another_tab_does() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "two_tabs").await;
    let first = browser.tab("first").await;
    first.sends("pay").await;
    let asks = lines(&["pay"], &[PAY_10.asks()], &[]);
    first.shows(&asks).await;
    let second = browser.tab_at("second", &format!("/?chat={}", first.chat().await)).await;
    second.shows(&asks).await;

    first.approves("pay", 0).await;
    let done = lines(&["pay"], &[PAY_10.with(&DONE)], &["Paid."]);
    first.shows(&done).await;
    second.shows(&done).await;
    app.scene.calls(&[call("p-2", "pay", &json!({ "note": "20" }))]);
    second.sends("pay 20").await;
    for tab in [&first, &second] {
        tab.becomes("document.title", "(1) pay – holdpoint").await;
        tab.becomes("[...document.querySelectorAll('article.user')].at(-1).innerText", "pay 20").await;
    }
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    asked_for(&first, &[OPENED, DECIDED]).await;
    asked_for(&second, &[]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_tab_that_decides_too_late_says_so_and_shows_the_outcome_of_the_call() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "too_late").await;
    let first = browser.tab("first").await;
    first.sends("pay").await;
    let asks = lines(&["pay"], &[PAY_10.asks()], &[]);
    first.shows(&asks).await;
    let late = browser.tab_at("late", &format!("/?chat={}", first.chat().await)).await;
    late.shows(&asks).await;
    late.holds_back("**/validate_tool").await;
    late.denies("pay", 0, "too much").await;

    first.approves("pay", 0).await;
    let done = lines(&["pay"], &[PAY_10.with(&DONE)], &["Paid."]);
    first.shows(&done).await;
    late.shows(&done).await;
    late.releases().await;
    let too_late = "shown().lines.find(line => line.startsWith('Your answer came too late: you had approved it on ')) ?? null";
    late.becomes(&format!("({too_late}) !== null"), true).await;
    let too_late = late.value_of(too_late).await;
    let reported = PAY_10.with(&[DONE[0], too_late.as_str().unwrap(), DONE[1]]);
    late.shows(&lines(&["pay"], &[reported], &["Paid."])).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(app.scene.requests().len(), 2);
    browser.close().await;
}

#[tokio::test]
async fn an_approval_that_comes_too_late_runs_nothing_and_the_page_shows_why() {
    // The approval finds the deadline, not the sweeper.
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_secs(3600)).await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]).answers("Too late.");
    let browser = Browser::start(&app.client.base, "says_why_not").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    assert_eq!(app.rows.change("UPDATE tool_calls SET expires_at = created_at").await, Ok(1));

    tab.approves("pay", 0).await;
    tab.becomes("shown().lines.at(-1)", "Too late.").await;
    let shown = tab.value_of("shown().lines").await;
    let why = shown[7].as_str().unwrap();
    assert!(why.starts_with("Nobody decided until ") && why.ends_with(". It did not run."), "{shown}");
    let late = "Your answer came too late: the time to decide was over.";
    tab.shows(&lines(&["pay"], &[PAY_10.with(&[why, late])], &["Too late."])).await;
    tab.reloads().await;
    tab.becomes("shown().lines.length", 9).await;
    let shown = tab.value_of("shown().lines").await;
    let why = shown[7].as_str().unwrap();
    tab.shows(&lines(&["pay"], &[PAY_10.with(&[why])], &["Too late."])).await;
    assert!(app.ledger.lines().is_empty());
    browser.close().await;
}

#[tokio::test]
async fn a_call_that_expires_is_shown_without_a_reload() {
    let short = |config: &mut holdpoint::config::Config| {
        config.approval.pending_ttl = Duration::from_secs(2);
        config.approval.sweep = Duration::from_millis(100);
        config.approval.resume_on_expiry = true;
    };
    let app = Embedded::with(short).await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]).answers("A pity.");
    let browser = Browser::start(&app.client.base, "expires").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.becomes("shown().lines.some(line => line.startsWith('Nobody decided until '))", true).await;
    // The server resumes the run.
    tab.becomes("shown().lines.at(-1)", "A pity.").await;
    asked_for(&tab, &[OPENED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_page_without_events_says_so_and_still_learns_what_happens() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "without_events").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.loses("**/api/events/**").await;
    tab.reloads().await;
    let interrupted = "Live updates are interrupted. The page tries again by itself.";
    tab.becomes("document.querySelector('.foot [role=status]')?.innerText", interrupted).await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.approves("pay", 0).await;
    tab.shows(&lines(&["pay"], &[PAY_10.with(&DONE)], &["Paid."])).await;
    browser.close().await;
}

#[tokio::test]
async fn a_decision_by_an_approver_is_shown_and_the_page_offers_to_continue() {
    let app = with_a_hold().await;
    app.scene.answers("Paid.");
    let browser = Browser::start(&app.client.base, "decided_elsewhere").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    let messages = app.client.messages(&tab.chat().await).await;
    let held = messages[1]["parts"][1]["tool_call"].text("tool_call_id");
    assert_eq!(app.client.approve(held).await.body["state"], "succeeded");

    tab.shows(&lines(&["pay"], &[PAY_10.with(&DONE)], &[])).await;
    tab.clicks("Go on").await;
    tab.shows(&lines(&["pay"], &[PAY_10.with(&DONE)], &["Paid."])).await;
    asked_for(&tab, &[OPENED]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_edit_by_an_approver_is_shown_beside_the_proposal() {
    let app = with_a_hold().await;
    app.scene.answers("Paid less.");
    let browser = Browser::start(&app.client.base, "edited_elsewhere").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    let messages = app.client.messages(&tab.chat().await).await;
    let held = messages[1]["parts"][1]["tool_call"].text("tool_call_id");
    let edit = json!({ "toolCallId": held, "isValidated": true, "validatedInputs": { "note": "5" }, "resume": true });
    app.client.validate(&edit).await.has_status(200);

    tab.becomes("shown().lines.at(-1)", "Paid less.").await;
    let inputs = "[...document.querySelectorAll('.call figure')].slice(0, 2).map(it => it.innerText.replace(/ on .*/, '').replace(/\\s+/g, ' '))";
    let both = json!(["Proposed by the model note \"10\"", "Edited by you note \"5\""]);
    tab.becomes(inputs, both).await;
    tab.becomes(
        "document.querySelector('.call .status').innerText",
        "Approved by you, with other inputs, and done.",
    )
    .await;
    assert_eq!(app.ledger.lines(), ["pay 5"]);
    browser.close().await;
}
