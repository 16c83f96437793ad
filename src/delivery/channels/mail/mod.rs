//! Mail to a recipient.

mod message;
mod smtp;

use super::NotifyEntry;
use crate::config::ConfigError;
use crate::config::channels::mail::mailbox;
use crate::delivery::channel::{Attempt, Channel, FailedAttempt};
use crate::delivery::letter::Letter;
use async_trait::async_trait;
use holdpoint_core::endpoint::{ChannelKind, Failure};
use holdpoint_store::Attempted;
use lettre::message::Mailbox;
use message::Envelope;
pub(super) use smtp::MailServer;
use std::sync::Arc;
use std::time::Duration;

/// The mail address of a recipient.
pub(super) struct MailChannel {
    server: Arc<MailServer>,
    to: Mailbox,
}

impl MailChannel {
    pub(super) fn new(
        server: Option<Arc<MailServer>>,
        entry: &NotifyEntry<'_>,
        to: &str,
    ) -> Result<Self, ConfigError> {
        let to = mailbox(&format!("{}.mail", entry.key), to)?;
        let no_server = || entry.wrong("mail", "expected a section [mail], with the mail server");
        Ok(Self { server: server.ok_or_else(no_server)?, to })
    }
}

#[async_trait]
impl Channel<Letter> for MailChannel {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Mail
    }

    fn address(&self) -> String {
        format!("mailto:{}", self.to.email)
    }

    fn timeout(&self) -> Duration {
        self.server.timeout
    }

    async fn send(&self, attempt: Attempt<'_, Letter>) -> Result<Attempted, FailedAttempt> {
        let Attempt { endpoint, message: letter, now, until, .. } = attempt;
        let envelope = Envelope { from: &self.server.from, to: &self.to, endpoint, now };
        match envelope.message(letter) {
            Some(message) => self.server.send(&self.to, &message, until).await,
            None => Err(FailedAttempt::again(Failure::NotSent, "the message cannot be written")),
        }
    }
}
