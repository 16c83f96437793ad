//! What a page shows when a turn breaks, is stopped, or is refused.

use super::page::{drive, reload, thread};
use super::saying::{Piece, step};
use crate::support::Embedded;
use holdpoint::llm::ModelEvent;
use serde_json::{Value, json};

fn breaks() -> Result<ModelEvent, String> {
    Err("key sk-123 is bad".to_owned())
}

#[tokio::test]
async fn a_failure_in_the_stream_is_raised_and_the_words_stay() {
    let app = Embedded::start().await;
    app.scene.then(vec![
        Ok(ModelEvent::Text("Hal".to_owned())),
        Ok(ModelEvent::Text("f ".to_owned())),
        breaks(),
    ]);
    let page = drive(&app, "send", &[]).await;
    page.looks_like("e-error-mid-stream.1");
    let error = page.error.as_deref().unwrap();
    assert!(error.starts_with("upstream_error: ") && error.contains("(request "), "{error}");
    assert_eq!(page.last()["content"], "Half ");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_failure_before_the_first_word_leaves_an_empty_step() {
    let app = Embedded::start().await;
    app.scene.then(vec![breaks()]);
    let page = drive(&app, "send", &[]).await;
    assert!(page.error.is_some());
    assert_eq!(page.last()["parts"], json!([{ "type": "step-start" }]));
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_call_that_was_half_written_is_gone_when_the_page_is_loaded_anew() {
    let app = Embedded::start().await;
    let mut half = step(&[Piece::Text("Let me "), Piece::Call("look", "1"), Piece::Call("pay", "2")]);
    half.truncate(6);
    half.push(breaks());
    app.scene.then(half);
    let page = drive(&app, "send", &[]).await;
    let states = |message: &Value| {
        let calls = message["toolInvocations"].as_array().cloned().unwrap_or_default();
        calls.iter().map(|call| call["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(page.last()), ["partial-call", "partial-call"]);
    assert_eq!(states(&reload(&app).await[1]), Vec::<String>::new(), "what was never stored is no call");
    page.equals_reload(&app).await;
    assert!(app.ledger.lines().is_empty());
}

#[tokio::test]
async fn a_page_retries_what_broke_by_regenerating_it() {
    let app = Embedded::start().await;
    app.scene.then(vec![Ok(ModelEvent::Text("Half ".to_owned())), breaks()]).says("Whole.");
    let page = drive(&app, "regenerate", &[]).await;
    assert_eq!((page.error.as_deref(), page.messages.len()), (None, 2));
    assert_eq!(page.last()["content"], "Whole.");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_turn_that_somebody_stopped_ends_without_an_error() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Text("So far "), Piece::Text("and further.")]));
    gate.add_permits(1);
    let stop = async {
        let run = crate::support::eventually("the words are shown", async || {
            let threads = app.client.get("/threads").await.body;
            threads["results"][0]["active_run_id"].as_str().map(str::to_owned)
        });
        app.client.post(&format!("/runs/{}/cancel", run.await), &json!({})).await
    };
    let (page, stopped) = futures::join!(drive(&app, "send", &[]), stop);
    assert_eq!((stopped.status, page.error.as_deref()), (200, None));
    assert_eq!(page.finishes[0]["finishReason"], "other");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_refusal_is_raised_as_it_is_and_the_question_stays() {
    let app = Embedded::start().await;
    let nowhere = "/qa/chat_streamed/01890a5d-ac96-774b-bcce-b302099a8057";
    let page = drive(&app, "send", &["--path", nowhere]).await;
    page.looks_like("g2-http-error.1");
    let error: Value = serde_json::from_str(page.error.as_deref().unwrap()).unwrap();
    assert_eq!((&page.requests[0]["status"], &error["error"]["code"]), (&json!(404), &json!("not_found")));

    let gate = app.scene.gate();
    app.scene.says("Busy.");
    let running = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{running}");
    let first = app.client.http.post(app.client.url(&path)).json(&json!({ "content": "hi" })).send().await;
    let page = drive(&app, "send", &["--path", &path]).await;
    page.looks_like("g2-http-error.1");
    let error: Value = serde_json::from_str(page.error.as_deref().unwrap()).unwrap();
    assert_eq!(
        (&page.requests[0]["status"], &error["error"]["code"]),
        (&json!(409), &json!("turn_in_progress"))
    );
    gate.add_permits(10);
    assert_eq!(app.client.read_on(first.unwrap()).await.text(), "Busy.");
    assert_eq!(thread(&app).await, running);
    assert_eq!(app.client.questions(&running).await, ["hi"]);
}
