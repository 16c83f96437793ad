//! The wire form of decisions.

use super::formats::{Hash, Time};
use crate::domain::decision::{self, Decision};
use poem_openapi::types::ToJSON;
use poem_openapi::{Enum, Object};
use serde_json::Value;

/// The verdict of a decision.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case", remote = "decision::Verdict")]
pub(super) enum Verdict {
    Approve,
    Reject,
    Expire,
    Cancel,
}

/// A decision about a call.
#[derive(Debug, Object)]
#[oai(rename = "Decision", skip_serializing_if_is_none)]
pub(super) struct DecisionView {
    decision: Verdict,
    /// The actor: `user:<sub>`, `system:policy` and others.
    by: String,
    at: Time,
    /// Whether the approved inputs differ from the proposed ones.
    edited: bool,
    reason: Option<String>,
    /// The hash of the inputs that the decision is about.
    input_hash: Option<Hash>,
    /// The surface on which the decision arrived.
    surface: String,
    /// The part of the policy that decided, if the policy decided: always_allow, always_deny, role, session,
    /// mode, `rule:` and the name of a rule, or `remembered:` and the id of a grant.
    source: Option<String>,
    /// session: the approval also covers such calls of the session.
    remember: Option<String>,
}

impl DecisionView {
    pub(super) fn of(decision: &Decision) -> Self {
        Self {
            decision: decision.verdict.into(),
            by: decision.by.clone(),
            at: decision.at.into(),
            edited: decision.edited,
            reason: decision.reason.clone(),
            input_hash: Some(decision.input_hash.clone().into()),
            surface: decision.surface.name().to_owned(),
            source: decision.source.clone(),
            remember: decision.remember.map(|remember| remember.name().to_owned()),
        }
    }
}

/// Returns a decision as JSON, for the details of an error.
pub(super) fn decision(decision: &Decision) -> Value {
    DecisionView::of(decision).to_json().unwrap_or_default()
}
