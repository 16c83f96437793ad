//! Held calls as a list shows them to a possible decider.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::call::State;
use crate::domain::policy::MayDecide;
use crate::store::VisibleCall;
use crate::tools::ToolSpec;

/// The status of the decision about a held call.
#[derive(Debug)]
pub(crate) struct DecisionStatus<'a> {
    /// The tool, if it exists now.
    pub(crate) tool: Option<&'a ToolSpec>,
    /// Whether an approval of this principal would be accepted now, and would be a new one.
    pub(crate) can_decide: bool,
    /// The number of approvals that the call needs.
    pub(crate) required: usize,
    /// The approvers of the inputs that run or ran. For a pending call, the approvers of the proposed inputs.
    pub(crate) approved_by: Vec<String>,
}

impl Approvals {
    /// Returns the status of the decision about a call, for this principal.
    pub(crate) fn decision_status(&self, principal: &Principal, seen: &VisibleCall) -> DecisionStatus<'_> {
        let VisibleCall { call, thread, votes } = seen;
        let registry = self.gate().registry();
        let tool = registry.get(&call.name).map(|tool| &tool.spec);
        let quorum = registry.quorum(&call.name);
        let agreed_on = match &call.decision {
            Some(decision) => decision.input_hash.clone(),
            None => self.shown_hash(call),
        };
        let approved_by = quorum.agreed(votes, &thread.actor(), &agreed_on);
        let may =
            registry.may_decide(principal, thread.is_of(principal), &call.name) == MayDecide::ApproveOrReject;
        let is_news = !approved_by.contains(&principal.actor());
        let can_decide = may && is_news && tool.is_some() && call.state == State::Pending;
        DecisionStatus { tool, can_decide, required: quorum.people, approved_by }
    }
}
