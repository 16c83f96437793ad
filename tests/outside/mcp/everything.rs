//! npm's `server-everything`, on both transports.

use super::{approved, entry, hold, node, packages, program, tool};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, JsonFields, UNKNOWN, eventually, free_port};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The server over HTTP. Dropping it kills the process.
pub(super) struct EverythingServer {
    child: Child,
    pub(super) url: String,
}

impl Drop for EverythingServer {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl EverythingServer {
    pub(super) fn start() -> Self {
        let free = free_port();
        Self::at(free)
    }

    fn at(port: u16) -> Self {
        Self::of("streamableHttp", "mcp", port)
    }

    /// With the transport of earlier servers alone.
    fn earlier() -> Self {
        let free = free_port();
        Self::of("sse", "sse", free)
    }

    fn of(transport: &str, path: &str, port: u16) -> Self {
        let mut node = Command::new("node");
        node.args([&program("server-everything"), transport]).env("PORT", port.to_string());
        let child = node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, url: format!("http://127.0.0.1:{port}/{path}") }
    }

    fn port(&self) -> u16 {
        reqwest::Url::parse(&self.url).unwrap().port().unwrap()
    }
}

pub(super) fn stdio() -> Value {
    node("all", &[&program("server-everything"), "stdio"])
}

pub(super) fn over_http(url: &str) -> Value {
    json!({ "name": "all", "url": url, "headers": { "authorization": "Bearer hunter2-hunter2" } })
}

async fn with(lines: &Value) -> Embedded {
    let lines = entry(lines);
    let change = |config: &mut Config| {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.mcp = vec![lines];
    };
    Box::pin(Embedded::with(change)).await
}

async fn results_are_given_to_the_model(server: &Embedded) {
    let weather = json!({ "location": "New York" });
    let call = approved(server, "all__get-structured-content", &weather).await;
    assert!(call["output"]["temperature"].is_number(), "{call}");
    let call = approved(server, "all__get-tiny-image", &json!({})).await;
    let result = call.text("result");
    assert!(result.contains("[image/png, ") && result.contains(" kB]"), "{call}");
    assert!(result.len() < 1000, "no image in {result}");
}

#[tokio::test]
async fn structured_content_is_the_output_and_an_image_is_named_in_its_place_on_both_transports() {
    let listening = EverythingServer::start();
    for lines in [stdio(), over_http(&listening.url)] {
        let server = with(&lines).await;
        tool(&server.client, "all__get-tiny-image").await;
        results_are_given_to_the_model(&server).await;
    }
}

#[tokio::test]
async fn a_long_operation_times_out_with_an_unknown_outcome_and_is_not_repeated() {
    let mut lines = stdio();
    lines["timeout"] = json!("1s");
    let server = with(&lines).await;
    tool(&server.client, "all__trigger-long-running-operation").await;
    let began = std::time::Instant::now();
    let long = json!({ "duration": 100, "steps": 2 });
    let call = approved(&server, "all__trigger-long-running-operation", &long).await;
    assert_eq!((&call["state"], &call["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(server.rows.all("SELECT exec_attempt FROM tool_calls").await, [json!({ "exec_attempt": 1 })]);
}

#[tokio::test]
async fn a_server_over_http_that_restarts_is_connected_again() {
    let listening = EverythingServer::start();
    let server = with(&over_http(&listening.url)).await;
    tool(&server.client, "all__echo").await;
    let (port, id) = (listening.port(), hold(&server, "all__echo", &json!({ "message": "a" })).await);
    drop(listening);
    let refused = server.client.approve(&id).await;
    assert_eq!(refused.body["state"], "failed", "nothing was sent: {:?}", refused.body);
    let _restarted = EverythingServer::at(port);
    let works = async || {
        let turn = super::turn(&server, "all__echo", &json!({ "message": "b" })).await;
        let id = turn.pending().first().cloned()?;
        (server.client.approve(&id).await.body["state"] == "succeeded").then_some(())
    };
    eventually("the server is connected again", works).await;
}

#[tokio::test]
async fn a_server_that_answers_a_discovery_with_an_empty_result_gets_a_handshake_of_its_version() {
    let server = packages().join("undiscovered.mjs");
    let server = with(&node("old", &[server.to_str().unwrap()])).await;
    tool(&server.client, "old__say").await;
    let ended = approved(&server, "old__say", &json!({ "note": "hello" })).await;
    assert_eq!((&ended["state"], &ended["output"]), (&json!("succeeded"), &json!("said hello")));
}

#[tokio::test]
async fn a_server_with_the_transport_of_earlier_servers_is_connected_and_connected_again() {
    let mut listening = EverythingServer::earlier();
    let server = with(&over_http(&listening.url)).await;
    tool(&server.client, "all__echo").await;
    for _ in 0..2 {
        let call = approved(&server, "all__echo", &json!({ "message": "hello" })).await;
        assert_eq!(call["state"], "succeeded", "{call}");
        assert!(call.text("result").contains("hello"), "{call}");
        let port = listening.port();
        drop(listening);
        super::no_tool(&server.client, "all__echo").await;
        listening = EverythingServer::of("sse", "sse", port);
        tool(&server.client, "all__echo").await;
    }
}

#[tokio::test]
async fn a_program_that_starts_slowly_or_leaves_a_request_unanswered_is_started_once() {
    let starts = tempfile::tempdir().unwrap();
    let program = packages().join("undiscovered.mjs").display().to_string();
    let started = |name: &str| {
        let lines = std::fs::read_to_string(starts.path().join(name)).unwrap_or_default();
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let entry_of = |name: &str, slowly: &str, mode: &str| {
        let file = starts.path().join(name);
        let script = format!("echo $$ >> {}; {slowly} exec node {program} {mode}", file.display());
        entry(&json!({ "name": name, "command": "sh", "args": ["-c", script], "start_timeout": "40s" }))
    };
    let mut silent = entry_of("silent", "", "silent");
    silent.start_timeout = Some(Duration::from_secs(8));
    let entries = vec![
        entry_of("slow", "sleep 12;", ""),
        silent,
        entry_of("pings", "", "ping"),
        entry_of("ends", "", "ends"),
    ];
    let server = Box::pin(Embedded::with(|config: &mut Config| config.mcp = entries)).await;
    tool(&server.client, "slow__say").await;
    tool(&server.client, "silent__say").await;
    tool(&server.client, "pings__say").await;
    tool(&server.client, "ends__say").await;
    assert_eq!(started("ends").len(), 2, "it ends at its first request, unless that is initialize");
    for name in ["slow", "silent", "pings"] {
        let ended = approved(&server, &format!("{name}__say"), &json!({ "note": "hello" })).await;
        assert_eq!((&ended["state"], &ended["output"]), (&json!("succeeded"), &json!("said hello")));
        assert_eq!(started(name).len(), 1);
    }
    // It starts again, with the handshake that is known now.
    assert!(Command::new("kill").args(["-9", &started("silent")[0]]).status().unwrap().success());
    super::no_tool(&server.client, "silent__say").await;
    tool(&server.client, "silent__say").await;
    assert_eq!(started("silent").len(), 2);
}
