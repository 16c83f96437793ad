//! Held calls as a list shows them to a possible decider.

use super::grants::may_remember;
use super::may_approve::{Blocked, Proposal};
use super::{Approvals, own_right};
use crate::tools::Registered;
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::State;
use holdpoint_core::card::CardPart;
use holdpoint_core::card::obstacle::Obstacle;
use holdpoint_core::policy::MayDecide;
use holdpoint_core::quorum::ApprovalVote;
use holdpoint_core::tool::headline::FilledHeadline;
use holdpoint_store::VisibleCall;

/// The status of the decision about a held call.
#[derive(Debug)]
pub(crate) struct DecisionStatus<'a> {
    /// The tool, if it exists now.
    pub(crate) tool: Option<&'a Registered>,
    /// The question to the approver, if the tool has one, with the proposed inputs in it.
    pub(crate) headline: Option<FilledHeadline>,
    /// The parts of a complete card of the call.
    pub(crate) card_parts: Vec<CardPart>,
    /// Whether an approval of this principal would be accepted now, and would be a new one.
    pub(crate) can_decide: bool,
    /// Why an approval of this principal would be refused now, or would not be a new one. `None` if the call is not
    /// pending.
    pub(crate) obstacle: Option<Obstacle>,
    /// Whether an approval of this principal with other inputs may be accepted now.
    pub(crate) can_edit: bool,
    /// Whether an approval of this principal may be remembered.
    pub(crate) can_remember: bool,
    /// Whether a rejection by this principal would be accepted now.
    pub(crate) can_reject: bool,
    /// The approver in whose place this principal would decide, as an actor. `None` if the principal decides in
    /// their own right, or not at all.
    pub(crate) on_behalf_of: Option<String>,
    /// The number of approvals that the call needs.
    pub(crate) required: usize,
    /// The approvers of the inputs that run or ran. For a pending call, the approvers of the proposed inputs.
    pub(crate) approved_by: Vec<String>,
}

impl Approvals {
    /// Whether this principal may approve a held call, or might have approved it before its end.
    pub(crate) fn concerns(gate: &Gate, principal: &Principal, seen: &VisibleCall) -> bool {
        let VisibleCall { call, thread, delegations, .. } = seen;
        let is_delegate = delegations.iter().any(|it| it.is_ever_to(principal));
        is_delegate || own_right(gate, principal, thread, call) == MayDecide::ApproveOrReject
    }

    /// Returns the status of the decision about a call, for this principal. `blocked` has the pending calls that the
    /// policy forbids.
    pub(crate) fn decision_status<'a>(
        &self,
        gate: &'a Gate,
        principal: &Principal,
        seen: &VisibleCall,
        blocked: &Blocked,
    ) -> DecisionStatus<'a> {
        let VisibleCall { call, thread, votes, .. } = seen;
        let registry = gate.registry();
        let tool = registry.get(&call.name).map(|tool| &**tool);
        let headline =
            tool.filter(|_| !call.unreadable).and_then(|tool| tool.headline(&call.shown_proposal()));
        let quorum = registry.quorum(&call.name);
        let agreed_on = match &call.decision {
            Some(decision) => decision.input_hash.clone(),
            None => gate.shown_hash(call),
        };
        let agreed = quorum.agreed(votes, &thread.actor(), &agreed_on);
        let own = own_right(gate, principal, thread, call);
        let is_pending = call.state == State::Pending;
        let on_behalf_of = match own {
            MayDecide::Nothing if is_pending => self.would_represent(gate, principal, seen),
            _ => None,
        };
        let may = if on_behalf_of.is_some() { MayDecide::ApproveOrReject } else { own };
        let is_theirs =
            |vote: &&ApprovalVote| vote.shares_a_person(&principal.actor(), on_behalf_of.as_deref());
        let is_new = !agreed.iter().any(is_theirs);
        let (proposal, block) = (Proposal::of(call), blocked.of(call.id));
        let missing = quorum.people.saturating_sub(agreed.len());
        let voted = (!is_new).then_some(Obstacle::AlreadyApproved { missing });
        let obstacle = proposal.obstacle(gate, may, block).or(voted).filter(|_| is_pending);
        let can_decide = is_pending && obstacle.is_none();
        let can_edit = is_pending && proposal.can_edit(gate, may, block);
        let can_remember =
            can_decide && on_behalf_of.is_none() && may_remember(gate, principal, thread, call);
        let approved_by = agreed.into_iter().map(|vote| vote.by.clone()).collect();
        DecisionStatus {
            tool,
            headline,
            card_parts: gate.card_parts(call.into()),
            can_decide,
            obstacle,
            can_edit,
            can_remember,
            can_reject: may != MayDecide::Nothing && is_pending,
            on_behalf_of,
            required: quorum.people,
            approved_by,
        }
    }
}
