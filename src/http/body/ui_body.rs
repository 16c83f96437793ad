//! The bodies of pages of AI SDK 5 to 7.
//!
//! Such a page posts its conversation, and states the purpose in `trigger` and `messageId`. The server reads
//! three things of the conversation: the text of user messages, the ids of messages, and decisions about held
//! calls. The rest is the page's own state, and is ignored.

use crate::chat::{Action, EarlierMessages, PostedDecision, PostedMessage, ShownCalls};
use crate::http::body::partial_json::FieldValue;
use crate::http::body::posted::{
    Bounds, Fields, Message, MessageParts, Name, PostedText, Role, Trigger, UnreadPart, content, given_name,
};
use crate::http::body::shown_messages;
use crate::http::failure::error::ApiError;
use crate::http::failure::error_code::ErrorCode;
use holdpoint_core::id::ToolCallId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The messages of a body, and their field names in errors.
struct Conversation {
    messages: Vec<Message>,
    alone: bool,
}

/// Whether a page of AI SDK 5 to 7 posted the body. Without `trigger`, the shape of the last message decides.
pub(in crate::http) fn is_ui(fields: &Fields) -> bool {
    let last = match &fields.message {
        FieldValue::Absent | FieldValue::Null => {
            fields.messages.as_is().and_then(|messages| messages.list.last())
        }
        FieldValue::Other => None,
        FieldValue::Is(message) => Some(message),
    };
    let in_parts = |message: &Message| !matches!(message.parts, FieldValue::Absent) && !message.has_content();
    !matches!(fields.trigger, FieldValue::Absent | FieldValue::Null) || last.is_some_and(in_parts)
}

/// What a page requests.
pub(in crate::http) struct Requested {
    pub(in crate::http) action: Action,
    /// The user messages that the page shows before its new one.
    pub(in crate::http) earlier: EarlierMessages,
}

impl From<Action> for Requested {
    fn from(action: Action) -> Self {
        Self { action, earlier: EarlierMessages::default() }
    }
}

/// Returns the action that the page requests.
pub(in crate::http) fn requested(fields: Fields, bounds: &Bounds) -> Result<Requested, ApiError> {
    let Fields { content, messages, message, trigger, message_id, .. } = fields;
    let alone = match message {
        FieldValue::Absent | FieldValue::Null => None,
        FieldValue::Other => Some(Message::default()),
        FieldValue::Is(message) => Some(message),
    };
    let conversation = match alone {
        Some(message) => Conversation { messages: vec![message], alone: true },
        None => {
            let messages = messages.given(|| ApiError::bad_request("messages: expected a list"))?;
            Conversation { messages: messages.unwrap_or_default().list, alone: false }
        }
    };
    let expected = "trigger: expected submit-message or regenerate-message";
    match trigger.given(|| ApiError::bad_request(expected))? {
        None | Some(Trigger::Submit) => {
            let words = content.given(|| ApiError::bad_request("content: expected a string"))?;
            submitted(words, conversation, message_id.is(), bounds)
        }
        Some(Trigger::Regenerate) => {
            let index = conversation.messages.iter().rposition(|message| message.is_of(Role::User));
            let earlier = conversation.before(index, bounds);
            let question = index.map(|index| conversation.message(index)).transpose()?;
            let action = Action::Regenerate { answer: given_name(message_id), question };
            Ok(Requested { action, earlier })
        }
    }
}

/// Returns the decisions about held calls on the page, oldest call first, with the hashes of the cards that the page
/// shows. A page posts its earlier decisions again with each request. Contradicting decisions about one call are
/// dropped.
pub(in crate::http) fn answers(fields: &mut Fields) -> Vec<PostedDecision> {
    let cards: HashMap<ToolCallId, String> =
        shown(fields).flat_map(|parts| std::mem::take(&mut parts.cards)).collect();
    let mut answers = BTreeMap::new();
    for answer in shown(fields).flat_map(|parts| std::mem::take(&mut parts.answers)) {
        match answers.entry(answer.tool_call_id) {
            Entry::Vacant(entry) => {
                entry.insert(Some(answer));
            }
            Entry::Occupied(mut entry) => {
                let before: &mut Option<PostedDecision> = entry.get_mut();
                if before.as_ref().is_some_and(|before| before.approved != answer.approved) {
                    *before = None;
                }
            }
        }
    }
    let with_card = |answer: PostedDecision| {
        let input_hash = cards.get(&answer.tool_call_id).cloned();
        PostedDecision { input_hash, ..answer }
    };
    answers.into_values().flatten().map(with_card).collect()
}

/// Returns the calls that the page shows as approved, whatever the state of their parts.
pub(in crate::http) fn approved(fields: &mut Fields) -> HashSet<ToolCallId> {
    shown(fields).flat_map(|parts| std::mem::take(&mut parts.approved)).collect()
}

/// Returns the calls that the page shows without an end, and those whose decisions it has.
pub(in crate::http) fn shown_calls(fields: &mut Fields) -> ShownCalls {
    let mut calls = ShownCalls::default();
    for parts in shown(fields) {
        calls.open.extend(std::mem::take(&mut parts.open));
        calls.decided.extend(std::mem::take(&mut parts.decided));
        calls.on_time.extend(std::mem::take(&mut parts.on_time));
    }
    calls
}

/// Iterates over the parts in the conversation, and in the message that is posted next to it.
fn shown(fields: &mut Fields) -> impl Iterator<Item = &mut MessageParts> {
    let history = match &mut fields.messages {
        FieldValue::Is(messages) => messages.list.as_mut_slice(),
        FieldValue::Absent | FieldValue::Null | FieldValue::Other => &mut [],
    };
    let alone = match &mut fields.message {
        FieldValue::Is(message) => Some(message),
        FieldValue::Absent | FieldValue::Null | FieldValue::Other => None,
    };
    history.iter_mut().chain(alone).filter_map(|message| match &mut message.parts {
        FieldValue::Is(parts) => Some(parts),
        FieldValue::Absent | FieldValue::Null | FieldValue::Other => None,
    })
}

/// Returns the text of a user message: that of its text parts, or of `content` if the text parts are empty.
pub(in crate::http) fn words(message: &Message, field: &str) -> Result<String, ApiError> {
    match (&message.parts, &message.content) {
        (FieldValue::Is(MessageParts { words, .. }), _) if !words.text.is_empty() => {
            let index = words.nul_at.unwrap_or_default();
            content(words, &format!("{field}.parts[{index}].text"))
        }
        (_, FieldValue::Is(text)) => content(text, &format!("{field}.content")),
        (FieldValue::Is(_), _) => Ok(String::new()),
        (FieldValue::Absent, _) => Err(ApiError::bad_request(format!("{field}.content: expected a string"))),
        (FieldValue::Null | FieldValue::Other, _) => {
            Err(ApiError::bad_request(format!("{field}.parts: expected a list")))
        }
    }
}

fn checked_words(message: &Message, field: &str) -> Result<String, ApiError> {
    check_parts(message, field)?;
    words(message, field)
}

/// Refuses a user message with a part that no model can be given, so that its author does not take the part
/// for read. `field` is the path of the message.
pub(in crate::http) fn check_parts(message: &Message, field: &str) -> Result<(), ApiError> {
    let in_parts = message.parts.as_is().and_then(|parts| parts.unread.as_ref());
    let odd = UnreadPart::malformed("experimental_attachments".to_owned(), "not a list");
    let attached = || match &message.attachments {
        FieldValue::Is(attached) => attached.0.as_ref(),
        FieldValue::Other => Some(&odd),
        FieldValue::Absent | FieldValue::Null => None,
    };
    let Some(UnreadPart { path, kind, media_type }) = in_parts.or_else(attached) else { return Ok(()) };
    let media_type = media_type.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    let message = format!("{field}.{path} ({kind}{media_type}): models are given text only");
    Err(ApiError::unprocessable(ErrorCode::UnsupportedPart, message))
}

impl Conversation {
    fn field(&self, index: usize) -> String {
        if self.alone { "message".to_owned() } else { format!("messages[{index}]") }
    }

    /// Returns the user messages directly before the one with this index.
    fn before(&self, index: Option<usize>, bounds: &Bounds) -> EarlierMessages {
        let before = index.and_then(|index| self.messages.get(..index)).unwrap_or_default();
        shown_messages::earlier(before, checked_words, bounds.message_bytes)
    }

    /// Returns a user message. The text may be empty.
    fn message(mut self, index: usize) -> Result<PostedMessage, ApiError> {
        let field = self.field(index);
        let message = self.messages.get_mut(index).map(std::mem::take).unwrap_or_default();
        check_parts(&message, &field)?;
        let words = words(&message, &field)?;
        let user_text = Some(words).filter(|words| !words.is_empty());
        Ok(PostedMessage { user_text, id: given_name(message.id) })
    }

    /// Returns a user message that must have text in its parts. A message with `content` only may be empty,
    /// which means a continuation.
    fn posted_message(self, index: usize) -> Result<PostedMessage, ApiError> {
        let field = self.field(index);
        let in_content =
            |posted: &Message| posted.has_content() && matches!(posted.parts, FieldValue::Absent);
        let may_be_empty = self.messages.get(index).is_some_and(in_content);
        let message = self.message(index)?;
        if message.user_text.is_none() && !may_be_empty {
            return Err(ApiError::bad_request(format!("{field}.parts: expected a text part with words")));
        }
        Ok(message)
    }
}

/// Returns the action of `submit-message`: a new or edited user message, or a continuation.
fn submitted(
    words: Option<PostedText>,
    conversation: Conversation,
    named: Option<Name>,
    bounds: &Bounds,
) -> Result<Requested, ApiError> {
    let messages = &conversation.messages;
    let has_name = |message: &Message| named.is_some() && message.name() == named.as_ref();
    // The message that `messageId` names decides the action. Without such a message in the body, the last
    // message does.
    let index = messages.iter().rposition(has_name).or(messages.len().checked_sub(1));
    let message_there = index.and_then(|index| messages.get(index));
    let user = index.filter(|_| message_there.is_some_and(|message| message.is_of(Role::User)));
    let (posted_message, earlier) = match (words.filter(|words| !words.text.is_empty()), user) {
        (Some(words), _) => {
            let message = PostedMessage { user_text: Some(content(&words, "content")?), id: None };
            (message, EarlierMessages::default())
        }
        (None, Some(index)) => {
            let earlier = conversation.before(Some(index), bounds);
            (conversation.posted_message(index)?, earlier)
        }
        (None, None) => {
            let last = message_there.filter(|message| message.is_of(Role::Assistant));
            let message = named.or_else(|| last?.name().cloned());
            return Ok(Action::Continue { message: message.map(|name| name.0) }.into());
        }
    };
    let action = match (posted_message, named) {
        (PostedMessage { user_text: Some(text), .. }, Some(message)) => {
            Action::Edit { message: message.0, text }
        }
        (PostedMessage { user_text: Some(text), id }, None) => Action::New { text, client_id: id },
        (PostedMessage { user_text: None, .. }, message) => {
            Action::Continue { message: message.map(|name| name.0) }
        }
    };
    Ok(Requested { action, earlier })
}
