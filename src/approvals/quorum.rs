//! Quorums of tools that need several approvals: which approvals count.
//!
//! An approval counts for its inputs and for the schema of the tool at that time, so that all counted
//! approvers agreed on the same call. The approval counts until the call is decided. An approver with second
//! thoughts rejects the call, and one rejection decides.

use super::Approvals;
use crate::tools::gate::Gate;
use holdpoint_core::decision::Choice;
use holdpoint_store::{LockedCall, StoreError, Vote, VoteOutcome, Write};

impl Approvals {
    /// Counts a vote before it decides. One rejection is always enough.
    pub(super) async fn count_vote(
        &self,
        gate: &Gate,
        write: &Write,
        locked: &LockedCall,
        answer: &Choice,
        vote: &Vote,
    ) -> Result<VoteOutcome, StoreError> {
        let quorum = gate.registry().quorum(&locked.call.name);
        if quorum.people <= 1 || matches!(answer, Choice::Reject { .. }) {
            return Ok(VoteOutcome::Enough(Vec::new()));
        }
        write.count_vote(locked, answer, vote, quorum).await
    }
}
