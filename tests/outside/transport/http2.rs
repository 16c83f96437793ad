//! HTTP/2 attacks. The server ends such a connection and keeps serving others.

use super::{PATIENCE, SOON, is_well};
use holdpoint_testkit::{Embedded, http2};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The error code of a GOAWAY for excessive load (RFC 9113, section 7).
const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;

/// Sends all frames and returns the bytes that the server sends until it closes or `until` holds.
async fn exchange(app: &Embedded, frames: Vec<u8>, until: impl Fn(&[http2::Frame<'_>]) -> bool) -> Vec<u8> {
    let socket = TcpStream::connect(app.client.base.trim_start_matches("http://")).await.unwrap();
    let (mut from, mut to) = socket.into_split();
    let request = [http2::PREFACE, &http2::frame(http2::SETTINGS, 0, 0, &[]), &frames].concat();
    // The server may close before it has read everything.
    let writing = async {
        let _written = to.write_all(&request).await;
        std::future::pending::<()>().await;
    };
    let mut read = Vec::new();
    let reading = async {
        while !until(&http2::frames(&read)) {
            match from.read_buf(&mut read).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    };
    tokio::select! {
        () = writing => {}
        ended = timeout(PATIENCE, reading) => ended.expect("the server answers or closes"),
    }
    read
}

/// The error codes of the frames of this kind, RST_STREAM or GOAWAY.
fn codes(read: &[u8], kind: u8) -> Vec<u32> {
    let of_kind = http2::frames(read).into_iter().filter(|frame| frame.kind == kind);
    let offset = if kind == http2::GOAWAY { 4 } else { 0 };
    of_kind.map(|frame| u32::from_be_bytes(frame.payload[offset..offset + 4].try_into().unwrap())).collect()
}

fn never(_: &[http2::Frame<'_>]) -> bool {
    false
}

#[tokio::test]
async fn e6_streams_that_are_reset_right_after_opening_end_the_connection_on_sqlite() {
    let app = Embedded::start().await;
    let head = http2::head("GET", "/threads", "localhost");
    let flags = http2::END_HEADERS | http2::END_STREAM;
    let frames = (0..2000).flat_map(|n| {
        let stream = 2 * n + 1;
        let open = http2::frame(http2::HEADERS, flags, stream, &head);
        [open, http2::frame(http2::RST_STREAM, 0, stream, &http2::CANCEL)].concat()
    });
    let read = exchange(&app, frames.collect(), never).await;
    assert_eq!(codes(&read, http2::GOAWAY).last(), Some(&ENHANCE_YOUR_CALM));
    is_well(&app.client).await;
}

#[tokio::test]
async fn e6_a_head_that_never_ends_ends_the_connection_on_sqlite() {
    let app = Embedded::start().await;
    let head = http2::head("GET", "/threads", "localhost");
    // A header with a value of 1 kB, repeated: about 64 MB in total.
    let header = [&b"\x00\x03x-a\x7f\x81\x07"[..], &[b'a'; 256][..]].concat();
    let more = header.repeat(60);
    let mut frames = http2::frame(http2::HEADERS, http2::END_STREAM, http2::FIRST, &head);
    for _ in 0..4000 {
        frames.extend(http2::frame(http2::CONTINUATION, 0, http2::FIRST, &more));
    }
    let read = exchange(&app, frames, never).await;
    assert!(!codes(&read, http2::GOAWAY).is_empty(), "{:?}", http2::frames(&read));
    is_well(&app.client).await;
}

#[tokio::test]
async fn e6_streams_over_the_limit_of_a_connection_are_refused_on_sqlite() {
    let app = Embedded::start().await;
    let head = http2::head("POST", "/threads", "localhost");
    // The bodies never arrive.
    let open = |stream| http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &head);
    let frames = (0..120).flat_map(|n| open(2 * n + 1)).collect();
    let refused = |frames: &[http2::Frame<'_>]| {
        frames.iter().filter(|frame| frame.kind == http2::RST_STREAM).count() >= 20
    };
    let read = exchange(&app, frames, refused).await;
    assert_eq!(codes(&read, http2::RST_STREAM), [REFUSED_STREAM; 20]);
    let last_ones: Vec<u32> = http2::frames(&read)
        .into_iter()
        .filter_map(|frame| (frame.kind == http2::RST_STREAM).then_some(frame.stream))
        .collect();
    assert_eq!(last_ones, (100..120).map(|n| 2 * n + 1).collect::<Vec<u32>>());
    is_well(&app.client).await;
    assert_eq!(app.rows.count("threads").await, 0);
}

#[tokio::test]
async fn e6_a_connection_without_a_ping_reply_is_closed_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.ping = SOON, |_| {}).await;
    let head = http2::head("GET", "/tools", "localhost");
    let flags = http2::END_HEADERS | http2::END_STREAM;
    // The client sends one request and does not answer the ping.
    let read = exchange(&app, http2::frame(http2::HEADERS, flags, http2::FIRST, &head), never).await;
    let kinds: Vec<u8> = http2::frames(&read).iter().map(|frame| frame.kind).collect();
    assert!(kinds.contains(&http2::DATA) && kinds.contains(&http2::PING), "{kinds:?}");
    is_well(&app.client).await;
}
