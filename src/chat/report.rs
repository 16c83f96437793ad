//! What a client gets without a turn: the stored state of a message that cannot continue, and the decisions
//! about calls of other messages, which the client may still show as pending.

use super::plan::{Report, StoredView};
use super::request::ShownCalls;
use holdpoint_core::id::MessageId;
use holdpoint_core::message::Usage;
use holdpoint_core::replay::replay;
use holdpoint_core::run::{RunStatus, TurnError};
use holdpoint_core::turn::{FinishReason, HeldCallStatus, SpentTokens, TurnEvent};
use holdpoint_store::Transcript;

/// The number of decisions that a client gets which does not say what it shows: the latest ones.
const DECISIONS_MAX: usize = 50;

/// Returns the decisions about the calls of other messages that the client shows without an end, except those
/// that it has.
pub(super) fn decided_elsewhere(
    transcript: &Transcript,
    message: Option<MessageId>,
    shown: &ShownCalls,
) -> Option<TurnEvent<'static>> {
    if shown.open.is_empty() {
        return None;
    }
    let decided = decided(transcript, message);
    let unseen = decided.filter(|call| {
        shown.open.contains(&call.tool_call_id) && !shown.decided.contains(&call.tool_call_id)
    });
    Some(unseen.collect::<Vec<_>>()).filter(|unseen| !unseen.is_empty()).map(TurnEvent::DecidedEarlier)
}

/// Returns the stored state that the client gets, to the end of its stream.
pub(super) fn events(view: &StoredView, transcript: &Transcript, report: Report) -> Vec<TurnEvent<'static>> {
    let message = view.run.assistant_message_id;
    let (mut events, from) = match report {
        Report::Whole => (replay(view.steps()), 0),
        Report::States(step) => {
            let held = view.steps().iter().find(|other| other.n == step);
            (held.map_or_else(Vec::new, TurnEvent::catch_up), step)
        }
        Report::Elsewhere => {
            let mut all: Vec<_> = decided(transcript, Some(message)).collect();
            all.drain(..all.len().saturating_sub(DECISIONS_MAX));
            (vec![TurnEvent::DecidedEarlier(all)], 0)
        }
    };
    events.push(end(view, from, None));
    events
}

/// Whether a message other than this one has a held call.
pub(super) fn holds_elsewhere(transcript: &Transcript, message: MessageId) -> bool {
    let others = transcript.current().filter(|other| other.id != message);
    others.flat_map(|other| other.calls()).any(|call| call.held)
}

/// Returns the decided held calls of the messages that a client shows, except this message.
fn decided(transcript: &Transcript, message: Option<MessageId>) -> impl Iterator<Item = HeldCallStatus> {
    let others = transcript.current().filter(move |other| Some(other.id) != message);
    let held = others.flat_map(|other| other.calls()).filter(|call| call.held && call.decision.is_some());
    held.map(HeldCallStatus::of)
}

/// Returns the last event of a stream without a turn. The client has nothing after this step.
pub(super) fn end(view: &StoredView, step: i32, error: Option<TurnError>) -> TurnEvent<'static> {
    let message = view.steps().iter().filter_map(|step| step.usage).reduce(Usage::plus);
    let spent = SpentTokens { turn: Usage::default(), message };
    if let Some(error) = error {
        return TurnEvent::Failed { error, spent };
    }
    if view.run.status == RunStatus::Cancelled {
        return TurnEvent::Cancelled { spent };
    }
    let mut calls_shown = view.steps().iter().filter(|other| other.n >= step).flat_map(|step| &step.calls);
    let waits = view.can_resume() || calls_shown.any(|call| call.end().is_none());
    let reason = if waits { FinishReason::ToolCalls } else { FinishReason::Stop };
    TurnEvent::Finished { reason, spent }
}
