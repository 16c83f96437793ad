//! A page that is loaded while a turn is under way, or before anything was said.

use super::page::{CHAT, Page, drive, drive_and, reload, thread};
use super::saying::{Piece, step};
use crate::support::{Embedded, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Loads a page and lets it resume; once it reads along, the model goes on.
async fn load_and_resume(app: &Embedded, gate: Arc<Semaphore>) -> (Vec<Value>, Page) {
    let loaded = reload(app).await;
    let messages = json!(loaded).to_string();
    let go_on = move || gate.add_permits(100);
    let page = drive_and(app, "resume", &["--initial-messages", &messages], go_on).await;
    (loaded, page)
}

async fn begin(app: &Embedded, body: &Value) -> reqwest::Response {
    app.client.http.post(app.client.url("/qa/chat_streamed")).json(body).send().await.unwrap()
}

#[tokio::test]
async fn a_page_that_mounts_before_its_first_message_shows_nothing() {
    let app = Embedded::start().await;
    let page = drive(&app, "resume", &[]).await;
    assert_eq!((page.error.as_deref(), &page.messages[..]), (None, &[][..]));
    assert_eq!(page.requests[0]["status"], 200);
    assert_eq!(app.rows.count("threads").await, 0, "asking makes no thread");
}

#[tokio::test]
async fn a_page_that_is_loaded_after_the_answer_shows_it_once() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("Look. "), Piece::Call("look", "1")])).says("Seen.");
    app.client.turn_by_id(&json!({ "id": CHAT, "content": "hi" })).await;
    let loaded = json!(reload(&app).await).to_string();
    let page = drive(&app, "resume", &["--initial-messages", &loaded]).await;
    assert_eq!((page.error.as_deref(), page.requests[0]["status"].as_u64()), (None, Some(200)));
    assert_eq!(page.last()["content"], "Look. Seen.");
    page.equals_reload(&app).await;
    assert_eq!(app.scene.requests().len(), 2);
}

#[tokio::test]
async fn a_page_that_is_loaded_during_the_first_turn_reads_it_from_its_beginning() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Text("Look. "), Piece::Call("look", "1")])).says("Seen.");
    // Into the second step, so that the first is stored.
    gate.add_permits(7);
    let first = begin(&app, &json!({ "id": CHAT, "content": "hi" })).await;
    app.ledger.wait_begun().await;
    let (loaded, page) = load_and_resume(&app, gate).await;
    assert_eq!(loaded.len(), 1, "the answer is what the turn will tell: {loaded:?}");
    assert_eq!(page.error, None);
    assert_eq!(page.last()["content"], "Look. Seen.");
    page.equals_reload(&app).await;
    assert_eq!(app.client.read_on(first).await.text(), "Look. Seen.");
}

#[tokio::test]
async fn a_page_that_is_loaded_during_a_continuation_reads_the_rest_behind_what_it_shows() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")]));
    let held = app.client.turn_by_id(&json!({ "id": CHAT, "content": "pay" })).await;
    app.client.approve(&held.pending()[0]).await;
    let before = reload(&app).await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Text("Paid. "), Piece::Call("look", "1")])).says("All done.");
    gate.add_permits(7);
    let running = begin(&app, &json!({ "id": CHAT })).await;
    app.ledger.wait_begun().await;
    app.ledger.wait_begun().await;
    let (loaded, page) = load_and_resume(&app, gate).await;
    assert_eq!(loaded, before, "as it was when the turn began");
    assert_eq!(page.error, None);
    assert_eq!(page.last()["content"], "I will pay. Paid. All done.");
    page.equals_reload(&app).await;
    app.client.read_on(running).await;
}

#[tokio::test]
async fn a_thread_in_the_path_is_resumed_whatever_the_page_calls_its_chat() {
    let app = Embedded::start().await;
    let id = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{id}");
    app.scene.then(step(&[Piece::Call("pay", "10")])).says("Paid.");
    let page = drive(&app, "approve", &["--path", &path, "--after", "resume"]).await;
    assert_eq!(page.asked()[2], format!("GET {path}?chatId={CHAT}"));
    assert_eq!((page.error.as_deref(), &page.last()["content"]), (None, &json!("Paid.")));
    assert_eq!(thread(&app).await, id);
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_that_is_loaded_while_a_failure_is_tried_again_shows_what_came_before() {
    let app = Embedded::with(|config| config.model.max_steps = 1).await;
    let look = [Piece::Text("Look. "), Piece::Call("look", "1")];
    app.scene.then(step(&look)).then(step(&look));
    let failed = app.client.turn_by_id(&json!({ "id": CHAT, "content": "hi" })).await;
    assert!(failed.one('3').as_str().unwrap().starts_with("step_limit: "), "{}", failed.raw);
    let before = reload(&app).await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Text("At "), Piece::Text("last.")]));
    gate.add_permits(1);
    let running = begin(&app, &json!({ "id": CHAT })).await;
    let opened = async || (app.rows.count("message_steps").await == 3).then_some(());
    eventually("the third step is open", opened).await;
    let (loaded, page) = load_and_resume(&app, gate).await;
    assert_eq!(loaded, before);
    assert_eq!((page.error.as_deref(), &page.last()["content"]), (None, &json!("Look. Look. At last.")));
    page.equals_reload(&app).await;
    app.client.read_on(running).await;
}
