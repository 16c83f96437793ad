//! A held call with all that a decider may know about it.

use super::Approvals;
use super::may_approve::Blocked;
use crate::config::ShareContext;
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::grant::Grant;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::MayDecide;
use holdpoint_store::{CallContext, StoreError, VisibleCall};

/// A held call with all that a decider may know about it.
#[derive(Debug)]
pub(crate) struct ApprovalDetail {
    /// The call, its thread and its approvals.
    pub(crate) seen: VisibleCall,
    /// The call, if it is pending and the policy forbids it now.
    pub(crate) blocked: Blocked,
    /// The part of the policy that holds the call.
    pub(crate) source: Option<String>,
    /// The last decided calls of the same tool and requester.
    pub(crate) history: Vec<ToolCall>,
    /// The roles that may decide the call for its requester.
    pub(crate) approve_roles: Vec<String>,
    /// Whether the requester may only reject.
    pub(crate) other_person: bool,
    /// The latest time until which the principal may let the call wait, if the call can wait longer.
    pub(crate) extendable_until: Option<Timestamp>,
    /// Whether the principal may delegate the call.
    pub(crate) can_delegate: bool,
    /// Whether the principal may settle the call, whose outcome is unknown.
    pub(crate) can_resolve: bool,
    /// The words before the call, if the principal may read them.
    pub(crate) words: Option<CallContext>,
    /// The grant in force that the approval left or used, if the principal may revoke it.
    pub(crate) grant: Option<Grant>,
}

impl Approvals {
    /// Returns a held call that this principal may see. The number of statements is the same for
    /// every call, and one or two more where a grant was left or used.
    pub(crate) async fn detail(
        &self,
        gate: &Gate,
        principal: &Principal,
        id: ToolCallId,
    ) -> Result<Option<ApprovalDetail>, StoreError> {
        let (read, visibility) = (self.store.read().await?, self.visibility(principal));
        let Some(seen) = read.visible_hold(principal, &visibility, id).await? else { return Ok(None) };
        let VisibleCall { call, thread, .. } = &seen;
        let blocked = self.blocked(&read, gate, std::slice::from_ref(&seen)).await?;
        let source = read.hold_source(call).await?;
        let history = read.decided_like(principal, &visibility, call, thread).await?;
        let words = match self.shares_context(gate, principal, &seen) {
            true => Some(read.words_before(call).await?),
            false => None,
        };
        let as_of = gate.remembering().as_of(self.store.process_time());
        let grant = read.grant_of(call, thread, as_of).await?;
        let grant = grant.filter(|grant| self.may_revoke(principal, thread, grant));
        let registry = gate.registry();
        let (approve_roles, quorum) = (registry.approve_roles(&call.name), registry.quorum(&call.name));
        let other_person = quorum.other_person;
        let can_resolve = matches!(call.state, State::Interrupted(..)) && self.may_resolve(principal);
        let extendable_until = self.extendable_until(gate, principal, &seen, &blocked);
        let can_delegate = !self.has_one_user && Self::may_delegate(gate, principal, &seen);
        Ok(Some(ApprovalDetail {
            seen,
            blocked,
            source,
            history,
            approve_roles,
            other_person,
            extendable_until,
            can_delegate,
            can_resolve,
            words,
            grant,
        }))
    }

    /// Whether this principal may read the words before the call. The right ends at these words: an approver reads
    /// nothing else of the thread.
    fn shares_context(&self, gate: &Gate, principal: &Principal, seen: &VisibleCall) -> bool {
        let VisibleCall { call, thread, .. } = seen;
        let is_requester = thread.is_of(principal);
        is_requester
            || self.approval.share_context == ShareContext::Approvers
                && (gate.registry().may_decide(principal, is_requester, &call.name, call.escalated_to())
                    != MayDecide::Nothing
                    || self.would_represent(gate, principal, seen).is_some())
    }
}
