//! The operator's policy, evaluated when the model makes a call and again before the call runs.

mod in_force;
mod session;
mod starting;

use holdpoint::config::{ApprovalMode, ApprovalRule, Config, RuleCondition, RuleEffect, ToolRules};
use holdpoint_testkit::{Embedded, JsonFields, call, probes};
use serde_json::{Value, json};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A rule with a condition on the note.
fn rule(effect: RuleEffect, tool: &str, matches: &str) -> ApprovalRule {
    let matches = Some(matches.to_owned());
    ApprovalRule {
        name: "notes".to_owned(),
        effect,
        tools: names(&[tool]),
        when: vec![RuleCondition { argument: "/note".to_owned(), matches, ..RuleCondition::default() }],
        roles: Vec::new(),
        unless_roles: Vec::new(),
        escalate_after: None,
        escalate_to: Vec::new(),
        reason: Some("such notes are the chief's".to_owned()),
    }
}

/// A server with this change to its policy.
async fn server(change: impl FnOnce(&mut Config)) -> Embedded {
    Embedded::with(change).await
}

/// Has the model make a call. Returns the codes of the stream and the stored call.
async fn made(app: &Embedded, tool: &str, note: &str) -> (String, Value) {
    let thread = app.client.thread().await;
    app.scene.forget();
    app.scene.calls(&[call("p-1", tool, &json!({ "note": note }))]).answers("I see.");
    let turn = app.client.send_message(&thread, &format!("please {tool}")).await;
    let id = turn.all('9')[0].text("toolCallId").to_owned();
    (turn.codes(), app.client.call(&id).await)
}

/// The verdict of a call, its decider, its surface and its source.
fn decision(call: &Value) -> [&Value; 4] {
    ["decision", "by", "surface", "source"].map(|field| &call["decision"][field])
}

async fn events(app: &Embedded, call: &Value) -> Vec<Value> {
    let id = call.text("tool_call_id");
    let sql = format!("SELECT type, actor FROM events WHERE tool_call_id = '{id}' ORDER BY event_id");
    let all = app.rows.all(&sql).await;
    all.iter().map(|event| json!(format!("{} {}", event.text("type"), event.text("actor")))).collect()
}

#[tokio::test]
async fn a_forbidden_call_is_blocked_and_the_turn_continues() {
    let app = server(|config| config.approval.always_deny = names(&["pa*"])).await;
    let (codes, call) = made(&app, "pay", "10").await;
    assert_eq!(codes, "fbc9aef0ed", "the stream has the outcome, and no approval is requested");
    let words =
        "The policy of this server forbids the call, the tool did not run. pay never runs on this server.";
    assert_eq!(
        (&call["state"], &call["held"], &call["result"]),
        (&json!("rejected"), &json!(false), &json!(words))
    );
    assert_eq!(
        decision(&call),
        [&json!("reject"), &json!("system:policy"), &json!("policy"), &json!("always_deny")]
    );
    assert_eq!(events(&app, &call).await, ["tool.called user:local", "tool.blocked system:policy"]);
    let id = call.text("tool_call_id");
    assert_eq!(app.client.approve(id).await.status, 404, "the call was never held");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let (_, look) = made(&app, "look", "x").await;
    assert_eq!((&look["state"], decision(&look)[3]), (&json!("succeeded"), &Value::Null));
}

#[tokio::test]
async fn an_always_allowed_call_runs_although_its_tool_asks() {
    let app = server(|config| config.approval.always_allow = names(&["pay"])).await;
    let (codes, call) = made(&app, "pay", "10").await;
    assert_eq!(codes, "fbc9aef0ed");
    assert_eq!(
        (&call["state"], &call["held"], &call["validated"]),
        (&json!("succeeded"), &json!(false), &json!(true))
    );
    assert_eq!(
        decision(&call),
        [&json!("approve"), &json!("system:policy"), &json!("policy"), &json!("always_allow")]
    );
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_mode_covers_all_tools_that_ask() {
    for (mode, state, ran) in [
        (ApprovalMode::Manual, "pending", &[][..]),
        (ApprovalMode::AutoApprove, "succeeded", &["pay 10"]),
        (ApprovalMode::AutoDeny, "rejected", &[]),
    ] {
        let app = server(|config| config.approval.mode = mode).await;
        let (_, call) = made(&app, "pay", "10").await;
        assert_eq!(call["state"], state, "{mode:?}");
        assert_eq!(app.ledger.lines(), ran, "{mode:?}");
        let (_, look) = made(&app, "look", "x").await;
        assert_eq!(look["state"], "succeeded", "{mode:?}");
    }
}

#[tokio::test]
async fn a_rule_asks_about_some_calls_of_a_tool_that_does_not() {
    let app = server(|config| config.approval.rules = vec![rule(RuleEffect::Ask, "look", "secret*")]).await;
    let (_, seen) = made(&app, "look", "the garden").await;
    assert_eq!(seen["state"], "succeeded");
    let (codes, requested) = made(&app, "look", "secret garden").await;
    assert_eq!(codes, "fbc98ed");
    assert_eq!(
        (&requested["state"], &requested["reason"]),
        (&json!("pending"), &json!("such notes are the chief's"))
    );
    let id = requested.text("tool_call_id");
    assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["look the garden", "look secret garden"]);
}

#[tokio::test]
async fn a_rule_forbids_some_calls_and_an_edit_cannot_bypass_it() {
    let app = server(|config| config.approval.rules = vec![rule(RuleEffect::Deny, "pay", "1???*")]).await;
    let (_, much) = made(&app, "pay", "1000").await;
    assert_eq!((&much["state"], decision(&much)[3]), (&json!("rejected"), &json!("rule:notes")));
    let (_, id) = app.held("pay", "10").await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "1000" } });
    let refused = app.client.validate(&edit).await;
    refused.failed_with(422, "invalid_inputs");
    let reported = &refused.body["error"]["details"]["errors"][0];
    assert_eq!(reported, &json!({ "pointer": "", "message": "such notes are the chief's" }));
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "100" } });
    assert_eq!(app.client.validate(&edit).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 100"]);
}

#[tokio::test]
async fn a_pending_call_that_the_policy_now_forbids_can_only_be_rejected() {
    let app = Embedded::start().await;
    let (_, first) = app.held("pay", "1").await;
    let (_, second) = app.held("pay", "2").await;
    let forbid = |config: &mut Config| config.approval.always_deny = names(&["pay"]);
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, forbid).await;
    let refused = app.client.approve(&first).await;
    refused.failed_with(403, "forbidden");
    assert!(refused.body.to_string().contains("pay never runs on this server"), "{:?}", refused.body);
    assert_eq!(app.client.call(&first).await["state"], "pending");
    assert_eq!(app.client.reject(&second).await.body["state"], "rejected");
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |_| {}).await;
    assert_eq!(app.client.approve(&first).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

#[tokio::test]
async fn an_approved_call_that_is_forbidden_before_its_start_does_not_run() {
    let forbid = |config: &mut Config| {
        config.approval.always_deny = names(&["pay"]);
        config.approval.sweep = std::time::Duration::from_millis(50);
    };
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    app.commit_yes(&id, "0", "created_at + 1000000000").await;
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, forbid).await;
    let call = app.client.becomes(&id, "failed").await;
    let words = "Approved by a person, but the policy of this server forbids the call now. The tool did not run. pay \
                 never runs on this server.";
    assert_eq!(call["result"], words);
    assert_eq!(events(&app, &call).await.last().unwrap(), "tool.failed system:policy");
    app.scene.answers("I see.");
    assert_eq!(app.client.resume(&thread).await.text(), "I see.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approved_call_does_not_run_after_its_requester_lost_the_run_role() {
    let for_chiefs = |config: &mut Config| {
        let rules = ToolRules { run_roles: names(&["chief"]), ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
        config.approval.sweep = std::time::Duration::from_millis(50);
    };
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    app.commit_yes(&id, "0", "created_at + 1000000000").await;
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, for_chiefs).await;
    let call = app.client.becomes(&id, "failed").await;
    assert!(call.text("result").ends_with("pay does not run for who asked for it."), "{call}");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
