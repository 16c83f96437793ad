//! `{base_url}/chat/completions` (OpenAI API reference, "Chat Completions"; the fields of DeepSeek, vLLM, OpenRouter
//! and of Google's endpoint of this kind beside it).

use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::text;
use crate::domain::turn::FinishReason;
use crate::llm::{ModelError, ModelMessage, ModelRequest, ToolDefinition};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Where a call has what is not of OpenAI's own format.
const EXTRA: &str = "extra_content";
/// Fields of a message in which servers put thoughts; the first that has any counts.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
const THOUGHT_DETAILS: &str = "reasoning_details";

/// The body of a request.
pub(super) fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let ModelRequest { system, messages, tools } = request;
    let system = system.iter().map(|text| json!({ "role": "system", "content": text }));
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    body.insert("messages".to_owned(), system.chain(messages.iter().map(message)).collect());
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.iter().map(|tool| function(tool)).collect());
    }
    body
}

fn message(message: &ModelMessage) -> Value {
    match message {
        ModelMessage::User(text) => json!({ "role": "user", "content": text }),
        ModelMessage::Tool { call_id, tool_name: _, text } => {
            json!({ "role": "tool", "tool_call_id": text::short_id(call_id), "content": text })
        }
        ModelMessage::Assistant { text, calls, provider_state } => {
            // `null` where there are calls only: some servers put an empty text into the model's prompt.
            let content =
                if text.is_empty() && !calls.is_empty() { Value::Null } else { text.as_str().into() };
            let mut said = Map::new();
            said.insert("role".to_owned(), "assistant".into());
            said.insert("content".to_owned(), content);
            let kept = |field: &str| provider_state.as_ref().and_then(|state| state.get(field));
            if let Some(fields) = kept("message").and_then(Value::as_object) {
                said.extend(fields.clone());
            }
            let extra =
                |index: usize| kept("calls").and_then(|calls| calls.get(index)).filter(|it| !it.is_null());
            let call = |(index, call): (usize, &crate::llm::ModelCall)| {
                let arguments = Value::Object(call.input.clone()).to_string();
                let function = json!({ "name": text::name(&call.tool_name), "arguments": arguments });
                let mut written =
                    json!({ "id": text::short_id(&call.id), "type": "function", "function": function });
                if let (Some(extra), Some(fields)) = (extra(index), written.as_object_mut()) {
                    fields.insert(EXTRA.to_owned(), extra.clone());
                }
                written
            };
            if !calls.is_empty() {
                said.insert("tool_calls".to_owned(), calls.iter().enumerate().map(call).collect());
            }
            Value::Object(said)
        }
    }
}

/// A tool as this wire and Ollama's describe it.
pub(super) fn function(tool: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, input_schema } = tool;
    let function = json!({ "name": name, "description": description, "parameters": input_schema });
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
    /// `message` in servers that send all at once.
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Content>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    reasoning_details: Option<Vec<Value>>,
    tool_calls: Option<Vec<Piece>>,
}

/// Words, or words and thoughts as Mistral sends them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

/// A piece of a call.
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
pub(super) struct Reader {
    calls: Vec<Call>,
    /// The thoughts, by the field they stood in.
    thoughts: Option<(&'static str, String)>,
    details: Vec<Value>,
}

/// A call that began.
struct Call {
    index: usize,
    place: Option<u64>,
    id: Option<String>,
    name: String,
    extra: Option<Value>,
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
            if let Some(delta) = choice.delta {
                self.delta(delta, answer)?;
            }
            match choice.finish_reason.as_deref() {
                None | Some("") => {}
                Some("error") => {
                    return Err(ModelError::Upstream("it ended its answer with an error".to_owned()));
                }
                Some(reason) => answer.ends(match reason {
                    "stop" => FinishReason::Stop,
                    "length" => FinishReason::Length,
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
        } else if let Some((field, thoughts)) = thoughts
            // Some servers want the thoughts of a step with calls back, and some refuse those of any other.
            && !self.calls.is_empty()
        {
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
        let given = [delta.reasoning_content, delta.reasoning];
        let thoughts = THOUGHTS.into_iter().zip(given).find_map(|(field, text)| Some((field, text?)));
        if let Some((field, text)) = thoughts.filter(|(_, text)| !text.is_empty()) {
            self.thoughts.get_or_insert_with(|| (field, String::new())).1.push_str(&text);
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

    /// Pieces of one detail are told one after the other, and wanted back as one.
    fn detail(&mut self, detail: Value) {
        let same = |field: &str, last: &Value| last.get(field) == detail.get(field);
        if let Some(Value::Object(last)) = self.details.last_mut().filter(|last| {
            detail.get("index").is_some() && same("index", last) && same("type", last) && detail.is_object()
        }) {
            for (field, value) in detail.as_object().into_iter().flatten() {
                match (last.get_mut(field), value) {
                    (Some(Value::String(told)), Value::String(more))
                        if field == "text" || field == "summary" =>
                    {
                        told.push_str(more);
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

    /// Puts a piece to the call it is meant for.
    fn piece(&mut self, piece: Piece, answer: &mut Answer) -> Result<(), ModelError> {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let Piece { index: place, id, function, extra_content } = piece;
        let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
        let (id, name) = (text(id), text(name));
        let meant = match place {
            Some(_) => self.calls.iter().rposition(|call| call.place == place),
            // Of one that does not say where it belongs: a known id's call, else a new one if it has a name.
            None => {
                let known = self.calls.iter().rposition(|call| id.is_some() && call.id == id);
                known.or_else(|| name.is_none().then(|| self.calls.len().checked_sub(1)).flatten())
            }
        };
        let meant = meant.and_then(|at| self.calls.get_mut(at));
        let call = match (meant, name) {
            // Some servers put one call after the other in the same place.
            (Some(call), Some(name)) if id.is_some() && call.id.is_some() && call.id != id => {
                self.begin(place, id, name, answer)?
            }
            (Some(call), Some(name)) if call.name != name => {
                let why = "a call of it has two names".to_owned();
                return Err(ModelError::Malformed(why));
            }
            (Some(call), Some(_)) => {
                call.id = call.id.take().or(id);
                call
            }
            // Some servers make up an id for each piece.
            (Some(call), None) => call,
            (None, Some(name)) => self.begin(place, id, name, answer)?,
            (None, None) => {
                let why = "arguments of a call that has no name".to_owned();
                return Err(ModelError::Malformed(why));
            }
        };
        call.extra = extra_content.filter(|extra| !extra.is_null()).or_else(|| call.extra.take());
        match arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(delta)) => answer.arguments(call.index, delta),
            Some(whole) => answer.arguments(call.index, whole.to_string()),
        }
        Ok(())
    }

    fn begin(
        &mut self,
        place: Option<u64>,
        id: Option<String>,
        name: String,
        answer: &mut Answer,
    ) -> Result<&mut Call, ModelError> {
        let index = answer.call(id.clone(), &name)?;
        self.calls.push(Call { index, place, id, name, extra: None });
        let none = || ModelError::Malformed("a call of it is lost".to_owned());
        self.calls.last_mut().ok_or_else(none)
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
