//! Recipients: users and roles that get a message about each event that is of concern to them.

use super::letter::{Letter, Occasion, Shared};
use super::quiet::Quiet;
use crate::approvals::{Approvals, title_of};
use crate::config::{self, Config, ConfigError};
use crate::domain::Principal;
use crate::domain::call::{RiskLevel, ToolCall};
use crate::domain::clock::Timestamp;
use crate::domain::delegation::actor_of;
use crate::domain::event::Event;
use crate::domain::link::LinkTarget;
use crate::domain::policy::MayDecide;
use crate::store::{DueEvent, EndpointEvents, Read, StoreError, VisibleCall};
use crate::tools::gate::Gate;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::time::Duration;

/// How long before the deadline of a call without a reminder its message is urgent.
const URGENT: Duration = Duration::from_secs(60 * 60);

/// A recipient of messages.
pub(super) struct Recipient {
    /// The recipient as a decider. A role without a user has an id that no user has.
    reader: Principal,
    shares_arguments: bool,
    pub(super) zone: TimeZone,
    quiet: Option<Quiet>,
    /// The address of the console, if it has one.
    console: Option<String>,
}

/// What an event means for a recipient.
pub(super) enum Meaning {
    /// This message. A message to one person about a call that waits gets a link to its card.
    Letter(Box<Letter>, Option<LinkTarget>),
    /// Nothing.
    Nothing,
    /// Not known before the server has the tool of the call again.
    Unknown,
}

impl Recipient {
    /// Reads the entry of `[[notify]]` with this key. Returns the wanted events too.
    pub(super) fn new(
        config: &Config,
        key: &str,
        notify: &config::Notify,
    ) -> Result<(Self, EndpointEvents), ConfigError> {
        let reader = Principal {
            tenant_id: notify.tenant.clone(),
            user_id: notify.user.clone().unwrap_or_default(),
            roles: notify.role.iter().cloned().collect(),
        };
        let zone = notify.zone(key)?;
        let quiet = notify.quiet_hours(key)?.map(|hours| Quiet { hours, zone: zone.clone() });
        let console = config.console_url().map(str::to_owned);
        let made = Self { reader, shares_arguments: notify.share_arguments, zone, quiet, console };
        Ok((made, EndpointEvents { tenant_id: notify.tenant.clone(), types: Occasion::TYPES.to_vec() }))
    }

    /// Returns the end of the quiet hours, if this moment is in them.
    pub(super) fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet.as_ref()?.end(now)
    }

    /// Returns what the event means for the recipient at this moment.
    pub(super) async fn meaning(
        &self,
        approvals: &Approvals,
        read: &Read,
        due: &DueEvent,
    ) -> Result<Meaning, StoreError> {
        let event = &due.event;
        let occasion = event.event_type.as_ref().ok().and_then(|event_type| Occasion::of(*event_type));
        let Some((occasion, seen)) = occasion.zip(read.hold_of(event).await?) else {
            return Ok(Meaning::Nothing);
        };
        let gate = approvals.gate();
        let registry = gate.registry();
        if registry.get(&seen.call.name).is_none() {
            return Ok(Meaning::Unknown);
        }
        let blocked = approvals.blocked(read, &gate, std::slice::from_ref(&seen)).await?;
        let status = approvals.decision_status(&gate, &self.reader, &seen, &blocked);
        let concerns = match occasion {
            // A delegate and a role of an escalation have messages of their own.
            Occasion::Held => status.can_decide && self.might_from_the_start(&gate, &seen),
            Occasion::Reminded => status.can_decide,
            Occasion::Escalated => status.can_decide && !self.might_from_the_start(&gate, &seen),
            Occasion::Delegated => status.can_decide && self.is_delegate(event),
            Occasion::Ended(_) => Approvals::concerns(&gate, &self.reader, &seen),
        };
        if !concerns {
            return Ok(Meaning::Nothing);
        }
        let VisibleCall { call, thread, .. } = &seen;
        // The contents of a deleted thread are shown to no reader any more.
        let shares = self.shares_arguments && !due.of_deleted_thread && !call.unreadable;
        let shared = shares.then(|| Shared {
            headline: status.headline.as_ref().map(ToString::to_string),
            reason: call.reason.clone(),
            inputs: Value::Object(call.effective_input().clone()).to_string(),
        });
        let link = self.link(occasion, call, &gate);
        let letter = Letter {
            occasion,
            event_id: event.event_id.clone(),
            hold_id: read.hold_event_id(call).await?,
            actor: event.actor.clone(),
            title: title_of(registry, &call.name),
            tool_name: call.name.clone(),
            call_id: call.id.to_string(),
            requester: thread.actor(),
            risk: risk(call),
            input_hash: gate.shown_hash(call),
            deadline: call.expires_at,
            urgent_at: urgent_at(occasion, event, call),
            shared,
            console: self.console.clone(),
            link: None,
        };
        Ok(Meaning::Letter(Box::new(letter), link))
    }

    /// Returns what the link of a message is bound to. A role has no link, because a link is for one person.
    fn link(&self, occasion: Occasion, call: &ToolCall, gate: &Gate) -> Option<LinkTarget> {
        let Principal { tenant_id, user_id, .. } = self.reader.clone();
        let is_useful = self.console.is_some() && !user_id.is_empty() && occasion.waits();
        let input_hash = gate.shown_hash(call);
        is_useful.then_some(LinkTarget { tool_call_id: call.id, tenant_id, user_id, input_hash })
    }

    /// Whether the recipient may decide the call in their own right, without an escalation.
    fn might_from_the_start(&self, gate: &Gate, VisibleCall { call, thread, .. }: &VisibleCall) -> bool {
        let requester = thread.is_of(&self.reader);
        gate.registry().may_decide(&self.reader, requester, (&call.name, &[])) == MayDecide::ApproveOrReject
    }

    fn is_delegate(&self, event: &Event) -> bool {
        event.data.get("to").and_then(Value::as_str) == Some(actor_of(&self.reader.user_id).as_str())
    }
}

/// Returns when a message is urgent: at the reminder of the deadline. A message about an end never is.
fn urgent_at(occasion: Occasion, event: &Event, call: &ToolCall) -> Option<Timestamp> {
    match occasion {
        Occasion::Ended(_) => None,
        Occasion::Reminded => Some(event.at),
        Occasion::Held | Occasion::Escalated | Occasion::Delegated => {
            call.remind_at.or_else(|| call.expires_at.map(|deadline| deadline.minus(URGENT)))
        }
    }
}

fn risk(call: &ToolCall) -> &'static str {
    match call.risk {
        RiskLevel::Low => "low",
        RiskLevel::Medium => "medium",
        RiskLevel::High => "high",
    }
}
