//! Decisions: rows that never change.

use crate::Read;
use crate::entity::decision;
use crate::sql::rows;
use crate::{StoreError, Write};
use holdpoint_core::card::preview::Preview;
use holdpoint_core::decision::{Choice, Decision, Remember, Surface, Verdict};
use holdpoint_core::event::system;
use holdpoint_core::id::{GrantId, ToolCallId};
use holdpoint_core::policy::Source;
use sea_orm::sea_query::SimpleExpr;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use std::collections::HashMap;

/// A decision to record.
#[derive(Debug, Clone)]
pub(crate) struct NewDecision {
    pub(crate) verdict: Verdict,
    /// The actor of the decision.
    pub(crate) by: String,
    /// The approver as whose delegate the actor decides.
    pub(crate) on_behalf_of: Option<String>,
    /// Whether the decision approves other inputs than the model's.
    pub(crate) edited: bool,
    /// The reason of the decider, or the note of an approval.
    pub(crate) reason: Option<String>,
    /// The hash of the inputs that the decision is about.
    pub(crate) input_hash: String,
    /// The surface through which the decision came in.
    pub(crate) surface: Surface,
    /// The part of the policy that decides, if the policy decides.
    pub(crate) source: Option<Source>,
    /// The grant that the decision creates, if any.
    pub(crate) grant: Option<GrantId>,
    /// Whether the decision moves the call. False for one approval of several.
    pub(crate) is_final: bool,
    /// The actors of the earlier approvals.
    pub(crate) voted_before: Vec<String>,
}

impl NewDecision {
    /// Builds a final decision about the model's own inputs, without a reason.
    pub(crate) fn new(verdict: Verdict, by: &str, surface: Surface, input_hash: String) -> Self {
        Self {
            verdict,
            by: by.to_owned(),
            on_behalf_of: None,
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

    /// Builds the policy's decision about a call that the model makes.
    pub(crate) fn of_policy(
        verdict: Verdict,
        source: Source,
        reason: Option<String>,
        input_hash: String,
    ) -> Self {
        // The setting of the tool itself is not recorded as the source of a decision.
        let source = Some(source).filter(|source| *source != Source::Tool);
        Self { source, reason, ..Self::new(verdict, system::POLICY, Surface::Policy, input_hash) }
    }

    /// Builds the decision of a person or a handler.
    pub(crate) fn of(answer: &Choice, by: &Vote) -> Self {
        let (verdict, edited, reason) = match answer {
            Choice::Approve { inputs, note } => (Verdict::Approve, inputs.is_some(), note.clone()),
            Choice::Reject { reason } => (Verdict::Reject, false, reason.clone()),
        };
        let Vote { actor, on_behalf_of, surface, input_hash, source, grant, voted_before, .. } = by.clone();
        Self {
            on_behalf_of,
            edited,
            reason,
            source,
            grant,
            voted_before,
            ..Self::new(verdict, &actor, surface, input_hash)
        }
    }
}

/// The actor of a decision, its surface, and the inputs that the actor saw.
#[derive(Debug, Clone)]
pub struct Vote {
    pub actor: String,
    /// The approver as whose delegate the actor votes. The vote counts as that of the approver.
    pub on_behalf_of: Option<String>,
    /// The surface through which the vote came in.
    pub surface: Surface,
    /// The hash of the inputs that the vote is about.
    pub input_hash: String,
    /// The preview of edited inputs, if the tool has previews.
    pub edited_preview: Option<Preview>,
    /// The earlier grant that decides, if the actor did not decide about this call.
    pub source: Option<Source>,
    /// The grant that the approval creates, if any.
    pub grant: Option<GrantId>,
    /// The actors of the earlier approvals, with a quorum.
    pub voted_before: Vec<String>,
}

impl Write {
    /// Builds the row of a decision.
    pub(crate) fn decision_row(&self, id: ToolCallId, new: &NewDecision) -> decision::Model {
        decision::Model {
            decision_id: self.clock.uuid().to_string(),
            tool_call_id: id.to_string(),
            actor: new.by.clone(),
            on_behalf_of: new.on_behalf_of.clone(),
            verdict: new.verdict.word().to_owned(),
            is_final: new.is_final,
            edited: new.edited,
            input_hash: new.input_hash.clone(),
            reason: new.reason.clone(),
            remember: new.grant.map(|_| Remember::Session.word().to_owned()),
            surface: new.surface.word().to_owned(),
            source: new.source.as_ref().map(Source::text),
            at: self.now.as_micros(),
        }
    }

    /// Stores a decision, and returns it.
    pub(crate) async fn record_decision(
        &self,
        id: ToolCallId,
        new: &NewDecision,
    ) -> Result<Decision, StoreError> {
        let row = self.decision_row(id, new);
        self.insert_later([row.clone().into_active_model()]).await?;
        rows::decision(row)
    }
}

impl Read {
    /// Returns the decision in force for a call, and the people or the handler that approved the inputs of that
    /// decision, oldest first.
    pub(crate) async fn decision_and_approvers(
        &self,
        call: &str,
    ) -> Result<(Option<Decision>, Vec<String>), StoreError> {
        let found = decision::Entity::find()
            .filter(decision::Column::ToolCallId.eq(call))
            .order_by_asc(decision::Column::At)
            .order_by_asc(decision::Column::DecisionId)
            .all(&self.tx)
            .await?;
        let Some(in_force) = found.iter().find(|row| row.is_final).cloned() else {
            return Ok((None, Vec::new()));
        };
        let mut approved_by: Vec<String> = Vec::new();
        for row in found {
            let counts = row.verdict == Verdict::Approve.word() && row.input_hash == in_force.input_hash;
            if counts && row.actor != system::POLICY && !approved_by.contains(&row.actor) {
                approved_by.push(row.actor);
            }
        }
        Ok((Some(rows::decision(in_force)?), approved_by))
    }

    /// Returns the decisions in force for the calls that match the condition.
    pub(crate) async fn decisions(&self, which: SimpleExpr) -> Result<HashMap<String, Decision>, StoreError> {
        let found = decision::Entity::find()
            .filter(which)
            .filter(decision::Column::IsFinal.eq(true))
            .all(&self.tx)
            .await?;
        found.into_iter().map(|row| Ok((row.tool_call_id.clone(), rows::decision(row)?))).collect()
    }
}
