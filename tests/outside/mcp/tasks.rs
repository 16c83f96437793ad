//! Tasks: calls that a server executes after its answer, and whose outcome holdpoint polls.

use super::python::python;
use super::{SteeredServer, entry, hold, packages, tool};
use holdpoint::config::Config;
use holdpoint_testkit::runs::{events_of, run_becomes};
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, UNKNOWN, eventually, postgres};
use serde_json::{Value, json};
use std::time::Duration;

const TASK: &str = r#"{"do":"task"}"#;

/// A server of holdpoint with the steered server `s`, whose entry has these lines.
pub(super) async fn started(lines: &Value) -> (SteeredServer, Embedded) {
    let steered = SteeredServer::with("act");
    let entry = steered.entry("s", lines);
    let change = |config: &mut Config| {
        config.mcp = vec![entry];
        config.approval.wait = Duration::ZERO;
        config.approval.sweep = Duration::from_millis(100);
    };
    let server = Box::pin(Embedded::with(change)).await;
    tool(&server.client, "s__act").await;
    (steered, server)
}

/// Has the model make a call that becomes a task, and returns the call once it has an owner.
async fn owned(server: &Embedded) -> String {
    owned_as(server, &serde_json::from_str(TASK).unwrap()).await
}

/// The same with a call of these inputs.
pub(super) async fn owned_as(server: &Embedded, input: &Value) -> String {
    let id = hold(server, "s__act", input).await;
    server.scene.answers("Done.");
    server.client.approve(&id).await.has_status(202);
    has_owner(&server.client, &id).await;
    id
}

pub(super) async fn has_owner(client: &Client, id: &str) {
    let owned = async || client.call(id).await["result_deadline"].is_string().then_some(());
    eventually("the call has an owner", owned).await;
}

/// A call in a process of holdpoint that becomes a task.
async fn owned_in(client: &Client) -> String {
    owned_in_as(client, &serde_json::from_str(TASK).unwrap()).await
}

/// The same with a call of these inputs.
pub(super) async fn owned_in_as(client: &Client, inputs: &Value) -> String {
    let id = approved_in(client, inputs).await;
    has_owner(client, &id).await;
    id
}

/// A call in a process of holdpoint that is approved, and does not end before the answer to its approval.
pub(super) async fn approved_in(client: &Client, inputs: &Value) -> String {
    tool(client, "s__delete_file").await;
    let turn = client.send_message(&client.thread().await, "delete a").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    // The approver has the tool do this.
    let decision = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    client.validate(&decision).await.has_status(202);
    id.clone()
}

/// Has the model make a call, and approves the call. The model then answers.
async fn approved(server: &Embedded, tool: &str, input: &Value) -> String {
    let id = hold(server, tool, input).await;
    server.scene.answers("Done.");
    server.client.approve(&id).await;
    id
}

/// Waits for the end of a call and of its run, which the server resumes. The next answer of the model is not for this run.
pub(super) async fn ended(client: &Client, id: &str, state: &str) -> Value {
    let call = client.becomes(id, state).await;
    run_becomes(client, &client.run_of(id).await, "completed").await;
    call
}

/// Waits for an open request, and returns it.
pub(super) async fn open(client: &Client) -> Value {
    let found = async || {
        let listed = client.get("/tool_requests?state=open").await;
        listed.body.list("results").first().cloned()
    };
    eventually("the task asks", found).await
}

pub(super) async fn answer(client: &Client, request: &Value, body: &Value) -> u16 {
    let id = request.text("request_id");
    client.post(&format!("/tool_requests/{id}/answer"), body).await.status
}

#[tokio::test]
async fn the_task_is_stored_before_its_first_poll_and_its_result_is_the_outcome() {
    let (steered, server) = started(&json!({ "result_deadline": "1h" })).await;
    let id = owned(&server).await;
    let run = server.client.run_of(&id).await;
    let row = server.rows.all("SELECT * FROM tool_calls").await.remove(0);
    assert_eq!((&row["mcp_server"], &row["task_id"]), (&json!("s"), &steered.task()["taskId"]));
    assert_eq!((&row["state"], &row["lease_until"]), (&json!("executing"), &Value::Null));
    let time = row["result_deadline"].as_i64().unwrap() - row["started_at"].as_i64().unwrap();
    assert!((3_600_000_000..3_660_000_000).contains(&time), "{row}");
    run_becomes(&server.client, &run, "waiting").await;
    steered.polled(2).await;
    assert_eq!(server.client.call(&id).await["state"], "executing");

    steered.task_succeeds();
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "at last");
    run_becomes(&server.client, &run, "completed").await;
    let events = [
        "run.started",
        "tool.called",
        "tool.requires_approval",
        "run.waiting",
        "tool.approved",
        "tool.started",
        "tool.accepted",
        "tool.succeeded",
        "run.resumed",
        "run.completed",
    ];
    assert_eq!(events_of(&server.rows, &run).await, events);
    assert_eq!(steered.got("act"), 1);
    let task = steered.task().text("taskId").to_owned();
    for table in ["events", "message_steps", "sent_answers"] {
        let rows = Value::from(server.rows.all(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains(&task), "the id of a task can be the right to read it: {table}");
    }
}

#[tokio::test]
async fn a_task_that_fails_or_is_cancelled_is_a_failure_with_the_words_of_the_server() {
    let (steered, server) = started(&json!({})).await;
    let refused = json!({ "content": [{ "type": "text", "text": "it is closed today" }], "isError": true });
    for (fields, words) in [
        (json!({ "status": "completed", "result": refused }), "it is closed today"),
        (
            json!({ "status": "failed", "error": { "code": -32603, "message": "out of paper" } }),
            "out of paper",
        ),
        (json!({ "status": "failed", "error": {} }), "its server reported that it failed, and not why"),
        (json!({ "status": "cancelled" }), "its server cancelled it"),
    ] {
        let id = owned(&server).await;
        steered.task_is(&fields);
        let ended = server.client.becomes(&id, "failed").await;
        assert_eq!(ended["result"], format!("The tool failed: {words}"), "{fields}");
        run_becomes(&server.client, &server.client.run_of(&id).await, "completed").await;
    }
    assert_eq!(steered.got("act"), 4);
}

#[tokio::test]
async fn a_task_that_its_server_does_not_know_has_an_unknown_outcome() {
    let (steered, server) = started(&json!({})).await;
    let id = owned(&server).await;
    let run = server.client.run_of(&id).await;
    steered.task_is(&json!({ "taskId": "another" }));
    let ended = server.client.becomes(&id, "interrupted").await;
    assert!(ended.text("result").ends_with(UNKNOWN), "{ended}");
    run_becomes(&server.client, &run, "completed").await;
    let events = events_of(&server.rows, &run).await;
    assert_eq!(events.iter().filter(|event| *event == "tool.interrupted").count(), 1, "{events:?}");
    assert_eq!(steered.got("act"), 1);
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_the_state_of_the_task_is_the_outcome() {
    let (steered, server) = started(&json!({})).await;
    for (stubborn, state) in [(false, "failed"), (true, "succeeded")] {
        let id = owned(&server).await;
        steered.task_is(&json!({ "stubborn": stubborn }));
        let before = steered.got("cancel");
        let cancel = server.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
        cancel.has(202, "state", "executing");
        let received = async || (steered.got("cancel") > before).then_some(());
        eventually("the server is asked to end the task", received).await;
        if stubborn {
            steered.task_succeeds();
        }
        ended(&server.client, &id, state).await;
        assert_eq!(steered.got("cancel"), before + 1);
    }
}

#[tokio::test]
async fn after_the_result_deadline_the_outcome_is_unknown_and_the_polls_end() {
    let (steered, server) = started(&json!({ "result_deadline": "1s" })).await;
    let id = owned(&server).await;
    let ended = server.client.becomes(&id, "interrupted").await;
    assert!(ended.text("result").ends_with(UNKNOWN), "{ended}");
    let row = server.rows.all("SELECT polled_by, polled_until FROM tool_calls").await;
    assert_eq!(row, [json!({ "polled_by": Value::Null, "polled_until": Value::Null })]);
    steered.task_succeeds();
    run_becomes(&server.client, &server.client.run_of(&id).await, "completed").await;
}

#[tokio::test]
async fn a_question_of_a_task_is_a_request_in_the_inbox_and_its_answer_goes_to_the_server() {
    let (steered, server) = started(&json!({})).await;
    let id = owned(&server).await;
    steered.task_asks("Which PIN?");
    let request = open(&server.client).await;
    for (field, expected) in [
        ("tool_call_id", json!(id)),
        ("kind", json!("elicitation")),
        ("message", json!("Which PIN?")),
        ("can_accept", json!(true)),
    ] {
        assert_eq!(request[field], expected, "{field} of {request}");
    }
    let before = steered.got("poll");
    steered.polled(before + 2).await;
    assert_eq!(
        server.rows.count("tool_requests").await,
        1,
        "a question is asked once, however often it is read"
    );
    let accept = json!({ "action": "accept", "content": { "pin": "canary-9" } });
    assert_eq!(answer(&server.client, &request, &accept).await, 200);
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "accept");
    let row = "SELECT server_key, message, content FROM tool_requests";
    let kept = json!({ "server_key": "pin", "message": "Which PIN?", "content": Value::Null });
    assert_eq!(server.rows.all(row).await, [kept], "the content is kept no longer than its call");
    run_becomes(&server.client, &server.client.run_of(&id).await, "completed").await;
    let thread = server.client.call(&id).await.text("thread_id").to_owned();
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    server.operate(&["purge", "--older-than", "0s"]).stdout_of_success();
    let erased = json!({ "server_key": Value::Null, "message": "", "content": Value::Null });
    assert_eq!(server.rows.all(row).await, [erased]);
    let answers = std::fs::read_to_string(steered.state.path().join("answers.log")).unwrap();
    assert_eq!(answers, "{\"pin\":{\"action\":\"accept\",\"content\":{\"pin\":\"canary-9\"}}}\n");
}

#[tokio::test]
async fn a_question_that_a_task_does_not_ask_any_more_is_withdrawn() {
    let (steered, server) = started(&json!({})).await;
    let id = owned(&server).await;
    steered.task_asks("Which PIN?");
    let request = open(&server.client).await;
    steered.task_is(&json!({ "status": "working" }));
    let state = async || {
        let listed = server.client.get("/tool_requests?state=withdrawn").await;
        listed.body.list("results").first().cloned()
    };
    let withdrawn = eventually("the request is withdrawn", state).await;
    assert_eq!(withdrawn["request_id"], request["request_id"]);
    assert_eq!(server.client.call(&id).await["state"], "executing");
    assert_eq!(answer(&server.client, &request, &json!({ "action": "decline" })).await, 409);
    steered.task_succeeds();
    server.client.becomes(&id, "succeeded").await;
}

#[tokio::test]
async fn a_task_that_waits_for_what_holdpoint_does_not_have_is_asked_to_end() {
    let (steered, server) = started(&json!({})).await;
    let id = owned(&server).await;
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": "hi" } }]);
    let params = json!({ "messages": messages, "maxTokens": 9 });
    let requests = json!({ "say": { "method": "sampling/createMessage", "params": params } });
    steered.task_is(&json!({ "status": "input_required", "inputRequests": requests }));
    server.client.becomes(&id, "failed").await;
    assert!(steered.got("cancel") >= 1);
    assert_eq!(server.rows.count("tool_requests").await, 0);
}

#[tokio::test]
async fn tasks_of_a_python_server_have_their_outcomes_and_end_with_its_memory() {
    let state = tempfile::tempdir().unwrap();
    let (command, program) = (python(), packages().join("tasks.py"));
    let lines =
        json!({ "name": "py", "command": command, "args": [program], "env": { "STATE": state.path() } });
    let change = |config: &mut Config| {
        config.mcp = vec![entry(&lines)];
        config.approval.sweep = Duration::from_millis(100);
    };
    let server = Box::pin(Embedded::with(change)).await;
    let client = &server.client;
    tool(client, "py__pay").await;
    let paid = approved(&server, "py__pay", &json!({ "amount": 12 })).await;
    assert_eq!(ended(client, &paid, "succeeded").await["output"], json!({ "paid": 12 }));
    let failed = approved(&server, "py__fail", &json!({})).await;
    let failed = ended(client, &failed, "failed").await;
    assert!(failed.text("result").contains("it is closed today"), "{failed}");

    let asked = approved(&server, "py__confirm", &json!({})).await;
    let request = open(client).await;
    assert_eq!(request["message"], "Which word?");
    let accept = json!({ "action": "accept", "content": { "word": "heron" } });
    assert_eq!(answer(client, &request, &accept).await, 200);
    let asked = ended(client, &asked, "succeeded").await;
    assert!(asked["output"].to_string().contains("heron"), "{asked}");

    let lost = approved(&server, "py__confirm", &json!({})).await;
    let request = open(client).await;
    let log = std::fs::read_to_string(state.path().join("calls.log")).unwrap();
    let process = log.lines().last().unwrap().trim_start_matches("confirm ");
    assert!(std::process::Command::new("kill").args(["-9", process]).status().unwrap().success());
    client.becomes(&lost, "interrupted").await;
    assert_eq!(answer(client, &request, &accept).await, 409);
    let log = std::fs::read_to_string(state.path().join("calls.log")).unwrap();
    assert_eq!(log.lines().count(), 4, "{log}");
}

#[tokio::test]
async fn a_server_that_starts_slowly_is_not_taken_for_one_of_an_older_protocol() {
    let steered = SteeredServer::with("act");
    let mut entry = steered.entry("s", &json!({ "inherit_env": ["PATH"] }));
    // Longer than the library waits for the first answer of a server.
    let slowly = r#"echo >> "$STATE/starts"; sleep 11; exec node "$0""#.to_owned();
    let program = entry.args.remove(0);
    (entry.command, entry.args) = (Some("sh".into()), vec!["-c".to_owned(), slowly, program]);
    let server = Box::pin(Embedded::with(|config| config.mcp = vec![entry])).await;
    tool(&server.client, "s__act").await;
    let starts = std::fs::read_to_string(steered.state.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "it is started once");
    let id = owned(&server).await;
    steered.task_succeeds();
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "at last");
}

#[tokio::test]
async fn a_server_that_is_killed_goes_on_with_its_task_after_its_next_start() {
    let (steered, server) = started(&json!({})).await;
    let id = owned(&server).await;
    let process = steered.polled(1).await;
    let killed = std::process::Command::new("kill").args(["-9", &process]).status().unwrap();
    assert!(killed.success());
    let next = async || (steered.polled(1).await != process).then_some(());
    eventually("another process of the server is polled", next).await;
    steered.task_succeeds();
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "at last");
    assert_eq!(steered.got("act"), 1);
}

#[tokio::test]
async fn after_a_kill_the_next_process_goes_on_with_the_task_and_its_question() {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment().await;
    let mut server = deployment.start();
    let id = owned_in(&server.client).await;
    steered.task_asks("Which PIN?");
    let request = open(&server.client).await;
    server.kill();
    let server = deployment.start();
    tool(&server.client, "s__delete_file").await;
    let before = steered.got("poll");
    steered.polled(before + 1).await;
    assert_eq!(open(&server.client).await["request_id"], request["request_id"]);
    let accept = json!({ "action": "accept", "content": { "pin": "12345" } });
    assert_eq!(answer(&server.client, &request, &accept).await, 200);
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "accept");
    assert_eq!(steered.got("delete_file"), 1, "the call is not made again");
}

#[tokio::test]
async fn on_postgres_a_kill_between_a_task_and_its_commit_leaves_the_outcome_unknown() {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment_on(postgres().await);
    let mut server = deployment.start();
    let rows = Rows::open(deployment.database()).await;
    // The update that stores the task waits for a lock of this session.
    let gate = "CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
         CREATE TRIGGER wait_for_the_test BEFORE UPDATE ON tool_calls FOR EACH ROW
             WHEN (NEW.task_id IS NOT NULL) EXECUTE FUNCTION wait_for_the_test();
         SELECT pg_advisory_lock(1)";
    rows.change(gate).await.unwrap();
    let id = approved_in(&server.client, &serde_json::from_str(TASK).unwrap()).await;
    rows.wait_for_lock_waiter().await;
    server.kill();
    rows.change("SELECT pg_advisory_unlock(1)").await.unwrap();
    let server = deployment.start();
    let call = server.client.becomes(&id, "interrupted").await;
    assert!(call.text("result").ends_with(UNKNOWN), "{call}");
    tool(&server.client, "s__delete_file").await;
    assert_eq!((steered.got("delete_file"), steered.got("poll")), (1, 0));
}

#[tokio::test]
async fn on_postgres_another_process_goes_on_with_the_task_of_a_killed_one() {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment_on(postgres().await);
    let (mut first, second) = (deployment.start(), deployment.start());
    let id = owned_in(&first.client).await;
    tool(&second.client, "s__delete_file").await;
    let process = steered.polled(3).await;
    let polls: Vec<_> = steered.called().into_iter().filter(|line| line.starts_with("poll ")).collect();
    assert!(polls.iter().all(|line| *line == format!("poll {process}")), "one process polls: {polls:?}");
    first.kill();
    let next = async || (steered.polled(1).await != process).then_some(());
    eventually("the other process polls", next).await;
    steered.task_succeeds();
    assert_eq!(second.client.becomes(&id, "succeeded").await["output"], "at last");
    assert_eq!(steered.got("delete_file"), 1);
}
