//! `{base_url}/responses` of OpenAI (API reference, "Responses" and "Streaming events").
//!
//! The request asks the server to store nothing, because holdpoint stores the conversation. Reasoning arrives
//! encrypted, and goes back with its step.

use super::Wire;
use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::conversation::{self, CALL, Entry, Ids, Step, ToolResult, entries, offer};
use super::schema::{self, WireTool};
use crate::config::Provider;
use crate::domain::turn::FinishReason;
use crate::egress::Framing;
use crate::llm::{ModelError, ModelRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Models that do not reason, and refuse a request for reasoning. All newer models reason.
const WITHOUT_REASONING: [&str; 4] = ["gpt-3", "gpt-4", "gpt-5-chat", "chatgpt-"];

/// `{base_url}/responses` of OpenAI. The server stores nothing, and reasoning arrives encrypted.
pub(super) const WIRE: Wire = Wire {
    provider: Provider::OPENAI_RESPONSES,
    path: "/responses",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::Sse,
    tools: &schema::OPENAI,
    body,
    reading: || Box::<Reader>::default(),
};

/// The body of a request.
fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("store".to_owned(), false.into());
    let base = model.strip_prefix("ft:").unwrap_or(model);
    if !WITHOUT_REASONING.iter().any(|name| base.starts_with(name)) {
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    if let Some(system) = &request.system {
        body.insert("instructions".to_owned(), system.as_str().into());
    }
    let mut input = Vec::new();
    let entries = entries(&request.messages, Ids::Plain);
    for entry in &entries {
        match entry {
            Entry::User(text) => input.push(json!({ "role": "user", "content": text })),
            Entry::Step(step) => {
                input.extend(step_items(step));
                input.extend(step.answers.iter().map(|ToolResult { id, text, name: _ }| {
                    json!({ "type": "function_call_output", "call_id": id, "output": text })
                }));
            }
        }
    }
    body.insert("input".to_owned(), input.into());
    let offer = offer(request, &entries, &schema::OPENAI);
    if !offer.tools.is_empty() {
        let tools = schema::OPENAI.tools(&offer.tools).map(|tool| {
            let WireTool { name, description, parameters } = tool;
            json!({
                "type": "function", "name": name, "description": description, "parameters": parameters,
                "strict": false,
            })
        });
        body.insert("tools".to_owned(), tools.collect());
        if !offer.may_call {
            body.insert("tool_choice".to_owned(), "none".into());
        }
    }
    body
}

fn step_items(step: &Step<'_>) -> Vec<Value> {
    let call = |call: &conversation::Call<'_>, item: Option<&Value>| {
        let mut written = Map::new();
        written.insert("type".to_owned(), "function_call".into());
        if let Some(id) = item.and_then(|item| item.get("id")) {
            written.insert("id".to_owned(), id.clone());
        }
        written.insert("call_id".to_owned(), call.id.as_ref().into());
        written.insert("name".to_owned(), call.name.as_ref().into());
        written.insert("arguments".to_owned(), Value::Object(call.input.clone()).to_string().into());
        Value::Object(written)
    };
    if let Some(items) = step.placed(call) {
        return items;
    }
    let mut items = Vec::new();
    if !step.text.is_empty() {
        items.push(json!({ "role": "assistant", "content": step.text }));
    }
    items.extend(step.calls.iter().map(|made| call(made, None)));
    items
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    output_index: Option<u64>,
    delta: Option<Value>,
    annotation: Option<Value>,
    item: Option<Value>,
    response: Option<Value>,
    error: Option<Value>,
    code: Option<Value>,
    message: Option<String>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    /// The calls, by the output index of their items.
    calls: BTreeMap<u64, Call>,
    /// The items that go back, by their output index.
    items: BTreeMap<u64, Value>,
    /// Whether the server wants one of the items back.
    is_needed: bool,
    /// Whether text was read since the last complete message item.
    words: bool,
    /// Whether reasoning was read since the last start of a summary part.
    thoughts: bool,
}

struct Call {
    index: usize,
    /// Whether pieces of the arguments were read.
    pieces: bool,
}

impl Reading for Reader {
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            answer.over();
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(unreadable)?;
        let output_index = event.output_index.unwrap_or_default();
        match &*event.r#type {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.words = true;
                answer.text(words(event.delta));
            }
            "response.output_text.annotation.added" => {
                let page = event.annotation.unwrap_or_default();
                if page.get("type").is_some_and(|kind| kind == "url_citation") {
                    answer.source(page.get("url"), page.get("title"));
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.thoughts = true;
                answer.reasoning(words(event.delta));
            }
            // Each summary part is a paragraph.
            "response.reasoning_summary_part.added" if std::mem::take(&mut self.thoughts) => {
                answer.reasoning("\n\n".to_owned());
            }
            "response.output_item.added" => {
                if let Some(item) = event.item {
                    self.added(output_index, &item, answer)?;
                }
            }
            "response.function_call_arguments.delta" => {
                let none =
                    || ModelError::Malformed(format!("item {output_index} has arguments but is no call"));
                let call = self.calls.get_mut(&output_index).ok_or_else(none)?;
                call.pieces = true;
                answer.arguments(call.index, words(event.delta));
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.done(output_index, item, answer)?;
                }
            }
            "response.completed" | "response.incomplete" => {
                let response = event.response.unwrap_or_default();
                let tokens = |field: &str| response.get("usage")?.get(field)?.as_u64();
                answer.usage(tokens("input_tokens"), tokens("output_tokens"));
                let why = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
                answer.ends(match why {
                    Some("max_output_tokens") => FinishReason::Length,
                    Some("content_filter") => FinishReason::ContentFilter,
                    Some(_) => FinishReason::Other,
                    None if !self.calls.is_empty() => FinishReason::ToolCalls,
                    None => FinishReason::Stop,
                });
                answer.over();
            }
            "response.failed" | "error" => {
                error_in_stream(event.response.as_ref().and_then(|response| response.get("error")))?;
                error_in_stream(event.error.as_ref())?;
                let flat = json!({ "code": event.code, "message": event.message });
                error_in_stream(Some(&flat))?;
            }
            // An event about the response itself, or an unknown event.
            _ => {}
        }
        Ok(())
    }

    /// Returns the items in their order, if the server wants one back and the items contain all of the
    /// answer.
    fn state(&mut self) -> Option<Value> {
        let mut items: Vec<_> = std::mem::take(&mut self.items).into_values().collect();
        // The server refuses reasoning that no other item follows.
        let is_not_reasoning = |item: &Value| item.get("type").is_none_or(|kind| kind != "reasoning");
        items.truncate(items.iter().rposition(is_not_reasoning).map_or(0, |last| last.saturating_add(1)));
        let calls = items.iter().filter(|item| item.get(CALL).is_some()).count();
        let is_complete = !self.words && calls == self.calls.len();
        (self.is_needed && is_complete && !items.is_empty()).then(|| items.into())
    }
}

impl Reader {
    fn added(&mut self, output_index: u64, item: &Value, answer: &mut Answer) -> Result<(), ModelError> {
        if item.get("type").is_none_or(|kind| kind != "function_call") {
            return Ok(());
        }
        if self.calls.contains_key(&output_index) {
            return Err(ModelError::Malformed(format!("item {output_index} begins twice")));
        }
        let field = |name: &str| item.get(name).and_then(Value::as_str);
        let id = field("call_id").filter(|id| !id.is_empty()).map(str::to_owned);
        let index = answer.call(id, field("name").unwrap_or_default())?;
        self.calls.insert(output_index, Call { index, pieces: false });
        Ok(())
    }

    fn done(&mut self, output_index: u64, item: Value, answer: &mut Answer) -> Result<(), ModelError> {
        let kept = match item.get("type").and_then(Value::as_str) {
            Some("reasoning") => {
                // An item without its encrypted content cannot go back, because the server has not stored it.
                if item.get("encrypted_content").is_none_or(Value::is_null) {
                    return Ok(());
                }
                self.is_needed = true;
                item
            }
            Some("message") => {
                self.words = false;
                self.is_needed |= item.get("phase").is_some_and(|phase| !phase.is_null());
                item
            }
            Some("function_call") => {
                if !self.calls.contains_key(&output_index) {
                    self.added(output_index, &item, answer)?;
                }
                let Some(call) = self.calls.get_mut(&output_index) else { return Ok(()) };
                if !std::mem::replace(&mut call.pieces, true) {
                    answer.arguments(call.index, words(item.get("arguments").cloned()));
                }
                answer.call_ends(call.index);
                let mut kept = json!({ CALL: call.index });
                if let (Some(id), Some(fields)) = (item.get("id"), kept.as_object_mut()) {
                    fields.insert("id".to_owned(), id.clone());
                }
                kept
            }
            _ => return Ok(()),
        };
        self.items.insert(output_index, kept);
        Ok(())
    }
}

fn words(value: Option<Value>) -> String {
    match value {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}
