//! The limits on the bytes of all bodies that a server reads at once: in total, and for each user.

use holdpoint::config::Config;
use holdpoint_testkit::token::{token, with_tokens};
use holdpoint_testkit::{Client, Embedded, eventually};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The maximum length of a body in these tests. One user may have as many bytes in flight, and all users four
/// times as many.
const BYTES: usize = 2000;

fn small(config: &mut Config) {
    with_tokens(config);
    config.limits.body_bytes = BYTES;
    config.limits.chat_body_bytes = BYTES;
    config.limits.bodies_in_flight_bytes = 4 * BYTES;
}

fn user(app: &Embedded, name: &str) -> Client {
    app.client.as_user("acme", name, &[])
}

/// A request that stays open: its head, and this part of its body.
async fn half(client: &Client, token: &str, length: &str, body: &[u8]) -> TcpStream {
    let address = client.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /qa/chat_streamed HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n"
    );
    socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    socket
}

/// The same, of a user.
async fn half_of(client: &Client, name: &str, length: &str, body: &[u8]) -> TcpStream {
    half(client, &token("acme", name, &[]), length, body).await
}

/// Waits until a request of this client with a body is answered with this status.
async fn is_answered(client: &Client, status: u16) {
    let answered = async || {
        let answer = client.post("/threads", &json!({ "title": "one" })).await;
        let code = match answer.status {
            429 => Some("rate_limited"),
            503 => Some("unavailable"),
            _ => None,
        };
        if let Some(code) = code {
            assert_eq!(answer.code(), code);
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
    let ann = user(&app, "ann");
    let declared = half_of(&ann, "ann", &format!("content-length: {BYTES}"), &[b' '; BYTES - 1]).await;
    is_answered(&ann, 429).await;
    // Requests without a body are served, and decisions have bytes of their own.
    ann.get("/threads").await.has_status(200);
    ann.approve("01890a5d-ac96-774b-bcce-b302099a8057").await.has_status(404);
    is_answered(&user(&app, "bob"), 201).await;
    drop(declared);
    is_answered(&ann, 201).await;

    let piece = [format!("{:x}\r\n", BYTES - 1).as_bytes(), &[b' '; BYTES - 1], b"\r\n"].concat();
    let chunked = half_of(&ann, "ann", "transfer-encoding: chunked", &piece).await;
    is_answered(&ann, 429).await;
    drop(chunked);
    is_answered(&ann, 201).await;
}

#[tokio::test]
async fn users_who_take_all_bytes_leave_those_of_decisions() {
    let app = Embedded::with(small).await;
    let mut open = Vec::new();
    for name in ["ann", "bob", "eve", "mia"] {
        open.push(half_of(&app.client, name, &format!("content-length: {BYTES}"), &[b' '; BYTES - 1]).await);
    }
    let joe = user(&app, "joe");
    is_answered(&joe, 503).await;
    joe.approve("01890a5d-ac96-774b-bcce-b302099a8057").await.has_status(404);
    let renewal = json!({ "permit": "x" });
    let renewed = joe.post("/tool_calls/01890a5d-ac96-774b-bcce-b302099a8057/renew", &renewal).await;
    assert_ne!(renewed.status, 503);
    drop(open);
    is_answered(&joe, 201).await;
}

#[tokio::test]
async fn a_declared_length_takes_no_bytes() {
    let app = Embedded::with(small).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(half_of(&app.client, "ann", &format!("content-length: {BYTES}"), b" ").await);
    }
    for name in ["ann", "bob"] {
        is_answered(&user(&app, name), 201).await;
    }
}

#[tokio::test]
async fn a_body_releases_its_bytes_once_it_is_parsed() {
    let app = Embedded::with(small).await;
    let ann = user(&app, "ann");
    let thread = ann.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Hello.");
    let mut body = json!({ "content": "hi", "x": "" });
    body["x"] = json!("x".repeat(BYTES - body.to_string().len()));
    assert_eq!(body.to_string().len(), BYTES);
    // The turn of the body has started and waits for the model.
    let turn = ann.begin(&thread, &body).await;
    assert_eq!(turn.status(), 200);
    let other = ann.post_raw("/threads", " ".repeat(BYTES)).await;
    other.failed_with(400, "bad_request");
    gate.add_permits(100);
    assert_eq!(ann.read_on(turn).await.text(), "Hello.");
}

#[tokio::test]
async fn consecutive_bodies_leak_no_bytes_of_the_budget() {
    let app = Embedded::with(small).await;
    let ann = user(&app, "ann");
    for n in 0..50 {
        let path = if n % 2 == 0 { "/threads" } else { "/qa/validate_tool" };
        let answer = ann.post_raw(path, "x".repeat(BYTES)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{n}: {}", answer.message());
        let over = ann.post_raw(path, "x".repeat(BYTES + 1)).await;
        assert_eq!(over.failure(), (413, "body_too_large"), "{n}: {}", over.message());
    }
}

#[tokio::test]
async fn a_user_has_so_many_open_requests() {
    let app = Embedded::with(|config| {
        small(config);
        config.limits.open_requests_per_user = Some(2);
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(half_of(&app.client, "ann", &format!("content-length: {BYTES}"), b" ").await);
    }
    let (ann, bob) = (user(&app, "ann"), user(&app, "bob"));
    let refused = async || {
        let answer = ann.get("/threads").await;
        (answer.status == 429 && answer.message().contains("open requests")).then_some(())
    };
    eventually("a third request is refused", refused).await;
    bob.get("/threads").await.has_status(200);
    drop(open);
    let served = async || (ann.get("/threads").await.status == 200).then_some(());
    eventually("there is room again", served).await;
}
