//! Receivers: the endpoints as the configuration describes them.

use super::channel::{Attempt, Channel, FailedAttempt};
use super::letter::Letter;
use super::recipient::{EventMeaning, Recipient};
use crate::approvals::Approvals;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::ChannelKind;
use holdpoint_core::link::LinkTarget;
use holdpoint_store::{Attempted, DueEvent, EndpointEvents, Read, SentMessage, Store, StoreError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// An endpoint of the configuration.
pub(super) struct Receiver {
    pub(super) name: String,
    pub(super) wanted: EndpointEvents,
    audience: Audience,
    /// Notified when an operator enables the endpoint in this process.
    pub(super) enabled: Notify,
}

/// Who is at an endpoint, which decides what it gets.
pub(super) enum Audience {
    /// A program: each event.
    Service(Box<dyn Channel<DueEvent>>),
    /// People: a message about each event that is of concern to them.
    Recipient(Recipient, Box<dyn Channel<Letter>>),
}

/// An event that the receiver gets, in the form of its channel.
pub(super) struct Outgoing<'a> {
    pub(super) due: DueEvent,
    content: OutgoingContent<'a>,
}

enum OutgoingContent<'a> {
    Event(&'a dyn Channel<DueEvent>),
    Letter {
        channel: &'a dyn Channel<Letter>,
        letter: Box<Letter>,
        /// What the link of the message is bound to, if it has one.
        link: Option<LinkTarget>,
    },
}

/// What the receiver gets of an event.
pub(super) enum PreparedEvent<'a> {
    Outgoing(Box<Outgoing<'a>>),
    /// The event does not concern the receiver.
    Nothing,
    /// The server lacks the tool of the call. Only with its roles it is known whom the event concerns.
    Unknown,
}

/// When an attempt begins, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptTime {
    pub(super) now: Timestamp,
    pub(super) until: Instant,
}

impl Outgoing<'_> {
    /// Gives a message to one person a link of its own, for the next attempt. Without randomness the message has the
    /// address of the card.
    pub(super) async fn make_link(&mut self, approvals: &Approvals) -> Result<(), StoreError> {
        if let OutgoingContent::Letter { letter, link: Some(target), .. } = &mut self.content {
            letter.link = approvals.make_link(target).await?;
        }
        Ok(())
    }

    /// Returns when the event is delivered at the latest, also in quiet hours.
    pub(super) fn urgent_at(&self) -> Option<Timestamp> {
        match &self.content {
            OutgoingContent::Event(_) => None,
            OutgoingContent::Letter { letter, .. } => letter.urgent_at,
        }
    }
}

impl Receiver {
    pub(super) fn new(name: &str, wanted: EndpointEvents, audience: Audience) -> Self {
        Self { name: name.to_owned(), wanted, audience, enabled: Notify::new() }
    }

    pub(super) fn kind(&self) -> ChannelKind {
        match &self.audience {
            Audience::Service(channel) => channel.kind(),
            Audience::Recipient(_, channel) => channel.kind(),
        }
    }

    /// Returns the address without its secret parts.
    pub(super) fn address(&self) -> String {
        match &self.audience {
            Audience::Service(channel) => channel.address(),
            Audience::Recipient(_, channel) => channel.address(),
        }
    }

    /// The longest time of an attempt.
    pub(super) fn timeout(&self) -> Duration {
        match &self.audience {
            Audience::Service(channel) => channel.timeout(),
            Audience::Recipient(_, channel) => channel.timeout(),
        }
    }

    /// Returns the end of the quiet hours, if the receiver has any and this moment is in them.
    pub(super) fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.audience {
            Audience::Service(_) => None,
            Audience::Recipient(recipient, _) => recipient.quiet_until(now),
        }
    }

    /// Returns what the receiver gets of an event of a wanted type.
    pub(super) async fn prepare(
        &self,
        approvals: &Approvals,
        read: &Read,
        due: DueEvent,
    ) -> Result<PreparedEvent<'_>, StoreError> {
        let content = match &self.audience {
            Audience::Service(channel) => OutgoingContent::Event(channel.as_ref()),
            Audience::Recipient(recipient, channel) => {
                let changes = channel.changes_messages();
                match recipient.meaning(approvals, read, &due, changes).await? {
                    EventMeaning::Letter(letter, link) => {
                        OutgoingContent::Letter { channel: channel.as_ref(), letter, link }
                    }
                    EventMeaning::Nothing => return Ok(PreparedEvent::Nothing),
                    EventMeaning::Unknown => return Ok(PreparedEvent::Unknown),
                }
            }
        };
        Ok(PreparedEvent::Outgoing(Box::new(Outgoing { due, content })))
    }

    /// Returns the message that the recipient has about the same call, if the channel changes messages. It is read after
    /// the delivery of the event before is committed, because that event may be about the same call.
    pub(super) async fn earlier(
        &self,
        store: &Store,
        outgoing: &Outgoing<'_>,
    ) -> Result<Option<SentMessage>, StoreError> {
        match (&outgoing.content, &outgoing.due.event.call) {
            (OutgoingContent::Letter { channel, .. }, Some(call)) if channel.changes_messages() => {
                store.read().await?.sent_message(&self.name, call.id).await
            }
            _ => Ok(None),
        }
    }

    /// Makes one attempt to deliver an event. `earlier` is the message about the same call.
    pub(super) async fn attempt(
        &self,
        outgoing: &Outgoing<'_>,
        earlier: Option<&SentMessage>,
        AttemptTime { now, until }: AttemptTime,
    ) -> Result<Attempted, FailedAttempt> {
        let endpoint = self.name.as_str();
        let call = outgoing.due.event.call.as_ref().map(|call| call.id);
        match &outgoing.content {
            OutgoingContent::Event(channel) => {
                channel.send(Attempt { endpoint, message: &outgoing.due, call, earlier, now, until }).await
            }
            OutgoingContent::Letter { channel, letter, .. } => {
                channel.send(Attempt { endpoint, message: letter.as_ref(), call, earlier, now, until }).await
            }
        }
    }
}
