//! npm's `server-filesystem`.

use super::{approved, entry, hold, no_tool, node, program, tool, turn, with};
use holdpoint::config::ToolRules;
use holdpoint_testkit::{Embedded, JsonFields, UNKNOWN, eventually};
use serde_json::json;
use std::process::Command;
use tempfile::TempDir;

/// A server with the files of a new folder. `lines` are added to its entry.
async fn files(lines: serde_json::Value) -> (Embedded, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut all = node("files", &[&program("server-filesystem"), folder.path().to_str().unwrap()]);
    all.as_object_mut().unwrap().extend(lines.as_object().unwrap().clone());
    let server = with(entry(&all)).await;
    tool(&server.client, "files__write_file").await;
    (server, folder)
}

#[tokio::test]
async fn a_write_is_held_and_the_file_changes_once_after_the_approval() {
    let (server, folder) = files(json!({})).await;
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "old").unwrap();
    let input = json!({ "path": path, "content": "new" });
    let turn = turn(&server, "files__write_file", &input).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    let listed = server.client.get("/approvals").await.body["results"][0].clone();
    assert_eq!(listed["mcp"], json!({ "server": "files", "tool": "write_file" }));
    assert_eq!((&listed["tool_name"], &listed["risk_level"]), (&json!("files__write_file"), &json!("high")));
    let done = server.client.approve(id).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    std::fs::write(&path, "newer").unwrap();
    let again = server.client.approve(id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
}

#[tokio::test]
async fn only_the_listed_tools_are_there_and_only_the_named_ones_ask() {
    let (server, folder) = files(json!({
        "tools": ["read_text_file", "write_file"], "require_approval": ["write_file"], "risk": "medium",
    }))
    .await;
    let tools = server.client.get("/tools").await.body;
    let of_server: Vec<_> = tools.list("results").iter().filter(|tool| !tool["mcp"].is_null()).collect();
    let brief: Vec<_> =
        of_server.iter().map(|tool| (&tool["tool_name"], &tool["hil"], &tool["idempotent"])).collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(
        brief,
        [(&json!("files__read_text_file"), &no, &no), (&json!("files__write_file"), &yes, &no)]
    );
    assert!(of_server.iter().all(|tool| tool["risk_level"] == "medium"));
    let path = folder.path().join("a");
    std::fs::write(&path, "the text").unwrap();
    let turn = turn(&server, "files__read_text_file", &json!({ "path": path })).await;
    assert!(turn.raw.contains("the text"), "{}", turn.raw);
}

#[tokio::test]
async fn a_refusal_of_the_tool_is_a_failure_with_its_words() {
    let (server, _folder) = files(json!({})).await;
    let call = approved(&server, "files__write_file", &json!({ "path": "/etc/hosts", "content": "x" })).await;
    assert_eq!(call["state"], "failed");
    assert!(call.text("result").contains("Access denied"), "{call}");
}

#[tokio::test]
async fn the_death_of_the_server_in_mid_call_is_an_unknown_outcome_and_the_server_starts_again() {
    let (server, folder) = files(json!({})).await;
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let id = hold(&server, "files__read_text_file", &json!({ "path": pipe })).await;
    let client = server.client.clone();
    let deciding = {
        let id = id.clone();
        async move { client.approve(&id).await }
    };
    let killing = async {
        let pid = || {
            let found = Command::new("pgrep").args(["-f", folder.path().to_str()?]).output().unwrap();
            let pids = String::from_utf8(found.stdout).unwrap();
            pids.lines().next().map(str::to_owned)
        };
        let executing =
            async || (server.rows.count("tool_calls WHERE state = 'executing'").await == 1).then_some(());
        eventually("the call is under way", executing).await;
        let pid = pid().expect("the server runs");
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    };
    let (done, ()) = tokio::join!(deciding, killing);
    assert_eq!(done.body["state"], "interrupted", "{:?}", done.body);
    assert_eq!(server.client.call(&id).await["result"], UNKNOWN);
    tool(&server.client, "files__write_file").await;
    let path = folder.path().join("after");
    let call = approved(&server, "files__write_file", &json!({ "path": path, "content": "x" })).await;
    assert_eq!(call["state"], "succeeded");
}

#[tokio::test]
async fn without_its_server_a_held_call_cannot_be_approved_and_policies_about_it_stand() {
    let folder = tempfile::tempdir().unwrap();
    let lines =
        node("files", &[&program("server-filesystem"), folder.path().join("missing").to_str().unwrap()]);
    let server = Box::pin(Embedded::with(|config| {
        config.mcp = vec![entry(&lines)];
        config.approval.always_deny = vec!["files__move_file".to_owned()];
        config.tools.rules.insert("files__write_file".to_owned(), ToolRules::default());
    }))
    .await;
    no_tool(&server.client, "files__move_file").await;
    std::fs::create_dir(folder.path().join("missing")).unwrap();
    tool(&server.client, "files__move_file").await;
    let turn = turn(&server, "files__move_file", &json!({ "source": "a", "destination": "b" })).await;
    assert!(turn.pending().is_empty());
    let calls = server.rows.all("SELECT state FROM tool_calls").await;
    assert_eq!(calls, [json!({ "state": "rejected" })]);
}
