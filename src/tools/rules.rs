//! The policy, built from the configuration.

use crate::config::{self, Approval, ApprovalRule, RuleCondition, RuleEffect};
use holdpoint_core::policy::{ApprovalMode, Condition, Effect, Policy, Rule, Test, Tools};

pub(super) fn policy(approval: &Approval) -> Policy {
    let mode = match approval.mode {
        config::ApprovalMode::Manual => ApprovalMode::Manual,
        config::ApprovalMode::AutoApprove => ApprovalMode::AutoApprove,
        config::ApprovalMode::AutoDeny => ApprovalMode::AutoDeny,
    };
    Policy {
        mode,
        always_deny: Tools::new(&approval.always_deny),
        always_allow: Tools::new(&approval.always_allow),
        rules: approval.rules.iter().map(rule).collect(),
    }
}

fn rule(config: &ApprovalRule) -> Rule {
    let ApprovalRule { name, effect, tools, when, roles, unless_roles, reason, .. } = config;
    let (effect, does) = match effect {
        RuleEffect::Ask => (Effect::Ask, "wants a person's approval"),
        RuleEffect::Deny => (Effect::Deny, "forbids this call"),
    };
    Rule {
        name: name.clone(),
        effect,
        tools: Tools::new(tools),
        when: when.iter().filter_map(condition).collect(),
        roles: roles.clone(),
        unless_roles: unless_roles.clone(),
        reason: reason.clone().unwrap_or_else(|| format!("The rule {name} {does}.")),
    }
}

/// Returns the condition with its one test.
fn condition(config: &RuleCondition) -> Option<Condition> {
    let RuleCondition { argument, above, below, equals, not_in, matches, matches_none } = config.clone();
    let test = above
        .map(Test::Above)
        .or_else(|| below.map(Test::Below))
        .or_else(|| equals.map(Test::Equals))
        .or_else(|| not_in.map(Test::NotIn))
        .or_else(|| matches.map(Test::Matches))
        .or_else(|| matches_none.map(Test::MatchesNone))?;
    Some(Condition { argument, test })
}
