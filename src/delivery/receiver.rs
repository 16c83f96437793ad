//! Receivers: the endpoints as the configuration describes them.

use super::PublicForm;
use super::failed::Failed;
use super::letter::Letter;
use super::mail::Mail;
use super::post::TemplatePost;
use super::recipient::{Meaning, Recipient};
use super::slack::{About, SlackRecipient};
use super::smtp::MailServer;
use super::template::Given;
use super::webhook::Webhook;
use crate::approvals::Approvals;
use crate::config::{Config, ConfigError, NotifyBy, notify_key};
use crate::slack::{self, Slack};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::ChannelKind;
use holdpoint_core::link::LinkTarget;
use holdpoint_egress::Reach;
use holdpoint_store::{AttemptOutcome, DueEvent, EndpointEvents, Read, SlackMessage, Store, StoreError};
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
    /// A request for each event.
    Webhook(Webhook),
    /// A message for each event that is of concern to the recipient.
    Recipient(Recipient, Box<By>),
}

/// How a recipient gets messages.
pub(super) enum By {
    Mail(Mail),
    Template(TemplatePost),
    Slack(SlackRecipient),
}

/// An event that the receiver gets, in the form of its channel.
pub(super) struct Outgoing<'a> {
    pub(super) due: DueEvent,
    form: Form<'a>,
}

enum Form<'a> {
    Request(&'a Webhook),
    Letter(&'a Recipient, &'a By, Box<Letter>, Option<LinkTarget>),
}

/// What the receiver gets of an event.
pub(super) enum Prepared<'a> {
    Outgoing(Box<Outgoing<'a>>),
    /// The event does not concern the receiver.
    Nothing,
    /// The server lacks the tool of the call. Only with its roles it is known whom the event concerns.
    Unknown,
}

impl Channel {
    pub(super) fn kind(&self) -> ChannelKind {
        match self {
            Self::Webhook(_) => ChannelKind::Webhook,
            Self::Recipient(_, by) => by.kind(),
        }
    }

    /// Returns the address without its secret parts.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.origin(),
            Self::Recipient(_, by) => by.address(),
        }
    }
}

impl By {
    fn kind(&self) -> ChannelKind {
        match self {
            Self::Mail(_) => ChannelKind::Mail,
            Self::Template(_) => ChannelKind::Template,
            Self::Slack(_) => ChannelKind::Slack,
        }
    }

    /// Whether a later message changes an earlier one about the same call.
    const fn changes(&self) -> bool {
        matches!(self, Self::Slack(_))
    }

    fn address(&self) -> String {
        match self {
            Self::Mail(mail) => mail.address(),
            Self::Template(post) => post.origin(),
            Self::Slack(slack) => slack.address(),
        }
    }
}

impl Outgoing<'_> {
    /// Gives a message to one person a link of its own, for the next attempt. Without randomness the message has the
    /// address of the card.
    pub(super) async fn make_link(&mut self, approvals: &Approvals) -> Result<(), StoreError> {
        if let Form::Letter(_, _, letter, Some(target)) = &mut self.form {
            letter.link = approvals.make_link(target).await?;
        }
        Ok(())
    }

    /// Returns when the event is delivered at the latest, also in quiet hours.
    pub(super) fn urgent_at(&self) -> Option<Timestamp> {
        match &self.form {
            Form::Request(_) => None,
            Form::Letter(_, _, letter, _) => letter.urgent_at,
        }
    }
}

impl Receiver {
    /// Prepares the receivers of the configuration, and sends nothing.
    pub(super) fn all(
        config: &Config,
        reach: &Reach,
        slack: Option<&Arc<Slack>>,
    ) -> Result<Vec<Self>, ConfigError> {
        let mut all = Vec::new();
        for (index, webhook) in config.webhooks.iter().enumerate() {
            let (channel, wanted) = Webhook::new(config, index, webhook, reach)?;
            all.push(Self::new(&webhook.name, wanted, webhook.timeout, Channel::Webhook(channel)));
        }
        let server = config.mail.as_ref().map(MailServer::new).transpose()?.map(Arc::new);
        for (index, notify) in config.notify.iter().enumerate() {
            let key = notify_key(index);
            let (recipient, wanted) = Recipient::new(config, &key, notify)?;
            let (by, timeout) = match notify.by(&key)? {
                NotifyBy::Mail(to) => {
                    let Some((server, mail)) = server.clone().zip(config.mail.as_ref()) else {
                        let why = "expected a section [mail], with the mail server".to_owned();
                        return Err(ConfigError::Value { key: format!("{key}.mail"), why });
                    };
                    (By::Mail(Mail { server, to }), mail.timeout)
                }
                NotifyBy::Slack(to) => {
                    let Some(slack) = slack.cloned() else {
                        let why = "expected a section [slack], with the Slack application".to_owned();
                        return Err(ConfigError::Value { key: format!("{key}.slack"), why });
                    };
                    (By::Slack(SlackRecipient { slack, to }), slack::TIMEOUT)
                }
                NotifyBy::Post(post) => {
                    let given =
                        Given { link: config.console_url().is_some(), arguments: notify.share_arguments };
                    let timeout = post.timeout;
                    (By::Template(TemplatePost::new(&key, *post, reach, given)?), timeout)
                }
            };
            all.push(Self::new(&notify.name, wanted, timeout, Channel::Recipient(recipient, Box::new(by))));
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
            Channel::Recipient(recipient, _) => recipient.quiet_until(now),
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
            Channel::Recipient(recipient, by) => {
                match recipient.meaning(approvals, read, (&due, by.changes())).await? {
                    Meaning::Letter(letter, link) => Form::Letter(recipient, by, letter, link),
                    Meaning::Nothing => return Ok(Prepared::Nothing),
                    Meaning::Unknown => return Ok(Prepared::Unknown),
                }
            }
        };
        Ok(Prepared::Outgoing(Box::new(Outgoing { due, form })))
    }

    /// Returns the message in Slack that the recipient has about the same call. It is read after the delivery of the
    /// event before is committed, because that event may be about the same call.
    pub(super) async fn earlier(
        &self,
        store: &Store,
        outgoing: &Outgoing<'_>,
    ) -> Result<Option<SlackMessage>, StoreError> {
        match (&outgoing.form, &outgoing.due.event.call) {
            (Form::Letter(_, By::Slack(_), _, _), Some(call)) => {
                store.read().await?.slack_message(&self.name, call.id).await
            }
            _ => Ok(None),
        }
    }

    /// Makes one attempt to deliver an event, which ends `until` this time. `earlier` is the message in Slack about the
    /// same call.
    pub(super) async fn attempt(
        &self,
        (Outgoing { due, form }, earlier): (&Outgoing<'_>, Option<&SlackMessage>),
        public_form: PublicForm,
        now: Timestamp,
        until: Instant,
    ) -> Result<AttemptOutcome, Failed> {
        match form {
            Form::Request(webhook) => {
                webhook.attempt(due, public_form, now, until).await.map(|()| AttemptOutcome::Accepted)
            }
            Form::Letter(recipient, By::Mail(mail), letter, _) => {
                mail.attempt(&self.name, (letter, &recipient.zone), now, until).await
            }
            Form::Letter(recipient, By::Slack(slack), letter, _) => {
                let call = due.event.call.as_ref().map(|call| call.id);
                let about = About { call, letter, zone: &recipient.zone, earlier };
                slack.attempt(&self.name, about, until).await
            }
            Form::Letter(recipient, By::Template(post), letter, _) => {
                post.attempt(letter, &recipient.zone, until).await.map(|()| AttemptOutcome::Accepted)
            }
        }
    }
}
