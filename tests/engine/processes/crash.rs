//! A server that is killed: running calls become `interrupted`, pending calls stay pending, and no call runs
//! twice.

use futures::future::join_all;
use holdpoint_testkit::{Client, Deployment, JsonFields, UNKNOWN, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Starts a turn and abandons its response once the line with this code has arrived.
async fn begin(client: &Client, thread: &str, words: &str, code: &str) {
    let path = client.url(&format!("/qa/chat_streamed/{thread}"));
    let mut turn = client.http.post(path).json(&json!({ "content": words })).send().await.unwrap();
    let mut read = String::new();
    while !read.contains(&format!("\n{code}:")) {
        let piece = turn.chunk().await.unwrap().expect("the turn goes on");
        read.push_str(std::str::from_utf8(&piece).unwrap());
    }
    // The connection stays open until the server has died.
    std::mem::forget(turn);
}

/// The lines of the ledger after the tool ran once, to its end.
const RAN: [&str; 2] = ["transfer 10", "transfer 10 done"];

async fn broken_off(client: &Client, thread: &str) -> Value {
    let broken = async || Some(message(client, thread).await).filter(|it| it["status"] == "interrupted");
    eventually("the answer is shown as broken off", broken).await
}

async fn message(client: &Client, thread: &str) -> Value {
    let messages = client.get(&format!("/threads/{thread}/messages")).await.body;
    messages.list("results").last().unwrap().clone()
}

#[tokio::test]
async fn after_a_kill_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_reruns() {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = deployment.in_mid_tool().await;
    let running = server.client.call(&id).await;
    assert_eq!((&running["state"], &running["validated"]), (&json!("executing"), &json!(true)));
    server.kill();

    let server = deployment.start("30s");
    let client = &server.client;
    let call = client.becomes(&id, "interrupted").await;
    assert_eq!(call["validated"], true);
    assert_eq!(call["result"], UNKNOWN);
    assert_eq!(call["started_at"], running["started_at"]);
    assert!(call["finished_at"].is_string());
    assert_eq!(call.get("output"), None);
    assert_eq!(call["decision"], running["decision"]);

    let repeat = client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    let stored = json!({ "success": false, "result": UNKNOWN, "toolCallId": id, "state": "interrupted",
                         "waitsForPage": true });
    assert_eq!(repeat.body, stored);
    assert_eq!(client.reject(&id).await.code(), "already_decided");

    deployment.release();
    let reported = client.resume(&thread).await;
    assert_eq!(reported.codes(), "a8ef0ed");
    assert_eq!(*reported.one('a'), json!({ "toolCallId": id, "result": { "error": UNKNOWN } }));
    assert_eq!(*reported.one('8'), json!([{ "toolCallId": id, "validated": "interrupted" }]));
    assert!(reported.text().starts_with("The outcome is unknown"), "{}", reported.text());
    assert_eq!(client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(deployment.ledger(), ["transfer 10"]);
    let rows = deployment.rows().await;
    let attempts = rows.all("SELECT exec_attempt, state FROM tool_calls").await;
    assert_eq!(attempts, [json!({ "exec_attempt": 1, "state": "interrupted" })]);
    let events = rows.all("SELECT type FROM events WHERE tool_call_id IS NOT NULL ORDER BY event_id").await;
    let types: Vec<&str> = events.iter().map(|event| event.text("type")).collect();
    let expected = [
        "tool.called",
        "tool.requires_approval",
        "tool.approved",
        "tool.started",
        "tool.interrupted",
        "tool.decision_refused",
    ];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn a_pending_call_survives_a_kill_and_an_approval_runs_it_once() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    let before = server.client.call(&id).await;
    server.kill();

    let mut server = deployment.start("30s");
    assert_eq!(server.client.call(&id).await, before);
    let listed = server.client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(listed["pending_count"], 1);
    assert!(listed["active_run_id"].is_string(), "the run waits: {listed}");
    assert_eq!(server.client.resume(&thread).await.pending(), [id.as_str()]);
    assert_eq!(deployment.ledger(), Vec::<String>::new());

    deployment.release();
    let approved = server.client.approve(&id).await;
    approved.has(200, "state", "succeeded");
    server.kill();

    let server = deployment.start("30s");
    let repeat = server.client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(repeat.body, approved.body);
    assert_eq!(server.client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn after_a_kill_while_the_model_streams_the_run_is_closed_and_resuming_extends_the_message() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "think", "0").await;
    deployment.wait_started(&["think"]).await;
    let started = message(&server.client, &thread).await;
    assert_eq!(started["status"], "streaming");
    server.kill();

    let server = deployment.start("30s");
    let client = &server.client;
    let broken = broken_off(client, &thread).await;
    assert_eq!(broken["message_id"], started["message_id"]);
    let rows = deployment.rows().await;
    let runs = rows.all("SELECT status, error_code, owner FROM runs").await;
    assert_eq!(runs, [json!({ "status": "failed", "error_code": "interrupted", "owner": null })]);
    assert_eq!(rows.all("SELECT status FROM message_steps").await, [json!({ "status": "interrupted" })]);
    let listed = client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(listed.get("active_run_id"), None, "{listed}");

    deployment.release();
    let again = client.resume(&thread).await;
    assert_eq!((again.codes().as_str(), again.text().as_str()), ("f0ed", "Half an answer."));
    assert_eq!(again.one('f')["messageId"], started["message_id"]);
    let whole = message(client, &thread).await;
    assert_eq!((&whole["message_id"], &whole["status"]), (&started["message_id"], &json!("complete")));
    let messages = client.get(&format!("/threads/{thread}/messages")).await.body;
    assert_eq!(messages.list("results").len(), 2, "{messages}");
}

#[tokio::test]
async fn after_a_kill_while_an_ungated_tool_runs_its_outcome_is_unknown_and_the_thread_continues() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "sync 7", "9").await;
    deployment.wait_started(&["sync 7"]).await;
    server.kill();

    let server = deployment.start("30s");
    let client = &server.client;
    let broken = broken_off(client, &thread).await;
    let rows = deployment.rows().await;
    let settled = async || (rows.count("tool_calls WHERE state = 'executing'").await == 0).then_some(());
    eventually("nobody runs the call any more", settled).await;
    let calls = rows.all("SELECT state, held, decided_by, exec_attempt, result FROM tool_calls").await;
    let expected = json!({ "state": "interrupted", "held": false, "decided_by": "system:policy", "exec_attempt": 1,
                           "result": UNKNOWN });
    assert_eq!(calls, [expected]);
    let runs = rows.all("SELECT status, error_code FROM runs").await;
    assert_eq!(runs, [json!({ "status": "failed", "error_code": "interrupted" })]);

    deployment.release();
    let reported = client.resume(&thread).await;
    assert_eq!(reported.one('f')["messageId"], broken["message_id"], "{}", reported.raw);
    assert!(reported.text().starts_with("The outcome is unknown"), "{}", reported.raw);
    assert_eq!(message(client, &thread).await["status"], "complete");
    assert_eq!(client.send_message(&thread, "sync 8").await.text(), "{\"synced\":\"8\"}");
    assert_eq!(deployment.ledger(), ["sync 7", "sync 8", "sync 8 done"]);
}

#[tokio::test]
async fn shutdown_waits_for_a_running_tool_and_the_decider_gets_its_outcome() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let client = server.client.clone();
    let thread = client.thread().await;
    let id = deployment.hold(&client, &thread, "10").await;
    let address = client.base.trim_start_matches("http://").to_owned();
    let stop = async {
        deployment.wait_started(&["transfer 10"]).await;
        server.terminate();
        let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
        eventually("no new connection is taken", refused).await;
        assert_eq!(server.ended(), None, "it waits for the tool");
        deployment.release();
    };
    let (approved, ()) = tokio::join!(client.approve(&id), stop);
    approved.has(200, "state", "succeeded");
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");

    let server = deployment.start("30s");
    let call = server.client.call(&id).await;
    assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!({ "transferred": "10" })));
    assert_eq!(server.client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn shutdown_lets_a_running_tool_settle_without_a_waiting_client() {
    let deployment = Deployment::new().await;
    let (mut server, _, id) = deployment.in_mid_tool().await;
    server.terminate();
    let address = server.client.base.trim_start_matches("http://").to_owned();
    let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
    eventually("no new connection is taken", refused).await;
    assert_eq!(server.ended(), None, "it waits for the tool");
    deployment.release();
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");

    let server = deployment.start("30s");
    let repeat = server.client.approve(&id).await;
    assert_eq!(
        (repeat.header("idempotent-replayed"), &repeat.body["state"]),
        (Some("true"), &json!("succeeded"))
    );
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn a_turn_with_a_cancel_request_is_cancelled_after_a_kill() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "think", "0").await;
    deployment.wait_started(&["think"]).await;
    let run = server.client.get(&format!("/threads/{thread}")).await.body["active_run_id"].clone();
    let run = format!("/runs/{}", run.as_str().unwrap());
    let wish = "UPDATE runs SET cancel_requested_at = created_at";
    assert_eq!(deployment.rows().await.change(wish).await, Ok(1));
    server.kill();

    let server = deployment.start("0s");
    let client = &server.client;
    let over = async || (client.get(&run).await.body["status"] == "cancelled").then_some(());
    eventually("the run is cancelled", over).await;
    assert_eq!(client.resume(&thread).await.refused(), (409, "nothing_to_continue".to_owned()));
    assert_eq!(client.send_message(&thread, "thanks").await.text(), "thanks");
}

/// Kills a server that has committed an approval and not claimed the call. Returns the thread and the call.
async fn killed_before_the_claim(deployment: &Deployment) -> (String, String) {
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    let rows = deployment.rows().await;
    rows.forbid_claims().await;
    let approved = server.client.approve(&id).await;
    approved.has(202, "state", "executing");
    server.kill();
    let calls = rows.all("SELECT state, validated, exec_attempt FROM tool_calls").await;
    assert_eq!((&calls[0]["state"], &calls[0]["exec_attempt"]), (&json!("approved"), &json!(0)));
    assert_eq!(deployment.ledger(), Vec::<String>::new());
    rows.allow_claims().await;
    (thread, id)
}

#[tokio::test]
async fn after_a_kill_before_the_claim_the_next_server_runs_the_call_once() {
    let deployment = Deployment::new().await;
    let (thread, id) = killed_before_the_claim(&deployment).await;
    deployment.release();
    let server = deployment.start("30s");
    server.client.becomes(&id, "succeeded").await;
    assert_eq!(server.client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn after_a_kill_before_the_claim_repeated_approvals_run_the_call_once() {
    let deployment = Deployment::new().await;
    let (thread, id) = killed_before_the_claim(&deployment).await;
    deployment.release();
    let server = deployment.start("30s");
    let client = &server.client;
    assert_eq!(client.reject(&id).await.code(), "already_decided");
    for repeat in join_all((0..10).map(|_| client.approve(&id))).await {
        assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(repeat.body["state"], "succeeded", "{:?}", repeat.body);
    }
    assert_eq!(client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn after_a_kill_between_claim_and_effect_the_call_never_runs_again() {
    let deployment = Deployment::new().await;
    deployment.not_yet();
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    server.client.approve(&id).await.has_status(202);
    server.client.becomes(&id, "executing").await;
    server.kill();
    assert_eq!(deployment.ledger(), Vec::<String>::new());

    deployment.now();
    deployment.release();
    let server = deployment.start("30s");
    // From outside, this state is indistinguishable from a tool that has had its effect.
    let call = server.client.becomes(&id, "interrupted").await;
    assert_eq!(call["result"], UNKNOWN);
    assert_eq!(server.client.approve(&id).await.body["state"], "interrupted");
    assert!(server.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(server.client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(deployment.ledger(), Vec::<String>::new());
}

#[tokio::test]
async fn after_a_kill_between_effect_and_saved_result_the_call_never_runs_again() {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = deployment.in_mid_tool().await;
    let rows = deployment.rows().await;
    let lock =
        if deployment.is_postgres() { "BEGIN; SELECT 1 FROM threads FOR UPDATE" } else { "BEGIN IMMEDIATE" };
    rows.change(lock).await.unwrap();
    deployment.release();
    deployment.wait_started(&RAN).await;
    server.kill();
    rows.change("ROLLBACK").await.unwrap();

    let server = deployment.start("30s");
    let call = server.client.becomes(&id, "interrupted").await;
    assert_eq!((&call["validated"], &call["result"]), (&json!(true), &json!(UNKNOWN)));
    let repeat = server.client.approve(&id).await;
    repeat.has(200, "state", "interrupted");
    assert!(server.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(server.client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(deployment.ledger(), RAN);
}
