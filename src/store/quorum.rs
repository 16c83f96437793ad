//! Calls that several people have to say yes to.

use super::entity::{decision, tool_call};
use super::{NewDecision, Read, StoreError, Thread, Vote, Write};
use crate::domain::call::ToolCall;
use crate::domain::decision::{Choice, Verdict};
use crate::domain::quorum::{ApprovalVote, Quorum};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder};
use std::collections::HashMap;

/// What became of a yes that is one of several.
#[derive(Debug)]
pub(crate) enum Counted {
    /// With it there are enough: who said the same before.
    Enough(Vec<String>),
    /// It is written down, and so many more have to say the same.
    Short {
        /// How many more.
        missing: usize,
        /// Whether they had said it before.
        repeated: bool,
    },
    /// The call does not wait any more.
    Closed,
}

impl Read {
    /// Who said yes to these calls, by their ids, the first first.
    pub(super) async fn votes(
        &self,
        calls: Vec<String>,
    ) -> Result<HashMap<String, Vec<ApprovalVote>>, StoreError> {
        let mut votes: HashMap<String, Vec<ApprovalVote>> = HashMap::new();
        if calls.is_empty() {
            return Ok(votes);
        }
        let found = decision::Entity::find()
            .filter(decision::Column::ToolCallId.is_in(calls))
            .filter(decision::Column::Verdict.eq(Verdict::Approve.as_str()))
            .order_by_asc(decision::Column::At)
            .order_by_asc(decision::Column::DecisionId)
            .all(&self.tx)
            .await?;
        for row in found {
            let yes = ApprovalVote { by: row.actor, input_hash: row.input_hash };
            votes.entry(row.tool_call_id).or_default().push(yes);
        }
        Ok(votes)
    }
}

impl Write {
    /// Counts a yes to a pending call. It counts for its inputs alone: who approves others begins anew. Where it is not
    /// enough it is written down; the one that is enough decides, in this transaction.
    pub(crate) async fn count_vote(
        &self,
        thread: &Thread,
        call: &ToolCall,
        answer: &Choice,
        by: &Vote,
        quorum: Quorum,
    ) -> Result<Counted, StoreError> {
        // Until this transaction ends nobody else counts, decides or cancels.
        self.lock_thread(thread).await?;
        let waits = tool_call::Entity::find_by_id(call.id.to_string())
            .filter(tool_call::Column::State.eq("pending"))
            .filter(tool_call::Column::ExpiresAt.gt(self.now.as_micros()));
        if waits.count(&self.tx).await? == 0 {
            return Ok(Counted::Closed);
        }
        let id = call.id.to_string();
        let votes = self.votes(vec![id.clone()]).await?.remove(&id).unwrap_or_default();
        let mut others = quorum.agreed(&votes, &thread.actor(), &by.input_hash);
        let repeated = others.contains(&by.actor);
        others.retain(|other| *other != by.actor);
        let missing = quorum.missing(others.len().saturating_add(1));
        if missing == 0 {
            return Ok(Counted::Enough(others));
        }
        if !repeated {
            let yes = NewDecision { is_final: false, ..NewDecision::of(answer, by) };
            self.record_decision(call.id, &yes).await?;
        }
        Ok(Counted::Short { missing, repeated })
    }
}
