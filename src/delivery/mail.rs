//! Mail to a recipient.

use super::failed::Failed;
use super::letter::{Envelope, Letter};
use super::smtp::MailServer;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::{Failure, FailureAction};
use holdpoint_store::AttemptOutcome;
use jiff::tz::TimeZone;
use lettre::message::Mailbox;
use std::sync::Arc;
use tokio::time::Instant;

/// The mail address of a recipient.
pub(super) struct Mail {
    pub(super) server: Arc<MailServer>,
    pub(super) to: Mailbox,
}

impl Mail {
    /// Returns the address of the recipient as a URL.
    pub(super) fn address(&self) -> String {
        format!("mailto:{}", self.to.email)
    }

    /// Sends a message. `endpoint` is the name of the endpoint.
    pub(super) async fn attempt(
        &self,
        endpoint: &str,
        (letter, zone): (&Letter, &TimeZone),
        now: Timestamp,
        until: Instant,
    ) -> Result<AttemptOutcome, Failed> {
        let envelope = Envelope { from: &self.server.from, to: &self.to, endpoint, now };
        match letter.message(&envelope, zone) {
            Some(message) => self.server.send(&self.to, &message, until).await,
            None => Err(Failed {
                failure: Failure::NotSent,
                action: FailureAction::Retry(None),
                why: "the message cannot be written".to_owned(),
            }),
        }
    }
}
