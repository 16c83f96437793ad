//! The record of requester and approver. The tool runs on behalf of the requester.

use super::{acme, office, rule};
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, call};
use serde_json::{Value, json};

/// A tool that returns the user on whose behalf it runs.
struct WhoseTool<const ASKS: bool>;

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct NoInputs {}

impl<const ASKS: bool> Tool for WhoseTool<ASKS> {
    const NAME: &'static str = if ASKS { "whose_after_all" } else { "whose" };
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = ASKS;
    type Input = NoInputs;
    type Output = Value;

    async fn execute(&self, _input: NoInputs, permit: Permit<Self>) -> Result<Value, ToolError> {
        let requester = permit.requester();
        Ok(json!([requester.tenant_id(), requester.user_id()]))
    }
}

fn whose() -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    tools.register(WhoseTool::<false>).unwrap();
    tools.register(WhoseTool::<true>).unwrap();
    tools
}

#[tokio::test]
async fn b16_the_tool_runs_on_behalf_of_the_requester_after_any_approval() {
    let app = Embedded::start().await;
    let app = app.redeploy_with(whose(), |config| {
        with_tokens(config);
        rule(config, "whose_after_all", &[], &["chief"], true);
    });
    let app = app.await;
    let (alice, chief) = (acme(&app, "alice", &[]), acme(&app, "carol", &["chief"]));
    let thread = alice.thread().await;
    let nothing = json!({});
    app.scene.calls(&[call("p1", "whose", &nothing), call("p2", "whose_after_all", &nothing)]);
    let turn = alice.send_message(&thread, "whose is it?").await;
    assert_eq!(turn.one('a')["result"], json!(["acme", "alice"]));
    let [held] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(chief.approve(held).await.body["result"], r#"["acme","alice"]"#);
    assert_eq!(alice.call(held).await["output"], json!(["acme", "alice"]));
}

#[tokio::test]
async fn without_authentication_a_tool_runs_on_behalf_of_the_local_user() {
    let app = Embedded::start().await.redeploy_with(whose(), |_| {}).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p1", "whose", &json!({}))]).answers("Yours.");
    let turn = app.client.send_message(&thread, "whose is it?").await;
    assert_eq!(turn.one('a')["result"], json!(["default", "local"]));
}

#[tokio::test]
async fn b16_requester_and_decider_are_both_on_record() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (thread, id) = app.held("pay", "10").await;
    chief.approve(&id).await;
    let column = async |sql: &str| -> Vec<String> {
        let rows = app.rows.all(sql).await;
        let cells = rows.iter().map(|row| row.as_object().unwrap().values().map(Value::to_string));
        cells.map(|cells| cells.collect::<Vec<_>>().join(" ").replace('"', "")).collect()
    };
    let events = format!("SELECT actor, type FROM events WHERE tool_call_id = '{id}' ORDER BY event_id");
    let expected = [
        "user:alice tool.called",
        "system:policy tool.requires_approval",
        "user:carol tool.approved",
        "user:carol tool.started",
        "user:carol tool.succeeded",
    ];
    assert_eq!(column(&events).await, expected);
    let decisions = format!("SELECT actor, verdict FROM decisions WHERE tool_call_id = '{id}'");
    assert_eq!(column(&decisions).await, ["user:carol approve"]);
    let decided = format!("SELECT decided_by FROM tool_calls WHERE tool_call_id = '{id}'");
    assert_eq!(column(&decided).await, ["user:carol"]);
    let owner = format!("SELECT tenant_id, user_id FROM threads WHERE thread_id = '{thread}'");
    assert_eq!(column(&owner).await, ["acme alice"]);
    let of_tenants = format!("SELECT DISTINCT tenant_id FROM events WHERE tool_call_id = '{id}'");
    assert_eq!(column(&of_tenants).await, ["acme"]);

    // The requester reads both, and continues the run in their own thread.
    assert_eq!(app.client.call(&id).await["decision"]["by"], "user:carol");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
}
