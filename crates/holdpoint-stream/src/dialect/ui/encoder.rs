//! The stream: Server-Sent Events of JSON chunks.
//!
//! The chunks are those of `ai` 5.0, 6.0 and 7.0 (`uiMessageChunkSchema`), with the fields that every release
//! of a generation reads. The first releases reject unknown fields, and all releases reject `null`. So the
//! encoder leaves out absent fields, and fields that a later release of the generation added.

use super::UiVersion;
use super::parts::{Metadata, Readable, Validation};
use crate::hold_parts::{decision, hold, in_order_of_decision};
use crate::written::WrittenParts;
use crate::{Audience, Encoder, failure};
use bytes::{BufMut, BytesMut};
use holdpoint_core::card::hold::DecisionInForce;
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::message::{File, Source};
use holdpoint_core::tool::secrets::ShownInput;
use holdpoint_core::turn::{
    FinishReason, HeldCallStatus, HoldProgress, Refusal, RenderedResult, SpentTokens, TurnEvent,
};
use serde::Serialize;

/// The end of a stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// A comment, which is not an event.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The encoder of the versions.
#[derive(Debug)]
pub(super) struct UiMessage {
    version: &'static UiVersion,
    audience: Audience,
    written: WrittenParts,
    /// The part that is being written.
    open: Option<OpenPart>,
    /// The number of text and reasoning parts so far. Each part has its own id.
    parts: u64,
}

/// A part that can still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

impl UiMessage {
    pub(super) fn new(version: &'static UiVersion, audience: Audience) -> Self {
        Self { version, audience, written: WrittenParts::default(), open: None, parts: 0 }
    }

    fn words(&mut self, part: OpenPart, delta: &str, out: &mut BytesMut) {
        if self.open != Some(part) {
            self.close(out);
            self.parts += 1;
            self.open = Some(part);
            let id = PartId(self.parts);
            chunk(
                out,
                &if part == OpenPart::Text { Chunk::TextStart { id } } else { Chunk::ReasoningStart { id } },
            );
        }
        let id = PartId(self.parts);
        chunk(
            out,
            &match part {
                OpenPart::Text => Chunk::TextDelta { id, delta },
                OpenPart::Reasoning => Chunk::ReasoningDelta { id, delta },
            },
        );
    }

    /// Ends the part that is being written.
    fn close(&mut self, out: &mut BytesMut) {
        let id = PartId(self.parts);
        match self.open.take() {
            Some(OpenPart::Text) => chunk(out, &Chunk::TextEnd { id }),
            Some(OpenPart::Reasoning) => chunk(out, &Chunk::ReasoningEnd { id }),
            None => {}
        }
    }

    /// Writes the end of a call, unless the stream has that end.
    fn ended(&mut self, tool_call_id: ToolCallId, shown: &RenderedResult, out: &mut BytesMut) {
        if self.written.has_result(tool_call_id, shown) {
            return;
        }
        self.written.result(tool_call_id, shown);
        let error = |error_text| Chunk::ToolOutputError { tool_call_id, error_text };
        let part = match shown {
            RenderedResult::Output(output) => {
                let output = Readable::Output(output);
                Chunk::ToolOutputAvailable { tool_call_id, output }
            }
            RenderedResult::Error(text) => error(text),
            RenderedResult::Refused(_, text) if !self.version.has_approvals() => error(text),
            RenderedResult::Refused(Refusal::Rejected, _) => Chunk::ToolOutputDenied { tool_call_id },
            // A page that approved the call, and does not read the decision, would show a denial of its own.
            RenderedResult::Refused(_, text)
                if !self.version.has_decisions() && self.audience.approved.contains(&tool_call_id) =>
            {
                error(text)
            }
            RenderedResult::Refused(..) => Chunk::ToolOutputDenied { tool_call_id },
        };
        chunk(out, &part);
    }

    /// Writes the statuses of held calls, either in the step that holds them or after that step. Calls that
    /// were refused come first.
    fn hold_statuses(&mut self, calls: &[HeldCallStatus], is_continued: bool, out: &mut BytesMut) {
        let refused = |call: &&HeldCallStatus| {
            matches!(call.progress, HoldProgress::Ended(RenderedResult::Refused(..)))
        };
        let (first, then): (Vec<_>, Vec<_>) = calls.iter().partition(refused);
        for call in first.into_iter().chain(then) {
            let HeldCallStatus { tool_call_id, hold, input_to_show: shown_anew, .. } = call;
            let tool_name = &hold.tool_name;
            match &call.progress {
                HoldProgress::Ended(shown) if self.written.has_result(*tool_call_id, shown) => {}
                HoldProgress::Ended(shown) => {
                    if let Some(input) = shown_anew {
                        inputs(*tool_call_id, tool_name, input, out);
                    }
                    self.respond(call, out);
                    self.ended(*tool_call_id, shown, out);
                }
                HoldProgress::Pending => {
                    // A page may have recorded an output of its own for the call. The inputs remove that
                    // output. Otherwise the page takes the step for complete and posts endlessly.
                    if let Some(input) = shown_anew.as_ref().filter(|_| is_continued) {
                        inputs(*tool_call_id, tool_name, input, out);
                    }
                    if self.version.has_approvals() {
                        self.ask(*tool_call_id, out);
                    }
                }
                HoldProgress::InProgress => self.respond(call, out),
            }
        }
        if !self.version.has_approvals() {
            for call in calls {
                let (tool_call_id, validated) = (call.tool_call_id, call.label.label().word());
                let data = Validation { tool_call_id, validated };
                chunk(out, &Chunk::DataToolValidation { id: tool_call_id, data });
            }
        }
        self.decisions(calls, out);
    }

    /// Writes the cards of calls.
    fn cards<'a>(&mut self, calls: impl Iterator<Item = &'a HeldCallStatus>, out: &mut BytesMut) {
        for call in calls {
            if self.written.hold(call.tool_call_id) {
                event(out, &hold(call.tool_call_id, &call.hold, self.audience.cards.as_ref()));
            }
        }
    }

    /// Writes the decisions in force about calls.
    fn decisions(&mut self, calls: &[HeldCallStatus], out: &mut BytesMut) {
        for call in in_order_of_decision(calls) {
            if self.written.decision(call.tool_call_id)
                && let Some(decided) = &call.decided
            {
                event(out, &decision(call.tool_call_id, decided, self.is_late(call, decided)));
            }
        }
    }

    fn is_late(&self, call: &HeldCallStatus, decided: &DecisionInForce) -> bool {
        self.audience.is_late(&call.hold, call.tool_call_id, &decided.decision)
    }

    /// Writes the decision in force as the answer to the approval request, where pages read it.
    fn respond(&self, call: &HeldCallStatus, out: &mut BytesMut) {
        let Some(decided) = call.decided.as_ref().filter(|_| self.version.has_decisions()) else { return };
        if self.written.has_decision(call.tool_call_id) {
            return;
        }
        if self.is_late(call, decided) {
            // A new request removes the answer of the page, and with it the reason.
            self.ask(call.tool_call_id, out);
        }
        let (approved, reason) = match &call.progress {
            HoldProgress::Ended(RenderedResult::Refused(Refusal::Rejected, _)) => {
                (false, decided.decision.reason.as_deref())
            }
            HoldProgress::Ended(RenderedResult::Refused(refusal, _)) => (false, Some(refusal.word())),
            _ => (true, None),
        };
        chunk(out, &Chunk::ToolApprovalResponse { approval_id: call.tool_call_id, approved, reason });
    }

    fn ask(&self, tool_call_id: ToolCallId, out: &mut BytesMut) {
        chunk(out, &Chunk::ToolApprovalRequest { approval_id: tool_call_id, tool_call_id });
    }

    fn finish(&mut self, reason: FinishReason, spent: &SpentTokens, out: &mut BytesMut) {
        self.close(out);
        let finish_reason = self.version.has_finish_reason.then(|| reason.word());
        chunk(out, &Chunk::Finish { finish_reason, message_metadata: metadata(spent) });
    }
}

impl Encoder for UiMessage {
    fn begin(&mut self, out: &mut BytesMut) {
        chunk(out, &Chunk::Start { message_id: self.audience.message_id });
    }

    fn event(&mut self, event: &TurnEvent<'_>, out: &mut BytesMut) {
        match event {
            TurnEvent::Text(text) => return self.words(OpenPart::Text, text, out),
            TurnEvent::Reasoning(text) => return self.words(OpenPart::Reasoning, text, out),
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
                self.cards(calls.iter(), out);
                // A page also shows the request for a call that was decided meanwhile.
                let is_pending = |call: &HeldCallStatus| matches!(call.progress, HoldProgress::Pending);
                let decided = calls.iter().filter(|call| !is_pending(call));
                if self.version.has_approvals() {
                    decided.for_each(|call| self.ask(call.tool_call_id, out));
                }
                self.hold_statuses(calls, false, out);
            }
            TurnEvent::Continued(calls) => {
                let pending = calls.iter().filter(|call| matches!(call.progress, HoldProgress::Pending));
                self.cards(pending, out);
                self.hold_statuses(calls, true, out);
            }
            TurnEvent::DecidedEarlier(calls) => self.decisions(calls, out),
            TurnEvent::StepFinished { .. } => chunk(out, &Chunk::FinishStep),
            TurnEvent::Finished { reason, spent } => self.finish(*reason, spent, out),
            // A cancel is not an error. The page that cancelled the turn would show one.
            TurnEvent::Cancelled { spent } => self.finish(FinishReason::Other, spent, out),
            TurnEvent::Failed { error, spent } => {
                if let Some(message_metadata) = metadata(spent) {
                    chunk(out, &Chunk::MessageMetadata { message_metadata });
                }
                chunk(out, &Chunk::Error { error_text: &failure(error, &self.audience.request_id) });
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

fn inputs(tool_call_id: ToolCallId, tool_name: &str, input: &ShownInput, out: &mut BytesMut) {
    let input = Readable::Input(input);
    chunk(out, &Chunk::ToolInputAvailable { tool_call_id, tool_name, input });
}

fn metadata(spent: &SpentTokens) -> Option<Metadata> {
    spent.message.map(Metadata::of)
}

fn chunk(out: &mut BytesMut, chunk: &Chunk<'_>) {
    event(out, chunk);
}

fn event<T: Serialize>(out: &mut BytesMut, event: &T) {
    out.put_slice(b"data: ");
    // Serialising values with text keys to memory cannot fail.
    let _infallible = serde_json::to_writer((&mut *out).writer(), event);
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
    ToolApprovalResponse {
        approval_id: ToolCallId,
        approved: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
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
