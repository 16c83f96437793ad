//! Several servers on one Postgres: a call has one effect and one outcome, and every server reports that
//! outcome, even if a server dies.

use futures::future::join_all;
use holdpoint_testkit::{
    Answer, Client, Deployment, Embedded, JsonFields, LEASE, Process, UNKNOWN, eventually, postgres,
};
use serde_json::{Value, json};

const DECIDERS: usize = 50;
const ROUNDS: usize = 6;

/// One of three decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionKind {
    Approve,
    Reject,
    Edit,
}

async fn decide(client: &Client, id: &str, way: DecisionKind, edited: &str) -> Answer {
    let mut body = json!({ "toolCallId": id, "isValidated": way != DecisionKind::Reject });
    if way == DecisionKind::Edit {
        body["validatedInputs"] = json!({ "note": edited });
    }
    client.validate(&body).await
}

#[tokio::test]
async fn on_postgres_servers_that_start_together_create_the_schema_once() {
    let url = postgres().await;
    let start = async || Embedded::with(|config| config.database.url = url.clone().into()).await;
    let servers = join_all((0..4).map(|_| start())).await;
    let thread = servers[0].client.thread().await;
    for server in &servers {
        server.client.get(&format!("/threads/{thread}")).await.has_status(200);
    }
}

#[tokio::test]
async fn on_postgres_fifty_decisions_over_two_processes_have_one_effect_and_get_one_outcome() {
    let deployment = Deployment::on_postgres().await;
    let servers = [deployment.start("30s"), deployment.start("30s")];
    deployment.release();
    let mut effects = Vec::new();
    for round in 0..ROUNDS {
        let client = &servers[round % 2].client;
        let (note, edited) = (format!("{round}"), format!("{round}-edited"));
        let id = deployment.hold(client, &client.thread().await, &note).await;
        let deciders = (0..DECIDERS).map(|n| {
            // Timing determines the first decider; the rotation starts at another decision in each round.
            let way = [DecisionKind::Approve, DecisionKind::Reject, DecisionKind::Edit][(n / 2 + round) % 3];
            let (client, id, edited) = (&servers[n % 2].client, &id, &edited);
            async move { (way, decide(client, id, way, edited).await) }
        });
        let answers = join_all(deciders).await;

        let decisions =
            deployment.rows().await.all("SELECT tool_call_id, verdict, edited FROM decisions").await;
        let decided: Vec<_> = decisions.iter().filter(|row| row["tool_call_id"] == *id).collect();
        let [decided] = decided[..] else { panic!("one decision, not {decided:?}") };
        let edit = decided["edited"] == true || decided["edited"] == 1;
        let won = match decided.text("verdict") {
            "reject" => DecisionKind::Reject,
            _ if edit => DecisionKind::Edit,
            _ => DecisionKind::Approve,
        };
        match won {
            DecisionKind::Reject => {}
            DecisionKind::Approve => effects.push(format!("transfer {note}")),
            DecisionKind::Edit => effects.push(format!("transfer {edited}")),
        }
        let (same, others): (Vec<_>, Vec<_>) = answers.iter().partition(|(way, _)| *way == won);
        let outcome = &same[0].1.body;
        assert_eq!(outcome["state"], if won == DecisionKind::Reject { "rejected" } else { "succeeded" });
        assert!(same.iter().all(|(_, answer)| (answer.status, &answer.body) == (200, outcome)), "{same:?}");
        let fresh = same.iter().filter(|(_, answer)| answer.header("idempotent-replayed").is_none());
        assert_eq!(fresh.count(), 1, "exactly one request decided");
        let reported = &others[0].1.body["error"]["details"]["decision"];
        assert_eq!((&reported["decision"], &reported["edited"]), (&decided["verdict"], &json!(edit)));
        for (_, answer) in others {
            answer.failed_with(409, "already_decided");
            assert_eq!(&answer.body["error"]["details"]["decision"], reported);
        }
    }
    let ran = deployment.ledger().into_iter().filter(|line| !line.ends_with(" done")).collect::<Vec<_>>();
    assert_eq!(ran, effects);
}

#[tokio::test]
async fn on_postgres_a_call_of_a_killed_process_is_interrupted_and_its_thread_resumes_elsewhere() {
    let deployment = Deployment::on_postgres().await;
    let (mut dead, thread, id) = deployment.in_mid_tool().await;
    let other = deployment.start("30s");
    assert_eq!(other.client.call(&id).await["state"], "executing");
    dead.kill();
    let call = other.client.becomes(&id, "interrupted").await;
    assert_eq!((&call["validated"], &call["result"]), (&json!(true), &json!(UNKNOWN)));
    deployment.release();
    assert_eq!(other.client.approve(&id).await.body["state"], "interrupted");
    assert!(other.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(other.client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(deployment.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn on_postgres_a_decider_that_waits_at_one_process_gets_the_outcome_of_another() {
    let deployment = Deployment::on_postgres().await;
    let (_runs, thread, id) = deployment.in_mid_tool().await;
    let waits = deployment.start("30s");
    let outcome = async {
        let answer = waits.client.approve(&id).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, Some("true")));
        answer.body
    };
    let resume = async {
        let turn = waits.client.begin_resume(&thread).await;
        deployment.release();
        waits.client.read_on(turn).await
    };
    let (outcome, turn) = tokio::join!(outcome, resume);
    assert_eq!((&outcome["state"], &outcome["success"]), (&json!("succeeded"), &json!(true)));
    assert_eq!(turn.one('a')["result"], json!({ "transferred": "10" }));
    assert_eq!(turn.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
}

#[tokio::test]
async fn on_postgres_a_turn_of_a_killed_process_is_resumed_by_another_after_its_lease_expires() {
    let deployment = Deployment::on_postgres().await;
    let mut dead = deployment.start("0s");
    let other = deployment.start("0s");
    let client = &other.client;
    let thread = client.thread().await;
    let path = dead.client.url(&format!("/qa/chat_streamed/{thread}"));
    let requested = dead.client.http.post(path).json(&json!({ "content": "think" })).send().await.unwrap();
    deployment.wait_started(&["think"]).await;
    let started = client.messages(&thread).await.pop().unwrap();
    assert_eq!(
        client.send_message(&thread, "and this?").await.refused(),
        (409, "turn_in_progress".to_owned())
    );
    dead.kill();
    drop(requested);

    deployment.release();
    let over =
        async || Some(client.messages(&thread).await.pop()?).filter(|it| it["status"] == "interrupted");
    let broken = eventually("the turn is closed", over).await;
    assert_eq!(broken["message_id"], started["message_id"]);
    let again = client.resume(&thread).await;
    assert_eq!((again.codes().as_str(), again.text().as_str()), ("f0ed", "Half an answer."));
    assert_eq!(again.one('f')["messageId"], started["message_id"]);
    let steps = deployment.rows().await.all("SELECT status FROM message_steps ORDER BY n").await;
    assert_eq!(steps, [json!({ "status": "interrupted" }), json!({ "status": "complete" })]);
    assert_eq!(deployment.ledger(), ["think", "think"]);
}

/// Suspends a server until its leases have expired and its calls have been reaped.
async fn outlive_the_lease(paused: &Process, other: &Process, id: &str) {
    paused.pause();
    other.client.becomes(id, "interrupted").await;
}

#[tokio::test]
async fn on_postgres_the_late_outcome_of_a_reaped_call_is_sent_as_a_note() {
    let deployment = Deployment::on_postgres().await;
    let (paused, thread, id) = deployment.in_mid_tool().await;
    let other = deployment.start("30s");
    let client = &other.client;
    outlive_the_lease(&paused, &other, &id).await;
    assert!(client.resume(&thread).await.text().starts_with("The outcome is unknown"));

    deployment.release();
    paused.resume();
    let call = client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "transferred": "10" }));
    assert_eq!(client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(client.send_message(&thread, "thanks").await.text(), "thanks");
    let sent = deployment.rows().await.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    let note = "[tool outcome] transfer, call p-10: {\"transferred\":\"10\"}";
    let expected = [json!({ "kind": "answer", "text": UNKNOWN }), json!({ "kind": "note", "text": note })];
    assert_eq!(sent, expected);
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
}

#[tokio::test]
async fn on_postgres_one_process_cancels_calls_and_runs_of_another() {
    let deployment = Deployment::on_postgres().await;
    let (runs, thread, id) = deployment.in_mid_tool().await;
    let other = deployment.start("30s");
    let cancelled = other.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    let expected = json!({ "success": false, "tool_call_id": id, "state": "interrupted" });
    assert_eq!((cancelled.status, &cancelled.body), (200, &expected));
    assert!(other.client.resume(&thread).await.text().starts_with("The outcome is unknown"));

    let thinks = runs.client.thread().await;
    let stop = async {
        deployment.wait_started(&["transfer 10", "think"]).await;
        let found = other.client.get(&format!("/threads/{thinks}")).await.body;
        let run = found.text("active_run_id").to_owned();
        other.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await
    };
    let (turn, stopped) = tokio::join!(runs.client.send_message(&thinks, "think"), stop);
    stopped.has(200, "status", "cancelled");
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0d", "Half an "), "{}", turn.raw);
    let answer = other.client.messages(&thinks).await.pop().unwrap();
    assert_eq!((&answer["status"], &answer["parts"][1]["text"]), (&json!("interrupted"), &json!("Half an ")));
    assert_eq!(deployment.ledger(), ["transfer 10", "think"]);
}

#[tokio::test]
async fn on_postgres_cancelled_work_of_a_dead_process_ends_when_its_lease_expires() {
    let deployment = Deployment::on_postgres().await;
    let mut dead = deployment.start("0s");
    let other = deployment.start("0s");
    let id = deployment.hold(&dead.client, &dead.client.thread().await, "10").await;
    dead.client.approve(&id).await.has_status(202);
    deployment.wait_started(&["transfer 10"]).await;
    let thread = other.client.thread().await;
    let path = dead.client.url(&format!("/qa/chat_streamed/{thread}"));
    let requested = dead.client.http.post(path).json(&json!({ "content": "think" })).send().await.unwrap();
    deployment.wait_started(&["transfer 10", "think"]).await;
    let run = requested.headers()["x-run-id"].to_str().unwrap().to_owned();
    dead.kill();
    drop(requested);
    let requested = other.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    requested.has(202, "status", "running");
    let requested = other.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    let under_way = json!({ "success": false, "tool_call_id": id, "state": "executing" });
    assert_eq!((requested.status, &requested.body), (202, &under_way));
    let over = async || {
        let run = other.client.get(&format!("/runs/{run}")).await.body;
        (run["status"] == "cancelled").then_some(())
    };
    eventually(&format!("the lease of {LEASE:?} is over"), over).await;
    other.client.becomes(&id, "interrupted").await;
    assert_eq!(other.client.send_message(&thread, "thanks").await.text(), "thanks");
}
