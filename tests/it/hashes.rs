//! A deploy in which processes differ: one has a tool as it was, one as it is now, one not at all. What a person was
//! shown is what runs, wherever it runs.

use crate::support::{Answer, ChangedPay, Embedded, Ledger, Probe, call, postgres, probes};
use holdpoint::config::Config;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use serde_json::{Value, json};
use std::time::Duration;

/// `pay`, which asks nobody any more.
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

/// `look`, which asks now.
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

/// Three processes on one database: `pay` as it was, `pay` as it is now, and none.
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

/// The decision holds, whether or not it has an outcome yet.
fn taken(answer: &Answer) {
    assert!(matches!(answer.status, 200 | 202), "{:?}", answer.body);
}

async fn approve(app: &Embedded, id: &str, hash: &Value) -> Answer {
    app.client.validate(&json!({ "toolCallId": id, "isValidated": true, "inputHash": hash })).await
}

#[tokio::test]
async fn on_postgres_each_process_takes_what_it_shows_and_no_other_hash() {
    let Deploy { old, new, none } = Deploy::start().await;
    let (_, id) = old.held("pay", "1").await;
    let as_was = old.client.call(&id).await["input_hash"].clone();
    let as_is = new.client.call(&id).await["input_hash"].clone();
    assert_ne!(as_was, as_is);
    for (app, shown, current) in [(&old, &as_is, &as_was), (&new, &as_was, &as_is)] {
        let stale = approve(app, &id, shown).await;
        assert_eq!((stale.status, stale.code()), (409, "stale"));
        assert_eq!(stale.body["error"]["details"]["input_hash"], *current);
    }
    for hash in [&as_was, &as_is, &Value::Null] {
        let gone = approve(&none, &id, hash).await;
        assert_eq!((gone.status, gone.code()), (409, "tool_unavailable"), "{hash}");
    }
    assert_eq!(old.client.call(&id).await["state"], "pending");
    assert_eq!(old.rows.count("decisions").await, 0);

    taken(&approve(&new, &id, &as_is).await);
    new.client.becomes(&id, "succeeded").await;
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec![], vec!["changed pay 1".to_owned()]));
    let (_, rejected) = old.held("pay", "2").await;
    assert_eq!(none.client.reject(&rejected).await.body["state"], "rejected");
}

#[tokio::test]
async fn on_postgres_what_was_decided_on_runs_only_where_it_is_that() {
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
        taken(&approve(by, &id, &hash).await);
        // Whoever repeats the yes, wherever, would begin what nobody has begun.
        for app in [&old, &new, &none] {
            assert_eq!(app.client.approve(&id).await.header("idempotent-replayed"), Some("true"));
        }
        by.client.becomes(&id, "succeeded").await;
        lines.push(line);
    }
    assert_eq!((old.ledger.lines(), new.ledger.lines()), expected);
}

#[tokio::test]
async fn on_postgres_a_yes_to_the_old_tool_waits_for_a_process_that_has_it() {
    const LONG_AGO: &str = "1000000";
    let Deploy { old, new, none } = Deploy::start().await;
    let tools = probes(&old.ledger);
    let old = old.redeploy_with(tools, |config| config.approval.sweep = Duration::from_secs(3600)).await;
    let (_, id) = old.held("pay", "1").await;
    let (_, overdue) = old.held("pay", "2").await;
    // As a process of the old kind leaves it that goes away before it begins.
    old.commit_yes(&id, LONG_AGO, "expires_at").await;
    for app in [&new, &none] {
        // A yes to what stands there is the same yes; it begins nothing here.
        let repeat = app.client.approve(&id).await;
        assert_eq!((repeat.status, &repeat.body["state"]), (202, &json!("executing")));
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
async fn on_postgres_edited_inputs_have_to_fit_the_tool_of_the_process_that_takes_them() {
    let Deploy { old, new, .. } = Deploy::start().await;
    let (_, id) = old.held("pay", "1").await;
    let edit =
        |note: &str| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": note } });
    let unfit = new.client.validate(&edit("too long now")).await;
    assert_eq!((unfit.status, unfit.code()), (422, "invalid_inputs"));
    assert_eq!(unfit.body["error"]["details"]["errors"][0]["pointer"], "/note");
    assert_eq!(old.client.call(&id).await["state"], "pending");
    taken(&old.client.validate(&edit("too long now")).await);
    old.client.becomes(&id, "succeeded").await;
    assert_eq!((old.ledger.lines(), new.ledger.lines()), (vec!["pay too long now".to_owned()], vec![]));
}

#[tokio::test]
async fn a_call_that_waits_still_does_when_its_tool_asks_nobody_any_more() {
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
    assert_eq!(app.client.go_on(&thread).await.pending(), [id.as_str()]);

    let elsewhere = app.client.thread().await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "3" }))]).says("Paid.");
    let turn = app.client.say(&elsewhere, "pay").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc9aef0ed", "Paid."), "{}", turn.raw);
    let approved = approve(&app, &id, &shown["input_hash"]).await;
    assert_eq!(approved.body["state"], "succeeded", "its inputs mean what they did: {:?}", approved.body);
    assert_eq!(app.client.call(&id).await["output"], json!({ "paid without asking": "1" }));
}

#[tokio::test]
async fn a_tool_that_asks_from_now_on_asks_about_new_calls_alone() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let look = |id: &str| [call(id, "look", &json!({ "note": "1" }))];
    app.scene.calls(&look("before")).says("Seen.");
    assert_eq!(app.client.say(&thread, "look").await.text(), "Seen.");
    let mut tools = ToolRegistry::new();
    tools.register(AskingLook).unwrap();
    let app = app.redeploy(tools).await;
    app.scene.calls(&look("behind"));
    let turn = app.client.say(&thread, "look again").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let calls = app.rows.all("SELECT state, held FROM tool_calls ORDER BY created_at").await;
    assert_eq!(calls[0]["state"], "succeeded");
    assert_eq!(calls[1]["state"], "pending");
    assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    assert_eq!(app.client.call(id).await["output"], json!({ "seen after asking": "1" }));
    assert_eq!(app.ledger.lines(), ["look 1"]);
}
