//! `[[approval.rules]]`: what is asked or forbidden by the inputs of a call and whom it is for.

use super::{ConfigError, wrong};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeSet;

/// One rule. It tightens: it asks a person or forbids.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// `name`: what decisions and events call it.
    pub name: String,
    /// `effect`: what it does.
    #[serde(deserialize_with = "super::sources::word")]
    pub effect: RuleEffect,
    /// `tools`: the tools that it is about, by their names; `*` and `?` stand for others.
    pub tools: Vec<String>,
    /// `when`: what has to be so of the inputs, all of it. Of an argument that is absent, or of another kind, it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<RuleCondition>,
    /// `roles`: it holds for who has one of these roles alone; if absent, for everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// `unless_roles`: it does not hold for who has one of these roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unless_roles: Vec<String>,
    /// `reason`: why, for the person who is asked and for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleEffect {
    /// A person is asked.
    Ask,
    /// The call does not run.
    Deny,
}

/// What may be so of an argument: one of the tests beside its pointer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleCondition {
    /// `argument`: a JSON pointer (RFC 6901) into the inputs.
    pub argument: String,
    /// `above`: it is a number above this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<Number>,
    /// `below`: it is a number below this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Number>,
    /// `equals`: it is this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// `not_in`: it is none of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_in: Option<Vec<Value>>,
    /// `matches`: it is a text of this shape; `*` and `?` stand for other characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// `matches_none`: it is a text of none of these shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches_none: Option<Vec<String>>,
}

impl RuleCondition {
    /// How many tests it has.
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

/// A name that could be no tool's would be a rule that never holds.
pub(super) fn names(key: &str, names: &[String]) -> Result<(), ConfigError> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '?');
    match names.iter().find(|name| name.is_empty() || !name.chars().all(usable)) {
        Some(name) => {
            wrong(key, format!("expected names of tools, with * and ? for other characters, not {name:?}"))
        }
        None => Ok(()),
    }
}

pub(super) fn check(rules: &[ApprovalRule]) -> Result<(), ConfigError> {
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
                format!("expected another name than {:?}, which a rule has", rule.name),
            );
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
