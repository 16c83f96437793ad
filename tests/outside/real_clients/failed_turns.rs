//! A page whose turn fails, is cancelled, or is refused.

use super::output::{Piece, step};
use super::page::{Page, Version, all, calls, reload, thread, words};
use holdpoint::llm::ModelEvent;
use holdpoint_testkit::{Embedded, eventually};
use serde_json::json;

fn breaks() -> Result<ModelEvent, String> {
    Err("key sk-123 is bad".to_owned())
}

#[tokio::test]
async fn a_failure_in_the_stream_is_raised_and_the_text_stays() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(vec![
            Ok(ModelEvent::Text("Hal".to_owned())),
            Ok(ModelEvent::Text("f ".to_owned())),
            breaks(),
        ]);
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("e-error-mid-stream.1");
        let error = page.error.as_deref().unwrap();
        assert!(error.starts_with("upstream_error: ") && error.contains("(request "), "{error}");
        assert_eq!(page.text(), "Half ");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_failure_before_the_first_delta_leaves_an_empty_step() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(vec![breaks()]);
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        assert!(page.error.is_some());
        assert_eq!(page.last()["parts"], json!([{ "type": "step-start" }]));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn an_incomplete_call_is_absent_after_a_reload() {
    for version in all() {
        let app = Embedded::start().await;
        let mut half = step(&[Piece::Text("Let me "), Piece::Call("look", "1"), Piece::Call("pay", "2")]);
        half.truncate(6);
        half.push(breaks());
        app.scene.then(half);
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        let half = if !version.is_ui() { "partial-call" } else { "input-streaming" };
        assert_eq!(page.states(), [half; 2]);
        assert_eq!(calls(&reload(&app, version).await[1]), [], "an incomplete call is not stored");
        page.equals_reload(&app).await;
        assert!(app.ledger.lines().is_empty());
    }
}

#[tokio::test]
async fn a_page_retries_a_failed_turn_by_regenerating_the_answer() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(vec![Ok(ModelEvent::Text("Half ".to_owned())), breaks()]).answers("Whole.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.regenerate().await;
        assert_eq!((page.error.as_deref(), page.messages.len()), (None, 2));
        assert_eq!(page.text(), "Whole.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_resumes_a_failed_turn_where_it_failed() {
    for version in super::page::ui() {
        let app = Embedded::start().await;
        app.scene.then(vec![Ok(ModelEvent::Text("Half ".to_owned())), breaks()]).answers("and half.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.send_nothing().await;
        assert_eq!((page.error.as_deref(), page.messages.len()), (None, 2));
        assert_eq!(page.text(), "Half and half.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_cancelled_turn_ends_without_an_error() {
    for version in all() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("So far "), Piece::Text("and further.")]));
        gate.add_permits(1);
        let stop = async {
            let run = eventually("the words are shown", async || {
                let threads = app.client.get("/threads").await.body;
                threads["results"][0]["active_run_id"].as_str().map(str::to_owned)
            });
            app.client.post(&format!("/runs/{}/cancel", run.await), &json!({})).await
        };
        let mut page = Page::open(&app, version).await;
        let ((), stopped) = futures::join!(page.send("hello"), stop);
        assert_eq!((stopped.status, page.error.as_deref()), (200, None));
        // Pages of 5 get no finish reason.
        if version != Version::V5 {
            assert_eq!(page.finishes[0]["finishReason"], "other");
        }
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_refusal_is_raised_unchanged_and_the_question_stays() {
    for version in all() {
        let app = Embedded::start().await;
        let nowhere = "/qa/chat_streamed/01890a5d-ac96-774b-bcce-b302099a8057";
        let mut page = Page::open_with(&app, version, &["--path", nowhere]).await;
        page.send("hello").await;
        page.looks_like("g2-http-error.1");
        assert_eq!(page.refused(), (404, "not_found".to_owned()));

        let gate = app.scene.gate();
        app.scene.answers("Busy.");
        let running = app.client.thread().await;
        let path = format!("/qa/chat_streamed/{running}");
        let first = app.client.begin(&running, &json!({ "content": "hi" })).await;
        let mut page = Page::open_with(&app, version, &["--path", &path]).await;
        page.send("hello").await;
        page.looks_like("g2-http-error.1");
        assert_eq!(page.refused(), (409, "turn_in_progress".to_owned()));
        gate.add_permits(10);
        assert_eq!(app.client.read_on(first).await.text(), "Busy.");
        assert_eq!(thread(&app).await, running);
        assert_eq!(app.client.questions(&running).await, ["hi"]);
        assert_eq!(words(&page.messages[0]), "hello");
    }
}

#[tokio::test]
async fn a_message_that_was_refused_reaches_the_model_with_the_next_one() {
    for version in all() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.answers("Done.").answers("Within 300, then.");
        let mut page = Page::open(&app, version).await;
        page.act(&json!({ "do": "send", "text": "go", "until": "answered" })).await;
        eventually("the turn runs", async || (!app.scene.requests().is_empty()).then_some(())).await;
        page.stop().await;
        page.send("also this: the budget is 300").await;
        assert_eq!(page.refused(), (409, "turn_in_progress".to_owned()));
        gate.add_permits(100);
        let running = "runs WHERE status = 'running'";
        eventually("the turn is over", async || (app.rows.count(running).await == 0).then_some(())).await;
        page.send("so what now?").await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Within 300, then."));
        let stored = app.client.questions(&thread(&app).await).await;
        assert_eq!(stored, ["go", "also this: the budget is 300", "so what now?"]);
        let sent = format!("{:?}", app.scene.requests().last().unwrap().messages);
        let place = |words: &str| sent.find(words).unwrap();
        assert!(place("budget is 300") < place("so what now?"), "{sent}");
    }
}
