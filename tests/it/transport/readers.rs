//! Clients that read slowly, or not at all, and those that only wait.

use super::{PATIENCE, Raw, SOON};
use crate::support::{Client, Embedded, eventually, http2};
use holdpoint::llm::{FinishReason, ModelEvent};
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpSocket;

const MIB: usize = 1 << 20;

/// Has the model say this text so often.
fn says(app: &Embedded, texts: usize, text: &str) {
    let text = || Ok(ModelEvent::Text(text.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then((0..texts).map(|_| text()).chain([Ok(end)]).collect());
}

/// A connection that takes little before it is full.
async fn narrow(client: &Client) -> Raw {
    let host = client.base.trim_start_matches("http://").to_owned();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let socket = socket.connect(host.parse().unwrap()).await.unwrap();
    Raw { socket, host, read: Vec::new() }
}

async fn posts(stranger: &mut Raw, thread: &str) {
    let lines = ["content-type: application/json", "content-length: 16"];
    stranger.writes(stranger.head(&format!("POST /qa/chat_streamed/{thread}"), &lines)).await;
    stranger.writes(r#"{"content":"hi"}"#).await;
}

async fn is_answered(app: &Embedded, thread: &str) {
    let completed = format!("runs WHERE status = 'completed' AND thread_id = '{thread}'");
    let ended = async || (app.rows.count(&completed).await == 1).then_some(());
    eventually("the turn ends", ended).await;
}

#[tokio::test]
async fn e5_a_client_that_reads_nothing_is_cut_off_and_the_turn_goes_on() {
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = SOON;
    let app = Embedded::hurried(hurry, |config| config.limits.streams_per_user = Some(1)).await;
    let (thread, other) = (app.client.thread().await, app.client.thread().await);
    // On the wire each is six times as long, and all of it is more than any socket holds.
    says(&app, 3, &"\u{1}".repeat(MIB));
    let mut stranger = narrow(&app.client).await;
    posts(&mut stranger, &thread).await;
    is_answered(&app, &thread).await;

    // Its stream is open, and there may be one; when it is cut off there is room.
    let ask = async || app.client.begin(&other, &json!({ "content": "hi" })).await.status().as_u16();
    app.scene.says("ok");
    let answered = async || (ask().await == 200).then_some(());
    eventually("the stream is cut off", answered).await;
    let heard = stranger.to_the_end().await;
    assert!(heard.starts_with("HTTP/1.1 200 "), "{}", &heard[..100.min(heard.len())]);
    assert!(heard.len() < 18 * MIB && !heard.ends_with("0\r\n\r\n"), "{} bytes, and no end", heard.len());
}

/// Opens a stream that gives no room for an answer, and asks for a turn of the thread.
async fn opens_without_room(client: &Client, thread: &str) -> Raw {
    let mut stranger = narrow(client).await;
    // SETTINGS_INITIAL_WINDOW_SIZE = 0
    let settings = http2::frame(http2::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let head = http2::head("POST", &format!("/qa/chat_streamed/{thread}"), "localhost");
    let request = [
        http2::PREFACE,
        &settings,
        &http2::frame(http2::HEADERS, http2::END_HEADERS, http2::FIRST, &head),
        &http2::frame(http2::DATA, http2::END_STREAM, http2::FIRST, br#"{"content":"hi"}"#),
    ];
    stranger.writes(request.concat()).await;
    stranger
}

/// Gives room at last; whether the stream was cut off meanwhile, without a byte.
async fn was_cut_off(stranger: &mut Raw) -> bool {
    let room = http2::frame(http2::WINDOW_UPDATE, 0, http2::FIRST, &100_000_u32.to_be_bytes());
    stranger.writes(room).await;
    loop {
        for frame in http2::frames(&stranger.read) {
            match frame.kind {
                http2::RST_STREAM => return true,
                http2::DATA => return false,
                _ => {}
            }
        }
        assert!(stranger.reads().await, "the connection stays");
    }
}

#[tokio::test]
async fn e5_a_stream_that_gets_no_room_is_let_go_while_its_connection_lives_on_sqlite() {
    let hurry = |deadlines: &mut holdpoint::app::Deadlines| deadlines.taking = Duration::from_millis(100);
    let app = Embedded::hurried(hurry, |_| {}).await;
    let mut patience = 0;
    let cut_off = async || {
        let thread = app.client.thread().await;
        app.scene.says("Hello.");
        let mut stranger = opens_without_room(&app.client, &thread).await;
        is_answered(&app, &thread).await;
        // Longer each time.
        patience += 10;
        for _ in 0..patience {
            app.client.get("/tools").await;
        }
        was_cut_off(&mut stranger).await.then_some(())
    };
    eventually("a stream is cut off", cut_off).await;
}

#[tokio::test]
async fn e5_who_waits_for_a_slow_model_is_not_cut_off_on_sqlite() {
    let app = Embedded::hurried(
        |deadlines| {
            deadlines.head = SOON;
            deadlines.taking = SOON / 4;
            deadlines.ping = SOON / 4;
            deadlines.body = SOON / 4;
            deadlines.body_piece = SOON / 4;
        },
        |_| {},
    )
    .await;
    let gate = app.scene.gate();
    let (one, two) = (app.client.thread().await, app.client.thread().await);
    app.scene.says("Hello.").says("Hello.");
    let over_http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let over_http2 = Client { http: over_http2, base: app.client.base.clone() };
    let readers = [app.client.begin(&one, &json!("hi")).await, over_http2.begin(&two, &json!("hi")).await];
    // Longer than any of the deadlines.
    let silent = Raw::to(&app.client).await;
    silent.to_the_end().await;
    gate.add_permits(10);
    for reader in readers {
        assert_eq!(app.client.read_on(reader).await.text(), "Hello.");
    }
}

#[tokio::test]
async fn a_stream_is_written_so_far_ahead_on_sqlite() {
    let app = Embedded::with(|config| config.limits.stream_buffer_bytes = 1000).await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    says(&app, 100, &"x".repeat(100));
    gate.add_permits(100);
    let first = app.client.begin(&thread, &json!("hi")).await;
    // One that comes late finds all of it there.
    let mut late = Raw::to(&app.client).await;
    let all_said = app.client.http.get(app.client.url(&format!("/qa/chat_streamed/{thread}")));
    let mut all_said = all_said.send().await.unwrap();
    let mut said = 0;
    while said < 100 * 105 {
        let piece = tokio::time::timeout(PATIENCE, all_said.chunk()).await.unwrap().unwrap().unwrap();
        said += piece.len();
    }
    late.writes(late.head(&format!("GET /qa/chat_streamed/{thread}"), &["connection: close"])).await;
    while late.read.len() < 100 * 100 {
        assert!(late.reads().await);
    }
    gate.add_permits(1);
    let heard = late.to_the_end().await;
    let (_, mut rest) = heard.split_once("\r\n\r\n").unwrap();
    let mut pieces = Vec::new();
    while let Some((length, behind)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        pieces.push(length);
        rest = behind.get(length + 2..).unwrap_or_default();
    }
    // As long as it may be, and the line that made it so.
    assert!(pieces.iter().all(|length| *length <= 1000 + 105), "{pieces:?}");
    assert!(pieces.len() > 10, "{pieces:?}");
    assert_eq!(app.client.read_on(first).await.text(), "x".repeat(100 * 100));
}
