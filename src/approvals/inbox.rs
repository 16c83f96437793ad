//! Held calls as a list shows them to somebody who may decide them.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::call::State;
use crate::domain::policy::MayDecide;
use crate::store::VisibleCall;
use crate::tools::ToolSpec;

/// How a held call stands with the people who decide it.
#[derive(Debug)]
pub(crate) struct DecisionStatus<'a> {
    /// Its tool, if there is one by now.
    pub(crate) tool: Option<&'a ToolSpec>,
    /// Whether this principal's yes would be taken now, and be news.
    pub(crate) can_decide: bool,
    /// How many people have to say yes.
    pub(crate) required: usize,
    /// Who has said yes to what runs or ran; while it is pending, to what is proposed.
    pub(crate) approved_by: Vec<String>,
}

impl Approvals {
    /// How a call stands for this principal.
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
