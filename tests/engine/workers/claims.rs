//! Claims: one worker gets each call, of any process, and no worker that has disconnected.

use super::{Job, add_worker_tools, approved, ask, claim, code, nothing, start};
use futures::future::{join, join_all};
use holdpoint_testkit::{
    Client, Cluster, DisconnectKind, Embedded, JsonFields, Leaver, Purpose, Statements, call, eventually,
    postgres, probes,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Waits until this many claims of `ship` wait at this server.
async fn waiting(client: &Client, count: usize) {
    let line = format!("holdpoint_worker_claims_waiting{{tool=\"ship\"}} {count}\n");
    let found = async || {
        let metrics = client.http.get(client.url("/metrics")).send().await.unwrap();
        metrics.text().await.unwrap().contains(&line).then_some(())
    };
    eventually("the number of waiting claims", found).await;
}

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
        made.extend(turn.all('9').iter().map(|part| part.text("toolCallId").to_owned()));
    }
    assert_eq!(made.len(), 50);
    for _ in 0..5 {
        app.scene.answers("Packed.");
    }
    let work = async || {
        let mut done = Vec::new();
        while let Some(job) = Job::of(&ask(&app.client, &["pack"], 0).await) {
            job.succeed(&app.client, &job.call["input"]).await.has_status(200);
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
    job.renew(&here.client).await.has_status(200);
    assert_eq!(job.succeed(&here.client, &json!("done")).await.body["state"], "succeeded");
    assert_eq!(there.client.call(&id).await["output"], "done");
    let again = job.succeed(&there.client, &json!("done")).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
}

#[tokio::test]
async fn a_worker_that_left_while_its_claim_waited_gets_no_call() {
    let app = start().await;
    let waiting = async |count| waiting(&app.client, count).await;
    for how in DisconnectKind::ALL {
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
    let app = super::start_with(super::TIMEOUT, |config| {
        config.approval.lease = Duration::from_millis(300);
        config.approval.sweep = Duration::from_millis(20);
    })
    .await;
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

#[tokio::test]
async fn a_call_goes_to_the_next_claim_if_the_client_of_the_first_has_left() {
    let app = start().await;
    for how in DisconnectKind::ALL {
        let (_, id) = app.held("ship", &format!("{how:?}")).await;
        let body = json!({ "tools": ["ship"], "wait": 60 });
        let leaver = Leaver::sends(&app.client, how, "/tool_calls/claim", &body).await;
        waiting(&app.client, 1).await;
        let (answer, ()) = join(ask(&app.client, &["ship"], 60), async {
            waiting(&app.client, 2).await;
            // The server may find out before the approval, or at any time after it.
            let _connection = leaver.leaves().await;
            app.client.approve(&id).await;
        })
        .await;
        let job = Job::of(&answer).expect("the second claim gets the call");
        assert_eq!((&job.id, &job.call["attempt"]), (&id, &json!(1)), "{how:?}");
    }
}

#[tokio::test]
async fn a_claim_of_another_tool_takes_no_call_from_the_claims_behind_it() {
    let app = start().await;
    let other = ask(&app.client, &["reship"], 60);
    let of_both = ask(&app.client, &["reship", "ship"], 60);
    let (_, ship) = app.held("ship", "1").await;
    let (_, reship) = app.held("reship", "2").await;
    let ((other, of_both), ()) = join(join(other, of_both), async {
        waiting(&app.client, 1).await;
        app.client.approve(&ship).await;
        waiting(&app.client, 0).await;
        app.client.approve(&reship).await;
    })
    .await;
    assert_eq!((Job::of(&other).unwrap().id, Job::of(&of_both).unwrap().id), (reship, ship));
}

#[tokio::test]
async fn on_postgres_calls_that_another_replica_approves_reach_all_waiting_claims() {
    let url = postgres().await;
    let start = async || {
        let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
        let mut tools = probes(&app.ledger);
        add_worker_tools(&mut tools, super::TIMEOUT);
        app.redeploy_with(tools, |config| config.approval.wait = Duration::ZERO).await
    };
    const CLAIMS: usize = 20;
    let (here, there) = (start().await, start().await);
    let mut held = BTreeSet::new();
    for n in 0..CLAIMS {
        held.insert(here.held("ship", &n.to_string()).await.1);
    }
    let began = Instant::now();
    let claims = join_all((0..CLAIMS).map(|_| ask(&there.client, &["ship"], 60)));
    let (answers, ()) = join(claims, async {
        waiting(&there.client, CLAIMS).await;
        for id in &held {
            here.client.approve(id).await.has_status(202);
        }
    })
    .await;
    let got: BTreeSet<_> = answers.iter().filter_map(Job::of).map(|job| job.id).collect();
    assert_eq!(got, held, "after {:?}", began.elapsed());
}

#[tokio::test]
async fn on_postgres_a_new_call_makes_few_waiting_claims_look_at_the_rows() {
    const CLAIMS: usize = 50;
    const CALLS: usize = 10;
    let cluster = Cluster::start();
    Statements::count_on(&cluster).await;
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let mut tools = probes(&app.ledger);
    add_worker_tools(&mut tools, super::TIMEOUT);
    let app = app.redeploy_with(tools, |config| config.approval.wait = Duration::ZERO).await;
    Statements::begin(&app.rows).await;
    let mut held = Vec::new();
    for n in 0..CALLS {
        held.push(app.held("ship", &n.to_string()).await.1);
    }
    Statements::reset(&app.rows).await;
    let looks = async || {
        let counted = Statements::counted(&app.rows).await.with(Purpose::Work);
        usize::try_from(counted.of("by_worker AND state")).unwrap()
    };
    let claims = join_all((0..CLAIMS).map(|_| ask(&app.client, &["ship"], 5)));
    let (answers, (looks, seconds)) = join(claims, async {
        waiting(&app.client, CLAIMS).await;
        let looked = async || (looks().await >= CLAIMS).then_some(());
        eventually("each claim has looked once", looked).await;
        Statements::reset(&app.rows).await;
        let began = Instant::now();
        for id in &held {
            app.client.approve(id).await.has_status(202);
        }
        waiting(&app.client, CLAIMS - CALLS).await;
        (looks().await, began.elapsed().as_secs())
    })
    .await;
    assert_eq!(answers.iter().filter_map(Job::of).count(), CALLS);
    // One look for each call, and a few more: each second one claim looks for calls of other processes, and so does
    // another one after each call found in this way, which may be the call of a claim that was woken for it and looks again.
    // If each call woke each claim, there would be some hundred looks.
    let most = 4 * CALLS + 2 * usize::try_from(seconds).unwrap() + 2;
    assert!(
        (CALLS..=most).contains(&looks),
        "{looks} looks for {CALLS} calls in {seconds} s with {CLAIMS} claims"
    );
}

#[tokio::test]
async fn waiting_claims_of_a_user_have_a_limit_of_their_own() {
    let app = super::start_with(super::TIMEOUT, |config| config.limits.claims_per_user = Some(2)).await;
    let (answers, ()) = join(join_all((0..2).map(|_| ask(&app.client, &["ship"], 60))), async {
        waiting(&app.client, 2).await;
        let refused = ask(&app.client, &["pack"], 60).await;
        assert_eq!((code(&refused), refused.header("retry-after")), ((429, "rate_limited"), Some("5")));
        assert!(refused.message().contains("2 waiting claims"), "{}", refused.message());
        assert!(nothing(&app.client, "ship").await, "a claim that does not wait has no limit");
        for n in 0..2 {
            let (_, id) = app.held("ship", &n.to_string()).await;
            app.client.approve(&id).await;
        }
    })
    .await;
    assert_eq!(answers.iter().filter_map(Job::of).count(), 2);
    assert!(Job::of(&ask(&app.client, &["ship"], 1).await).is_none(), "an ended claim leaves its place");
}
