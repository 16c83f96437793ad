//! The policy in force in a session, as its user and operators read it.

use super::{made, names, rule};
use holdpoint::config::{ApprovalMode, ApprovalRule, RuleEffect, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields};
use serde_json::{Value, json};

async fn in_force(client: &Client, session: &str) -> Value {
    let found = client.get(&format!("/sessions/{session}/policy")).await;
    found.has_status(200);
    found.body
}

/// The verdict and the source for a tool.
fn verdict<'a>(policy: &'a Value, tool: &str) -> Option<(&'a str, &'a str)> {
    let found = of_tool(policy, tool)?;
    Some((found.text("verdict"), found.text("source")))
}

fn of_tool<'a>(policy: &'a Value, tool: &str) -> Option<&'a Value> {
    policy.list("tools").iter().find(|found| found["tool_name"] == tool)
}

/// A rule about a tool without a condition on the inputs.
fn about(name: &str, effect: RuleEffect, tool: &str, roles: &[&str]) -> ApprovalRule {
    let reason = Some(format!("{name} says so"));
    ApprovalRule {
        name: name.to_owned(),
        when: Vec::new(),
        roles: names(roles),
        reason,
        ..rule(effect, tool, "x")
    }
}

#[tokio::test]
async fn the_policy_in_force_is_the_one_that_judges_the_next_call() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.operator_roles = names(&["admin"]);
        config.approval.always_deny = names(&["refuse"]);
        config.approval.always_allow = names(&["mumble"]);
        config.approval.rules = vec![
            about("asks", RuleEffect::Ask, "look", &[]),
            about("denies", RuleEffect::Deny, "restock", &[]),
        ];
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let thread = app.client.thread().await;
    let policy = in_force(&app.client, &thread).await;
    assert_eq!((&policy["session_id"], &policy["mode"]), (&json!(thread), &json!("manual")));
    assert_eq!((&policy["session"], &policy["grants_end"]), (&json!({}), &json!("never")));
    let expected = [
        ("refuse", "forbid", "always_deny"),
        ("restock", "forbid", "rule:denies"),
        ("mumble", "run", "always_allow"),
        ("look", "ask", "rule:asks"),
        ("pay", "ask", "tool"),
    ];
    for (tool, does, source) in expected {
        assert_eq!(verdict(&policy, tool), Some((does, source)), "{policy:#}");
        let (_, call) = made(&app, tool, "1").await;
        let state = match does {
            "run" => "succeeded",
            "ask" => "pending",
            _ => "rejected",
        };
        assert_eq!(call["state"], state, "{tool}");
    }
    assert_eq!(of_tool(&policy, "restock").unwrap()["reason"], "denies says so");
    assert_eq!(of_tool(&policy, "mumble").unwrap().get("reason"), None);

    let set = json!({ "mode": "auto-deny", "tools": { "break": "deny" } });
    let request = app.client.http.put(app.client.url(&format!("/sessions/{thread}/policy"))).json(&set);
    app.client.send(request).await.has_status(200);
    let policy = in_force(&app.client, &thread).await;
    assert_eq!((&policy["session"], &policy["mode"]), (&set, &json!("auto-deny")));
    assert_eq!(verdict(&policy, "break"), Some(("forbid", "session")));
    assert_eq!(verdict(&policy, "pay"), Some(("forbid", "session")));
}

#[tokio::test]
async fn grants_and_rules_on_inputs_are_listed_with_their_tool() {
    let mut app = Embedded::with(|config| {
        config.approval.rules = vec![rule(RuleEffect::Deny, "pay", "9*")];
    })
    .await;
    let (thread, held) = app.held("pay", "1").await;
    let body = json!({ "toolCallId": held, "isValidated": true, "remember": "session" });
    app.client.validate(&body).await.has_status(200);
    let grants = app.client.get(&format!("/sessions/{thread}/grants")).await.body["results"].clone();
    let policy = in_force(&app.client, &thread).await;
    let pay = of_tool(&policy, "pay").unwrap();
    assert_eq!((&pay["grants"], grants.as_array().unwrap().len()), (&grants, 1));
    let source = format!("remembered:{}", grants[0].text("grant_id"));
    assert_eq!((&pay["verdict"], &pay["source"]), (&json!("run"), &json!(source)));
    let rules = json!([{ "name": "notes", "effect": "deny", "reason": "such notes are the chief's" }]);
    assert_eq!(pay["rules"], rules);
    assert_eq!(of_tool(&policy, "look").unwrap()["rules"], json!([]));
    let grant = grants[0].text("grant_id");
    app.client.delete(&format!("/sessions/{thread}/grants/{grant}")).await.has_status(204);
    let policy = in_force(&app.client, &thread).await;
    assert_eq!(verdict(&policy, "pay"), Some(("ask", "tool")));
    assert_eq!(of_tool(&policy, "pay").unwrap()["grants"], json!([]));

    // A mode of the server.
    app.end().await;
    let tools = holdpoint_testkit::probes(&app.ledger);
    app = app.redeploy_with(tools, |config| config.approval.mode = ApprovalMode::AutoApprove).await;
    let policy = in_force(&app.client, &thread).await;
    assert_eq!((verdict(&policy, "pay"), &policy["mode"]), (Some(("run", "mode")), &json!("auto-approve")));
}

#[tokio::test]
async fn only_the_sessions_user_and_operators_read_its_policy() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.operator_roles = names(&["admin"]);
        let clerks = ToolRules { run_roles: names(&["clerk"]), ..ToolRules::default() };
        let approvers = ToolRules { approve_roles: names(&["chief"]), ..ToolRules::default() };
        config.tools.rules = [("look".to_owned(), clerks), ("pay".to_owned(), approvers)].into();
        config.approval.rules = vec![about("clerks", RuleEffect::Deny, "pay", &["clerk"])];
    })
    .await;
    let (ann, clerk) =
        (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "ann", &["clerk"]));
    let thread = ann.thread().await;
    for (tenant, user, role) in [("acme", "bob", ""), ("acme", "carol", "chief"), ("other", "olga", "admin")]
    {
        let other_user = app.client.as_user(tenant, user, &[role]);
        let path = format!("/sessions/{thread}/policy");
        assert_eq!(other_user.get(&path).await.status, 404, "{user}");
    }
    let own = in_force(&ann, &thread).await;
    assert_eq!((of_tool(&own, "look"), verdict(&own, "pay")), (None, Some(("ask", "tool"))));
    assert_eq!(of_tool(&own, "pay").unwrap()["rules"], json!([]), "the rule is about other roles");
    let own = in_force(&clerk, &thread).await;
    assert!(of_tool(&own, "look").is_some());
    assert_eq!(verdict(&own, "pay"), Some(("forbid", "rule:clerks")));
    // The roles with which ann will come are unknown to an operator.
    let seen = in_force(&app.client.as_user("acme", "olga", &["admin"]), &thread).await;
    assert_eq!(verdict(&seen, "pay"), Some(("ask", "tool")));
    assert_eq!(of_tool(&seen, "pay").unwrap()["rules"][0]["name"], "clerks");
    assert!(of_tool(&seen, "look").is_some());
}
