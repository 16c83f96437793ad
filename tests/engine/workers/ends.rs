//! The ends of an execution: cancels, lost leases, late and repeated outcomes.

use super::{TIMEOUT, approved, claim, cleared, code, impatient, nothing, start};
use futures::future::join;
use holdpoint_testkit::runs::run_becomes;
use holdpoint_testkit::{Embedded, UNKNOWN, eventually};
use serde_json::json;
use std::time::Duration;

async fn cancel(app: &Embedded, id: &str) -> holdpoint_testkit::Answer {
    app.client.send(app.client.http.post(app.client.url(&format!("/tool_calls/{id}/cancel")))).await
}

#[tokio::test]
async fn a_worker_sees_a_cancel_when_it_renews_and_reports_what_is_true_then() {
    let app = start().await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    let cancelled = cancel(&app, &id).await;
    cancelled.has(202, "state", "executing");
    let first = job.renew(&app.client).await;
    first.has(200, "cancel_requested", true);
    let second = job.renew(&app.client).await;
    assert_eq!(first.body["lease_until"], second.body["lease_until"], "its lease is not extended any more");
    job.settle(&app.client, &json!({ "outcome": "failed", "error": "stopped in time" })).await;
    assert_eq!(app.client.call(&id).await["state"], "failed");
}

#[tokio::test]
async fn a_cancelled_call_whose_worker_is_silent_is_interrupted_and_not_repeated() {
    let app = impatient(TIMEOUT).await;
    let (_, id) = approved(&app, "reship", "1").await;
    claim(&app.client, "reship").await;
    cancel(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert!(nothing(&app.client, "reship").await);
}

#[tokio::test]
async fn a_call_that_waits_for_a_worker_can_be_cancelled() {
    let app = start().await;
    let (_, held) = approved(&app, "ship", "1").await;
    let (_, free) = cleared(&app, "pack", "2").await;
    for id in [&held, &free] {
        let cancelled = cancel(&app, id).await;
        cancelled.has(200, "success", true);
        assert_eq!(app.client.call(id).await["state"], "cancelled");
    }
    assert!(nothing(&app.client, "ship").await && nothing(&app.client, "pack").await);
}

#[tokio::test]
async fn a_cancelled_run_and_a_deleted_thread_take_their_waiting_calls_back() {
    let app = start().await;
    let (_, of_run) = cleared(&app, "pack", "1").await;
    let run = app.client.run_of(&of_run).await;
    let cancelled =
        app.client.send(app.client.http.post(app.client.url(&format!("/runs/{run}/cancel")))).await;
    assert_eq!(cancelled.body["status"], "cancelled");
    assert_eq!(app.client.call(&of_run).await["state"], "cancelled");
    let (thread, _) = cleared(&app, "pack", "2").await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert!(nothing(&app.client, "pack").await);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'cancelled'").await, 2);
}

#[tokio::test]
async fn a_late_outcome_still_settles_an_interrupted_call() {
    let app = impatient(TIMEOUT).await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert_eq!(code(&job.renew(&app.client).await), (409, "execution_over"));
    let late = job.succeed(&app.client, &json!("done after all")).await;
    late.has(200, "state", "succeeded");
    assert_eq!(app.client.call(&id).await["output"], "done after all");
}

#[tokio::test]
async fn the_same_outcome_is_accepted_again_and_another_one_is_refused() {
    let app = start().await;
    let reports = [
        json!({ "outcome": "succeeded", "result": { "a": 1, "b": [2] } }),
        json!({ "outcome": "failed", "error": "no" }),
        json!({ "outcome": "unknown" }),
    ];
    let states = ["succeeded", "failed", "interrupted"];
    for (n, (report, state)) in reports.iter().zip(states).enumerate() {
        approved(&app, "ship", &n.to_string()).await;
        let job = claim(&app.client, "ship").await;
        let first = job.settle(&app.client, report).await;
        assert_eq!((first.header("idempotent-replayed"), &first.body["state"]), (None, &json!(state)));
        let again = job.settle(&app.client, report).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(again.body, first.body);
        let others = reports.iter().filter(|other| *other != report);
        let other_results = [
            json!({ "outcome": "succeeded", "result": { "a": 1 } }),
            json!({ "outcome": "failed", "error": "another" }),
        ];
        // An unknown outcome may still become known.
        for other in others.chain(&other_results).filter(|_| state != "interrupted") {
            let refused = job.settle(&app.client, other).await;
            assert_eq!(code(&refused), (409, "execution_over"), "{other}");
            assert_eq!(refused.body["error"]["details"]["state"], state);
        }
        assert_eq!(app.client.call(&job.id).await["state"], state);
    }
    let reordered = json!({ "outcome": "succeeded", "result": { "b": [2.0], "a": 1 } });
    approved(&app, "ship", "last").await;
    let job = claim(&app.client, "ship").await;
    job.settle(&app.client, &reports[0]).await;
    assert_eq!(job.settle(&app.client, &reordered).await.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn outcomes_that_arrive_at_once_settle_a_call_once() {
    let app = start().await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    let failed = json!({ "outcome": "failed", "error": "no" });
    let (one, other) = join(job.succeed(&app.client, &json!(1)), job.settle(&app.client, &failed)).await;
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    let ends = format!("events WHERE tool_call_id = '{id}' AND type IN ('tool.succeeded', 'tool.failed')");
    assert_eq!(app.rows.count(&ends).await, 1);
}

#[tokio::test]
async fn an_idempotent_call_is_handed_out_again_at_most_three_times_with_the_same_key() {
    let app = impatient(TIMEOUT).await;
    let (_, id) = approved(&app, "reship", "1").await;
    let mut before: Option<super::Job> = None;
    for attempt in 1..=3 {
        let next = async || super::Job::of(&super::ask(&app.client, &["reship"], 0).await);
        let job = eventually("the call is handed out", next).await;
        assert_eq!((&job.id, &job.call["attempt"]), (&id, &json!(attempt)));
        assert_eq!(job.call["idempotency_key"], json!(id));
        if let Some(before) = before.replace(job.clone()) {
            assert_ne!(before.permit, job.permit);
            assert_eq!(code(&before.renew(&app.client).await), (404, "not_found"));
            assert_eq!(code(&before.succeed(&app.client, &json!(1)).await), (404, "not_found"));
        }
    }
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert!(nothing(&app.client, "reship").await);
    let failed = json!({ "outcome": "failed", "error": "the key is in use" });
    let job = before.unwrap();
    assert_eq!(code(&job.settle(&app.client, &failed).await), (409, "execution_over"));
    assert_eq!(job.succeed(&app.client, &json!("done")).await.body["state"], "succeeded");
}

#[tokio::test]
async fn an_unknown_outcome_repeats_an_idempotent_call_only() {
    let app = start().await;
    let unknown = json!({ "outcome": "unknown" });
    approved(&app, "ship", "1").await;
    let once = claim(&app.client, "ship").await;
    assert_eq!(once.settle(&app.client, &unknown).await.body["state"], "interrupted");
    approved(&app, "reship", "1").await;
    let first = claim(&app.client, "reship").await;
    assert_eq!(first.settle(&app.client, &unknown).await.body["state"], "approved");
    assert_eq!(first.settle(&app.client, &unknown).await.header("idempotent-replayed"), Some("true"));
    let second = claim(&app.client, "reship").await;
    assert_eq!((&second.id, &second.call["attempt"]), (&first.id, &json!(2)));
    let failed = json!({ "outcome": "failed", "error": "the key is in use" });
    let settled = second.settle(&app.client, &failed).await;
    assert_eq!(settled.body["state"], "interrupted", "the first execution may have had its effect");
    assert_eq!(second.settle(&app.client, &failed).await.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn no_renewal_extends_an_execution_beyond_the_timeout_of_its_tool() {
    let app = impatient(Duration::from_secs(3)).await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    let over = async || {
        let renewed = job.renew(&app.client).await;
        (renewed.status != 200).then_some(renewed)
    };
    let refused = eventually("a renewal is refused", over).await;
    assert_eq!(code(&refused), (409, "execution_over"));
    app.client.becomes(&id, "interrupted").await;
    assert_eq!(app.rows.count("tool_calls WHERE finished_at - started_at >= 3000000").await, 1);
}

#[tokio::test]
async fn an_interrupted_cleared_call_resumes_its_run() {
    let app = impatient(TIMEOUT).await;
    let (_, id) = cleared(&app, "pack", "1").await;
    app.scene.answers("I do not know.");
    claim(&app.client, "pack").await;
    let run = app.client.run_of(&id).await;
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
}

#[tokio::test]
async fn a_fence_ends_calls_of_workers_and_a_late_outcome_still_settles_one() {
    let mut app = start().await;
    let (_, waits) = cleared(&app, "pack", "1").await;
    let (_, runs) = approved(&app, "ship", "2").await;
    let job = claim(&app.client, "ship").await;
    app.end().await;
    app.operate(&["fence", "--by", "mel"]).stdout_of_success();
    let mut tools = holdpoint_testkit::probes(&app.ledger);
    super::add_worker_tools(&mut tools, TIMEOUT);
    let app = app.redeploy(tools).await;
    assert_eq!(app.client.call(&waits).await["state"], "cancelled");
    assert_eq!(app.client.call(&runs).await["state"], "interrupted");
    assert!(nothing(&app.client, "pack").await);
    assert_eq!(job.succeed(&app.client, &json!("done")).await.body["state"], "succeeded");
}

#[tokio::test]
async fn an_operator_resolves_an_interrupted_call_of_a_worker() {
    let app = impatient(TIMEOUT).await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    app.client.becomes(&id, "interrupted").await;
    let resolved = app.operate(&["approvals", "resolve", &id, "--succeeded", "--by", "mel"]);
    resolved.stdout_of_success();
    assert_eq!(app.client.call(&id).await["state"], "succeeded");
    assert_eq!(code(&job.succeed(&app.client, &json!("mine")).await), (409, "execution_over"));
}
