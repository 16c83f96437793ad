//! `{base_url}/api/chat` of Ollama (API reference, "Generate a chat completion"): one JSON object per line.

use super::Wire;
use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::conversation::{Ids, Step, ToolResult, entries};
use super::{openai, schema};
use crate::config::Provider;
use crate::domain::turn::FinishReason;
use crate::egress::Framing;
use crate::llm::{ModelError, ModelRequest, ToolChoice};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const THINKING: &str = "thinking";

/// `{base_url}/api/chat` of Ollama.
pub(super) const WIRE: Wire = Wire {
    provider: Provider::OLLAMA,
    path: "/api/chat",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::JsonLines,
    tools: &schema::OLLAMA,
    body,
    reading: || Box::<Reader>::default(),
};

/// The body of a request.
fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let messages = openai::messages(
        request.system.as_deref(),
        &entries(&request.messages, Ids::Own),
        assistant_message,
        |ToolResult { id, name, text }| json!({ "role": "tool", "content": text, "tool_name": name, "tool_call_id": id }),
    );
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("messages".to_owned(), messages.into());
    // Ollama has no choice of tools. Without tools a model answers with text, and Ollama takes calls in the
    // conversation all the same.
    if !request.tools.is_empty() && request.tool_choice == ToolChoice::Auto {
        let tools = schema::OLLAMA.tools(&request.tools).map(openai::written_tool);
        body.insert("tools".to_owned(), tools.collect());
    }
    body
}

fn assistant_message(step: &Step<'_>) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert("content".to_owned(), step.text.into());
    if let Some(thinking) = step.state().and_then(|state| state.get(THINKING)) {
        message.insert(THINKING.to_owned(), thinking.clone());
    }
    let calls = step
        .calls
        .iter()
        .map(|call| json!({ "id": call.id, "function": { "name": call.name, "arguments": call.input } }));
    if !step.calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.collect());
    }
    Value::Object(message)
}

#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
    done: Option<bool>,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    thinking: String,
    calls: bool,
}

impl Reading for Reader {
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        let line: Line = serde_json::from_str(data).map_err(unreadable)?;
        error_in_stream(line.error.as_ref())?;
        if let Some(message) = line.message {
            let thinking = message.thinking.unwrap_or_default();
            self.thinking.push_str(&thinking);
            answer.reasoning(thinking);
            answer.text(message.content.unwrap_or_default());
            for call in message.tool_calls.into_iter().flatten() {
                self.calls = true;
                let function = call.function.unwrap_or(Function { name: None, arguments: None });
                let name = function.name.unwrap_or_default();
                answer.whole_call(call.id.filter(|id| !id.is_empty()), &name, function.arguments)?;
            }
        }
        answer.usage(line.prompt_eval_count, line.eval_count);
        if line.done == Some(true) {
            answer.ends(match line.done_reason.as_deref() {
                Some("length") => FinishReason::Length,
                _ if self.calls => FinishReason::ToolCalls,
                None | Some("stop") => FinishReason::Stop,
                Some(_) => FinishReason::Other,
            });
            answer.over();
        }
        Ok(())
    }

    /// Returns the thinking of a step with calls. The model needs this thinking to continue after the calls.
    fn state(&mut self) -> Option<Value> {
        let thinking = std::mem::take(&mut self.thinking);
        (self.calls && !thinking.is_empty()).then(|| json!({ THINKING: thinking }))
    }
}
