//! Request bodies that are too long, slow, or compressed.

use crate::support::{BODY_BYTES, Client, Http2, PATIENCE, Reply, Running, SOON, body_of};
use bytes::Bytes;
use std::iter::repeat;
use tokio::time::timeout;

async fn posts(server: &Running, lines: &[&str], body: &[u8]) -> Reply {
    let mut client = Client::connect(server).await;
    client.send_head("POST /read", lines).await;
    client.send(body).await;
    client.reply().await
}

#[tokio::test]
async fn a_body_within_the_limits_is_read() {
    let server = Running::hurried(|_| {}).await;
    let body = [b'x'; BODY_BYTES];
    assert_eq!(posts(&server, &["content-length: 1000"], &body).await.body, "1000");
    let chunked = [&b"3e8\r\n"[..], &body, b"\r\n0\r\n\r\n"].concat();
    assert_eq!(posts(&server, &["transfer-encoding: chunked"], &chunked).await.body, "1000");
    let plain = ["content-length: 1", "content-encoding: identity"];
    assert_eq!(posts(&server, &plain, b"x").await.body, "1");
}

#[tokio::test]
async fn a_client_that_sends_a_refused_body_first_still_reads_the_refusal() {
    let server = Running::hurried(|_| {}).await;
    let body = vec![b'x'; 4 << 20];
    let length = format!("content-length: {}", body.len());
    let chunked = [&b"400000\r\n"[..], &body, b"\r\n0\r\n\r\n"].concat();
    for (lines, body, why) in [
        (&[length.as_str()][..], &body, "it is longer than 1000 bytes"),
        (&["transfer-encoding: chunked"], &chunked, "it is longer than 1000 bytes"),
        (&[length.as_str(), "content-encoding: gzip"], &body, "it is compressed"),
    ] {
        let reply = posts(&server, lines, body).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, why), "{lines:?}");
    }
}

#[tokio::test]
async fn a_body_that_stalls_times_out() {
    let server = Running::hurried(|deadlines| deadlines.body_piece = SOON).await;
    for begin in ["", "x"] {
        let reply = posts(&server, &["content-length: 10"], begin.as_bytes()).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, "nothing came for 1s"));
    }
}

#[tokio::test]
async fn a_body_that_arrives_byte_by_byte_times_out() {
    let server = Running::hurried(|deadlines| deadlines.body = SOON).await;
    let mut client = Client::connect(&server).await;
    client.send_head("POST /read", &["content-length: 1000", "connection: close"]).await;
    let response_bytes = client.drip(repeat(b'x')).await;
    let response_bytes = String::from_utf8(response_bytes).unwrap();
    assert!(response_bytes.ends_with("\r\n\r\nit was not whole after 1s"), "{response_bytes}");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_refused_before_its_deadline() {
    let server = Running::hurried(|deadlines| {
        deadlines.body_slow_start = SOON;
        deadlines.body_bytes_per_second = 500;
    })
    .await;
    let mut client = Client::connect(&server).await;
    client.send_head("POST /read", &["content-length: 1000", "connection: close"]).await;
    let response_bytes = client.drip(repeat(b'x')).await;
    let response_bytes = String::from_utf8(response_bytes).unwrap();
    assert!(
        response_bytes.ends_with("\r\n\r\nit came at fewer than 500 bytes per second"),
        "{response_bytes}"
    );
}

#[tokio::test]
async fn a_declared_length_takes_nothing_of_the_budget() {
    let server = Running::hurried(|_| {}).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        let mut client = Client::connect(&server).await;
        client.send_head("POST /read", &["content-length: 1000"]).await;
        client.send("x").await;
        silent.push(client);
    }
    assert_eq!(posts(&server, &["content-length: 900"], &[b'x'; 900]).await.body, "900");
}

#[tokio::test]
async fn broken_chunks_are_refused() {
    let server = Running::hurried(|_| {}).await;
    let reply = posts(&server, &["transfer-encoding: chunked"], b"1\r\nx\r\nno length\r\n").await;
    assert_eq!((reply.status, reply.body.as_str()), (400, "cut off before its end"));
}

#[tokio::test]
async fn the_bodies_of_all_requests_share_one_budget() {
    let server = Running::hurried(|_| {}).await;
    let mut first = Client::connect(&server).await;
    first.send_head("POST /keep", &["content-length: 600"]).await;
    first.send([b'x'; 600]).await;
    server.app.waiting.reaches(1).await;
    let refused = posts(&server, &["content-length: 600"], &[b'x'; 600]).await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (400, "the user holds as many bytes as one user may")
    );
    assert_eq!(posts(&server, &["content-length: 400"], &[b'x'; 400]).await.body, "400");
    server.app.gate.add_permits(1);
    assert_eq!(first.reply().await.body, "600");
    // The body is dropped before its response.
    assert_eq!(posts(&server, &["content-length: 1000"], &[b'x'; 1000]).await.body, "1000");
}

#[tokio::test]
async fn an_http2_body_has_the_same_limits() {
    let server = Running::hurried(|deadlines| deadlines.body_piece = SOON).await;
    let client = Http2::connect(&server).await;
    for (bytes, ends, expected) in [
        (BODY_BYTES, true, (200, "1000")),
        (BODY_BYTES + 1, true, (400, "it is longer than 1000 bytes")),
        (1, false, (400, "nothing came for 1s")),
    ] {
        let request = poem::http::Request::post("http://localhost/read").body(()).unwrap();
        let mut ready = timeout(PATIENCE, client.client.clone().ready()).await.unwrap().unwrap();
        let (response, mut body) = ready.send_request(request, false).unwrap();
        body.send_data(Bytes::from(vec![b'x'; bytes]), ends).unwrap();
        let (status, text) = body_of(response).await.unwrap();
        assert_eq!((status, text.as_str()), expected);
    }
}
