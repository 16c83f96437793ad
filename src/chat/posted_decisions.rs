//! Decisions about held calls that clients post among the parts of their history: how the server applies
//! them, and the backfill for a client that posts them.

use super::Chat;
use super::request::{AdmitError, PostedDecision, ThreadName};
use crate::agent::UnsettledOutcome;
use crate::approvals::{DecideError, Decider, DecisionRequest, Denied, Scope};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::message::Step;
use holdpoint_core::replay::replay;
use holdpoint_core::turn::TurnEvent;
use std::collections::HashSet;

/// The decisions of a request that are applied.
#[derive(Debug, Default)]
pub(super) struct AppliedDecisions {
    /// The calls whose decisions were accepted.
    pub(super) accepted: HashSet<ToolCallId>,
    /// The outcomes of these calls that the transaction of the request stores.
    pub(super) unsettled: Vec<UnsettledOutcome>,
}

impl Chat {
    /// Applies the new decisions, each in a transaction of its own, through `Approvals::decide`. Clients post
    /// their whole history again and again. So the server ignores decisions about calls that are not pending,
    /// or that belong to another thread.
    ///
    /// A request that only continues fails if all its new decisions are refused. Any other request fails if a
    /// refused decision may be accepted on a retry. A request that fails starts nothing.
    pub(super) async fn apply_posted_decisions(
        &self,
        principal: &Principal,
        name: &ThreadName,
        answers: &[PostedDecision],
        only_continues: bool,
    ) -> Result<AppliedDecisions, AdmitError> {
        if answers.is_empty() {
            return Ok(AppliedDecisions::default());
        }
        let (ThreadName::Known(name) | ThreadName::OrNew(name)) = name;
        // Each decision checks the state of its call again.
        let mut pending = self.store.read_once().await?.pending_in(principal, name).await?;
        let new = answers.iter().filter(|answer| pending.remove(&answer.tool_call_id));
        let (mut decisions, mut closed, mut refused) = (Vec::new(), false, None);
        for answer in new.take(self.agent.limits.batch) {
            match Box::pin(self.approvals.decide(Decider::Person(principal), answer.request())).await {
                Ok(decided) => decisions.push(decided),
                // Another decider was faster, or the call expired. The client gets the status of the call.
                Err(DecideError::Closed(_)) => closed = true,
                // The next decision would be refused too.
                Err(error) if is_retryable(&error) => {
                    refused = Some(error);
                    break;
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let none_accepted = decisions.is_empty() && !closed;
        let unsettled = self.approvals.await_at_once(&mut decisions).await;
        let refuses = |error: &DecideError| if only_continues { none_accepted } else { is_retryable(error) };
        if let Some(error) = refused.filter(refuses) {
            return Err(AdmitError::Refused(error));
        }
        let accepted = decisions.iter().filter(|made| !made.replayed).map(|made| made.call.id).collect();
        Ok(AppliedDecisions { accepted, unsettled })
    }
}

/// Whether a retry of the same decision may be accepted.
fn is_retryable(error: &DecideError) -> bool {
    matches!(error, DecideError::Denied(Denied::TooOften(_) | Denied::Store(_)))
}

impl PostedDecision {
    fn request(&self) -> DecisionRequest {
        let answer = if self.approved {
            Choice::Approve { inputs: None, note: self.reason.clone() }
        } else {
            Choice::Reject { reason: self.reason.clone() }
        };
        DecisionRequest {
            tool_call_id: self.tool_call_id,
            choice: answer,
            // A rejection of another call than the one that is shown does no harm.
            input_hash: self.input_hash.clone().filter(|_| self.approved),
            preview_hash: None,
            link: None,
            surface: Surface::Stream,
            remember: None,
            scope: Scope::Anything,
            // The response to the request that carries the decision resumes the run.
            server_resumes: false,
        }
    }
}

/// Returns the last step with one of these held calls, which a client decides or shows without an end. A client
/// gets an outcome before everything after that outcome. So such a client has nothing after that step.
pub(super) fn step_of_one(steps: &[Step], of: &HashSet<ToolCallId>) -> Option<i32> {
    let is_one = |call: &ToolCall| call.held && of.contains(&call.id);
    steps.iter().rfind(|step| step.calls.iter().any(is_one)).map(|step| step.n)
}

/// Returns the events that a client lacks after step `known`: the status of that step's held calls, and all
/// later steps.
pub(super) fn backfill(steps: &[Step], known: i32) -> Vec<TurnEvent<'static>> {
    let (held, after) = steps.split_at(steps.partition_point(|step| step.n <= known));
    let mut missed = held.last().map_or_else(Vec::new, TurnEvent::catch_up);
    missed.extend(replay(after));
    missed
}

/// Returns the part of that backfill that precedes a turn after these steps. The turn itself begins with the
/// status of the held calls of the last complete step. Only the backfill contains a later step that broke
/// off.
pub(super) fn backfill_before_turn(steps: &[Step], known: i32) -> Vec<TurnEvent<'static>> {
    if steps.last().is_some_and(|step| step.n == known) { Vec::new() } else { backfill(steps, known) }
}

pub(super) fn held_at(steps: &[Step], n: i32) -> impl Iterator<Item = &ToolCall> {
    let calls = steps.iter().find(|step| step.n == n).map(|step| step.calls.as_slice());
    calls.unwrap_or_default().iter().filter(|call| call.held)
}
