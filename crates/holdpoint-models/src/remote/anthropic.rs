//! `{base_url}/messages` of Anthropic (API reference, "Messages" and "Streaming Messages").

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, Identity, TextSoFar, error_in_stream, pairs, unreadable};
use super::conversation::{CALL, Call, Entry, Ids, Step, ToolResult, entries, offer, spoken};
use super::lenient::{self, Index, List, Text};
use super::schema::{ACCEPTED, SchemaRules, WireTool};
use super::written::WrittenTools;
use crate::provider::Provider;
use crate::{ModelError, ModelRequest};
use holdpoint_egress::{ERROR, Framing};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The default of the required field `max_tokens`. All recent models support it. `model.options` sets another
/// value.
const MAX_TOKENS: u64 = 8192;
/// The types of events. A name that is none of them belongs to an event that is not of this wire.
const TYPES: [&str; 7] = [
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message",
];
/// The most blocks in one answer. A server that sends more is faulty.
const BLOCKS_MAX: usize = 4096;

/// "input_schema does not support oneOf, allOf, or anyOf at the top level", "It must match JSON Schema draft 2020-12", and
/// "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
pub(super) const TOOLS: SchemaRules = SchemaRules {
    property: |name| {
        (1..=64).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
    },
    ..ACCEPTED
};

/// `{base_url}/messages`.
pub(super) const WIRE: Wire = Wire {
    provider: Provider { name: "anthropic", default_base_url: Some("https://api.anthropic.com/v1") },
    path: "/messages",
    key_header: ("x-api-key", ""),
    headers: &[("anthropic-version", "2023-06-01")],
    framing: Framing::Sse,
    tools: &TOOLS,
    write_tool,
    body,
    reading: || Box::<Reader>::default(),
    #[cfg(test)]
    sample: tests::SAMPLE,
};

impl Provider {
    /// Anthropic.
    pub const ANTHROPIC: Self = WIRE.provider;
}

fn body(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("max_tokens".to_owned(), MAX_TOKENS.into());
    body.insert("stream".to_owned(), true.into());
    if let Some(system) = &request.system {
        body.insert("system".to_owned(), system.as_str().into());
    }
    let entries = entries(&request.messages, Ids::Plain);
    body.insert("messages".to_owned(), messages(&entries));
    let offer = offer(request, &entries, &TOOLS);
    if !offer.tools.is_empty() {
        body.insert("tools".to_owned(), tools.list(&offer.tools));
        if !offer.may_call {
            body.insert("tool_choice".to_owned(), json!({ "type": "none" }));
        }
    }
    body
}

fn write_tool(WireTool { name, description, parameters }: WireTool<'_>) -> Value {
    json!({ "name": name, "description": description, "input_schema": parameters })
}

fn messages(entries: &[Entry<'_>]) -> Value {
    let mut messages = Vec::new();
    for entry in entries {
        match entry {
            Entry::User(text) => messages.push(json!({ "role": "user", "content": spoken(text) })),
            Entry::Step(step) => {
                messages.push(json!({ "role": "assistant", "content": content_blocks(step) }));
                let answers: Vec<_> = step
                    .answers
                    .iter()
                    .map(|ToolResult { id, text, name: _ }| {
                        json!({ "type": "tool_result", "tool_use_id": id, "content": text })
                    })
                    .collect();
                if !answers.is_empty() {
                    messages.push(json!({ "role": "user", "content": answers }));
                }
            }
        }
    }
    messages.into()
}

fn content_blocks(step: &Step<'_>) -> Vec<Value> {
    let call = |call: &Call<'_>, _: Option<&Value>| {
        let Call { id, name, input } = call;
        json!({ "type": "tool_use", "id": id, "name": name, "input": input })
    };
    if let Some(blocks) = step.placed(call) {
        return blocks;
    }
    let mut content = Vec::new();
    if !step.text.trim().is_empty() || step.calls.is_empty() {
        content.push(json!({ "type": "text", "text": spoken(step.text) }));
    }
    content.extend(step.calls.iter().map(|made| call(made, None)));
    content
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    r#type: Text,
    #[serde(default)]
    index: Index,
    message: Option<Message>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    usage: Option<Value>,
    error: Option<Value>,
    /// The content of a message that is not streamed.
    #[serde(default)]
    content: List<Block>,
    #[serde(default)]
    stop_reason: Text,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<Value>,
    #[serde(default)]
    content: List<Block>,
    #[serde(default)]
    stop_reason: Text,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    r#type: Text,
    #[serde(default)]
    id: Text,
    #[serde(default)]
    name: Text,
    input: Option<Box<RawValue>>,
    #[serde(default)]
    text: Text,
    #[serde(default)]
    thinking: Text,
    #[serde(default)]
    signature: Text,
    #[serde(default)]
    data: Text,
}

#[derive(Deserialize, Default)]
struct Delta {
    #[serde(default)]
    text: Text,
    #[serde(default)]
    thinking: Text,
    #[serde(default)]
    signature: Text,
    #[serde(default)]
    partial_json: Text,
    citation: Option<Value>,
    #[serde(default)]
    stop_reason: Text,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    blocks: Vec<IndexedBlock>,
    input_tokens: Option<u64>,
}

/// A block of the answer, with its index.
struct IndexedBlock {
    index: Option<u64>,
    block: AnswerBlock,
    /// Whether the block has ended. Some servers give its index to the next block.
    has_ended: bool,
    /// Whether no event announced the block.
    is_unannounced: bool,
}

enum AnswerBlock {
    Text(TextSoFar),
    Thinking {
        thinking: TextSoFar,
        signature: String,
    },
    Redacted(String),
    /// `input` is the input in the first event of the block. It counts if no pieces follow.
    Call {
        index: usize,
        id: Option<String>,
        input: Option<String>,
    },
    Other,
}

impl AnswerBlock {
    /// Returns the field of the answer with the text of the block.
    const fn field(&self) -> Option<Field> {
        match self {
            Self::Text(_) => Some(Field::Text),
            Self::Thinking { .. } => Some(Field::Reasoning),
            Self::Redacted(_) | Self::Call { .. } | Self::Other => None,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Thinking { .. } => "thinking",
            Self::Redacted(_) => "redacted_thinking",
            Self::Call { .. } => "tool_use",
            Self::Other => "",
        }
    }
}

impl AnswerReader for Reader {
    fn read(&mut self, name: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        // The name of an event repeats its type, and some servers send only the name. A name that is no type of
        // this wire says that the event is not for this reader.
        let event: Event = match serde_json::from_str(data) {
            Err(_) if name.is_some_and(|name| !TYPES.contains(&name)) => return Ok(()),
            read => read.map_err(unreadable)?,
        };
        let kind = event.r#type.filled().or_else(|| name.map(str::to_owned)).unwrap_or_default();
        if kind.is_empty() {
            error_in_stream(event.error.as_ref())?;
            return Err(lacks("type"));
        }
        match kind.as_str() {
            "content_block_start" => {
                self.begin(event.index.0, event.content_block.ok_or_else(|| lacks("block"))?, answer)?;
            }
            "content_block_delta" => {
                self.delta(event.index.0, event.delta.ok_or_else(|| lacks("delta"))?, answer)?;
            }
            "content_block_stop" => self.stop(event.index.0, event.content_block, answer)?,
            "message_start" | "message_delta" | "message_stop" | "message" => {
                let delta = event.delta.unwrap_or_default();
                let message = event.message;
                self.usage(message.as_ref().and_then(|message| message.usage.as_ref()), answer);
                self.usage(event.usage.as_ref(), answer);
                let (content, reason) = message.map(|it| (it.content.0, it.stop_reason)).unwrap_or_default();
                self.whole(content, answer)?;
                self.whole(event.content.0, answer)?;
                for reason in
                    [reason, event.stop_reason, delta.stop_reason].into_iter().filter_map(Text::filled)
                {
                    answer.ends_with(&reason)?;
                }
                if matches!(kind.as_str(), "message_stop" | "message") {
                    self.end_calls(answer);
                    answer.over();
                }
            }
            ERROR => {
                error_in_stream(event.error.as_ref())?;
                return Err(super::failure::in_text(data));
            }
            // A ping or an unknown event.
            _ => {}
        }
        Ok(())
    }

    /// Returns the blocks in their order, if they contain thinking. Thinking is signed, and goes back
    /// unchanged.
    fn state(&mut self, _: &Answer) -> Option<Value> {
        let blocks = std::mem::take(&mut self.blocks);
        // Counts the blocks that go back. The server refuses thinking at the end of a message.
        let (mut signed, mut last_kept) = (false, 0);
        let mut kept: Vec<Value> = Vec::new();
        for IndexedBlock { block, .. } in blocks {
            match block {
                AnswerBlock::Thinking { thinking, signature } if !signature.is_empty() => {
                    signed = true;
                    let thinking = thinking.text();
                    kept.push(json!({ "type": "thinking", "thinking": thinking, "signature": signature }));
                }
                AnswerBlock::Redacted(data) => {
                    signed = true;
                    kept.push(json!({ "type": "redacted_thinking", "data": data }));
                }
                AnswerBlock::Text(text) if !text.text().trim().is_empty() => {
                    kept.push(json!({ "type": "text", "text": text.text() }));
                    last_kept = kept.len();
                }
                AnswerBlock::Call { index, .. } => {
                    kept.push(json!({ CALL: index }));
                    last_kept = kept.len();
                }
                AnswerBlock::Text(_) | AnswerBlock::Thinking { .. } | AnswerBlock::Other => {}
            }
        }
        kept.truncate(last_kept);
        (signed && last_kept > 0).then_some(Value::Array(kept))
    }
}

impl Reader {
    /// Input tokens include tokens that were read from a cache or written to a cache.
    fn usage(&mut self, usage: Option<&Value>, answer: &mut Answer) {
        let Some(usage) = usage else { return };
        let tokens = |field: &str| lenient::count(usage.get(field));
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
        let cached = cached.into_iter().filter_map(tokens).fold(0, u64::saturating_add);
        // The last of the usage messages repeats the input tokens or omits them.
        if let Some(input) = tokens("input_tokens") {
            self.input_tokens = self.input_tokens.max(Some(input.saturating_add(cached)));
        }
        answer.usage(self.input_tokens, tokens("output_tokens"));
    }

    /// Returns the last block with this index, or the last block.
    fn block(&mut self, index: Option<u64>) -> Option<&mut IndexedBlock> {
        self.blocks.iter_mut().rfind(|it| index.is_none() || it.index == index)
    }

    fn begin(&mut self, index: Option<u64>, block: Block, answer: &mut Answer) -> Result<(), ModelError> {
        self.has_room()?;
        let id = block.id.0.clone().filter(|id| !id.is_empty());
        let again = self.block(index).filter(|it| {
            let same_id = match &it.block {
                AnswerBlock::Call { id: known, .. } => known.is_some() && *known == id,
                _ => !it.has_ended,
            };
            index.is_some() && it.block.kind() == block.r#type.as_str() && same_id
        });
        if let Some(again) = again {
            // The begin of the block was sent again.
            fill(&mut again.block, block, answer);
            return Ok(());
        }
        let mut read = match block.r#type.as_str() {
            "text" => AnswerBlock::Text(TextSoFar::default()),
            "thinking" => AnswerBlock::Thinking { thinking: TextSoFar::default(), signature: String::new() },
            "redacted_thinking" => AnswerBlock::Redacted(String::new()),
            "tool_use" => {
                let index = answer.call(id.clone(), block.name.as_str())?;
                AnswerBlock::Call { index, id, input: None }
            }
            _ => AnswerBlock::Other,
        };
        fill(&mut read, block, answer);
        self.blocks.push(IndexedBlock { index, block: read, has_ended: false, is_unannounced: false });
        Ok(())
    }

    fn delta(&mut self, index: Option<u64>, delta: Delta, answer: &mut Answer) -> Result<(), ModelError> {
        let Delta { text, thinking, signature, partial_json, citation, stop_reason: _ } = delta;
        if let Some(piece) = partial_json.0 {
            let number = index.map(|index| index.to_string()).unwrap_or_default();
            let Some(IndexedBlock { block, .. }) = self.block(index) else {
                return Err(ModelError::Malformed(format!("block {number} never began")));
            };
            match block {
                AnswerBlock::Call { index, input, .. } if !piece.is_empty() => {
                    *input = None;
                    answer.arguments(*index, piece);
                }
                AnswerBlock::Text(_) | AnswerBlock::Thinking { .. } => {
                    return Err(ModelError::Malformed(format!(
                        "block {number} has arguments but is no call"
                    )));
                }
                AnswerBlock::Call { .. } | AnswerBlock::Redacted(_) | AnswerBlock::Other => {}
            }
        }
        for (field, piece) in [(Field::Text, text.filled()), (Field::Reasoning, thinking.filled())] {
            let Some(piece) = piece else { continue };
            if let Some(said) = self.said(field, index)? {
                answer.say(field, said, piece);
            }
        }
        if let Some(piece) = signature.filled()
            && let Some(IndexedBlock { block: AnswerBlock::Thinking { signature, .. }, .. }) =
                self.block(index)
        {
            signature.push_str(&piece);
        }
        let of_the_web = |it: &Value| it.get("type").is_some_and(|it| it == "web_search_result_location");
        if let Some(page) = citation.filter(of_the_web) {
            answer.source(page.get("url"), page.get("title"));
        }
        Ok(())
    }

    /// Returns the text of the block with this index, or of a new block. Some servers leave out the begin of a
    /// block, or name the block of a call.
    fn said(&mut self, field: Field, index: Option<u64>) -> Result<Option<&mut TextSoFar>, ModelError> {
        let fits = |at: &usize| self.blocks.get(*at).is_some_and(|it| it.block.field() == Some(field));
        let named = self.blocks.iter().rposition(|it| index.is_none() || it.index == index);
        let named = named.filter(fits);
        // The pieces of a text that no begin announced belong together.
        let last = self.blocks.len().checked_sub(1).filter(fits);
        let last = last.filter(|at| self.blocks.get(*at).is_some_and(|it| it.is_unannounced));
        let at = match named.or(last) {
            Some(at) => at,
            None => {
                self.has_room()?;
                let thinking =
                    AnswerBlock::Thinking { thinking: TextSoFar::default(), signature: String::new() };
                let text = AnswerBlock::Text(TextSoFar::default());
                let block = if field == Field::Text { text } else { thinking };
                self.blocks.push(IndexedBlock { index: None, block, has_ended: true, is_unannounced: true });
                self.blocks.len().saturating_sub(1)
            }
        };
        Ok(self.blocks.get_mut(at).and_then(|it| match &mut it.block {
            AnswerBlock::Text(said) | AnswerBlock::Thinking { thinking: said, .. } => Some(said),
            AnswerBlock::Redacted(_) | AnswerBlock::Call { .. } | AnswerBlock::Other => None,
        }))
    }

    fn has_room(&self) -> Result<(), ModelError> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(ModelError::Malformed(format!("more than {BLOCKS_MAX} blocks")));
        }
        Ok(())
    }

    /// Ends a block. Some servers repeat the whole block.
    fn stop(
        &mut self,
        index: Option<u64>,
        whole: Option<Block>,
        answer: &mut Answer,
    ) -> Result<(), ModelError> {
        if let Some(IndexedBlock { block, has_ended, .. }) = self.block(index) {
            *has_ended = true;
            if let Some(whole) = whole {
                fill(block, whole, answer);
            }
            end_call(block, answer);
        }
        Ok(())
    }

    /// Ends the calls whose input was complete in their first event.
    fn end_calls(&mut self, answer: &mut Answer) {
        for IndexedBlock { block, .. } in &mut self.blocks {
            if matches!(block, AnswerBlock::Call { input: Some(_), .. }) {
                end_call(block, answer);
            }
        }
    }

    /// Reads all blocks of a whole message: what the stream did not say.
    fn whole(&mut self, content: Vec<Block>, answer: &mut Answer) -> Result<(), ModelError> {
        let identity = |kind: &str, name: &str, id: Option<String>| Identity {
            name: format!("{kind} {name}"),
            ids: [id.filter(|id| !id.is_empty()), None],
        };
        let said = self.blocks.iter().map(|IndexedBlock { block, .. }| match block {
            AnswerBlock::Call { index, id, .. } => identity(block.kind(), answer.name_of(*index), id.clone()),
            _ => identity(block.kind(), "", None),
        });
        let said: Vec<_> = said.collect();
        let whole = content.iter().map(|it| identity(it.r#type.as_str(), it.name.as_str(), it.id.0.clone()));
        let whole: Vec<_> = whole.collect();
        for (whole, pair) in content.into_iter().zip(pairs(&whole, &said)) {
            match pair.and_then(|at| self.blocks.get_mut(at)) {
                Some(IndexedBlock { block, .. }) => {
                    fill(block, whole, answer);
                    end_call(block, answer);
                }
                None => {
                    self.begin(None, whole, answer)?;
                    if let Some(IndexedBlock { block, .. }) = self.blocks.last_mut() {
                        end_call(block, answer);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Adds what a whole block, or the begin of a block, says.
fn fill(block: &mut AnswerBlock, whole: Block, answer: &mut Answer) {
    match block {
        AnswerBlock::Text(text) => {
            answer.say_whole(Field::Text, text, whole.text.0.unwrap_or_default());
        }
        AnswerBlock::Thinking { thinking, signature } => {
            answer.say_whole(Field::Reasoning, thinking, whole.thinking.0.unwrap_or_default());
            if let Some(whole) = whole.signature.filled() {
                *signature = whole;
            }
        }
        AnswerBlock::Redacted(data) => {
            if let Some(whole) = whole.data.filled() {
                *data = whole;
            }
        }
        AnswerBlock::Call { index, input, .. } => {
            let is_empty =
                |input: &str| serde_json::from_str::<Map<String, Value>>(input).is_ok_and(|it| it.is_empty());
            let given = lenient::arguments(whole.input).filter(|input| !is_empty(input));
            let has_none = matches!(answer.arguments_of(*index).trim(), "" | "{}");
            if has_none && given.is_some() {
                *input = given;
            }
        }
        AnswerBlock::Other => {}
    }
}

fn end_call(block: &mut AnswerBlock, answer: &mut Answer) {
    if let AnswerBlock::Call { index, input, .. } = block {
        if let Some(input) = input.take() {
            answer.arguments(*index, input);
        }
        answer.call_ends(*index);
    }
}

fn lacks(what: &str) -> ModelError {
    ModelError::Malformed(format!("an event lacks its {what}"))
}

#[cfg(test)]
mod tests;
