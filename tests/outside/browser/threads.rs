//! The list of threads.

use super::{OPENED, PAY_10, asked_for, lines, with_a_hold};
use holdpoint_testkit::{Browser, Embedded};
use serde_json::json;

/// The entries of the list: the title, the number of waiting calls, and whether it is the current one.
const LIST: &str = "[...document.querySelectorAll('nav li a')].map(entry => [
    entry.querySelector('.title').innerText, entry.querySelector('.badge')?.innerText ?? null, entry.ariaCurrent])";

#[tokio::test]
async fn threads_are_listed_by_title_with_the_calls_that_wait() {
    let app = with_a_hold().await;
    let browser = Browser::start(&app.client.base, "lists_threads").await;
    let tab = browser.tab("tab").await;
    tab.becomes(LIST, json!([])).await;
    tab.sends("pay the bill").await;
    tab.shows(&lines(&["pay the bill"], &[PAY_10.asks()], &[])).await;
    tab.becomes(LIST, json!([["pay the bill", "1 waiting", "page"]])).await;

    tab.clicks_link("New chat").await;
    tab.becomes(LIST, json!([["pay the bill", "1 waiting", null]])).await;
    tab.becomes("document.activeElement.ariaLabel", "Message").await;
    app.scene.answers("Hello.");
    tab.sends("hi").await;
    tab.shows(&["hi", "Hello."]).await;
    tab.becomes(LIST, json!([["hi", null, "page"], ["pay the bill", "1 waiting", null]])).await;

    tab.clicks_link("pay the bill 1 waiting").await;
    tab.shows(&lines(&["pay the bill"], &[PAY_10.asks()], &[])).await;
    tab.becomes("document.activeElement.innerText", "pay the bill").await;
    tab.becomes(LIST, json!([["hi", null, null], ["pay the bill", "1 waiting", "page"]])).await;
    tab.value_of("history.back()").await;
    tab.shows(&["hi", "Hello."]).await;
    tab.becomes("document.title", "hi – holdpoint").await;
    asked_for(&tab, &[OPENED, OPENED]).await;
    browser.close().await;
}

#[tokio::test]
async fn older_threads_and_messages_are_shown_on_demand() {
    let app = Embedded::start().await;
    for n in 0..21 {
        let made = app.client.post("/threads", &json!({ "title": format!("thread {n}") })).await;
        made.has_status(201);
    }
    let thread = app.client.thread().await;
    for n in 0..26 {
        app.scene.answers(&format!("answer {n}"));
        app.client.send_message(&thread, &format!("question {n}")).await;
    }
    let browser = Browser::start(&app.client.base, "shows_older").await;
    let tab = browser.tab_at("tab", &format!("/?chat={thread}")).await;
    tab.becomes(&format!("{LIST}.length"), 20).await;
    tab.clicks("Older chats").await;
    tab.becomes(&format!("{LIST}.length"), 22).await;

    let articles = "document.querySelectorAll('article').length";
    tab.becomes(articles, 50).await;
    tab.clicks("Older messages").await;
    tab.becomes(articles, 52).await;
    tab.becomes("document.querySelector('article').innerText", "question 0").await;
    app.scene.answers("answer 26");
    tab.sends("question 26").await;
    tab.becomes("shown().lines.at(-1)", "answer 26").await;
    tab.becomes(articles, 54).await;
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
    let mut requested = tab.requests().await;
    requested.retain(|line| line.contains("{chat}"));
    requested.sort();
    assert_eq!(
        requested,
        ["GET /api/threads/{chat} 404", "GET /api/threads/{chat}/messages?format=ui-v7 404"]
    );
    tab.clicks_link("New chat").await;
    app.scene.answers("Hello.");
    tab.sends("hi").await;
    tab.shows(&["hi", "Hello."]).await;
    browser.close().await;
}
