//! `{base_url}/responses` of OpenAI (API reference, "Responses" and "Streaming events").
//!
//! The request asks the server to store nothing, because holdpoint stores the conversation. Reasoning arrives
//! encrypted, and goes back with its step.

mod items;

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, Identity, TextSoFar, error_in_stream, pairs, unreadable};
use super::conversation::{self, CALL, Entry, Ids, Step, ToolResult, entries, offer};
use super::lenient::{self, Index, Text};
use super::openai;
use super::schema::WireTool;
use super::written::WrittenTools;
use crate::provider::Provider;
use crate::{ModelError, ModelRequest};
use holdpoint_core::turn::FinishReason;
use holdpoint_egress::{ERROR, Framing};
use items::{Call, EventPlace, Item, Kind};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Models that do not reason, and refuse a request for reasoning. All newer models reason.
const WITHOUT_REASONING: [&str; 4] = ["gpt-3", "gpt-4", "gpt-5-chat", "chatgpt-"];

/// `{base_url}/responses` of OpenAI, with `store: false`.
pub(super) const WIRE: Wire = Wire {
    provider: Provider { name: "openai-responses", default_base_url: Some("https://api.openai.com/v1") },
    path: "/responses",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::Sse,
    tools: &openai::TOOLS,
    write_tool: |WireTool { name, description, parameters }| {
        json!({ "type": "function", "name": name, "description": description, "parameters": parameters,
                "strict": false })
    },
    body,
    reading: || Box::<Reader>::default(),
    #[cfg(test)]
    sample: tests::SAMPLE,
};

impl Provider {
    /// OpenAI, with `{base_url}/responses`.
    pub const OPENAI_RESPONSES: Self = WIRE.provider;
}

fn body(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value> {
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
    let offer = offer(request, &entries, &openai::TOOLS);
    if !offer.tools.is_empty() {
        body.insert("tools".to_owned(), tools.list(&offer.tools));
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: Text,
    item_id: Text,
    output_index: Index,
    /// The index of a part of a message, or of reasoning.
    content_index: Index,
    summary_index: Index,
    delta: Text,
    text: Text,
    refusal: Text,
    arguments: Option<Box<RawValue>>,
    part: Option<Value>,
    annotation: Option<Value>,
    item: Option<Value>,
    response: Option<Value>,
    error: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
    object: Text,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    /// The items of the answer, in their order.
    items: Vec<Item>,
    /// The arguments that precede the begin of their call, by the index and the id of the item.
    /// In order: of several that never get a call, each reading of the same bytes names the first.
    early: BTreeMap<(Option<u64>, Option<String>), String>,
}

impl AnswerReader for Reader {
    fn read(&mut self, name: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        // The name of an event repeats its type, and some servers send only the name.
        let event: Event = match serde_json::from_str(data) {
            Err(_) if name.is_some_and(|name| !name.starts_with("response.")) => return Ok(()),
            read => read.map_err(unreadable)?,
        };
        let kind = event.r#type.0.clone().or_else(|| name.map(str::to_owned)).unwrap_or_default();
        let place = EventPlace {
            item_id: event.item_id.filled(),
            output_index: event.output_index.0,
            part: event.content_index.0.or(event.summary_index.0),
        };
        let delta = event.delta.0.unwrap_or_default();
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.says(Kind::Message, &place, delta, answer);
            }
            "response.output_text.done" => self.said(Kind::Message, &place, event.text.0, answer),
            "response.refusal.done" => self.said(Kind::Message, &place, event.refusal.0, answer),
            "response.content_part.done" => {
                let text = event.part.as_ref().map(part_text);
                let is_reasoning =
                    event.part.is_some_and(|it| it.get("type").is_some_and(|it| it == "reasoning_text"));
                let kind = if is_reasoning { Kind::Reasoning } else { Kind::Message };
                self.said(kind, &place, text, answer);
            }
            "response.output_text.annotation.added" => source(&event.annotation.unwrap_or_default(), answer),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.says(Kind::Reasoning, &place, delta, answer);
            }
            "response.reasoning_summary_text.done" | "response.reasoning_text.done" => {
                self.said(Kind::Reasoning, &place, event.text.0, answer);
            }
            // Each summary part is a paragraph.
            "response.reasoning_summary_part.added" => {
                let at = self.item(Kind::Reasoning, &place);
                if let Some(item) = self.items.get_mut(at) {
                    item.parts.push((place.part, TextSoFar::default()));
                }
            }
            "response.output_item.added" => {
                let item = event.item.unwrap_or_default();
                if let Some(kind) = Kind::of(&item) {
                    self.added(kind, &place, &item, answer)?;
                }
            }
            "response.function_call_arguments.delta" => match self.call(&place) {
                Ok(call) => {
                    call.arguments = None;
                    answer.arguments(call.index, delta);
                }
                Err(early) => early.push_str(&delta),
            },
            "response.function_call_arguments.done" => {
                let whole = lenient::arguments(event.arguments).unwrap_or_default();
                match self.call(&place) {
                    Ok(call) => {
                        answer.whole_arguments(call.index, whole);
                        answer.call_ends(call.index);
                    }
                    Err(early) => *early = whole,
                }
            }
            "response.output_item.done" => {
                let item = event.item.unwrap_or_default();
                if let Some(kind) = Kind::of(&item) {
                    let at = self.meant_by(kind, &place, &item);
                    self.done(kind, at, &place, item, answer)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.completed(&event.response.unwrap_or_default(), answer)?;
            }
            "response.failed" | ERROR => {
                error_in_stream(event.response.as_ref().and_then(|response| response.get("error")))?;
                error_in_stream(event.error.as_ref())?;
                let flat = json!({ "code": event.code, "message": event.message });
                error_in_stream(Some(&flat))?;
            }
            "" => {
                error_in_stream(event.error.as_ref())?;
                // An answer that is not streamed.
                if event.object.as_str() == "response" {
                    self.completed(&serde_json::from_str(data).map_err(unreadable)?, answer)?;
                } else {
                    return Err(ModelError::Malformed("an event lacks its type".to_owned()));
                }
            }
            // An event about the response itself, or an unknown event.
            _ => {}
        }
        Ok(())
    }

    /// Returns the items in their order, if the server wants one back and the items contain all of the
    /// answer.
    fn state(&mut self, _: &Answer) -> Option<Value> {
        let is_whole = |item: &Item| match item.kind {
            Kind::Message => item.kept.is_some() || item.is_blank(),
            Kind::Call => item.kept.is_some(),
            Kind::Reasoning => true,
        };
        if !self.items.iter().all(is_whole) {
            return None;
        }
        let mut items: Vec<_> = self.items.drain(..).filter_map(|item| item.kept).collect();
        let is_needed = items.iter().any(|item| {
            let has = |field: &str| item.get(field).is_some_and(|value| !value.is_null());
            has("encrypted_content") || has("phase")
        });
        // The server refuses reasoning that no other item follows.
        let is_not_reasoning = |item: &Value| item.get("type").is_none_or(|kind| kind != "reasoning");
        items.truncate(items.iter().rposition(is_not_reasoning).map_or(0, |last| last.saturating_add(1)));
        (is_needed && !items.is_empty()).then(|| items.into())
    }
}

impl Reader {
    /// Returns the position of an item. Ids and indexes may be absent, and some servers give an item another id
    /// in each event, or one index to all items.
    fn find(&self, kind: Kind, place: &EventPlace) -> Option<usize> {
        let position =
            |fits: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|it| it.kind == kind && fits(it));
        let same_index = |it: &Item| {
            place.output_index.is_none() || it.output_index.is_none() || it.output_index == place.output_index
        };
        let by_id = position(&|it| place.item_id.is_some() && it.id == place.item_id && same_index(it));
        let by_index =
            || position(&|it| place.output_index.is_some() && it.output_index == place.output_index);
        let last = || {
            let is_open = |it: &Item| place.item_id.is_none() || it.id.is_none();
            position(&|it| place.output_index.is_none() && is_open(it) && !it.has_ended)
        };
        by_id.or_else(by_index).or_else(last)
    }

    /// Returns the position of the item of an event, and adds an item that was not announced.
    fn item(&mut self, kind: Kind, place: &EventPlace) -> usize {
        self.find(kind, place).unwrap_or_else(|| self.add(kind, place, None))
    }

    fn add(&mut self, kind: Kind, place: &EventPlace, call: Option<Call>) -> usize {
        self.items.push(Item {
            kind,
            id: place.item_id.clone(),
            output_index: place.output_index,
            parts: Vec::new(),
            call,
            has_ended: false,
            kept: None,
        });
        self.items.len().saturating_sub(1)
    }

    /// Returns the call of an event, or the arguments of a call that was not announced yet.
    fn call(&mut self, place: &EventPlace) -> Result<&mut Call, &mut String> {
        match self.find(Kind::Call, place).and_then(|at| self.items.get_mut(at)?.call.as_mut()) {
            Some(call) => Ok(call),
            None => Err(self.early.entry((place.output_index, place.item_id.clone())).or_default()),
        }
    }

    /// Adds a piece of a text.
    fn says(&mut self, kind: Kind, place: &EventPlace, piece: String, answer: &mut Answer) {
        let at = self.item(kind, place);
        self.separate(kind, at, place.part, &piece, answer);
        if let Some(said) = self.items.get_mut(at).and_then(|item| item.part(place.part)) {
            answer.say(field(kind), said, piece);
        }
    }

    /// Adds a whole part of a text.
    fn said(&mut self, kind: Kind, place: &EventPlace, whole: Option<String>, answer: &mut Answer) {
        let Some(whole) = whole.filter(|whole| !whole.is_empty()) else { return };
        let at = self.item(kind, place);
        self.separate(kind, at, place.part, &whole, answer);
        if let Some(said) = self.items.get_mut(at).and_then(|item| item.part(place.part)) {
            answer.say_whole(field(kind), said, whole);
        }
    }

    /// Separates a text from the one before it, if it begins: messages and paragraphs of reasoning are
    /// separated by a blank line.
    fn separate(&mut self, kind: Kind, at: usize, part: Option<u64>, piece: &str, answer: &mut Answer) {
        let Some(item) = self.items.get_mut(at) else { return };
        let begins = item.part(part).is_some_and(|said| said.is_empty()) && !piece.is_empty();
        let begins = begins && (kind == Kind::Reasoning || item.is_blank());
        let others = self.items.iter().filter(|it| it.kind == kind);
        let last =
            others.flat_map(|it| &it.parts).map(|(_, said)| said.text()).rfind(|text| !text.is_empty());
        if let Some(last) = last.filter(|_| begins) {
            let ends = last.bytes().rev().take_while(|byte| *byte == b'\n').count();
            answer.say(field(kind), &mut TextSoFar::default(), "\n".repeat(2_usize.saturating_sub(ends)));
        }
    }

    fn added(
        &mut self,
        kind: Kind,
        place: &EventPlace,
        item: &Value,
        answer: &mut Answer,
    ) -> Result<(), ModelError> {
        let text = |name: &str| item.get(name).map(lenient::text).filter(|text| !text.is_empty());
        let (id, call_id) = (text("id").or_else(|| place.item_id.clone()), text("call_id"));
        let place = EventPlace { item_id: id, output_index: place.output_index, part: None };
        let again = self.items.iter().any(|it| {
            let known = it.call.as_ref().and_then(|call| call.call_id.as_ref());
            let same_place = it.output_index == place.output_index && it.id == place.item_id;
            it.kind == kind
                && same_place
                && known == call_id.as_ref()
                && (it.id.is_some() || call_id.is_some())
        });
        if again {
            return Ok(());
        }
        let call = match kind {
            Kind::Call => {
                let index = answer.call(call_id.clone(), &text("name").unwrap_or_default())?;
                let early = self.early.remove(&(place.output_index, place.item_id.clone()));
                let has_early = early.is_some();
                answer.arguments(index, early.unwrap_or_default());
                Some(Call {
                    index,
                    call_id,
                    arguments: lenient::whole_arguments(item.get("arguments")).filter(|_| !has_early),
                })
            }
            Kind::Message | Kind::Reasoning => None,
        };
        self.add(kind, &place, call);
        Ok(())
    }

    /// Returns the position of the item that is done.
    fn meant_by(&self, kind: Kind, place: &EventPlace, item: &Value) -> Option<usize> {
        let text = |name: &str| item.get(name).map(lenient::text).filter(|text| !text.is_empty());
        let call_id = text("call_id");
        let by_call = self.items.iter().rposition(|it| {
            let same_index = it.output_index == place.output_index || place.output_index.is_none();
            let known = it.call.as_ref().and_then(|call| call.call_id.as_ref());
            it.kind == kind && known.is_some() && known == call_id.as_ref() && same_index
        });
        let id = text("id").or_else(|| place.item_id.clone());
        by_call.or_else(|| {
            self.find(kind, &EventPlace { item_id: id, output_index: place.output_index, part: None })
        })
    }

    /// Reads a whole item: what its events did not say.
    fn done(
        &mut self,
        kind: Kind,
        at: Option<usize>,
        place: &EventPlace,
        whole: Value,
        answer: &mut Answer,
    ) -> Result<(), ModelError> {
        let at = match at {
            Some(at) => at,
            None => {
                self.added(kind, place, &whole, answer)?;
                self.items.len().saturating_sub(1)
            }
        };
        let kept = match kind {
            Kind::Call => {
                let Some(call) = self.items.get_mut(at).and_then(|item| item.call.as_mut()) else {
                    return Ok(());
                };
                let arguments =
                    lenient::whole_arguments(whole.get("arguments")).or_else(|| call.arguments.take());
                answer.whole_arguments(call.index, arguments.unwrap_or_default());
                answer.call_ends(call.index);
                let mut kept = json!({ CALL: call.index });
                if let (Some(id), Some(fields)) = (whole.get("id"), kept.as_object_mut()) {
                    fields.insert("id".to_owned(), id.clone());
                }
                Some(kept)
            }
            Kind::Message => {
                let parts = whole.get("content").and_then(Value::as_array);
                let parts: Vec<_> = parts.into_iter().flatten().collect();
                let text: String = parts.iter().map(|part| part_text(part)).collect();
                let same = self.unsaid(kind, at, &text, "", answer);
                for part in parts {
                    let annotations = part.get("annotations").and_then(Value::as_array);
                    annotations.into_iter().flatten().for_each(|annotation| source(annotation, answer));
                }
                // An item without its text would lose the text for the model.
                same.then_some(whole)
            }
            Kind::Reasoning => {
                let texts = |field: &str| {
                    let parts = whole.get(field).and_then(Value::as_array).into_iter().flatten();
                    parts.map(part_text).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
                };
                let text = Some(texts("summary")).filter(|text| !text.is_empty());
                self.unsaid(kind, at, &text.unwrap_or_else(|| texts("content")), "\n\n", answer);
                // An item without its encrypted content cannot go back, because the server has not stored it.
                whole.get("encrypted_content").is_some_and(|it| !it.is_null()).then_some(whole)
            }
        };
        if let Some(item) = self.items.get_mut(at) {
            item.has_ended = true;
            item.kept = kept.or_else(|| item.kept.take());
        }
        Ok(())
    }

    /// Adds what the whole text of an item has and its parts have not. Returns whether the item then has
    /// exactly this text.
    fn unsaid(&mut self, kind: Kind, at: usize, whole: &str, between: &str, answer: &mut Answer) -> bool {
        let Some(item) = self.items.get(at) else { return false };
        let said: Vec<_> =
            item.parts.iter().map(|(_, said)| said.text()).filter(|text| !text.is_empty()).collect();
        let said = said.join(between);
        match whole.strip_prefix(&said) {
            Some("") => true,
            Some(rest) => {
                self.separate(kind, at, None, rest, answer);
                if let Some(said) = self.items.get_mut(at).and_then(|item| item.part(None)) {
                    answer.say(field(kind), said, rest.to_owned());
                }
                true
            }
            None => false,
        }
    }

    /// Reads the whole response at its end: what its events did not say.
    fn completed(&mut self, response: &Value, answer: &mut Answer) -> Result<(), ModelError> {
        error_in_stream(response.get("error"))?;
        if let Some((index, _)) = self.early.keys().next() {
            let number = index.unwrap_or_default();
            return Err(ModelError::Malformed(format!("item {number} has arguments but is no call")));
        }
        let output = response.get("output").and_then(Value::as_array).into_iter().flatten();
        let output: Vec<_> = output.filter_map(|whole| Some((Kind::of(whole)?, whole))).collect();
        let said = self.items.iter().map(|item| {
            let call = item.call.as_ref();
            let name = call.map(|call| answer.name_of(call.index)).unwrap_or_default();
            let call_id = call.and_then(|call| call.call_id.clone());
            Identity { name: format!("{:?} {name}", item.kind), ids: [item.id.clone(), call_id] }
        });
        let said: Vec<_> = said.collect();
        let whole = output.iter().map(|(kind, whole)| {
            let text = |name: &str| whole.get(name).map(lenient::text).filter(|text| !text.is_empty());
            let name = text("name").filter(|_| *kind == Kind::Call).unwrap_or_default();
            Identity { name: format!("{kind:?} {name}"), ids: [text("id"), text("call_id")] }
        });
        let whole: Vec<_> = whole.collect();
        for ((kind, whole), pair) in output.into_iter().zip(pairs(&whole, &said)) {
            self.done(kind, pair, &EventPlace::default(), whole.clone(), answer)?;
        }
        answer.counts(response.get("usage"));
        let status = response.get("status").and_then(Value::as_str).unwrap_or_default();
        match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some(why) => answer.ends_with(why)?,
            None if matches!(status, "failed" | "cancelled") => {
                return Err(ModelError::Upstream(format!("its answer is {status}")));
            }
            None if self.items.iter().any(|item| item.kind == Kind::Call) => {
                answer.ends(FinishReason::ToolCalls)
            }
            None => answer.ends(FinishReason::Stop),
        }
        // A call whose begin was complete, and of which nothing else was said.
        for call in self.items.iter_mut().filter_map(|item| item.call.as_mut()) {
            if let Some(arguments) = call.arguments.take() {
                answer.whole_arguments(call.index, arguments);
            }
        }
        answer.over();
        Ok(())
    }
}

const fn field(kind: Kind) -> Field {
    match kind {
        Kind::Reasoning => Field::Reasoning,
        Kind::Message | Kind::Call => Field::Text,
    }
}

/// Returns the text of a part of a message or of reasoning.
fn part_text(part: &Value) -> String {
    let texts = ["text", "refusal"].into_iter().filter_map(|field| part.get(field));
    texts.map(lenient::text).collect()
}

fn source(annotation: &Value, answer: &mut Answer) {
    if annotation.get("type").is_some_and(|kind| kind == "url_citation") {
        answer.source(annotation.get("url"), annotation.get("title"));
    }
}

#[cfg(test)]
mod tests;
