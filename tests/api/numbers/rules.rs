//! Rules on numbers, and on values of another JSON type.

use super::{call_of, calls, server};
use holdpoint::config::{ApprovalRule, Config, RuleCondition, RuleEffect};
use serde_json::{Value, json};

fn rule(config: &mut Config, effect: RuleEffect, condition: RuleCondition) {
    let argument = "/n".to_owned();
    config.approval.rules.push(ApprovalRule {
        name: "numbers".to_owned(),
        effect,
        tools: vec!["note".to_owned()],
        when: vec![RuleCondition { argument, ..condition }],
        roles: vec![],
        unless_roles: vec![],
        escalate_after: None,
        escalate_to: vec![],
        reason: None,
    });
}

/// The states of calls of `note`, which runs unasked unless a rule matches.
async fn states(change: impl Fn(&mut Config) + Clone, arguments: &[&str]) -> Vec<Value> {
    let (app, _) = server(change).await;
    let mut states = Vec::new();
    for arguments in arguments {
        let thread = app.client.thread().await;
        let turn = calls(&app, &thread, "note", arguments).await;
        states.push(call_of(&app, &turn).await["state"].clone());
    }
    states
}

#[tokio::test]
async fn a_rule_that_forbids_a_value_forbids_values_of_another_type() {
    let equals = |value: Value| {
        move |config: &mut Config| {
            let condition = RuleCondition { equals: Some(value.clone()), ..RuleCondition::default() };
            rule(config, RuleEffect::Deny, condition);
        }
    };
    let forbidden = [r#"{"n":5}"#, r#"{"n":5.0}"#, "{}", r#"{"n":"5"}"#, r#"{"n":[5]}"#, r#"{"n":null}"#];
    assert_eq!(states(equals(json!(5)), &forbidden).await, vec!["rejected"; 6]);
    assert_eq!(states(equals(json!(5)), &[r#"{"n":6}"#, r#"{"n":5.5}"#]).await, vec!["succeeded"; 2]);
    let forbidden = [r#"{"n":[1,2]}"#, r#"{"n":[1.0,2]}"#, r#"{"n":[1,"2"]}"#, r#"{"n":"1,2"}"#];
    assert_eq!(states(equals(json!([1, 2])), &forbidden).await, vec!["rejected"; 4]);
    let other = [r#"{"n":[1,3]}"#, r#"{"n":[1]}"#, r#"{"n":[2,1]}"#];
    assert_eq!(states(equals(json!([1, 2])), &other).await, vec!["succeeded"; 3]);
}

#[tokio::test]
async fn a_large_double_is_not_the_integer_near_it() {
    let allowed: Value = serde_json::from_str("1234567890123456789").unwrap();
    let not_in = move |config: &mut Config| {
        let condition = RuleCondition { not_in: Some(vec![allowed.clone()]), ..RuleCondition::default() };
        rule(config, RuleEffect::Deny, condition);
    };
    let calls =
        [r#"{"n":1234567890123456768.0}"#, r#"{"n":1234567890123456788}"#, r#"{"n":1234567890123456789}"#];
    assert_eq!(states(not_in, &calls).await, ["rejected", "rejected", "succeeded"]);
    let above = |config: &mut Config| {
        let bound = serde_json::from_str("9007199254740992").unwrap();
        let condition = RuleCondition { above: Some(bound), ..RuleCondition::default() };
        rule(config, RuleEffect::Deny, condition);
    };
    let calls = [r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992.0}"#, r#"{"n":9007199254740992}"#];
    assert_eq!(states(above, &calls).await, ["rejected", "succeeded", "succeeded"]);
}
