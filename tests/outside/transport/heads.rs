//! Request heads that never arrive, arrive slowly, or are too long.

use super::{PATIENCE, RawConnection, SOON, is_well};
use holdpoint_testkit::{Embedded, http2};
use std::iter::repeat;

async fn hurried() -> Embedded {
    Embedded::hurried(|deadlines| deadlines.head = SOON, |_| {}).await
}

#[tokio::test]
async fn e4_a_connection_without_a_complete_head_is_closed_on_sqlite() {
    let app = hurried().await;
    let settings = http2::frame(http2::SETTINGS, 0, 0, &[]);
    let unfinished =
        http2::frame(http2::HEADERS, 0, http2::FIRST, &http2::head("GET", "/tools", "localhost"));
    for started in [
        &b""[..],
        b"G",
        b"GET /tools HTTP/1.1\r\nhost: localhost\r\nx-a: ",
        b"PRI * HTTP/2.0\r\n",
        http2::PREFACE,
        &[http2::PREFACE, &settings].concat(),
        &[http2::PREFACE, &settings, &unfinished].concat(),
    ] {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(started).await;
        let received = other_user.receives_all().await;
        assert!(!received.contains("HTTP/1.1 200"), "{started:?}: {received}");
    }
    is_well(&app.client).await;
}

#[tokio::test]
async fn e4_a_head_that_arrives_byte_by_byte_times_out_on_sqlite() {
    let app = hurried().await;
    let head = b"GET /tools HTTP/1.1\r\nhost: localhost\r\nx-a: ".iter().copied();
    let other_user = RawConnection::to(&app.client).await;
    other_user.drips(head.chain(repeat(b'a'))).await;
    let other_user = RawConnection::to(&app.client).await;
    other_user.drips(http2::PREFACE.iter().copied().chain(repeat(0))).await;

    // The deadline also applies to the second request of a connection.
    let mut other_user = RawConnection::to(&app.client).await;
    other_user.writes(other_user.head("GET /healthz", &[])).await;
    assert_eq!(other_user.answer().await.status, 200);
    other_user.drips(b"GET /tools HTTP/1.1\r\nx-a: ".iter().copied().chain(repeat(b'a'))).await;
    is_well(&app.client).await;
}

#[tokio::test]
async fn e4_a_head_that_is_too_long_is_refused_and_the_server_stays_up_on_sqlite() {
    let app = Embedded::start().await;
    let many: String = (0..1000).map(|n| format!("x-{n}: a\r\n")).collect();
    for (what, request, statuses) in [
        (
            "a long path",
            format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(70_000)),
            [414, 431],
        ),
        (
            "a path that fits",
            format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(8_000)),
            [404, 404],
        ),
        ("many headers", format!("GET /tools HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"), [431, 431]),
        (
            "a long header",
            format!("GET /tools HTTP/1.1\r\nhost: localhost\r\nx-a: {}\r\n\r\n", "a".repeat(100_000)),
            [431, 431],
        ),
    ] {
        let other_user = RawConnection::to(&app.client).await;
        let (mut from, mut to) = other_user.socket.into_split();
        // The server may answer before it has read the whole head.
        let writing = async { tokio::io::AsyncWriteExt::write_all(&mut to, request.as_bytes()).await };
        let mut received = Vec::new();
        let reading = async {
            while !received.windows(4).any(|window| window == b"\r\n\r\n") {
                match tokio::io::AsyncReadExt::read_buf(&mut from, &mut received).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        };
        let both = async { tokio::join!(writing, reading) };
        let (_written, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
        let received = String::from_utf8_lossy(&received).into_owned();
        let status = received.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        assert!(status.is_some_and(|status| statuses.contains(&status)), "{what}: {received}");
        is_well(&app.client).await;
    }
}
