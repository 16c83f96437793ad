//! One model call, folded into what is stored of it while it is told live.

use super::heartbeat::{Halt, Heartbeat};
use crate::domain::clock::Clock;
use crate::domain::id::ToolCallId;
use crate::domain::message::{Part, Usage};
use crate::domain::run::{TurnError, TurnErrorCode};
use crate::domain::turn::{FinishReason, TurnEvent};
use crate::llm::{LanguageModel, ModelError, ModelEvent, ModelRequest};
use futures::StreamExt;
use serde_json::Value;
use std::time::Duration;

/// More calls than this in one step are no mistake any more but a broken server.
const CALLS_MAX: usize = 256;
/// Nor are more words and thoughts than this, in bytes.
const WORDS_BYTES_MAX: usize = 4 << 20;

/// What a model said in one step.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) parts: Vec<Part>,
    pub(super) calls: Vec<AskedCall>,
    pub(super) end: Option<StepEnd>,
    /// Bytes of words and thoughts so far.
    words_bytes: usize,
}

/// How a step ended.
#[derive(Debug)]
pub(super) struct StepEnd {
    pub(super) reason: FinishReason,
    pub(super) usage: Option<Usage>,
    pub(super) provider_state: Option<Value>,
}

/// A call as the model asked for it.
#[derive(Debug)]
pub(super) struct AskedCall {
    pub(super) id: ToolCallId,
    pub(super) provider_call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Whether it was written to its end.
    pub(super) whole: bool,
}

/// Why a turn goes no further.
#[derive(Debug)]
pub(super) enum Broke {
    /// Something failed.
    Failed(TurnError),
    /// It has to end.
    Halted(Halt),
}

impl From<TurnError> for Broke {
    fn from(error: TurnError) -> Self {
        Self::Failed(error)
    }
}

/// How a model is asked.
pub(super) struct Asking<'a> {
    pub(super) model: &'a dyn LanguageModel,
    /// How long it may be silent.
    pub(super) idle_timeout: Duration,
    /// Longest arguments of one call.
    pub(super) args_bytes: usize,
    pub(super) clock: &'a dyn Clock,
    pub(super) heartbeat: &'a Heartbeat,
}

/// Asks the model and tells live what it says. What it said comes back even where it broke off.
pub(super) async fn ask(
    with: &Asking<'_>,
    request: ModelRequest,
    say: &(dyn Fn(TurnEvent) + Sync),
) -> (Said, Result<(), Broke>) {
    let mut said = Said::default();
    let mut stream = with.model.stream(request);
    let halt = with.heartbeat.halt();
    tokio::pin!(halt);
    let result = loop {
        let next = tokio::select! {
            next = tokio::time::timeout(with.idle_timeout, stream.next()) => next,
            halt = &mut halt => break Err(Broke::Halted(halt)),
        };
        match next {
            Err(_elapsed) => break Err(silent().into()),
            Ok(None) if said.end.is_some() => break Ok(()),
            Ok(None) => break Err(broken_off(&ModelError::Malformed("no end".to_owned())).into()),
            Ok(Some(Err(error))) => break Err(broken_off(&error).into()),
            Ok(Some(Ok(event))) => {
                if let Err(error) = said.take(event, with.args_bytes, with.clock, say) {
                    break Err(error.into());
                }
            }
        }
    };
    (said, result)
}

impl Said {
    fn take(
        &mut self,
        event: ModelEvent,
        args_bytes: usize,
        clock: &dyn Clock,
        say: &(dyn Fn(TurnEvent) + Sync),
    ) -> Result<(), TurnError> {
        match event {
            ModelEvent::Text(delta) => {
                self.count(&delta)?;
                if let Some(Part::Text { text }) = self.parts.last_mut() {
                    text.push_str(&delta);
                } else {
                    self.parts.push(Part::Text { text: delta.clone() });
                }
                say(TurnEvent::Text(delta));
            }
            ModelEvent::Reasoning(delta) => {
                self.count(&delta)?;
                if let Some(Part::Reasoning { text }) = self.parts.last_mut() {
                    text.push_str(&delta);
                } else {
                    self.parts.push(Part::Reasoning { text: delta.clone() });
                }
                say(TurnEvent::Reasoning(delta));
            }
            ModelEvent::CallStarted { index, provider_call_id, tool_name } => {
                if index != self.calls.len() || index >= CALLS_MAX {
                    let why = format!("call {index} after {} calls", self.calls.len());
                    return Err(broken_off(&ModelError::Malformed(why)));
                }
                let id = ToolCallId::new(clock.uuid());
                self.parts.push(Part::ToolCall { tool_call_id: id });
                self.calls.push(AskedCall {
                    id,
                    provider_call_id,
                    name: tool_name.clone(),
                    arguments: String::new(),
                    whole: false,
                });
                say(TurnEvent::CallStarted { tool_call_id: id, tool_name });
            }
            ModelEvent::CallArguments { index, mut delta } => {
                let call = self.call(index)?;
                // One byte over the limit is enough for the gate to refuse it.
                let room = args_bytes.saturating_add(1).saturating_sub(call.arguments.len());
                delta.truncate(delta.ceil_char_boundary(room));
                if !delta.is_empty() {
                    call.arguments.push_str(&delta);
                    let tool_call_id = call.id;
                    say(TurnEvent::CallArguments { tool_call_id, delta });
                }
            }
            ModelEvent::CallFinished { index } => self.call(index)?.whole = true,
            ModelEvent::Finished { reason, usage, provider_state } => {
                self.end = Some(StepEnd { reason, usage, provider_state });
            }
        }
        Ok(())
    }

    fn count(&mut self, delta: &str) -> Result<(), TurnError> {
        self.words_bytes = self.words_bytes.saturating_add(delta.len());
        if self.words_bytes > WORDS_BYTES_MAX {
            return Err(broken_off(&ModelError::Malformed(format!("more than {WORDS_BYTES_MAX} bytes"))));
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<&mut AskedCall, TurnError> {
        self.calls.get_mut(index).ok_or_else(|| {
            broken_off(&ModelError::Malformed(format!("arguments for an unknown call {index}")))
        })
    }
}

fn silent() -> TurnError {
    tracing::warn!("the model was silent for too long");
    TurnError {
        code: TurnErrorCode::UpstreamTimeout,
        message: "The model was silent for too long.".to_owned(),
    }
}

/// The failure as clients read it: what the provider said stays in the log.
fn broken_off(error: &ModelError) -> TurnError {
    tracing::warn!(%error, "a model call failed");
    match error {
        ModelError::Upstream(_) => TurnError {
            code: TurnErrorCode::UpstreamError,
            message: "The model could not be reached, or refused.".to_owned(),
        },
        ModelError::Malformed(_) => TurnError {
            code: TurnErrorCode::UpstreamMalformed,
            message: "The model's answer broke off or could not be read.".to_owned(),
        },
    }
}
