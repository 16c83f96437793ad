//! What follows a continuation. [`plan`] decides it from the stored rows, the request and the traits of the
//! client, without any effect. `continuation` reads the rows and carries the plan out.

use super::posted_decisions::held_at;
use super::request::AdmitError;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::message::{Step, StepStatus};
use holdpoint_core::run::{Run, RunStatus, TurnError};
use holdpoint_stream::ClientTraits;

#[cfg(test)]
mod tests;

/// A request to continue a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    Post {
        /// The last step with a held call that the client decides. The client has nothing after this step.
        decided: Option<i32>,
        /// The last step with a held call that the client shows without an end. The client has nothing after
        /// this step.
        open: Option<i32>,
        /// Whether the client has nothing of the message.
        has_nothing: bool,
    },
    /// A GET, which attaches to a turn.
    Get,
    /// The server resumes the run without a client.
    Server,
    /// A POST that has waited for the held calls of this step.
    Waited { step: i32 },
}

/// The rows that decide about a continuation, read with the thread locked. A part that cannot matter for the
/// request is not read.
#[derive(Debug)]
pub(super) struct StoredView {
    /// The run of the message to continue.
    pub(super) run: Run,
    /// Whether this is the last run of the thread. The user sent a message after any other run.
    pub(super) is_last: bool,
    /// The steps of the message, if they are read.
    pub(super) steps: Option<Vec<Step>>,
    /// The steps before the running turn: read if a turn is running and the client decides a call.
    pub(super) steps_before_turn: Vec<Step>,
    /// The calls for which the run pauses: read if the run waits or failed.
    pub(super) pausing: Vec<ToolCall>,
    /// Whether the model has read an outcome or a placeholder of the held calls: read for a GET that may
    /// resume the run.
    pub(super) outcomes_were_sent: bool,
    /// Whether another message of the thread has a held call.
    pub(super) holds_elsewhere: bool,
    /// Whether this process is stopping.
    pub(super) is_stopping: bool,
}

/// What follows a continuation.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// The client reads the running turn.
    Attach(Backfill),
    /// A turn resumes the run, if there is room for the turn.
    Resume(Backfill),
    /// The client waits for the held calls of this step, then gets another plan.
    Await {
        step: i32,
        /// Whether the running turn contains the step. Then its end comes first.
        in_turn: bool,
        backfill: Backfill,
    },
    /// No turn follows. The client gets the stored state at once.
    Report(Report),
    /// No turn follows. After a wait the client gets the stored state, and some clients this error as the
    /// cause. A GET gets an empty response.
    End(Option<TurnError>),
}

/// The stored state that a client gets when nothing is left to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The whole message.
    Whole,
    /// The status of the held calls of this step.
    States(i32),
    /// The decisions about held calls of other messages.
    Elsewhere,
}

/// The part of the message that a client gets before the plan begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backfill {
    Nothing,
    /// The status of the held calls of this step, and all later steps.
    After(i32),
    /// All steps.
    Whole,
}

/// Decides what follows. An error refuses the request.
pub(super) fn plan(view: &StoredView, request: Request, client: ClientTraits) -> Result<Plan, AdmitError> {
    match request {
        Request::Post { decided, open, has_nothing } => {
            let open = decided.max(open);
            let backfill = match open {
                _ if has_nothing => Backfill::Whole,
                Some(step) => Backfill::After(step),
                None => Backfill::Nothing,
            };
            view.after_post(decided, open, backfill)
        }
        Request::Get => view.after_get(client),
        Request::Server => view.resume(Backfill::Nothing),
        Request::Waited { step } => Ok(view.after_wait(step)),
    }
}

impl StoredView {
    /// Returns the view of a run without any of the optional parts.
    pub(super) const fn of(run: Run, is_last: bool) -> Self {
        Self {
            run,
            is_last,
            steps: None,
            steps_before_turn: Vec::new(),
            pausing: Vec::new(),
            outcomes_were_sent: false,
            holds_elsewhere: false,
            is_stopping: false,
        }
    }

    /// Returns the steps of the message, none if they are not read.
    pub(super) fn steps(&self) -> &[Step] {
        self.steps.as_deref().unwrap_or_default()
    }

    /// Whether the run is the last one and has paused or failed.
    pub(super) fn can_resume(&self) -> bool {
        self.is_last && matches!(self.run.status, RunStatus::Waiting | RunStatus::Failed)
    }

    fn after_post(
        &self,
        decided: Option<i32>,
        open: Option<i32>,
        backfill: Backfill,
    ) -> Result<Plan, AdmitError> {
        // Reports the status of the decided calls. The report itself includes everything after them.
        let report = |step, in_turn| {
            let backfill = if backfill == Backfill::Whole { backfill } else { Backfill::Nothing };
            Plan::Await { step, in_turn, backfill }
        };
        match self.run.status {
            RunStatus::Running if self.is_last => Ok(match decided {
                // The client has already read the turn that it would attach to, except its end.
                Some(step) if self.turn_contains(step) => report(step, true),
                // The client reads its open step in the turn.
                _ if open.is_some_and(|step| self.turn_contains(step)) && backfill != Backfill::Whole => {
                    Plan::Attach(Backfill::Nothing)
                }
                _ => Plan::Attach(backfill),
            }),
            RunStatus::Waiting | RunStatus::Failed if self.is_last => self.resume(backfill),
            _ => match (open, self.last_hold()) {
                (Some(step), _) => Ok(report(step, false)),
                (None, _) if backfill == Backfill::Whole => Ok(Plan::Report(Report::Whole)),
                (None, Some(step)) => Ok(Plan::Report(Report::States(step))),
                (None, None) if self.holds_elsewhere => Ok(Plan::Report(Report::Elsewhere)),
                (None, None) => Err(AdmitError::NothingToContinue),
            },
        }
    }

    fn after_get(&self, client: ClientTraits) -> Result<Plan, AdmitError> {
        match self.run.status {
            RunStatus::Running if client.needs_earlier_steps => Ok(Plan::Attach(Backfill::Whole)),
            RunStatus::Running => Ok(Plan::Attach(Backfill::Nothing)),
            _ if !client.resumes_by_get || !self.has_unread_outcomes() => Ok(Plan::End(None)),
            _ if self.is_stopping => Err(AdmitError::Stopping),
            _ => self.resume(Backfill::Nothing),
        }
    }

    /// Resumes the last run. If a call is open, the client has to wait for it first.
    fn resume(&self, backfill: Backfill) -> Result<Plan, AdmitError> {
        match self.run.status {
            RunStatus::Completed | RunStatus::Cancelled => Err(AdmitError::NothingToContinue),
            RunStatus::Running => Err(AdmitError::TurnInProgress),
            // A turn may have failed between its hold and its end.
            RunStatus::Waiting | RunStatus::Failed => {
                Ok(match self.pausing.iter().find(|call| call.end().is_none()) {
                    Some(open) => Plan::Await { step: open.step, in_turn: false, backfill },
                    None => Plan::Resume(backfill),
                })
            }
        }
    }

    fn after_wait(&self, step: i32) -> Plan {
        if held_at(self.steps(), step).any(is_in_progress) {
            return Plan::End(Some(TurnError::outcome_not_known_yet()));
        }
        match self.run.status {
            // By its number: if the clock was set back between two steps, an earlier step may be missing here.
            RunStatus::Running if self.is_last => {
                if self.steps_before_turn.iter().any(|before| before.n == step) {
                    Plan::Attach(Backfill::After(step))
                } else {
                    Plan::End(Some(TurnError::outcome_not_known_yet()))
                }
            }
            _ if !self.can_resume() || !self.has_paused_at(step) => Plan::End(None),
            _ if self.is_stopping => Plan::End(Some(TurnError::interrupted())),
            _ => Plan::Resume(Backfill::Nothing),
        }
    }

    /// Returns the last step with a held call.
    fn last_hold(&self) -> Option<i32> {
        self.steps().iter().rfind(|step| step.calls.iter().any(|call| call.held)).map(|step| step.n)
    }

    /// Whether the running turn contains this step, so that a client of that turn has the step from it.
    fn turn_contains(&self, step: i32) -> bool {
        self.steps_before_turn.last().is_none_or(|last| last.n < step)
    }

    /// Whether all calls of this step have ended and no complete step follows. If one follows, another turn
    /// has resumed the run and may have reached another hold, which the client's decisions are not about.
    fn has_paused_at(&self, step: i32) -> bool {
        let has_successor =
            self.steps().iter().any(|other| other.n > step && other.status == StepStatus::Complete);
        let calls = self.steps().iter().filter(|other| other.n == step).flat_map(|step| &step.calls);
        !has_successor && calls.filter(|call| call.pauses()).all(|call| call.end().is_some())
    }

    /// Whether no held call of the last message is pending and the model has read none of the outcomes. If a
    /// turn failed after the model read them, the user has to retry.
    fn has_unread_outcomes(&self) -> bool {
        self.can_resume() && self.holds_are_decided() && !self.outcomes_were_sent
    }

    /// Whether the run pauses for held calls, and none of them is pending.
    pub(super) fn holds_are_decided(&self) -> bool {
        let mut held = self.pausing.iter().filter(|call| call.held).peekable();
        held.peek().is_some() && held.all(|call| call.state != State::Pending)
    }
}

/// Whether the call is decided and has not ended.
pub(super) fn is_in_progress(call: &ToolCall) -> bool {
    call.end().is_none() && call.state != State::Pending
}
