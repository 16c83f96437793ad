//! Refused decisions: an attempt of a person that had no effect is on the record of its call.

use super::{Approvals, DecideError, Decider, DecisionRequest, Denied};
use holdpoint_core::link::LinkRefused;
use holdpoint_store::{Refusal, StoreError};

impl DecideError {
    /// Returns the word for a refusal that the call records: the person may see the call, and the decision was not
    /// that person's to make, or did not fit the state of the call.
    const fn on_record(&self) -> Option<&'static str> {
        match self {
            Self::Denied(Denied::Forbidden(_))
            | Self::Blocked(_)
            | Self::Closed(_)
            | Self::Unreadable
            | Self::ToolUnavailable(_)
            | Self::Stale { .. }
            | Self::StalePreview
            | Self::Link(LinkRefused::OtherPerson | LinkRefused::Used) => Some(self.outcome()),
            Self::Denied(Denied::TooOften(_) | Denied::NotFound | Denied::Store(_))
            | Self::Link(LinkRefused::Unknown)
            | Self::InvalidInputs(_)
            | Self::NotRemembered { .. } => None,
        }
    }
}

impl Approvals {
    /// Records a refused decision of a person. If the record cannot be stored, the decision is refused even so.
    pub(super) async fn record_refusal(
        &self,
        by: Decider<'_>,
        request: &DecisionRequest,
        error: &DecideError,
    ) {
        let (Decider::Person(principal), Some(code)) = (by, error.on_record()) else { return };
        let actor = principal.actor();
        let refusal =
            Refusal { actor: &actor, verdict: request.choice.verdict(), surface: request.surface, code };
        let recorded = async {
            let write = self.store.urgent_write().await?;
            let Some(locked) = write.lock_call(request.tool_call_id).await? else { return Ok(()) };
            if write.record_refusal(&locked, refusal).await? {
                write.commit().await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = recorded.await {
            tracing::warn!(%error, code, "a refused decision could not be recorded");
        }
    }
}
