//! Clients that disconnect.

use crate::support::{Client, Http2, Running};
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn the_request_of_a_disconnected_client_is_dropped() {
    let server = Running::hurried(|_| {}).await;
    let mut client = Client::connect(&server).await;
    client.send_head("GET /wait", &[]).await;
    server.app.waiting.reaches(1).await;
    assert_eq!(server.app.dropped.now(), 0);
    drop(client);
    server.app.dropped.reaches(1).await;
}

#[tokio::test]
async fn the_requests_of_a_disconnected_http2_client_are_dropped_at_once() {
    let server = Running::hurried(|_| {}).await;
    let mut client = Http2::connect(&server).await;
    let _waiting = [client.send_head("/wait").await, client.send_head("/wait").await];
    server.app.waiting.reaches(2).await;
    assert_eq!(server.app.dropped.now(), 0);
    client.connection.shutdown().await;
    server.app.dropped.reaches(2).await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_with_its_request_gets_its_whole_answer() {
    for (request, end) in [
        ("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n", "done"),
        ("GET /silent HTTP/1.1\r\nhost: localhost\r\n\r\n", "last"),
        ("POST /wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n", "done"),
    ] {
        let server = Running::hurried(|_| {}).await;
        let mut client = Client::connect(&server).await;
        client.send(request).await;
        client.socket.shutdown().await.unwrap();
        server.app.waiting.reaches(1).await;
        assert_eq!(server.app.dropped.now(), 0);
        server.app.gate.add_permits(1);
        let received = String::from_utf8(client.rest().await).unwrap();
        assert!(received.starts_with("HTTP/1.1 200 OK") && received.contains(end), "{received}");
    }
}

#[tokio::test]
async fn a_request_that_lives_with_its_client_ends_whenever_the_client_closes_its_side() {
    for with_the_request in [true, false] {
        let server = Running::hurried(|_| {}).await;
        let mut client = Client::connect(&server).await;
        client.send_head("GET /live", &[]).await;
        if !with_the_request {
            server.app.waiting.reaches(1).await;
        }
        client.socket.shutdown().await.unwrap();
        server.app.dropped.reaches(1).await;
        assert_eq!(client.rest().await, b"");
    }
}
