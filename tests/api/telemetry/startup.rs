//! The start of the binary: what it prints and logs, and how it stops.

use holdpoint_testkit::{Process, eventually, postgres_if_chosen};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// Starts the binary in this folder and captures its log.
async fn start(dir: &Path, variables: &[(&str, &str)]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    Process::spawn_captured(
        command.current_dir(dir).env("HOLDPOINT_LOG__FORMAT", "json").envs(variables.iter().copied()),
    )
}

#[tokio::test]
async fn a_server_prints_a_summary_of_its_configuration_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[("HOLDPOINT_APPROVAL__MODE", "auto-deny")]).await;
    let expected = format!(
        "  version         {}
  database        sqlite://holdpoint.db
  model           scripted (model.provider = \"scripted\")
  callers         every process of this machine, as one user (auth.mode = \"none\")
  tools that ask  delete_file, write_file: denied (approval.mode = \"auto-deny\")
  other tools     list_files, read_file
  console         {}/
  documents       {}/docs",
        env!("CARGO_PKG_VERSION"),
        server.client.base,
        server.client.base
    );
    eventually("the summary is printed", async || server.printed().contains(&expected).then_some(())).await;
    server.client.get("/docs").await.has_status(200);
}

#[tokio::test]
async fn each_transition_of_a_call_is_logged_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("old.txt"), "old news").unwrap();
    let files = [("HOLDPOINT_TOOLS__FILES_DIR", dir.path().to_str().unwrap())];
    let server = start(dir.path(), &files).await;
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "delete old.txt").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(server.client.approve(id).await.body["state"], "succeeded");
    let printed = server.finish();
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_call: Vec<Value> = lines
        .filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("a call ")))
        .map(|line| {
            assert!(line["run_id"].is_string() && line["thread_id"] == thread.as_str(), "{line}");
            json!([line["message"], line["tool_call_id"], line["tool"], line["state"], line["actor"]])
        })
        .collect();
    let line = |message, state, actor| json!([message, id, "delete_file", state, actor]);
    let expected = [
        line("a call is held", "pending", "system:policy"),
        line("a call is decided", "approved", "user:local"),
        line("a call has started", "executing", "user:local"),
        line("a call has ended", "succeeded", "user:local"),
    ];
    assert_eq!(of_call, expected);
    assert!(!printed.contains("old.txt"), "arguments are never logged: {printed}");
}

#[tokio::test]
async fn a_second_interrupt_ends_a_process_that_waits_for_a_turn() {
    let dir = tempfile::tempdir().unwrap();
    // A model server that accepts the request and never responds.
    let model = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", model.local_addr().unwrap());
    let mut server = start(
        dir.path(),
        &[
            ("HOLDPOINT_MODEL__PROVIDER", "openai"),
            ("HOLDPOINT_MODEL__NAME", "silent"),
            ("HOLDPOINT_MODEL__BASE_URL", &base_url),
            ("HOLDPOINT_MODEL__FIRST_BYTE_TIMEOUT", "10m"),
            ("HOLDPOINT_SERVER__GRACE", "10m"),
        ],
    )
    .await;
    let thread = server.client.thread().await;
    let turn = server.client.begin(&thread, &json!({ "content": "hello" })).await;
    server.interrupt();
    let stopping = async || server.printed().contains("stopping; a second signal").then_some(());
    eventually("the first interrupt is logged", stopping).await;
    assert_eq!(server.ended(), None, "the server waits for the turn");
    server.interrupt();
    assert!(!eventually("the process ends", async || server.ended()).await);
    drop(turn);
}

#[tokio::test]
async fn the_summary_says_that_other_settings_may_free_or_deny_tools_that_ask() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[("HOLDPOINT_APPROVAL__ALWAYS_ALLOW", "delete_file")]).await;
    let line = "held for an approval, unless approval.always_allow, always_deny or rules apply";
    eventually("the summary is printed", async || server.printed().contains(line).then_some(())).await;
}
