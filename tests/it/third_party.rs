//! The whole server against a model's server that nobody here wrote.

use crate::support::{Aimock, Process, valid_history};
use serde_json::{Value, json};
use tempfile::TempDir;

async fn server(aimock: &Aimock) -> (TempDir, Process) {
    let dir = tempfile::tempdir().unwrap();
    let base_url = aimock.base_url();
    let variables = [
        ("HOLDPOINT_MODEL__PROVIDER", "openai"),
        ("HOLDPOINT_MODEL__NAME", "gpt-4o"),
        ("HOLDPOINT_MODEL__BASE_URL", base_url.as_str()),
        ("HOLDPOINT_MODEL__API_KEY", "sk-nobody"),
        ("HOLDPOINT_LOG__LEVEL", "error"),
    ];
    let process = Process::start(dir.path(), &variables).await;
    (dir, process)
}

/// The conversation of a request in the journal, which has to be one that every provider takes.
fn told(request: &Value) -> &[Value] {
    let messages = request["body"]["messages"].as_array().unwrap();
    valid_history(messages).unwrap();
    messages
}

#[tokio::test]
async fn a_held_call_of_a_foreign_model_runs_after_the_yes_and_the_model_goes_on() {
    let aimock = Aimock::start();
    let (dir, server) = server(&aimock).await;
    let files = dir.path().join("holdpoint-files");
    std::fs::write(files.join("old.txt"), "old").unwrap();
    std::fs::write(files.join("new.txt"), "new").unwrap();
    let client = &server.client;
    let thread = client.thread().await;

    let turn = client.say(&thread, "tidy up").await;
    assert_eq!(turn.codes(), "f0bcbc99a8ed");
    assert_eq!(turn.text(), "Let me look at the files and remove the old one.");
    assert!(turn.all('0').len() > 1, "the words come in pieces: {}", turn.raw);
    let [list, delete] = turn.all('9')[..] else { panic!("{}", turn.raw) };
    assert_eq!((&list["toolName"], &list["args"]), (&json!("list_files"), &json!({})));
    assert_eq!(
        (&delete["toolName"], &delete["args"]),
        (&json!("delete_file"), &json!({ "path": "old.txt" }))
    );
    let listed = turn.one('a');
    assert_eq!(listed["toolCallId"], list["toolCallId"]);
    let names = listed["result"].to_string();
    assert!(names.contains("old.txt") && names.contains("new.txt"), "{names}");
    assert_eq!(turn.pending(), [delete["toolCallId"].as_str().unwrap()]);
    assert_eq!(turn.one('e')["finishReason"], "tool-calls");
    assert_eq!(std::fs::read_to_string(files.join("old.txt")).unwrap(), "old", "nobody said yes");

    let approved = client.approve(&turn.pending()[0]).await;
    assert_eq!((approved.status, &approved.body["state"]), (200, &json!("succeeded")), "{:?}", approved.body);
    assert!(!files.join("old.txt").exists());
    assert!(files.join("new.txt").exists());

    let done = client.go_on(&thread).await;
    assert_eq!(done.codes(), "a8ef0ed");
    assert_eq!(done.text(), "I listed the files and dealt with old.txt. All tidy.");
    assert_eq!(done.one('f'), turn.one('f'), "the same message");
    assert_eq!(done.one('d')["finishReason"], "stop");

    let journal = aimock.journal().await;
    let [first, second] = &journal[..] else { panic!("{journal:#?}") };
    let mut tools: Vec<&str> = first["body"]["tools"].as_array().unwrap().iter().filter_map(name).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["delete_file", "list_files", "read_file", "write_file"]);
    assert_eq!(told(first), [json!({ "role": "user", "content": "tidy up" })]);
    let [user, said, listed, deleted] = told(second) else { panic!("{second:#}") };
    assert_eq!(user["content"], "tidy up");
    assert_eq!(said["content"], "Let me look at the files and remove the old one.");
    let calls = said["tool_calls"].as_array().unwrap();
    assert_eq!(calls.iter().filter_map(name).collect::<Vec<_>>(), ["list_files", "delete_file"]);
    assert!(listed["content"].as_str().unwrap().contains("new.txt"), "{listed}");
    assert_eq!(deleted["content"], approved.body["result"], "what the person read is what the model reads");
}

fn name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

#[tokio::test]
async fn words_of_a_foreign_model_are_streamed_and_the_next_turn_tells_them_back() {
    let aimock = Aimock::start();
    let (_dir, server) = server(&aimock).await;
    let thread = server.client.thread().await;
    for _ in 0..2 {
        let turn = server.client.say(&thread, "hello").await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Hello there."));
        assert_eq!(turn.one('e')["finishReason"], "stop");
    }
    let journal = aimock.journal().await;
    assert_eq!(journal.len(), 2);
    let user = json!({ "role": "user", "content": "hello" });
    let [alone] = told(&journal[0]) else { panic!("{:#}", journal[0]) };
    let [first, said, second] = told(&journal[1]) else { panic!("{:#}", journal[1]) };
    assert_eq!([alone, first, second], [&user; 3]);
    assert_eq!((&said["role"], &said["content"]), (&json!("assistant"), &json!("Hello there.")));
}

#[tokio::test]
async fn a_foreign_server_that_says_no_fails_the_turn_and_not_the_server() {
    let aimock = Aimock::start();
    let (_dir, server) = server(&aimock).await;
    let thread = server.client.thread().await;
    let turn = server.client.say(&thread, "what no fixture knows").await;
    assert_eq!((turn.status, turn.codes().as_str()), (200, "f3"));
    let error = turn.one('3').as_str().unwrap();
    assert!(error.starts_with("upstream_error: "), "{error}");
    assert_eq!(server.client.say(&thread, "hello").await.text(), "Hello there.");
    for request in aimock.journal().await {
        told(&request);
    }
}
