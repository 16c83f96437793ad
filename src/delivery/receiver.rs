//! Receivers: the endpoints as the configuration describes them.

use super::PublicForm;
use super::webhook::Webhook;
use crate::domain::clock::Timestamp;
use crate::domain::endpoint::{ChannelKind, Failure, Follow};
use crate::store::{DueEvent, Wanted};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// An endpoint of the configuration.
pub(super) struct Receiver {
    pub(super) name: String,
    pub(super) wanted: Wanted,
    /// The longest time of an attempt.
    pub(super) timeout: Duration,
    pub(super) channel: Channel,
    /// Notified when an operator enables the endpoint in this process.
    pub(super) enabled: Notify,
}

/// The way in which a receiver gets events.
pub(super) enum Channel {
    Webhook(Webhook),
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) follow: Follow,
    /// The cause, for the log. It contains no secret.
    pub(super) why: String,
}

impl Channel {
    pub(super) fn kind(&self) -> ChannelKind {
        match self {
            Self::Webhook(_) => ChannelKind::Webhook,
        }
    }

    /// Returns the address without its secret parts.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.origin(),
        }
    }
}

impl Receiver {
    pub(super) fn new(name: &str, wanted: Wanted, timeout: Duration, channel: Channel) -> Self {
        Self { name: name.to_owned(), wanted, timeout, channel, enabled: Notify::new() }
    }

    /// Makes one attempt to deliver an event, which ends `until` this time.
    pub(super) async fn attempt(
        &self,
        due: &DueEvent,
        form: PublicForm,
        now: Timestamp,
        until: Instant,
    ) -> Result<(), Failed> {
        match &self.channel {
            Channel::Webhook(webhook) => webhook.attempt(due, form, now, until).await,
        }
    }
}
