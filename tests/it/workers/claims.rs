//! Claims: one worker gets each call, of any process, and no worker that has disconnected.

use super::{Job, add_worker_tools, approved, ask, claim, code, nothing, start};
use crate::support::{Embedded, Leave, Leaver, call, eventually, postgres, probes};
use futures::future::{join, join_all};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test]
async fn two_workers_that_claim_at_once_get_one_call_between_them() {
    let app = start().await;
    for n in 0..10 {
        let (_, id) = approved(&app, "ship", &n.to_string()).await;
        let (one, other) = join(ask(&app.client, &["ship"], 0), ask(&app.client, &["ship"], 0)).await;
        let got: Vec<_> = [one, other].iter().filter_map(Job::of).map(|job| job.id).collect();
        assert_eq!(got, [id]);
    }
}

#[tokio::test]
async fn fifty_calls_go_to_four_workers_once_each() {
    let app = start().await;
    let mut made = BTreeSet::new();
    for turn in 0..5 {
        let thread = app.client.thread().await;
        let calls: Vec<_> = (0..10)
            .map(|n| call(&format!("c{n}"), "pack", &json!({ "note": format!("{turn}-{n}") })))
            .collect();
        app.scene.calls(&calls);
        let turn = app.client.send_message(&thread, "pack ten").await;
        made.extend(turn.all('9').iter().map(|part| part["toolCallId"].as_str().unwrap().to_owned()));
    }
    assert_eq!(made.len(), 50);
    for _ in 0..5 {
        app.scene.answers("Packed.");
    }
    let work = async || {
        let mut done = Vec::new();
        while let Some(job) = Job::of(&ask(&app.client, &["pack"], 0).await) {
            assert_eq!(job.succeed(&app.client, &job.call["input"]).await.status, 200);
            done.push(job.id);
        }
        done
    };
    let workers = join_all((0..4).map(|_| work())).await;
    let all: Vec<String> = workers.concat();
    assert_eq!(all.len(), 50, "no call is handed out twice");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), made);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'succeeded' AND exec_attempt = 1").await, 50);
}

#[tokio::test]
async fn on_postgres_a_worker_claims_renews_and_settles_at_other_replicas() {
    let url = postgres().await;
    let start = async || {
        let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
        let mut tools = probes(&app.ledger);
        add_worker_tools(&mut tools, super::TIMEOUT);
        app.redeploy_with(tools, |config| config.approval.wait = Duration::ZERO).await
    };
    let (here, there) = (start().await, start().await);
    let (_, id) = here.held("ship", "10").await;
    let (decided, answer) = join(here.client.approve(&id), ask(&there.client, &["ship"], 60)).await;
    let job = Job::of(&answer).unwrap();
    assert_eq!((decided.status, &job.id), (202, &id));
    assert!(nothing(&here.client, "ship").await);
    assert_eq!(job.renew(&here.client).await.status, 200);
    assert_eq!(job.succeed(&here.client, &json!("done")).await.body["state"], "succeeded");
    assert_eq!(there.client.call(&id).await["output"], "done");
    let again = job.succeed(&there.client, &json!("done")).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
}

#[tokio::test]
async fn a_worker_that_left_while_its_claim_waited_gets_no_call() {
    let app = start().await;
    let waiting = async |count: u32| {
        let line = format!("holdpoint_worker_claims_waiting{{tool=\"ship\"}} {count}");
        let found = async || {
            let metrics = app.client.http.get(app.client.url("/metrics")).send().await.unwrap();
            metrics.text().await.unwrap().contains(&line).then_some(())
        };
        eventually("the number of waiting claims", found).await;
    };
    for how in Leave::ALL {
        let (_, id) = app.held("ship", &format!("{how:?}")).await;
        let body = json!({ "tools": ["ship"], "wait": 60 });
        let leaver = Leaver::sends(&app.client, how, "/tool_calls/claim", &body).await;
        waiting(1).await;
        let _connection = leaver.leaves().await;
        waiting(0).await;
        app.client.approve(&id).await;
        let job = claim(&app.client, "ship").await;
        assert_eq!((&job.id, &job.call["attempt"]), (&id, &json!(1)), "{how:?}");
    }
}

#[tokio::test]
async fn a_claim_ends_with_the_server_and_takes_nothing_along() {
    let mut app = start().await;
    let client = app.client.clone();
    let (answer, ()) = join(ask(&client, &["ship"], 60), async {
        let waits = async || {
            let metrics = client.http.get(client.url("/metrics")).send().await.unwrap();
            let metrics = metrics.text().await.unwrap();
            metrics.contains("holdpoint_worker_claims_waiting{tool=\"ship\"} 1").then_some(())
        };
        eventually("the claim waits", waits).await;
        app.end().await;
    })
    .await;
    assert!(Job::of(&answer).is_none());
}

#[tokio::test]
async fn a_call_of_a_worker_is_claimed_by_no_process() {
    let app = super::impatient(super::TIMEOUT).await;
    let (_, id) = approved(&app, "ship", "10").await;
    // The sweeper claims what was approved longer ago than a lease.
    let sweeps = async || {
        let over = app.rows.count("tool_calls WHERE decided_at IS NOT NULL").await == 1;
        let waited = app.client.call(&id).await["state"] == "approved";
        (over && waited).then_some(())
    };
    eventually("the call is approved", sweeps).await;
    tokio::time::timeout(Duration::from_secs(1), async {
        while app.client.call(&id).await["state"] == "approved" {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect_err("the call stays approved");
    assert_eq!(code(&ask(&app.client, &["pay"], 0).await), (422, "unknown_tool"));
    claim(&app.client, "ship").await;
}
