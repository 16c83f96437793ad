//! What a turn says, in the order it says it. Encoders turn this into bytes.

use super::call::{Input, State, ToolCall};
use super::id::ToolCallId;
use super::message::{File, Source, Step, StepStatus, Usage};
use super::run::TurnError;
use serde_json::{Value, json};
use std::borrow::Cow;

/// One thing a turn says. Words that are read from where they are kept are borrowed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnEvent<'a> {
    /// A model call begins.
    StepStarted,
    /// Words, live.
    Text(Cow<'a, str>),
    /// Thoughts, live.
    Reasoning(Cow<'a, str>),
    /// What follows is no more of the same words or thoughts.
    PartEnded,
    /// A source, behind the words that it belongs to.
    Source(Source),
    /// A file that the model made.
    File(File),
    /// A call begins to be written, live.
    CallStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// Its tool.
        tool_name: String,
    },
    /// More of a call's inputs, live.
    CallArguments {
        /// The call.
        tool_call_id: ToolCallId,
        /// The next piece of JSON text.
        delta: Cow<'a, str>,
    },
    /// A call is stored.
    CallStored {
        /// The call.
        tool_call_id: ToolCallId,
        /// Its tool.
        tool_name: String,
        /// Its inputs, as stored.
        input: Input,
    },
    /// The end of a call that no person was asked about is stored.
    CallEnded {
        /// The call.
        tool_call_id: ToolCallId,
        /// What a page shows.
        result: RenderedResult,
    },
    /// How a call ended that no person was asked about, beside those behind which the message goes on: a page that had
    /// left by then has not seen it.
    ResultCatchUp {
        /// The call.
        tool_call_id: ToolCallId,
        /// What a page shows.
        result: RenderedResult,
    },
    /// Where the calls stand that this step holds, stored.
    Held(Vec<HeldCallStatus>),
    /// Where held calls stand, stored, behind which the message goes on; or those of them that stand otherwise than their
    /// step has told.
    Continued(Vec<HeldCallStatus>),
    /// A model call ended.
    StepFinished {
        /// Why.
        reason: FinishReason,
        /// What it cost, where known.
        usage: Option<Usage>,
    },
    /// The turn ended well: answered, or held.
    Finished {
        /// Why.
        reason: FinishReason,
        /// What it cost.
        spent: Spent,
    },
    /// Somebody stopped the turn.
    Cancelled {
        /// What it cost until then.
        spent: Spent,
    },
    /// The turn broke.
    Failed {
        /// Why.
        error: TurnError,
        /// What it cost until then.
        spent: Spent,
    },
}

impl TurnEvent<'static> {
    /// How the calls stand behind which a message with these steps goes on, if it goes on behind held ones.
    pub(crate) fn continuation(steps: &[Step]) -> Vec<Self> {
        let Some(last) = steps.iter().rfind(|step| step.status == StepStatus::Complete) else {
            return Vec::new();
        };
        let mut told = Self::catch_up(last);
        if steps.last().is_some_and(|step| step.n > last.n)
            && let Some(Self::Continued(held)) = told.last_mut()
        {
            // It was told before. A page that is shown inputs behind another step takes them for another call's.
            held.iter_mut().for_each(|call| call.input_to_show = None);
        }
        told
    }

    /// How the calls of a step stand, if it holds any or children did some; those of its own too, whose end a page may
    /// have missed.
    pub(crate) fn catch_up(step: &Step) -> Vec<Self> {
        let held: Vec<HeldCallStatus> =
            step.calls.iter().filter(|call| call.held).map(HeldCallStatus::of).collect();
        let others = step.calls.iter().filter(|call| !call.held);
        let ended = others.filter_map(|call| Some((call, RenderedResult::of(call)?)));
        let told = ended.filter_map(|(call, shown)| match call.child_run_id {
            // No turn has told what a child did.
            Some(_) => Some(Self::CallEnded { tool_call_id: call.id, result: shown }),
            None if held.is_empty() => None,
            None => Some(Self::ResultCatchUp { tool_call_id: call.id, result: shown }),
        });
        let told: Vec<Self> = told.collect();
        told.into_iter().chain((!held.is_empty()).then_some(Self::Continued(held))).collect()
    }
}

impl TurnEvent<'_> {
    /// The same, with these words in place of its own, if it is one of words.
    pub(crate) fn with_text<'a>(&self, words: &'a str) -> TurnEvent<'a> {
        match self {
            Self::Reasoning(_) => TurnEvent::Reasoning(words.into()),
            Self::CallArguments { tool_call_id, .. } => {
                TurnEvent::CallArguments { tool_call_id: *tool_call_id, delta: words.into() }
            }
            _ => TurnEvent::Text(words.into()),
        }
    }

    /// The same, with words of its own.
    pub(crate) fn into_owned(self) -> TurnEvent<'static> {
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
            TurnEvent::StepFinished { reason, usage } => TurnEvent::StepFinished { reason, usage },
            TurnEvent::Finished { reason, spent } => TurnEvent::Finished { reason, spent },
            TurnEvent::Cancelled { spent } => TurnEvent::Cancelled { spent },
            TurnEvent::Failed { error, spent } => TurnEvent::Failed { error, spent },
        }
    }
}

/// What was spent, where the model's server told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// On this turn.
    pub(crate) turn: Usage,
    /// On the message that it writes, with the turns before it; `None` where nobody told.
    pub(crate) message: Option<Usage>,
}

impl Spent {
    /// With what one more step cost.
    pub(crate) fn add(&mut self, step: Usage) {
        self.turn = self.turn.plus(step);
        self.message = Some(self.message.unwrap_or_default().plus(step));
    }
}

/// How a held call stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldCallStatus {
    /// The call.
    pub(crate) tool_call_id: ToolCallId,
    /// Its tool.
    pub(crate) tool_name: String,
    /// The inputs, where a page has to be shown them anew: a person put them in place of the model's; or one is still
    /// asked, whatever the page has put behind the call by itself.
    pub(crate) input_to_show: Option<Input>,
    /// The word for it, of annotations and data parts.
    pub(crate) label: &'static str,
    /// How far it is.
    pub(crate) progress: HoldProgress,
}

/// How far a held call is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HoldProgress {
    /// A person is asked.
    Pending,
    /// A person said yes, and it has not ended.
    UnderWay,
    /// It has ended.
    Ended(RenderedResult),
}

impl HeldCallStatus {
    /// How those of these held calls stand that stand otherwise than was told, if any do.
    pub(crate) fn changed(calls: &[ToolCall], told: &[Self]) -> Option<Vec<Self>> {
        let changed: Vec<Self> = calls.iter().map(Self::of).filter(|now| !told.contains(now)).collect();
        (!changed.is_empty()).then_some(changed)
    }

    /// How this held call stands.
    pub(crate) fn of(call: &ToolCall) -> Self {
        let progress = match (RenderedResult::of(call), &call.state) {
            (Some(shown), _) => HoldProgress::Ended(shown),
            (None, State::Pending) => HoldProgress::Pending,
            (None, _) => HoldProgress::UnderWay,
        };
        Self {
            tool_call_id: call.id,
            tool_name: call.name.clone(),
            input_to_show: match call.state {
                State::Pending => Some(call.input.clone()),
                _ => call.edited_input().cloned(),
            },
            label: call.state.validation_label(),
            progress,
        }
    }
}

/// What a page shows of an ended call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RenderedResult {
    /// The tool's own output.
    Output(Value),
    /// Why there is none.
    Error(String),
    /// Why it did not run, where nobody said yes.
    Refused(Refusal, String),
}

/// Who or what kept a held call from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A person said no.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// It was withdrawn.
    Cancelled,
}

impl RenderedResult {
    /// What a page shows of this call, if it has ended.
    pub(crate) fn of(call: &ToolCall) -> Option<Self> {
        let text = || call.end().map(|end| end.result.clone());
        let refusal = match &call.state {
            State::Succeeded(_, _, output, _) => return Some(Self::Output(output.clone())),
            State::Rejected(_) if call.held => Refusal::Rejected,
            State::Expired(_) => Refusal::Expired,
            State::Cancelled(None, _) if call.held => Refusal::Cancelled,
            _ => return text().map(Self::Error),
        };
        text().map(|text| Self::Refused(refusal, text))
    }

    /// The value in a tool result of AI SDK 4.
    pub(crate) fn into_result(self) -> Value {
        match self {
            Self::Output(output) => output,
            Self::Error(text) | Self::Refused(_, text) => json!({ "error": text }),
        }
    }
}

/// Why a model call, or a turn, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// It ran into the length limit.
    Length,
    /// The provider filtered it.
    ContentFilter,
    /// It asked for tools.
    ToolCalls,
    /// It broke.
    Error,
    /// Something else.
    Other,
}

impl FinishReason {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Stop, Self::Length, Self::ContentFilter, Self::ToolCalls, Self::Error, Self::Other];

    /// The reason's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::ToolCalls => "tool-calls",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}
