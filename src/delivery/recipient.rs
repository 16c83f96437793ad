//! Recipients: users and roles that get a message about each event that is of concern to them.

use super::letter::Letter;
use super::occasion::{Occasion, RunOutcome};
use super::quiet::QuietTime;
use super::shared::{DeciderWords, SharedArguments};
use crate::approvals::{Approvals, title_of};
use crate::config::{self, AuthMode, Config, ConfigError};
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::card::obstacle::Obstacle;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Decision, Verdict};
use holdpoint_core::delegation::actor_of;
use holdpoint_core::event::Event;
use holdpoint_core::event_data::EventData;
use holdpoint_core::link::LinkTarget;
use holdpoint_core::policy::MayDecide;
use holdpoint_store::{DueEvent, EndpointEvents, Read, StoreError, VisibleCall};
use jiff::tz::TimeZone;
use serde_json::Value;
use std::time::Duration;

/// How long before the deadline of a call without a reminder its message is urgent.
const URGENT: Duration = Duration::from_secs(60 * 60);

/// A recipient of messages.
pub(super) struct Recipient {
    /// The recipient as a decider. A role without a user has an id that no user has.
    reader: Principal,
    /// Whether the recipient has a role of the operators.
    operates: bool,
    shares_arguments: bool,
    zone: TimeZone,
    quiet: Option<QuietTime>,
    /// The address of the console, if it has one.
    console: Option<String>,
}

/// What an event means for a recipient.
pub(super) enum EventMeaning {
    /// A message. One to one person about a call that waits gets a link to its card.
    Letter(Box<Letter>, Option<LinkTarget>),
    /// The event does not concern the recipient.
    Nothing,
    /// The server lacks the tool of the call. Only with its roles it is known whom the event concerns.
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
        let quiet = notify.quiet_hours(key)?.map(|hours| QuietTime { hours, zone: zone.clone() });
        let console = config.console_url().map(str::to_owned);
        let operates = config.auth.mode != AuthMode::None && reader.has_one_of(&config.auth.operator_roles);
        let made = Self { reader, operates, shares_arguments: notify.share_arguments, zone, quiet, console };
        Ok((made, EndpointEvents { tenant_id: notify.tenant.clone(), types: Occasion::types() }))
    }

    /// Returns the end of the quiet hours, if this moment is in them.
    pub(super) fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet.as_ref()?.end(now)
    }

    /// Returns what the event means for the recipient at this moment. `changes` says whether later messages change an
    /// earlier one.
    pub(super) async fn meaning(
        &self,
        approvals: &Approvals,
        read: &Read,
        due: &DueEvent,
        changes: bool,
    ) -> Result<EventMeaning, StoreError> {
        let event = &due.event;
        let occasion = event.event_type.as_ref().ok().and_then(|event_type| Occasion::of(*event_type));
        let occasion = occasion.filter(|occasion| changes || !occasion.only_changes());
        let Some((occasion, seen)) = occasion.zip(read.hold_of(event).await?) else {
            return Ok(EventMeaning::Nothing);
        };
        let gate = approvals.gate();
        let registry = gate.registry();
        if registry.get(&seen.call.name).is_none() {
            return Ok(EventMeaning::Unknown);
        }
        let blocked = approvals.blocked(read, &gate, std::slice::from_ref(&seen)).await?;
        let status = approvals.decision_status(&gate, &self.reader, &seen, &blocked);
        let concerns = match occasion {
            // A delegate and a role of an escalation have messages of their own.
            Occasion::Held => status.can_decide && self.might_from_the_start(&gate, &seen),
            Occasion::Reminded => status.can_decide,
            Occasion::Escalated => status.can_decide && !self.might_from_the_start(&gate, &seen),
            Occasion::Delegated => status.can_decide && self.is_delegate(event),
            Occasion::Voted => {
                seen.call.state == State::Pending && Approvals::concerns(&gate, &self.reader, &seen)
            }
            // An interrupted call may run again, or may be settled by now.
            Occasion::Ran(RunOutcome::Interrupted) => {
                matches!(seen.call.state, State::Interrupted(..))
                    && (self.operates || Approvals::concerns(&gate, &self.reader, &seen))
            }
            Occasion::Ended(_) | Occasion::Ran(_) => Approvals::concerns(&gate, &self.reader, &seen),
        };
        if !concerns {
            return Ok(EventMeaning::Nothing);
        }
        let VisibleCall { call, thread, .. } = &seen;
        // The contents of a deleted thread are shown to no reader any more.
        let shares = self.shares_arguments && !due.of_deleted_thread && !call.unreadable;
        let shared = shares.then(|| SharedArguments {
            headline: status.headline.clone(),
            held_because: call.reason.clone(),
            said: call.decision.as_ref().and_then(said),
            failure: failure(call),
            inputs: shown_inputs(call),
            constants: status.tool.and_then(|it| it.spec.constants()).map(|it| Value::Object(it).to_string()),
            preview: call.effective_preview().cloned(),
        });
        // An outcome is that of a decision.
        let decider = call.decision.as_ref().filter(|_| matches!(occasion, Occasion::Ran(_)));
        let link = self.link(occasion, call, &gate);
        let letter = Letter {
            occasion,
            event_id: event.event_id.clone(),
            hold_id: read.hold_event_id(call).await?,
            actor: decider.map_or_else(|| event.actor.clone(), |decision| decision.by.clone()),
            edited: match &call.decision {
                Some(decision) => decision.edited,
                None => matches!(event.facts(), EventData::Voted { edited: true, .. }),
            },
            title: title_of(registry, &call.name),
            tool_name: call.name.clone(),
            call_id: call.id.to_string(),
            requester: thread.actor(),
            risk: call.risk.word(),
            input_hash: gate.shown_hash(call),
            deadline: call.expires_at,
            urgent_at: urgent_at(occasion, event, call),
            card_parts: status.card_parts,
            may_approve: status.can_decide,
            // What does not fit the tool is an argument.
            obstacle: status
                .obstacle
                .filter(|obstacle| !matches!(obstacle, Obstacle::InvalidInputs(_)))
                .map(|obstacle| obstacle.sentence()),
            required: status.required,
            approved_by: status.approved_by,
            shared,
            console: self.console.clone(),
            link: None,
            zone: self.zone.clone(),
        };
        Ok(EventMeaning::Letter(Box::new(letter), link))
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
        gate.registry().may_decide(&self.reader, requester, &call.name, &[]) == MayDecide::ApproveOrReject
    }

    fn is_delegate(&self, event: &Event) -> bool {
        matches!(event.facts(), EventData::Delegated { to, .. } if to == actor_of(&self.reader.user_id))
    }
}

/// Returns the inputs that run or would run, as JSON for people.
fn shown_inputs(call: &ToolCall) -> String {
    let shown = call.shown_edit().unwrap_or_else(|| call.shown_proposal());
    Value::Object(shown.into_input()).to_string()
}

/// Returns what the decider said.
fn said(decision: &Decision) -> Option<DeciderWords> {
    let reason = decision.reason.clone()?;
    match decision.verdict {
        Verdict::Approve => Some(DeciderWords::Note(reason)),
        Verdict::Reject => Some(DeciderWords::Reason(reason)),
        Verdict::Expire | Verdict::Cancel => None,
    }
}

/// Returns what the model reads about a call that failed.
fn failure(call: &ToolCall) -> Option<String> {
    match &call.state {
        State::Failed(.., end) => Some(end.result.clone()),
        _ => None,
    }
}

/// Returns when a message is urgent: at the reminder of the deadline. A message about an end never is.
fn urgent_at(occasion: Occasion, event: &Event, call: &ToolCall) -> Option<Timestamp> {
    match occasion {
        Occasion::Voted | Occasion::Ended(_) | Occasion::Ran(_) => None,
        Occasion::Reminded => Some(event.at),
        Occasion::Held | Occasion::Escalated | Occasion::Delegated => {
            call.remind_at.or_else(|| call.expires_at.map(|deadline| deadline.minus(URGENT)))
        }
    }
}
