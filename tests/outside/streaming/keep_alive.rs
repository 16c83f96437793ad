//! Keep-alives in silent streams, so that no intermediary closes them.

use super::{PATIENCE, ReceivedStream, asks, chunks};
use holdpoint_testkit::dialects::{TestedDialect, dialects};
use holdpoint_testkit::{Deployment, Embedded, call, eventually, http2};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const OFTEN: Duration = Duration::from_millis(20);

/// The number of keep-alives in a stream of this dialect.
fn signs(dialect: &str, raw: &str) -> usize {
    if dialect == "data-v1" {
        raw.lines().filter(|line| line.is_empty()).count()
    } else {
        raw.matches(": keep-alive\n\n").count()
    }
}

impl ReceivedStream {
    /// Reads until the stream has sent this many keep-alives.
    async fn until_signs(&mut self, dialect: &str, times: usize) {
        while signs(dialect, &self.raw) < times {
            assert!(self.reads().await, "{}", self.raw);
        }
    }
}

async fn lively() -> Embedded {
    Embedded::with(|config| config.stream.keep_alive = OFTEN).await
}

#[tokio::test]
async fn a_stream_sends_keep_alives_while_the_model_is_silent() {
    let app = lively().await;
    let gate = app.scene.gate();
    for TestedDialect { name: dialect, .. } in dialects() {
        let thread = app.client.thread().await;
        app.scene.answers("Hello.");
        let mut received = ReceivedStream::of(asks(&app.client, &thread, dialect)).await;
        received.until_signs(dialect, 3).await;
        gate.add_permits(2);
        let all = received.all().await;
        if dialect == "data-v1" {
            let output: Vec<_> = all.lines().filter(|line| !line.is_empty()).collect();
            let codes: String = output.iter().map(|line| &line[..2]).collect();
            assert_eq!(codes, "f:0:e:d:", "{all}");
        } else {
            let kinds: Vec<_> = chunks(&all).iter().map(|chunk| chunk["type"].clone()).collect();
            let kinds = json!(kinds);
            let expected = json!([
                "start",
                "start-step",
                "text-start",
                "text-delta",
                "text-end",
                "finish-step",
                "finish"
            ]);
            assert_eq!(kinds, expected, "{all}");
            let other = all.split("\n\n").filter(|event| !event.starts_with("data: ") && !event.is_empty());
            assert!(other.into_iter().all(|event| event == ": keep-alive"), "{all}");
        }
    }
}

#[tokio::test]
async fn a_stream_sends_keep_alives_while_a_tool_runs() {
    let app = lively().await;
    for TestedDialect { name: dialect, .. } in dialects() {
        let thread = app.client.thread().await;
        app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]).answers("Done.");
        let mut received = ReceivedStream::of(asks(&app.client, &thread, dialect)).await;
        app.ledger.wait_started().await;
        let before = signs(dialect, &received.raw);
        received.until_signs(dialect, before + 2).await;
        app.ledger.release.add_permits(1);
        let all = received.all().await;
        assert!(all.contains("dawdled") && all.contains("Done."), "{all}");
    }
}

#[tokio::test]
async fn a_stream_sends_no_keep_alives_with_an_interval_of_zero_on_sqlite() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::ZERO).await;
    let gate = app.scene.gate();
    for TestedDialect { name: dialect, .. } in dialects() {
        let thread = app.client.thread().await;
        app.scene.answers("Hello.");
        let mut received = ReceivedStream::of(asks(&app.client, &thread, dialect)).await;
        received.until(if dialect == "data-v1" { "f:" } else { "start-step" }, 1).await;
        let silence = timeout(4 * OFTEN, received.response.chunk()).await;
        assert!(silence.is_err(), "{silence:?}");
        gate.add_permits(2);
        let all = received.all().await;
        assert!(all.contains("Hello.") && signs(dialect, &all) == 0, "{all}");
    }
}

#[tokio::test]
async fn a_client_that_reads_the_keep_alives_stays_connected_on_sqlite() {
    let taking = 5 * OFTEN;
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = taking;
    let app = Embedded::hurried(hurry, |config| config.stream.keep_alive = OFTEN).await;
    let gate = app.scene.gate();
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let mut received = ReceivedStream::of(asks(&app.client, &thread, "ui-v6")).await;
    // The stream runs several times longer than the write deadline.
    received.until_signs("ui-v6", 20).await;
    gate.add_permits(2);
    assert!(received.all().await.contains("Hello."));
}

#[tokio::test]
async fn a_client_that_does_not_read_the_keep_alives_is_disconnected_and_the_turn_continues_on_sqlite() {
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = 5 * OFTEN;
    let app = Embedded::hurried(hurry, |config| config.stream.keep_alive = OFTEN).await;
    let gate = app.scene.gate();
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let mut other_user = TcpStream::connect(app.client.base.trim_start_matches("http://")).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE: the window has room for the start of the stream and a few keep-alives.
    let settings = http2::frame(http2::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 60]);
    let head = http2::head("POST", &format!("/qa/chat_streamed/{thread}"), "localhost");
    let head = http2::frame(http2::HEADERS, http2::END_HEADERS, http2::FIRST, &head);
    let body = http2::frame(http2::DATA, http2::END_STREAM, http2::FIRST, br#"{"content":"hi"}"#);
    other_user.write_all(&[http2::PREFACE, &settings, &head, &body].concat()).await.unwrap();
    let mut read = Vec::new();
    while timeout(PATIENCE, other_user.read_buf(&mut read)).await.expect("disconnected").unwrap_or(0) > 0 {}
    let data: Vec<u8> = http2::frames(&read)
        .into_iter()
        .filter(|frame| frame.kind == http2::DATA)
        .flat_map(|frame| frame.payload.to_vec())
        .collect();
    assert_eq!(data.len(), 60, "the stream filled the window: {:?}", String::from_utf8_lossy(&data));
    gate.add_permits(2);
    let ended = async || {
        let message = app.client.messages(&thread).await.pop().unwrap();
        (message["status"] == "complete").then_some(message)
    };
    assert_eq!(eventually("the turn ends", ended).await["parts"][1]["text"], "Hello.");
}

#[tokio::test]
async fn a_stream_with_keep_alives_does_not_delay_a_stopping_server() {
    let deployment = Deployment::new().await;
    let variables = [("HOLDPOINT_SERVER__GRACE", "300ms"), ("HOLDPOINT_STREAM__KEEP_ALIVE", "20ms")];
    let mut server = deployment.start_with("30s", &variables);
    let mut streams = Vec::new();
    for dialect in ["data-v1", "ui-v6"] {
        let thread = server.client.thread().await;
        let request = asks(&server.client, &thread, dialect).json(&json!({ "content": "think" }));
        let mut received = ReceivedStream::of(request).await;
        received.until("Half an ", 1).await;
        received.until_signs(dialect, 2).await;
        streams.push(received);
    }
    server.terminate();
    for received in streams {
        let all = received.all().await;
        assert!(all.contains("\"interrupted: The server stopped"), "{all}");
    }
    assert!(eventually("the server ends", async || server.ended()).await, "and it exits without an error");
}
