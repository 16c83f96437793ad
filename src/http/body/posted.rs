//! The fields that the server reads of a chat body, up to the length that can matter.
//!
//! Pages post their whole state. A text longer than its limit is cut to a text that is still too long, so the
//! cut text never equals a stored text.
//!
//! Nothing that a client sends is authority. Of a posted history the server reads the text of user messages, ids, and
//! decisions.

use crate::http::body::partial_json::{FieldValue, Kept, Reader};
pub(in crate::http) use crate::http::body::posted_part::MessageParts;
pub(in crate::http) use crate::http::body::posted_text::{Bounds, PostedText, content};
use crate::http::body::posted_text::{cut, kept};
pub(in crate::http) use crate::http::body::unread_part::{Attached, UnreadPart};
use serde::de::{MapAccess, SeqAccess};
use std::collections::HashSet;

/// Maximum length of the name that a caller gives to a thread or a message, in characters.
pub(in crate::http) const CLIENT_ID_MAX: usize = 64;
/// Maximum number of messages in a body.
pub(in crate::http) const MESSAGES_MAX: usize = 50_000;
/// Length after which the name of a model or a tool is cut, in bytes.
const LABEL_BYTES: usize = 1024;

/// A chat body.
#[derive(Debug)]
pub(in crate::http) enum Posted {
    /// Only the text of a new message.
    Text(PostedText),
    Fields(Box<Fields>),
}

/// The fields of a chat body.
#[derive(Debug, Default)]
pub(in crate::http) struct Fields {
    pub(in crate::http) id: FieldValue<Name>,
    pub(in crate::http) content: FieldValue<PostedText>,
    pub(in crate::http) model: FieldValue<Label>,
    pub(in crate::http) tool_selection: FieldValue<Labels>,
    pub(in crate::http) messages: FieldValue<Messages>,
    pub(in crate::http) message: FieldValue<Message>,
    pub(in crate::http) trigger: FieldValue<Trigger>,
    pub(in crate::http) message_id: FieldValue<Name>,
}

/// The name that a page gave to a thread or a message: 1 to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct Name(pub(in crate::http) String);

/// The name of a model or a tool.
#[derive(Debug)]
pub(in crate::http) struct Label(pub(in crate::http) String);

/// Distinct names of tools, at most one more than there are tools: in a list of that length at least one name
/// is unknown.
#[derive(Debug)]
pub(in crate::http) struct Labels(pub(in crate::http) Vec<String>);

/// The purpose that a page states for its request.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) enum Trigger {
    Submit,
    Regenerate,
}

/// The conversation that a page posts.
#[derive(Debug, Default)]
pub(in crate::http) struct Messages {
    pub(in crate::http) list: Vec<Message>,
    /// Whether the body has further messages, which are not kept.
    pub(in crate::http) too_many: bool,
}

/// A message as a page posts it. A message that is not an object has no fields.
#[derive(Debug, Default)]
pub(in crate::http) struct Message {
    pub(in crate::http) role: FieldValue<Role>,
    pub(in crate::http) id: FieldValue<Name>,
    /// Empty, except in a user message.
    pub(in crate::http) content: FieldValue<PostedText>,
    pub(in crate::http) parts: FieldValue<MessageParts>,
    /// Empty, except in a user message.
    pub(in crate::http) attachments: FieldValue<Attached>,
}

/// The role of a posted message. Other roles are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Role {
    User,
    Assistant,
}

impl Message {
    pub(in crate::http) fn is_of(&self, role: Role) -> bool {
        self.role.as_is() == Some(&role)
    }

    pub(in crate::http) fn has_content(&self) -> bool {
        self.content.as_is().is_some()
    }

    pub(in crate::http) fn name(&self) -> Option<&Name> {
        self.id.as_is()
    }

    /// Drops the fields that only a message of another role has.
    fn keep_own_fields(&mut self) {
        let (of_user, of_assistant) = (self.is_of(Role::User), self.is_of(Role::Assistant));
        if let (FieldValue::Is(words), false) = (&mut self.content, of_user) {
            *words = PostedText::default();
        }
        if !of_user {
            self.attachments = FieldValue::Absent;
        }
        if let FieldValue::Is(parts) = &mut self.parts {
            if !of_user {
                (parts.words, parts.unread) = (PostedText::default(), None);
            }
            if !of_assistant {
                let (words, unread) = (std::mem::take(&mut parts.words), parts.unread.take());
                *parts = MessageParts { words, unread, ..MessageParts::default() };
            }
        }
    }
}

kept! {
    object Fields {
        "id" => id,
        "content" => content,
        "model" => model,
        "tool_selection" => tool_selection,
        "messages" => messages,
        "message" => message,
        "trigger" => trigger,
        "messageId" => message_id,
    }
}

impl Kept for Posted {
    type With = Bounds;

    fn of_text(text: &str, with: &Bounds) -> Option<Self> {
        Some(Self::Text(PostedText::of(text, *with)))
    }

    fn of_object() -> Option<Self> {
        Some(Self::Fields(Box::default()))
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match self {
            Self::Fields(fields) => fields.field(key, value, reader),
            Self::Text(_) => reader.skip(value),
        }
    }
}

kept! { text Name(text) => is_a_name(text).then(|| Self(text.to_owned())) }

kept! { text Label(text) => Some(Self(cut(text, LABEL_BYTES).to_owned())) }

impl Kept for Labels {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let (mut names, mut known) = (Vec::new(), HashSet::new());
        while let Some(item) = reader.item::<Label, A>(items)? {
            let FieldValue::Is(Label(name)) = item else {
                reader.skip_rest(items)?;
                return Ok(None);
            };
            if names.len() <= reader.with.tools && known.insert(name.clone()) {
                names.push(name);
            }
        }
        Ok(Some(Self(names)))
    }
}

kept! {
    word Trigger {
        "submit-message" => Submit,
        "regenerate-message" => Regenerate,
    }
}

impl Kept for Messages {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let mut messages = Self::default();
        while let Some(message) = reader.item::<Message, A>(items)? {
            if messages.list.len() == MESSAGES_MAX {
                messages.too_many = true;
                reader.skip_rest(items)?;
                break;
            }
            messages.list.push(message.is().unwrap_or_default());
        }
        Ok(Some(messages))
    }
}

kept! {
    object Message {
        "role" => role,
        "id" => id,
        "content" => content,
        "parts" => parts,
        "experimental_attachments" => attachments,
    } then keep_own_fields
}

kept! {
    word Role {
        "user" => User,
        "assistant" => Assistant,
    }
}

/// Whether a text is a valid name of a thread or a message.
fn is_a_name(text: &str) -> bool {
    let counted = text.chars().take(CLIENT_ID_MAX + 1).count();
    (1..=CLIENT_ID_MAX).contains(&counted) && !text.contains('\0')
}

/// Returns the name that a page gave to a thread or a message, if the name is valid.
pub(in crate::http) fn given_name(name: FieldValue<Name>) -> Option<String> {
    name.is().map(|name| name.0)
}
