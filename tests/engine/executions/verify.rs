//! Verification: the server asks the tool for the outcome of an interrupted call until the tool knows it, and
//! reports it as a late outcome.

use holdpoint::config::Config;
use holdpoint_testkit::{
    Deployment, Embedded, JsonFields, Ledger, Question, Report, Service, UNKNOWN, eventually,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Longer ago than any lease.
const LONG_AGO: &str = "1000000";

/// A server with a verifiable tool. It sweeps often, and its leases expire only when a test ends them.
async fn with(service: &Service, change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let tools = service.tools(&app.ledger);
    app.redeploy_with(tools, |config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
        config.approval.wait = Duration::ZERO;
        // No execution is abandoned before the test ends.
        config.server.grace = Duration::from_secs(3600);
        change(config);
    })
    .await
}

/// A call whose execution was reaped, and its thread. The tool still waits for its permit.
async fn cut_off(app: &Embedded, note: &str) -> (String, String) {
    let (thread, id) = app.held("courier", note).await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    let lapse = format!("UPDATE tool_calls SET lease_until = {LONG_AGO} WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&lapse).await, Ok(1));
    (thread, id)
}

/// The same, where the service does not know the outcome either.
async fn interrupted(app: &Embedded, note: &str) -> (String, String) {
    let (thread, id) = cut_off(app, note).await;
    assert_eq!(app.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    (thread, id)
}

async fn wait_for_repeated_request(service: &Service, id: &str, times: usize) {
    let until = service.requests_about(id) + times;
    let is_requested = async || (service.requests_about(id) >= until).then_some(());
    eventually("the service is asked again", is_requested).await;
}

/// The settling events of a call, with their actors.
async fn ends(app: &Embedded, id: &str) -> Vec<(String, String, Value)> {
    let sql = format!(
        "SELECT type, actor, data FROM events WHERE tool_call_id = '{id}'
         AND type IN ('tool.interrupted', 'tool.succeeded', 'tool.failed') ORDER BY at, event_id"
    );
    let text = |row: &Value, column: &str| row[column].as_str().unwrap().to_owned();
    let event = |row: &Value| {
        (text(row, "type"), text(row, "actor"), serde_json::from_str(&text(row, "data")).unwrap())
    };
    app.rows.all(&sql).await.iter().map(event).collect()
}

#[tokio::test]
async fn a_verified_outcome_settles_an_interrupted_call_and_the_model_reads_it_as_a_note() {
    let service = Service::that_reports(Report::Nothing);
    let app = with(&service, |_| {}).await;
    let (thread, id) = interrupted(&app, "10").await;
    app.scene.answers("Nobody knows.");
    assert_eq!(app.client.resume(&thread).await.text(), "Nobody knows.");

    service.now_reports(Report::Happened(json!({ "delivered": "at noon" })));
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "delivered": "at noon" }));
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    let question = Question { key: id.clone(), tenant_id: "default".to_owned(), user_id: "local".to_owned() };
    assert!(
        service.requests().iter().all(|is_requested| *is_requested == question),
        "{:?}",
        service.requests()
    );
    let by_whom = ends(&app, &id).await;
    let unknown = json!({ "tool_name": "courier", "state": "interrupted" });
    let known = json!({ "tool_name": "courier", "state": "succeeded", "surface": "sweeper" });
    let sweeper = || "system:sweeper".to_owned();
    let expected = [
        ("tool.interrupted".to_owned(), sweeper(), unknown),
        ("tool.succeeded".to_owned(), sweeper(), known),
    ];
    assert_eq!(by_whom, expected);

    app.scene.answers("So it did.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "So it did.");
    app.scene.answers("Yes.");
    assert_eq!(app.client.send_message(&thread, "really?").await.text(), "Yes.");
    let stored = app.rows.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    let note = "[tool outcome] courier, call p-10: {\"delivered\":\"at noon\"}";
    let expected = [json!({ "kind": "answer", "text": UNKNOWN }), json!({ "kind": "note", "text": note })];
    assert_eq!(stored, expected);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_late_end_of_an_execution_changes_nothing_after_the_verification() {
    let service = Service::that_reports(Report::Happened(json!({ "delivered": "at noon" })));
    let app = with(&service, |_| {}).await;
    let (thread, id) = cut_off(&app, "10").await;
    let call = app.client.becomes(&id, "succeeded").await;
    app.ledger.release.add_permits(1);
    // A server that shuts down lets running executions finish and write.
    let app = app.redeploy(service.tools(&Ledger::new())).await;
    assert_eq!(app.ledger.release.available_permits(), 0, "the tool ended");
    assert_eq!(app.client.call(&id).await, call);
    assert_eq!(ends(&app, &id).await.len(), 2);
    app.scene.answers("At noon.");
    assert_eq!(app.client.resume(&thread).await.text(), "At noon.");
    let stored = app.rows.all("SELECT kind, text FROM sent_answers").await;
    assert_eq!(stored, [json!({ "kind": "answer", "text": "{\"delivered\":\"at noon\"}" })]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_verification_changes_nothing_after_the_late_end_of_the_execution() {
    let service = Service::that_reports(Report::Waits(json!({ "delivered": "at noon" })));
    let app = with(&service, |_| {}).await;
    let (_, id) = interrupted(&app, "10").await;
    let is_requested = async || (service.requests_about(&id) == 1).then_some(());
    eventually("the service is asked", is_requested).await;
    app.ledger.release.add_permits(1);
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "delivered": "10" }));
    service.release.add_permits(1);
    // Another call, verified later, is settled.
    let (_, other) = interrupted(&app, "11").await;
    service.release.add_permits(1);
    app.client.becomes(&other, "succeeded").await;
    assert_eq!(app.client.call(&id).await, call);
    assert_eq!(ends(&app, &id).await.len(), 2);
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_whose_effect_never_happened_and_never_will_fails() {
    let service = Service::that_reports(Report::NeverHappened);
    let app = with(&service, |_| {}).await;
    let (thread, id) = cut_off(&app, "10").await;
    let call = app.client.becomes(&id, "failed").await;
    let words = "The tool failed: it was cut off. Asked about it later, it says that nothing happened and nothing will.";
    assert_eq!((&call["result"], &call["validated"]), (&json!(words), &json!(true)));
    assert!(call["started_at"].is_string());
    app.scene.answers("Nothing happened.");
    assert_eq!(app.client.resume(&thread).await.text(), "Nothing happened.");
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn verification_is_retried_until_the_tool_knows_the_outcome() {
    let service = Service::that_reports(Report::Nothing);
    let app = with(&service, |config| config.tools.timeout = Duration::from_millis(500)).await;
    let (thread, id) = interrupted(&app, "10").await;
    for says in [Report::Nothing, Report::Fails, Report::Breaks, Report::Waits(Value::Null)] {
        service.now_reports(says);
        wait_for_repeated_request(&service, &id, 3).await;
        assert_eq!(app.client.call(&id).await["state"], "interrupted");
    }
    service.now_reports(Report::Happened(Value::Null));
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], Value::Null);
    app.scene.answers("Delivered.");
    assert_eq!(app.client.resume(&thread).await.text(), "Delivered.");
    app.ledger.release.add_permits(1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_slow_verification_runs_once_at_a_time_per_call_and_delays_no_other() {
    let service = Service::that_reports(Report::Waits(json!(1)));
    let app = with(&service, |_| {}).await;
    let (_, slow) = interrupted(&app, "10").await;
    let is_requested = async || (service.requests_about(&slow) == 1).then_some(());
    eventually("the service is asked", is_requested).await;
    service.now_reports(Report::Nothing);
    let (_, other) = interrupted(&app, "11").await;
    wait_for_repeated_request(&service, &other, 10).await;
    assert_eq!(service.requests_about(&slow), 1);
    service.release.add_permits(1);
    app.client.becomes(&slow, "succeeded").await;
    app.ledger.release.add_permits(2);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_slow_verification() {
    let service = Service::that_reports(Report::Waits(json!(1)));
    let app = with(&service, |_| {}).await;
    let (_, id) = interrupted(&app, "10").await;
    let is_requested = async || (service.requests_about(&id) == 1).then_some(());
    eventually("the service is asked", is_requested).await;
    app.ledger.release.add_permits(1);
    let next = app.redeploy_with(service.tools(&Ledger::new()), |config| {
        config.approval.sweep = Duration::from_secs(3600);
    });
    let app = timeout(Duration::from_secs(30), next).await.expect("it leaves");
    assert_eq!(app.client.call(&id).await["output"], json!({ "delivered": "10" }));
    app.rows.assert_counted().await;
}

/// Waits until the sweeper has completed a whole pass.
async fn swept(app: &Embedded) {
    for note in ["a", "b", "c"] {
        let (_, id) = app.held("courier", note).await;
        let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
        assert_eq!(app.rows.change(&over).await, Ok(1));
        app.client.becomes(&id, "expired").await;
    }
}

/// A call with an unknown outcome, on a server that abandons the execution when it shuts down.
async fn left_interrupted(service: &Service) -> (Embedded, String) {
    let app = with(service, |config| config.server.grace = Duration::from_millis(100)).await;
    let (_, id) = interrupted(&app, "10").await;
    wait_for_repeated_request(service, &id, 1).await;
    (app, id)
}

#[tokio::test]
async fn a_call_interrupted_longer_ago_than_the_start_deadline_is_not_verified() {
    let service = Service::that_reports(Report::Nothing);
    let (app, id) = left_interrupted(&service).await;
    let app = app
        .redeploy_with(service.tools(&Ledger::new()), |config| {
            config.approval.sweep = Duration::from_millis(20);
            config.approval.start_deadline = Duration::from_millis(1);
        })
        .await;
    let before = service.requests_about(&id);
    swept(&app).await;
    assert_eq!(service.requests_about(&id), before);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_changed_tool_can_verify_that_a_call_happened_but_not_that_it_never_will() {
    let service = Service::that_reports(Report::Nothing);
    let (app, id) = left_interrupted(&service).await;
    service.now_reports(Report::NeverHappened);
    let sweeping = |config: &mut Config| config.approval.sweep = Duration::from_millis(20);
    let app = app.redeploy_with(service.changed_tools(), sweeping).await;
    wait_for_repeated_request(&service, &id, 3).await;
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
    service.now_reports(Report::Happened(json!(1)));
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], json!(1));
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn after_a_kill_between_effect_and_saved_result_the_tool_verifies_the_outcome() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let id = deployment.hold_of(&server.client, &thread, "deliver 10").await;
    server.client.approve(&id).await.has_status(202);
    let line = format!("deliver 10 key {id}");
    deployment.wait_started(&[&line]).await;
    let rows = deployment.rows().await;
    let lock =
        if deployment.is_postgres() { "BEGIN; SELECT 1 FROM threads FOR UPDATE" } else { "BEGIN IMMEDIATE" };
    rows.change(lock).await.unwrap();
    deployment.release();
    let done = format!("{line} done");
    deployment.wait_started(&[&line, &done]).await;
    server.kill();
    rows.change("ROLLBACK").await.unwrap();

    let servers = if deployment.is_postgres() {
        vec![deployment.start("30s"), deployment.start("30s"), deployment.start("30s")]
    } else {
        vec![deployment.start("30s")]
    };
    let call = servers[0].client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "delivered": line }));
    assert_eq!(servers[0].client.resume(&thread).await.text(), format!("{{\"delivered\":\"{line}\"}}"));
    assert_eq!(deployment.ledger(), [line, done]);
    let stored = rows.all("SELECT type, actor FROM events ORDER BY at, event_id").await;
    let of_calls: Vec<_> = stored.iter().filter(|row| row.text("type").starts_with("tool.")).collect();
    let sweeper = |kind| json!({ "type": kind, "actor": "system:sweeper" });
    assert_eq!(of_calls[4..], [&sweeper("tool.interrupted"), &sweeper("tool.succeeded")]);
}
