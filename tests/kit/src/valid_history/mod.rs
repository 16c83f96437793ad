//! The providers' rules for a conversation, as a check of the request that carries it.
//!
//! A reader for each wire converts the conversation into one form and checks the rules of that provider. The
//! rules of all providers are checked here, and those of strict servers in `rules`: a request of any test has to keep
//! them all.

pub(crate) mod faults;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use super::wires::WIRES;
use holdpoint::llm::{ModelCall, ModelMessage, ModelRequest};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The conversation in a request to the model.
#[derive(Debug, PartialEq)]
pub struct Conversation {
    pub entries: Vec<Entry>,
    /// The names of the offered tools.
    pub tools: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub enum Entry {
    Words {
        by: Speaker,
        text: String,
    },
    /// A message of the model with calls.
    Calls {
        text: String,
        calls: Vec<Call>,
    },
    /// Consecutive answers to calls.
    Answers(Vec<Answer>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speaker {
    System,
    User,
    Model,
}

#[derive(Debug, PartialEq)]
pub struct Call {
    /// Absent on some wires.
    pub id: Option<String>,
    pub tool: String,
    pub arguments: Value,
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub id: Option<String>,
    /// Absent on wires that do not repeat it.
    pub tool: Option<String>,
    pub text: String,
}

/// Checks that a provider accepts this request, on the wire of its path. Each call has exactly one answer,
/// directly after its message, in the order of the calls. Ids are unique, arguments are JSON objects, no
/// message is empty, the last message is not the model's, and the rules of this provider hold.
pub fn valid_request(path: &str, body: &Value) -> Result<(), String> {
    conversation(path, body).map(drop)
}

/// The conversation of a valid request.
pub fn conversation(path: &str, body: &Value) -> Result<Conversation, String> {
    let path = path.split('?').next().unwrap_or_default();
    let wire = WIRES.iter().find(|wire| path.ends_with(wire.path_end()));
    let wire = wire.ok_or(format!("{path} is the path of no wire"))?;
    let conversation = wire.read(body)?;
    check(&conversation.entries)?;
    if let Some(refusal) = rules::refusal(*wire, &conversation) {
        return Err(refusal);
    }
    let mut names = HashSet::new();
    match conversation.tools.iter().find(|name| !names.insert(*name)) {
        Some(twice) => Err(format!("the tool {twice} is offered twice")),
        None => Ok(conversation),
    }
}

fn check(entries: &[Entry]) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut has_started = false;
    let mut rest = entries.iter().enumerate();
    while let Some((at, entry)) = rest.next() {
        match entry {
            Entry::Words { by, text } if text.is_empty() => {
                return Err(format!("{by:?} says nothing at {at}"));
            }
            Entry::Words { by: Speaker::System, .. } if has_started => {
                return Err(format!("instructions come late, at {at}"));
            }
            Entry::Words { by: Speaker::System, .. } => {}
            Entry::Words { by: Speaker::User, .. } => has_started = true,
            _ if !has_started => return Err("it does not begin with the user".to_owned()),
            Entry::Words { by: Speaker::Model, .. } => {}
            Entry::Answers(_) => {
                return Err(format!("what stands at {at} answers no call directly before it"));
            }
            Entry::Calls { calls, .. } => {
                let answers = match rest.next() {
                    Some((_, Entry::Answers(answers))) => answers.as_slice(),
                    _ => &[],
                };
                for (nth, call) in calls.iter().enumerate() {
                    if let Some(id) = call.id.as_ref().filter(|id| !ids.insert(id.as_str())) {
                        return Err(format!("the id {id} is there twice"));
                    }
                    answered(nth, call, answers.get(nth))?;
                }
                if answers.len() > calls.len() {
                    return Err(format!("{} answers for {} calls at {at}", answers.len(), calls.len()));
                }
            }
        }
    }
    match entries.last() {
        None => Err("nobody says anything".to_owned()),
        Some(Entry::Words { by: Speaker::User, .. } | Entry::Calls { .. } | Entry::Answers(_)) => Ok(()),
        Some(Entry::Words { .. }) => Err("the last word is not the user's".to_owned()),
    }
}

/// Checks one call against the answer at its position.
fn answered(nth: usize, call: &Call, answer: Option<&Answer>) -> Result<(), String> {
    let Call { id, tool, arguments } = call;
    let known = id.as_deref().unwrap_or("without id");
    if !is_plain(tool) {
        return Err(format!("call {known} calls {tool:?}, which is no name"));
    }
    if id.as_ref().is_some_and(String::is_empty) {
        return Err(format!("a call of {tool} has an empty id"));
    }
    if !arguments.is_object() {
        return Err(format!("the arguments of call {known} are no JSON object: {arguments}"));
    }
    let answer =
        answer.ok_or(format!("call {known}, number {nth}, has no answer directly behind its message"))?;
    if answer.id.is_some() && answer.id != *id {
        return Err(format!("{:?} is answered where {known} has to be", answer.id));
    }
    if answer.tool.as_ref().is_some_and(|answering| answering != tool) {
        return Err(format!("{:?} answers where {tool} has to", answer.tool));
    }
    if answer.text.is_empty() {
        return Err(format!("the answer of call {known} says nothing"));
    }
    Ok(())
}

/// Whether every provider accepts this name.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(plain)
}

/// The schema of the tool in a valid request.
pub(crate) fn look() -> Value {
    json!({ "type": "object", "properties": { "at": { "type": "integer" } } })
}

// Helpers shared by the readers.

/// The entries of a required list.
pub(crate) fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], String> {
    body[name].as_array().map(Vec::as_slice).ok_or(format!("{name} is no list: {}", body[name]))
}

/// A required text that is not empty.
pub(crate) fn text(of: &Value, name: &str) -> Result<String, String> {
    match of[name].as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("{name} says nothing in {of}")),
    }
}

/// An optional id.
pub(crate) fn id(of: &Value, name: &str) -> Result<Option<String>, String> {
    match &of[name] {
        Value::Null => Ok(None),
        Value::String(id) => Ok(Some(id.clone())),
        other => Err(format!("{name} is no text: {other}")),
    }
}

/// The arguments of a call, on wires that send them as text.
pub(crate) fn arguments(of: &Value) -> Result<Value, String> {
    let text = of["arguments"].as_str().ok_or(format!("arguments are no text in {of}"))?;
    serde_json::from_str(text).map_err(|_| format!("the arguments are no JSON: {text}"))
}

/// The entry for one message of the model.
pub(crate) fn spoken(text: String, calls: Vec<Call>) -> Entry {
    match calls.is_empty() {
        true => Entry::Words { by: Speaker::Model, text },
        false => Entry::Calls { text, calls },
    }
}

/// Adds an answer; consecutive answers form one entry.
pub(crate) fn answer(entries: &mut Vec<Entry>, answer: Answer) {
    match entries.last_mut() {
        Some(Entry::Answers(answers)) => answers.push(answer),
        _ => entries.push(Entry::Answers(vec![answer])),
    }
}

/// The same check for the request to a model in the test's own process, which has no wire.
pub fn valid_question(request: &ModelRequest) -> Result<(), String> {
    let mut entries: Vec<Entry> = Vec::new();
    for message in &request.messages {
        let entry = match message {
            ModelMessage::User(text) => Entry::Words { by: Speaker::User, text: text.clone() },
            ModelMessage::Assistant { text, calls, .. } => {
                let call = |call: &ModelCall| Call {
                    id: Some(call.id.clone()),
                    // A wire replaces such a name by one that its server accepts.
                    tool: if is_plain(&call.tool_name) { call.tool_name.clone() } else { "_".to_owned() },
                    arguments: Value::Object(call.input.clone()),
                };
                spoken(text.clone(), calls.iter().map(call).collect())
            }
            ModelMessage::Tool { call_id, text, .. } => {
                let answer = Answer { id: Some(call_id.clone()), tool: None, text: text.clone() };
                match entries.last_mut() {
                    Some(Entry::Answers(answers)) => {
                        answers.push(answer);
                        continue;
                    }
                    _ => Entry::Answers(vec![answer]),
                }
            }
        };
        entries.push(entry);
    }
    check(&entries)
}
