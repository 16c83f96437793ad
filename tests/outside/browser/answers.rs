//! Answers of the model: reading along, failures, Stop.

use super::{OPENED, asked_for, own};
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Browser, Embedded, eventually};
use serde_json::json;

#[tokio::test]
async fn a_page_that_is_loaded_during_a_turn_shows_the_rest() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    let words = |text: &str| Ok(ModelEvent::Text(text.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then(vec![words("Half "), words("of "), words("it."), Ok(end)]);
    let browser = Browser::start(&app.client.base, "during_a_turn").await;
    let tab = browser.tab("tab").await;

    tab.sends("hi").await;
    gate.add_permits(1);
    tab.shows_so_far(&["hi", "Half"]).await;
    tab.reloads().await;
    tab.shows_so_far(&["hi", "Half"]).await;
    gate.add_permits(1);
    tab.shows_so_far(&["hi", "Half of"]).await;
    gate.add_permits(2);
    tab.shows(&["hi", "Half of it."]).await;
    asked_for(&tab, &[OPENED]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_answer_that_completes_during_a_page_load_is_shown() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.answers("All of it.");
    let browser = Browser::start(&app.client.base, "ends_while_loaded").await;
    let tab = browser.tab("tab").await;
    tab.sends("hi").await;
    let started = async || (app.rows.count("runs WHERE status = 'running'").await == 1).then_some(());
    eventually("the turn is under way", started).await;
    tab.reloads_held().await;
    tab.becomes("shown().lines", json!(["hi"])).await;
    gate.add_permits(100);
    let ended = async || (app.rows.count("runs WHERE status = 'completed'").await == 1).then_some(());
    eventually("the turn has ended", ended).await;
    tab.releases().await;
    tab.shows(&["hi", "All of it."]).await;
    let requested = tab.requests().await;
    let stream =
        requested.iter().rposition(|line| line.starts_with("GET /api/qa/chat_streamed/{chat}/stream"));
    assert_eq!(requested[stream.unwrap()], "GET /api/qa/chat_streamed/{chat}/stream 204");
    let loaded = own(&["GET /api/threads/{chat}/messages?format=ui-v7 200"]);
    assert!(requested[stream.unwrap()..].contains(&loaded[0]), "{requested:#?}");
    browser.close().await;
}

#[tokio::test]
async fn a_failure_is_shown_and_can_be_retried() {
    let app = Embedded::start().await;
    app.scene
        .then(vec![Ok(ModelEvent::Text("Well, ".to_owned())), Err("broken".to_owned())])
        .answers("at last.");
    let browser = Browser::start(&app.client.base, "tried_again").await;
    let tab = browser.tab("tab").await;
    tab.sends("hi").await;
    tab.shows(&["hi", "Well,"]).await;
    assert_eq!(tab.alert().await, "The model could not be reached, or refused.");
    tab.clicks("Go on").await;
    tab.shows(&["hi", "Well,", "at last."]).await;
    tab.becomes("document.querySelector('[role=alert]') === null", true).await;
    asked_for(&tab, &[OPENED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_stop_button_ends_the_turn_and_keeps_its_text() {
    let app = Embedded::start().await;
    app.scene.answers("Half an answer.");
    let gate = app.scene.gate();
    gate.add_permits(1);
    let browser = Browser::start(&app.client.base, "stopped").await;
    let tab = browser.tab("tab").await;
    tab.sends("hi").await;
    tab.shows_so_far(&["hi", "Half an answer."]).await;
    tab.clicks("Stop").await;
    tab.shows(&["hi", "Half an answer."]).await;
    let answer = app.client.messages(&tab.chat().await).await.pop().unwrap();
    assert_eq!((&answer["role"], &answer["status"]), (&json!("assistant"), &json!("interrupted")));
    asked_for(&tab, &[OPENED, "POST /api/threads/{chat}/cancel 200"]).await;
    browser.close().await;
}
