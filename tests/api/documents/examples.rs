//! The examples, started as their documentation describes.

use holdpoint_testkit::{JsonFields, Process, Pty, eventually, postgres_if_chosen};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Starts the example in its own directory.
async fn start(example: &str) -> (TempDir, Process) {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::spawn(&mut command(example, &dir).await);
    (dir, process)
}

/// The command that starts the example. `cargo test` builds the example beside the server's binary.
async fn command(example: &str, dir: &TempDir) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_holdpoint")).with_file_name("examples").join(example);
    assert!(built.exists(), "{} is not there; run: cargo build --examples", built.display());
    let mut command = Command::new(built);
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    command.current_dir(dir.path());
    command
}

async fn ends(mut process: Process) {
    process.interrupt();
    let well = eventually("the example ends", async || process.ended()).await;
    assert!(well);
}

#[tokio::test]
async fn an_example_that_cannot_start_prints_the_text_of_its_error() {
    for (variable, wrong, text) in [
        ("HOLDPOINT_DATABASE__SCHEMA", "my-app", "Error: database.schema: expected "),
        (
            "HOLDPOINT_DATABASE__URL",
            "sqlite:///dev/null/holdpoint.db",
            "Error: database.url: /dev/null/holdpoint.db: ",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command("own_tool", &dir).await;
        let ended =
            command.env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").env(variable, wrong).output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && printed.starts_with(text), "{printed}");
    }
}

#[tokio::test]
async fn the_custom_tool_example_holds_its_tool_and_runs_it_once_approved() {
    let (_dir, process) = start("own_tool").await;
    let client = &process.client;
    let tools = client.get("/tools").await.body;
    assert_eq!(tools.list("results").len(), 1, "{tools}");
    assert_eq!(tools["results"][0]["hil"], true, "{tools}");

    let thread = client.thread().await;
    let turn = client.send_message(&thread, "delete old.txt").await;
    let [call] = turn.pending().try_into().unwrap();
    let done = client.approve(&call).await;
    done.has(200, "result", "old.txt");

    client.resume(&thread).await;
    let [again] = client.send_message(&thread, "delete old.txt").await.pending().try_into().unwrap();
    let failed = client.approve(&again).await;
    assert_eq!(failed.body["state"], "failed", "{}", failed.body);
    assert!(failed.body.text("result").contains("there is no such note"), "{}", failed.body);
    ends(process).await;
}

#[tokio::test]
async fn the_sub_agent_example_runs_its_task_and_its_hold_is_in_the_inbox() {
    let (dir, process) = start("sub_agent").await;
    let client = &process.client;
    let old = dir.path().join("holdpoint-files/old.txt");
    std::fs::write(&old, "old news").unwrap();
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "write \"delete old.txt\" to helper").await;
    assert!(turn.pending().is_empty(), "{}", turn.raw);
    let call = turn.one('9').text("toolCallId");
    let held = async || {
        let inbox = client.get(&format!("/sessions/{thread}/approvals?state=pending")).await.body;
        inbox["results"][0]["tool_call_id"].as_str().map(str::to_owned)
    };
    let hold = eventually("the helper asks", held).await;
    assert!(old.exists());
    assert_eq!(client.approve(&hold).await.body["state"], "succeeded");
    assert!(!old.exists());
    let done = client.becomes(call, "succeeded").await;
    let words = done.text("result");
    assert!(words.contains("old.txt"), "{words}");
    let run = done.text("run_id");
    let answered =
        async || (client.get(&format!("/runs/{run}")).await.body["status"] == "completed").then_some(());
    eventually("the answer is written", answered).await;
    ends(process).await;
}

#[tokio::test]
async fn the_custom_handler_example_decides_drafts_and_leaves_other_calls_pending_without_input() {
    let (dir, process) = start("own_handler").await;
    let client = &process.client;
    let files = dir.path().join("holdpoint-files");
    for name in ["draft-1.txt", "old.txt"] {
        std::fs::write(files.join(name), "old news").unwrap();
    }
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "delete draft-1.txt").await;
    assert_eq!(
        (turn.codes().as_str(), turn.one('a')["result"]["deleted"].as_str()),
        ("f0bc98ea8ef0ed", Some("draft-1.txt"))
    );
    assert!(!files.join("draft-1.txt").exists());

    let turn = client.send_message(&thread, "delete old.txt").await;
    let [call] = turn.pending().try_into().unwrap();
    assert!(files.join("old.txt").exists());
    assert_eq!(client.approve(&call).await.body["state"], "succeeded");
    assert!(!files.join("old.txt").exists());
    ends(process).await;
}

#[tokio::test]
async fn the_terminal_example_ignores_input_typed_before_the_question() {
    const QUESTION: &str = "[l]ater? ";
    let (dir, terminal) = (tempfile::tempdir().unwrap(), Pty::new());
    let process = Process::spawn_at(&mut command("own_handler", &dir).await, &terminal);
    let client = &process.client;
    let files = dir.path().join("holdpoint-files");
    for name in ["one.txt", "two.txt", "three.txt"] {
        std::fs::write(files.join(name), "old news").unwrap();
    }
    let left = || std::fs::read_dir(&files).unwrap().count();
    // A complete line and the beginning of another.
    terminal.types("y\ny");
    terminal.shows("y\r\ny", 1).await;
    let thread = client.thread().await;
    let sits = async {
        terminal.shows(QUESTION, 1).await;
        terminal.types("\n");
        terminal.shows(QUESTION, 2).await;
        assert_eq!(left(), 3, "{}", terminal.shown());
        terminal.types("n\n");
    };
    let (turn, ()) = tokio::join!(client.send_message(&thread, "delete one.txt"), sits);
    assert_eq!(left(), 3, "{}: {}", terminal.shown(), turn.raw);

    // The line is typed twice in a row.
    let sits = async {
        terminal.shows(QUESTION, 3).await;
        terminal.types("y\ny\n");
        terminal.shows(QUESTION, 4).await;
        terminal.types("n\n");
    };
    let (turn, ()) = tokio::join!(client.send_message(&thread, "delete two.txt and delete three.txt"), sits);
    assert_eq!(left(), 2, "{}: {}", terminal.shown(), turn.raw);
    ends(process).await;
}

#[tokio::test]
async fn the_embedding_example_serves_holdpoint_under_a_prefix_and_shuts_down_cleanly() {
    let (dir, process) = start("embed").await;
    let client = &process.client;
    let own = client.base.strip_suffix("/chat").expect("it is below /chat");
    let hello = client.send(client.http.get(own)).await;
    hello.has_status(200);
    assert_eq!(client.send(client.http.get(format!("{own}/threads"))).await.status, 404, "below /chat alone");

    let files = dir.path().join("holdpoint-files");
    std::fs::write(files.join("old.txt"), "old news").unwrap();
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "delete old.txt").await;
    let [call] = turn.pending().try_into().unwrap();
    assert!(files.join("old.txt").exists());
    let done = client.approve(&call).await;
    done.has(200, "state", "succeeded");
    assert!(!files.join("old.txt").exists());

    let refused = client.send(client.http.put(client.url("/threads"))).await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST, GET, HEAD")));
    ends(process).await;
}
