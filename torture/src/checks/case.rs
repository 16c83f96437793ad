//! One call with all of its records.

use super::Records;
use crate::files::LedgerLine;
use crate::record::{DecisionRequest, Observation};
use crate::rows::{CallRow, DecisionRow, EventRow, SentRow};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A call and its records.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) row: &'a CallRow,
    pub(crate) decisions: Vec<&'a DecisionRow>,
    pub(crate) events: Vec<&'a EventRow>,
    pub(crate) ledger: Vec<&'a LedgerLine>,
    pub(crate) decision_requests: Vec<&'a DecisionRequest>,
    pub(crate) observations: Vec<&'a Observation>,
    pub(crate) sent: Vec<&'a SentRow>,
}

/// All calls by id.
pub(crate) type Cases<'a> = BTreeMap<&'a str, Case<'a>>;

impl Records {
    /// Returns the calls that have a row.
    pub(crate) fn cases(&self) -> Cases<'_> {
        let new = |row| Case {
            row,
            decisions: Vec::new(),
            events: Vec::new(),
            ledger: Vec::new(),
            decision_requests: Vec::new(),
            observations: Vec::new(),
            sent: Vec::new(),
        };
        let mut cases: Cases<'_> =
            self.rows.calls.iter().map(|row| (row.tool_call_id.as_str(), new(row))).collect();
        for decision in &self.rows.decisions {
            if let Some(case) = cases.get_mut(decision.tool_call_id.as_str()) {
                case.decisions.push(decision);
            }
        }
        for event in &self.rows.events {
            if let Some(case) = event.tool_call_id.as_deref().and_then(|call| cases.get_mut(call)) {
                case.events.push(event);
            }
        }
        for line in &self.ledger {
            if let Some(case) = cases.get_mut(line.call.as_str()) {
                case.ledger.push(line);
            }
        }
        for request in &self.decision_requests {
            if let Some(case) = cases.get_mut(request.call.as_str()) {
                case.decision_requests.push(request);
            }
        }
        for observation in &self.observations {
            if let Some(case) = cases.get_mut(observation.call.as_str()) {
                case.observations.push(observation);
            }
        }
        for sent in &self.rows.sent {
            if let Some(case) = cases.get_mut(sent.tool_call_id.as_str()) {
                case.sent.push(sent);
            }
        }
        cases
    }
}

impl Case<'_> {
    pub(crate) fn starts(&self) -> impl Iterator<Item = &LedgerLine> {
        self.ledger.iter().copied().filter(|line| line.what == "start")
    }

    pub(crate) fn had_effect(&self) -> bool {
        self.ledger.iter().any(|line| line.what == "effect")
    }

    pub(crate) fn tool_ended(&self, outcome: &str) -> bool {
        self.ledger.iter().any(|line| line.what == "end" && line.outcome.as_deref() == Some(outcome))
    }

    /// The final decision, which moved the call.
    pub(crate) fn decision(&self) -> Option<&DecisionRow> {
        self.decisions.iter().copied().find(|decision| decision.is_final)
    }

    /// The times of the call's claims.
    pub(crate) fn claims(&self) -> impl Iterator<Item = i64> {
        self.events.iter().filter(|event| event.kind == "tool.started").map(|event| event.at)
    }

    pub(crate) fn was_interrupted(&self) -> bool {
        self.events.iter().any(|event| event.kind == "tool.interrupted")
    }
}

/// The SHA-256 hash of a value in canonical JSON (RFC 8785).
pub(crate) fn hash(value: &Value) -> String {
    let text = serde_json_canonicalizer::to_vec(value).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two inputs have the same canonical JSON.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    one == other || hash(one) == hash(other)
}
