//! The dialects `ui-v5` and `ui-v6`: the UI message stream of AI SDK 5 to 7, Server-Sent Events of JSON
//! chunks.
//!
//! The chunks are those of `ai` 5.0, 6.0 and 7.0 (`uiMessageChunkSchema`), with the fields that every release
//! of a generation reads. The first releases reject unknown fields, and all releases reject `null`. So the
//! encoder leaves out absent fields, and fields that a later release of the generation added.

use super::ui_parts::{Metadata, Readable, Validation};
use super::{Audience, Encoder, failure, words};
use crate::config::UiDialect;
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::input::Input;
use crate::domain::message::{File, Source};
use crate::domain::turn::{
    FinishReason, HeldCallStatus, HoldProgress, Refusal, RenderedResult, Spent, TurnEvent,
};
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use std::collections::HashSet;

/// The end of a stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// A comment, which is not an event.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The encoder of both dialects.
#[derive(Debug)]
pub(super) struct UiMessage {
    dialect: UiDialect,
    message_id: MessageId,
    request_id: String,
    approved: HashSet<ToolCallId>,
    /// The part that is being written.
    open: Option<Open>,
    /// The number of text and reasoning parts so far. Each part has its own id.
    parts: u64,
}

/// A part that can still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Reasoning,
}

impl UiMessage {
    pub(super) fn new(dialect: UiDialect, audience: Audience) -> Self {
        let Audience { message_id, request_id, approved } = audience;
        Self { dialect, message_id, request_id, approved, open: None, parts: 0 }
    }

    fn words(&mut self, part: Open, delta: &str, out: &mut BytesMut) {
        if self.open != Some(part) {
            self.close(out);
            self.parts += 1;
            self.open = Some(part);
            let id = PartId(self.parts);
            chunk(
                out,
                &if part == Open::Text { Chunk::TextStart { id } } else { Chunk::ReasoningStart { id } },
            );
        }
        let id = PartId(self.parts);
        chunk(
            out,
            &match part {
                Open::Text => Chunk::TextDelta { id, delta },
                Open::Reasoning => Chunk::ReasoningDelta { id, delta },
            },
        );
    }

    /// Ends the part that is being written.
    fn close(&mut self, out: &mut BytesMut) {
        let id = PartId(self.parts);
        match self.open.take() {
            Some(Open::Text) => chunk(out, &Chunk::TextEnd { id }),
            Some(Open::Reasoning) => chunk(out, &Chunk::ReasoningEnd { id }),
            None => {}
        }
    }

    fn ended(&self, tool_call_id: ToolCallId, shown: &RenderedResult, out: &mut BytesMut) {
        let error = |error_text| Chunk::ToolOutputError { tool_call_id, error_text };
        let told = match shown {
            RenderedResult::Output(output) => {
                let output = Readable::Output(output);
                Chunk::ToolOutputAvailable { tool_call_id, output }
            }
            RenderedResult::Error(text) => error(text),
            // AI SDK 5 has no state for denied calls.
            RenderedResult::Refused(_, text) if self.dialect == UiDialect::V5 => error(text),
            RenderedResult::Refused(Refusal::Rejected, _) => Chunk::ToolOutputDenied { tool_call_id },
            // A page that approved the call would show a denial of its own.
            RenderedResult::Refused(_, text) if self.approved.contains(&tool_call_id) => error(text),
            RenderedResult::Refused(..) => Chunk::ToolOutputDenied { tool_call_id },
        };
        chunk(out, &told);
    }

    /// Writes the statuses of held calls, either in the step that holds them or after that step. Calls that
    /// were refused come first.
    fn hold_statuses(&self, calls: &[HeldCallStatus], is_continued: bool, out: &mut BytesMut) {
        let refused = |call: &&HeldCallStatus| {
            matches!(call.progress, HoldProgress::Ended(RenderedResult::Refused(..)))
        };
        let (first, then): (Vec<_>, Vec<_>) = calls.iter().partition(refused);
        for call in first.into_iter().chain(then) {
            let HeldCallStatus { tool_call_id, tool_name, input_to_show: shown_anew, .. } = call;
            match &call.progress {
                HoldProgress::Ended(shown) => {
                    if let Some(input) = shown_anew {
                        inputs(*tool_call_id, tool_name, input, out);
                    }
                    self.ended(*tool_call_id, shown, out);
                }
                HoldProgress::Pending => {
                    // A page may have recorded an output of its own for the call. The inputs remove that
                    // output. Otherwise the page takes the step for complete and posts endlessly.
                    if let Some(input) = shown_anew.as_ref().filter(|_| is_continued) {
                        inputs(*tool_call_id, tool_name, input, out);
                    }
                    if self.dialect == UiDialect::V6 {
                        self.ask(*tool_call_id, out);
                    }
                }
                HoldProgress::UnderWay => {}
            }
        }
        if self.dialect == UiDialect::V5 {
            for call in calls {
                let (tool_call_id, validated) = (call.tool_call_id, words::label(call.label));
                let data = Validation { tool_call_id, validated };
                chunk(out, &Chunk::DataToolValidation { id: tool_call_id, data });
            }
        }
    }

    fn ask(&self, tool_call_id: ToolCallId, out: &mut BytesMut) {
        chunk(out, &Chunk::ToolApprovalRequest { approval_id: tool_call_id, tool_call_id });
    }

    fn finish(&mut self, reason: FinishReason, spent: &Spent, out: &mut BytesMut) {
        self.close(out);
        let finish_reason = (self.dialect == UiDialect::V6).then(|| words::finish_reason(reason));
        chunk(out, &Chunk::Finish { finish_reason, message_metadata: metadata(spent) });
    }
}

impl Encoder for UiMessage {
    fn begin(&mut self, out: &mut BytesMut) {
        chunk(out, &Chunk::Start { message_id: self.message_id });
    }

    fn event(&mut self, event: &TurnEvent<'_>, out: &mut BytesMut) {
        match event {
            TurnEvent::Text(text) => return self.words(Open::Text, text, out),
            TurnEvent::Reasoning(text) => return self.words(Open::Reasoning, text, out),
            // A model may interleave the deltas of a call with its text. The text remains one part.
            TurnEvent::CallArguments { .. } => {}
            _ => self.close(out),
        }
        match event {
            TurnEvent::Text(_) | TurnEvent::Reasoning(_) | TurnEvent::PartEnded => {}
            TurnEvent::StepStarted => chunk(out, &Chunk::StartStep),
            TurnEvent::Source(Source { url, title }) => {
                chunk(out, &Chunk::SourceUrl { source_id: url, url, title: title.as_deref() });
            }
            TurnEvent::File(File { url, media_type }) => chunk(out, &Chunk::File { url, media_type }),
            TurnEvent::CallStarted { tool_call_id, tool_name } => {
                chunk(out, &Chunk::ToolInputStart { tool_call_id: *tool_call_id, tool_name });
            }
            TurnEvent::CallArguments { tool_call_id, delta } => {
                chunk(out, &Chunk::ToolInputDelta { tool_call_id: *tool_call_id, input_text_delta: delta });
            }
            TurnEvent::CallStored { tool_call_id, tool_name, input } => {
                inputs(*tool_call_id, tool_name, input, out);
            }
            TurnEvent::CallEnded { tool_call_id, result: shown }
            | TurnEvent::ResultCatchUp { tool_call_id, result: shown } => {
                self.ended(*tool_call_id, shown, out)
            }
            TurnEvent::Held(calls) => {
                // A page also shows the request for a call that was decided meanwhile.
                let decided = calls.iter().filter(|call| !matches!(call.progress, HoldProgress::Pending));
                if self.dialect == UiDialect::V6 {
                    decided.for_each(|call| self.ask(call.tool_call_id, out));
                }
                self.hold_statuses(calls, false, out);
            }
            TurnEvent::Continued(calls) => self.hold_statuses(calls, true, out),
            TurnEvent::StepFinished { .. } => chunk(out, &Chunk::FinishStep),
            TurnEvent::Finished { reason, spent } => self.finish(*reason, spent, out),
            // A cancel is not an error. The page that cancelled the turn would show one.
            TurnEvent::Cancelled { spent } => self.finish(FinishReason::Other, spent, out),
            TurnEvent::Failed { error, spent } => {
                if let Some(message_metadata) = metadata(spent) {
                    chunk(out, &Chunk::MessageMetadata { message_metadata });
                }
                chunk(out, &Chunk::Error { error_text: &failure(error, &self.request_id) });
            }
        }
    }

    fn keep_alive(&self, out: &mut BytesMut) {
        out.put_slice(KEEP_ALIVE);
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.close(out);
        out.put_slice(DONE);
    }
}

fn inputs(tool_call_id: ToolCallId, tool_name: &str, input: &Input, out: &mut BytesMut) {
    let input = Readable::Input(input);
    chunk(out, &Chunk::ToolInputAvailable { tool_call_id, tool_name, input });
}

fn metadata(spent: &Spent) -> Option<Metadata> {
    spent.message.map(Metadata::of)
}

fn chunk(out: &mut BytesMut, chunk: &Chunk<'_>) {
    out.put_slice(b"data: ");
    // Serialising values with text keys to memory cannot fail.
    let _infallible = serde_json::to_writer((&mut *out).writer(), chunk);
    out.put_slice(b"\n\n");
}

/// The chunks that the encoder writes, by their names on the wire.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Chunk<'a> {
    Start {
        message_id: MessageId,
    },
    StartStep,
    TextStart {
        id: PartId,
    },
    TextDelta {
        id: PartId,
        delta: &'a str,
    },
    TextEnd {
        id: PartId,
    },
    ReasoningStart {
        id: PartId,
    },
    ReasoningDelta {
        id: PartId,
        delta: &'a str,
    },
    ReasoningEnd {
        id: PartId,
    },
    SourceUrl {
        source_id: &'a str,
        url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    File {
        url: &'a str,
        media_type: &'a str,
    },
    ToolInputStart {
        tool_call_id: ToolCallId,
        tool_name: &'a str,
    },
    ToolInputDelta {
        tool_call_id: ToolCallId,
        input_text_delta: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: ToolCallId,
        tool_name: &'a str,
        input: Readable<'a>,
    },
    ToolApprovalRequest {
        approval_id: ToolCallId,
        tool_call_id: ToolCallId,
    },
    ToolOutputAvailable {
        tool_call_id: ToolCallId,
        output: Readable<'a>,
    },
    ToolOutputError {
        tool_call_id: ToolCallId,
        error_text: &'a str,
    },
    ToolOutputDenied {
        tool_call_id: ToolCallId,
    },
    DataToolValidation {
        id: ToolCallId,
        data: Validation,
    },
    FinishStep,
    MessageMetadata {
        message_metadata: Metadata,
    },
    Error {
        error_text: &'a str,
    },
    Finish {
        #[serde(skip_serializing_if = "Option::is_none")]
        finish_reason: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_metadata: Option<Metadata>,
    },
}

/// The id of a text or reasoning part, unique in its stream.
#[derive(Clone, Copy)]
struct PartId(u64);

impl Serialize for PartId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("p{}", self.0))
    }
}
