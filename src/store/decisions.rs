//! Decisions: rows that never change.

use super::Read;
use super::entity::decision;
use super::rows;
use super::{StoreError, Write};
use crate::domain::decision::{Answer, Decision, Surface, Verdict};
use crate::domain::id::ToolCallId;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter};
use std::collections::HashMap;

/// A decision to write down.
#[derive(Debug, Clone)]
pub(super) struct NewDecision {
    /// What is said.
    pub(super) verdict: Verdict,
    /// Who says it.
    pub(super) by: String,
    /// Whether other inputs than the model's are approved.
    pub(super) edited: bool,
    /// Why.
    pub(super) reason: Option<String>,
    /// The hash of the inputs decided on.
    pub(super) input_hash: String,
    /// Where it came in.
    pub(super) surface: Surface,
}

impl NewDecision {
    /// One of the model's own inputs, without a word of why.
    pub(super) fn new(verdict: Verdict, by: &str, surface: Surface, input_hash: String) -> Self {
        Self { verdict, by: by.to_owned(), edited: false, reason: None, input_hash, surface }
    }

    /// A person's.
    pub(super) fn of(answer: &Answer, by: &Voice) -> Self {
        let (verdict, edited, reason) = match answer {
            Answer::Approve { inputs } => (Verdict::Approve, inputs.is_some(), None),
            Answer::Reject { reason } => (Verdict::Reject, false, reason.clone()),
        };
        let Voice { actor, surface, input_hash } = by.clone();
        Self { verdict, by: actor, edited, reason, input_hash, surface }
    }
}

/// Who decides, where, and what they saw.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    /// Who says it.
    pub(crate) actor: String,
    /// Where it came in.
    pub(crate) surface: Surface,
    /// The hash of the inputs decided on.
    pub(crate) input_hash: String,
}

impl Write {
    pub(super) async fn record_decision(&self, id: ToolCallId, new: &NewDecision) -> Result<(), StoreError> {
        let row = decision::ActiveModel {
            decision_id: Set(self.clock.uuid().to_string()),
            tool_call_id: Set(id.to_string()),
            actor: Set(new.by.clone()),
            verdict: Set(new.verdict.as_str().to_owned()),
            is_final: Set(true),
            edited: Set(new.edited),
            input_hash: Set(new.input_hash.clone()),
            reason: Set(new.reason.clone()),
            surface: Set(new.surface.as_str().to_owned()),
            at: Set(self.now.as_micros()),
        };
        decision::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(())
    }
}

impl Read {
    /// The decisions in force for these calls.
    pub(super) async fn decisions(
        &self,
        calls: Vec<String>,
    ) -> Result<HashMap<String, Decision>, StoreError> {
        if calls.is_empty() {
            return Ok(HashMap::new());
        }
        let found = decision::Entity::find()
            .filter(decision::Column::ToolCallId.is_in(calls))
            .filter(decision::Column::IsFinal.eq(true))
            .all(&self.tx)
            .await?;
        found.into_iter().map(|row| Ok((row.tool_call_id.clone(), rows::decision(row)?))).collect()
    }
}
