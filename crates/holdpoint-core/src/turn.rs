//! The events of a turn, in order. Encoders turn them into bytes.

use super::call::{State, StateKind, ToolCall};
use super::id::ToolCallId;
use super::message::{File, Source, Step, StepStatus, Usage};
use super::run::TurnError;
use crate::card::hold::{DecisionInForce, Hold};
use crate::tool::secrets::ShownInput;
use crate::vocabulary;
use serde_json::Value;
use std::borrow::Cow;

/// One event of a turn. Text that is read from its place of storage is borrowed.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent<'a> {
    /// A model call starts.
    StepStarted,
    /// A delta of text, live.
    Text(Cow<'a, str>),
    /// A delta of reasoning, live.
    Reasoning(Cow<'a, str>),
    /// The current text or reasoning part ends.
    PartEnded,
    /// A source, after the text that it belongs to.
    Source(Source),
    /// A file that the model created.
    File(File),
    /// The model starts to write a call, live.
    CallStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool of the call.
        tool_name: String,
    },
    /// A delta of a call's inputs, live.
    CallArguments {
        /// The call.
        tool_call_id: ToolCallId,
        /// The next chunk of JSON text.
        delta: Cow<'a, str>,
    },
    /// A call is stored.
    CallStored {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool of the call.
        tool_name: String,
        /// The stored inputs.
        input: ShownInput,
    },
    /// The end of a call that was not held is stored.
    CallEnded {
        /// The call.
        tool_call_id: ToolCallId,
        /// The result that a page shows.
        result: RenderedResult,
    },
    /// The result of a call that was not held, emitted together with the held calls that a continuation
    /// follows. A page that disconnected earlier has not received the result.
    ResultCatchUp {
        /// The call.
        tool_call_id: ToolCallId,
        /// The result that a page shows.
        result: RenderedResult,
    },
    /// The stored statuses of the calls that this step holds.
    Held(Vec<HeldCallStatus>),
    /// The stored statuses of the held calls that the message continues after. Or those of them whose status
    /// differs from the one that their step emitted.
    Continued(Vec<HeldCallStatus>),
    /// The decisions about held calls of earlier messages, which a page may still show as pending.
    DecidedEarlier(Vec<HeldCallStatus>),
    /// A model call ended.
    StepFinished {
        /// The reason.
        reason: FinishReason,
        /// The tokens of the call, if known.
        usage: Option<Usage>,
    },
    /// The turn completed: the answer is final, or calls are held.
    Finished {
        /// The reason.
        reason: FinishReason,
        /// The tokens of the turn.
        spent: SpentTokens,
    },
    /// The turn was cancelled.
    Cancelled {
        /// The tokens until then.
        spent: SpentTokens,
    },
    /// The turn failed.
    Failed {
        /// The error.
        error: TurnError,
        /// The tokens until then.
        spent: SpentTokens,
    },
}

impl TurnEvent<'static> {
    /// Returns the statuses of the calls after which a message with these steps continues, if it does.
    pub fn continuation(steps: &[Step]) -> Vec<Self> {
        let Some(last) = steps.iter().rfind(|step| step.status == StepStatus::Complete) else {
            return Vec::new();
        };
        let mut emitted = Self::catch_up(last);
        if steps.last().is_some_and(|step| step.n > last.n)
            && let Some(Self::Continued(held)) = emitted.last_mut()
        {
            // The earlier turn emitted the inputs. A page that gets them after another step assigns them to a
            // call of that step.
            held.iter_mut().for_each(|call| call.input_to_show = None);
        }
        emitted
    }

    /// Returns the statuses of a step's calls, if the step holds any, or child runs, workers or owners executed some.
    /// With held calls, the results of the other calls are included, because a page may have missed them.
    pub fn catch_up(step: &Step) -> Vec<Self> {
        let held: Vec<HeldCallStatus> =
            step.calls.iter().filter(|call| call.held).map(HeldCallStatus::of).collect();
        let others = step.calls.iter().filter(|call| !call.held);
        let ended = others.filter_map(|call| Some((call, RenderedResult::of(call)?)));
        let emitted = ended.filter_map(|(call, shown)| match call.ends_elsewhere() {
            // No turn has emitted the result of a child run, a worker or an owner.
            true => Some(Self::CallEnded { tool_call_id: call.id, result: shown }),
            false if held.is_empty() => None,
            false => Some(Self::ResultCatchUp { tool_call_id: call.id, result: shown }),
        });
        let emitted: Vec<Self> = emitted.collect();
        emitted.into_iter().chain((!held.is_empty()).then_some(Self::Continued(held))).collect()
    }
}

impl TurnEvent<'_> {
    /// Returns the same event with this text, if the event is a delta.
    pub fn with_text<'a>(&self, words: &'a str) -> TurnEvent<'a> {
        match self {
            Self::Reasoning(_) => TurnEvent::Reasoning(words.into()),
            Self::CallArguments { tool_call_id, .. } => {
                TurnEvent::CallArguments { tool_call_id: *tool_call_id, delta: words.into() }
            }
            _ => TurnEvent::Text(words.into()),
        }
    }

    /// Returns the same event with owned text.
    pub fn into_owned(self) -> TurnEvent<'static> {
        match self {
            TurnEvent::Text(words) => TurnEvent::Text(words.into_owned().into()),
            TurnEvent::Reasoning(words) => TurnEvent::Reasoning(words.into_owned().into()),
            TurnEvent::CallArguments { tool_call_id, delta } => {
                TurnEvent::CallArguments { tool_call_id, delta: delta.into_owned().into() }
            }
            TurnEvent::StepStarted => TurnEvent::StepStarted,
            TurnEvent::PartEnded => TurnEvent::PartEnded,
            TurnEvent::Source(source) => TurnEvent::Source(source),
            TurnEvent::File(file) => TurnEvent::File(file),
            TurnEvent::CallStarted { tool_call_id, tool_name } => {
                TurnEvent::CallStarted { tool_call_id, tool_name }
            }
            TurnEvent::CallStored { tool_call_id, tool_name, input } => {
                TurnEvent::CallStored { tool_call_id, tool_name, input }
            }
            TurnEvent::CallEnded { tool_call_id, result: shown } => {
                TurnEvent::CallEnded { tool_call_id, result: shown }
            }
            TurnEvent::ResultCatchUp { tool_call_id, result: shown } => {
                TurnEvent::ResultCatchUp { tool_call_id, result: shown }
            }
            TurnEvent::Held(calls) => TurnEvent::Held(calls),
            TurnEvent::Continued(calls) => TurnEvent::Continued(calls),
            TurnEvent::DecidedEarlier(calls) => TurnEvent::DecidedEarlier(calls),
            TurnEvent::StepFinished { reason, usage } => TurnEvent::StepFinished { reason, usage },
            TurnEvent::Finished { reason, spent } => TurnEvent::Finished { reason, spent },
            TurnEvent::Cancelled { spent } => TurnEvent::Cancelled { spent },
            TurnEvent::Failed { error, spent } => TurnEvent::Failed { error, spent },
        }
    }
}

/// The tokens spent, as far as the model's server reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpentTokens {
    /// On this turn.
    pub turn: Usage,
    /// On the message of the turn, earlier turns included; `None` if no report arrived.
    pub message: Option<Usage>,
}

impl SpentTokens {
    /// Adds the tokens of one more step.
    pub fn add(&mut self, step: Usage) {
        self.turn = self.turn.plus(step);
        self.message = Some(self.message.unwrap_or_default().plus(step));
    }
}

/// The status of a held call.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldCallStatus {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The facts of the hold.
    pub hold: Hold,
    /// The decision in force.
    pub decided: Option<DecisionInForce>,
    /// The inputs, if a page has to show them again: an approver edited them, or the call is still pending.
    /// The page may have recorded a decision for a pending call by itself.
    pub input_to_show: Option<ShownInput>,
    /// The label of the call: its state, and `approved` for the states after an approval.
    pub label: StateKind,
    /// The progress of the call.
    pub progress: HoldProgress,
}

/// The progress of a held call.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldProgress {
    /// The call waits for a decision.
    Pending,
    /// The call is approved and has not ended.
    InProgress,
    /// The call has ended.
    Ended(RenderedResult),
}

impl HeldCallStatus {
    /// Returns the statuses of those calls whose status differs from the emitted one, if any do.
    pub fn changed(calls: &[ToolCall], emitted: &[Self]) -> Option<Vec<Self>> {
        let same = |now: &Self| emitted.iter().any(|before| before.has_status_of(now));
        let changed: Vec<Self> = calls.iter().map(Self::of).filter(|now| !same(now)).collect();
        (!changed.is_empty()).then_some(changed)
    }

    fn has_status_of(&self, other: &Self) -> bool {
        let status = |it: &Self| (it.tool_call_id, it.label);
        status(self) == status(other)
            && self.input_to_show == other.input_to_show
            && self.progress == other.progress
    }

    /// Returns the status of this held call.
    pub fn of(call: &ToolCall) -> Self {
        let progress = match (RenderedResult::of(call), &call.state) {
            (Some(shown), _) => HoldProgress::Ended(shown),
            (None, State::Pending) => HoldProgress::Pending,
            (None, _) => HoldProgress::InProgress,
        };
        Self {
            tool_call_id: call.id,
            hold: Hold::of(call),
            decided: DecisionInForce::of(call),
            input_to_show: match call.state {
                State::Pending => Some(call.shown_proposal()),
                _ => call.shown_edit(),
            },
            label: call.state.label(),
            progress,
        }
    }
}

/// The result that a page shows for an ended call.
#[derive(Debug, Clone, PartialEq)]
pub enum RenderedResult {
    /// The output of the tool.
    Output(Value),
    /// The reason why there is no output.
    Error(String),
    /// The reason why a call without approval did not run.
    Refused(Refusal, String),
}

vocabulary! {
    /// The cause that kept a held call from running.
    pub enum Refusal {
        /// A decider rejected the call.
        Rejected = "rejected",
        /// No decision arrived in time.
        Expired = "expired",
        /// The call was withdrawn.
        Cancelled = "cancelled",
    }

    /// The reason why a model call, or a turn, ended.
    pub enum FinishReason {
        /// The answer was complete.
        Stop = "stop",
        /// The answer reached the length limit.
        Length = "length",
        /// The provider filtered the answer.
        ContentFilter = "content-filter",
        /// The model called tools.
        ToolCalls = "tool-calls",
        /// The model call or the turn failed.
        Error = "error",
        /// Any other reason.
        Other = "other",
    }
}

impl RenderedResult {
    /// Returns the result that a page shows for this call, if the call has ended.
    pub fn of(call: &ToolCall) -> Option<Self> {
        let (refusal, end) = match &call.state {
            State::Rejected(end) if call.held => (Refusal::Rejected, end),
            State::Expired(end) => (Refusal::Expired, end),
            State::Cancelled(None, end) if call.held => (Refusal::Cancelled, end),
            state => return Self::of_execution(state),
        };
        Some(Self::Refused(refusal, end.result.clone()))
    }

    /// Returns the result that a page shows for a call whose execution has ended in this state.
    pub fn of_execution(state: &State) -> Option<Self> {
        match state {
            State::Succeeded(_, _, output, _) => Some(Self::Output(output.clone())),
            other => other.end().map(|end| Self::Error(end.result.clone())),
        }
    }
}
