//! Planted bugs of the agent, for the torture run.

use super::execution::Executor;
use super::step::ProposedCall;
use super::turn::Agent;
use crate::domain::call::{Outcome, StateKind};
use crate::domain::permit::Permit;
use crate::domain::policy::{Judgement, SessionPolicy};
use crate::domain::turn::{HeldCallStatus, HoldProgress, TurnEvent};
use crate::store::StoreError;
use crate::tools::gate::PolicyContext;

impl Executor {
    /// [`Bug::ClaimAfterTool`](crate::faults::Bug): settles the outcome of a tool that ran before its call
    /// was claimed.
    pub(crate) async fn settle_what_ran(
        &self,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        let result = self.gate.result_text(outcome, permit.asked(), permit.input());
        self.settle(permit.tool_call_id(), permit.execution(), outcome, &result).await
    }
}

impl Agent {
    /// [`Bug::TellBeforeCommit`](crate::faults::Bug): emits the calls to be held before they are stored.
    pub(super) fn tell_too_early(&self, calls: &[ProposedCall], emit: &(dyn Fn(TurnEvent<'static>) + Sync)) {
        let held = calls.iter().filter(|call| {
            let session = SessionPolicy::default();
            let context = PolicyContext { roles: &[], session: &session, requester: "", grants: &[] };
            let judged = self.executor.gate.judge(&call.name, &call.arguments, context, |_| true);
            matches!(judged.judgement, Judgement::Held { .. })
        });
        let held: Vec<_> = held
            .map(|call| HeldCallStatus {
                tool_call_id: call.id,
                tool_name: call.name.clone(),
                input_to_show: None,
                label: StateKind::Pending,
                progress: HoldProgress::Pending,
            })
            .collect();
        if !held.is_empty() {
            emit(TurnEvent::Held(held));
        }
    }
}
