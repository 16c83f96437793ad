//! `holdpoint fence`: closes everything that is open in a database that lost commits, so that nothing runs a
//! second time.

use holdpoint_testkit::{Deployment, JsonFields, Process, UNKNOWN, eventually};
use serde_json::{Value, json};

/// The answer to the model and the person for a call that has not started according to the database.
const FENCED: &str = "Cancelled, because the server's database was set back to an earlier time. Whether the tool ran \
                      in the time that was lost is not known. Do not repeat it without asking the user.";

const FENCE: [&str; 3] = ["fence", "--by", "mel"];

/// The numbers that the command printed.
fn numbers(printed: &str) -> Vec<u64> {
    printed.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// Starts a turn that stays in progress: its model has started its answer.
async fn think(deployment: &Deployment, server: &Process) -> String {
    let thread = server.client.thread().await;
    let started = deployment.ledger().len();
    let turn = server.client.begin(&thread, &json!({ "content": "think" })).await;
    eventually("the model speaks", async || (deployment.ledger().len() > started).then_some(())).await;
    // The connection stays open until the server has ended.
    std::mem::forget(turn);
    thread
}

#[tokio::test]
async fn i4_a_call_that_ran_in_the_lost_period_does_not_run_again() {
    let mut deployment = Deployment::new().await;
    deployment.release();
    let server = deployment.start("30s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    server.finish();
    let backup = deployment.copied().await;

    let server = deployment.start("30s");
    assert_eq!(server.client.approve(&id).await.body["state"], "succeeded");
    server.finish();
    let ran = ["transfer 10", "transfer 10 done"];
    assert_eq!(deployment.ledger(), ran);

    deployment.restore(backup);
    let fenced = deployment.operate(&FENCE);
    assert_eq!(fenced.stderr, "", "no progress bar without a terminal");
    assert_eq!(numbers(&fenced.stdout_of_success()), [1, 0, 0, 0, 0, 0]);

    let server = deployment.start("30s");
    let client = &server.client;
    let call = client.call(&id).await;
    assert_eq!((&call["state"], &call["result"]), (&json!("cancelled"), &json!(FENCED)));
    let (by, surface) = (&call["decision"]["by"], &call["decision"]["surface"]);
    assert_eq!((by, surface), (&json!("user:mel"), &json!("terminal")));
    assert!(call["decision"].text("reason").contains("set back to an earlier time"));
    let refused = client.approve(&id).await;
    refused.failed_with(409, "cancelled");
    let cancelled = client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    let unchanged = json!({ "success": false, "tool_call_id": id, "state": "cancelled" });
    assert_eq!((cancelled.status, &cancelled.body), (200, &unchanged), "it is unknown whether the tool ran");
    assert_eq!(deployment.ledger(), ran, "the tool did not run again");

    assert_eq!(client.resume(&thread).await.text(), FENCED);
    let next = deployment.hold(client, &thread, "11").await;
    assert_eq!(client.approve(&next).await.body["state"], "succeeded");
    let events = deployment.rows().await;
    let events = events.all("SELECT actor FROM events WHERE type = 'tool.cancelled'").await;
    assert_eq!(events, [json!({ "actor": "user:mel" })]);
}

/// A place whose server died with a call or turn in every open state: the threads and calls.
struct AbandonedServer {
    deployment: Deployment,
    pending: (String, String),
    approved: (String, String),
    started: (String, String),
    executing: (String, String),
    thinking: String,
}

async fn left() -> AbandonedServer {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let hold = async |words: &str| {
        let thread = server.client.thread().await;
        let id = deployment.hold_of(&server.client, &thread, words).await;
        (thread, id)
    };
    let [pending, approved] = [hold("transfer 1").await, hold("transfer 2").await];
    let [started, executing] = [hold("restock 3").await, hold("transfer 4").await];
    for (n, (_, id)) in [&started, &executing].into_iter().enumerate() {
        server.client.approve(id).await.has_status(202);
        eventually("it has begun", async || (deployment.ledger().len() > n).then_some(())).await;
    }
    let thinking = think(&deployment, &server).await;
    let hash = server.client.call(&approved.1).await.text("input_hash").to_owned();
    server.kill();
    let rows = deployment.rows().await;
    let id = &approved.1;
    let year_9999 = "253370764800000000";
    for change in [
        format!(
            "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:local',
                 decided_at = created_at, start_deadline = {year_9999} WHERE tool_call_id = '{id}'"
        ),
        format!(
            "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)
             VALUES ('{id}', '{id}', 'user:local', 'approve', TRUE, FALSE, '{hash}', 'rest', 0)"
        ),
        format!(
            "UPDATE tool_calls SET state = 'approved', lease_until = NULL, start_deadline = {year_9999}
             WHERE tool_call_id = '{}'",
            started.1
        ),
    ] {
        assert_eq!(rows.change(&change).await, Ok(1));
    }
    AbandonedServer { deployment, pending, approved, started, executing, thinking }
}

#[tokio::test]
async fn fence_closes_every_open_call_and_turn_and_reports_the_truth() {
    let AbandonedServer { deployment, pending, approved, started, executing, thinking } = left().await;
    let ran = deployment.ledger();
    assert_eq!(ran.len(), 3, "{ran:?}");
    assert_eq!(numbers(&deployment.operate(&FENCE).stdout_of_success()), [1, 1, 2, 1, 0, 0]);
    let rows = deployment.rows().await;
    let everything = async || {
        let mut all = Vec::new();
        for table in ["tool_calls", "runs", "decisions", "events"] {
            all.push(rows.all(&format!("SELECT * FROM {table} ORDER BY 1")).await);
        }
        all
    };
    let fenced = everything().await;
    assert_eq!(numbers(&deployment.operate(&FENCE).stdout_of_success()), [0; 6]);
    assert_eq!(everything().await, fenced, "the second fence changes nothing");
    let events = rows.all("SELECT type FROM events WHERE actor = 'user:mel' ORDER BY type").await;
    let types: Vec<&str> = events.iter().map(|event| event.text("type")).collect();
    assert_eq!(
        types,
        ["run.failed", "tool.cancelled", "tool.cancelled", "tool.interrupted", "tool.interrupted"]
    );
    let runs = rows.all("SELECT error_code FROM runs WHERE status = 'failed'").await;
    assert_eq!(runs, [json!({ "error_code": "interrupted" })]);

    deployment.release();
    let server = deployment.start("30s");
    let client = &server.client;
    for ((thread, id), state, result, verdict) in [
        (&pending, "cancelled", FENCED, "cancel"),
        (&approved, "cancelled", FENCED, "approve"),
        (&started, "interrupted", UNKNOWN, "approve"),
        (&executing, "interrupted", UNKNOWN, "approve"),
    ] {
        let call = client.call(id).await;
        assert_eq!((&call["state"], &call["result"]), (&json!(state), &json!(result)));
        assert_eq!(call["decision"]["decision"], verdict);
        let refused = client.reject(id).await;
        refused.has_status(409);
        assert_eq!(client.approve(id).await.status, if state == "interrupted" { 200 } else { 409 });
        assert_eq!(client.resume(thread).await.text(), result);
        assert_eq!(client.send_message(thread, "thanks").await.text(), "thanks");
    }
    assert_eq!(client.resume(&thinking).await.text(), "Half an answer.");
    let again: Vec<String> = deployment.ledger().split_off(ran.len());
    assert_eq!(again, ["think"], "no tool started again");
}

#[tokio::test]
async fn fence_is_refused_while_a_server_runs_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let deployment = Deployment::at(format!("sqlite://{}/holdpoint.db", dir.path().display()));
    let server = deployment.start("0s");
    let id = deployment.hold(&server.client, &server.client.thread().await, "10").await;
    let refused = deployment.operate(&FENCE);
    refused.refused_for("another process serves from this database");
    assert_eq!(server.client.call(&id).await["state"], "pending");
    server.finish();
    assert_eq!(numbers(&deployment.operate(&FENCE).stdout_of_success()), [1, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn on_postgres_fence_warns_about_a_running_server_and_its_late_outcome_is_sent_as_a_note() {
    let deployment = Deployment::on_postgres().await;
    let (server, thread, id) = deployment.in_mid_tool().await;
    let client = &server.client;
    let pending = deployment.hold(client, &client.thread().await, "11").await;
    let fenced = deployment.operate(&FENCE);
    assert!(fenced.stderr.contains("warning: 1 turns or tools hold leases"), "{fenced:?}");
    assert_eq!(numbers(&fenced.stdout_of_success()), [1, 0, 1, 0, 0, 0]);
    assert_eq!(client.call(&id).await["state"], "interrupted");
    assert_eq!(client.approve(&pending).await.code(), "cancelled");
    assert_eq!(client.resume(&thread).await.text(), UNKNOWN);

    deployment.release();
    client.becomes(&id, "succeeded").await;
    assert_eq!(client.send_message(&thread, "thanks").await.text(), "thanks");
    let notes = deployment.rows().await.all("SELECT text FROM sent_answers WHERE kind = 'note'").await;
    let note = "[tool outcome] transfer, call p-10: {\"transferred\":\"10\"}";
    assert_eq!(notes, [json!({ "text": note })]);
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
}

#[tokio::test]
async fn on_postgres_fence_can_be_repeated_after_it_was_killed_midway() {
    let deployment = Deployment::on_postgres().await;
    let server = deployment.start("0s");
    let mut threads = Vec::new();
    for n in 0..4 {
        let thread = server.client.thread().await;
        deployment.hold(&server.client, &thread, &n.to_string()).await;
        threads.push(thread);
    }
    server.finish();
    let (holder, rows) = (deployment.rows().await, deployment.rows().await);
    holder.change("BEGIN").await.unwrap();
    let lock = format!("SELECT 1 FROM threads WHERE thread_id = '{}' FOR UPDATE", threads[2]);
    holder.change(&lock).await.unwrap();
    let mut fence = deployment.operator(&FENCE).spawn().unwrap();
    rows.wait_for_lock_waiter().await;
    fence.kill().unwrap();
    fence.wait().unwrap();
    holder.change("ROLLBACK").await.unwrap();
    rows.wait_for_no_lock_waiter().await;
    let cancelled = "tool_calls WHERE state = 'cancelled'";
    assert_eq!(rows.count(cancelled).await, 2, "each thread is committed separately");
    assert_eq!(numbers(&deployment.operate(&FENCE).stdout_of_success()), [2, 0, 0, 0, 0, 0]);
    assert_eq!(rows.count(cancelled).await, 4);
    assert_eq!(rows.count("decisions").await, 4);
    assert_eq!(rows.count("events WHERE type = 'tool.cancelled'").await, 4);
}

#[tokio::test]
async fn fence_requires_the_name_of_the_operator() {
    let deployment = Deployment::new().await;
    deployment.operate(&["migrate"]).stdout_of_success();
    deployment.operate(&["fence"]).refused_for("--by");
    deployment.operate(&["fence", "--by", " "]).refused_for("--by: expected 1 to 2000 characters");
    assert_eq!(numbers(&deployment.operate(&FENCE).stdout_of_success()), [0; 6]);
}
