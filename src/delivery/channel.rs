//! What a channel is: a way in which endpoints get their messages.

use async_trait::async_trait;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::{ChannelKind, Failure, FailureAction};
use holdpoint_core::id::ToolCallId;
use holdpoint_store::{Attempted, SentMessage};
use std::time::Duration;
use tokio::time::Instant;

/// A way to one endpoint, as its entry in the configuration describes it. `M` is what the endpoint gets: each event, or
/// a message about each event that is of concern to a recipient.
#[async_trait]
pub(super) trait Channel<M: Sync>: Send + Sync {
    fn kind(&self) -> ChannelKind;

    /// Returns the address for operators. It contains no secret.
    fn address(&self) -> String;

    /// The longest time of an attempt.
    fn timeout(&self) -> Duration;

    /// Whether a later message changes the earlier one about the same call. The store then keeps which one that is, from
    /// [`Attempted::Posted`] on.
    fn changes_messages(&self) -> bool {
        false
    }

    /// Makes one attempt.
    async fn send(&self, attempt: Attempt<'_, M>) -> Result<Attempted, FailedAttempt>;
}

/// One attempt to deliver a message.
pub(super) struct Attempt<'a, M> {
    /// The name of the endpoint.
    pub(super) endpoint: &'a str,
    pub(super) message: &'a M,
    /// The call that the message is about.
    pub(super) call: Option<ToolCallId>,
    /// The message that the endpoint has about the call, if the channel changes messages.
    pub(super) earlier: Option<&'a SentMessage>,
    pub(super) now: Timestamp,
    /// The end of the attempt.
    pub(super) until: Instant,
}

/// An attempt after which the endpoint does not have the message, and may get it later.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) failure: Failure,
    pub(super) action: FailureAction,
    /// The cause, for the log. It contains no secret.
    pub(super) why: String,
}

impl FailedAttempt {
    /// An attempt that another one follows.
    pub(super) fn again(failure: Failure, why: impl Into<String>) -> Self {
        Self { failure, action: FailureAction::Retry(None), why: why.into() }
    }
}
