//! The visibility of events.

use super::{office, types};
use holdpoint_testkit::token::{self, changed, claims, signed};
use holdpoint_testkit::{Client, Embedded, Sse};
use serde_json::{Value, json};

/// All events that this client receives, without those of its own thread.
async fn receives(client: &Client) -> Vec<Value> {
    let (own, path) = (client.thread().await, "/events?after=0");
    let mut stream = Sse::open(client, path).await;
    // The client always receives the events of its own thread. When those arrive, no earlier event is
    // outstanding.
    client.send_message(&own, "bye").await;
    let mut stream_text = stream.until("run.completed").await;
    stream_text.retain(|event| event["thread_id"] != own.as_str());
    stream_text
}

#[tokio::test]
async fn users_receive_exactly_the_events_that_they_may_see() {
    let mut app = Embedded::with(office).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &[]);
    let (_, pay) = app.held("pay", "1").await;
    let (_, refuse) = app.held("refuse", "2").await;
    let run = app.client.run_of(&pay).await;
    let all: Vec<Value> = Sse::open(&app.client, "/events?after=0").await.take(8).await;
    let of_pay: Vec<Value> = all[1..3].to_vec();
    let nothing: [Value; 0] = [];

    let listener = |tenant: &str, user: &str, roles: &[&str]| {
        app.scene.answers("Bye.");
        nobody.as_user(tenant, user, roles)
    };
    let approver = listener("acme", "carol", &["chief"]);
    assert_eq!(receives(&approver).await, of_pay);
    let operator = listener("acme", "olga", &["operator"]);
    let stream_text = receives(&operator).await;
    // The approver's own events come in between.
    assert_eq!(stream_text[..8], all);
    assert!(stream_text[8..].iter().all(|event| event["actor"] == "user:carol"), "{stream_text:#?}");
    assert_eq!(receives(&listener("acme", "bob", &["clerk"])).await, nothing);
    assert_eq!(receives(&listener("other", "alice", &["chief", "operator"])).await, nothing);

    let status = async |client: &Client, path: &str| client.get(path).await.status;
    for (client, of_pay, of_refuse, of_run) in [
        (&app.client, 200, 200, 200),
        (&approver, 200, 404, 200),
        (&operator, 200, 200, 200),
        (&nobody.as_user("acme", "bob", &["clerk"]), 404, 404, 404),
        (&nobody.as_user("other", "alice", &["chief", "operator"]), 404, 404, 404),
    ] {
        assert_eq!(status(client, &format!("/tool_calls/{pay}/events")).await, of_pay);
        assert_eq!(status(client, &format!("/tool_calls/{refuse}/events")).await, of_refuse);
        assert_eq!(status(client, &format!("/runs/{run}/events")).await, of_run);
    }
    let received = approver.get(&format!("/runs/{run}/events")).await.body;
    assert_eq!(received["results"], json!(of_pay), "of the run an approver sees the calls that are theirs");
}

#[tokio::test]
async fn an_approver_receives_the_events_of_a_hold_and_of_its_outcome() {
    let mut app = Embedded::with(office).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &[]);
    let chief = nobody.as_user("acme", "carol", &["chief"]);
    let mut stream = Sse::open(&chief, "/events").await;
    let (thread, id) = app.held("pay", "1").await;
    let stream_text = stream.until("tool.requires_approval").await;
    assert_eq!(types(&stream_text), ["tool.called", "tool.requires_approval"]);
    let shown = stream_text[1]["data"]["input_hash"].clone();
    let decide = json!({ "toolCallId": id, "isValidated": true, "inputHash": shown });
    assert_eq!(chief.validate(&decide).await.body["state"], "succeeded");
    let stream_text = stream.until("tool.succeeded").await;
    assert_eq!(stream_text[0]["actor"], "user:carol");

    // No client reads the events of a deleted thread.
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    for client in [&chief, &app.client, &nobody.as_user("acme", "olga", &["operator"])] {
        client.get(&format!("/tool_calls/{id}/events")).await.has_status(404);
        app.scene.answers("Bye.");
        assert_eq!(receives(client).await.iter().filter(|event| event["thread_id"] == *thread).count(), 0);
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let app = Embedded::with(office).await;
    // The server allows a clock difference of one minute.
    let claims = changed(claims("acme", "alice", &[]), &json!({ "exp": token::now() - 50 }));
    let mut stream = Sse::open(&app.client.with_token(&signed(&claims)), "/events").await;
    assert_eq!(stream.next().await, None);
    assert!(token::now() >= claims["exp"].as_i64().unwrap() + 60);
}
