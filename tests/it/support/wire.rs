//! Answers of models on each wire: complete and well-formed, so that a test breaks only what it is about.

use super::{Entry, conversation};
use serde_json::{Value, json};

/// A protocol of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

/// The reason for the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Stop,
    Calls,
    Length,
    /// The provider filtered the answer.
    Filtered,
}

impl Wire {
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The path of the base URL.
    pub(crate) fn base_path(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses | Self::Anthropic => "/v1",
            Self::Gemini => "/v1beta",
            Self::Ollama => "",
        }
    }

    pub(crate) fn is_sse(self) -> bool {
        self != Self::Ollama
    }

    pub(crate) fn content_type(self) -> &'static str {
        if self.is_sse() { "text/event-stream" } else { "application/x-ndjson" }
    }

    /// Whether arguments are streamed as text deltas; on the other wires they are a part of the event.
    pub(crate) fn writes_arguments(self) -> bool {
        matches!(self, Self::Chat | Self::Responses | Self::Anthropic)
    }

    /// One event with this data, as bytes on the wire.
    pub(crate) fn frame(self, data: &str) -> String {
        let named = matches!(self, Self::Responses | Self::Anthropic);
        let name = data.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
        match name.filter(|_| named) {
            _ if !self.is_sse() => format!("{data}\n"),
            Some(name) => format!("event: {name}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        }
    }

    /// The data of an error event: overloaded, or a permanent failure.
    pub(crate) fn error(self, overloaded: bool, words: &str) -> String {
        let error = match (self, overloaded) {
            (Self::Chat, true) => {
                json!({ "error": { "message": words, "type": "server_error", "code": 503 } })
            }
            (Self::Chat, false) => {
                json!({ "error": { "message": words, "type": "invalid_request_error", "code": 400 } })
            }
            (Self::Responses, true) => {
                json!({ "type": "error", "code": "server_is_overloaded", "message": words })
            }
            (Self::Responses, false) => {
                json!({ "type": "error", "code": "invalid_prompt", "message": words })
            }
            (Self::Anthropic, true) => {
                json!({ "type": "error", "error": { "type": "overloaded_error", "message": words } })
            }
            (Self::Anthropic, false) => {
                json!({ "type": "error", "error": { "type": "invalid_request_error", "message": words } })
            }
            (Self::Gemini, true) => {
                json!({ "error": { "code": 503, "message": words, "status": "UNAVAILABLE" } })
            }
            (Self::Gemini, false) => {
                json!({ "error": { "code": 400, "message": words, "status": "INVALID_ARGUMENT" } })
            }
            (Self::Ollama, _) => json!({ "error": words }),
        };
        error.to_string()
    }

    fn said_in(self, request: &Value) -> Vec<Entry> {
        let path = match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Anthropic => "/messages",
            Self::Gemini => ":streamGenerateContent",
            Self::Ollama => "/api/chat",
        };
        conversation(path, request).unwrap().said
    }

    /// The answers to calls in a request, oldest first.
    pub(crate) fn told(self, request: &Value) -> Vec<String> {
        let answers = self.said_in(request).into_iter().filter_map(|entry| match entry {
            Entry::Answers(answers) => Some(answers),
            Entry::Words { .. } | Entry::Calls { .. } => None,
        });
        answers.flatten().map(|answer| answer.text).collect()
    }

    /// The calls in a request, oldest first: tool and arguments.
    pub(crate) fn calls(self, request: &Value) -> Vec<(String, Value)> {
        let calls = self.said_in(request).into_iter().filter_map(|entry| match entry {
            Entry::Calls { calls, .. } => Some(calls),
            Entry::Words { .. } | Entry::Answers(_) => None,
        });
        calls.flatten().map(|call| (call.tool, call.arguments)).collect()
    }
}

/// An answer as the data of its events. Tests break the answer here.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) wire: Wire,
    pub(crate) events: Vec<String>,
    /// The number of items in the answer so far, including calls.
    places: usize,
    calls: usize,
    /// The items that the last event of a Responses answer repeats.
    items: Vec<String>,
}

impl Said {
    /// Begins an answer.
    pub(crate) fn on(wire: Wire) -> Self {
        let begin = match wire {
            Wire::Chat => {
                json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" } }] })
            }
            Wire::Responses => {
                json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress", "output": [] } })
            }
            Wire::Anthropic => {
                json!({ "type": "message_start", "message": { "id": "msg_1", "role": "assistant", "content": [], "usage": { "input_tokens": 10, "output_tokens": 1 } } })
            }
            Wire::Gemini | Wire::Ollama => Value::Null,
        };
        let events = if begin.is_null() { Vec::new() } else { vec![begin.to_string()] };
        Self { wire, events, places: 0, calls: 0, items: Vec::new() }
    }

    /// A complete answer with this text.
    pub(crate) fn words_on(wire: Wire, words: &str) -> Self {
        Self::on(wire).words(&[words]).end()
    }

    /// A complete answer with one call.
    pub(crate) fn call_on(wire: Wire, id: &str, tool: &str, arguments: &[&str]) -> Self {
        Self::on(wire).call(id, tool, arguments).end()
    }

    /// Appends an event with this data.
    pub(crate) fn event(mut self, data: impl Into<String>) -> Self {
        self.events.push(data.into());
        self
    }

    fn json(self, data: &Value) -> Self {
        self.event(data.to_string())
    }

    /// Appends a choice with this delta.
    fn delta(self, delta: &Value) -> Self {
        self.json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta }] }))
    }

    /// Appends text, in these deltas.
    pub(crate) fn words(mut self, pieces: &[&str]) -> Self {
        let at = self.places;
        self.places += 1;
        let id = format!("msg_{at}");
        match self.wire {
            Wire::Chat => pieces.iter().fold(self, |said, piece| said.delta(&json!({ "content": piece }))),
            Wire::Responses => {
                let item = json!({ "type": "message", "id": id, "role": "assistant", "content": [] });
                let part = json!({ "type": "output_text", "text": "", "annotations": [] });
                let begun = self
                    .json(&json!({ "type": "response.output_item.added", "output_index": at, "item": item }))
                    .json(&json!({ "type": "response.content_part.added", "item_id": id, "output_index": at, "content_index": 0, "part": part }));
                let written = pieces.iter().fold(begun, |said, piece| {
                    said.json(&json!({ "type": "response.output_text.delta", "item_id": id, "output_index": at, "content_index": 0, "delta": piece }))
                });
                let text = pieces.concat();
                let part = json!({ "type": "output_text", "text": text, "annotations": [] });
                let item = json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part] });
                written
                    .json(&json!({ "type": "response.output_text.done", "item_id": id, "output_index": at, "content_index": 0, "text": text }))
                    .item_done(at, item.to_string())
            }
            Wire::Anthropic => {
                let block = json!({ "type": "text", "text": "" });
                let begun = self.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
                let written = pieces.iter().fold(begun, |said, piece| {
                    let delta = json!({ "type": "text_delta", "text": piece });
                    said.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
                });
                written.json(&json!({ "type": "content_block_stop", "index": at }))
            }
            Wire::Gemini => pieces.iter().fold(self, |said, piece| said.parts(&json!({ "text": piece }).to_string())),
            Wire::Ollama => pieces.iter().fold(self, |said, piece| {
                said.json(&json!({ "model": "m", "message": { "role": "assistant", "content": piece }, "done": false }))
            }),
        }
    }

    /// Appends reasoning, in these deltas.
    pub(crate) fn thinks(mut self, pieces: &[&str]) -> Self {
        let at = self.places;
        match self.wire {
            Wire::Chat => {
                pieces.iter().fold(self, |said, piece| said.delta(&json!({ "reasoning_content": piece })))
            }
            Wire::Responses => {
                self.places += 1;
                pieces.iter().fold(self, |said, piece| {
                    said.json(&json!({ "type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": at, "summary_index": 0, "delta": piece }))
                })
            }
            Wire::Anthropic => {
                self.places += 1;
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                let begun =
                    self.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
                let thought = pieces.iter().fold(begun, |said, piece| {
                    let delta = json!({ "type": "thinking_delta", "thinking": piece });
                    said.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
                });
                thought.json(&json!({ "type": "content_block_stop", "index": at }))
            }
            Wire::Gemini => pieces
                .iter()
                .fold(self, |said, piece| said.parts(&json!({ "text": piece, "thought": true }).to_string())),
            Wire::Ollama => pieces.iter().fold(self, |said, piece| {
                let message = json!({ "role": "assistant", "content": "", "thinking": piece });
                said.json(&json!({ "model": "m", "message": message, "done": false }))
            }),
        }
    }

    /// Appends a web source of the text, if the wire has sources.
    pub(crate) fn source(mut self, url: &str, title: Option<&str>) -> Self {
        let at = self.places;
        match self.wire {
            Wire::Chat => {
                let page = json!({ "url": url, "title": title, "start_index": 0, "end_index": 1 });
                self.delta(&json!({ "annotations": [{ "type": "url_citation", "url_citation": page }] }))
            }
            Wire::Responses => {
                let page = json!({ "type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1 });
                self.json(&json!({ "type": "response.output_text.annotation.added", "item_id": "msg_0", "output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": page }))
            }
            Wire::Anthropic => {
                self.places += 1;
                let block = json!({ "type": "text", "text": "", "citations": [] });
                let page = json!({ "type": "web_search_result_location", "url": url, "title": title, "cited_text": "…", "encrypted_index": "x" });
                let delta = json!({ "type": "citations_delta", "citation": page });
                self.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }))
                    .json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
                    .json(&json!({ "type": "content_block_stop", "index": at }))
            }
            Wire::Gemini => {
                let chunks = json!([{ "web": { "uri": url, "title": title } }, { "retrievedContext": { "uri": "gs://x" } }]);
                let grounding = json!({ "groundingChunks": chunks, "webSearchQueries": ["x"] });
                self.json(&json!({ "candidates": [{ "groundingMetadata": grounding, "index": 0 }] }))
            }
            Wire::Ollama => self,
        }
    }

    /// Appends a Gemini event with these parts, written as they are.
    pub(crate) fn parts(self, parts: &str) -> Self {
        self.event(format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#
        ))
    }

    fn item_done(mut self, at: usize, item: String) -> Self {
        let done = format!(r#"{{"type":"response.output_item.done","output_index":{at},"item":{item}}}"#);
        self.items.push(item);
        self.event(done)
    }

    /// Appends a complete call, with its arguments in these deltas if the wire has deltas. The arguments are
    /// written unchanged, valid JSON or not.
    pub(crate) fn call(self, id: &str, tool: &str, arguments: &[&str]) -> Self {
        let at = self.places;
        let begun = self.begin_call(id, tool, arguments);
        let whole = arguments.concat();
        match begun.wire {
            Wire::Responses => {
                let item = json!({ "type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": tool, "arguments": whole, "status": "completed" });
                begun
                    .json(&json!({ "type": "response.function_call_arguments.done", "item_id": format!("fc_{at}"), "output_index": at, "arguments": whole }))
                    .item_done(at, item.to_string())
            }
            Wire::Anthropic => begun.json(&json!({ "type": "content_block_stop", "index": at })),
            Wire::Chat | Wire::Gemini | Wire::Ollama => begun,
        }
    }

    /// Appends the part of a call that is sent before the answer breaks off after these deltas.
    pub(crate) fn begin_call(mut self, id: &str, tool: &str, arguments: &[&str]) -> Self {
        let (at, call) = (self.places, self.calls);
        self.places += 1;
        self.calls += 1;
        let (quoted_id, quoted_tool) = (json!(id), json!(tool));
        match self.wire {
            Wire::Chat => {
                let begin = json!({ "index": call, "id": id, "type": "function", "function": { "name": tool, "arguments": "" } });
                let begun = self.delta(&json!({ "tool_calls": [begin] }));
                arguments.iter().fold(begun, |said, piece| {
                    let more = json!({ "index": call, "function": { "arguments": piece } });
                    said.delta(&json!({ "tool_calls": [more] }))
                })
            }
            Wire::Responses => {
                let item_id = format!("fc_{at}");
                let item = json!({ "type": "function_call", "id": item_id, "call_id": id, "name": tool, "arguments": "" });
                let begun = self
                    .json(&json!({ "type": "response.output_item.added", "output_index": at, "item": item }));
                arguments.iter().fold(begun, |said, piece| {
                    said.json(&json!({ "type": "response.function_call_arguments.delta", "item_id": item_id, "output_index": at, "delta": piece }))
                })
            }
            Wire::Anthropic => {
                let block = json!({ "type": "tool_use", "id": id, "name": tool, "input": {} });
                let begun =
                    self.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
                arguments.iter().fold(begun, |said, piece| {
                    let delta = json!({ "type": "input_json_delta", "partial_json": piece });
                    said.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
                })
            }
            Wire::Gemini => {
                let arguments = arguments.concat();
                self.parts(&format!(
                    r#"{{"functionCall":{{"id":{quoted_id},"name":{quoted_tool},"args":{arguments}}}}}"#
                ))
            }
            Wire::Ollama => {
                let function = format!(r#"{{"name":{quoted_tool},"arguments":{}}}"#, arguments.concat());
                self.event(format!(
                    r#"{{"model":"m","message":{{"role":"assistant","content":"","tool_calls":[{{"id":{quoted_id},"function":{function}}}]}},"done":false}}"#
                ))
            }
        }
    }

    /// Ends the answer normally.
    pub(crate) fn end(self) -> Self {
        let why = if self.calls > 0 { Ending::Calls } else { Ending::Stop };
        self.ends(why)
    }

    /// Ends the answer for this reason.
    pub(crate) fn ends(self, why: Ending) -> Self {
        let word = |stop, calls, length, filtered| match why {
            Ending::Stop => stop,
            Ending::Calls => calls,
            Ending::Length => length,
            Ending::Filtered => filtered,
        };
        match self.wire {
            Wire::Chat => {
                let reason = word("stop", "tool_calls", "length", "content_filter");
                self.json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }))
                    .json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 } }))
                    .event("[DONE]")
            }
            Wire::Responses => {
                let status = word("completed", "completed", "incomplete", "incomplete");
                let details = match why {
                    Ending::Length => json!({ "reason": "max_output_tokens" }),
                    Ending::Filtered => json!({ "reason": "content_filter" }),
                    Ending::Stop | Ending::Calls => Value::Null,
                };
                let items = self.items.join(",");
                self.event(format!(
                    r#"{{"type":"response.{status}","response":{{"id":"resp_1","status":"{status}","incomplete_details":{details},"output":[{items}],"usage":{{"input_tokens":10,"output_tokens":5,"total_tokens":15}}}}}}"#
                ))
            }
            Wire::Anthropic => {
                let reason = word("end_turn", "tool_use", "max_tokens", "refusal");
                self.json(&json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 5 } }))
                    .json(&json!({ "type": "message_stop" }))
            }
            Wire::Gemini => {
                let reason = word("STOP", "STOP", "MAX_TOKENS", "SAFETY");
                let candidate = json!({ "content": { "role": "model", "parts": [{ "text": "" }] }, "finishReason": reason, "index": 0 });
                let usage =
                    json!({ "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 });
                self.json(&json!({ "candidates": [candidate], "usageMetadata": usage }))
            }
            Wire::Ollama => {
                let reason = word("stop", "stop", "length", "stop");
                let message = json!({ "role": "assistant", "content": "" });
                self.json(&json!({ "model": "m", "message": message, "done": true, "done_reason": reason, "prompt_eval_count": 10, "eval_count": 5 }))
            }
        }
    }

    /// The answer's bytes, event by event.
    pub(crate) fn pieces(&self) -> Vec<Vec<u8>> {
        self.events.iter().map(|data| self.wire.frame(data).into_bytes()).collect()
    }

    /// The answer's bytes before the first event that contains this text, and the bytes from that event on.
    pub(crate) fn split(&self, at: &str) -> (Vec<u8>, Vec<u8>) {
        let at = self.events.iter().position(|data| data.contains(at)).unwrap();
        let mut before = self.pieces();
        let behind = before.split_off(at);
        (before.concat(), behind.concat())
    }

    /// The answer as one text.
    pub(crate) fn text(&self) -> String {
        self.events.iter().map(|data| self.wire.frame(data)).collect()
    }
}
