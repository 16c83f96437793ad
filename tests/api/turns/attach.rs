//! Attaching to a running turn by GET, as pages of AI SDK 4 do. `attach_ui` covers pages of AI SDK 5 to 7,
//! `tail` covers the turns of other processes.

use holdpoint::llm::ModelEvent;
use holdpoint_testkit::{Embedded, Turn, call};
use serde_json::{Value, json};

async fn attach(app: &Embedded, thread: &str) -> Turn {
    app.client.read_on(begin_to_attach(app, thread).await).await
}

/// Sends the GET and returns its response, which begins once the server has read the state of the thread.
async fn begin_to_attach(app: &Embedded, thread: &str) -> reqwest::Response {
    let path = format!("/qa/chat_streamed/{thread}?chatId=page");
    app.client.http.get(app.client.url(&path)).send().await.unwrap()
}

/// Asserts that the thread has no turn to attach to.
async fn is_quiet(app: &Embedded, thread: &str) {
    let turn = attach(app, thread).await;
    assert_eq!((turn.status, turn.raw.as_str()), (200, ""));
    assert_eq!(turn.headers["x-vercel-ai-data-stream"], "v1");
    assert!(!turn.headers.contains_key("x-run-id"), "{:?}", turn.headers);
}

#[tokio::test]
async fn an_attached_page_reads_the_running_turn_from_its_beginning() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]).answers("Seen.");
    gate.add_permits(5);
    let first = app.client.begin(&thread, &json!({ "content": "hi" })).await;
    app.ledger.wait_started().await;
    let attached = begin_to_attach(&app, &thread).await;
    gate.add_permits(10);
    let (first, attached) = (app.client.read_on(first).await, app.client.read_on(attached).await);
    assert_eq!((first.codes().as_str(), attached.merged_lines()), ("fbc9aef0ed", first.merged_lines()));
    assert_eq!(attached.headers["x-run-id"], first.headers["x-run-id"]);
    assert_eq!(attached.headers["content-type"], first.headers["content-type"]);
    is_quiet(&app, &thread).await;
}

#[tokio::test]
async fn attaching_to_a_thread_without_a_running_turn_returns_an_empty_stream() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    is_quiet(&app, &thread).await;
    app.scene.answers("Hello.");
    app.client.send_message(&thread, "hi").await;
    is_quiet(&app, &thread).await;
    let held = app.hold_in(&thread, "pay", "10").await;
    is_quiet(&app, &thread).await;
    app.client.approve(&held).await;
    app.scene.answers("Later.");
    app.client.send_message(&thread, "never mind").await;
    is_quiet(&app, &thread).await;
    assert_eq!(app.scene.requests().len(), 3, "attaching calls no model");
}

#[tokio::test]
async fn attaching_resumes_a_decided_turn_once() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let two = ["1", "2"].map(|note| call(note, "pay", &json!({ "note": note })));
    app.scene.calls(&two);
    let turn = app.client.send_message(&thread, "pay").await;
    let [first, second] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    app.client.approve(first).await;
    is_quiet(&app, &thread).await;
    app.client.reject(second).await;
    app.scene.answers("Half paid.");
    let done = attach(&app, &thread).await;
    assert_eq!((done.codes().as_str(), done.text().as_str()), ("aa8ef0ed", "Half paid."));
    assert_eq!(done.one('f'), turn.one('f'), "the same message");
    assert_eq!(done.headers["x-run-id"], turn.headers["x-run-id"]);
    is_quiet(&app, &thread).await;
    assert_eq!(app.scene.requests().len(), 2);
}

#[tokio::test]
async fn of_several_attached_pages_one_resumes_the_turn_and_the_others_tail_it() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let gate = app.scene.gate();
    app.scene.answers("Paid.");
    let pages = futures::future::join_all((0..5).map(|_| begin_to_attach(&app, &thread))).await;
    gate.add_permits(10);
    let turns = futures::future::join_all(pages.into_iter().map(|page| app.client.read_on(page))).await;
    for turn in &turns {
        assert_eq!((turn.codes().as_str(), turn.merged_lines()), ("a8ef0ed", turns[0].merged_lines()));
    }
    assert_eq!(app.scene.requests().len(), 2, "the model was asked once");
}

#[tokio::test]
async fn a_page_that_attaches_while_an_approved_call_runs_waits_for_its_outcome() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.scene.answers("It waited.");
    let attach = async {
        app.ledger.wait_started().await;
        let page = begin_to_attach(&app, &thread).await;
        app.ledger.release.add_permits(1);
        app.client.read_on(page).await
    };
    let (approved, turn) = futures::join!(app.client.approve(&id), attach);
    assert_eq!(approved.body["state"], "succeeded");
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("a8ef0ed", "It waited."));
    assert_eq!(turn.one('a')["result"], json!({ "waited": "10" }));
}

#[tokio::test]
async fn attaching_does_not_retry_a_turn_that_failed_after_the_model_read_the_results() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    app.scene.then(vec![Ok(ModelEvent::Text("Half".to_owned())), Err("gone".to_owned())]);
    assert_eq!(attach(&app, &thread).await.codes(), "a8ef03");
    is_quiet(&app, &thread).await;
    app.scene.answers("Whole.");
    assert_eq!(app.client.resume(&thread).await.text(), "Whole.");
}

#[tokio::test]
async fn a_thread_is_found_by_its_id_and_by_the_callers_name() {
    let app = Embedded::start().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]).answers("Paid.");
    let turn = app.client.turn_by_id(&json!({ "id": "my chat", "content": "pay" })).await;
    app.client.approve(&turn.pending()[0]).await;
    let by_name = app.client.url("/api/qa/chat_streamed?chatId=my%20chat");
    let done = app.client.read(app.client.http.get(by_name)).await;
    assert_eq!(done.text(), "Paid.");
    is_quiet(&app, "my%20chat").await;
}

#[tokio::test]
async fn a_chat_id_in_the_query_may_be_new_and_a_thread_in_the_path_must_exist() {
    let app = Embedded::start().await;
    for (path, status) in [
        ("/qa/chat_streamed?chatId=new", 200),
        ("/qa/chat_streamed?chatId=", 200),
        ("/qa/chat_streamed?chatId=a%00b", 200),
        ("/qa/chat_streamed", 400),
        ("/qa/chat_streamed/new?chatId=new", 404),
        ("/qa/chat_streamed/01890a5d-ac96-774b-bcce-b302099a8057", 404),
    ] {
        let answer = app.client.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        let code = match status {
            200 => "",
            400 => "bad_request",
            _ => "not_found",
        };
        assert_eq!(answer.code(), code, "{path}");
    }
    assert_eq!(app.rows.count("threads").await, 0, "asking makes no thread");
    let gone = app.client.thread().await;
    app.client.delete(&format!("/threads/{gone}")).await;
    assert_eq!(attach(&app, &gone).await.refused(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_head_request_is_refused_and_starts_no_turn() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    for path in [
        format!("/qa/chat_streamed/{thread}"),
        format!("/api/qa/chat_streamed/{thread}"),
        format!("/qa/chat_streamed?chatId={thread}"),
        format!("/qa/chat_streamed/{thread}/stream"),
        format!("/qa/chat_streamed/{thread}/page/stream"),
    ] {
        let head = app.client.http.head(app.client.url(&path)).send().await.unwrap();
        assert_eq!(head.status(), 405, "{path}");
    }
    assert_eq!(app.scene.requests().len(), 1);
    app.scene.answers("Paid.");
    assert_eq!(attach(&app, &thread).await.text(), "Paid.");
}

#[tokio::test]
async fn attaching_does_not_retry_a_turn_that_failed_without_a_hold() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.then(vec![Ok(ModelEvent::Text("Half".to_owned())), Err("gone".to_owned())]);
    assert_eq!(app.client.send_message(&thread, "hi").await.codes(), "f03");
    is_quiet(&app, &thread).await;
    assert_eq!(app.scene.requests().len(), 1);
}

#[tokio::test]
async fn attaching_does_not_resume_a_run_that_was_cancelled_while_waiting() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("1", "pay", &json!({ "note": "1" }))]);
    let turn = app.client.send_message(&thread, "pay").await;
    let run = turn.headers["x-run-id"].to_str().unwrap().to_owned();
    let cancelled = app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    assert_eq!(cancelled.body["status"], "cancelled");
    is_quiet(&app, &thread).await;
    assert_eq!(app.scene.requests().len(), 1);
}
