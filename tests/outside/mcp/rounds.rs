//! Rounds: a server asks for input with a state, and gets the call again with the answers and its state.

use super::tasks::{answer, ended, open, owned_as, owned_in_as, started};
use super::{Deployment, SteeredServer, definition, hold, tool};
use holdpoint::config::Config;
use holdpoint_testkit::runs::events_of;
use holdpoint_testkit::{Embedded, JsonFields, Process, UNKNOWN, eventually, postgres};
use serde_json::{Value, json};
use std::time::Duration;

/// The beginning of each state of the server.
const STATE: &str = "canary \"é\0\"-";

/// The answer of a person.
fn accept() -> Value {
    json!({ "action": "accept", "content": { "pin": "12345" } })
}

fn does(what: &str) -> Value {
    json!({ "do": what })
}

/// The round with this number, as the server gets its answers.
fn answered(number: u32, response: &Value) -> Value {
    json!({ "state": format!("{STATE}{number}"), "responses": { "pin": response } })
}

/// A server of holdpoint with the steered server, and a call that waits in a round.
async fn waiting(input: &Value, lines: &Value) -> (SteeredServer, Embedded, String) {
    let (steered, server) = started(lines).await;
    let id = owned_as(&server, input).await;
    (steered, server, id)
}

/// A process of holdpoint with the steered server, and a call that waits in a round with an open request.
async fn waiting_in(what: &str) -> (SteeredServer, Deployment, Process, String, Value) {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment().await;
    let server = deployment.start();
    let id = owned_in_as(&server.client, &does(what)).await;
    let request = open(&server.client).await;
    (steered, deployment, server, id, request)
}

/// The states of all requests, the oldest first.
async fn requests(server: &Embedded) -> Vec<Value> {
    let rows = server.rows.all("SELECT state FROM tool_requests ORDER BY request_id").await;
    rows.into_iter().map(|row| row["state"].clone()).collect()
}

#[tokio::test]
async fn the_state_is_stored_before_the_wait_and_the_server_gets_it_back_with_the_answer() {
    let (steered, server, id) = waiting(&does("round"), &json!({ "result_deadline": "1h" })).await;
    let run = server.client.run_of(&id).await;
    let row = server.rows.all("SELECT * FROM tool_calls").await.remove(0);
    let round: Value = serde_json::from_str(row.text("input_round")).unwrap();
    assert_eq!((&round["state"], &round["number"]), (&json!(format!("{STATE}1")), &json!(1)));
    assert_eq!(round["forms"]["pin"]["message"], "Which PIN?");
    assert_eq!((&row["state"], &row["mcp_server"]), (&json!("executing"), &json!("s")));
    assert_eq!((&row["lease_until"], &row["task_id"]), (&Value::Null, &Value::Null));
    let time = row["result_deadline"].as_i64().unwrap() - row["started_at"].as_i64().unwrap();
    assert!((3_600_000_000..3_660_000_000).contains(&time), "{row}");

    let request = open(&server.client).await;
    assert_eq!((&request["tool_call_id"], &request["message"]), (&json!(id), &json!("Which PIN?")));
    assert_eq!(steered.called(), ["act"]);
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    let call = ended(&server.client, &id, "succeeded").await;
    assert_eq!(call["output"], "accept");
    assert_eq!(steered.rounds(), [answered(1, &accept())], "the state and the answer are exact");
    assert_eq!(steered.called(), ["act", "act"]);
    let left = server.rows.all("SELECT input_round, polled_by FROM tool_calls").await;
    assert_eq!(left, [json!({ "input_round": Value::Null, "polled_by": Value::Null })]);
    let events = events_of(&server.rows, &run).await;
    let tail =
        ["tool.started", "tool.accepted", "tool.input_requested", "tool.input_ended", "tool.succeeded"];
    assert_eq!(events[5..10], tail, "{events:?}");
    for table in ["events", "message_steps", "sent_answers", "tool_calls", "tool_requests"] {
        let rows = Value::from(server.rows.all(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains("canary"), "{table}");
    }
    assert!(!format!("{:?}", server.scene.requests()).contains("canary"));
}

#[tokio::test]
async fn a_call_names_its_user_and_its_conversation_each_time_it_is_sent_if_the_operator_wants_that() {
    for identity in [true, false] {
        let (steered, server, id) = waiting(&does("round"), &json!({ "identity": identity })).await;
        let request = open(&server.client).await;
        assert_eq!(answer(&server.client, &request, &accept()).await, 200);
        let call = ended(&server.client, &id, "succeeded").await;
        let who = json!({
            "tenant_id": "default", "user_id": "local", "thread_id": call["thread_id"],
            "session_id": call["session_id"], "run_id": call["run_id"], "idempotency_key": id,
        });
        let who = if identity { who } else { Value::Null };
        assert_eq!(steered.identities(), [who.clone(), who], "{identity}");
    }
}

#[tokio::test]
async fn the_state_of_a_server_is_in_no_response_and_in_no_log() {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment().await;
    let server = deployment.start_logged();
    let id = owned_in_as(&server.client, &does("twoRounds")).await;
    let request = open(&server.client).await;
    let thread = server.client.call(&id).await.text("thread_id").to_owned();
    for path in [
        format!("/tool_calls/{id}"),
        format!("/tool_calls/{id}/events"),
        format!("/threads/{thread}/messages"),
        format!("/runs/{}/events", server.client.run_of(&id).await),
        "/tool_requests".to_owned(),
    ] {
        let body = server.client.get(&path).await.body.to_string();
        assert!(!body.contains("canary") && !body.contains("input_round"), "{path}: {body}");
    }
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    let again =
        async || Some(open(&server.client).await).filter(|it| it["request_id"] != request["request_id"]);
    let second = eventually("the second round asks", again).await;
    assert_eq!(answer(&server.client, &second, &accept()).await, 200);
    let call = server.client.becomes(&id, "succeeded").await;
    assert!(!call.to_string().contains("canary"), "{call}");
    let log = server.finish();
    assert!(log.contains(&id) && !log.contains("canary"), "{log}");
}

#[tokio::test]
async fn each_round_has_a_request_of_its_own_although_the_server_repeats_its_key() {
    let (steered, server, id) = waiting(&does("twoRounds"), &json!({})).await;
    let first = open(&server.client).await;
    assert_eq!(answer(&server.client, &first, &accept()).await, 200);
    let next = async || Some(open(&server.client).await).filter(|it| it["request_id"] != first["request_id"]);
    let second = eventually("the second round asks", next).await;
    let row = server.rows.all("SELECT input_round FROM tool_calls").await.remove(0);
    assert!(row.text("input_round").contains("-2"), "{row}");
    assert_eq!(server.client.call(&id).await["state"], "executing");
    assert_eq!(answer(&server.client, &second, &json!({ "action": "decline" })).await, 200);
    assert_eq!(ended(&server.client, &id, "succeeded").await["output"], "decline");
    let declined = answered(2, &json!({ "action": "decline" }));
    assert_eq!(steered.rounds(), [answered(1, &accept()), declined]);
    assert_eq!(steered.called().len(), 3);
    let keys = server.rows.all("SELECT server_key FROM tool_requests ORDER BY request_id").await;
    assert_eq!(keys, [json!({ "server_key": "1/pin" }), json!({ "server_key": "2/pin" })]);
}

#[tokio::test]
async fn a_call_that_is_sent_again_may_become_a_task() {
    let (steered, server, id) = waiting(&does("roundThenTask"), &json!({})).await;
    let request = open(&server.client).await;
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    let stored = async || {
        let row = server.rows.all("SELECT task_id FROM tool_calls").await.remove(0);
        row["task_id"].as_str().map(str::to_owned)
    };
    let task = eventually("the task is stored", stored).await;
    assert_eq!(steered.task()["taskId"], task);
    steered.task_succeeds();
    assert_eq!(ended(&server.client, &id, "succeeded").await["output"], "at last");
}

#[tokio::test]
async fn a_server_that_wants_the_call_again_without_input_gets_it_in_the_same_execution() {
    let (steered, server) = started(&json!({})).await;
    let id = hold(&server, "s__act", &does("againTwice")).await;
    server.client.approve(&id).await;
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "at last");
    assert_eq!(steered.called(), ["act", "act", "act"]);
    let row = server.rows.all("SELECT exec_attempt, result_deadline FROM tool_calls").await;
    assert_eq!(row, [json!({ "exec_attempt": 1, "result_deadline": Value::Null })]);
}

#[tokio::test]
async fn a_state_beyond_the_limit_is_refused_and_nothing_of_it_is_stored() {
    let (steered, server) = started(&json!({})).await;
    let id = hold(&server, "s__act", &json!({ "do": "longState", "note": "65537" })).await;
    server.client.approve(&id).await;
    let call = server.client.becomes(&id, "interrupted").await;
    assert!(call.text("result").ends_with(UNKNOWN), "{call}");
    assert_eq!(server.rows.count("tool_requests").await, 0);
    assert_eq!(steered.called(), ["act"]);
    let fits = owned_as(&server, &json!({ "do": "longState", "note": "65536" })).await;
    assert_eq!(open(&server.client).await["tool_call_id"], fits);
}

#[tokio::test]
async fn a_cancel_withdraws_the_request_of_a_round_and_the_call_is_not_sent_again() {
    let (steered, server, id) = waiting(&does("round"), &json!({})).await;
    let request = open(&server.client).await;
    let cancel = server.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    cancel.has_status(202);
    ended(&server.client, &id, "interrupted").await;
    assert_eq!(requests(&server).await, ["withdrawn"]);
    assert_eq!(answer(&server.client, &request, &accept()).await, 409);
    assert_eq!((steered.called().len(), steered.rounds().len()), (1, 0));
}

#[tokio::test]
async fn a_cancel_ends_a_call_that_was_sent_again() {
    let (steered, server, id) = waiting(&does("roundThenHang"), &json!({})).await;
    let request = open(&server.client).await;
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    steered.wait_called(2).await;
    server.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    ended(&server.client, &id, "interrupted").await;
    assert_eq!(steered.called().len(), 2);
}

#[tokio::test]
async fn a_request_of_a_round_that_expires_is_a_cancel_for_the_server() {
    let steered = SteeredServer::with("act");
    let entry = steered.entry("s", &json!({}));
    let change = |config: &mut Config| {
        config.mcp = vec![entry];
        config.approval.wait = Duration::ZERO;
        config.approval.answer_timeout = Duration::from_secs(1);
    };
    let server = Box::pin(Embedded::with(change)).await;
    tool(&server.client, "s__act").await;
    let id = hold(&server, "s__act", &does("round")).await;
    server.client.approve(&id).await;
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "cancel");
    assert_eq!(requests(&server).await, ["expired"]);
    assert_eq!(steered.rounds(), [answered(1, &json!({ "action": "cancel" }))]);
}

#[tokio::test]
async fn after_the_result_deadline_a_round_is_over_and_its_request_is_withdrawn() {
    let (steered, server, id) = waiting(&does("round"), &json!({ "result_deadline": "1s" })).await;
    let call = ended(&server.client, &id, "interrupted").await;
    assert!(call.text("result").ends_with(UNKNOWN), "{call}");
    assert_eq!(requests(&server).await, ["withdrawn"]);
    assert_eq!(steered.called().len(), 1);
}

#[tokio::test]
async fn a_call_that_is_sent_again_has_the_time_limit_of_its_server() {
    let (steered, server, id) = waiting(&does("roundThenHang"), &json!({ "timeout": "3s" })).await;
    let request = open(&server.client).await;
    // Longer than the limit: the passing of time is what is tested.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    ended(&server.client, &id, "interrupted").await;
    assert_eq!(steered.called().len(), 2);
}

#[tokio::test]
async fn after_a_kill_during_the_wait_the_next_process_sends_the_call_again_once() {
    let (steered, deployment, mut server, id, request) = waiting_in("round").await;
    server.kill();
    let server = deployment.start();
    tool(&server.client, "s__delete_file").await;
    assert_eq!(open(&server.client).await["request_id"], request["request_id"]);
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "accept");
    assert_eq!(steered.rounds(), [answered(1, &accept())]);
    assert_eq!(steered.called().len(), 2);
}

#[tokio::test]
async fn an_answer_that_came_before_the_kill_is_sent_by_the_next_process() {
    let (steered, deployment, mut server, id, request) = waiting_in("round").await;
    // As a process writes it that dies directly after its commit.
    server.kill();
    let rows = holdpoint_testkit::Rows::open(deployment.database()).await;
    let answered_row = format!(
        "UPDATE tool_requests SET state = 'declined', answered_by = 'user:local', answered_at = 1 WHERE request_id = '{}'",
        request.text("request_id")
    );
    assert_eq!(rows.change(&answered_row).await, Ok(1));
    rows.close().await;
    let server = deployment.start();
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "decline");
    assert_eq!(steered.rounds(), [answered(1, &json!({ "action": "decline" }))]);
}

#[tokio::test]
async fn a_kill_after_the_call_was_sent_again_leaves_the_outcome_unknown_and_it_is_never_sent_a_third_time() {
    let (steered, deployment, mut server, id, request) = waiting_in("roundThenHang").await;
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    steered.wait_called(2).await;
    server.kill();
    let server = deployment.start();
    let call = server.client.becomes(&id, "interrupted").await;
    assert!(call.text("result").ends_with(UNKNOWN), "{call}");
    tool(&server.client, "s__delete_file").await;
    assert_eq!(server.client.call(&id).await["state"], "interrupted");
    assert_eq!((steered.called().len(), steered.rounds().len()), (2, 1));
}

#[tokio::test]
async fn a_call_is_sent_again_only_while_its_tool_is_there() {
    let (steered, deployment, mut server, id, request) = waiting_in("round").await;
    server.kill();
    steered.lists(&json!([definition("another", "Does it.")]));
    let server = deployment.start();
    tool(&server.client, "s__another").await;
    assert_eq!(answer(&server.client, &request, &accept()).await, 200);
    let swept = async || {
        (server.client.get("/tool_requests?state=open").await.body["results"] == json!([])).then_some(())
    };
    eventually("no request is open", swept).await;
    assert_eq!((steered.called().len(), &server.client.call(&id).await["state"]), (1, &json!("executing")));
    steered.lists(&json!([definition("delete_file", "Does it.")]));
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "accept");
    assert_eq!((steered.called().len(), steered.rounds().len()), (2, 1));
}

#[tokio::test]
async fn on_postgres_another_process_goes_on_with_the_round_of_a_killed_one() {
    let (steered, deployment) = on_postgres().await;
    let (mut first, second) = (deployment.start(), deployment.start());
    let id = owned_in_as(&first.client, &does("round")).await;
    tool(&second.client, "s__delete_file").await;
    let request = open(&second.client).await;
    first.kill();
    assert_eq!(answer(&second.client, &request, &accept()).await, 200);
    assert_eq!(second.client.becomes(&id, "succeeded").await["output"], "accept");
    assert_eq!((steered.called().len(), steered.rounds()), (2, vec![answered(1, &accept())]));
}

#[tokio::test]
async fn on_postgres_a_call_that_a_killed_process_sent_again_is_interrupted_by_another_one() {
    let (steered, deployment) = on_postgres().await;
    let (mut first, second) = (deployment.start(), deployment.start());
    let id = owned_in_as(&first.client, &does("roundThenHang")).await;
    let request = open(&second.client).await;
    assert_eq!(answer(&first.client, &request, &accept()).await, 200);
    steered.wait_called(2).await;
    first.kill();
    second.client.becomes(&id, "interrupted").await;
    assert_eq!(steered.called().len(), 2);
}

#[tokio::test]
async fn on_postgres_of_two_processes_one_sends_the_call_again() {
    let (steered, deployment) = on_postgres().await;
    let (first, second) = (deployment.start(), deployment.start());
    tool(&second.client, "s__delete_file").await;
    let id = owned_in_as(&first.client, &does("twoRounds")).await;
    for round in 1..=2 {
        let request = open(&second.client).await;
        let decline = json!({ "action": "decline" });
        let answers = [&first, &second].map(|process| answer(&process.client, &request, &decline));
        let answers = futures::future::join_all(answers).await;
        assert_eq!(answers, [200, 200], "the second one is a replay");
        steered.wait_called(round + 1).await;
        let gone = async || {
            let listed = second.client.get("/tool_requests?state=open").await;
            let open = listed.body.list("results");
            (!open.iter().any(|it| it["request_id"] == request["request_id"])).then_some(())
        };
        eventually("the request is closed", gone).await;
    }
    assert_eq!(second.client.becomes(&id, "succeeded").await["output"], "decline");
    assert_eq!((steered.called().len(), steered.rounds().len()), (3, 2));
}

async fn on_postgres() -> (SteeredServer, Deployment) {
    let steered = SteeredServer::with("delete_file");
    let deployment = steered.deployment_on(postgres().await);
    (steered, deployment)
}
