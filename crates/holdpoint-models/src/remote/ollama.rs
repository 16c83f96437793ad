//! `{base_url}/api/chat` of Ollama (API reference, "Generate a chat completion"): one JSON object per line.

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, TextSoFar, error_in_stream, unreadable};
use super::conversation::{Ids, Step, ToolResult, entries};
use super::lenient::{self, List, Text};
use super::openai;
use super::schema::{ACCEPTED, SchemaRules};
use super::written::WrittenTools;
use crate::provider::Provider;
use crate::{ModelError, ModelRequest, ToolChoice};
use holdpoint_core::turn::FinishReason;
use holdpoint_egress::Framing;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const THINKING: &str = "thinking";

/// The templates of its models write properties without following references.
pub(super) const TOOLS: SchemaRules = SchemaRules { references: false, ..ACCEPTED };

/// `{base_url}/api/chat`.
pub(super) const WIRE: Wire = Wire {
    provider: Provider { name: "ollama", default_base_url: Some("http://127.0.0.1:11434") },
    path: "/api/chat",
    key_header: ("authorization", "Bearer "),
    headers: &[],
    framing: Framing::JsonLines,
    tools: &TOOLS,
    write_tool: openai::write_tool,
    body,
    reading: || Box::<Reader>::default(),
    #[cfg(test)]
    sample: tests::SAMPLE,
};

impl Provider {
    /// Ollama.
    pub const OLLAMA: Self = WIRE.provider;
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::tests::{
        Dice, FAILED, MeantAnswer, MeantCall, Part, Position, Sample, StreamWriter, line_of, object_or_text,
        state, written,
    };

    /// The wire in the tests of all wires.
    pub(super) const SAMPLE: Sample = Sample {
        url: "http://127.0.0.1:9/v1/api/chat",
        headers: &[("authorization", "Bearer k")],
        replaceable: &[],
        errors: &[(r#"{"error":"no"}"#, FAILED)],
        unfinished_call: None,
        conversation,
        returns_state,
        streams: StreamWriter {
            has: |part| !matches!(part, Part::Source(..) | Part::File(..)),
            write,
            finish,
            separates: false,
            done: None,
        },
        elsewhere,
    };

    #[rustfmt::skip]
    fn conversation() -> Value {
        let input = json!({"b": 1, "a": 2});
        json!({"model": "m", "stream": true, "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "(no reply)"},
            {"role": "user", "content": "y"},
            {"role": "assistant", "content": "Hm.", "tool_calls": [
                {"id": "1", "function": {"name": "go", "arguments": input}}, {"id": "a b", "function": {"name": "go", "arguments": input}}]},
            {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "1"},
            {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "a b"},
        ]})
    }

    #[rustfmt::skip]
    fn returns_state() {
        let thought = json!({"message": {"thinking": "So.", "tool_calls": [{"function": {"name": "go"}}]}, "done": true});
        assert_eq!(written(WIRE, state(WIRE, &thought.to_string()))["messages"][4]["thinking"], "So.");
    }

    fn write(part: &Part, _: Position, dice: &mut Dice, events: &mut Vec<Value>) {
        let mut push = |message: Value| events.push(json!({ "message": message, "done": false }));
        match part {
            Part::Text(text) => dice.pieces(text).iter().for_each(|it| push(json!({ "content": it }))),
            Part::Reasoning(text) => {
                dice.pieces(text).iter().for_each(|it| push(json!({ "content": "", "thinking": it })));
            }
            Part::Call { id, name, arguments } => push(json!({ "content": "",
                "tool_calls": [{ "id": id, "function": { "name": name, "arguments": arguments } }] })),
            Part::Source(..) | Part::File(..) => {}
        }
    }

    fn finish(_: bool, events: &mut Vec<Value>) {
        events.push(json!({ "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4 }));
    }

    fn elsewhere(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
        let mut messages: Vec<_> =
            dice.pieces(&meant.reasoning).iter().map(|it| json!({ "content": "", "thinking": it })).collect();
        let pieces = dice.pieces(&meant.text);
        messages.extend(pieces.iter().map(|it| json!({ "content": it })));
        let calls: Value = meant
            .calls
            .iter()
            .map(|MeantCall { id, name, input }| json!({ "id": id, "function": { "name": name, "arguments": object_or_text(input, dice) } }))
            .collect();
        messages.push(json!({ "tool_calls": calls }));
        let mut events: Vec<_> = messages.iter().map(|it| json!({ "message": it, "done": false })).collect();
        let mut last = json!({ "content": "" });
        if pieces.iter().filter(|it| !it.is_empty()).count() > 1 && dice.roll(2) == 0 {
            last["content"] = json!(meant.text);
        }
        if dice.roll(2) == 0 {
            last["tool_calls"] = calls;
        }
        events.push(json!({ "message": last, "done": true, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4.0 }));
        events.iter().map(Value::to_string).collect()
    }

    #[rustfmt::skip]
    #[test]
    fn finish_reasons_and_token_counts_are_read() {
        let read = |events: &[&str]| line_of(WIRE, events);
        let thought = r#"{"message":{"thinking":"So."}}"#;
        assert_eq!(read(&[thought, r#"{"done":true,"done_reason":"length"}"#, thought]), "(So.) length");
        let call = r#"{"message":{"tool_calls":[{"function":{"name":"go"}}]}}"#;
        let done = r#"{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#;
        assert_eq!(read(&[call, done]), "<0 go# 0> tool-calls 3/2");
    }
}
