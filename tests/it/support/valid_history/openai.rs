//! The two wires of OpenAI, and Ollama's, which resembles the first.

use super::{Answer, By, Call, Conversation, Entry, answer, arguments, id, list, spoken, text, tool_names};
use serde_json::Value;
use std::collections::HashSet;

/// `/chat/completions`: arguments are text, answers name their call.
pub(super) fn chat(body: &Value) -> Result<Conversation, String> {
    let call = |call: &Value| {
        if call["type"] != "function" {
            return Err(format!("it calls no function: {call}"));
        }
        let (id, function) = (text(call, "id")?, &call["function"]);
        Ok(Call { id: Some(id), tool: text(function, "name")?, arguments: arguments(function)? })
    };
    let answer = |message: &Value| {
        let id = Some(text(message, "tool_call_id")?);
        Ok(Answer { id, tool: None, text: text(message, "content")? })
    };
    messages(body, call, answer)
}

/// `/api/chat`: arguments are objects, answers name their tool.
pub(super) fn ollama(body: &Value) -> Result<Conversation, String> {
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = function["arguments"].clone();
        Ok(Call { id: id(call, "id")?, tool: text(function, "name")?, arguments })
    };
    let answer = |message: &Value| {
        let (id, tool) = (id(message, "tool_call_id")?, Some(text(message, "tool_name")?));
        Ok(Answer { id, tool, text: text(message, "content")? })
    };
    messages(body, call, answer)
}

fn messages(
    body: &Value,
    read_call: impl Fn(&Value) -> Result<Call, String>,
    read_answer: impl Fn(&Value) -> Result<Answer, String>,
) -> Result<Conversation, String> {
    let mut said = Vec::new();
    for message in list(body, "messages")? {
        let calls = match &message["tool_calls"] {
            Value::Null => Vec::new(),
            Value::Array(calls) if message["role"] == "assistant" && !calls.is_empty() => {
                calls.iter().map(&read_call).collect::<Result<_, _>>()?
            }
            _ => return Err(format!("these calls cannot be: {message}")),
        };
        let words = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Null if !calls.is_empty() => String::new(),
            _ => return Err(format!("content is no text: {message}")),
        };
        match message["role"].as_str() {
            Some("system") => said.push(Entry::Words { by: By::System, text: words }),
            Some("user") => said.push(Entry::Words { by: By::User, text: words }),
            Some("assistant") => said.push(spoken(words, calls)),
            Some("tool") => answer(&mut said, read_answer(message)?),
            _ => return Err(format!("a role that there is not: {message}")),
        }
    }
    Ok(Conversation { said, tools: tool_names(&body["tools"], |tool| &tool["function"]["name"])? })
}

/// `/responses`: the items of one step are consecutive, without another author's items in between.
pub(super) fn responses(body: &Value) -> Result<Conversation, String> {
    let mut said = Vec::new();
    if !body["instructions"].is_null() {
        said.push(Entry::Words { by: By::System, text: text(body, "instructions")? });
    }
    let mut ids = HashSet::new();
    let mut step = Step::default();
    for item in list(body, "input")? {
        if let Some(id) = id(item, "id")?.filter(|id| !ids.insert(id.clone())) {
            return Err(format!("the item {id} is there twice"));
        }
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("message", Some("assistant")) => step.says(&words(item)?),
            ("reasoning", None) => step.thinks(item, body)?,
            ("function_call", None) => {
                let (id, arguments) = (text(item, "call_id")?, arguments(item)?);
                if id.len() > 64 {
                    return Err(format!("the id {id} is too long"));
                }
                step.calls(Call { id: Some(id), tool: text(item, "name")?, arguments });
            }
            ("message", Some("user")) => {
                step.end(&mut said)?;
                said.push(Entry::Words { by: By::User, text: words(item)? });
            }
            ("function_call_output", None) => {
                step.end(&mut said)?;
                let id = Some(text(item, "call_id")?);
                answer(&mut said, Answer { id, tool: None, text: text(item, "output")? });
            }
            _ => return Err(format!("an item that there is not: {item}")),
        }
    }
    step.end(&mut said)?;
    Ok(Conversation { said, tools: tool_names(&body["tools"], |tool| &tool["name"])? })
}

/// Consecutive items of the model.
#[derive(Default)]
struct Step {
    text: String,
    calls: Vec<Call>,
    begun: bool,
    /// Whether reasoning is not followed by a text or a call yet.
    thinking: bool,
}

impl Step {
    fn says(&mut self, text: &str) {
        self.text.push_str(text);
        (self.begun, self.thinking) = (true, false);
    }

    fn calls(&mut self, call: Call) {
        self.calls.push(call);
        (self.begun, self.thinking) = (true, false);
    }

    fn thinks(&mut self, item: &Value, body: &Value) -> Result<(), String> {
        text(item, "id")?;
        list(item, "summary")?;
        if body["store"] == false {
            // The server has not stored the item, so the id alone is not enough.
            text(item, "encrypted_content")?;
        }
        (self.begun, self.thinking) = (true, true);
        Ok(())
    }

    fn end(&mut self, said: &mut Vec<Entry>) -> Result<(), String> {
        let Self { text, calls, begun, thinking } = std::mem::take(self);
        if thinking {
            return Err("a reasoning item stands without what it led to".to_owned());
        }
        if begun {
            said.push(spoken(text, calls));
        }
        Ok(())
    }
}

/// The text of a message, as one text or in parts.
fn words(item: &Value) -> Result<String, String> {
    match &item["content"] {
        Value::Array(parts) => parts.iter().map(|part| text(part, "text")).collect(),
        _ => text(item, "content"),
    }
}
