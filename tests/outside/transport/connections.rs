//! Connection limits.

use super::{PACE, PATIENCE, RawConnection, SOON};
use holdpoint::app::Deadlines;
use holdpoint::config::Config;
use holdpoint_testkit::{Client, Embedded, Process, eventually, http2};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

async fn with(change: impl FnOnce(&mut Config)) -> (Embedded, Client) {
    let app = Embedded::with(change).await;
    // A client without a pool, so that it keeps no extra connection.
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let client = Client { http, base: app.client.base.clone() };
    (app, client)
}

/// A connection that has served one request and stays open.
async fn connected(client: &Client) -> RawConnection {
    let mut raw = RawConnection::to(client).await;
    raw.writes(raw.head("GET /healthz", &[])).await;
    assert_eq!(raw.answer().await.status, 200);
    raw
}

#[tokio::test]
async fn e4_a_connection_over_the_limit_of_its_address_is_closed_at_once_on_sqlite() {
    let (_app, client) = with(|config| config.limits.connections_per_ip = Some(2)).await;
    let (one, mut two) = (connected(&client).await, connected(&client).await);
    for _ in 0..3 {
        // Any client can write a header that names another address.
        let mut third = RawConnection::to(&client).await;
        let head = third.head("GET /healthz", &["x-forwarded-for: 192.0.2.7", "forwarded: for=192.0.2.7"]);
        let _written = tokio::io::AsyncWriteExt::write_all(&mut third.socket, head.as_bytes()).await;
        assert_eq!(third.receives_all().await, "");
    }
    two.writes(two.head("GET /healthz", &[])).await;
    assert_eq!(two.answer().await.status, 200, "those that were there stay");
    drop(one);
    let room = async || {
        let mut raw = RawConnection::to(&client).await;
        let head = raw.head("GET /healthz", &["connection: close"]);
        let _written = tokio::io::AsyncWriteExt::write_all(&mut raw.socket, head.as_bytes()).await;
        raw.receives_all().await.starts_with("HTTP/1.1 200 ").then_some(())
    };
    eventually("there is room again", room).await;
}

#[tokio::test]
async fn e4_a_connection_over_the_total_limit_waits_until_another_ends_on_sqlite() {
    let (_app, client) = with(|config| config.limits.connections = Some(2)).await;
    let (one, mut two) = (connected(&client).await, connected(&client).await);
    let mut third = RawConnection::to(&client).await;
    third.writes(third.head("GET /healthz", &[])).await;
    for _ in 0..50 {
        two.writes(two.head("GET /healthz", &[])).await;
        assert_eq!(two.answer().await.status, 200);
    }
    let mut byte = [0];
    let received = third.socket.try_read(&mut byte).map_err(|error| error.kind());
    assert_eq!(received, Err(std::io::ErrorKind::WouldBlock), "the connection waits and is not closed");
    drop(one);
    assert_eq!(third.answer().await.status, 200);
}

fn started(command: &mut Command, variables: &[(&str, &str)]) -> (Process, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let command = command.env_clear().current_dir(dir.path()).envs(variables.iter().copied());
    (Process::spawn_captured(command), dir)
}

#[tokio::test]
async fn an_address_over_its_connection_limit_is_logged_once_a_minute_on_sqlite() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    let (server, _dir) = started(&mut command, &[("HOLDPOINT_LIMITS__CONNECTIONS_PER_IP", "1")]);
    let one = connected(&server.client).await;
    for _ in 0..5 {
        assert_eq!(RawConnection::to(&server.client).await.receives_all().await, "");
    }
    drop(one);
    let printed = server.finish();
    assert_eq!(printed.matches("limits.connections_per_ip").count(), 1, "{printed}");
}

#[tokio::test]
async fn a_server_raises_its_open_file_limit_on_sqlite() {
    let limited = |limit: &str| {
        let mut command = Command::new("/bin/bash");
        let script = format!("ulimit {limit} && exec {}", env!("CARGO_BIN_EXE_holdpoint"));
        command.args(["-c", &script]);
        command
    };
    let (server, _dir) = started(&mut limited("-S -n 64"), &[]);
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(connected(&server.client).await);
    }
    drop(all);
    let printed = server.finish();
    assert!(!printed.contains("limits.connections"), "{printed}");

    let (server, _dir) = started(&mut limited("-n 256"), &[("HOLDPOINT_LIMITS__CONNECTIONS", "200")]);
    let printed = server.finish();
    assert_eq!(printed.matches("limits.connections").count(), 1, "{printed}");
}

#[tokio::test]
async fn a_server_without_a_free_connection_can_still_be_stopped_on_sqlite() {
    let (app, client) = with(|config| config.limits.connections = Some(1)).await;
    let one = connected(&client).await;
    let stopped = tokio::join!(app.redeploy(holdpoint::tools::ToolRegistry::new()), one.receives_all());
    stopped.0.client.get("/healthz").await.has_status(200);
}

#[tokio::test]
async fn e4_a_connection_may_idle_for_longer_than_the_head_deadline_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.head = SOON, |_| {}).await;
    let mut pooled = connected(&app.client).await;
    // A connection without a request is closed meanwhile.
    RawConnection::to(&app.client).await.receives_all().await;
    pooled.writes(pooled.head("GET /healthz", &[])).await;
    assert_eq!(pooled.answer().await.status, 200);
}

#[tokio::test]
async fn e4_a_connection_that_idles_for_too_long_is_closed_on_sqlite() {
    let hurry = |deadlines: &mut Deadlines| {
        deadlines.idle = SOON;
        // The time that the client has to close after the GOAWAY.
        deadlines.taking = SOON;
    };
    let app = Embedded::hurried(hurry, |_| {}).await;
    let received = connected(&app.client).await.receives_all().await;
    assert_eq!(received, "");

    // With HTTP/2, an idle connection is closed even if the client sends pings.
    let mut other_user = RawConnection::to(&app.client).await;
    let flags = http2::END_HEADERS | http2::END_STREAM;
    let head = http2::frame(http2::HEADERS, flags, http2::FIRST, &http2::head("GET", "/tools", "localhost"));
    other_user.writes([http2::PREFACE, &http2::frame(http2::SETTINGS, 0, 0, &[]), &head].concat()).await;
    let (mut from, mut to) = other_user.socket.into_split();
    let is_there = async {
        while to.write_all(&http2::frame(http2::PING, 0, 0, &[0; 8])).await.is_ok() {
            tokio::time::sleep(PACE).await;
        }
        std::future::pending::<()>().await;
    };
    let mut read = Vec::new();
    let reading = async { while from.read_buf(&mut read).await.is_ok_and(|count| count > 0) {} };
    tokio::select! {
        () = is_there => {}
        ended = timeout(PATIENCE, reading) => ended.expect("the server closes the connection"),
    }
    let kinds: Vec<u8> = http2::frames(&read).iter().map(|frame| frame.kind).collect();
    assert!(kinds.contains(&http2::DATA) && kinds.contains(&http2::GOAWAY), "{kinds:?}");
}

#[tokio::test]
async fn a_deadline_beyond_the_clocks_range_is_no_deadline_on_sqlite() {
    let app = Embedded::hurried(
        |deadlines| {
            deadlines.head = Duration::MAX;
            deadlines.idle = Duration::MAX;
            deadlines.body_piece = Duration::MAX;
            deadlines.body = Duration::MAX;
            deadlines.taking = Duration::MAX;
            deadlines.ping = Duration::MAX;
        },
        |_| {},
    )
    .await;
    let over_http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let over_http2 = Client { http: over_http2, base: app.client.base.clone() };
    for client in [&app.client, &over_http2] {
        let thread = client.thread().await;
        app.scene.answers("Hello.");
        assert_eq!(client.send_message(&thread, "hi").await.text(), "Hello.");
    }
}
