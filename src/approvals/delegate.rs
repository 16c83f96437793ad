//! Delegations: an approver lets another person decide one held call in the approver's place, for a time.
//!
//! A delegate has no rights of an approver besides that call. The approver keeps the right to decide, and the two
//! have one vote together. The requester of a call is never a delegate: only their own rights count.

use super::{Approvals, DecideError, Decider, DecisionRequest, Denied, Right, own_right};
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::State;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::delegation::Delegation;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::MayDecide;
use holdpoint_store::{LockedCall, StoreError, VisibleCall, Write};

/// The reason why a call is not delegated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DelegateError {
    /// An approval by the principal in their own right would be refused as well.
    #[error(transparent)]
    Refused(#[from] DecideError),
    /// This delegation does not exist for the call.
    #[error("the call is not delegated like this")]
    Not(NotDelegated),
}

/// What is wrong with a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotDelegated {
    /// The delegate is the delegator.
    ToSelf,
    /// The delegate is the user of the thread.
    ToRequester,
    /// The delegator approved the call before, in person or by a delegate.
    Voted,
    /// The end is not in the future, or is after this deadline of the call.
    Until(Timestamp),
}

impl From<StoreError> for DelegateError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// A delegation that an approver wants.
#[derive(Debug)]
pub(crate) struct DelegationRequest {
    /// The user that decides.
    pub(crate) to: String,
    pub(crate) until: Timestamp,
    pub(crate) reason: String,
}

impl Approvals {
    /// Lets another user decide a pending call in place of a principal that may approve it. An earlier delegation of the
    /// principal ends.
    pub(crate) async fn delegate(
        &self,
        principal: &Principal,
        tool_call_id: ToolCallId,
        DelegationRequest { to, until, reason }: DelegationRequest,
    ) -> Result<Delegation, DelegateError> {
        self.count(principal)?;
        let approval = DecisionRequest::undecided(tool_call_id, None);
        let (write, locked) = self.lock_for(&self.gate(), Decider::Person(principal), &approval).await?;
        if locked.on_behalf_of.is_some() {
            return Err(DecideError::from(Denied::Forbidden(Right::DecideCall)).into());
        }
        let (State::Pending, Some(expires_at)) = (&locked.call.state, locked.call.expires_at) else {
            return Err(DecideError::Closed(Box::new(locked.call)).into());
        };
        let wrong = |why| Err(DelegateError::Not(why));
        if to == principal.user_id {
            return wrong(NotDelegated::ToSelf);
        }
        if to == locked.thread.user_id {
            return wrong(NotDelegated::ToRequester);
        }
        if until <= write.now() || until > expires_at {
            return wrong(NotDelegated::Until(expires_at));
        }
        let votes = write.votes_of(tool_call_id).await?;
        if votes.iter().any(|vote| vote.is_of(&principal.actor())) {
            return wrong(NotDelegated::Voted);
        }
        let (delegator, at) = (principal.clone(), write.now());
        let delegation = Delegation { delegator, delegate: to, reason, at, until };
        write.delegate_decision(&locked, &delegation).await?;
        write.commit().await?;
        Ok(delegation)
    }

    /// Returns the approver in whose place this decider may decide a locked call, as an actor.
    pub(super) async fn delegator(
        gate: &Gate,
        write: &Write,
        by: Decider<'_>,
        LockedCall { call, thread, .. }: &LockedCall,
    ) -> Result<Option<String>, StoreError> {
        let Decider::Person(principal) = by else { return Ok(None) };
        let delegations = write.delegations_of(call.id).await?;
        if delegations.is_empty() {
            return Ok(None);
        }
        let votes = write.votes_of(call.id).await?;
        let seen = VisibleCall { call: call.clone(), thread: (**thread).clone(), votes, delegations };
        Ok(represented(gate, principal, &seen, write.now()))
    }

    /// Returns the approver in whose place this principal would decide a call now, as an actor.
    pub(super) fn would_represent(
        &self,
        gate: &Gate,
        principal: &Principal,
        seen: &VisibleCall,
    ) -> Option<String> {
        represented(gate, principal, seen, self.store.process_time())
    }

    /// Whether this principal may delegate a call now.
    pub(super) fn may_delegate(gate: &Gate, principal: &Principal, seen: &VisibleCall) -> bool {
        let VisibleCall { call, thread, votes, .. } = seen;
        let may = own_right(gate, principal, thread, call);
        call.state == State::Pending
            && may == MayDecide::ApproveOrReject
            && !votes.iter().any(|vote| vote.is_of(&principal.actor()))
    }
}

/// Returns the approver in whose place this principal decides a call: of several, one whose vote is not used. The
/// current rules have to let the approver approve the call, with the roles from the time of the delegation.
fn represented(gate: &Gate, principal: &Principal, seen: &VisibleCall, now: Timestamp) -> Option<String> {
    let VisibleCall { call, thread, votes, delegations } = seen;
    if thread.is_of(principal) {
        return None;
    }
    let may_approve = |delegator: &Principal| {
        let may = own_right(gate, delegator, thread, call);
        may == MayDecide::ApproveOrReject
    };
    let in_force = delegations.iter().filter(|it| it.is_to(principal, now) && may_approve(&it.delegator));
    let delegators = in_force.map(|it| it.delegator.actor());
    delegators.min_by_key(|delegator| votes.iter().any(|vote| vote.is_of(delegator)))
}
