//! Connections without a request.

use crate::support::{Client, Http2, Running, SOON};
use std::time::Duration;

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = Running::hurried(|deadlines| {
        deadlines.idle = SOON;
        // The time that the client has to close its side.
        deadlines.taking = SOON;
    })
    .await;
    assert_eq!(Client::served(&server).await.rest().await, b"");
    let mut client = Http2::connect(&server).await;
    assert_eq!(client.get("/").await.unwrap(), (200, "ok".to_owned()));
    client.closed().await.expect("a GOAWAY before the end");
}

#[tokio::test]
async fn a_connection_may_idle_for_longer_than_the_head_deadline() {
    let server = Running::hurried(|deadlines| deadlines.head = SOON).await;
    let mut idle = Client::served(&server).await;
    // A connection without a request is closed meanwhile.
    assert_eq!(Client::connect(&server).await.rest().await, b"");
    assert_eq!(idle.get("/").await.body, "ok");
}

#[tokio::test]
async fn a_deadline_beyond_the_range_of_the_clock_is_no_deadline() {
    let server = Running::hurried(|deadlines| {
        deadlines.head = Duration::MAX;
        deadlines.idle = Duration::MAX;
        deadlines.body_piece = Duration::MAX;
        deadlines.body = Duration::MAX;
        deadlines.taking = Duration::MAX;
        deadlines.ping = Duration::MAX;
    })
    .await;
    let mut client = Client::served(&server).await;
    client.send_head("POST /read", &["content-length: 3"]).await;
    client.send("abc").await;
    assert_eq!(client.reply().await.body, "3");
    assert_eq!(Http2::connect(&server).await.get("/").await.unwrap(), (200, "ok".to_owned()));
}
