//! `{base_url}/messages` of Anthropic (API reference, "Messages" and "Streaming Messages").

use super::Wire;
use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::conversation::{CALL, Call, Entry, Ids, Step, ToolResult, entries, offer, spoken};
use super::schema::{self, WireTool};
use crate::config::Provider;
use crate::domain::turn::FinishReason;
use crate::egress::Framing;
use crate::llm::{ModelError, ModelRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The default of the required field `max_tokens`. All recent models support it. `model.options` sets another
/// value.
const MAX_TOKENS: u64 = 8192;
/// The most blocks in one answer. A server that sends more is faulty.
const BLOCKS_MAX: usize = 4096;

/// `{base_url}/messages` of Anthropic.
pub(super) const WIRE: Wire = Wire {
    provider: Provider::ANTHROPIC,
    path: "/messages",
    key_header: ("x-api-key", ""),
    headers: &[("anthropic-version", "2023-06-01")],
    framing: Framing::Sse,
    tools: &schema::ANTHROPIC,
    body,
    reading: || Box::<Reader>::default(),
};

/// The body of a request.
fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("max_tokens".to_owned(), MAX_TOKENS.into());
    body.insert("stream".to_owned(), true.into());
    if let Some(system) = &request.system {
        body.insert("system".to_owned(), system.as_str().into());
    }
    let entries = entries(&request.messages, Ids::Plain);
    body.insert("messages".to_owned(), messages(&entries));
    let offer = offer(request, &entries, &schema::ANTHROPIC);
    let tools = schema::ANTHROPIC.tools(&offer.tools).map(|WireTool { name, description, parameters }| {
        json!({ "name": name, "description": description, "input_schema": parameters })
    });
    if !offer.tools.is_empty() {
        body.insert("tools".to_owned(), tools.collect());
        if !offer.may_call {
            body.insert("tool_choice".to_owned(), json!({ "type": "none" }));
        }
    }
    body
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
struct Event<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    index: Option<u64>,
    message: Option<Value>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    citation: Option<Value>,
    stop_reason: Option<String>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    blocks: Vec<(u64, AnswerBlock)>,
    input_tokens: Option<u64>,
}

/// A block of the answer.
enum AnswerBlock {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    Redacted(String),
    /// `input` is the input in the first event of the block. It counts if no pieces follow.
    Call {
        index: usize,
        input: Option<Value>,
    },
    Other,
}

impl Reading for Reader {
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        let event: Event<'_> = serde_json::from_str(data).map_err(unreadable)?;
        match &*event.r#type {
            "message_start" => self.usage(event.message.as_ref().and_then(|it| it.get("usage")), answer),
            "content_block_start" => {
                let (index, block) = event.index.zip(event.content_block).ok_or_else(|| lacks("block"))?;
                self.begin(index, block, answer)?;
            }
            "content_block_delta" => {
                let (index, delta) = event.index.zip(event.delta).ok_or_else(|| lacks("delta"))?;
                self.delta(index, delta, answer)?;
            }
            "content_block_stop" => {
                let block_at = self.blocks.iter_mut().rfind(|(index, _)| event.index == Some(*index));
                if let Some((_, AnswerBlock::Call { index, input })) = block_at {
                    if let Some(input) = input.take() {
                        answer.arguments(*index, input.to_string());
                    }
                    answer.call_ends(*index);
                }
            }
            "message_delta" => {
                self.usage(event.usage.as_ref(), answer);
                match event.delta.unwrap_or_default().stop_reason.as_deref() {
                    None => {}
                    Some("end_turn" | "stop_sequence") => answer.ends(FinishReason::Stop),
                    Some("tool_use") => answer.ends(FinishReason::ToolCalls),
                    Some("max_tokens" | "model_context_window_exceeded") => answer.ends(FinishReason::Length),
                    Some("refusal") => answer.ends(FinishReason::ContentFilter),
                    Some(_) => answer.ends(FinishReason::Other),
                }
            }
            "message_stop" => answer.over(),
            "error" => {
                error_in_stream(event.error.as_ref())?;
                return Err(ModelError::Upstream("error in the stream: no message".to_owned()));
            }
            // A ping or an unknown event.
            _ => {}
        }
        Ok(())
    }

    /// Returns the blocks in their order, if they contain thinking. Thinking is signed, and goes back
    /// unchanged.
    fn state(&mut self) -> Option<Value> {
        let blocks = std::mem::take(&mut self.blocks);
        // Counts the blocks that go back. The server refuses thinking at the end of a message.
        let (mut signed, mut last_kept) = (false, 0);
        let mut kept: Vec<Value> = Vec::new();
        for (_, block) in blocks {
            match block {
                AnswerBlock::Thinking { thinking, signature } if !signature.is_empty() => {
                    signed = true;
                    kept.push(json!({ "type": "thinking", "thinking": thinking, "signature": signature }));
                }
                AnswerBlock::Redacted(data) => {
                    signed = true;
                    kept.push(json!({ "type": "redacted_thinking", "data": data }));
                }
                AnswerBlock::Text(text) if !text.trim().is_empty() => {
                    kept.push(json!({ "type": "text", "text": text }));
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
        let tokens = |field: &str| usage.get(field).and_then(Value::as_u64);
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
        let cached = cached.into_iter().filter_map(tokens).fold(0, u64::saturating_add);
        // The last of the usage messages repeats the input tokens or omits them.
        if let Some(input) = tokens("input_tokens") {
            self.input_tokens = self.input_tokens.max(Some(input.saturating_add(cached)));
        }
        answer.usage(self.input_tokens, tokens("output_tokens"));
    }

    fn begin(&mut self, index: u64, block: Block, answer: &mut Answer) -> Result<(), ModelError> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(ModelError::Malformed(format!("more than {BLOCKS_MAX} blocks")));
        }
        if self.blocks.iter().any(|(block_at, _)| *block_at == index) {
            return Err(ModelError::Malformed(format!("block {index} begins twice")));
        }
        let read = match block.r#type.as_str() {
            "text" => {
                let text = block.text.unwrap_or_default();
                answer.text(text.clone());
                AnswerBlock::Text(text)
            }
            "thinking" => {
                let thinking = block.thinking.unwrap_or_default();
                answer.reasoning(thinking.clone());
                AnswerBlock::Thinking { thinking, signature: block.signature.unwrap_or_default() }
            }
            "redacted_thinking" => AnswerBlock::Redacted(block.data.unwrap_or_default()),
            "tool_use" => {
                let input =
                    block.input.filter(|input| input.as_object().is_none_or(|input| !input.is_empty()));
                let index = answer.call(block.id, block.name.as_deref().unwrap_or_default())?;
                AnswerBlock::Call { index, input: input.filter(|input| !input.is_null()) }
            }
            _ => AnswerBlock::Other,
        };
        self.blocks.push((index, read));
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: Delta, answer: &mut Answer) -> Result<(), ModelError> {
        let block_at = self.blocks.iter_mut().rfind(|(block_at, _)| *block_at == index);
        let (_, block) =
            block_at.ok_or_else(|| ModelError::Malformed(format!("block {index} never began")))?;
        match block {
            AnswerBlock::Text(_) | AnswerBlock::Thinking { .. } if delta.partial_json.is_some() => {
                return Err(ModelError::Malformed(format!("block {index} has arguments but is no call")));
            }
            AnswerBlock::Text(text) => {
                let more = delta.text.unwrap_or_default();
                text.push_str(&more);
                answer.text(more);
                let of_the_web =
                    |it: &Value| it.get("type").is_some_and(|it| it == "web_search_result_location");
                if let Some(page) = delta.citation.filter(of_the_web) {
                    answer.source(page.get("url"), page.get("title"));
                }
            }
            AnswerBlock::Thinking { thinking, signature } => {
                let more = delta.thinking.unwrap_or_default();
                thinking.push_str(&more);
                answer.reasoning(more);
                signature.push_str(delta.signature.as_deref().unwrap_or_default());
            }
            AnswerBlock::Call { index, input } => {
                if let Some(piece) = delta.partial_json.filter(|piece| !piece.is_empty()) {
                    *input = None;
                    answer.arguments(*index, piece);
                }
            }
            AnswerBlock::Redacted(_) | AnswerBlock::Other => {}
        }
        Ok(())
    }
}

fn lacks(what: &str) -> ModelError {
    ModelError::Malformed(format!("an event lacks its {what}"))
}
