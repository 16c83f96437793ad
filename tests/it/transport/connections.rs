//! How many connections there may be.

use super::{PACE, PATIENCE, Raw, SOON};
use crate::support::{Client, Embedded, Process, eventually, http2};
use holdpoint::app::Deadlines;
use holdpoint::config::Config;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

async fn with(change: impl FnOnce(&mut Config)) -> (Embedded, Client) {
    let app = Embedded::with(change).await;
    // One that keeps no connection of its own behind the test's back.
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let client = Client { http, base: app.client.base.clone() };
    (app, client)
}

/// A connection that was of use once, and stays.
async fn connected(client: &Client) -> Raw {
    let mut raw = Raw::to(client).await;
    raw.writes(raw.head("GET /healthz", &[])).await;
    assert_eq!(raw.answer().await.status, 200);
    raw
}

#[tokio::test]
async fn e4_an_address_has_so_many_connections_and_the_next_is_closed_at_once_on_sqlite() {
    let (_app, client) = with(|config| config.limits.connections_per_ip = Some(2)).await;
    let (one, mut two) = (connected(&client).await, connected(&client).await);
    for _ in 0..3 {
        // A header that names another address is anybody's to write.
        let mut third = Raw::to(&client).await;
        let head = third.head("GET /healthz", &["x-forwarded-for: 192.0.2.7", "forwarded: for=192.0.2.7"]);
        let _written = tokio::io::AsyncWriteExt::write_all(&mut third.socket, head.as_bytes()).await;
        assert_eq!(third.until_the_end().await, "");
    }
    two.writes(two.head("GET /healthz", &[])).await;
    assert_eq!(two.answer().await.status, 200, "those that were there stay");
    drop(one);
    let room = async || {
        let mut raw = Raw::to(&client).await;
        let head = raw.head("GET /healthz", &["connection: close"]);
        let _written = tokio::io::AsyncWriteExt::write_all(&mut raw.socket, head.as_bytes()).await;
        raw.until_the_end().await.starts_with("HTTP/1.1 200 ").then_some(())
    };
    eventually("there is room again", room).await;
}

#[tokio::test]
async fn e4_there_are_so_many_connections_and_the_next_waits_until_one_ends_on_sqlite() {
    let (_app, client) = with(|config| config.limits.connections = Some(2)).await;
    let (one, mut two) = (connected(&client).await, connected(&client).await);
    let mut third = Raw::to(&client).await;
    third.writes(third.head("GET /healthz", &[])).await;
    for _ in 0..50 {
        two.writes(two.head("GET /healthz", &[])).await;
        assert_eq!(two.answer().await.status, 200);
    }
    let mut byte = [0];
    let heard = third.socket.try_read(&mut byte).map_err(|error| error.kind());
    assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock), "it waits, and is not sent away");
    drop(one);
    assert_eq!(third.answer().await.status, 200);
}

fn started(command: &mut Command, variables: &[(&str, &str)]) -> (Process, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let command = command.env_clear().current_dir(dir.path()).envs(variables.iter().copied());
    (Process::spawn_heard(command), dir)
}

#[tokio::test]
async fn an_address_that_has_its_share_is_in_the_log_once_a_minute_on_sqlite() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    let (server, _dir) = started(&mut command, &[("HOLDPOINT_LIMITS__CONNECTIONS_PER_IP", "1")]);
    let one = connected(&server.client).await;
    for _ in 0..5 {
        assert_eq!(Raw::to(&server.client).await.until_the_end().await, "");
    }
    drop(one);
    let printed = server.finish();
    assert_eq!(printed.matches("limits.connections_per_ip").count(), 1, "{printed}");
}

#[tokio::test]
async fn a_server_opens_as_many_files_as_it_may_on_sqlite() {
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
async fn a_server_that_is_full_can_still_be_stopped_on_sqlite() {
    let (app, client) = with(|config| config.limits.connections = Some(1)).await;
    let one = connected(&client).await;
    let stopped = tokio::join!(app.redeploy(holdpoint::tools::ToolRegistry::new()), one.until_the_end());
    assert_eq!(stopped.0.client.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn e4_a_connection_may_rest_for_longer_than_a_head_may_take_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.head = SOON, |_| {}).await;
    let mut pooled = connected(&app.client).await;
    // One that never asks is closed meanwhile.
    Raw::to(&app.client).await.until_the_end().await;
    pooled.writes(pooled.head("GET /healthz", &[])).await;
    assert_eq!(pooled.answer().await.status, 200);
}

#[tokio::test]
async fn e4_a_connection_that_rests_for_too_long_is_closed_on_sqlite() {
    let hurry = |deadlines: &mut Deadlines| {
        deadlines.idle = SOON;
        // For leaving, once it is told.
        deadlines.taking = SOON;
    };
    let app = Embedded::hurried(hurry, |_| {}).await;
    let heard = connected(&app.client).await.until_the_end().await;
    assert_eq!(heard, "");

    // With HTTP/2 also one whose other side says that it is there.
    let mut stranger = Raw::to(&app.client).await;
    let flags = http2::END_HEADERS | http2::END_STREAM;
    let head = http2::frame(http2::HEADERS, flags, http2::FIRST, &http2::head("GET", "/tools", "localhost"));
    stranger.writes([http2::PREFACE, &http2::frame(http2::SETTINGS, 0, 0, &[]), &head].concat()).await;
    let (mut from, mut to) = stranger.socket.into_split();
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
        ended = timeout(PATIENCE, reading) => ended.expect("the server lets go"),
    }
    let kinds: Vec<u8> = http2::frames(&read).iter().map(|frame| frame.kind).collect();
    assert!(kinds.contains(&http2::DATA) && kinds.contains(&http2::GOAWAY), "{kinds:?}");
}

#[tokio::test]
async fn a_deadline_that_no_clock_can_tell_is_none_on_sqlite() {
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
        app.scene.says("Hello.");
        assert_eq!(client.say(&thread, "hi").await.text(), "Hello.");
    }
}
