//! The stream: lines of `code:json`.
//!
//! The codes and their handling in a client are in `@ai-sdk/ui-utils` 1.2 (`dataStreamParts`,
//! `processChatResponse`). A client parses a chunk only when it ends with a line, so the encoder always
//! writes an event whole.

use crate::hold_parts::{decision, hold, in_order_of_decision};
use crate::written::WrittenParts;
use crate::{Audience, Encoder, failure};
use bytes::{BufMut, BytesMut};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::message::{Source, Usage};
use holdpoint_core::tool::secrets::ShownInput;
use holdpoint_core::turn::{FinishReason, HeldCallStatus, HoldProgress, RenderedResult, TurnEvent};
use serde::Serialize;
use serde_json::{Value, json};

/// The encoder of this dialect.
#[derive(Debug)]
pub(super) struct DataV1 {
    audience: Audience,
    written: WrittenParts,
}

impl DataV1 {
    pub(super) fn new(audience: Audience) -> Self {
        Self { audience, written: WrittenParts::default() }
    }

    /// Writes the end of a call, unless the stream has that end.
    fn ended(&mut self, tool_call_id: ToolCallId, shown: &RenderedResult, out: &mut BytesMut) {
        if !self.written.has_result(tool_call_id, shown) {
            self.written.result(tool_call_id, shown);
            line(out, b'a', &CallResult { tool_call_id, result: result(shown.clone()) });
        }
    }

    /// Writes the cards of calls.
    fn cards<'a>(&mut self, calls: impl Iterator<Item = &'a HeldCallStatus>, out: &mut BytesMut) {
        let new = calls.filter(|call| self.written.hold(call.tool_call_id));
        let cards = self.audience.cards.as_ref();
        data(out, &new.map(|call| hold(call.tool_call_id, &call.hold, cards)).collect::<Vec<_>>());
    }

    /// Writes the decisions in force about calls.
    fn decisions(&mut self, calls: &[HeldCallStatus], out: &mut BytesMut) {
        let new = in_order_of_decision(calls).filter(|call| self.written.decision(call.tool_call_id));
        let audience = &self.audience;
        let parts = new.filter_map(|call| {
            let decided = call.decided.as_ref()?;
            let late = audience.is_late(&call.hold, call.tool_call_id, &decided.decision);
            Some(decision(call.tool_call_id, decided, late))
        });
        data(out, &parts.collect::<Vec<_>>());
    }

    /// Writes the results of the calls that have ended, the labels of all calls, then the decisions. The labels are the
    /// line `8:`, with `pending` for a held call.
    fn validations(&mut self, calls: &[HeldCallStatus], out: &mut BytesMut) {
        for call in calls {
            if let HoldProgress::Ended(shown) = &call.progress {
                self.ended(call.tool_call_id, shown, out);
            }
        }
        let statuses = calls
            .iter()
            .map(|call| Validation { tool_call_id: call.tool_call_id, validated: call.label.label().word() });
        line(out, b'8', &statuses.collect::<Vec<_>>());
        self.decisions(calls, out);
    }
}

impl Encoder for DataV1 {
    fn begin(&mut self, _out: &mut BytesMut) {}

    fn event(&mut self, event: &TurnEvent<'_>, out: &mut BytesMut) {
        match event {
            TurnEvent::StepStarted => line(out, b'f', &StepStarted { message_id: self.audience.message_id }),
            TurnEvent::Text(text) => line(out, b'0', text),
            TurnEvent::Reasoning(text) => line(out, b'g', text),
            // Pages of AI SDK 4 need neither event. They continue whatever the results of other calls are.
            TurnEvent::PartEnded | TurnEvent::ResultCatchUp { .. } => {}
            TurnEvent::Source(source) => line(out, b'h', &SourcePlace::new(source)),
            TurnEvent::File(file) => {
                line(out, b'k', &MadeFile { data: file.base64(), mime_type: &file.media_type })
            }
            TurnEvent::CallStarted { tool_call_id, tool_name } => {
                line(out, b'b', &CallStarted { tool_call_id, tool_name });
            }
            TurnEvent::CallArguments { tool_call_id, delta } => {
                line(out, b'c', &CallArguments { tool_call_id, args_text_delta: delta });
            }
            TurnEvent::CallStored { tool_call_id, tool_name, input } => {
                line(out, b'9', &Call { tool_call_id, tool_name, args: input });
            }
            TurnEvent::CallEnded { tool_call_id, result: shown } => self.ended(*tool_call_id, shown, out),
            TurnEvent::Held(calls) => {
                self.cards(calls.iter(), out);
                self.validations(calls, out);
            }
            TurnEvent::DecidedEarlier(calls) => self.decisions(calls, out),
            TurnEvent::Continued(calls) => {
                let pending = calls.iter().filter(|call| matches!(call.progress, HoldProgress::Pending));
                self.cards(pending, out);
                self.validations(calls, out);
                let finish = Finish::new(FinishReason::ToolCalls, None);
                line(out, b'e', &StepFinished { finish, is_continued: false });
            }
            TurnEvent::StepFinished { reason, usage } => {
                line(out, b'e', &StepFinished { finish: Finish::new(*reason, *usage), is_continued: false });
            }
            TurnEvent::Finished { reason, spent } => line(out, b'd', &Finish::new(*reason, Some(spent.turn))),
            // A cancel is not an error. The page that cancelled the turn would show one.
            TurnEvent::Cancelled { spent } => {
                line(out, b'd', &Finish::new(FinishReason::Other, Some(spent.turn)));
            }
            TurnEvent::Failed { error, .. } => line(out, b'3', &failure(error, &self.audience.request_id)),
        }
    }

    /// Writes an empty line, which clients ignore.
    fn keep_alive(&self, out: &mut BytesMut) {
        out.put_u8(b'\n');
    }

    fn end(&mut self, _out: &mut BytesMut) {}
}

/// Returns the result of a call in the form of AI SDK 4, in streams and in messages.
pub(super) fn result(shown: RenderedResult) -> Value {
    match shown {
        RenderedResult::Output(output) => output,
        RenderedResult::Error(text) | RenderedResult::Refused(_, text) => json!({ "error": text }),
    }
}

/// Writes data parts, which pages get beside their messages.
fn data<T: Serialize>(out: &mut BytesMut, parts: &[T]) {
    if !parts.is_empty() {
        line(out, b'2', parts);
    }
}

fn line<T: Serialize + ?Sized>(out: &mut BytesMut, code: u8, value: &T) {
    out.put_u8(code);
    out.put_u8(b':');
    // Serialising values with text keys to memory cannot fail.
    let _infallible = serde_json::to_writer((&mut *out).writer(), value);
    out.put_u8(b'\n');
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepStarted<Id> {
    message_id: Id,
}

/// A source in the form of AI SDK 4, in streams and in messages.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourcePlace<'a> {
    source_type: &'static str,
    id: &'a str,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
}

impl<'a> SourcePlace<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        let Source { url, title } = source;
        Self { source_type: "url", id: url, url, title: title.as_deref() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MadeFile<'a> {
    data: &'a str,
    mime_type: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallStarted<'a, Id> {
    tool_call_id: Id,
    tool_name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallArguments<'a, Id> {
    tool_call_id: Id,
    args_text_delta: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a, Id> {
    tool_call_id: Id,
    tool_name: &'a str,
    args: &'a ShownInput,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<Id> {
    tool_call_id: Id,
    result: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation<'a, Id> {
    tool_call_id: Id,
    validated: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finish {
    finish_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepFinished {
    #[serde(flatten)]
    finish: Finish,
    is_continued: bool,
}

impl Finish {
    fn new(reason: FinishReason, usage: Option<Usage>) -> Self {
        let usage = usage.map(|usage| Tokens {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
        });
        Self { finish_reason: reason.word(), usage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::call::{RiskLevel, StateKind};
    use holdpoint_core::card::hold::Hold;
    use holdpoint_core::id::MessageId;
    use holdpoint_core::run::{TurnError, TurnErrorCode};
    use holdpoint_core::tool::input::Input;
    use holdpoint_core::tool::secrets::SecretPaths;
    use holdpoint_core::turn::SpentTokens;
    use uuid::Uuid;

    fn check(events: &[TurnEvent<'_>], expected: &str) {
        let mut out = BytesMut::new();
        let mut encoder = DataV1::new(Audience::new(MessageId::new(Uuid::from_u128(2)), "r1"));
        for event in events {
            encoder.event(event, &mut out);
        }
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
    }

    #[test]
    fn a_held_turn_is_written_as_the_client_reads_it() {
        let call = ToolCallId::new(Uuid::from_u128(1));
        let input: Input = json!({"path": "a.txt"}).as_object().unwrap().clone();
        let usage = Usage { input_tokens: 10, output_tokens: 5 };
        let reason = FinishReason::ToolCalls;
        check(
            &[
                TurnEvent::StepStarted,
                TurnEvent::Text("I will\r\n\u{2028}\"delete\" it.".into()),
                TurnEvent::CallStarted { tool_call_id: call, tool_name: "delete_file".to_owned() },
                TurnEvent::CallArguments { tool_call_id: call, delta: "{\"path\":".into() },
                TurnEvent::CallStored {
                    tool_call_id: call,
                    tool_name: "delete_file".to_owned(),
                    input: SecretPaths::default().shown(&input),
                },
                TurnEvent::Held(vec![HeldCallStatus {
                    tool_call_id: call,
                    hold: Hold {
                        tool_name: "delete_file".to_owned(),
                        input: input.clone(),
                        secrets: SecretPaths::default(),
                        schema_hash: "h".to_owned(),
                        risk: RiskLevel::High,
                        reason: None,
                        expires_at: None,
                        preview: None,
                        unreadable: false,
                    },
                    decided: None,
                    input_to_show: None,
                    label: StateKind::Pending,
                    progress: HoldProgress::Pending,
                }]),
                TurnEvent::StepFinished { reason, usage: Some(usage) },
                TurnEvent::Finished { reason, spent: SpentTokens { turn: usage, message: None } },
            ],
            concat!(
                "f:{\"messageId\":\"00000000-0000-0000-0000-000000000002\"}\n",
                "0:\"I will\\r\\n\u{2028}\\\"delete\\\" it.\"\n",
                "b:{\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"toolName\":\"delete_file\"}\n",
                "c:{\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"argsTextDelta\":\"{\\\"path\\\":\"}\n",
                "9:{\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"toolName\":\"delete_file\",",
                "\"args\":{\"path\":\"a.txt\"}}\n",
                "2:[{\"type\":\"data-tool-hold\",\"id\":\"00000000-0000-0000-0000-000000000001\",\"data\":{",
                "\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"toolName\":\"delete_file\",",
                "\"title\":\"delete_file\",\"cardParts\":[\"inputs\"],\"input\":{\"path\":\"a.txt\"},\"risk\":\"high\",",
                "\"inputHash\":\"h\",",
                "\"requestedBy\":\"user:local\",\"canEdit\":false,\"canRemember\":false,\"approvalsNeeded\":1}}]\n",
                "8:[{\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"validated\":\"pending\"}]\n",
                "e:{\"finishReason\":\"tool-calls\",\"usage\":{\"promptTokens\":10,\"completionTokens\":5},",
                "\"isContinued\":false}\n",
                "d:{\"finishReason\":\"tool-calls\",\"usage\":{\"promptTokens\":10,\"completionTokens\":5}}\n",
            ),
        );
    }

    #[test]
    fn a_failure_names_its_code_and_the_request() {
        let error = TurnError { code: TurnErrorCode::UpstreamError, message: "It broke.".to_owned() };
        check(
            &[TurnEvent::Failed { error, spent: SpentTokens::default() }],
            "3:\"upstream_error: It broke. (request r1)\"\n",
        );
    }

    #[test]
    fn a_call_without_output_emits_its_error() {
        let tool_call_id = ToolCallId::new(Uuid::from_u128(1));
        let shown = RenderedResult::Error("no".to_owned());
        check(
            &[TurnEvent::CallEnded { tool_call_id, result: shown }],
            "a:{\"toolCallId\":\"00000000-0000-0000-0000-000000000001\",\"result\":{\"error\":\"no\"}}\n",
        );
    }
}
