//! Rules: the operator's conditions on calls, by tool, inputs and roles.
//!
//! A rule only tightens the policy: it asks a person or forbids. So a condition that cannot be evaluated
//! holds.
//!
//! Rules are no policy language: operators need a bound, a list or a shape of an argument. Cedar would add 43 crates,
//! and skips a policy that fails to evaluate, even one that forbids. No choice of arguments evades a rule here.

use super::{PolicyRequest, Source};
use crate::json::canonical::{compare_numbers, same};
use crate::json::pointer;
use crate::vocabulary;
use serde_json::{Number, Value};
use std::mem::discriminant;
use wildmatch::WildMatch;

/// Patterns of tool names; `*` matches any characters, `?` matches one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools(Vec<WildMatch>);

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The name, which decisions and events give as their source.
    pub name: String,
    /// The effect.
    pub effect: Effect,
    /// The tools that the rule is about.
    pub tools: Tools,
    /// The conditions on the inputs. All of them have to hold.
    pub when: Vec<Condition>,
    /// The rule applies only to users with a role of this list; to all users if the list is empty.
    pub roles: Vec<String>,
    /// The rule does not apply to users with a role of this list.
    pub unless_roles: Vec<String>,
    /// The reason, for people and the model.
    pub reason: String,
}

vocabulary! {
    /// The effect of a rule on the calls that it covers.
    pub enum Effect as "RuleEffect" {
        /// The call needs an approval.
        Ask = "ask",
        /// The call does not run.
        Deny = "deny",
    }
}

/// A condition on an argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The argument: a JSON pointer (RFC 6901) into the inputs.
    pub argument: String,
    /// The test of the argument.
    pub test: Test,
}

/// A test of an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// The argument is greater.
    Above(Number),
    /// The argument is less.
    Below(Number),
    /// The argument equals this value.
    Equals(Value),
    /// The argument equals no value of the list.
    NotIn(Vec<Value>),
    /// The argument is a text that matches this pattern, with `*` and `?`.
    Matches(String),
    /// The argument is not a text that matches a pattern of the list.
    MatchesNone(Vec<String>),
}

impl Tools {
    /// Creates the patterns from these names.
    pub fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| WildMatch::new(name)).collect())
    }

    /// Whether a pattern matches this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }
}

impl Rule {
    /// Whether the rule applies to this call.
    pub(super) fn holds(&self, call: &PolicyRequest<'_>) -> bool {
        self.tools.contains(call.tool)
            && self.fits_roles(call.roles)
            && self.when.iter().all(|condition| condition.holds(call))
    }

    /// Whether the rule applies to a user with these roles.
    pub(super) fn fits_roles(&self, of_user: &[String]) -> bool {
        let has_one_of = |roles: &[String]| of_user.iter().any(|role| roles.contains(role));
        (self.roles.is_empty() || has_one_of(&self.roles)) && !has_one_of(&self.unless_roles)
    }

    /// Whether the rule depends on the roles of the user.
    pub(super) fn names_roles(&self) -> bool {
        !self.roles.is_empty() || !self.unless_roles.is_empty()
    }

    pub(super) fn source(&self) -> Source {
        Source::Rule(self.name.clone())
    }
}

impl Condition {
    /// A condition on an absent argument holds, because the tool may use any default for it.
    fn holds(&self, call: &PolicyRequest<'_>) -> bool {
        pointer::find(call.input, &self.argument).is_none_or(|found| self.test.holds(found))
    }
}

impl Test {
    fn holds(&self, found: &Value) -> bool {
        match (self, found) {
            (Self::Above(than), Value::Number(number)) => compare_numbers(number, than).is_gt(),
            (Self::Below(than), Value::Number(number)) => compare_numbers(number, than).is_lt(),
            (Self::Equals(value), found) => may_be(found, value),
            (Self::NotIn(values), found) => !values.iter().any(|value| same(found, value)),
            (Self::Matches(shape), Value::String(text)) => WildMatch::new(shape).matches(text),
            (Self::MatchesNone(shapes), Value::String(text)) => {
                !shapes.iter().any(|shape| WildMatch::new(shape).matches(text))
            }
            // The value has another JSON type, which the tool may interpret in any way.
            (Self::Above(_) | Self::Below(_) | Self::Matches(_) | Self::MatchesNone(_), _) => true,
        }
    }
}

/// Whether a tool may take `found` for `value`: the values are the same, or they differ only where `found`
/// has another JSON type.
fn may_be(found: &Value, value: &Value) -> bool {
    match (found, value) {
        (Value::Array(found), Value::Array(value)) => {
            found.len() == value.len() && found.iter().zip(value).all(|(found, value)| may_be(found, value))
        }
        (Value::Object(found), Value::Object(value)) => {
            found.len() == value.len()
                && value.iter().all(|(key, value)| found.get(key).is_some_and(|found| may_be(found, value)))
        }
        _ if discriminant(found) == discriminant(value) => same(found, value),
        _ => true,
    }
}
