//! `{base_url}/api/chat` of Ollama (API reference, "Generate a chat completion"): one JSON object per line.

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, TextSoFar, error_in_stream, unreadable};
use super::conversation::{Ids, Step, ToolResult, entries};
use super::lenient::{self, List, Text};
use super::written::WrittenTools;
use super::{openai, schema};
use crate::provider::Provider;
use crate::{ModelError, ModelRequest, ToolChoice};
use holdpoint_core::turn::FinishReason;
use holdpoint_egress::Framing;
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
    write_tool: openai::write_tool,
    body,
    reading: || Box::<Reader>::default(),
};

fn body(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value> {
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
    // conversation even so.
    if !request.tools.is_empty() && request.tool_choice == ToolChoice::Auto {
        body.insert("tools".to_owned(), tools.list(&request.tools));
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
    done: Option<Value>,
    #[serde(default)]
    done_reason: Text,
    prompt_eval_count: Option<Value>,
    eval_count: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Text,
    #[serde(default)]
    thinking: Text,
    #[serde(default)]
    tool_calls: List<Call>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    id: Text,
    function: Option<Function>,
}

#[derive(Deserialize, Default)]
struct Function {
    #[serde(default)]
    name: Text,
    arguments: Option<Box<RawValue>>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    text: TextSoFar,
    thinking: TextSoFar,
    /// The id, the name and the arguments of each call.
    calls: Vec<(Option<String>, String, Option<String>)>,
}

impl AnswerReader for Reader {
    fn read(&mut self, _: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        let line: Line = serde_json::from_str(data).map_err(unreadable)?;
        error_in_stream(line.error.as_ref())?;
        let is_last = line.done.is_some_and(|done| done == true || done == "true");
        if let Some(message) = line.message {
            let say = if is_last { Answer::say_last } else { Answer::say };
            say(answer, Field::Reasoning, &mut self.thinking, message.thinking.0.unwrap_or_default());
            say(answer, Field::Text, &mut self.text, message.content.0.unwrap_or_default());
            for call in message.tool_calls.0 {
                self.call(call, is_last, answer)?;
            }
        }
        let count = |value: Option<Value>| lenient::count(value.as_ref());
        answer.usage(count(line.prompt_eval_count), count(line.eval_count));
        if is_last {
            answer.ends_with(line.done_reason.filled().as_deref().unwrap_or("stop"))?;
            if !self.calls.is_empty() && !answer.is_cut_off() {
                answer.ends(FinishReason::ToolCalls);
            }
            answer.over();
        }
        Ok(())
    }

    /// Returns the thinking of a step with calls. The model needs this thinking to continue after the calls.
    fn state(&mut self, _: &Answer) -> Option<Value> {
        let thinking = self.thinking.text();
        (!self.calls.is_empty() && !thinking.is_empty()).then(|| json!({ THINKING: thinking }))
    }
}

impl Reader {
    fn call(&mut self, call: Call, is_last: bool, answer: &mut Answer) -> Result<(), ModelError> {
        let Function { name, arguments } = call.function.unwrap_or_default();
        let call = (call.id.filled(), name.0.unwrap_or_default(), answer.as_written(arguments));
        // The last line may repeat the calls. Only an id tells a repetition from a second call.
        if is_last && call.0.is_some() && self.calls.contains(&call) {
            return Ok(());
        }
        self.calls.push(call.clone());
        let (id, name, arguments) = call;
        answer.whole_call(id, &name, arguments).map(|_| ())
    }
}
