//! Clients that disconnect.

use crate::support::{Client, Http2, Running};

#[tokio::test]
async fn the_request_of_a_disconnected_client_is_dropped_at_once() {
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
