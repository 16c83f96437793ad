//! The wire form of decisions.

use crate::http::body::formats::{Hash, Time};
use crate::http::body::word::Word;
use holdpoint_core::decision::{Decision, Remember, Surface, Verdict};
use poem_openapi::Object;
use poem_openapi::types::ToJSON;
use serde_json::Value;

/// A decision about a call.
#[derive(Debug, Object)]
#[oai(rename = "Decision", skip_serializing_if_is_none)]
pub(in crate::http) struct DecisionView {
    decision: Word<Verdict>,
    /// The actor: `user:<sub>`, `system:policy` and others.
    by: String,
    /// The approver in whose place the actor decided, as an actor. Absent if the actor decided in their own right.
    on_behalf_of: Option<String>,
    /// When the decision was committed.
    at: Time,
    /// Whether the approved inputs differ from the proposed ones.
    edited: bool,
    /// The reason of a rejection, or the note of an approval, in the words of the actor. The model reads it.
    reason: Option<String>,
    /// The hash of the inputs that the decision is about.
    input_hash: Option<Hash>,
    surface: Word<Surface>,
    /// The part of the policy that decided, if the policy decided: always_allow, always_deny, role, session,
    /// mode, `rule:` and the name of a rule, or `remembered:` and the id of a grant.
    source: Option<String>,
    remember: Option<Word<Remember>>,
}

impl DecisionView {
    pub(in crate::http) fn of(decision: &Decision) -> Self {
        Self {
            decision: decision.verdict.into(),
            by: decision.by.clone(),
            on_behalf_of: decision.on_behalf_of.clone(),
            at: decision.at.into(),
            edited: decision.edited,
            reason: decision.reason.clone(),
            input_hash: Some(decision.input_hash.clone().into()),
            surface: decision.surface.into(),
            source: decision.source.clone(),
            remember: decision.remember.map(Word),
        }
    }
}

/// Returns a decision as JSON, for the details of an error.
pub(in crate::http) fn decision(decision: &Decision) -> Value {
    DecisionView::of(decision).to_json().unwrap_or_default()
}
