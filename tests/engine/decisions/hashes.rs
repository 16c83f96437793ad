//! A rolling deploy in which the processes differ: one has the old tool, one the changed tool, one no tool.
//! The call that a person was shown is the call that runs, at every process.

use holdpoint::config::Config;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::{Answer, ChangedPay, Embedded, Ledger, Probe, call, postgres, probes};
use serde_json::{Value, json};
use std::time::Duration;

/// `pay`, which no longer requires approval.
struct FreePay;

impl Tool for FreePay {
    const NAME: &'static str = "pay";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = false;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(json!({ "paid without asking": input.note }))
    }
}

/// `look`, which now requires approval.
struct AskingLook;

impl Tool for AskingLook {
    const NAME: &'static str = "look";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(json!({ "seen after asking": input.note }))
    }
}

/// Three processes on one database: with the old `pay`, with the changed `pay`, and without tools.
struct Deploy {
    old: Embedded,
    new: Embedded,
    none: Embedded,
}

fn changed(ledger: &Ledger) -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(ledger.clone())).unwrap();
    tools
}

impl Deploy {
    async fn start() -> Self {
        let url = postgres().await;
        let often = |config: &mut Config| {
            config.database.url = url.clone().into();
            config.approval.sweep = Duration::from_millis(50);
            config.approval.wait = Duration::ZERO;
        };
        let old = Embedded::with(often).await;
        let new = Embedded::with(often).await;
        let tools = changed(&new.ledger);
        let new = new.redeploy_with(tools, often).await;
        let none = Embedded::with(often).await.redeploy_with(ToolRegistry::new(), often).await;
        Self { old, new, none }
    }
}

/// Asserts that the decision was accepted, whether or not the call has settled.
fn assert_accepted(answer: &Answer) {
    assert!(matches!(answer.status, 200 | 202), "{:?}", answer.body);
}

async fn approve(app: &Embedded, id: &str, hash: &Value) -> Answer {
    app.client.validate(&json!({ "toolCallId": id, "isValidated": true, "inputHash": hash })).await
}

#[tokio::test]
async fn on_postgres_each_process_accepts_the_hash_that_it_shows_and_no_other() {
    let Deploy { old, new, none } = Deploy::start().await;
    let (_, id) = old.held("pay", "1").await;
    let as_was = old.client.call(&id).await["input_hash"].clone();
    let as_is = new.client.call(&id).await["input_hash"].clone();
    assert_ne!(as_was, as_is);
    for (app, shown, current) in [(&old, &as_is, &as_was), (&new, &as_was, &as_is)] {
        let stale = approve(app, &id, shown).await;
        stale.failed_with(409, "stale");
        assert_eq!(stale.body["error"]["details"]["input_hash"], *current);
    }
    for hash in [&as_was, &as_is, &Value::Null] {
        let gone = approve(&none, &id, hash).await;
        assert_eq!(gone.failure(), (409, "tool_unavailable"), "{hash}");
    }
    assert_eq!(old.client.call(&id).await["state"], "pending");
    assert_eq!(old.rows.count("decisions").await, 0);

    assert_accepted(&approve(&new, &id, &as_is).await);
    new.client.becomes(&id, "succeeded").await;
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec![], vec!["changed pay 1".to_owned()]));
    let (_, rejected) = old.held("pay", "2").await;
    assert_eq!(none.client.reject(&rejected).await.body["state"], "rejected");
}

#[tokio::test]
async fn on_postgres_an_approved_call_runs_only_at_a_process_with_the_approved_tool() {
    let Deploy { old, new, none } = Deploy::start().await;
    let mut expected = (Vec::new(), Vec::new());
    for round in 0..4 {
        let (_, id) = old.held("pay", &round.to_string()).await;
        let (by, lines, line) = if round % 2 == 0 {
            (&old, &mut expected.0, format!("pay {round}"))
        } else {
            (&new, &mut expected.1, format!("changed pay {round}"))
        };
        let hash = by.client.call(&id).await["input_hash"].clone();
        assert_accepted(&approve(by, &id, &hash).await);
        // A repeated approval, at any process, begins a call that no process has claimed.
        for app in [&old, &new, &none] {
            assert_eq!(app.client.approve(&id).await.header("idempotent-replayed"), Some("true"));
        }
        by.client.becomes(&id, "succeeded").await;
        lines.push(line);
    }
    assert_eq!((old.ledger.lines(), new.ledger.lines()), expected);
}

#[tokio::test]
async fn on_postgres_an_approval_of_the_old_tool_waits_for_a_process_that_has_it() {
    const LONG_AGO: &str = "1000000";
    let Deploy { old, new, none } = Deploy::start().await;
    let tools = probes(&old.ledger);
    let old = old.redeploy_with(tools, |config| config.approval.sweep = Duration::from_secs(3600)).await;
    let (_, id) = old.held("pay", "1").await;
    let (_, overdue) = old.held("pay", "2").await;
    // The state that an old process leaves when it stops before it begins the call.
    old.commit_yes(&id, LONG_AGO, "expires_at").await;
    for app in [&new, &none] {
        // An approval of the stored call is the same approval; this process cannot begin the call.
        let repeat = app.client.approve(&id).await;
        repeat.has(202, "state", "executing");
    }
    let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
    assert_eq!(old.rows.change(&over).await, Ok(1));
    new.client.becomes(&overdue, "expired").await;
    assert_eq!(new.client.call(&id).await["state"], "approved", "sweeps have looked at it");
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec![], vec![]));

    let tools = probes(&old.ledger);
    let old = old.redeploy_with(tools, |config| config.approval.sweep = Duration::from_millis(50)).await;
    new.client.becomes(&id, "succeeded").await;
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec!["pay 1".to_owned()], vec![]));
}

#[tokio::test]
async fn on_postgres_edited_inputs_must_fit_the_tool_of_the_process_that_decides() {
    let Deploy { old, new, .. } = Deploy::start().await;
    let (_, id) = old.held("pay", "1").await;
    let edit =
        |note: &str| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": note } });
    let mut edited = edit("too long now");
    edited["inputHash"] = new.client.call(&id).await["input_hash"].clone();
    let unfit = new.client.validate(&edited).await;
    unfit.failed_with(422, "invalid_inputs");
    assert_eq!(unfit.body["error"]["details"]["errors"][0]["pointer"], "/note");
    assert_eq!(old.client.call(&id).await["state"], "pending");
    assert_accepted(&old.client.validate(&edit("too long now")).await);
    old.client.becomes(&id, "succeeded").await;
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec!["pay too long now".to_owned()], vec![]));
}

#[tokio::test]
async fn a_pending_call_stays_pending_when_its_tool_no_longer_requires_approval() {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await;
    let (thread, id) = app.held("pay", "1").await;
    let (_, overdue) = app.held("mumble", "2").await;
    let shown = app.client.call(&id).await;
    let mut tools = ToolRegistry::new();
    tools.register(FreePay).unwrap();
    let app = app.redeploy_with(tools, |config| config.approval.sweep = Duration::from_millis(20)).await;
    let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
    app.client.becomes(&overdue, "expired").await;
    assert_eq!(app.client.call(&id).await, shown, "a sweep has looked at it");
    assert_eq!(app.client.resume(&thread).await.pending(), [id.as_str()]);

    let elsewhere = app.client.thread().await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "3" }))]).answers("Paid.");
    let turn = app.client.send_message(&elsewhere, "pay").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc9aef0ed", "Paid."), "{}", turn.raw);
    let approved = approve(&app, &id, &shown["input_hash"]).await;
    assert_eq!(approved.body["state"], "succeeded", "its inputs mean what they did: {:?}", approved.body);
    assert_eq!(app.client.call(&id).await["output"], json!({ "paid without asking": "1" }));
}

#[tokio::test]
async fn a_tool_that_newly_requires_approval_holds_only_new_calls() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let look = |id: &str| [call(id, "look", &json!({ "note": "1" }))];
    app.scene.calls(&look("before")).answers("Seen.");
    assert_eq!(app.client.send_message(&thread, "look").await.text(), "Seen.");
    let mut tools = ToolRegistry::new();
    tools.register(AskingLook).unwrap();
    let app = app.redeploy(tools).await;
    app.scene.calls(&look("behind"));
    let turn = app.client.send_message(&thread, "look again").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let calls = app.rows.all("SELECT state, held FROM tool_calls ORDER BY created_at").await;
    assert_eq!(calls[0]["state"], "succeeded");
    assert_eq!(calls[1]["state"], "pending");
    assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    assert_eq!(app.client.call(id).await["output"], json!({ "seen after asking": "1" }));
    assert_eq!(app.ledger.lines(), ["look 1"]);
}
