//! `{base_url}/chat/completions` (OpenAI API reference, "Chat Completions"; also the fields of DeepSeek,
//! vLLM, OpenRouter and the compatible endpoint of Google).

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, Identity, TextSoFar, error_in_stream, pairs, unreadable};
use super::conversation::{self, Entry, Ids, Step, ToolResult, entries, offer};
use super::kept::{self, KeptFields};
use super::lenient::{self, Index, List, Text};
use super::openai_message::{Message, Piece, THOUGHTS};
use super::schema::{ACCEPTED, SchemaRules, WireTool};
use super::written::WrittenTools;
use crate::provider::Provider;
use crate::{ModelError, ModelRequest};
use holdpoint_egress::Framing;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const THOUGHT_DETAILS: &str = "reasoning_details";

/// "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level", "array schema
/// missing items", "object schema missing properties", and at most 128 tools.
pub(super) const TOOLS: SchemaRules = SchemaRules { tools_max: Some(128), ..ACCEPTED };

/// `{base_url}/chat/completions`: OpenAI, vLLM, llama.cpp, OpenRouter, DeepSeek and others.
pub(super) const WIRE: Wire = Wire {
    provider: Provider { name: "openai", default_base_url: None },
    path: "/chat/completions",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::Sse,
    tools: &TOOLS,
    write_tool,
    body,
    reading: || Box::<Reader>::default(),
    #[cfg(test)]
    sample: tests::SAMPLE,
};

impl Provider {
    /// Any server with `{base_url}/chat/completions`.
    pub const OPENAI: Self = WIRE.provider;
}

fn body(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value> {
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
    let offer = offer(request, &entries, &TOOLS);
    if !offer.tools.is_empty() {
        body.insert("tools".to_owned(), tools.list(&offer.tools));
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
        let extra = kept("calls").and_then(|calls| calls.get(index)?.as_object());
        if let (Some(extra), Some(fields)) = (extra, written.as_object_mut()) {
            fields.extend(extra.clone());
        }
        written
    };
    if !step.calls.is_empty() {
        message.insert("tool_calls".to_owned(), step.calls.iter().enumerate().map(call).collect());
    }
    Value::Object(message)
}

/// Writes a tool for this wire and for Ollama.
pub(super) fn write_tool(WireTool { name, description, parameters }: WireTool<'_>) -> Value {
    let function = json!({ "name": name, "description": description, "parameters": parameters });
    json!({ "type": "function", "function": function })
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: List<Choice>,
    usage: Option<Value>,
    error: Option<Value>,
    #[serde(default)]
    object: Text,
    message: Option<Value>,
    code: Option<Value>,
    /// The counts of tokens of Groq.
    x_groq: Option<Value>,
    /// The result of MiniMax, with a status.
    base_resp: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Index,
    delta: Option<Message>,
    /// The complete message. Some servers send only this field, some send it beside each delta, and some at the
    /// end. Boxed, because most send only deltas, and each is moved several times.
    message: Option<Box<Message>>,
    #[serde(default)]
    finish_reason: Text,
    usage: Option<Value>,
    error: Option<Value>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    calls: Vec<Call>,
    text: TextSoFar,
    refusal: TextSoFar,
    reasoning: TextSoFar,
    /// The field in which reasoning arrived.
    thoughts: Option<&'static str>,
    kept: KeptFields,
    /// Whether a delta had content, so that a message is the whole message.
    has_deltas: bool,
}

struct Call {
    index: usize,
    wire_index: Option<u64>,
    id: Option<String>,
    extra: KeptFields,
}

impl AnswerReader for Reader {
    fn read(&mut self, name: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        // The events of this wire have no names. A named event counts only if it has their form.
        let chunk: Chunk = match serde_json::from_str(data) {
            Err(_) if name.is_some() => return Ok(()),
            read => read.map_err(unreadable)?,
        };
        if name.is_some() && chunk.choices.0.is_empty() {
            return Ok(());
        }
        failures(&chunk)?;
        let is_whole = chunk.object.as_str() == "chat.completion";
        for choice in chunk.choices.0.into_iter().filter(|choice| choice.index.0.unwrap_or(0) == 0) {
            self.choice(choice, is_whole, answer)?;
        }
        answer.counts(chunk.x_groq.as_ref().and_then(|more| more.get("usage")));
        answer.counts(chunk.usage.as_ref());
        Ok(())
    }

    fn state(&mut self, _: &Answer) -> Option<Value> {
        let mut message = self.kept.take();
        if let Some(field) = self.thoughts.filter(|_| !message.contains_key(THOUGHT_DETAILS)) {
            message.insert(field.to_owned(), self.reasoning.text().into());
        }
        let bytes = self.calls.iter().fold(0, |bytes: usize, call| bytes.saturating_add(call.extra.bytes()));
        if bytes > kept::BYTES_MAX {
            tracing::warn!(bytes, "what the model's server adds to its calls is too long to be sent back");
            self.calls.clear();
        }
        let calls: Vec<_> = self.calls.iter_mut().map(|call| call.extra.take()).collect();
        let mut state = Map::new();
        if !message.is_empty() {
            state.insert("message".to_owned(), message.into());
        }
        if calls.iter().any(|extra| !extra.is_empty()) {
            let extra = |extra: Map<_, _>| if extra.is_empty() { Value::Null } else { extra.into() };
            state.insert("calls".to_owned(), calls.into_iter().map(extra).collect());
        }
        (!state.is_empty()).then_some(Value::Object(state))
    }
}

fn failures(chunk: &Chunk) -> Result<(), ModelError> {
    error_in_stream(chunk.error.as_ref())?;
    if let Some(result) = &chunk.base_resp
        && lenient::count(result.get("status_code")).is_some_and(|status| status > 0)
    {
        let words = result.get("status_msg").cloned().unwrap_or_default();
        error_in_stream(Some(&json!({ "message": words, "type": words })))?;
    }
    let means_success = |code: &Value| matches!(lenient::text(code).as_str(), "" | "0" | "200");
    let is_flat = chunk.choices.0.is_empty() && chunk.code.as_ref().is_some_and(|code| !means_success(code));
    if chunk.object.as_str() == "error" || is_flat {
        let flat = json!({ "message": chunk.message, "code": chunk.code });
        error_in_stream(chunk.message.as_ref().filter(|it| it.is_object()).or(Some(&flat)))?;
    }
    Ok(())
}

impl Reader {
    fn choice(&mut self, choice: Choice, is_whole: bool, answer: &mut Answer) -> Result<(), ModelError> {
        let Choice { index: _, delta, message, finish_reason, usage, error } = choice;
        error_in_stream(error.as_ref())?;
        let reason = finish_reason.filled().filter(|reason| reason != "null");
        // Beside a delta the message repeats the text, but its annotations may be only there.
        let both = [delta.as_ref(), message.as_deref()].into_iter().flatten();
        let annotations: Vec<_> = both.filter_map(|message| message.annotations.clone()).collect();
        if let Some(delta) = delta {
            self.has_deltas |= delta.has_content();
            self.delta(delta, reason.is_some(), answer)?;
        }
        if let Some(message) = message {
            if is_whole || self.has_deltas || reason.is_some() {
                self.whole(*message, answer)?;
            } else {
                self.delta(*message, false, answer)?;
            }
        }
        annotations.iter().for_each(|annotations| sources(annotations, answer));
        answer.counts(usage.as_ref());
        reason.map_or(Ok(()), |reason| answer.ends_with(&reason))
    }

    fn delta(&mut self, delta: Message, is_last: bool, answer: &mut Answer) -> Result<(), ModelError> {
        let say = if is_last { Answer::say_last } else { Answer::say };
        let reasoning = self.thoughts_of(&delta);
        say(answer, Field::Reasoning, &mut self.reasoning, reasoning);
        self.kept.add(delta.rest);
        for (field, text) in content(&delta.content) {
            let said = if field == Field::Text { &mut self.text } else { &mut self.reasoning };
            say(answer, field, said, text);
        }
        say(answer, Field::Text, &mut self.refusal, delta.refusal.0.unwrap_or_default());
        for piece in delta.calls {
            self.piece(piece, answer)?;
        }
        Ok(())
    }

    /// Reads a whole message: what its deltas did not say.
    fn whole(&mut self, message: Message, answer: &mut Answer) -> Result<(), ModelError> {
        // A server without deltas may send its pieces as messages, also the last one.
        let has_deltas = self.has_deltas;
        let mut say = |field, said: &mut TextSoFar, text: String| {
            if !has_deltas && !text.starts_with(said.text()) {
                answer.say(field, said, text);
            } else {
                answer.say_whole(field, said, text);
            }
        };
        let mut reasoning = self.thoughts_of(&message);
        let mut text = String::new();
        for (field, more) in content(&message.content) {
            if field == Field::Text { &mut text } else { &mut reasoning }.push_str(&more);
        }
        say(Field::Reasoning, &mut self.reasoning, reasoning);
        say(Field::Text, &mut self.text, text);
        say(Field::Text, &mut self.refusal, message.refusal.0.unwrap_or_default());
        self.kept.replace(message.rest);
        self.whole_calls(message.calls, answer)
    }

    /// Returns the reasoning of a message, and notes its field. Some servers repeat it in a second field.
    fn thoughts_of(&mut self, message: &Message) -> String {
        for (field, text) in THOUGHTS.into_iter().zip(&message.thoughts) {
            if let Some(text) = text.as_ref().and_then(|text| text.0.as_ref()).filter(|text| !text.is_empty())
            {
                if self.reasoning.is_empty() {
                    self.thoughts = Some(field);
                }
                return text.clone();
            }
        }
        // Some servers want the field back with each step of a reasoning model, even if it is empty.
        if message.thoughts.first().is_some_and(Option::is_some) {
            self.thoughts.get_or_insert(THOUGHTS[0]);
        }
        String::new()
    }

    /// Reads all calls of a whole message: what the deltas did not say.
    fn whole_calls(&mut self, pieces: Vec<Piece>, answer: &mut Answer) -> Result<(), ModelError> {
        let identity =
            |id: &Option<String>, name: &str| Identity { name: name.to_owned(), ids: [id.clone(), None] };
        let said: Vec<_> =
            self.calls.iter().map(|call| identity(&call.id, answer.name_of(call.index))).collect();
        let whole: Vec<_> =
            pieces.iter().map(|piece| identity(&piece.id.clone().filled(), piece.name.as_str())).collect();
        for (piece, pair) in pieces.into_iter().zip(pairs(&whole, &said)) {
            let call = match pair.and_then(|at| self.calls.get_mut(at)) {
                Some(call) => call,
                None => self.begin(None, piece.id.filled(), piece.name.as_str(), answer)?,
            };
            call.extra.replace(piece.rest);
            answer.whole_arguments(call.index, piece.arguments.unwrap_or_default());
        }
        Ok(())
    }

    /// Adds a piece to its call.
    fn piece(&mut self, piece: Piece, answer: &mut Answer) -> Result<(), ModelError> {
        let Piece { index: Index(wire_index), id, name, arguments, rest } = piece;
        let (id, name) = (id.filled(), name.filled());
        let arguments = arguments.unwrap_or_default();
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
            (Some(call), Some(name)) if is_another(call, id.as_ref(), &arguments, answer) => {
                self.begin(wire_index, id, &name, answer)?
            }
            (Some(call), Some(name)) if answer.name_of(call.index) != name => {
                let why = "a call has two names".to_owned();
                return Err(ModelError::Malformed(why));
            }
            (Some(call), Some(_)) => {
                call.id = call.id.take().or(id);
                call
            }
            // Some servers invent an id for each piece.
            (Some(call), None) => call,
            (None, Some(name)) => self.begin(wire_index, id, &name, answer)?,
            (None, None) => {
                let why = "arguments of a call that has no name".to_owned();
                return Err(ModelError::Malformed(why));
            }
        };
        call.extra.add(rest);
        // Nothing can follow whole arguments, so that they were said again, by some servers as text within text.
        if answer.has_all_arguments(call.index) {
            let said = answer.arguments_of(call.index);
            if arguments == said || serde_json::from_str::<String>(&arguments).is_ok_and(|it| it == said) {
                return Ok(());
            }
        }
        answer.arguments(call.index, arguments);
        Ok(())
    }

    fn begin(
        &mut self,
        wire_index: Option<u64>,
        id: Option<String>,
        name: &str,
        answer: &mut Answer,
    ) -> Result<&mut Call, ModelError> {
        let index = answer.call(id.clone(), name)?;
        // The arguments end with the answer.
        answer.call_ends(index);
        self.calls.push(Call { index, wire_index, id, extra: KeptFields::default() });
        let none = || ModelError::Malformed("a call is lost".to_owned());
        self.calls.last_mut().ok_or_else(none)
    }
}

/// Returns whether a piece with a name, in the place of this call, begins another call. Ids tell calls apart.
/// Without ids, nothing can follow whole arguments, and a server that begins twice without arguments means two.
fn is_another(call: &Call, id: Option<&String>, arguments: &str, answer: &Answer) -> bool {
    match (&call.id, id) {
        (Some(known), Some(id)) => known != id,
        (None, None) if arguments.is_empty() && answer.arguments_of(call.index).is_empty() => true,
        _ => answer.has_all_arguments(call.index),
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

/// Returns the texts of a content: a text, or text and reasoning in the form of Mistral.
fn content(content: &Value) -> Vec<(Field, String)> {
    let part = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("thinking") => (Field::Reasoning, part.get("thinking").map(lenient::text).unwrap_or_default()),
        _ => (Field::Text, lenient::text(part)),
    };
    match content {
        Value::Null => Vec::new(),
        Value::Array(parts) => parts.iter().map(part).collect(),
        other => vec![part(other)],
    }
}

#[cfg(test)]
mod tests;
