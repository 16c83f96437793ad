//! An idempotent tool is retried after a crash cut it off: with the same key, at most three attempts in all,
//! and never after a cancel request.

use holdpoint::config::Config;
use holdpoint_testkit::{
    Deployment, Embedded, JsonFields, Process, SPOILT, UNKNOWN, call, eventually, probes, stricter,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Longer ago than any lease.
const LONG_AGO: &str = "1000000";

/// The line that the ledger of a place has for an attempt at the call.
fn attempt(words: &str, n: u32, id: &str) -> String {
    format!("{words} attempt {n} key {id}")
}

/// A server that runs an approved `restock`, which waits. Returns the server, the thread and the call.
async fn in_mid_restock(deployment: &Deployment, settings: &[(&str, &str)]) -> (Process, String, String) {
    let server = deployment.start_with("0s", settings);
    let thread = server.client.thread().await;
    let id = deployment.hold_of(&server.client, &thread, "restock 10").await;
    server.client.approve(&id).await.has_status(202);
    deployment.wait_started(&[&attempt("restock 10", 1, &id)]).await;
    (server, thread, id)
}

async fn events_of(deployment: &Deployment, id: &str) -> Vec<(String, Value)> {
    let sql = format!("SELECT type, data FROM events WHERE tool_call_id = '{id}' ORDER BY at, event_id");
    let rows = deployment.rows().await.all(&sql).await;
    let data = |row: &Value| serde_json::from_str(row.text("data")).unwrap();
    rows.iter().map(|row| (row.text("type").to_owned(), data(row))).collect()
}

#[tokio::test]
async fn an_idempotent_call_is_retried_with_the_same_key_after_a_kill_and_the_model_reads_it() {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = in_mid_restock(&deployment, &[]).await;
    server.kill();
    let server = deployment.start("30s");
    let (first, second) = (attempt("restock 10", 1, &id), attempt("restock 10", 2, &id));
    deployment.wait_started(&[&first, &second]).await;
    assert_eq!(server.client.call(&id).await["state"], "executing");
    deployment.release();
    let done = server.client.becomes(&id, "succeeded").await;
    assert_eq!((&done["output"], &done["validated"]), (&json!({ "attempt": 2 }), &json!(true)));
    assert_eq!(server.client.resume(&thread).await.text(), "{\"attempt\":2}");
    assert_eq!(deployment.ledger(), [first, second.clone(), format!("{second} done")]);

    let events = events_of(&deployment, &id).await;
    let types: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "tool.called",
        "tool.requires_approval",
        "tool.approved",
        "tool.started",
        "tool.interrupted",
        "tool.started",
        "tool.succeeded",
    ];
    assert_eq!(types, expected);
    let cut_off = json!({ "tool_name": "restock", "state": "approved", "attempt": 1 });
    assert_eq!(events[4].1, cut_off);
    assert_eq!((&events[3].1["attempt"], &events[5].1["attempt"]), (&json!(1), &json!(2)));
    let reported = deployment.rows().await.all("SELECT kind, text FROM sent_answers").await;
    assert_eq!(reported, [json!({ "kind": "answer", "text": "{\"attempt\":2}" })]);
}

#[tokio::test]
async fn an_idempotent_call_is_interrupted_and_not_retried_after_three_kills() {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = in_mid_restock(&deployment, &[]).await;
    let mut started = vec![attempt("restock 10", 1, &id)];
    for n in 2..=3 {
        server.kill();
        server = deployment.start("0s");
        started.push(attempt("restock 10", n, &id));
        deployment.wait_started(&started.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    server.kill();
    let server = deployment.start("0s");
    let call = server.client.becomes(&id, "interrupted").await;
    assert_eq!(call["result"], UNKNOWN);
    let attempts = deployment.rows().await.all("SELECT exec_attempt FROM tool_calls").await;
    assert_eq!(attempts, [json!({ "exec_attempt": 3 })]);
    deployment.release();
    assert_eq!(server.client.approve(&id).await.body["state"], "interrupted");
    assert!(server.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(deployment.ledger(), started);
}

#[tokio::test]
async fn an_ungated_idempotent_call_is_retried_without_its_turn() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let body = json!({ "content": "tidy 7" });
    let turn = server.client.begin(&thread, &body).await;
    let started = async || deployment.ledger().pop();
    let line = eventually("the tool has begun", started).await;
    let (_, id) = line.rsplit_once(' ').unwrap();
    assert_eq!(line, attempt("tidy 7", 1, id));
    server.kill();
    drop(turn);

    let server = deployment.start("0s");
    let again = attempt("tidy 7", 2, id);
    deployment.wait_started(&[&line, &again]).await;
    deployment.release();
    server.client.becomes(id, "succeeded").await;
    assert_eq!(server.client.resume(&thread).await.text(), "{\"attempt\":2}");
    assert_eq!(server.client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(deployment.ledger(), [line.clone(), again.clone(), format!("{again} done")]);
    let decided = deployment.rows().await.all("SELECT held, decided_by FROM tool_calls").await;
    assert_eq!(decided[0]["decided_by"], "system:policy");
}

#[tokio::test]
async fn a_process_that_shuts_down_leaves_the_retry_to_the_next() {
    let deployment = Deployment::new().await;
    let (mut server, _, id) = in_mid_restock(&deployment, &[("HOLDPOINT_SERVER__GRACE", "300ms")]).await;
    server.terminate();
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");
    let left = deployment.rows().await.all("SELECT state, exec_attempt, lease_until FROM tool_calls").await;
    assert_eq!(left, [json!({ "state": "approved", "exec_attempt": 1, "lease_until": null })]);
    deployment.release();
    let server = deployment.start("0s");
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], json!({ "attempt": 2 }));
}

#[tokio::test]
async fn on_postgres_exactly_one_other_process_retries_the_call() {
    let deployment = Deployment::on_postgres().await;
    let (mut dead, thread, id) = in_mid_restock(&deployment, &[]).await;
    let others = [deployment.start("0s"), deployment.start("0s"), deployment.start("0s")];
    dead.kill();
    let (first, second) = (attempt("restock 10", 1, &id), attempt("restock 10", 2, &id));
    deployment.wait_started(&[&first, &second]).await;
    deployment.release();
    others[0].client.becomes(&id, "succeeded").await;
    assert_eq!(others[1].client.resume(&thread).await.text(), "{\"attempt\":2}");
    assert_eq!(deployment.ledger(), [first, second.clone(), format!("{second} done")]);
}

#[tokio::test]
async fn on_postgres_the_late_end_of_a_paused_attempt_changes_nothing_after_a_retry_elsewhere() {
    let deployment = Deployment::on_postgres().await;
    let (paused, _, id) = in_mid_restock(&deployment, &[]).await;
    let other = deployment.start("0s");
    paused.pause();
    let (first, second) = (attempt("restock 10", 1, &id), attempt("restock 10", 2, &id));
    deployment.wait_started(&[&first, &second]).await;
    deployment.release();
    let done = other.client.becomes(&id, "succeeded").await;
    paused.resume();
    let ends = format!("{first} done");
    eventually("the paused one ends too", async || deployment.ledger().contains(&ends).then_some(())).await;
    drop(paused.finish());
    assert_eq!(other.client.call(&id).await, done);
    let events = events_of(&deployment, &id).await;
    assert_eq!(events.iter().filter(|(name, _)| name == "tool.succeeded").count(), 1);
}

/// A server that sweeps often, on which only an approval begins a call.
async fn patient() -> Embedded {
    Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
        config.approval.wait = Duration::ZERO;
        // Its tools do not stop, and are not abandoned within a test.
        config.tools.cancel_grace = Duration::from_secs(3600);
    })
    .await
}

/// Ends the lease of the call's execution, so that the sweeper reaps it.
async fn lapse(app: &Embedded, id: &str) {
    let lapse = format!("UPDATE tool_calls SET lease_until = {LONG_AGO} WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&lapse).await, Ok(1));
}

/// Ends the lease of a call that was signalled to stop until the sweeper reaps it. The process renews the
/// lease when it handles the signal, possibly after this function began.
async fn lapse_while_stopping(app: &Embedded, id: &str) {
    let executing = format!("tool_call_id = '{id}' AND state = 'executing'");
    let lapse = format!("UPDATE tool_calls SET lease_until = {LONG_AGO} WHERE {executing}");
    let ended = async || {
        app.rows.change(&lapse).await.unwrap();
        (app.rows.count(&format!("tool_calls WHERE {executing}")).await == 0).then_some(())
    };
    eventually(&format!("{id} is not executing"), ended).await;
}

/// An approved `restock` whose first execution was reaped and whose second has not started.
async fn cut_off(app: &Embedded) -> (String, String) {
    cut_off_with(app, "10", &json!({})).await
}

/// The same with this note and these further fields of the approval.
async fn cut_off_with(app: &Embedded, note: &str, more: &Value) -> (String, String) {
    let (thread, id) = app.held("restock", note).await;
    let mut yes = json!({ "toolCallId": id, "isValidated": true });
    yes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app.client.validate(&yes).await.has_status(202);
    app.ledger.wait_started().await;
    lapse(app, &id).await;
    app.client.becomes(&id, "approved").await;
    (thread, id)
}

/// Ends the time in which the call may begin again.
async fn too_late(app: &Embedded, id: &str) {
    let over = format!("UPDATE tool_calls SET start_deadline = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
}

/// A `tidy` that a turn runs. Its stream is not read. Returns the thread and the call.
async fn in_mid_tidy(app: &Embedded) -> (String, String) {
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "tidy", &json!({ "note": "7" }))]);
    drop(app.client.begin(&thread, &json!({ "content": "tidy up" })).await);
    app.ledger.wait_started().await;
    let found = app.rows.all("SELECT tool_call_id FROM tool_calls").await;
    (thread, found[0].text("tool_call_id").to_owned())
}

/// The lease of the eager server, whose sweeper begins an approved call once the decision is older than this
/// lease.
const EAGER_LEASE: Duration = Duration::from_secs(3);

fn eager(config: &mut Config) {
    config.approval.sweep = Duration::from_millis(20);
    config.approval.lease = EAGER_LEASE;
    config.approval.wait = Duration::ZERO;
}

/// Waits until the eager sweeper may begin the call.
async fn is_due(app: &Embedded, id: &str) {
    let now = if app.rows.is_postgres() {
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    } else {
        "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
    };
    let lease = EAGER_LEASE.as_micros();
    let due = format!("tool_calls WHERE tool_call_id = '{id}' AND decided_at + {lease} < {now}");
    eventually("the call is due", async || (app.rows.count(&due).await == 1).then_some(())).await;
}

/// Waits until the sweeper has completed a whole pass.
async fn swept(app: &Embedded) {
    for note in ["a", "b", "c"] {
        let (_, id) = app.held("restock", note).await;
        let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
        assert_eq!(app.rows.change(&over).await, Ok(1));
        app.client.becomes(&id, "expired").await;
    }
}

#[tokio::test]
async fn a_repeated_approval_retries_the_call_and_the_first_attempt_ends_too_late() {
    let app = patient().await;
    let (thread, id) = cut_off(&app).await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    // The first attempt has waited for longer, so it gets the permit.
    app.ledger.release.add_permits(1);
    let let_go = async || (app.ledger.release.available_permits() == 0).then_some(());
    eventually("the first goes on", let_go).await;
    assert_eq!(app.client.call(&id).await["state"], "executing");
    app.ledger.release.add_permits(1);
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "attempt": 2 }));
    app.scene.answers("Done.");
    assert_eq!(app.client.resume(&thread).await.text(), "Done.");
    let lines = [1, 2].map(|n| attempt("restock 10", n, &id));
    assert_eq!(app.ledger.lines(), lines);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_execution_that_may_be_retried_is_counted_as_repeatable() {
    let app = patient().await;
    cut_off(&app).await;
    let scrape =
        async || app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
    for sample in [
        "holdpoint_tool_calls_total{tool=\"restock\",state=\"approved\"} 2",
        "holdpoint_tool_calls_total{tool=\"restock\",state=\"executing\"} 1",
        "holdpoint_sweeper_actions_total{action=\"repeatable\"} 1",
    ] {
        // The counts follow the commit that shows the state.
        let counted = async || scrape().await.contains(&format!("{sample}\n")).then_some(());
        eventually(sample, counted).await;
    }
    let scrape = scrape().await;
    assert!(!scrape.contains("state=\"interrupted\"} 1"), "{scrape}");
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_cancelled_call_is_not_retried_and_its_outcome_is_unknown() {
    let app = patient().await;
    let (thread, id) = cut_off(&app).await;
    let cancelled = app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    let unknown = json!({ "success": false, "tool_call_id": id, "state": "interrupted" });
    assert_eq!((cancelled.status, &cancelled.body), (200, &unknown));
    assert_eq!(app.client.approve(&id).await.body["state"], "interrupted");
    app.ledger.release.add_permits(1);
    // The first execution is alive and is the last one: its outcome counts.
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], json!({ "attempt": 1 }));
    app.scene.answers("Done.");
    assert_eq!(app.client.resume(&thread).await.text(), "Done.");
    assert_eq!(app.ledger.lines(), [attempt("restock 10", 1, &id)]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_with_a_cancel_request_is_not_retried_when_it_is_cut_off() {
    let app = patient().await;
    let (_, id) = app.held("restock", "10").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    let wish = format!(
        "UPDATE tool_calls SET cancel_requested_at = created_at, lease_until = {LONG_AGO}
         WHERE tool_call_id = '{id}'"
    );
    assert_eq!(app.rows.change(&wish).await, Ok(1));
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_of_a_deleted_thread_is_not_retried() {
    let app = patient().await;
    let (thread, id) = cut_off(&app).await;
    let (other, running) = app.held("restock", "11").await;
    app.client.approve(&running).await.has_status(202);
    app.ledger.wait_started().await;
    for thread in [thread, other] {
        app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    }
    lapse_while_stopping(&app, &running).await;
    let both = "tool_calls WHERE state = 'interrupted' AND exec_attempt = 1";
    let ended = async || (app.rows.count(both).await == 2).then_some(());
    eventually(&format!("{id} and {running} are interrupted"), ended).await;
    app.ledger.release.add_permits(2);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_of_a_cancelled_run_is_not_retried() {
    let app = patient().await;
    let (thread, id) = in_mid_tidy(&app).await;
    let run = app.client.get(&format!("/threads/{thread}")).await.body["active_run_id"].clone();
    let run = format!("/runs/{}", run.as_str().unwrap());
    app.client.post(&format!("{run}/cancel"), &Value::Null).await;
    let stopped = async || (app.client.get(&run).await.body["status"] == "cancelled").then_some(());
    eventually("the run is cancelled", stopped).await;
    assert_eq!(app.client.call(&id).await["state"], "executing", "the tool keeps running");
    lapse_while_stopping(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_of_a_run_with_a_cancel_request_is_not_retried() {
    let app = patient().await;
    let (_, id) = in_mid_tidy(&app).await;
    assert_eq!(app.rows.change("UPDATE runs SET cancel_requested_at = created_at").await, Ok(1));
    lapse(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_of_a_regenerated_answer_is_not_retried() {
    let app = patient().await;
    let (thread, id) = in_mid_tidy(&app).await;
    let dead = format!("UPDATE runs SET lease_until = {LONG_AGO}");
    assert_eq!(app.rows.change(&dead).await, Ok(1));
    let closed = async || (app.rows.count("runs WHERE status = 'failed'").await == 1).then_some(());
    eventually("the turn is closed", closed).await;
    app.scene.answers("All is tidy.");
    let again = json!({ "messages": [{ "role": "user", "content": "tidy up" }] });
    assert_eq!(app.client.turn(&thread, &again).await.text(), "All is tidy.");
    assert_eq!(app.rows.count("messages WHERE superseded_at IS NOT NULL").await, 1);
    lapse_while_stopping(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_that_is_not_retried_in_time_has_an_unknown_outcome() {
    let app = patient().await;
    let (thread, id) = cut_off(&app).await;
    too_late(&app, &id).await;
    let call = app.client.becomes(&id, "interrupted").await;
    assert_eq!((&call["result"], &call["validated"]), (&json!(UNKNOWN), &json!(true)));
    app.scene.answers("Nobody knows.");
    assert_eq!(app.client.resume(&thread).await.text(), "Nobody knows.");
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_model_reads_that_a_person_edited_an_interrupted_call() {
    let app = patient().await;
    let edit = json!({ "validatedInputs": { "note": "9" } });
    let (_, late) = cut_off_with(&app, "10", &edit).await;
    let (_, cancelled) = cut_off_with(&app, "11", &edit).await;
    too_late(&app, &late).await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &Value::Null).await;
    for (id, requested) in [(late, "10"), (cancelled, "11")] {
        let call = app.client.becomes(&id, "interrupted").await;
        let reported = format!(
            "A person changed the inputs from {{\"note\":\"{requested}\"}} to {{\"note\":\"9\"}} before approving. {UNKNOWN}"
        );
        assert_eq!(call["result"], reported);
    }
    app.ledger.release.add_permits(2);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_failed_retry_leaves_the_outcome_of_the_first_attempt_unknown() {
    let app = patient().await;
    let (thread, id) = cut_off_with(&app, SPOILT, &json!({})).await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    app.ledger.release.add_permits(2);
    let call = app.client.becomes(&id, "interrupted").await;
    let reported = format!("{UNKNOWN} Begun again, the tool failed: the key is in use");
    assert_eq!(call["result"], reported);
    app.scene.answers("Nobody knows.");
    assert_eq!(app.client.resume(&thread).await.text(), "Nobody knows.");
    let sent = app.rows.all("SELECT kind, text FROM sent_answers").await;
    assert_eq!(sent, [json!({ "kind": "answer", "text": reported })]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_server_whose_tool_is_not_idempotent_does_not_retry_the_call() {
    let app = patient().await;
    let (_, id) = cut_off(&app).await;
    app.ledger.release.add_permits(1);
    let tools = stricter(&app.ledger);
    let app = app.redeploy_with(tools, eager).await;
    is_due(&app, &id).await;
    swept(&app).await;
    app.client.approve(&id).await.has_status(202);
    swept(&app).await;
    assert_eq!(app.client.call(&id).await["state"], "approved");
    too_late(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert_eq!(app.ledger.lines(), [attempt("restock 10", 1, &id)]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_server_whose_tool_requires_approval_does_not_retry_an_ungated_call() {
    let app = patient().await;
    let (_, id) = in_mid_tidy(&app).await;
    lapse(&app, &id).await;
    app.client.becomes(&id, "approved").await;
    app.ledger.release.add_permits(1);
    let tools = stricter(&app.ledger);
    let app = app.redeploy_with(tools, eager).await;
    is_due(&app, &id).await;
    swept(&app).await;
    assert_eq!(app.client.call(&id).await["state"], "approved");
    too_late(&app, &id).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert_eq!(app.ledger.lines(), [attempt("tidy 7", 1, &id)]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_that_times_out_is_not_retried() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.tools.timeout = Duration::from_millis(50);
    })
    .await;
    let (_, id) = app.held("restock", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has(200, "state", "interrupted");
    assert_eq!(app.ledger.lines(), [attempt("restock 10", 1, &id)]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_surviving_turn_reads_the_outcome_of_a_retried_call_as_a_note() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "tidy", &json!({ "note": "7" }))]).answers("I do not know yet.");
    let started = async {
        app.ledger.wait_started().await;
        let dead = format!("UPDATE tool_calls SET lease_until = {LONG_AGO}");
        assert_eq!(app.rows.change(&dead).await, Ok(1));
        let cut_off =
            async || (app.rows.count("tool_calls WHERE state = 'approved'").await == 1).then_some(());
        eventually("the execution is taken for dead", cut_off).await;
        app.ledger.release.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "tidy up"), started);
    assert_eq!(
        (turn.codes().contains('a'), turn.text().as_str()),
        (false, "I do not know yet."),
        "{}",
        turn.raw
    );

    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, eager).await;
    app.ledger.release.add_permits(1);
    let settled = async || (app.rows.count("tool_calls WHERE state = 'succeeded'").await == 1).then_some(());
    eventually("the second settles", settled).await;
    app.scene.answers("Now I do.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "Now I do.");
    let reported = app.rows.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    assert_eq!(reported[0]["kind"], "placeholder");
    let note = "[tool outcome] tidy, call a: {\"attempt\":2}";
    assert_eq!(reported[1..], [json!({ "kind": "note", "text": note })]);
    app.rows.assert_counted().await;
}
