//! What rig reads of an answer, as our events.
//!
//! A call's index is its place among the calls of the answer. A call is told finished only when the server has
//! ended its answer, and not if it was cut off there. [`ModelEvent::Finished`] is last, and comes only with a
//! reason from the server.

use super::failure::failure;
use super::pieces::ID_FOLLOWS;
use crate::domain::message::Usage;
use crate::domain::turn::FinishReason;
use crate::llm::{ModelError, ModelEvent};
use futures::stream::StreamExt;
use rig_core::completion;
use rig_core::message::AssistantContent;
use rig_core::operation::Completion;
use rig_core::streaming::{Item, Part, PartKind, StreamEvent, Streamed};
use secrecy::SecretString;

/// An answer while it is read.
pub(super) struct Answer {
    /// None when it has been read.
    reply: Option<Streamed<Completion>>,
    calls: Vec<Call>,
    /// What is left to say then.
    ending: std::vec::IntoIter<ModelEvent>,
    api_key: Option<SecretString>,
}

/// A call while it is read; its index is its place.
struct Call {
    part: Part,
    id: String,
    /// Whether the model wrote arguments. rig makes `{}` of none; a model's own `{}` looks the same.
    written: bool,
    /// Whether they are an object.
    readable: bool,
    ended: bool,
}

impl Answer {
    /// `api_key` is what its errors must not have.
    pub(super) fn new(reply: Streamed<Completion>, api_key: Option<SecretString>) -> Self {
        Self { reply: Some(reply), calls: Vec::new(), ending: Vec::new().into_iter(), api_key }
    }

    /// The next event and the rest of the answer; `None` behind the last.
    pub(super) async fn next(mut self) -> Result<Option<(ModelEvent, Self)>, ModelError> {
        loop {
            let Some(reply) = &mut self.reply else {
                return Ok(self.ending.next().map(|event| (event, self)));
            };
            match reply.next().await {
                Some(Ok(Item::Event(event))) => {
                    if let Some(event) = self.event(event) {
                        return Ok(Some((event, self)));
                    }
                }
                // A server's extension.
                Some(Ok(Item::Unknown(_))) => {}
                Some(Err(error)) => return Err(failure(error, self.api_key.as_ref())),
                None => self.end().await?,
            }
        }
    }

    fn event(&mut self, event: StreamEvent) -> Option<ModelEvent> {
        match event {
            StreamEvent::Start { part, kind: PartKind::ToolCall, name: Some(name) } => {
                let (tool_name, id) = name.as_str().split_once(ID_FOLLOWS).unwrap_or((name.as_str(), ""));
                // An id that an earlier call has names nothing.
                let id = if self.calls.iter().any(|call| call.id == id) { "" } else { id };
                let index = self.calls.len();
                self.calls.push(Call { part, id: id.into(), written: false, readable: true, ended: false });
                Some(ModelEvent::CallStarted {
                    index,
                    provider_call_id: id.to_owned(),
                    tool_name: tool_name.to_owned(),
                })
            }
            StreamEvent::Text { text, .. } => Some(ModelEvent::Text(text)),
            StreamEvent::Reasoning { text, .. } => Some(ModelEvent::Reasoning(text)),
            StreamEvent::Arguments { part, json } => {
                let (index, call) = self.call(part)?;
                call.written |= json != "{}";
                Some(ModelEvent::CallArguments { index, delta: json })
            }
            StreamEvent::End { part, content: AssistantContent::ToolCall(content) } => {
                let (index, call) = self.call(part)?;
                call.ended = true;
                let unreadable = content.function.invalid_arguments?;
                call.readable = false;
                // rig takes `n`, `nu` and `nul` for a `null` to come, holds them back and makes `{}` of them.
                // Put behind that, they make the arguments as unreadable as they were.
                "null"
                    .starts_with(unreadable.trim())
                    .then_some(ModelEvent::CallArguments { index, delta: unreadable })
            }
            StreamEvent::Start { .. } | StreamEvent::End { .. } => None,
        }
    }

    fn call(&mut self, part: Part) -> Option<(usize, &mut Call)> {
        self.calls.iter_mut().enumerate().rfind(|(_, call)| call.part == part)
    }

    /// The server has ended its answer. Calls are told finished only here: whether one is whole depends on how
    /// the answer ended.
    async fn end(&mut self) -> Result<(), ModelError> {
        let Some(reply) = self.reply.take() else { return Ok(()) };
        let response = reply.finish().await.map_err(|error| failure(error, self.api_key.as_ref()))?;
        let calls = std::mem::take(&mut self.calls);
        let reason = match response.finish_reason() {
            Some(completion::FinishReason::Stop) => FinishReason::Stop,
            Some(completion::FinishReason::Length) => FinishReason::Length,
            Some(completion::FinishReason::ContentFilter) => FinishReason::ContentFilter,
            Some(completion::FinishReason::ToolCalls) if calls.is_empty() => {
                return Err(ModelError::Malformed("it ended for calls and made none".to_owned()));
            }
            Some(completion::FinishReason::ToolCalls) => FinishReason::ToolCalls,
            Some(completion::FinishReason::Other(reason)) if reason == "error" => {
                return Err(ModelError::Upstream("it ended its answer with an error".to_owned()));
            }
            Some(_) => FinishReason::Other,
            None => return Err(ModelError::Malformed("it gave no finish reason".to_owned())),
        };
        // In an answer that was cut, so were arguments that are unreadable, or that the last call lacks. In any
        // other the model meant them, and it is for others to say what is wrong with them.
        let cut = matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        let last = calls.len().saturating_sub(1);
        let finished = calls.iter().enumerate().filter(|(index, call)| {
            call.ended && (!cut || call.readable && (call.written || *index != last))
        });
        let mut events: Vec<_> = finished.map(|(index, _)| ModelEvent::CallFinished { index }).collect();

        let (input, output) = (response.usage.input_tokens, response.usage.output_tokens);
        let told = input.is_some() || output.is_some();
        let usage = Usage { input_tokens: input.unwrap_or(0), output_tokens: output.unwrap_or(0) };
        events.push(ModelEvent::Finished { reason, usage: told.then_some(usage), provider_state: None });
        self.ending = events.into_iter();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_server::answered;

    #[rustfmt::skip]
    #[tokio::test]
    async fn calls_are_told_as_the_model_made_them_or_not_at_all() {
        for (events, told) in [
            (r#"0,a,go,{"n": 0,,,1} 1,,go,{} tool_calls {"choices":[],"usage":{"completion_tokens":7}} [DONE]"#, r#"0=go#a 0+{"n": 0+1} 1=go# 1+{} 0. 1. tool-calls/7"#),
            ("0,a,go,{n 1,b,go,nul tool_calls", "0=go#a 0+{n 1=go#b 1+{} 1+nul 0. 1. tool-calls/0"),
            ("0,a,go,{} 1,b,go, length", "0=go#a 0+{} 1=go#b 1+{} 0. length/0"),
            ("0,a,go,{ [DONE]", "0=go#a 0+{ malformed: it broke off before its end"),
        ] {
            assert_eq!(answered(events).await, told);
        }
    }
}
