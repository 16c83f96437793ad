//! Decisions: rows that never change.

use super::Read;
use super::entity::decision;
use super::rows;
use super::{StoreError, Write};
use crate::domain::decision::{Choice, Decision, Remember, Surface, Verdict};
use crate::domain::event::system;
use crate::domain::id::{GrantId, ToolCallId};
use crate::domain::policy::Source;
use sea_orm::sea_query::SimpleExpr;
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
    /// What of the policy decides, if it does.
    pub(super) source: Option<Source>,
    /// What it leaves behind, if it is to be remembered.
    pub(super) grant: Option<GrantId>,
    /// Whether it moves the call, and is not one yes of several.
    pub(super) is_final: bool,
    /// Who said the same before.
    pub(super) voted_before: Vec<String>,
}

impl NewDecision {
    /// One of the model's own inputs, without a word of why.
    pub(super) fn new(verdict: Verdict, by: &str, surface: Surface, input_hash: String) -> Self {
        Self {
            verdict,
            by: by.to_owned(),
            edited: false,
            reason: None,
            input_hash,
            surface,
            source: None,
            is_final: true,
            voted_before: Vec::new(),
            grant: None,
        }
    }

    /// The policy's, of a call that the model asks for.
    pub(super) fn of_policy(
        verdict: Verdict,
        source: Source,
        reason: Option<String>,
        input_hash: String,
    ) -> Self {
        // A tool that asks nobody has nothing decided about it.
        let source = Some(source).filter(|source| *source != Source::Tool);
        Self { source, reason, ..Self::new(verdict, system::POLICY, Surface::Policy, input_hash) }
    }

    /// A person's.
    pub(super) fn of(answer: &Choice, by: &Vote) -> Self {
        let (verdict, edited, reason) = match answer {
            Choice::Approve { inputs } => (Verdict::Approve, inputs.is_some(), None),
            Choice::Reject { reason } => (Verdict::Reject, false, reason.clone()),
        };
        let Vote { actor, surface, input_hash, source, grant, voted_before } = by.clone();
        Self {
            edited,
            reason,
            source,
            grant,
            voted_before,
            ..Self::new(verdict, &actor, surface, input_hash)
        }
    }
}

/// Who decides, where, and what they saw.
#[derive(Debug, Clone)]
pub(crate) struct Vote {
    /// Who says it.
    pub(crate) actor: String,
    /// Where it came in.
    pub(crate) surface: Surface,
    /// The hash of the inputs decided on.
    pub(crate) input_hash: String,
    /// What they said before that decides, if this is no word of their own.
    pub(crate) source: Option<Source>,
    /// What the yes leaves behind, if it is to be remembered.
    pub(crate) grant: Option<GrantId>,
    /// Who said the same before, where several have to.
    pub(crate) voted_before: Vec<String>,
}

impl Write {
    pub(super) async fn record_decision(&self, id: ToolCallId, new: &NewDecision) -> Result<(), StoreError> {
        let row = decision::ActiveModel {
            decision_id: Set(self.clock.uuid().to_string()),
            tool_call_id: Set(id.to_string()),
            actor: Set(new.by.clone()),
            verdict: Set(new.verdict.as_str().to_owned()),
            is_final: Set(new.is_final),
            edited: Set(new.edited),
            input_hash: Set(new.input_hash.clone()),
            reason: Set(new.reason.clone()),
            remember: Set(new.grant.map(|_| Remember::Session.as_str().to_owned())),
            surface: Set(new.surface.as_str().to_owned()),
            source: Set(new.source.as_ref().map(Source::to_string)),
            at: Set(self.now.as_micros()),
        };
        decision::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(())
    }
}

impl Read {
    /// The decisions in force for the calls of which this holds.
    pub(super) async fn decisions(&self, which: SimpleExpr) -> Result<HashMap<String, Decision>, StoreError> {
        let found = decision::Entity::find()
            .filter(which)
            .filter(decision::Column::IsFinal.eq(true))
            .all(&self.tx)
            .await?;
        found.into_iter().map(|row| Ok((row.tool_call_id.clone(), rows::decision(row)?))).collect()
    }
}
