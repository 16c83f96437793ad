//! Request heads that do not arrive, arrive slowly, or are too long.

use crate::support::{Client, Http2, PATIENCE, Running, SOON, request};
use futures::future::join_all;
use std::iter::repeat;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let server = Running::hurried(|deadlines| deadlines.head = SOON).await;
    let begin = [
        &b""[..],
        b"G",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-a: ",
        b"PRI * HTTP/2.0\r\n",
        PREFACE,
        &[PREFACE, SETTINGS].concat(),
    ];
    let response_bytes = begin.map(async |begin| Client::connect(&server).await.send_and_read(begin).await);
    for (begin, response_bytes) in begin.iter().zip(join_all(response_bytes).await) {
        assert!(!response_bytes.starts_with(b"HTTP/1.1 200"), "{}", begin.escape_ascii());
    }
    Client::served(&server).await;
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_times_out() {
    let server = Running::hurried(|deadlines| deadlines.head = SOON).await;
    let head = b"GET / HTTP/1.1\r\nx-a: ".iter().copied().chain(repeat(b'a'));
    assert_eq!(Client::connect(&server).await.drip(head.clone()).await, b"");
    // The deadline also applies to the second request of a connection.
    assert_eq!(Client::served(&server).await.drip(head).await, b"");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = Running::hurried(|_| {}).await;
    let many: Vec<String> = (0..101).map(|n| format!("x-{n}: a")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long_value = format!("x-a: {}", "a".repeat(70_000));
    let long_path = format!("GET /{}", "a".repeat(70_000));
    for (first, lines, statuses) in [
        (long_path.as_str(), &[][..], [414, 431]),
        ("GET /", &[long_value.as_str()][..], [431, 431]),
        ("GET /", &many, [431, 431]),
    ] {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("{first} HTTP/1.1\r\n{lines}\r\n");
        let response_bytes = Client::connect(&server).await.send_and_read(head.as_bytes()).await;
        let response_bytes = String::from_utf8(response_bytes).unwrap();
        let status: u16 = response_bytes.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        assert!(statuses.contains(&status), "{}: {response_bytes}", &first[..5]);
    }
    // 99 headers and `host` are as many as a head may have.
    let mut client = Client::connect(&server).await;
    client.send_head("GET /", &many[..99]).await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn an_http2_head_that_is_too_long_is_refused() {
    let server = Running::hurried(|_| {}).await;
    let mut client = Http2::connect(&server).await;
    assert_eq!(client.get("/").await.unwrap(), (200, "ok".to_owned()));
    let mut request = request("/");
    request.headers_mut().insert("x-a", "a".repeat(70_000).parse().unwrap());
    let (response, _) = client.client.send_request(request, true).unwrap();
    let refused = timeout(PATIENCE, response).await.expect("the server answers");
    assert_eq!(refused.map_or(431, |response| response.status().as_u16()), 431);
    Client::served(&server).await;
}
