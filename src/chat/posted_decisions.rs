//! The answers to held calls that pages post among the parts of their history: what becomes of them, and what a page
//! that posts one has yet to be told.

use super::Chat;
use super::admit::{AdmitError, PostedDecision, ThreadName};
use crate::approvals::{DecideError, Decider, DecisionRequest, Scope};
use crate::domain::Principal;
use crate::domain::call::ToolCall;
use crate::domain::decision::{Choice, Surface};
use crate::domain::id::ToolCallId;
use crate::domain::message::Step;
use crate::domain::replay::replay;
use crate::domain::turn::TurnEvent;
use std::collections::HashSet;

impl Chat {
    /// Takes those that are new: each by itself, and through the one function that decides. Pages post their whole
    /// history for ever, so an answer to what does not wait is none, and neither is one to a call of another thread.
    ///
    /// A request that only goes on is refused where all that it says anew was; any, where an answer may be taken if it
    /// comes again: nothing of what it wants is begun then.
    pub(super) async fn apply_posted_decisions(
        &self,
        principal: &Principal,
        name: &ThreadName,
        answers: &[PostedDecision],
        only_continues: bool,
    ) -> Result<(), AdmitError> {
        if answers.is_empty() {
            return Ok(());
        }
        let (ThreadName::Known(name) | ThreadName::OrNew(name)) = name;
        let read = self.store.read().await?;
        let Some(thread) = read.thread_named(principal, name).await? else { return Ok(()) };
        let mut pending = read.pending_in(&thread).await?;
        drop(read);
        let new = answers.iter().filter(|answer| pending.remove(&answer.tool_call_id));
        let (mut taken, mut refused) = (false, None);
        for answer in new.take(self.agent.limits.batch) {
            match self.approvals.decide(Decider::Person(principal), answer.request()).await {
                // Somebody else was faster, or time was: the page is told how the call stands.
                Ok(_) | Err(DecideError::Closed(_)) => taken = true,
                // So would the next be refused.
                Err(error) if is_retryable(&error) => {
                    refused = Some(error);
                    break;
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let refuses = |error: &DecideError| if only_continues { !taken } else { is_retryable(error) };
        refused.filter(refuses).map_or(Ok(()), |error| Err(AdmitError::Refused(error)))
    }
}

/// Whether the same answer may be taken if it comes again.
fn is_retryable(error: &DecideError) -> bool {
    matches!(error, DecideError::TooOften(_) | DecideError::Store(_))
}

impl PostedDecision {
    fn request(&self) -> DecisionRequest {
        let answer = if self.approved {
            Choice::Approve { inputs: None }
        } else {
            Choice::Reject { reason: self.reason.clone() }
        };
        DecisionRequest {
            tool_call_id: self.tool_call_id,
            choice: answer,
            input_hash: None,
            surface: Surface::Stream,
            remember: None,
            scope: Scope::Anything,
            // The response to the request that it is a part of.
            server_resumes: false,
        }
    }
}

/// The last step of a message with a held call that a page answers. A page is told of an outcome before all that comes
/// behind it: so one that still has an answer there has nothing behind that step.
pub(super) fn decided_step(steps: &[Step], answered: &HashSet<ToolCallId>) -> Option<i32> {
    let is_answered = |call: &ToolCall| call.held && answered.contains(&call.id);
    steps.iter().rfind(|step| step.calls.iter().any(is_answered)).map(|step| step.n)
}

/// What a page lacks that has these steps up to this one: how the held calls of that stand, and all behind it.
pub(super) fn backfill(steps: &[Step], known: i32) -> Vec<TurnEvent<'static>> {
    let (held, after) = steps.split_at(steps.partition_point(|step| step.n <= known));
    let mut missed = held.last().map_or_else(Vec::new, TurnEvent::catch_up);
    missed.extend(replay(after));
    missed
}

/// What of that a page lacks before it reads a turn that follows these steps: the turn itself begins with how the held
/// calls of the last whole one stand, but a step that broke off behind it is told by nobody else.
pub(super) fn backfill_before_turn(steps: &[Step], known: i32) -> Vec<TurnEvent<'static>> {
    if steps.last().is_some_and(|step| step.n == known) { Vec::new() } else { backfill(steps, known) }
}

/// The calls of a step that a person is, or was, asked about.
pub(super) fn held_at(steps: &[Step], n: i32) -> impl Iterator<Item = &ToolCall> {
    let calls = steps.iter().find(|step| step.n == n).map(|step| step.calls.as_slice());
    calls.unwrap_or_default().iter().filter(|call| call.held)
}
