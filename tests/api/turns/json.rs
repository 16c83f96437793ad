//! Turns as JSON: the same admission as the streams, and the state at the end of the turn.

use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};

async fn run(client: &Client, thread: &str, body: &Value) -> Answer {
    client.post(&format!("/threads/{thread}/turns"), body).await
}

async fn run_once(client: &Client, thread: &str, key: &str, words: &str) -> Answer {
    let request = client.http.post(client.url(&format!("/threads/{thread}/turns")));
    client.send(request.header("idempotency-key", key).json(&json!({ "content": words }))).await
}

#[tokio::test]
async fn a_turn_answers_with_the_message_and_the_run_as_their_routes_show_them() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let turn = run(&app.client, &thread, &json!({ "content": "hi" })).await;
    assert_eq!((turn.status, turn.header("content-type")), (200, Some("application/json")));
    let run_id = turn.body.text("run_id");
    let message = app.client.messages(&thread).await.pop().unwrap();
    assert_eq!(message["parts"][1]["text"], "Hello.");
    let expected = json!({ "thread_id": thread, "run_id": run_id, "status": "completed", "message": message,
                           "pending": [] });
    assert_eq!(turn.body, expected);
    let shown = app.client.get(&format!("/runs/{run_id}")).await.body;
    assert_eq!(shown["status"], "completed");
}

#[tokio::test]
async fn a_held_call_ends_the_turn_and_a_turn_without_content_continues_after_the_decision() {
    let app = Embedded::start().await;
    app.scene.answers("Hi.");
    app.client.turn_by_id(&json!({ "id": "chat", "content": "hi" })).await;
    let two = ["1", "2"].map(|note| call(note, "pay", &json!({ "note": note })));
    app.scene.calls(&two);
    let held = run(&app.client, "chat", &json!({ "content": "pay" })).await;
    held.has(200, "status", "waiting");
    let inbox = app.client.get("/threads/chat/approvals").await.body;
    assert_eq!((held.body.list("pending").len(), &held.body["pending"]), (2, &inbox["results"]));
    assert_eq!(held.body["message"]["status"], "complete");
    let ids: Vec<&str> = inbox.list("results").iter().map(|it| it.text("tool_call_id")).collect();
    app.client.approve(ids[0]).await.has_status(200);
    let one = run(&app.client, "chat", &json!({})).await;
    assert_eq!(
        (&one.body["status"], &one.body["pending"][0]["tool_call_id"]),
        (&json!("waiting"), &json!(ids[1]))
    );
    app.client.reject(ids[1]).await.has_status(200);
    app.scene.answers("One of two.");
    let done = app.client.send(app.client.http.post(app.client.url("/threads/chat/turns"))).await;
    assert_eq!((&done.body["status"], &done.body["pending"]), (&json!("completed"), &json!([])));
    assert_eq!(done.body["run_id"], held.body["run_id"]);
    assert_eq!(done.body["message"]["message_id"], held.body["message"]["message_id"]);
    assert_eq!(done.body["message"].list("parts").last().unwrap()["text"], "One of two.");
    let again = run(&app.client, "chat", &json!({})).await;
    assert_eq!((again.status, &again.body), (200, &done.body), "the state of the run, without a turn");
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn a_failed_turn_answers_with_its_error() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.then(vec![Err("noise".to_owned())]);
    let turn = run(&app.client, &thread, &json!({ "content": "hi" })).await;
    turn.has(200, "status", "failed");
    let shown = app.client.get(&format!("/runs/{}", turn.body.text("run_id"))).await.body;
    assert_eq!(turn.body["error"], shown["error"]);
    assert!(turn.body["error"]["code"].is_string());
}

#[tokio::test]
async fn a_repeated_key_runs_one_turn_and_gets_its_result() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let gate = app.scene.gate();
    let both = async {
        let requested = async || (app.scene.requests().len() == 1).then_some(());
        let first = run_once(&app.client, &thread, "k-1", "hi");
        let second = async {
            eventually("the first turn runs", requested).await;
            let second = run_once(&app.client, &thread, "k-1", "hi");
            let third = async {
                gate.add_permits(2);
            };
            tokio::join!(second, third).0
        };
        tokio::join!(first, second)
    };
    let (first, second) = both.await;
    first.has(200, "status", "completed");
    assert_eq!((second.status, &second.body), (200, &first.body));
    let late = run_once(&app.client, &thread, "k-1", "hi").await;
    assert_eq!((late.status, &late.body), (200, &first.body));
    assert_eq!((app.client.messages(&thread).await.len(), app.scene.requests().len()), (2, 1));
    assert_eq!(app.client.messages(&thread).await[0]["client_id"], "k-1");
    for bad in ["", &"k".repeat(65)] {
        assert_eq!(run_once(&app.client, &thread, bad, "hi").await.status, 400, "{bad:?}");
    }
}

#[tokio::test]
async fn a_turn_is_admitted_under_the_rules_of_the_streams() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.limits.streams_per_user = Some(1);
        config.limits.message_bytes = 64;
    })
    .await;
    let ann = app.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    for (body, status, code) in [
        (json!({ "content": "x".repeat(65) }), 413, "body_too_large"),
        (json!({ "content": "hi", "model": "none" }), 422, "unknown_model"),
        (json!({ "content": "hi", "tool_selection": ["none"] }), 422, "unknown_tool"),
        (json!({ "text": "hi" }), 400, "bad_request"),
        (json!({ "content": 7 }), 400, "bad_request"),
        (json!({}), 409, "nothing_to_continue"),
    ] {
        let refused = run(&ann, &thread, &body).await;
        assert_eq!(refused.failure(), (status, code), "{body}");
    }
    app.scene.answers("Slowly.");
    let gate = app.scene.gate();
    let elsewhere = ann.thread().await;
    let second = async {
        eventually("the turn runs", async || (app.scene.requests().len() == 1).then_some(())).await;
        let refused = run(&ann, &elsewhere, &json!({ "content": "hi" })).await;
        gate.add_permits(2);
        refused
    };
    let hi = json!({ "content": "hi" });
    let (first, second) = tokio::join!(run(&ann, &thread, &hi), second);
    assert_eq!((first.status, second.status, second.code()), (200, 429, "rate_limited"));
}

#[tokio::test]
async fn a_turn_continues_after_its_client_left() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Nobody listens.");
    let gate = app.scene.gate();
    let hi = json!({ "content": "hi" });
    {
        let requested = async || (app.scene.requests().len() == 1).then_some(());
        tokio::select! {
            answer = run(&app.client, &thread, &hi) => panic!("{answer:?}"),
            () = eventually("the turn runs", requested) => {}
        }
    }
    gate.add_permits(2);
    let ended = async || {
        let last = app.client.messages(&thread).await.pop()?;
        (last["status"] == "complete" && last["role"] == "assistant").then_some(last)
    };
    let message = eventually("the turn ends", ended).await;
    assert_eq!(message["parts"][1]["text"], "Nobody listens.");
}
