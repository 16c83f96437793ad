//! The sweeper moves overdue rows on without a request.

use holdpoint::llm::ModelEvent;
use holdpoint_testkit::{Embedded, JsonFields, Rows, UNKNOWN, call, eventually, postgres};
use serde_json::json;
use std::time::Duration;

/// Longer ago than any lease or deadline.
const LONG_AGO: &str = "1000000";

async fn swept() -> Embedded {
    Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await
}

async fn set(app: &Embedded, id: &str, what: &str) {
    let change = format!("UPDATE tool_calls SET {what} WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&change).await, Ok(1));
}

/// A server that sweeps often, whose leases are too long to be renewed within a test.
async fn patient() -> Embedded {
    Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
        config.approval.wait = Duration::ZERO;
    })
    .await
}

async fn patient_on_postgres() -> (Embedded, Rows) {
    let url = postgres().await;
    let beside = Rows::open(&url).await;
    let app = Embedded::with(|config| {
        config.database.url = url.into();
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
        config.approval.wait = Duration::ZERO;
    });
    (app.await, beside)
}

/// A server whose leases are short enough that the loss of one is noticed within a test.
async fn brisk() -> Embedded {
    Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3);
    })
    .await
}

/// Ends the lease of the one running turn until the turn is closed.
async fn reap_turn(app: &Embedded) {
    let closed = async || {
        let lapse = format!("UPDATE runs SET lease_until = {LONG_AGO} WHERE status = 'running'");
        app.rows.change(&lapse).await.unwrap();
        app.rows.all("SELECT error_code FROM runs WHERE status = 'failed'").await.pop()
    };
    let closed = eventually("the turn is closed", closed).await;
    assert_eq!(closed["error_code"], "interrupted");
}

#[tokio::test]
async fn an_undecided_call_expires_by_itself_and_the_model_reads_that() {
    let app = swept().await;
    let (thread, id) = app.held("pay", "10").await;
    let (_, stays) = app.held("pay", "11").await;
    set(&app, &id, "expires_at = created_at").await;
    let call = app.client.becomes(&id, "expired").await;
    assert_eq!((&call["validated"], &call["decision"]["decision"]), (&json!(false), &json!("expire")));
    assert_eq!(
        (&call["decision"]["by"], &call["decision"]["surface"]),
        (&json!("system:expiry"), &json!("sweeper"))
    );
    let late = app.client.approve(&id).await;
    late.failed_with(409, "expired");
    app.scene.answers("Too late.");
    let reported = app.client.resume(&thread).await;
    assert_eq!(*reported.one('8'), json!([{ "toolCallId": id, "validated": "expired" }]));
    assert_eq!(reported.text(), "Too late.");
    assert_eq!(app.client.call(&stays).await["state"], "pending");
    assert_eq!(app.rows.count("events WHERE type = 'tool.expired'").await, 1);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approved_call_not_started_in_time_fails_without_running() {
    // The interval leaves time for the repeated approval before the sweep.
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_secs(1)).await;
    let (thread, id) = app.held("pay", "10").await;
    app.commit_yes(&id, LONG_AGO, LONG_AGO).await;
    let again = app.client.approve(&id).await;
    again.has(200, "state", "failed");
    let call = app.client.becomes(&id, "failed").await;
    assert_eq!(call["validated"], true);
    assert_eq!(call["result"], "Approved by a person, but not begun in time. The tool did not run.");
    assert_eq!(call.get("started_at"), None);
    let repeat = app.client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!((&repeat.body["success"], &repeat.body["state"]), (&json!(false), &json!("failed")));
    app.scene.answers("It did not run.");
    assert_eq!(app.client.resume(&thread).await.text(), "It did not run.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approved_call_not_started_is_started_by_the_sweeper_before_its_deadline() {
    let app = swept().await;
    let (thread, id) = app.held("pay", "10").await;
    app.commit_yes(&id, LONG_AGO, "expires_at").await;
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "paid": "10" }));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn more_unstartable_calls_than_one_batch_do_not_starve_the_calls_after_them() {
    let app = swept().await;
    let (_, id) = app.held("pay", "10").await;
    // The tool of these calls is removed; they have been due for longer.
    let stuck = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100)
         INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
             wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, state, expires_at,
             exec_attempt, created_at, listed_for)
         SELECT '00000000-0000-7000-8000-' || (100000000000 + n), thread_id, tenant_id, message_id, step, ordinal + n, run_id,
             '', 'gone-' || n, 'gone', arguments, schema_hash, held, idempotent, risk_level, state, expires_at,
             exec_attempt, created_at, listed_for
         FROM tool_calls, numbers";
    assert_eq!(app.rows.change(stuck).await, Ok(100));
    let yes = format!(
        "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:local',
             decided_at = {LONG_AGO}, start_deadline = expires_at WHERE name = 'gone'"
    );
    assert_eq!(app.rows.change(&yes).await, Ok(100));
    // Longer ago than any lease, and more recent than the stuck calls.
    app.commit_yes(&id, "created_at - 1000000000", "expires_at").await;
    app.client.becomes(&id, "succeeded").await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'approved'").await, 100);
}

#[tokio::test]
async fn an_execution_with_an_expired_lease_is_interrupted_and_its_late_outcome_is_sent() {
    let app = patient().await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    set(&app, &id, &format!("lease_until = {LONG_AGO}")).await;
    app.client.becomes(&id, "interrupted").await;
    app.scene.answers("Nobody knows.");
    assert_eq!(app.client.resume(&thread).await.text(), "Nobody knows.");

    app.ledger.release.add_permits(1);
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "waited": "10" }));
    app.scene.answers("So it did.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "So it did.");
    let reported = app.rows.all("SELECT kind FROM sent_answers ORDER BY n").await;
    assert_eq!(reported, [json!({ "kind": "answer" }), json!({ "kind": "note" })]);
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn on_postgres_an_execution_renewed_while_the_sweeper_waits_for_the_thread_is_not_reaped() {
    let (app, beside) = patient_on_postgres().await;
    let (_, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    let thread = app.client.call(&id).await.text("thread_id").to_owned();
    let lock = format!("BEGIN; SELECT 1 FROM threads WHERE thread_id = '{thread}' FOR UPDATE");
    assert!(app.rows.change(&lock).await.is_ok());
    let lapse = format!("UPDATE tool_calls SET lease_until = {LONG_AGO}");
    assert_eq!(beside.change(&lapse).await, Ok(1));
    beside.wait_for_lock_waiter().await;
    let renew = format!("UPDATE tool_calls SET lease_until = expires_at WHERE tool_call_id = '{id}'");
    assert_eq!(beside.change(&renew).await, Ok(1));
    assert!(app.rows.change("COMMIT").await.is_ok());
    beside.wait_for_no_lock_waiter().await;
    assert_eq!(app.client.call(&id).await["state"], "executing");
    app.ledger.release.add_permits(1);
    app.client.becomes(&id, "succeeded").await;
}

#[tokio::test]
async fn a_turn_and_a_tool_that_outlast_a_lease_are_not_reaped() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3);
    })
    .await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]).answers("At last.");
    let started = async {
        app.ledger.wait_started().await;
        let later = "runs JOIN tool_calls USING (run_id) WHERE runs.lease_until > runs.created_at + 6000000
                         AND tool_calls.lease_until > tool_calls.started_at + 6000000";
        let renewed = async || (app.rows.count(later).await == 1).then_some(());
        eventually("both are renewed after the first lease would have been over", renewed).await;
        assert_eq!(app.rows.count("tool_calls WHERE state = 'executing'").await, 1);
        app.ledger.release.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "dawdle"), started);
    assert_eq!((turn.text().as_str(), &turn.one('a')["result"]), ("At last.", &json!({ "dawdled": "1" })));
}

#[tokio::test]
async fn on_postgres_a_renewal_that_waits_for_a_lock_lets_no_other_lease_expire() {
    let url = postgres().await;
    let app = Embedded::with(|config| {
        config.database.url = url.as_str().into();
        config.approval.lease = Duration::from_secs(3);
        config.approval.wait = Duration::ZERO;
    })
    .await;
    let [(_, locked), (_, other)] = [app.held("wait_for_me", "1").await, app.held("wait_for_me", "2").await];
    for id in [&locked, &other] {
        app.client.approve(id).await.has_status(202);
        app.ledger.wait_started().await;
    }
    let lock = Rows::open(&url).await;
    let row = format!("BEGIN; SELECT 1 FROM tool_calls WHERE tool_call_id = '{locked}' FOR UPDATE");
    lock.change(&row).await.unwrap();
    app.rows.wait_for_lock_waiter().await;
    let later = format!("tool_calls WHERE tool_call_id = '{other}' AND lease_until > started_at + 9000000");
    let renewed = async || (app.rows.count(&later).await == 1).then_some(());
    eventually("the other lease is renewed again and again", renewed).await;
    assert_eq!(app.client.call(&other).await["state"], "executing");
    lock.change("ROLLBACK").await.unwrap();
    app.ledger.release.add_permits(2);
    app.client.becomes(&other, "succeeded").await;
}

#[tokio::test]
async fn a_turn_with_an_expired_lease_is_closed_and_can_be_resumed() {
    let app = brisk().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]);
    let started = async {
        app.ledger.wait_started().await;
        // The runner learns that its lease is lost and does not wait for the tool.
        reap_turn(&app).await;
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "dawdle"), started);
    turn.failed_with("interrupted");
    // The tool is alive: its execution has its own lease.
    assert_eq!(app.rows.count("tool_calls WHERE state = 'executing'").await, 1);
    app.ledger.release.add_permits(1);
    let settled = async || (app.rows.count("tool_calls WHERE state = 'succeeded'").await == 1).then_some(());
    eventually("the tool settles", settled).await;
    app.scene.answers("Here I am.");
    assert_eq!(app.client.resume(&thread).await.text(), "Here I am.");
    assert_eq!(app.ledger.lines(), ["dawdle 1"]);
}

#[tokio::test]
async fn a_turn_reaped_mid_text_emits_no_more_text_and_does_not_disturb_the_next() {
    let app = brisk().await;
    let thread = app.client.thread().await;
    let words = ["Half ", "an answer."].map(|words| Ok(ModelEvent::Text(words.to_owned())));
    app.scene.then(words.to_vec());
    let gate = app.scene.gate();
    gate.add_permits(1);
    let started = async {
        app.wait_for_model_requests(1).await;
        eventually("it speaks", async || (gate.available_permits() == 0).then_some(())).await;
        reap_turn(&app).await;
        app.scene.answers("Here I am.");
        app.client.begin_resume(&thread).await
    };
    let (turn, next) = tokio::join!(app.client.send_message(&thread, "hi"), started);
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f03", "Half "), "{}", turn.raw);
    turn.failed_with("interrupted");
    gate.add_permits(2);
    let next = app.client.read_on(next).await;
    assert_eq!((next.codes().as_str(), next.text().as_str()), ("f0ed", "Here I am."), "{}", next.raw);
    assert_eq!(app.client.messages(&thread).await.pop().unwrap()["status"], "complete");
}

#[tokio::test]
async fn resuming_closes_a_dead_turn_together_with_its_dead_calls() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_secs(3600);
        config.approval.lease = Duration::from_secs(3600);
    })
    .await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]);
    let dead = async {
        app.ledger.wait_started().await;
        for table in ["runs", "tool_calls"] {
            let lapse = format!("UPDATE {table} SET lease_until = {LONG_AGO}");
            assert_eq!(app.rows.change(&lapse).await, Ok(1));
        }
        app.scene.answers("Nobody knows.");
        assert_eq!(app.client.resume(&thread).await.text(), "Nobody knows.");
        let reported = app.rows.all("SELECT kind, text FROM sent_answers").await;
        assert_eq!(reported, [json!({ "kind": "answer", "text": UNKNOWN })]);
        app.ledger.release.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "dawdle"), dead);
    // The runner that was reaped calls the model no more.
    turn.failed_with("interrupted");
    assert_eq!(app.scene.requests().len(), 2);
}

#[tokio::test]
async fn on_postgres_a_turn_is_not_closed_while_its_thread_is_locked() {
    let (app, beside) = patient_on_postgres().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]);
    let dead = async {
        app.ledger.wait_started().await;
        assert!(app.rows.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.is_ok());
        let lapse = format!("UPDATE runs SET lease_until = {LONG_AGO}");
        assert_eq!(beside.change(&lapse).await, Ok(1));
        beside.wait_for_lock_waiter().await;
        // The lock on the thread also covers its runs.
        let wish =
            "SET LOCAL lock_timeout = '500ms'; UPDATE runs SET cancel_requested_at = created_at; COMMIT";
        assert_eq!(app.rows.change(wish).await.err(), None);
        let closed = async || (app.rows.count("runs WHERE status <> 'running'").await == 1).then_some(());
        eventually("the turn is closed", closed).await;
        assert_eq!(app.rows.all("SELECT status FROM runs").await, [json!({ "status": "cancelled" })]);
        app.ledger.release.add_permits(1);
    };
    tokio::join!(app.client.send_message(&thread, "dawdle"), dead);
}

#[tokio::test]
async fn on_sqlite_a_turn_that_died_after_its_whole_answer_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::with(|config| {
        config.database.url = format!("sqlite://{}/holdpoint.db", dir.path().display()).into();
        config.approval.sweep = Duration::from_millis(20);
    });
    let app = app.await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let turn = app.client.send_message(&thread, "hi").await;
    // The state that a crash leaves between the commit of the last step and the commit of the turn's end.
    app.rows.change("DROP TRIGGER runs_moves").await.unwrap();
    let died = format!(
        "UPDATE runs SET status = 'running', owner = 'x', lease_until = {LONG_AGO}, finished_at = NULL"
    );
    assert_eq!(app.rows.change(&died).await, Ok(1));
    let continued = app.client.resume(&thread).await;
    assert_eq!((continued.status, app.scene.requests().len()), (409, 1), "{}", continued.raw);
    let run = format!("/runs/{}", turn.headers["x-run-id"].to_str().unwrap());
    let completed = async || (app.client.get(&run).await.body["status"] == "completed").then_some(());
    eventually("the run is closed", completed).await;
    app.scene.answers("Again.");
    assert_eq!(app.client.send_message(&thread, "more").await.text(), "Again.");
}
