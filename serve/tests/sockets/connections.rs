//! Limits on the number of connections.

use crate::support::{Client, Http2, PATIENCE, Running, at_most, at_most_per_ip, body_of};
use std::net::IpAddr;
use tokio::time::timeout;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_connection_over_the_total_limit_waits_until_another_one_closes() {
    let server = Running::start(at_most(2), |_| {}).await;
    let (one, mut two) = (Client::served(&server).await, Client::served(&server).await);
    let mut third = Client::connect(&server).await;
    third.send_head("GET /", &[]).await;
    for _ in 0..50 {
        assert_eq!(two.get("/").await.body, "ok");
    }
    assert!(third.is_silent(), "the connection waits and is not closed");
    drop(one);
    assert_eq!(third.reply().await.body, "ok");
    assert_eq!(server.app.refusals.now(), 0);
}

#[tokio::test]
async fn a_connection_over_the_limit_of_its_address_is_closed_at_once() {
    let server = Running::start(at_most_per_ip(2), |_| {}).await;
    let (one, mut two) = (Client::served(&server).await, Client::served(&server).await);
    for _ in 0..3 {
        assert_eq!(Client::connect(&server).await.rest().await, b"");
    }
    assert_eq!(*server.app.refused.lock(), [LOCAL; 3]);
    assert_eq!(two.get("/").await.body, "ok", "the earlier connections stay");
    let mut other = Client::from(&server, [127, 0, 0, 2]).await;
    assert!(other.get("/peer").await.body.contains("127.0.0.2"), "another address has its own limit");
    drop(one);
    let free = async {
        loop {
            let client = Client::connect(&server).await;
            let response_bytes =
                client.send_and_read(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
            if response_bytes.ends_with(b"ok") {
                break;
            }
        }
    };
    timeout(PATIENCE, free).await.expect("the closed connection makes room");
}

#[tokio::test]
async fn an_http2_connection_counts_once_with_all_its_streams() {
    let server = Running::start(at_most_per_ip(1), |_| {}).await;
    let mut client = Http2::connect(&server).await;
    let waiting = [client.send_head("/wait").await, client.send_head("/wait").await];
    server.app.waiting.reaches(2).await;
    assert_eq!(Client::connect(&server).await.rest().await, b"");
    server.app.gate.add_permits(2);
    for response in waiting {
        assert_eq!(body_of(response).await.unwrap(), (200, "done".to_owned()));
    }
    assert_eq!(server.app.refusals.now(), 1);
}

#[tokio::test]
async fn an_upgraded_connection_counts_as_long_as_its_admission_is_kept() {
    let server = Running::start(at_most(1), |_| {}).await;
    let mut upgraded = Client::connect(&server).await;
    upgraded.send_head("GET /upgrade", &["connection: upgrade", "upgrade: echo"]).await;
    assert!(upgraded.reply_head().await.starts_with("HTTP/1.1 101 "));
    let mut next = Client::connect(&server).await;
    next.send_head("GET /", &[]).await;
    for _ in 0..50 {
        upgraded.send("x\r\n\r\n").await;
        assert_eq!(upgraded.reply_head().await, "x\r\n\r\n");
    }
    assert!(next.is_silent(), "the connection waits");
    drop(upgraded);
    assert_eq!(next.reply().await.body, "ok");
}
