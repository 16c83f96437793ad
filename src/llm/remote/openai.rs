//! `{base_url}/chat/completions` (OpenAI API reference, "Chat Completions"; also the fields of DeepSeek,
//! vLLM, OpenRouter and the compatible endpoint of Google).

use super::Wire;
use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::conversation::{self, Entry, Ids, Step, ToolResult, entries, offer};
use super::schema::{self, WireTool};
use crate::config::Provider;
use crate::domain::turn::FinishReason;
use crate::egress::Framing;
use crate::llm::{ModelError, ModelRequest};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The field of a call with data that is not part of OpenAI's format.
const EXTRA: &str = "extra_content";
/// The fields of a message in which servers send reasoning.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
const THOUGHT_DETAILS: &str = "reasoning_details";

/// `{base_url}/chat/completions`, which OpenAI defined and many servers offer.
pub(super) const WIRE: Wire = Wire {
    provider: Provider::OPENAI,
    path: "/chat/completions",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::Sse,
    tools: &schema::OPENAI,
    body,
    reading: || Box::<Reader>::default(),
};

/// The body of a request.
fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let entries = entries(&request.messages, Ids::Own);
    let messages = messages(
        request.system.as_deref(),
        &entries,
        assistant_message,
        |answer| json!({ "role": "tool", "tool_call_id": answer.id, "content": answer.text }),
    );
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    body.insert("messages".to_owned(), messages.into());
    let offer = offer(request, &entries, &schema::OPENAI);
    if !offer.tools.is_empty() {
        body.insert("tools".to_owned(), schema::OPENAI.tools(&offer.tools).map(written_tool).collect());
        if !offer.may_call {
            body.insert("tool_choice".to_owned(), "none".into());
        }
    }
    body
}

/// Returns the conversation in the order of this wire and of Ollama. Each wire writes steps and answers
/// itself.
pub(super) fn messages(
    system: Option<&str>,
    entries: &[Entry<'_>],
    assistant_message: impl Fn(&Step<'_>) -> Value,
    answered: impl Fn(&ToolResult<'_>) -> Value,
) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(system) = system {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for entry in entries {
        match entry {
            Entry::User(text) => messages.push(json!({ "role": "user", "content": text })),
            Entry::Step(step) => {
                messages.push(assistant_message(step));
                messages.extend(step.answers.iter().map(&answered));
            }
        }
    }
    messages
}

fn assistant_message(step: &Step<'_>) -> Value {
    // The content is `null` for a step of calls only. Some servers put an empty text into the prompt of the
    // model.
    let silent = step.text.is_empty() && !step.calls.is_empty();
    let content = if silent { Value::Null } else { step.text.into() };
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert("content".to_owned(), content);
    let kept = |field: &str| step.state().and_then(|state| state.get(field));
    if let Some(fields) = kept("message").and_then(Value::as_object) {
        message.extend(fields.clone());
    }
    let call = |(index, call): (usize, &conversation::Call<'_>)| {
        let function =
            json!({ "name": call.name, "arguments": Value::Object(call.input.clone()).to_string() });
        let mut written = json!({ "id": call.id, "type": "function", "function": function });
        let extra = kept("calls").and_then(|calls| calls.get(index)).filter(|extra| !extra.is_null());
        if let (Some(extra), Some(fields)) = (extra, written.as_object_mut()) {
            fields.insert(EXTRA.to_owned(), extra.clone());
        }
        written
    };
    if !step.calls.is_empty() {
        message.insert("tool_calls".to_owned(), step.calls.iter().enumerate().map(call).collect());
    }
    Value::Object(message)
}

/// Returns the description of a tool for this wire and for Ollama.
pub(super) fn written_tool(tool: WireTool<'_>) -> Value {
    let WireTool { name, description, parameters } = tool;
    let function = json!({ "name": name, "description": description, "parameters": parameters });
    json!({ "type": "function", "function": function })
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
    object: Option<String>,
    message: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<Delta>,
    /// The complete message. Some servers send only this field, and some send it beside each delta. Boxed, because most
    /// send only deltas, and each is moved several times.
    message: Option<Box<Delta>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Content>,
    refusal: Option<String>,
    /// The outer option is set if the field is present.
    #[serde(default, deserialize_with = "present")]
    reasoning_content: Option<Option<String>>,
    reasoning: Option<String>,
    reasoning_details: Option<Vec<Value>>,
    tool_calls: Option<Vec<Piece>>,
    annotations: Option<Value>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Text, or text and reasoning in the form of Mistral.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

/// A piece of a call in a chunk.
#[derive(Deserialize)]
struct Piece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Value>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    calls: Vec<Call>,
    /// The reasoning, with the field in which it arrived.
    thoughts: Option<(&'static str, String)>,
    details: Vec<Value>,
}

/// A call of the answer.
struct Call {
    index: usize,
    wire_index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Option<Value>,
}

impl Call {
    fn has_all(&self) -> bool {
        self.arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

impl Reading for Reader {
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            answer.over();
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(unreadable)?;
        error_in_stream(chunk.error.as_ref())?;
        if chunk.object.as_deref() == Some("error") {
            error_in_stream(chunk.message.as_ref())?;
        }
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            // Beside a delta the message repeats the text, but its annotations may be only there.
            let both = [choice.delta.as_ref(), choice.message.as_deref()].into_iter().flatten();
            let annotations: Vec<_> = both.filter_map(|message| message.annotations.clone()).collect();
            if let Some(delta) = choice.delta.or(choice.message.map(|message| *message)) {
                self.delta(delta, answer)?;
            }
            annotations.iter().for_each(|annotations| sources(annotations, answer));
            match choice.finish_reason.as_deref() {
                None | Some("") => {}
                Some("error") => {
                    return Err(ModelError::Upstream("it ended its answer with an error".to_owned()));
                }
                Some(reason @ "insufficient_system_resource") => {
                    return Err(ModelError::Unavailable { why: reason.to_owned(), retry_after: None });
                }
                Some(reason) => answer.ends(match reason {
                    "stop" => FinishReason::Stop,
                    "length" | "model_length" => FinishReason::Length,
                    "content_filter" => FinishReason::ContentFilter,
                    "tool_calls" | "function_call" => FinishReason::ToolCalls,
                    _ => FinishReason::Other,
                }),
            }
        }
        if let Some(usage) = chunk.usage {
            let tokens = |field: &str| usage.get(field).and_then(Value::as_u64);
            answer.usage(tokens("prompt_tokens"), tokens("completion_tokens"));
        }
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        let mut message = Map::new();
        let thoughts = self.thoughts.take();
        if !self.details.is_empty() {
            message.insert(THOUGHT_DETAILS.to_owned(), std::mem::take(&mut self.details).into());
        } else if let Some((field, thoughts)) = thoughts {
            message.insert(field.to_owned(), thoughts.into());
        }
        let calls: Value = self.calls.iter_mut().map(|call| call.extra.take().unwrap_or_default()).collect();
        let extras = calls.as_array().is_some_and(|calls| calls.iter().any(|extra| !extra.is_null()));
        let mut state = Map::new();
        if !message.is_empty() {
            state.insert("message".to_owned(), message.into());
        }
        if extras {
            state.insert("calls".to_owned(), calls);
        }
        (!state.is_empty()).then_some(Value::Object(state))
    }
}

impl Reader {
    fn delta(&mut self, delta: Delta, answer: &mut Answer) -> Result<(), ModelError> {
        let [content_field, field] = THOUGHTS;
        if delta.reasoning_content.is_some() {
            // Some servers want the field back with each step of a reasoning model, even if it is empty.
            self.thoughts.get_or_insert((content_field, String::new()));
        }
        let given = [(content_field, delta.reasoning_content.flatten()), (field, delta.reasoning)];
        let given =
            given.into_iter().find_map(|(field, text)| Some((field, text.filter(|it| !it.is_empty())?)));
        if let Some((field, text)) = given {
            let (kept_in, kept) = self.thoughts.get_or_insert((field, String::new()));
            if kept.is_empty() {
                *kept_in = field;
            }
            kept.push_str(&text);
            answer.reasoning(text);
        }
        for detail in delta.reasoning_details.into_iter().flatten() {
            self.detail(detail);
        }
        match delta.content {
            None => {}
            Some(Content::Text(text)) => answer.text(text),
            Some(Content::Parts(parts)) => {
                for part in &parts {
                    content_part(part, answer);
                }
            }
        }
        answer.text(delta.refusal.unwrap_or_default());
        for piece in delta.tool_calls.into_iter().flatten() {
            self.piece(piece, answer)?;
        }
        Ok(())
    }

    /// Merges a detail into the last one. Servers send a detail in pieces, and want it back whole.
    fn detail(&mut self, detail: Value) {
        let same = |field: &str, last: &Value| last.get(field) == detail.get(field);
        if let Some(Value::Object(last)) = self.details.last_mut().filter(|last| {
            detail.get("index").is_some() && same("index", last) && same("type", last) && detail.is_object()
        }) {
            for (field, value) in detail.as_object().into_iter().flatten() {
                match (last.get_mut(field), value) {
                    (Some(Value::String(held_text)), Value::String(more))
                        if field == "text" || field == "summary" =>
                    {
                        held_text.push_str(more);
                    }
                    (_, Value::Null) => {}
                    _ => {
                        last.insert(field.clone(), value.clone());
                    }
                }
            }
        } else {
            self.details.push(detail);
        }
    }

    /// Adds a piece to its call.
    fn piece(&mut self, piece: Piece, answer: &mut Answer) -> Result<(), ModelError> {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let Piece { index: wire_index, id, function, extra_content } = piece;
        let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let (id, name) = (text(id), text(name));
        let meant = match wire_index {
            Some(_) => self.calls.iter().rposition(|call| call.wire_index == wire_index),
            // Without an index, a piece belongs to the call with its id. Otherwise a piece with a name starts a
            // new call, and a piece without a name belongs to the last call.
            None => {
                let known = self.calls.iter().rposition(|call| id.is_some() && call.id == id);
                known.or_else(|| name.is_none().then(|| self.calls.len().checked_sub(1)).flatten())
            }
        };
        let meant = meant.and_then(|at| self.calls.get_mut(at));
        let call = match (meant, name) {
            // Some servers send several calls in sequence under one index, and some of these send no ids.
            (Some(call), Some(name))
                if if id.is_some() && call.id.is_some() { call.id != id } else { call.has_all() } =>
            {
                self.begin(wire_index, id, name, answer)?
            }
            (Some(call), Some(name)) if call.name != name => {
                let why = "a call has two names".to_owned();
                return Err(ModelError::Malformed(why));
            }
            (Some(call), Some(_)) => {
                call.id = call.id.take().or(id);
                call
            }
            // Some servers invent an id for each piece.
            (Some(call), None) => call,
            (None, Some(name)) => self.begin(wire_index, id, name, answer)?,
            (None, None) => {
                let why = "arguments of a call that has no name".to_owned();
                return Err(ModelError::Malformed(why));
            }
        };
        call.extra = extra_content.filter(|extra| !extra.is_null()).or_else(|| call.extra.take());
        let delta = match arguments {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(delta)) => delta,
            Some(whole) => whole.to_string(),
        };
        call.arguments.push_str(&delta);
        answer.arguments(call.index, delta);
        Ok(())
    }

    fn begin(
        &mut self,
        wire_index: Option<u64>,
        id: Option<String>,
        name: String,
        answer: &mut Answer,
    ) -> Result<&mut Call, ModelError> {
        let index = answer.call(id.clone(), &name)?;
        // The arguments end with the answer.
        answer.call_ends(index);
        self.calls.push(Call { index, wire_index, id, name, arguments: String::new(), extra: None });
        let none = || ModelError::Malformed("a call is lost".to_owned());
        self.calls.last_mut().ok_or_else(none)
    }
}

/// Adds the web pages among these annotations.
fn sources(annotations: &Value, answer: &mut Answer) {
    for annotation in annotations.as_array().into_iter().flatten() {
        if let Some(page) = annotation.get("url_citation") {
            answer.source(page.get("url"), page.get("title"));
        }
    }
}

fn content_part(part: &Value, answer: &mut Answer) {
    let text = |part: &Value| part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    if part.get("type").is_some_and(|kind| kind == "thinking") {
        for thought in part.get("thinking").and_then(Value::as_array).into_iter().flatten() {
            answer.reasoning(text(thought));
        }
    } else {
        answer.text(text(part));
    }
}
