//! Clients that close their side of the connection with their request, and read the answer.

use holdpoint_testkit::{Client, Embedded, eventually};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request over HTTP/1.1 and closes the client's side.
async fn sends(client: &Client, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    let address = client.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let content = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{content}\r\n{body}");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    socket
}

/// Reads to the end of the connection.
async fn reads(mut socket: TcpStream) -> String {
    let mut read = Vec::new();
    timeout(PATIENCE, socket.read_to_end(&mut read)).await.expect("the server closes").unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_client_that_closes_its_side_with_its_request_gets_its_whole_answer() {
    let app = Embedded::start().await;
    for _ in 0..20 {
        let answer = reads(sends(&app.client, "GET", "/healthz", None).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
    }
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Hello.").calls(&[holdpoint_testkit::call("a", "pay", &json!({ "note": "10" }))]);
    let path = format!("/qa/chat_streamed/{thread}");
    let socket = sends(&app.client, "POST", &path, Some(&json!({ "content": "hi" }))).await;
    app.wait_for_model_requests(1).await;
    gate.add_permits(100);
    let answer = reads(socket).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("Hello."), "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "whole: {answer}");
    assert_eq!(app.client.questions(&thread).await, ["hi"]);

    let held = app.client.send_message(&thread, "pay").await.pending();
    let decision = json!({ "toolCallId": held[0], "isValidated": true });
    let answer = reads(sends(&app.client, "POST", "/qa/validate_tool", Some(&decision)).await).await;
    assert!(answer.contains(r#""state":"succeeded""#), "{answer}");
}

#[tokio::test]
async fn a_claim_and_a_stream_of_events_end_when_the_client_closes_its_side() {
    let app = Embedded::start().await;
    let metrics =
        async || app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
    for path in ["/events/stream", "/events", "/api/events/stream"] {
        let answer = reads(sends(&app.client, "GET", path, None).await).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    let body = json!({ "tools": ["pay"], "wait": 60 });
    let answer = reads(sends(&app.client, "POST", "/tool_calls/claim", Some(&body)).await).await;
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
    let none = async || (!metrics().await.contains("claims_waiting 1")).then_some(());
    eventually("no claim waits", none).await;
}
