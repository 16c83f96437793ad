//! `[[approval.rules]]`: rules that ask or forbid, by the inputs of a call and the roles of its user.

use holdpoint_settings::{ConfigError, check_duration, wrong};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeSet;
use std::time::Duration;

/// One rule. A rule only tightens: it asks for an approval or forbids the call.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name in decisions and events.
    ///
    /// Value: `a-z A-Z 0-9 _ -`, unique. Default: required.
    pub name: String,
    /// Whether the rule asks for an approval or forbids the call.
    ///
    /// Value: `ask`, `deny`. Default: required.
    pub effect: RuleEffect,
    /// Tools that the rule covers.
    ///
    /// Value: list of tool names and patterns, not empty. Default: required.
    pub tools: Vec<String>,
    /// Conditions on the inputs. All must hold.
    ///
    /// Value: list of conditions. Default: none: every call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<RuleCondition>,
    /// The rule covers only users with one of these roles.
    ///
    /// Value: list of roles. Default: all users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The rule does not cover users with one of these roles.
    ///
    /// Value: list of roles. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unless_roles: Vec<String>,
    /// How long a call that the rule holds waits before the roles of `escalate_to` may decide it too. Only with the effect
    /// `ask`.
    ///
    /// Value: duration, more than 0. Default: that of `[approval]`.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub escalate_after: Option<Duration>,
    /// The roles that may decide after `escalate_after`.
    ///
    /// Value: list of roles. Default: those of `[approval]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate_to: Vec<String>,
    /// Reason for the approver and the model.
    ///
    /// Value: text. Default: a sentence with the rule's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleEffect {
    /// The call is held for an approval.
    Ask,
    /// The call does not run.
    Deny,
}

/// A condition on one argument. The condition has exactly one test besides its pointer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleCondition {
    /// A JSON pointer (RFC 6901) into the inputs.
    ///
    /// Value: JSON pointer, begins with `/`.
    pub argument: String,
    /// The argument is a number above this number.
    ///
    /// Value: number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<Number>,
    /// The argument is a number below this number.
    ///
    /// Value: number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Number>,
    /// The argument equals this value.
    ///
    /// Value: any JSON value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// The argument equals none of these values.
    ///
    /// Value: list of JSON values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_in: Option<Vec<Value>>,
    /// The argument is a string that matches this pattern. `*` and `?` match other characters.
    ///
    /// Value: text with `*` and `?`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// The argument is a string that matches none of these patterns.
    ///
    /// Value: list of texts with `*` and `?`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches_none: Option<Vec<String>>,
}

impl RuleCondition {
    /// Returns the number of tests.
    fn tests(&self) -> usize {
        let Self { argument: _, above, below, equals, not_in, matches, matches_none } = self;
        [
            above.is_some(),
            below.is_some(),
            equals.is_some(),
            not_in.is_some(),
            matches.is_some(),
            matches_none.is_some(),
        ]
        .into_iter()
        .filter(|is_there| *is_there)
        .count()
    }
}

/// Refuses a name that no tool can have. A rule with such a name would never apply.
pub(crate) fn names(key: &str, names: &[String]) -> Result<(), ConfigError> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '?');
    match names.iter().find(|name| name.is_empty() || !name.chars().all(usable)) {
        Some(name) => {
            wrong(key, format!("expected names of tools, with * and ? for other characters, not {name:?}"))
        }
        None => Ok(()),
    }
}

/// Refuses a time without roles, and roles without a time. `prefix` is the beginning of the keys.
pub(crate) fn escalation(prefix: &str, after: Option<Duration>, to: &[String]) -> Result<(), ConfigError> {
    let key = |name: &str| format!("{prefix}{name}");
    match after {
        Some(after) if after.is_zero() => wrong(key("escalate_after"), "expected more than 0s"),
        Some(_) if to.is_empty() => {
            wrong(key("escalate_to"), "expected at least one role, with escalate_after")
        }
        None if !to.is_empty() => wrong(key("escalate_after"), "expected a duration, with escalate_to"),
        _ if to.iter().any(|role| role.trim().is_empty()) => {
            wrong(key("escalate_to"), "expected roles, not a blank text")
        }
        Some(after) => check_duration(&key("escalate_after"), after),
        None => Ok(()),
    }
}

pub(crate) fn check(rules: &[ApprovalRule]) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (at, rule) in rules.iter().enumerate() {
        let key = |field: &str| format!("approval.rules[{at}].{field}");
        let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if rule.name.is_empty() || !rule.name.chars().all(usable) {
            return wrong(key("name"), "expected a-z, A-Z, 0-9, _ and -");
        }
        if !seen.insert(&rule.name) {
            return wrong(
                key("name"),
                format!("expected another name than {:?}, which another rule has", rule.name),
            );
        }
        let prefix = format!("approval.rules[{at}].");
        escalation(&prefix, rule.escalate_after, &rule.escalate_to)?;
        if rule.effect == RuleEffect::Deny && rule.escalate_after.is_some() {
            return wrong(key("escalate_after"), "expected only with the effect ask");
        }
        if rule.tools.is_empty() {
            return wrong(key("tools"), "expected at least one name of a tool, as \"*\"");
        }
        names(&key("tools"), &rule.tools)?;
        for (nth, condition) in rule.when.iter().enumerate() {
            let key = |field: &str| format!("approval.rules[{at}].when[{nth}]{field}");
            if !condition.argument.starts_with('/') {
                return wrong(key(".argument"), "expected a JSON pointer, as \"/amount\"");
            }
            if condition.tests() != 1 {
                let why = "expected one of above, below, equals, not_in, matches, matches_none";
                return wrong(key(""), why);
            }
        }
    }
    Ok(())
}
