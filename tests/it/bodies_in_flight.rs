//! The limit on the bytes of all bodies that a server reads at once.

use crate::support::{Embedded, eventually};
use holdpoint::config::Config;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The maximum length of a chat body in these tests, and the byte budget of all bodies together.
const BYTES: usize = 2000;

fn small(config: &mut Config) {
    config.limits.body_bytes = BYTES;
    config.limits.chat_body_bytes = BYTES;
    config.limits.bodies_in_flight_bytes = BYTES;
}

/// A request that stays open: its head, and this part of its body.
async fn half(app: &Embedded, thread: &str, length: &str, body: &[u8]) -> TcpStream {
    let address = app.client.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /qa/chat_streamed/{thread} HTTP/1.1\r\nhost: {address}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n"
    );
    socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    socket
}

/// Waits until a request with a body is answered with this status.
async fn is_answered(app: &Embedded, status: u16) {
    let answered = async || {
        let answer = app.client.post("/threads", &json!({ "title": "one" })).await;
        if answer.status == 503 {
            assert_eq!(answer.code(), "unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(answer.message().contains("bodies"), "{}", answer.message());
        }
        (answer.status == status).then_some(())
    };
    eventually("the status is this", answered).await;
}

#[tokio::test]
async fn bodies_that_are_being_read_hold_their_bytes_until_they_end() {
    let app = Embedded::with(small).await;
    let thread = app.client.thread().await;
    let declared = half(&app, &thread, &format!("content-length: {BYTES}"), b"  ").await;
    is_answered(&app, 503).await;
    // Requests without a body are served.
    assert_eq!(app.client.get("/threads").await.status, 200);
    let chat = app.client.send_message(&thread, "hi").await;
    assert_eq!(chat.refused(), (503, "unavailable".to_owned()));
    assert_eq!(app.rows.count("messages").await, 0);
    drop(declared);
    is_answered(&app, 201).await;

    let piece = [format!("{BYTES:x}\r\n").as_bytes(), &vec![b' '; BYTES], b"\r\n"].concat();
    let chunked = half(&app, &thread, "transfer-encoding: chunked", &piece).await;
    is_answered(&app, 503).await;
    drop(chunked);
    is_answered(&app, 201).await;
}

#[tokio::test]
async fn a_body_releases_its_bytes_once_it_is_parsed() {
    let app = Embedded::with(small).await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Hello.");
    let mut body = json!({ "content": "hi", "x": "" });
    body["x"] = json!("x".repeat(BYTES - body.to_string().len()));
    assert_eq!(body.to_string().len(), BYTES);
    // The turn of the body has started and waits for the model.
    let turn = app.client.begin(&thread, &body).await;
    assert_eq!(turn.status(), 200);
    let other = app.client.post_raw("/threads", " ".repeat(BYTES)).await;
    assert_eq!((other.status, other.code()), (400, "bad_request"), "{}", other.message());
    gate.add_permits(100);
    assert_eq!(app.client.read_on(turn).await.text(), "Hello.");
}

#[tokio::test]
async fn consecutive_bodies_leak_no_bytes_of_the_budget() {
    let app = Embedded::with(small).await;
    for n in 0..50 {
        let path = if n % 2 == 0 { "/threads" } else { "/qa/validate_tool" };
        let answer = app.client.post_raw(path, "x".repeat(BYTES)).await;
        assert_eq!((answer.status, answer.code()), (400, "bad_request"), "{n}: {}", answer.message());
        let over = app.client.post_raw(path, "x".repeat(BYTES + 1)).await;
        assert_eq!((over.status, over.code()), (413, "body_too_large"), "{n}: {}", over.message());
    }
}
