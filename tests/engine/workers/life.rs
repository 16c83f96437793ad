//! The life of a call that a worker executes.

use super::{Job, approved, ask, claim, cleared, nothing, start, start_with};
use futures::future::join;
use holdpoint_testkit::runs::{last_words, run_becomes};
use holdpoint_testkit::{Answer, Embedded, JsonFields, add_agents, call, probes};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_approved_call_runs_through_a_worker_and_the_conversation_continues() {
    let app = start().await;
    let (thread, id) = app.held("ship", "10").await;
    assert!(nothing(&app.client, "ship").await, "a held call is not handed out");
    app.client.approve(&id).await.has_status(202);
    assert_eq!(app.client.call(&id).await["state"], "approved");

    let answer = ask(&app.client, &["pack", "ship"], 0).await;
    let job = Job::of(&answer).unwrap();
    let run = app.client.call(&id).await["run_id"].clone();
    let expected = json!({
        "tool_call_id": id, "tool_name": "ship", "input": { "note": "10" },
        "requester": { "tenant_id": "default", "user_id": "local" },
        "thread_id": thread, "session_id": thread, "run_id": run,
        "approved_by": ["user:local"], "attempt": 1, "idempotency_key": id,
    });
    assert_eq!(job.call, expected);
    assert_eq!(answer.body["claim"]["lease_ms"], 30_000);
    assert_eq!(app.client.call(&id).await["state"], "executing");
    assert!(nothing(&app.client, "ship").await, "a call is handed out once");

    let renewed = job.renew(&app.client).await;
    renewed.has(200, "cancel_requested", false);
    let settled = job.succeed(&app.client, &json!({ "shipped": [1.5, null] })).await;
    assert_eq!(settled.body, json!({ "tool_call_id": id, "state": "succeeded" }));
    let call = app.client.call(&id).await;
    assert_eq!((&call["output"], &call["validated"]), (&json!({ "shipped": [1.5, null] }), &json!(true)));
    app.scene.answers("Shipped.");
    assert_eq!(app.client.resume(&thread).await.text(), "Shipped.");

    let sql =
        format!("SELECT type, actor, data FROM events WHERE tool_call_id = '{id}' ORDER BY at, event_id");
    let events = app.rows.all(&sql).await;
    let types: Vec<_> = events.iter().map(|event| event.text("type")).collect();
    let expected =
        ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.succeeded"];
    assert_eq!(types, expected);
    let started: Value = serde_json::from_str(events[3].text("data")).unwrap();
    assert_eq!(started, json!({ "tool_name": "ship", "attempt": 1, "worker": "user:local" }));
}

#[tokio::test]
async fn a_decision_waits_for_the_outcome_of_the_worker() {
    let app = start_with(super::TIMEOUT, |config| config.approval.wait = Duration::from_secs(30)).await;
    let (_, id) = app.held("ship", "10").await;
    let work = async {
        let job = Job::of(&ask(&app.client, &["ship"], 30).await).unwrap();
        job.succeed(&app.client, &json!("done")).await
    };
    let (decided, settled) = join(app.client.approve(&id), work).await;
    decided.has(200, "state", "succeeded");
    assert_eq!((&decided.body["result"], settled.status), (&json!("done"), 200));
}

#[tokio::test]
async fn a_cleared_call_waits_for_a_worker_and_the_server_resumes_its_run() {
    let app = start().await;
    let (thread, id) = cleared(&app, "pack", "7").await;
    let run = app.client.run_of(&id).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["held"]), (&json!("approved"), &json!(false)));
    assert_eq!((&call["decision"]["by"], &call["validated"]), (&json!("system:policy"), &json!(true)));

    app.scene.answers("Packed.");
    let job = claim(&app.client, "pack").await;
    assert_eq!((&job.id, &job.call["approved_by"]), (&id, &json!([])));
    job.succeed(&app.client, &json!("a box")).await;
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Packed.");
    let sql = format!("SELECT type FROM events WHERE tool_call_id = '{id}' ORDER BY at, event_id");
    let events = app.rows.all(&sql).await;
    let types: Vec<_> = events.iter().map(|event| event.text("type")).collect();
    assert_eq!(types, ["tool.called", "tool.approved", "tool.started", "tool.succeeded"]);
}

#[tokio::test]
async fn a_step_with_a_cleared_call_of_a_worker_and_one_of_the_server_waits_for_both() {
    let app = start().await;
    let thread = app.client.thread().await;
    let note = json!({ "note": "1" });
    app.scene.calls(&[call("a", "look", &note), call("b", "pack", &note)]);
    app.client.send_message(&thread, "look and pack").await;
    assert_eq!(app.ledger.lines(), ["look 1"]);
    let job = claim(&app.client, "pack").await;
    let run = app.client.run_of(&job.id).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    app.scene.answers("Both.");
    job.succeed(&app.client, &json!(null)).await;
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Both.");
}

#[tokio::test]
async fn a_held_call_beside_a_cleared_one_still_waits_for_its_decision() {
    let app = start().await;
    let thread = app.client.thread().await;
    let note = json!({ "note": "1" });
    app.scene.calls(&[call("a", "ship", &note), call("b", "pack", &note)]);
    let held = app.client.send_message(&thread, "ship and pack").await.pending();
    let [held] = &held[..] else { panic!("{held:?}") };
    claim(&app.client, "pack").await.succeed(&app.client, &json!(1)).await;
    let run = app.client.run_of(held).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    app.client.approve(held).await;
    claim(&app.client, "ship").await.succeed(&app.client, &json!(2)).await;
    app.scene.answers("Both.");
    assert_eq!(app.client.resume(&thread).await.text(), "Both.");
}

#[tokio::test]
async fn a_child_of_a_sub_agent_waits_for_a_worker_and_continues() {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    add_agents(&mut tools);
    super::add_worker_tools(&mut tools, super::TIMEOUT);
    let app = app.redeploy(tools).await;
    let note = |note: &str| json!({ "note": note });
    app.scene.calls(&[call("h", "helper", &note("pack it"))]).calls(&[call("p", "pack", &note("7"))]);
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "get it packed").await;
    let helper = turn.one('9').text("toolCallId").to_owned();
    let job = Job::of(&ask(&app.client, &["pack"], 30).await).unwrap();
    let child = app.client.call(&job.id).await;
    assert_eq!([&job.call["thread_id"], &job.call["run_id"]], [&child["thread_id"], &child["run_id"]]);
    assert_ne!(job.call["thread_id"], json!(thread));
    assert_eq!(job.call["session_id"], json!(thread), "the session is the root thread");
    app.scene.answers("It is packed.").answers("All done.");
    job.succeed(&app.client, &json!("a box")).await;
    assert_eq!(app.client.becomes(&helper, "succeeded").await["output"], "It is packed.");
    run_becomes(&app.client, &app.client.run_of(&helper).await, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "All done.");
}

#[tokio::test]
async fn a_worker_reports_a_failure_and_the_model_reads_the_reason() {
    let app = start().await;
    let (_, id) = approved(&app, "ship", "10").await;
    let job = claim(&app.client, "ship").await;
    let settled = job.settle(&app.client, &json!({ "outcome": "failed", "error": "no such address" })).await;
    assert_eq!(settled.body["state"], "failed");
    assert_eq!(app.client.call(&id).await["result"], "The tool failed: no such address");
}

#[tokio::test]
async fn a_claim_that_waits_gets_a_call_at_once_when_it_is_approved() {
    const ROUNDS: usize = 10;
    let app = start().await;
    let mut waits = Vec::new();
    for n in 0..ROUNDS {
        let (_, id) = app.held("ship", &n.to_string()).await;
        let approve = async {
            // The claim has started to wait.
            let waits = async || {
                let metrics = app.client.http.get(app.client.url("/metrics")).send().await.unwrap();
                let metrics = metrics.text().await.unwrap();
                metrics.contains("holdpoint_worker_claims_waiting{tool=\"ship\"} 1").then_some(())
            };
            holdpoint_testkit::eventually("the claim waits", waits).await;
            app.client.approve(&id).await;
            Instant::now()
        };
        let wait = async { (ask(&app.client, &["ship"], 60).await, Instant::now()) };
        let (approved, (answer, answered)): (Instant, (Answer, Instant)) = join(approve, wait).await;
        assert_eq!(Job::of(&answer).unwrap().id, id);
        waits.push(answered.saturating_duration_since(approved));
    }
    // Looks without a signal are a second apart, so that a claim would wait for half of one on average.
    // A busy machine makes some rounds slow.
    waits.sort();
    assert!(waits[ROUNDS / 2] < Duration::from_millis(300), "{waits:?}");
}

#[tokio::test]
async fn a_claim_names_worker_tools_of_this_server_and_a_short_wait() {
    let app = start().await;
    for tool in ["pay", "nothing", "shi*"] {
        assert_eq!(super::code(&ask(&app.client, &["ship", tool], 0).await), (422, "unknown_tool"), "{tool}");
    }
    let many = vec!["ship"; 101];
    for body in [
        json!({}),
        json!({ "tools": [] }),
        json!({ "tools": many }),
        json!({ "tools": "ship" }),
        json!({ "tools": ["ship"], "wait": 61 }),
        json!({ "tools": ["ship"], "wait": -1 }),
        json!({ "tools": ["ship"], "wait": 1.5 }),
        json!({ "tools": ["ship"], "extra": 1 }),
    ] {
        assert_eq!(
            super::code(&app.client.post("/tool_calls/claim", &body).await),
            (400, "bad_request"),
            "{body}"
        );
    }
    assert!(Job::of(&ask(&app.client, &["ship", "pack"], 0).await).is_none());
}

#[tokio::test]
async fn a_report_has_exactly_what_belongs_to_its_outcome() {
    let app = start().await;
    approved(&app, "ship", "10").await;
    let job = claim(&app.client, "ship").await;
    for report in [
        json!({}),
        json!({ "outcome": "maybe" }),
        json!({ "outcome": "failed" }),
        json!({ "outcome": "failed", "error": "x", "result": 1 }),
        json!({ "outcome": "succeeded", "error": "x" }),
        json!({ "outcome": "unknown", "error": "x" }),
        json!({ "outcome": "unknown", "result": 1 }),
        json!({ "outcome": "succeeded", "result": "\u{0}" }),
    ] {
        assert_eq!(super::code(&job.settle(&app.client, &report).await), (400, "bad_request"), "{report}");
    }
    assert_eq!(job.settle(&app.client, &json!({ "outcome": "succeeded" })).await.body["state"], "succeeded");
    assert_eq!(app.client.call(&job.id).await["output"], json!(null));
}

#[tokio::test]
async fn a_tool_of_a_worker_is_listed_and_only_a_worker_can_claim_its_call() {
    let app = start().await;
    let tools = app.client.get("/tools").await.body;
    let named = |name: &str| tools.list("results").iter().any(|tool| tool["tool_name"] == name);
    assert!(named("ship") && named("pack"));
    approved(&app, "ship", "10").await;
    let owners = app.rows.all("SELECT by_worker, permit_hash, exec_owner FROM tool_calls").await;
    assert_eq!(owners[0]["permit_hash"], Value::Null);
    assert_eq!(owners[0]["exec_owner"], Value::Null);
}

/// Renews the lease with a report of progress.
async fn report(app: &Embedded, job: &Job, progress: &Value) -> Answer {
    let body = json!({ "permit": job.permit, "progress": progress });
    app.client.post(&format!("/tool_calls/{}/renew", job.id), &body).await
}

#[tokio::test]
async fn a_renewal_reports_the_progress_of_an_execution() {
    let app = start().await;
    let (_, id) = approved(&app, "ship", "10").await;
    let job = claim(&app.client, "ship").await;
    for (message, done) in [("packs", 1.0), ("weighs", 2.5)] {
        let renewed = report(&app, &job, &json!({ "message": message, "done": done, "total": 7 })).await;
        renewed.has(200, "cancel_requested", false);
        let shown = app.client.call(&id).await["progress"].clone();
        assert_eq!(
            (&shown["message"], &shown["done"], &shown["total"]),
            (&json!(message), &json!(done), &json!(7.0))
        );
    }
    // The second report came too soon to be an event.
    let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let types = events.list("results").iter().map(|event| event.text("type"));
    assert_eq!(types.filter(|it| *it == "tool.progressed").count(), 1, "{events}");
    // A report that says nothing costs no lease, and the last one stays.
    for empty in [json!({}), json!({ "message": " " }), json!({ "done": null })] {
        report(&app, &job, &empty).await.has(200, "cancel_requested", false);
        assert_eq!(app.client.call(&id).await["progress"]["message"], "weighs", "{empty}");
    }
    for wrong in [json!({ "note": "x" }), json!("packs")] {
        let refused = report(&app, &job, &wrong).await;
        assert!((400..=422).contains(&refused.status), "{wrong}: {:?}", refused.body);
        assert!(refused.body.to_string().contains("progress"), "{wrong}: {:?}", refused.body);
    }
    job.succeed(&app.client, &json!("done")).await;
    report(&app, &job, &json!({ "message": "late" })).await.has_status(409);
    assert_eq!(app.client.call(&id).await["progress"]["message"], "weighs");
    assert_eq!(app.rows.count("events WHERE type = 'tool.progressed'").await, 1);
}

#[tokio::test]
async fn an_execution_that_begins_again_begins_without_progress() {
    let app = super::impatient(super::TIMEOUT).await;
    let (_, id) = approved(&app, "reship", "10").await;
    let job = claim(&app.client, "reship").await;
    report(&app, &job, &json!({ "message": "packs" })).await.has_status(200);
    let again = app.client.becomes(&id, "approved").await;
    assert_eq!(again.get("progress"), None, "{again}");
    let job = claim(&app.client, "reship").await;
    assert_eq!(app.client.call(&id).await.get("progress"), None);
    job.succeed(&app.client, &json!("done")).await;
}
