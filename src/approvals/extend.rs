//! Extensions: a person that may approve a call lets it wait longer for a decision.

use super::may_approve::{Block, Blocked, Proposal};
use super::{Approvals, DecideError, Decider, DecisionRequest, own_right};
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::MayDecide;
use holdpoint_store::{LockedCall, StoreError, VisibleCall, Write};
use std::time::Duration;

/// The reason why a call does not wait longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExtendError {
    /// An approval by the principal would be refused as well.
    #[error(transparent)]
    Refused(#[from] DecideError),
    /// The call waits as long already, or would wait longer than the configuration allows.
    #[error("the extension is out of bounds")]
    OutOfBounds {
        /// How long the call waits already, from now on.
        more_than: Duration,
        /// How long the call may wait, from now on.
        at_most: Duration,
    },
}

impl From<StoreError> for ExtendError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Approvals {
    /// Lets a pending call wait for this time from now on, for a principal that may approve the call. An overdue call
    /// expires. Returns the new deadline.
    pub(crate) async fn extend(
        &self,
        principal: &Principal,
        tool_call_id: ToolCallId,
        by: Duration,
    ) -> Result<Timestamp, ExtendError> {
        self.count(principal)?;
        let approval = DecisionRequest::undecided(tool_call_id, None);
        let gate = self.gate();
        let (write, locked) = self.lock_for(&gate, Decider::Person(principal), &approval).await?;
        let (State::Pending, Some(expires_at)) = (&locked.call.state, locked.call.expires_at) else {
            return Err(DecideError::Closed(Box::new(locked.call)).into());
        };
        self.check_can_run(&gate, &write, &locked).await?;
        let (now, latest) = (write.now(), self.latest_deadline(&locked.call));
        let until = now.plus(by);
        if until <= expires_at || until > latest {
            let (more_than, at_most) = (expires_at.since(now), latest.since(now));
            return Err(ExtendError::OutOfBounds { more_than, at_most });
        }
        if !write.extend(&locked, until, self.times.remind_before, &principal.actor()).await? {
            return Err(DecideError::Closed(Box::new(locked.call)).into());
        }
        write.commit().await?;
        Ok(until)
    }

    /// Refuses a call that no person can approve, whatever its inputs: it would wait for nothing.
    async fn check_can_run(
        &self,
        gate: &Gate,
        write: &Write,
        locked: &LockedCall,
    ) -> Result<(), DecideError> {
        let call = &locked.call;
        let tool = Proposal::of(call).tool(gate)?;
        match Block::of(self.recheck(gate, write, locked, tool, &call.input).await?) {
            Some(block) if !block.by_inputs => Err(DecideError::Blocked(block.why)),
            Some(_) | None => Ok(()),
        }
    }

    /// The latest time until which a call may wait for a decision.
    fn latest_deadline(&self, call: &ToolCall) -> Timestamp {
        call.created_at.plus(self.approval.ttl_max)
    }

    /// Returns the latest time until which this principal may let a call wait, if the call can wait longer.
    pub(super) fn extendable_until(
        &self,
        gate: &Gate,
        principal: &Principal,
        seen: &VisibleCall,
        blocked: &Blocked,
    ) -> Option<Timestamp> {
        let VisibleCall { call, thread, .. } = seen;
        let own = own_right(gate, principal, thread, call);
        let may = own == MayDecide::ApproveOrReject || self.would_represent(gate, principal, seen).is_some();
        let may = if may { MayDecide::ApproveOrReject } else { MayDecide::Nothing };
        let can_run = Proposal::of(call).can_edit(gate, may, blocked.of(call.id));
        let waits = matches!(call.state, State::Pending) && can_run;
        let latest = self.latest_deadline(call);
        (waits && call.expires_at.is_some_and(|at| at < latest)).then_some(latest)
    }
}
