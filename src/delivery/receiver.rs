//! Receivers: the endpoints as the configuration describes them.

use super::PublicForm;
use super::failed::Failed;
use super::letter::Letter;
use super::mail::{Mail, Meaning};
use super::smtp::MailServer;
use super::webhook::Webhook;
use crate::approvals::Approvals;
use crate::config::{Config, ConfigError};
use crate::domain::clock::Timestamp;
use crate::domain::endpoint::ChannelKind;
use crate::egress::Reach;
use crate::metrics;
use crate::store::{Attempted, DueEvent, EndpointEvents, Read, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// An endpoint of the configuration.
pub(super) struct Receiver {
    pub(super) name: String,
    pub(super) wanted: EndpointEvents,
    /// The longest time of an attempt.
    pub(super) timeout: Duration,
    pub(super) channel: Channel,
    /// Notified when an operator enables the endpoint in this process.
    pub(super) enabled: Notify,
}

/// The way in which a receiver gets events.
pub(super) enum Channel {
    Webhook(Webhook),
    Mail(Mail),
}

/// An event that the receiver gets, in the form of its channel.
pub(super) struct Outgoing<'a> {
    pub(super) due: DueEvent,
    form: Form<'a>,
}

enum Form<'a> {
    Request(&'a Webhook),
    Letter(&'a Mail, Box<Letter>),
}

/// What the receiver gets of an event.
pub(super) enum Prepared<'a> {
    /// This.
    Outgoing(Box<Outgoing<'a>>),
    /// Nothing: the event does not concern the receiver.
    Nothing,
    /// Not known before the server has the tool of the call again.
    Unknown,
}

impl Channel {
    pub(super) fn kind(&self) -> ChannelKind {
        match self {
            Self::Webhook(_) => ChannelKind::Webhook,
            Self::Mail(_) => ChannelKind::Mail,
        }
    }

    /// Returns the address without its secret parts.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.origin(),
            Self::Mail(mail) => mail.address(),
        }
    }
}

impl Outgoing<'_> {
    /// Returns when the event is delivered at the latest, also in quiet hours.
    pub(super) fn urgent_at(&self) -> Option<Timestamp> {
        match &self.form {
            Form::Request(_) => None,
            Form::Letter(_, letter) => letter.urgent_at,
        }
    }
}

impl From<ChannelKind> for metrics::Channel {
    fn from(kind: ChannelKind) -> Self {
        match kind {
            ChannelKind::Webhook => Self::Webhook,
            ChannelKind::Mail => Self::Mail,
        }
    }
}

impl Receiver {
    /// Prepares the receivers of the configuration, and sends nothing.
    pub(super) fn all(config: &Config, reach: &Reach) -> Result<Vec<Self>, ConfigError> {
        let mut all = Vec::new();
        for (index, webhook) in config.webhooks.iter().enumerate() {
            let (channel, wanted) = Webhook::new(config, index, webhook, reach)?;
            all.push(Self::new(&webhook.name, wanted, webhook.timeout, Channel::Webhook(channel)));
        }
        let Some(mail) = &config.mail else { return Ok(all) };
        let server = Arc::new(MailServer::new(mail)?);
        for (index, notify) in config.notify.iter().enumerate() {
            let (channel, wanted) = Mail::new(config, &server, index, notify)?;
            all.push(Self::new(&notify.name, wanted, mail.timeout, Channel::Mail(channel)));
        }
        Ok(all)
    }

    fn new(name: &str, wanted: EndpointEvents, timeout: Duration, channel: Channel) -> Self {
        Self { name: name.to_owned(), wanted, timeout, channel, enabled: Notify::new() }
    }

    /// Returns the end of the quiet hours, if the receiver has any and this moment is in them.
    pub(super) fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.channel {
            Channel::Webhook(_) => None,
            Channel::Mail(mail) => mail.quiet_until(now),
        }
    }

    /// Returns what the receiver gets of an event of a wanted type.
    pub(super) async fn prepare(
        &self,
        approvals: &Approvals,
        read: &Read,
        due: DueEvent,
    ) -> Result<Prepared<'_>, StoreError> {
        let form = match &self.channel {
            Channel::Webhook(webhook) => Form::Request(webhook),
            Channel::Mail(mail) => match mail.meaning(approvals, read, &due).await? {
                Meaning::Letter(letter) => Form::Letter(mail, letter),
                Meaning::Nothing => return Ok(Prepared::Nothing),
                Meaning::Unknown => return Ok(Prepared::Unknown),
            },
        };
        Ok(Prepared::Outgoing(Box::new(Outgoing { due, form })))
    }

    /// Makes one attempt to deliver an event, which ends `until` this time.
    pub(super) async fn attempt(
        &self,
        Outgoing { due, form }: &Outgoing<'_>,
        public_form: PublicForm,
        now: Timestamp,
        until: Instant,
    ) -> Result<Attempted, Failed> {
        match form {
            Form::Request(webhook) => {
                webhook.attempt(due, public_form, now, until).await.map(|()| Attempted::Accepted)
            }
            Form::Letter(mail, letter) => mail.attempt(&self.name, letter, now, until).await,
        }
    }
}
