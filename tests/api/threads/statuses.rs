//! The status of an answer, which is that of its run, and of messages that an edit replaced.

use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::{Value, json};

/// The status of the last message of the thread, and that of its run.
async fn last(app: &Embedded, thread: &str) -> (String, String) {
    let last = app.client.messages(thread).await.pop().unwrap();
    let run = app.client.get(&format!("/runs/{}", last.text("run_id"))).await.body;
    (last.text("status").to_owned(), run.text("status").to_owned())
}

fn both(answer: &str, run: &str) -> (String, String) {
    (answer.to_owned(), run.to_owned())
}

async fn cancel_run_of(app: &Embedded, thread: &str) {
    let last = app.client.messages(thread).await.pop().unwrap();
    let cancelled = app.client.post(&format!("/runs/{}/cancel", last.text("run_id")), &Value::Null).await;
    assert!([200, 202].contains(&cancelled.status), "{cancelled:?}");
}

/// A thread whose turn waits for its model.
async fn streaming(app: &Embedded) -> (String, reqwest::Response) {
    let thread = app.client.thread().await;
    let turn = app.client.begin(&thread, &json!({ "content": "hello" })).await;
    let found = async || (app.client.messages(&thread).await.len() == 2).then_some(());
    eventually("the turn has begun", found).await;
    (thread, turn)
}

#[tokio::test]
async fn an_answer_has_the_status_of_its_run() {
    let app = Embedded::start().await;
    let (thread, held) = app.held("pay", "10").await;
    assert_eq!(last(&app, &thread).await, both("complete", "waiting"));
    app.client.approve(&held).await.has(200, "state", "succeeded");
    app.scene.answers("Paid.");
    app.client.resume(&thread).await;
    assert_eq!(last(&app, &thread).await, both("complete", "completed"));

    let gate = app.scene.gate();
    app.scene.answers("Hello.");
    let (thread, turn) = streaming(&app).await;
    assert_eq!(last(&app, &thread).await, both("streaming", "running"));
    gate.add_permits(usize::MAX >> 4);
    turn.bytes().await.unwrap();
    assert_eq!(last(&app, &thread).await, both("complete", "completed"));
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_answer_of_a_cancelled_run_is_whole_if_the_run_waited() {
    let app = Embedded::start().await;
    let (waited, _) = app.held("pay", "10").await;
    cancel_run_of(&app, &waited).await;
    assert_eq!(last(&app, &waited).await, both("complete", "cancelled"));

    let failed = app.client.thread().await;
    app.scene.then(vec![Err("broken".to_owned())]);
    app.client.send_message(&failed, "hello").await;
    assert_eq!(last(&app, &failed).await, both("interrupted", "failed"));
    cancel_run_of(&app, &failed).await;
    assert_eq!(last(&app, &failed).await, both("interrupted", "cancelled"));

    let _gate = app.scene.gate();
    app.scene.answers("never said");
    let (running, turn) = streaming(&app).await;
    cancel_run_of(&app, &running).await;
    turn.bytes().await.unwrap();
    assert_eq!(last(&app, &running).await, both("interrupted", "cancelled"));
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn no_statement_forges_the_status_of_a_message() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("1").answers("2");
    app.client.send_message(&thread, "one").await;
    let body = json!({ "messages": [{ "role": "user", "content": "one" }] });
    assert_eq!(app.client.turn(&thread, &body).await.text(), "2");
    let superseded = "messages WHERE superseded_at IS NOT NULL";
    assert_eq!(app.rows.count(superseded).await, 1);
    let _gate = app.scene.gate();
    app.scene.answers("never said");
    let (running, _turn) = streaming(&app).await;
    let fixed = "the content of a message does not change";
    let written = format!("role = 'assistant' AND thread_id = '{running}'");
    for (statement, refusal) in [
        ("UPDATE messages SET superseded_at = NULL WHERE superseded_at IS NOT NULL".to_owned(), fixed),
        ("UPDATE messages SET superseded_at = 1 WHERE superseded_at IS NOT NULL".to_owned(), fixed),
        (format!("UPDATE messages SET erased_at = 1 WHERE {written}"), fixed),
        (format!("UPDATE messages SET erased_at = 1, superseded_at = 1 WHERE {written}"), fixed),
        ("UPDATE runs SET cut_short = TRUE WHERE status = 'completed'".to_owned(), "check constraint"),
    ] {
        let refused = app.rows.change(&statement).await.expect_err(&statement);
        assert!(refused.to_lowercase().contains(refusal), "{statement}: {refused}");
    }
    let erased = "UPDATE messages SET erased_at = 1 WHERE role = 'assistant' AND superseded_at IS NOT NULL";
    assert_eq!(app.rows.change(erased).await, Ok(1), "an answer that no turn writes may be erased");
    let stands: Vec<Value> = app.client.messages(&thread).await;
    assert_eq!(stands.iter().map(|it| it.text("status")).collect::<Vec<_>>(), ["complete"; 2]);
}
