//! Stops: open requests finish, and nothing new begins.

use crate::support::{Client, Http2, Running, at_most, body_of, refuses_connections};
use holdpoint_serve::{Limits, OpenConnections};
use std::sync::Arc;
use tokio::sync::Semaphore;

#[tokio::test]
async fn a_stopping_server_finishes_open_requests_and_closes_idle_connections() {
    let mut server = Running::hurried(|_| {}).await;
    let idle = Client::served(&server).await;
    let mut busy = Client::connect(&server).await;
    busy.send_head("GET /wait", &[]).await;
    let mut over_http2 = Http2::connect(&server).await;
    let response = over_http2.send_head("/wait").await;
    server.app.waiting.reaches(2).await;
    server.stop();
    refuses_connections(&server).await;
    assert_eq!(idle.rest().await, b"");
    assert!(!server.has_ended(), "the server waits for the open requests");
    server.app.gate.add_permits(2);
    let reply = busy.reply().await;
    assert_eq!(reply.body, "done");
    assert!(reply.head.contains("connection: close"), "{}", reply.head);
    assert_eq!(body_of(response).await.unwrap(), (200, "done".to_owned()));
    over_http2.closed().await.expect("a graceful end");
    server.ended().await;
}

#[tokio::test]
async fn a_server_at_its_total_limit_can_be_stopped() {
    let mut server = Running::start(at_most(1), |_| {}).await;
    let one = Client::served(&server).await;
    server.stop();
    assert_eq!(one.rest().await, b"");
    server.ended().await;
}

#[tokio::test]
async fn the_end_of_the_drain_ends_the_wait_for_open_requests() {
    let grace = Arc::new(Semaphore::new(0));
    let over = grace.clone();
    let drain = async move |_: OpenConnections| over.acquire().await.unwrap().forget();
    let mut server = Running::with_drain(Limits::default(), |_| {}, drain).await;
    let mut busy = Client::connect(&server).await;
    busy.send_head("GET /wait", &[]).await;
    server.app.waiting.reaches(1).await;
    server.stop();
    refuses_connections(&server).await;
    assert!(!server.has_ended());
    grace.add_permits(1);
    server.ended().await;
    // The request was abandoned, not ended.
    assert_eq!(server.app.dropped.now(), 0);
    server.app.gate.add_permits(1);
    assert_eq!(busy.reply().await.body, "done");
}
