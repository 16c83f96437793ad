//! The page by keyboard, for a screen reader, and on unusual displays.

use super::{DECIDED, DONE, OPENED, PAY_10, asked_for, later_calls, lines, with_a_hold};
use holdpoint_testkit::{Browser, Embedded, Tab, call};
use serde_json::{Value, json};

/// The element with the focus: its label, or its text.
const FOCUS: &str =
    "(it => it.ariaLabel ?? it.labels?.[0]?.innerText ?? it.innerText)(document.activeElement)";

/// Asserts that axe finds nothing, and that nothing is wider than the page, in light and in dark, on a wide page and on
/// one of 320 pixels.
async fn is_sound(tab: &Tab, state: &str) {
    let none = Vec::<String>::new();
    assert_eq!(tab.faults().await, none, "{state}, light and wide");
    tab.resizes(320, 640).await;
    tab.prefers(json!({ "colorScheme": "dark" })).await;
    assert_eq!(tab.faults().await, none, "{state}, dark and narrow");
    tab.resizes(1280, 720).await;
    tab.prefers(json!({ "colorScheme": "light" })).await;
}

#[tokio::test]
async fn axe_finds_nothing_in_any_state_of_a_call() {
    let app = Embedded::start().await;
    let calls = [("p-1", "pay"), ("p-2", "wait_for_me"), ("p-3", "refuse"), ("p-4", "look")];
    app.scene
        .calls(&calls.map(|(id, tool)| call(id, tool, &json!({ "note": "10" }))))
        .answers("**All** of it.");
    let browser = Browser::start(&app.client.base, "axe_calls").await;
    let tab = browser.tab("tab").await;
    is_sound(&tab, "a new chat").await;
    tab.sends("pay").await;
    tab.becomes("document.querySelectorAll('.call').length", 4).await;
    tab.becomes("document.querySelectorAll('.call.waits').length", 3).await;
    is_sound(&tab, "calls that wait").await;
    tab.clicks_in("pay", "Deny").await;
    is_sound(&tab, "a reason").await;
    tab.clicks_in("pay", "Deny").await;
    tab.becomes("document.querySelectorAll('.output-denied').length", 1).await;
    tab.approves("wait_for_me", 0).await;
    app.ledger.wait_started().await;
    tab.becomes("document.querySelectorAll('.approval-responded').length", 1).await;
    tab.clicks_in("refuse", "Edit").await;
    tab.fills_in("refuse", "note", "").await;
    tab.clicks_in("refuse", "Approve edited inputs").await;
    tab.becomes("document.querySelectorAll('[aria-invalid]').length", 1).await;
    is_sound(&tab, "a running call, a denied one, and a wrong edit").await;
    tab.fills_in("refuse", "note", "20").await;
    tab.clicks_in("refuse", "Approve edited inputs").await;
    tab.becomes("document.querySelectorAll('.output-error').length", 1).await;
    app.ledger.release.add_permits(1);
    tab.becomes("shown().lines.at(-1)", "All of it.").await;
    tab.value_of("document.querySelectorAll('details').forEach(it => it.open = true)").await;
    is_sound(&tab, "calls that have ended").await;
    browser.close().await;
}

#[tokio::test]
async fn axe_finds_nothing_in_the_frame() {
    let app = with_a_hold().await;
    app.scene.then(vec![Err("broken".to_owned())]);
    let browser = Browser::start(&app.client.base, "axe_frame").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    tab.clicks_link("New chat").await;
    tab.sends("hi").await;
    tab.alert().await;
    tab.resizes(320, 640).await;
    tab.clicks("Chats").await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    tab.resizes(1280, 720).await;
    is_sound(&tab, "an error").await;
    tab.loses("**/api/events/**").await;
    tab.reloads().await;
    tab.becomes("document.querySelectorAll('.foot [role=status]').length", 1).await;
    is_sound(&tab, "no live updates").await;
    browser.close().await;
}

#[tokio::test]
async fn everything_can_be_done_by_keyboard_and_enter_approves_nothing() {
    let app = with_a_hold().await;
    app.scene.answers("As you like.");
    let browser = Browser::start(&app.client.base, "by_keyboard").await;
    let tab = browser.tab("tab").await;
    tab.becomes(FOCUS, "Message").await;
    tab.types("pay").await;
    tab.presses("Enter").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    // A call arrives while a person types.
    tab.becomes(FOCUS, "Message").await;
    tab.presses("Enter").await;
    tab.presses("Shift+Tab").await;
    tab.becomes(FOCUS, "Show").await;
    tab.presses("Enter").await;
    tab.becomes(FOCUS, "Tool call pay: Pay?").await;
    tab.presses("Enter").await;
    let remember = later_calls("Pay");
    let mut stops = Vec::<Value>::new();
    for _ in 0..5 {
        tab.presses("Tab").await;
        stops.push(tab.value_of(FOCUS).await);
    }
    assert_eq!(stops, [&remember, "Add a note", "Approve", "Deny", "Edit"]);
    tab.presses("Enter").await;
    tab.becomes(FOCUS, "note").await;
    tab.presses("Enter").await;
    tab.presses("Escape").await;
    tab.becomes(FOCUS, "Edit").await;
    tab.presses("Shift+Tab").await;
    tab.presses("Enter").await;
    tab.types("not today").await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 1);
    tab.presses("Enter").await;
    let denied = PAY_10.with(&["Denied by you: not today. It did not run."]);
    tab.shows(&lines(&["pay"], &[denied], &["As you like."])).await;
    tab.becomes(FOCUS, "Tool call pay: Pay?").await;
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn calls_outcomes_and_answers_are_announced_to_a_screen_reader_once() {
    let app = with_a_hold().await;
    app.scene.answers("It is **paid**.");
    let browser = Browser::start(&app.client.base, "screen_reader").await;
    let tab = browser.tab("tab").await;
    tab.sends("pay").await;
    tab.becomes("announced", json!(["Pay? Waits for you. Nothing has run."])).await;
    tab.approves("pay", 0).await;
    tab.shows(&lines(&["pay"], &[PAY_10.with(&DONE)], &["It is paid."])).await;
    tab.becomes("announced.at(-1)", "It is paid.").await;
    let reported = tab.value_of("announced.filter(text => !text.endsWith('Running.'))").await;
    let all = ["Pay? Waits for you. Nothing has run.", "Pay? Approved by you, and done.", "It is paid."];
    assert_eq!(reported, json!(all));
    // A loaded conversation is not announced.
    tab.reloads().await;
    tab.shows(&lines(&["pay"], &[PAY_10.with(&DONE)], &["It is paid."])).await;
    assert_eq!(tab.value_of("announced").await, json!([]));
    browser.close().await;
}

#[tokio::test]
async fn forced_colours_and_reduced_motion_lose_nothing() {
    let app = with_a_hold().await;
    let browser = Browser::start(&app.client.base, "forced_colours").await;
    let tab = browser.tab("tab").await;
    tab.prefers(json!({ "forcedColors": "active", "reducedMotion": "reduce" })).await;
    tab.sends("pay").await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    let edges = "['.call', '.risk', '.badge', 'article.user', '.call pre', '.call button', 'nav [aria-current]', 'textarea']
        .filter(it => { const { borderTopStyle, borderTopWidth, borderTopColor } = getComputedStyle(document.querySelector(it));
            return borderTopStyle === 'none' || parseFloat(borderTopWidth) === 0 || borderTopColor === 'rgba(0, 0, 0, 0)'; })";
    tab.becomes("matchMedia('(forced-colors: active)').matches", true).await;
    tab.becomes(edges, json!([])).await;
    assert_eq!(tab.value_of("document.getAnimations().length").await, 0);
    tab.resizes(320, 640).await;
    assert_eq!(tab.value_of("document.documentElement.scrollWidth <= innerWidth").await, true);
    browser.close().await;
}

#[tokio::test]
async fn a_window_of_320_by_256_pixels_scrolls_as_a_whole() {
    let app = with_a_hold().await;
    let browser = Browser::start(&app.client.base, "magnified").await;
    let tab = browser.tab("tab").await;
    tab.resizes(320, 256).await;
    tab.sends("pay").await;
    tab.becomes("document.querySelectorAll('.call.waits').length", 1).await;
    tab.reads(1).await;
    tab.shows(&lines(&["pay"], &[PAY_10.asks()], &[])).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    assert_eq!(tab.value_of("getComputedStyle(document.querySelector('.log')).overflowY").await, "visible");
    tab.denies("pay", 0, "").await;
    tab.becomes("document.querySelectorAll('.output-denied').length", 1).await;
    browser.close().await;
}
