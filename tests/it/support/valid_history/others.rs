//! The wires of Anthropic and Gemini, which put text, calls and reasoning into one list.

use super::{Answer, By, Call, Conversation, Entry, id, is_plain, list, spoken, text, tool_names};
use serde_json::Value;

/// `/messages`.
pub(super) fn anthropic(body: &Value) -> Result<Conversation, String> {
    if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        return Err("max_tokens is missing".to_owned());
    }
    let mut said = Vec::new();
    if !body["system"].is_null() {
        said.push(Entry::Words { by: By::System, text: block_text(&body["system"])? });
    }
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("assistant") => said.push(assistant(message)?),
            Some("user") => user(message, &mut said)?,
            _ => return Err(format!("a role that there is not: {message}")),
        }
    }
    let tools = tool_names(&body["tools"], |tool| &tool["name"])?;
    if tools.is_empty() && said.iter().any(|entry| matches!(entry, Entry::Calls { .. })) {
        return Err("there are calls and no tools".to_owned());
    }
    Ok(Conversation { said, tools })
}

fn assistant(message: &Value) -> Result<Entry, String> {
    let mut words = String::new();
    let mut calls: Vec<Call> = Vec::new();
    if let Value::String(_) = message["content"] {
        return Ok(spoken(block_text(&message["content"])?, calls));
    }
    for block in list(message, "content")? {
        match block["type"].as_str() {
            Some("text") => words.push_str(&block_text(&Value::Array(vec![block.clone()]))?),
            Some("thinking" | "redacted_thinking") if !calls.is_empty() => {
                return Err(format!("a thought stands behind a call: {block}"));
            }
            Some("thinking") => drop((text(block, "thinking")?, text(block, "signature")?)),
            Some("redacted_thinking") => drop(text(block, "data")?),
            Some("tool_use") => {
                let (id, tool) = (text(block, "id")?, text(block, "name")?);
                if !is_plain(&id) {
                    return Err(format!("the id {id:?} has a form that is refused"));
                }
                calls.push(Call { id: Some(id), tool, arguments: block["input"].clone() });
            }
            _ => return Err(format!("a block that there is not: {block}")),
        }
    }
    Ok(spoken(words, calls))
}

/// Reads a user message. The answers to calls come first, before all text in the message.
fn user(message: &Value, said: &mut Vec<Entry>) -> Result<(), String> {
    if let Value::String(_) = message["content"] {
        said.push(Entry::Words { by: By::User, text: block_text(&message["content"])? });
        return Ok(());
    }
    let blocks = list(message, "content")?;
    let results = blocks.iter().take_while(|block| block["type"] == "tool_result").count();
    let (results, words) = blocks.split_at(results);
    if !results.is_empty() {
        let result = |block: &Value| {
            let id = Some(text(block, "tool_use_id")?);
            Ok(Answer { id, tool: None, text: block_text(&block["content"])? })
        };
        said.push(Entry::Answers(results.iter().map(result).collect::<Result<_, String>>()?));
    }
    if !words.is_empty() || results.is_empty() {
        said.push(Entry::Words { by: By::User, text: block_text(&Value::Array(words.to_vec()))? });
    }
    Ok(())
}

/// The text of a string or of text blocks, none of them blank.
fn block_text(content: &Value) -> Result<String, String> {
    let not_blank = |text: &str| match text.trim() {
        "" => Err(format!("a text is blank: {content}")),
        _ => Ok(text.to_owned()),
    };
    match content {
        Value::String(text) => not_blank(text),
        Value::Array(blocks) if !blocks.is_empty() => {
            let block = |block: &Value| match block["type"].as_str() {
                Some("text") => not_blank(block["text"].as_str().unwrap_or_default()),
                _ => Err(format!("no text where one has to be: {block}")),
            };
            blocks.iter().map(block).collect()
        }
        _ => Err(format!("nothing is said: {content}")),
    }
}

/// `:streamGenerateContent`.
pub(super) fn gemini(body: &Value) -> Result<Conversation, String> {
    let mut said = Vec::new();
    if !body["systemInstruction"].is_null() {
        let parts = list(&body["systemInstruction"], "parts")?;
        let text = parts.iter().map(|part| text(part, "text")).collect::<Result<_, _>>()?;
        said.push(Entry::Words { by: By::System, text });
    }
    for content in list(body, "contents")? {
        let parts = list(content, "parts")?;
        let entry = match content["role"].as_str() {
            Some("model") => model(parts)?,
            Some("user") if parts.iter().any(|part| !part["functionResponse"].is_null()) => {
                Entry::Answers(parts.iter().map(function_response).collect::<Result<_, _>>()?)
            }
            Some("user") => {
                let text = parts.iter().map(|part| text(part, "text")).collect::<Result<_, _>>()?;
                Entry::Words { by: By::User, text }
            }
            _ => return Err(format!("a role that there is not: {content}")),
        };
        if let (Entry::Calls { .. }, Some(Entry::Words { by: By::Model, .. })) = (&entry, said.last()) {
            return Err("a call stands behind other words of the model".to_owned());
        }
        said.push(entry);
    }
    let groups = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = groups.iter().map(|group| tool_names(&group["functionDeclarations"], |tool| &tool["name"]));
    let tools = names.collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Conversation { said, tools })
}

fn model(parts: &[Value]) -> Result<Entry, String> {
    let mut words = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match (&part["text"], &part["functionCall"]) {
            (Value::String(_), Value::Null) if part["thought"] == true => {}
            // A part with empty text may carry sealed reasoning.
            (Value::String(empty), Value::Null)
                if empty.is_empty() && part["thoughtSignature"].is_string() => {}
            (Value::String(_), Value::Null) => words.push_str(&text(part, "text")?),
            (Value::Null, call @ Value::Object(_)) => {
                let arguments = call["args"].clone();
                calls.push(Call { id: id(call, "id")?, tool: text(call, "name")?, arguments });
            }
            _ => return Err(format!("a part that there is not: {part}")),
        }
    }
    Ok(spoken(words, calls))
}

fn function_response(part: &Value) -> Result<Answer, String> {
    let answer = &part["functionResponse"];
    let response = answer["response"].as_object().ok_or(format!("response is no object: {part}"))?;
    // A result alone under this name is unwrapped; any other response is kept as it is.
    let told = match response.get("result").and_then(Value::as_str) {
        Some(result) if response.len() == 1 => result.to_owned(),
        _ if response.is_empty() => String::new(),
        _ => Value::Object(response.clone()).to_string(),
    };
    Ok(Answer { id: id(answer, "id")?, tool: Some(text(answer, "name")?), text: told })
}
