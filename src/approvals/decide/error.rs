//! The reasons for which a decision is refused, and the record of a refused attempt of a person on its call.

use crate::approvals::{Approvals, Decider, DecisionRequest, Denied, has_denied};
use crate::tools::InputError;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::link::LinkRefused;
use holdpoint_store::{Refusal, StoreError};

/// The reason why a decision is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecideError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The policy now forbids the call, even with an approval; the text is its reason. The call stays
    /// pending.
    #[error("the policy forbids the call: {0}")]
    Blocked(String),
    /// The call was decided differently, or ended in another way. Its state has the details.
    #[error("the call is decided")]
    Closed(Box<ToolCall>),
    /// The stored inputs cannot be read, so they cannot be shown to an approver. The call stays pending.
    #[error("the stored inputs of the call cannot be read")]
    Unreadable,
    /// The tool is not available now. The call stays pending.
    #[error("the tool {0:?} is not available")]
    ToolUnavailable(String),
    /// The decider was shown something other than what would run. The call stays pending.
    #[error("the call has changed since it was shown")]
    Stale {
        /// The hash of what would run.
        input_hash: String,
    },
    /// The decider edited the inputs and was shown no preview of them, or another one than the tool gives now.
    /// The call stays pending.
    #[error("the edited inputs were not shown with the current preview")]
    StalePreview,
    /// The inputs do not fit the tool. The call stays pending.
    #[error("the inputs do not fit the tool")]
    InvalidInputs(Vec<InputError>),
    /// The request names a link that does not decide this. The call stays pending.
    #[error(transparent)]
    Link(#[from] LinkRefused),
    /// The decision cannot be remembered. The call stays pending.
    #[error("the decision cannot be remembered{place}: {expected}")]
    NotRemembered {
        /// The place in the request for a grant, such as `.when[0]`. Empty for the request as a whole.
        place: String,
        expected: String,
    },
}

has_denied!(DecideError);

impl DecideError {
    /// Returns the refusal to remember a decision at all.
    pub(in crate::approvals) fn not_remembered(expected: impl Into<String>) -> Self {
        Self::NotRemembered { place: String::new(), expected: expected.into() }
    }

    /// Returns the name of the error for metrics: the code that clients see, if the error is specific to
    /// decisions.
    pub(in crate::approvals) const fn outcome(&self) -> &'static str {
        match self {
            Self::Denied(denied) => denied.outcome(),
            Self::Link(LinkRefused::Unknown) => "not_found",
            Self::Link(LinkRefused::OtherPerson) => "forbidden",
            Self::Blocked(_) => "blocked",
            Self::Closed(call) => match call.state {
                State::Expired(_) => "expired",
                State::Cancelled(..) => "cancelled",
                _ => "already_decided",
            },
            Self::Link(LinkRefused::Used) => "already_decided",
            Self::Unreadable => "unreadable",
            Self::ToolUnavailable(_) => "tool_unavailable",
            Self::Stale { .. } | Self::StalePreview => "stale",
            Self::InvalidInputs(_) => "invalid_inputs",
            Self::NotRemembered { .. } => "not_remembered",
        }
    }

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
    pub(in crate::approvals) async fn record_refusal(
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
