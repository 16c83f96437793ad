//! A process may die between a decision and the continuation of the run. The decision is not lost.

use super::{approve, events_of, last_words, reject, run_becomes};
use holdpoint_testkit::{Client, Deployment, Rows, UNKNOWN, eventually};
use serde_json::json;
use tokio::net::TcpStream;

/// Makes the database refuse to resume a run.
async fn forbid_going_on(deployment: &Deployment, rows: &Rows) {
    let forbid = if deployment.is_postgres() {
        "CREATE OR REPLACE FUNCTION not_on() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'not now'; END $$;
         CREATE TRIGGER not_on BEFORE UPDATE ON runs FOR EACH ROW
             WHEN (OLD.status = 'waiting' AND NEW.status = 'running') EXECUTE FUNCTION not_on()"
    } else {
        "CREATE TRIGGER not_on BEFORE UPDATE ON runs WHEN OLD.status = 'waiting' AND NEW.status = 'running'
             BEGIN SELECT RAISE(ABORT, 'not now'); END"
    };
    rows.change(forbid).await.unwrap();
}

/// Allows the database to resume runs again.
async fn allow_going_on(deployment: &Deployment, rows: &Rows) {
    let on = if deployment.is_postgres() { " ON runs" } else { "" };
    rows.change(&format!("DROP TRIGGER not_on{on}")).await.unwrap();
}

/// An approved transfer whose tool has started, and waits for a permit.
struct StartedTransfer {
    thread: String,
    id: String,
    run: String,
}

impl StartedTransfer {
    async fn at(deployment: &Deployment, client: &Client) -> Self {
        let thread = client.thread().await;
        let id = deployment.hold(client, &thread, "10").await;
        let run = client.run_of(&id).await;
        approve(client, &id).await.has_status(200);
        deployment.wait_started(&["transfer 10"]).await;
        Self { thread, id, run }
    }
}

#[tokio::test]
async fn after_a_kill_between_the_outcome_and_the_continuation_the_next_process_resumes_once() {
    let deployment = Deployment::new().await;
    deployment.release();
    for yes in [true, false] {
        let mut server = deployment.start("30s");
        let thread = server.client.thread().await;
        let id = deployment.hold(&server.client, &thread, "10").await;
        let run = server.client.run_of(&id).await;
        let rows = deployment.rows().await;
        forbid_going_on(&deployment, &rows).await;
        let decided = match yes {
            true => approve(&server.client, &id).await,
            false => reject(&server.client, &id, "no").await,
        };
        decided.has_status(200);
        server.client.becomes(&id, if yes { "succeeded" } else { "rejected" }).await;
        assert_eq!(server.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
        server.kill();

        allow_going_on(&deployment, &rows).await;
        let server = deployment.start("30s");
        run_becomes(&server.client, &run, "completed").await;
        let words =
            if yes { "{\"transferred\":\"10\"}" } else { "Tool execution rejected by user. Reason: no" };
        assert_eq!(last_words(&server.client, &thread).await, words);
        let resumed = events_of(&rows, &run).await;
        assert_eq!(resumed.iter().filter(|event| *event == "run.resumed").count(), 1);
    }
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
}

#[tokio::test]
async fn after_a_kill_while_the_approved_tool_runs_the_server_resumes_with_an_unknown_outcome() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let StartedTransfer { thread, id, run } = StartedTransfer::at(&deployment, &server.client).await;
    server.kill();

    let server = deployment.start("0s");
    run_becomes(&server.client, &run, "completed").await;
    assert_eq!(last_words(&server.client, &thread).await, UNKNOWN);
    assert_eq!(server.client.call(&id).await["state"], "interrupted");
    assert_eq!(deployment.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn a_stopping_process_leaves_the_run_to_the_next_process() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let StartedTransfer { thread, run, .. } = StartedTransfer::at(&deployment, &server.client).await;
    server.terminate();
    let address = server.client.base.trim_start_matches("http://").to_owned();
    let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
    eventually("no new connection is taken", refused).await;
    deployment.release();
    assert!(eventually("the server ends", async || server.ended()).await, "and it exits without an error");
    let rows = deployment.rows().await;
    let stands = rows.all(&format!("SELECT status FROM runs WHERE run_id = '{run}'")).await;
    assert_eq!(stands, [json!({ "status": "waiting" })], "the tool ended in time, and no turn started");

    let server = deployment.start("0s");
    run_becomes(&server.client, &run, "completed").await;
    assert_eq!(last_words(&server.client, &thread).await, "{\"transferred\":\"10\"}");
}

#[tokio::test]
async fn on_postgres_another_process_resumes_the_run_of_a_killed_one() {
    let deployment = Deployment::on_postgres().await;
    let (mut dead, other) = (deployment.start("0s"), deployment.start("0s"));
    let StartedTransfer { thread, run, .. } = StartedTransfer::at(&deployment, &dead.client).await;
    dead.kill();
    run_becomes(&other.client, &run, "completed").await;
    assert_eq!(last_words(&other.client, &thread).await, UNKNOWN);
}
