//! Deciding a held call: once, for good, the same from every side.

use super::Approvals;
#[cfg(feature = "torture")]
use super::planted;
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall, input_hash, same_inputs};
use crate::domain::decision::{Answer, Surface, Verdict};
use crate::domain::id::ToolCallId;
use crate::domain::policy::Say;
#[cfg(feature = "torture")]
use crate::faults::{self, Bug, Point};
use crate::pace::TooOften;
use crate::store::{StoreError, Thread, Voice};
use crate::tools::InputError;
use tracing::Instrument;

/// What somebody says about a call.
#[derive(Debug, Clone)]
pub(crate) struct DecisionRequest {
    /// The call.
    pub(crate) tool_call_id: ToolCallId,
    /// Yes or no.
    pub(crate) answer: Answer,
    /// The hash of what they were shown, if they say.
    pub(crate) input_hash: Option<String>,
    /// Where they say it.
    pub(crate) surface: Surface,
}

/// A decision in force.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The call, as far as it came.
    pub(crate) call: ToolCall,
    /// Whether the same had been decided before.
    pub(crate) replayed: bool,
}

/// Why a decision is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecideError {
    /// They decided too often lately.
    #[error(transparent)]
    TooOften(#[from] TooOften),
    /// No such held call, for this principal.
    #[error("there is no such held tool call")]
    NotFound,
    /// It is there for this principal to see and not to approve.
    #[error("this principal may not approve the call")]
    Forbidden,
    /// Something else was decided, or time or somebody else ended it; how, is in the call.
    #[error("the call is decided")]
    Closed(Box<ToolCall>),
    /// The tool is not there now. The call stays pending.
    #[error("the tool {0:?} is not available")]
    ToolUnavailable(String),
    /// What was shown is not what would run. The call stays pending.
    #[error("what was shown is out of date")]
    Stale {
        /// The hash of what would run.
        input_hash: String,
    },
    /// The inputs do not fit the tool. The call stays pending.
    #[error("the inputs do not fit the tool")]
    InvalidInputs(Vec<InputError>),
    /// The database failed: whether it was decided is unknown, and asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DecideError {
    /// Its word, for metrics: the code that clients see, where it is one of the decision's own.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::TooOften(_) => "rate_limited",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::Closed(call) => match call.state {
                State::Expired(_) => "expired",
                State::Cancelled(..) => "cancelled",
                _ => "already_decided",
            },
            Self::ToolUnavailable(_) => "tool_unavailable",
            Self::Stale { .. } => "stale",
            Self::InvalidInputs(_) => "invalid_inputs",
            Self::Store(_) => "failed",
        }
    }
}

impl Approvals {
    /// Decides a call and, after a yes, begins to run it. Waits for nothing more.
    pub(crate) async fn answer(
        &self,
        principal: &Principal,
        request: DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let span = tracing::error_span!("decision", tool_call_id = %request.tool_call_id);
        self.decide_and_begin(principal, &request).instrument(span).await
    }

    /// What follows answers: the calls at their ends, or after `wait` as far as they came.
    pub(crate) async fn follow(
        &self,
        principal: &Principal,
        decided: &mut [&mut Decided],
    ) -> Result<(), DecideError> {
        let mut calls: Vec<&mut ToolCall> = decided.iter_mut().map(|decided| &mut decided.call).collect();
        self.await_ends(principal, &mut calls).await?;
        #[cfg(feature = "torture")]
        for call in calls {
            Point::of("decision.told", Some(&call.id)).before().await;
        }
        Ok(())
    }

    async fn decide_and_begin(
        &self,
        principal: &Principal,
        request: &DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let committed = self.commit_decision(principal, request).await;
        self.measure(request, &committed);
        let (thread, call, replayed) = committed?;
        if matches!(call.state, State::Approved(_)) {
            #[cfg(feature = "torture")]
            if faults::has(Bug::RequestOwnsWork) {
                Box::pin(self.claim_and_run(&thread, &call)).await;
                return Ok(Decided { call, replayed });
            }
            self.execute(&thread, &call);
        }
        Ok(Decided { call, replayed })
    }

    /// Counts a decision of this principal's, if they may make one more.
    pub(crate) fn count(&self, principal: &Principal) -> Result<(), DecideError> {
        Ok(self.pace.count(principal)?)
    }

    fn measure(&self, request: &DecisionRequest, committed: &Result<(Thread, ToolCall, bool), DecideError>) {
        let verdict = match request.answer {
            Answer::Approve { .. } => Verdict::Approve.as_str(),
            Answer::Reject { .. } => Verdict::Reject.as_str(),
        };
        let outcome = match committed {
            Ok((_, _, true)) => "replayed",
            Ok((_, call, false)) => {
                if let Some(decision) = &call.decision {
                    self.executor.metrics.hold_ended(verdict, decision.at.since(call.created_at));
                }
                "decided"
            }
            Err(error) => error.outcome(),
        };
        self.executor.metrics.decided(verdict, request.surface.as_str(), outcome);
    }

    async fn commit_decision(
        &self,
        principal: &Principal,
        request: &DecisionRequest,
    ) -> Result<(Thread, ToolCall, bool), DecideError> {
        self.count(principal)?;
        // A decision that loses its race finds the winner's on the next look.
        loop {
            let write = self.store.urgent_write().await?;
            let found = self.seen(&write, principal, request.tool_call_id).await?;
            let (call, thread) = found.filter(|(call, _)| call.held).ok_or(DecideError::NotFound)?;
            // Before all else: what follows tells how the call stands.
            self.check_person(principal, &thread, &call, &request.answer)?;
            let closed = !matches!(call.state, State::Pending);
            #[cfg(feature = "torture")]
            if closed && faults::has(Bug::LastWins) && !is_repeat(&call, &request.answer) {
                write.overrule(&call, &request.answer, &principal.actor()).await?;
                write.commit().await?;
                return Ok((thread, call, false));
            }
            #[cfg(feature = "torture")]
            let closed = closed && !planted::decides_anew(&call, write.now());
            if closed {
                return match is_repeat(&call, &request.answer) {
                    true => Ok((thread, call, true)),
                    false => Err(DecideError::Closed(Box::new(call))),
                };
            }
            if call.expires_at.is_some_and(|at| at <= write.now()) {
                write.expire(&thread, &call).await?;
                write.commit().await?;
                continue;
            }
            let answer = self.check(&call, request)?;
            let runs = match &answer {
                Answer::Approve { inputs: Some(inputs) } => inputs,
                Answer::Approve { inputs: None } | Answer::Reject { .. } => &call.input,
            };
            let voice = Voice {
                actor: principal.actor(),
                surface: request.surface,
                input_hash: input_hash(&call.name, runs, self.current_schema(&call)),
            };
            if write.decide(&thread, &call, &answer, &voice, self.times.start_deadline).await? {
                let decided = self.seen(&write, principal, call.id).await?.ok_or(DecideError::NotFound)?;
                write.commit().await?;
                return Ok((decided.1, decided.0, false));
            }
        }
    }

    /// Whether this person may say this about the call.
    fn check_person(
        &self,
        principal: &Principal,
        thread: &Thread,
        call: &ToolCall,
        answer: &Answer,
    ) -> Result<(), DecideError> {
        match (self.gate().registry().say(principal, thread.is_of(principal), &call.name), answer) {
            (Say::YesOrNo, _) | (Say::OnlyNo, Answer::Reject { .. }) => Ok(()),
            (Say::OnlyNo, Answer::Approve { .. }) => Err(DecideError::Forbidden),
            (Say::Nothing, _) => Err(DecideError::NotFound),
        }
    }

    /// The answer to a pending call as it may be taken: inputs that are the model's own are no edit.
    fn check(&self, call: &ToolCall, request: &DecisionRequest) -> Result<Answer, DecideError> {
        let tool = self.gate().registry().get(&call.name);
        let approves = matches!(request.answer, Answer::Approve { .. });
        if approves && tool.is_none() {
            return Err(DecideError::ToolUnavailable(call.name.clone()));
        }
        let current = self.shown_hash(call);
        if request.input_hash.as_ref().is_some_and(|shown| *shown != current) {
            return Err(DecideError::Stale { input_hash: current });
        }
        match &request.answer {
            Answer::Approve { inputs } => {
                let inputs = inputs.clone().filter(|inputs| !same_inputs(inputs, &call.input));
                let runs = inputs.as_ref().unwrap_or(&call.input);
                let errors = tool.map_or_else(Vec::new, |tool| self.gate().errors(tool, runs));
                if errors.is_empty() {
                    Ok(Answer::Approve { inputs })
                } else {
                    Err(DecideError::InvalidInputs(errors))
                }
            }
            Answer::Reject { reason } => Ok(Answer::Reject { reason: reason.clone() }),
        }
    }
}

/// Whether the same was decided before: the same verdict and, for a yes, the same inputs.
fn is_repeat(call: &ToolCall, answer: &Answer) -> bool {
    match (&call.state, answer) {
        (
            State::Approved(_)
            | State::Executing(..)
            | State::Succeeded(..)
            | State::Failed(..)
            | State::Interrupted(..),
            Answer::Approve { inputs },
        ) => same_inputs(inputs.as_ref().unwrap_or(&call.input), call.effective_input()),
        (State::Rejected(_), Answer::Reject { .. }) => true,
        _ => false,
    }
}
