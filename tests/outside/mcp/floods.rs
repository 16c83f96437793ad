//! Servers that flood (`tests/mcp/flood.mjs`): the memory of the process, its streams and its log.

use super::{packages, tool};
use holdpoint_testkit::{Process, eventually, free_port};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The memory by which the process may grow during a flood.
const GROWTH_KIB: u64 = 64 << 10;

/// A server that floods, over HTTP. Dropping it kills the process.
struct FloodingServer(Child);

impl Drop for FloodingServer {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A process of holdpoint that is connected to a server which floods in this way.
struct FloodedProcess {
    dir: TempDir,
    process: Process,
    _listening: Option<FloodingServer>,
}

impl FloodedProcess {
    async fn over_stdio(mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = format!("[{:?}, {mode:?}]", packages().join("flood.mjs"));
        let entry = format!("command = \"node\"\nargs = {args}\nenv = {{ STATE = {:?} }}", dir.path());
        Self::of(dir, &entry, None).await
    }

    async fn over_http(mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut node = Command::new("node");
        node.arg(packages().join("flood.mjs")).args([mode, &port.to_string()]).env("STATE", dir.path());
        let child = node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let entry = format!("url = \"http://127.0.0.1:{port}/mcp\"");
        Self::of(dir, &entry, Some(FloodingServer(child))).await
    }

    async fn of(dir: TempDir, entry: &str, listening: Option<FloodingServer>) -> Self {
        let toml = format!(
            "tools.demo = false\negress.allow = [\"127.0.0.1\"]\n[[mcp]]\nname = \"s\"\ntimeout = \"10s\"\n{entry}\n"
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(dir.path()).env("HOLDPOINT_LOG__LEVEL", "info");
        let process = Process::spawn_captured(&mut command);
        tool(&process.client, "s__act").await;
        Self { dir, process, _listening: listening }
    }

    /// Lets the flood begin, and waits for its end. Returns what the server has done, and the growth of the process in KiB.
    async fn endured(&self) -> (Value, u64) {
        let idle = self.process.peak_kib();
        std::fs::write(self.dir.path().join("go"), "").unwrap();
        let done = async || read(&self.dir.path().join("done"));
        let done = eventually("the flood is over", done).await;
        (done, self.process.peak_kib() - idle)
    }

    fn log(&self) -> String {
        self.process.printed()
    }
}

fn read(file: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// Asserts the memory bound.
async fn check(name: &str, flood: FloodedProcess) -> (FloodedProcess, Value) {
    let (done, growth) = flood.endured().await;
    eprintln!("{name}: {} MiB, {done}", growth >> 10);
    assert!(growth <= GROWTH_KIB, "{name}: {growth} KiB, {done}");
    (flood, done)
}

#[tokio::test]
async fn requests_that_a_server_does_not_read_the_answers_to_take_no_memory() {
    for mode in ["ping", "cancelled"] {
        let (_flood, done) = check(mode, FloodedProcess::over_stdio(mode).await).await;
        assert!(done["sent"].as_u64().unwrap() < 100_000, "{mode}: the server has to wait, {done}");
    }
}

#[tokio::test]
async fn requests_without_an_end_take_no_memory() {
    for mode in ["ping-read", "sampling", "elicitation", "long-elicitation"] {
        check(mode, FloodedProcess::over_stdio(mode).await).await;
    }
}

#[tokio::test]
async fn messages_that_nobody_asked_for_take_no_memory() {
    for mode in ["ids", "notifications", "stderr"] {
        check(mode, FloodedProcess::over_stdio(mode).await).await;
    }
}

#[tokio::test]
async fn requests_on_a_stream_whose_answers_are_not_taken_take_no_memory() {
    for mode in ["ping", "long-elicitation", "ids"] {
        check(mode, FloodedProcess::over_http(mode).await).await;
    }
}

#[tokio::test]
async fn streams_that_end_at_once_are_opened_again_slowly() {
    let (flood, done) = check("retry", FloodedProcess::over_http("retry").await).await;
    // A burst, and one each second.
    assert!(done["streams"].as_u64().unwrap() < 100, "{done}");
    let lines = flood.log().matches("ends its streams too often").count();
    assert!((1..=60).contains(&lines), "{lines} lines");
}

#[tokio::test]
async fn definitions_with_many_patterns_are_left_out_before_they_are_compiled() {
    let (flood, _) = check("patterns", FloodedProcess::over_stdio("patterns").await).await;
    tool(&flood.process.client, "s__act").await;
    assert!(flood.log().contains("its schema has more than 64 patterns"));
    assert!(flood.log().contains("its last tools are left out"));
}

#[tokio::test]
async fn the_log_counts_the_lines_about_a_server_beyond_the_first() {
    let (flood, _) = check("flip", FloodedProcess::over_stdio("flip").await).await;
    let log = flood.log();
    let lines = log.lines().filter(|line| line.contains("MCP server")).count();
    assert!((20..80).contains(&lines), "{lines} lines");
    assert_eq!(log.matches("causes too many lines").count(), 1);
}
