//! Calls that need several approvals.

use crate::entity::decision;
use crate::event::new_event::Subject;
use crate::{LockedCall, NewDecision, Read, StoreError, Vote, Write};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Choice, Verdict};
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::quorum::{ApprovalVote, Quorum};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use std::collections::HashMap;

/// The result of a vote with a quorum.
#[derive(Debug)]
pub enum VoteOutcome {
    /// The vote completes the quorum. Holds the actors of the earlier approvals.
    Enough(Vec<String>),
    /// The vote is recorded, and the call needs further approvals.
    Short {
        /// How many approvals are missing.
        missing: usize,
        /// Whether the actor had approved the same inputs before.
        repeated: bool,
    },
}

impl Read {
    /// Returns the approvals of these calls, by call id, oldest first.
    pub(crate) async fn votes(
        &self,
        calls: Vec<String>,
    ) -> Result<HashMap<String, Vec<ApprovalVote>>, StoreError> {
        let mut votes: HashMap<String, Vec<ApprovalVote>> = HashMap::new();
        if calls.is_empty() {
            return Ok(votes);
        }
        let found = decision::Entity::find()
            .filter(decision::Column::ToolCallId.is_in(calls))
            .filter(decision::Column::Verdict.eq(Verdict::Approve.word()))
            .order_by_asc(decision::Column::At)
            .order_by_asc(decision::Column::DecisionId)
            .all(&self.tx)
            .await?;
        for row in found {
            let yes = ApprovalVote {
                by: row.actor,
                on_behalf_of: row.on_behalf_of,
                input_hash: row.input_hash,
                edited: row.edited,
                note: row.reason,
                at: Timestamp::from_micros(row.at),
            };
            votes.entry(row.tool_call_id).or_default().push(yes);
        }
        Ok(votes)
    }

    /// Returns the approvals of this call in the same way.
    pub async fn votes_of(&self, call: ToolCallId) -> Result<Vec<ApprovalVote>, StoreError> {
        Ok(self.votes(vec![call.to_string()]).await?.into_values().flatten().collect())
    }
}

impl Write {
    /// Counts an approval of a pending call. The approval counts for its inputs only: an approval of other
    /// inputs starts a new count. An approval that does not complete the quorum is recorded. The approval
    /// that completes the quorum decides, in this transaction. Until this transaction ends, no other one
    /// counts, decides or cancels.
    pub async fn count_vote(
        &self,
        locked: &LockedCall,
        answer: &Choice,
        by: &Vote,
        quorum: Quorum,
    ) -> Result<VoteOutcome, StoreError> {
        let LockedCall { call, thread, .. } = locked;
        let votes = self.votes_of(call.id).await?;
        let agreed = quorum.agreed(&votes, &thread.actor(), &by.input_hash);
        let is_theirs = |vote: &ApprovalVote| vote.shares_a_person(&by.actor, by.on_behalf_of.as_deref());
        // Also a vote that does not count any more: the same vote is recorded once.
        let repeated = votes.iter().any(|vote| vote.input_hash == by.input_hash && is_theirs(vote));
        let others = agreed.into_iter().filter(|vote| !is_theirs(vote));
        let others: Vec<String> = others.map(|vote| vote.by.clone()).collect();
        let missing = quorum.missing(others.len().saturating_add(1));
        if missing == 0 {
            return Ok(VoteOutcome::Enough(others));
        }
        if !repeated {
            let yes = NewDecision { is_final: false, ..NewDecision::of(answer, by) };
            self.record_decision(call.id, &yes).await?;
            let data = EventData::Voted {
                tool_name: call.name.clone(),
                input_hash: by.input_hash.clone(),
                edited: yes.edited,
                surface: by.surface,
                approved_by: others.iter().chain([&by.actor]).cloned().collect(),
                missing,
                on_behalf_of: by.on_behalf_of.clone(),
            };
            self.event(EventType::ToolVoted, &by.actor, &Subject::call(thread, call), data);
        }
        Ok(VoteOutcome::Short { missing, repeated })
    }
}
