//! Rules: what an operator says of calls by their tool, their inputs and whom they are for.
//!
//! A rule only ever tightens: it asks a person or forbids. So where it cannot be told whether a condition holds, it does.

use super::{PolicyRequest, Source};
use crate::domain::canonical::{compare_numbers, same};
use crate::domain::pointer;
use serde_json::{Number, Value};
use std::mem::discriminant;
use wildmatch::WildMatch;

/// Tools by their names; `*` stands for any characters, `?` for one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tools(Vec<WildMatch>);

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// Its name, which decisions and events give as their source.
    pub(crate) name: String,
    /// What it does.
    pub(crate) effect: Effect,
    /// The tools that it is about.
    pub(crate) tools: Tools,
    /// What has to be so of the inputs, all of it.
    pub(crate) when: Vec<Condition>,
    /// For whom alone it holds: who has one of these roles; everybody if there are none.
    pub(crate) roles: Vec<String>,
    /// For whom it does not hold: who has one of these roles.
    pub(crate) unless_roles: Vec<String>,
    /// Why, for people and the model.
    pub(crate) reason: String,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A person is asked.
    Ask,
    /// The call does not run.
    Deny,
}

/// Something that may be so of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    /// Which: a JSON pointer (RFC 6901) into the inputs.
    pub(crate) argument: String,
    /// What.
    pub(crate) test: Test,
}

/// What may be so of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    /// It is more.
    Above(Number),
    /// It is less.
    Below(Number),
    /// It is this.
    Equals(Value),
    /// It is none of these.
    NotIn(Vec<Value>),
    /// It is a text of this shape, with `*` and `?`.
    Matches(String),
    /// It is not a text of any of these shapes.
    MatchesNone(Vec<String>),
}

impl Tools {
    /// Tools by these names.
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| WildMatch::new(name)).collect())
    }

    /// Whether this is the name of one.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }
}

impl Rule {
    /// Whether it is about this call.
    pub(super) fn holds(&self, call: &PolicyRequest<'_>) -> bool {
        let has_one_of = |roles: &[String]| call.roles.iter().any(|role| roles.contains(role));
        self.tools.contains(call.tool)
            && (self.roles.is_empty() || has_one_of(&self.roles))
            && !has_one_of(&self.unless_roles)
            && self.when.iter().all(|condition| condition.holds(call))
    }

    pub(super) fn source(&self) -> Source {
        Source::Rule(self.name.clone())
    }
}

impl Condition {
    /// Of an argument that is not there the tool may take anything for it, so whatever it is holds.
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
            // Of another JSON type: the tool may read anything into it.
            (Self::Above(_) | Self::Below(_) | Self::Matches(_) | Self::MatchesNone(_), _) => true,
        }
    }
}

/// Whether a tool may take `found` for `value`: it is the same, or it differs only where it is of another JSON type.
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
