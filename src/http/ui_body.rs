//! What pages of AI SDK 5 to 7 post.
//!
//! They post the conversation as they hold it, and say by `trigger` and `messageId` what for. Three things of it are
//! read: the words of a user message, the names of messages, and a person's answers to held calls. Everything else is
//! a page's own memory, and passed over.

use super::chat_body::{content, name};
use super::error::ApiError;
use super::validate::REASON_MAX;
use crate::chat::{PostedAnswer, PostedMessage, Wants};
use crate::domain::id::ToolCallId;
use serde_json::{Map, Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::slice;

/// Between the text parts of one message. Their borders mean something to whoever made them, and a reload shows them
/// as one text, in which words must not run together.
const BETWEEN_PARTS: &str = "\n";

/// The messages of a body, and how its fields are called in an error.
#[derive(Clone, Copy)]
struct Posted<'a> {
    messages: &'a [Value],
    alone: bool,
}

/// What a page says it posts for.
enum Trigger {
    Submit,
    Regenerate,
}

/// Whether it is such a page that posts this. Its last message tells, where it does not say so itself.
pub(super) fn is_ui(fields: &Map<String, Value>) -> bool {
    let last = Posted::of(fields).ok().and_then(|posted| posted.messages.last());
    let in_parts = |message: &Value| {
        message.get("parts").is_some() && !message.get("content").is_some_and(Value::is_string)
    };
    given(fields, "trigger").is_some() || last.is_some_and(in_parts)
}

/// What the page wants.
pub(super) fn wants(fields: &Map<String, Value>) -> Result<Wants, ApiError> {
    let posted = Posted::of(fields)?;
    let named = name(fields.get("messageId"));
    match trigger(fields)? {
        Trigger::Submit => submitted(fields, posted, named),
        Trigger::Regenerate => {
            let question = match posted.messages.iter().rposition(|message| is_of(message, "user")) {
                Some(place) => Some(posted.message(place)?),
                None => None,
            };
            Ok(Wants::Regenerate { answer: named, question })
        }
    }
}

/// The answers to held calls that the page remembers, oldest call first: those of before come along for ever. A call that it says
/// both yes and no to is not answered.
pub(super) fn answers(fields: &Map<String, Value>) -> Vec<PostedAnswer> {
    let mut answers = BTreeMap::new();
    for answer in shown(fields).filter_map(answer) {
        match answers.entry(answer.tool_call_id) {
            Entry::Vacant(place) => {
                place.insert(Some(answer));
            }
            Entry::Occupied(mut place) => {
                let before: &mut Option<PostedAnswer> = place.get_mut();
                if before.as_ref().is_some_and(|before| before.approved != answer.approved) {
                    *before = None;
                }
            }
        }
    }
    answers.into_values().flatten().collect()
}

/// The words of a user message: those of its text parts, or if it has none, its `content`.
pub(super) fn words(message: &Value, field: &str) -> Result<String, ApiError> {
    let in_parts = match message.get("parts") {
        Some(Value::Array(parts)) => Some(words_of(parts, field)?),
        _ => None,
    };
    match (in_parts.filter(|words| !words.is_empty()), message.get("content"), message.get("parts")) {
        (Some(words), ..) => Ok(words),
        (None, Some(Value::String(text)), _) => content(text, &format!("{field}.content")),
        (None, _, Some(Value::Array(_))) => Ok(String::new()),
        (None, _, None) => Err(ApiError::bad_request(format!("{field}.content: expected a string"))),
        (None, _, Some(_)) => Err(ApiError::bad_request(format!("{field}.parts: expected a list"))),
    }
}

fn words_of(parts: &[Value], field: &str) -> Result<String, ApiError> {
    let mut words = String::new();
    for (place, part) in parts.iter().enumerate() {
        let text = part.get("text").and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(text) = text.filter(|_| part.get("type").and_then(Value::as_str) == Some("text")) else {
            continue;
        };
        if !words.is_empty() {
            words.push_str(BETWEEN_PARTS);
        }
        words.push_str(&content(text, &format!("{field}.parts[{place}].text"))?);
    }
    Ok(words)
}

/// Whose a posted message is.
pub(super) fn is_of(message: &Value, role: &str) -> bool {
    message.get("role").and_then(Value::as_str) == Some(role)
}

impl<'a> Posted<'a> {
    /// The last message alone, or the conversation.
    fn of(fields: &'a Map<String, Value>) -> Result<Self, ApiError> {
        if let Some(message) = given(fields, "message") {
            return Ok(Self { messages: slice::from_ref(message), alone: true });
        }
        let messages = match given(fields, "messages") {
            None => &[],
            Some(Value::Array(messages)) => messages.as_slice(),
            Some(_) => return Err(ApiError::bad_request("messages: expected a list")),
        };
        Ok(Self { messages, alone: false })
    }

    fn field(self, place: usize) -> String {
        if self.alone { "message".to_owned() } else { format!("messages[{place}]") }
    }

    /// A user's message, of which it is not asked that it has words.
    fn message(self, place: usize) -> Result<PostedMessage, ApiError> {
        let message = self.messages.get(place).unwrap_or(&Value::Null);
        let words = words(message, &self.field(place))?;
        let user_text = Some(words).filter(|words| !words.is_empty());
        Ok(PostedMessage { user_text, id: name(message.get("id")) })
    }

    /// The same, with words in its parts. One of `content` alone may be empty, which means to go on.
    fn said(self, place: usize) -> Result<PostedMessage, ApiError> {
        let message = self.message(place)?;
        let in_content = |posted: &Value| {
            posted.get("content").is_some_and(Value::is_string) && posted.get("parts").is_none()
        };
        if message.user_text.is_none() && !self.messages.get(place).is_some_and(in_content) {
            let field = self.field(place);
            return Err(ApiError::bad_request(format!("{field}.parts: expected a text part with words")));
        }
        Ok(message)
    }
}

fn given<'a>(fields: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    fields.get(field).filter(|value| !value.is_null())
}

fn trigger(fields: &Map<String, Value>) -> Result<Trigger, ApiError> {
    match given(fields, "trigger").map(|trigger| trigger.as_str()) {
        None | Some(Some("submit-message")) => Ok(Trigger::Submit),
        Some(Some("regenerate-message")) => Ok(Trigger::Regenerate),
        Some(_) => Err(ApiError::bad_request("trigger: expected submit-message or regenerate-message")),
    }
}

/// A message that is said or edited, or one to go on with.
fn submitted(
    fields: &Map<String, Value>,
    posted: Posted<'_>,
    named: Option<String>,
) -> Result<Wants, ApiError> {
    let has_name = |message: &Value| named.is_some() && name(message.get("id")) == named;
    let place_named = posted.messages.iter().rposition(has_name);
    // What the page names tells what it is about; otherwise, and where it posts something else, its last message.
    let place = place_named.or(posted.messages.len().checked_sub(1));
    let user = place.filter(|place| posted.messages.get(*place).is_some_and(|it| is_of(it, "user")));
    let words = given(fields, "content").filter(|words| *words != "");
    let said = match (words, user) {
        (Some(Value::String(text)), _) => {
            PostedMessage { user_text: Some(content(text, "content")?), id: None }
        }
        (Some(_), _) => return Err(ApiError::bad_request("content: expected a string")),
        (None, Some(place)) => posted.said(place)?,
        (None, None) => {
            let last = place.and_then(|place| posted.messages.get(place));
            let last = last.filter(|message| is_of(message, "assistant"));
            let message = named.or_else(|| name(last?.get("id")));
            return Ok(Wants::Continue { message });
        }
    };
    Ok(match (said, named) {
        (PostedMessage { user_text: Some(text), .. }, Some(message)) => Wants::Edit { message, text },
        (PostedMessage { user_text: Some(text), id }, None) => Wants::New { text, client_id: id },
        (PostedMessage { user_text: None, .. }, message) => Wants::Continue { message },
    })
}

/// The calls that the page shows somebody's yes to, however far it shows them.
pub(super) fn approved(fields: &Map<String, Value>) -> HashSet<ToolCallId> {
    let yes = |part: &Value| {
        let approval =
            part.get("approval").filter(|approval| approval.get("approved") == Some(&json!(true)))?;
        approval.get("id")?.as_str()?.parse().ok()
    };
    shown(fields).filter_map(yes).collect()
}

/// The parts of the answers that the page shows, in its conversation and in the message that it posts beside it.
fn shown(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let history = given(fields, "messages").and_then(Value::as_array).into_iter().flatten();
    let all = history.chain(given(fields, "message"));
    let of_assistant = all.filter(|message| is_of(message, "assistant"));
    of_assistant.filter_map(|message| message.get("parts")?.as_array()).flatten()
}

/// A person's answer. What is not wholly of its shape is none: least of all a yes.
fn answer(part: &Value) -> Option<PostedAnswer> {
    let kind = part.get("type")?.as_str()?;
    let of_call = kind.starts_with("tool-") || kind == "dynamic-tool";
    if !of_call || part.get("state")?.as_str()? != "approval-responded" {
        return None;
    }
    let approval = part.get("approval")?;
    let reason = match approval.get("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => readable(reason),
        Some(_) => return None,
    };
    Some(PostedAnswer {
        tool_call_id: approval.get("id")?.as_str()?.parse().ok()?,
        approved: approval.get("approved")?.as_bool()?,
        reason,
    })
}

/// A reason as it can be stored. It is cut, not refused: the page that holds it posts it for ever.
fn readable(reason: &str) -> Option<String> {
    let reason: String = reason.chars().filter(|char| *char != '\0').take(REASON_MAX).collect();
    Some(reason).filter(|reason| !reason.trim().is_empty())
}
