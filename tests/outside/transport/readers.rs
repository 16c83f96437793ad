//! Clients that read slowly or not at all, and clients that only wait.

use super::{PATIENCE, RawConnection, SOON};
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Client, Embedded, eventually, http2};
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpSocket;

const MIB: usize = 1 << 20;

/// Has the model emit this text the given number of times.
fn script_text(app: &Embedded, texts: usize, text: &str) {
    let text = || Ok(ModelEvent::Text(text.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then((0..texts).map(|_| text()).chain([Ok(end)]).collect());
}

/// A connection with a small receive buffer.
async fn narrow(client: &Client) -> RawConnection {
    let host = client.base.trim_start_matches("http://").to_owned();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let socket = socket.connect(host.parse().unwrap()).await.unwrap();
    RawConnection { socket, host, read: Vec::new() }
}

async fn posts(client: &mut RawConnection, thread: &str) {
    let lines = ["content-type: application/json", "content-length: 16"];
    client.writes(client.head(&format!("POST /qa/chat_streamed/{thread}"), &lines)).await;
    client.writes(r#"{"content":"hi"}"#).await;
}

async fn is_answered(app: &Embedded, thread: &str) {
    let completed = format!("runs WHERE status = 'completed' AND thread_id = '{thread}'");
    let ended = async || (app.rows.count(&completed).await == 1).then_some(());
    eventually("the turn ends", ended).await;
}

#[tokio::test]
async fn e5_a_client_that_reads_nothing_is_cut_off_and_the_turn_continues() {
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = SOON;
    let app = Embedded::hurried(hurry, |config| config.limits.streams_per_user = Some(1)).await;
    let (thread, other) = (app.client.thread().await, app.client.thread().await);
    // On the wire each delta is six times as long, and their sum exceeds any socket buffer.
    script_text(&app, 3, &"\u{1}".repeat(MIB));
    let mut client = narrow(&app.client).await;
    posts(&mut client, &thread).await;
    is_answered(&app, &thread).await;

    // The user may have one stream, and the open stream occupies that slot until the server closes it.
    let ask = async || app.client.begin(&other, &json!({ "content": "hi" })).await.status().as_u16();
    app.scene.answers("ok");
    let answered = async || (ask().await == 200).then_some(());
    eventually("the stream is cut off", answered).await;
    let stream_text = client.receives_all().await;
    assert!(stream_text.starts_with("HTTP/1.1 200 "), "{}", &stream_text[..100.min(stream_text.len())]);
    assert!(
        stream_text.len() < 18 * MIB && !stream_text.ends_with("0\r\n\r\n"),
        "{} bytes, and no end",
        stream_text.len()
    );
}

/// An HTTP/2 connection with these requests, whose streams start with a flow-control window of `room` bytes.
async fn with_room(client: &Client, room: u8, requests: &[Vec<u8>]) -> RawConnection {
    let mut client = narrow(client).await;
    // SETTINGS_INITIAL_WINDOW_SIZE
    let settings = http2::frame(http2::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, room]);
    client.writes([http2::PREFACE, &settings, &requests.concat()].concat()).await;
    client
}

fn gets(stream: u32, path: &str) -> Vec<u8> {
    let flags = http2::END_HEADERS | http2::END_STREAM;
    http2::frame(http2::HEADERS, flags, stream, &http2::head("GET", path, "localhost"))
}

fn request_frames(stream: u32, thread: &str) -> Vec<u8> {
    let head = http2::head("POST", &format!("/qa/chat_streamed/{thread}"), "localhost");
    let head = http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &head);
    [head, http2::frame(http2::DATA, http2::END_STREAM, stream, br#"{"content":"hi"}"#)].concat()
}

fn gives_room(stream: u32) -> Vec<u8> {
    http2::frame(http2::WINDOW_UPDATE, 0, stream, &100_000_u32.to_be_bytes())
}

/// The received body of this stream.
fn body(read: &[u8], stream: u32) -> String {
    let frames = http2::frames(read).into_iter();
    let data = frames.filter(|frame| frame.kind == http2::DATA && frame.stream == stream);
    String::from_utf8_lossy(&data.flat_map(|frame| frame.payload.to_vec()).collect::<Vec<u8>>()).into_owned()
}

#[tokio::test]
async fn e5_an_unread_response_is_dropped_and_its_connection_closed_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.taking = SOON / 4, |_| {}).await;
    let thread = app.client.thread().await;
    app.scene.answers(&"Hello. ".repeat(500));
    for (room, request) in [
        (0, gets(http2::FIRST, "/tools")),
        (0, gets(http2::FIRST, "/healthz")),
        (0, gets(http2::FIRST, "/openapi.json")),
        // The client takes one byte, and the server would have to keep the rest.
        (1, gets(http2::FIRST, "/openapi.json")),
        (1, gets(http2::FIRST, "/docs")),
        (0, request_frames(http2::FIRST, &thread)),
    ] {
        let mut client = with_room(&app.client, room, &[request]).await;
        while client.reads().await {}
        assert!(body(&client.read, http2::FIRST).len() <= usize::from(room));
    }
    is_answered(&app, &thread).await;
}

#[tokio::test]
async fn e5_an_unread_response_ends_no_other_response_of_its_connection_on_sqlite() {
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = Duration::from_millis(100);
    let app = Embedded::hurried(hurry, |_| {}).await;
    let gate = app.scene.gate();
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let requests = [
        gets(http2::FIRST, "/openapi.json"),
        request_frames(http2::SECOND, &thread),
        gives_room(http2::SECOND),
    ];
    let mut client = with_room(&app.client, 0, &requests).await;
    let got_goaway = |read: &[u8]| http2::frames(read).iter().any(|frame| frame.kind == http2::GOAWAY);
    while !got_goaway(&client.read) {
        assert!(client.reads().await, "the server sends a GOAWAY and keeps the connection");
    }
    gate.add_permits(10);
    while client.reads().await {}
    assert_eq!(body(&client.read, http2::FIRST), "");
    let received = body(&client.read, http2::SECOND);
    assert!(received.contains("Hello.") && received.contains("\nd:"), "{received}");
}

#[tokio::test]
async fn e5_a_client_that_waits_for_a_slow_model_is_not_cut_off_on_sqlite() {
    let app = Embedded::hurried(
        |deadlines| {
            deadlines.head = 4 * SOON;
            deadlines.idle = SOON;
            deadlines.taking = SOON;
            deadlines.ping = SOON;
            deadlines.body = SOON;
            deadlines.body_piece = SOON;
        },
        |_| {},
    )
    .await;
    let gate = app.scene.gate();
    let (one, two) = (app.client.thread().await, app.client.thread().await);
    app.scene.answers("Hello.").answers("Hello.");
    let over_http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let over_http2 = Client { http: over_http2, base: app.client.base.clone() };
    let readers = [app.client.begin(&one, &json!("hi")).await, over_http2.begin(&two, &json!("hi")).await];
    // Longer than any of the deadlines.
    let silent = RawConnection::to(&app.client).await;
    silent.receives_all().await;
    gate.add_permits(10);
    for reader in readers {
        assert_eq!(app.client.read_on(reader).await.text(), "Hello.");
    }
}

#[tokio::test]
async fn a_stream_buffers_at_most_the_configured_bytes_on_sqlite() {
    let app = Embedded::with(|config| config.limits.stream_buffer_bytes = 1000).await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    script_text(&app, 100, &"x".repeat(100));
    gate.add_permits(100);
    let first = app.client.begin(&thread, &json!("hi")).await;
    // A late subscriber finds the whole backlog.
    let mut late = RawConnection::to(&app.client).await;
    let whole_stream = app.client.http.get(app.client.url(&format!("/qa/chat_streamed/{thread}")));
    let mut whole_stream = whole_stream.send().await.unwrap();
    let mut received = 0;
    while received < 100 * 100 {
        let piece = tokio::time::timeout(PATIENCE, whole_stream.chunk()).await.unwrap().unwrap().unwrap();
        received += piece.iter().filter(|byte| **byte == b'x').count();
    }
    late.writes(late.head(&format!("GET /qa/chat_streamed/{thread}"), &["connection: close"])).await;
    while late.read.iter().filter(|byte| **byte == b'x').count() < 100 * 100 {
        assert!(late.reads().await);
    }
    gate.add_permits(1);
    let stream_text = late.receives_all().await;
    let (_, mut rest) = stream_text.split_once("\r\n\r\n").unwrap();
    let mut pieces = Vec::new();
    while let Some((length, after_length)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        pieces.push(length);
        rest = after_length.get(length + 2..).unwrap_or_default();
    }
    // At most the configured length plus the line that exceeded it.
    assert!(pieces.iter().all(|length| *length <= 1000 + 105), "{pieces:?}");
    assert!(pieces.len() > 10, "{pieces:?}");
    assert_eq!(app.client.read_on(first).await.text(), "x".repeat(100 * 100));
}
