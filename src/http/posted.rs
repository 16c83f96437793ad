//! The fields that the server reads of a chat body, up to the length that can matter.
//!
//! Pages post their whole state. A text longer than its limit is cut to a text that is still too long, so the
//! cut text never equals a stored text.

use super::partial_json::{Found, Kept, Reader};
use super::posted_text::cut;
pub(super) use super::posted_text::{Bounds, Words, content};
use super::unread_part::TypeName;
pub(super) use super::unread_part::{Attached, UnreadPart};
use super::validate::REASON_MAX;
use crate::chat::PostedDecision;
use crate::domain::id::ToolCallId;
use serde::de::{MapAccess, SeqAccess};
use std::collections::HashSet;

/// Maximum length of the name that a caller gives to a thread or a message, in characters.
pub(super) const CLIENT_ID_MAX: usize = 64;
/// Maximum number of messages in a body.
pub(super) const MESSAGES_MAX: usize = 50_000;
/// Length of a hash of the server, in bytes.
const HASH_BYTES: usize = 64;
/// Length after which the name of a model or a tool is cut, in bytes.
const LABEL_BYTES: usize = 1024;

/// A chat body.
#[derive(Debug)]
pub(super) enum Posted {
    /// Only the text of a new message.
    Text(Words),
    Fields(Box<Fields>),
}

/// The fields of a chat body.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) id: Found<Name>,
    pub(super) content: Found<Words>,
    pub(super) model: Found<Label>,
    pub(super) tool_selection: Found<Labels>,
    pub(super) messages: Found<Messages>,
    pub(super) message: Found<Message>,
    pub(super) trigger: Found<Trigger>,
    pub(super) message_id: Found<Name>,
}

/// The name that a page gave to a thread or a message: 1 to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

/// The name of a model or a tool.
#[derive(Debug)]
pub(super) struct Label(pub(super) String);

/// Distinct names of tools, at most one more than there are tools: in a list of that length at least one name
/// is unknown.
#[derive(Debug)]
pub(super) struct Labels(pub(super) Vec<String>);

/// The purpose that a page states for its request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trigger {
    Submit,
    Regenerate,
}

/// The conversation that a page posts.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) list: Vec<Message>,
    /// Whether the body has further messages, which are not kept.
    pub(super) too_many: bool,
}

/// A message as a page posts it. A message that is not an object has no fields.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) role: Found<Role>,
    pub(super) id: Found<Name>,
    /// Empty, except in a user message.
    pub(super) content: Found<Words>,
    pub(super) parts: Found<Parts>,
    /// Empty, except in a user message.
    pub(super) attachments: Found<Attached>,
}

/// The role of a posted message. Other roles are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    User,
    Assistant,
}

/// The kept content of the parts of a message.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The text of the text parts, in a user message.
    pub(super) words: Words,
    /// The decisions about held calls, in an assistant message.
    pub(super) answers: Vec<PostedDecision>,
    /// The hashes of the cards of held calls, in an assistant message.
    pub(super) cards: Vec<(ToolCallId, String)>,
    /// The calls that are shown as approved, in an assistant message.
    pub(super) approved: Vec<ToolCallId>,
    /// The first part that the model cannot be given, in a user message.
    pub(super) unread: Option<UnreadPart>,
    /// The calls that are shown without an end, in an assistant message.
    pub(super) open: Vec<ToolCallId>,
    /// The calls whose decisions the page has, in an assistant message.
    pub(super) decided: Vec<ToolCallId>,
    /// Those of them whose decision is not marked as one that an answer of the page came after.
    pub(super) on_time: Vec<ToolCallId>,
}

#[derive(Debug, Default)]
struct Part {
    kind: Found<Kind>,
    text: Found<Words>,
    state: Found<CallState>,
    approval: Found<Approval>,
    media_type: Found<TypeName>,
    id: Found<Id>,
    call: Found<Id>,
    invocation: Found<Invocation>,
    data: Found<HoldData>,
}

#[derive(Debug)]
enum Kind {
    Text,
    /// The beginning of a step, which has no content.
    StepStart,
    Call(TypeName),
    /// A part about a decision, which the server has sent.
    Decision(TypeName),
    /// The card of a held call, which the server has sent.
    Card(TypeName),
    Other(TypeName),
}

/// The state of a call that has no end on the page. Other states are not kept.
#[derive(Debug)]
enum CallState {
    Open,
    /// The page has a decision of its own.
    Responded,
}

/// A call on a page of AI SDK 4.
#[derive(Debug, Default)]
struct Invocation {
    state: Found<CallState>,
    call: Found<Id>,
}

#[derive(Debug, Default)]
struct Approval {
    id: Found<Id>,
    approved: Found<Flag>,
    reason: Found<Reason>,
}

/// The content of a part about a held call: of its decision, or of its card.
#[derive(Debug, Default)]
struct HoldData {
    late: Found<Flag>,
    input_hash: Found<Hash>,
}

#[derive(Debug, Clone, Copy)]
struct Id(ToolCallId);

#[derive(Debug, Clone, Copy)]
struct Flag(bool);

/// A hash of the server, cut if it is longer than one: then it equals none.
#[derive(Debug)]
struct Hash(String);

/// A reason, cut to the length that can be stored. A refusal would repeat for every later request, because
/// the page posts the reason again each time.
#[derive(Debug)]
struct Reason(String);

impl Message {
    pub(super) fn is_of(&self, role: Role) -> bool {
        self.role.as_is() == Some(&role)
    }

    pub(super) fn has_content(&self) -> bool {
        self.content.as_is().is_some()
    }

    /// Returns the name of the message, if it has one.
    pub(super) fn name(&self) -> Option<&Name> {
        self.id.as_is()
    }
}

impl Kept for Posted {
    type With = Bounds;

    fn of_text(text: &str, with: &Bounds) -> Option<Self> {
        Some(Self::Text(Words::of(text, *with)))
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
        let Self::Fields(fields) = self else { return reader.skip(value) };
        match key {
            "id" => fields.id = reader.value(value)?,
            "content" => fields.content = reader.value(value)?,
            "model" => fields.model = reader.value(value)?,
            "tool_selection" => fields.tool_selection = reader.value(value)?,
            "messages" => fields.messages = reader.value(value)?,
            "message" => fields.message = reader.value(value)?,
            "trigger" => fields.trigger = reader.value(value)?,
            "messageId" => fields.message_id = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }
}

impl Kept for Name {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        let counted = text.chars().take(CLIENT_ID_MAX + 1).count();
        let fits = (1..=CLIENT_ID_MAX).contains(&counted) && !text.contains('\0');
        fits.then(|| Self(text.to_owned()))
    }
}

impl Kept for Label {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        Some(Self(cut(text, LABEL_BYTES).to_owned()))
    }
}

impl Kept for Labels {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let (mut names, mut known) = (Vec::new(), HashSet::new());
        while let Some(item) = reader.item::<Label, A>(items)? {
            let Found::Is(Label(name)) = item else {
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

impl Kept for Trigger {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        match text {
            "submit-message" => Some(Self::Submit),
            "regenerate-message" => Some(Self::Regenerate),
            _ => None,
        }
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

impl Kept for Message {
    type With = Bounds;

    fn of_object() -> Option<Self> {
        Some(Self::default())
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match key {
            "role" => self.role = reader.value(value)?,
            "id" => self.id = reader.value(value)?,
            "content" => self.content = reader.value(value)?,
            "parts" => self.parts = reader.value(value)?,
            "experimental_attachments" => self.attachments = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }

    fn finish(&mut self) {
        let (of_user, of_assistant) = (self.is_of(Role::User), self.is_of(Role::Assistant));
        if let (Found::Is(words), false) = (&mut self.content, of_user) {
            *words = Words::default();
        }
        if !of_user {
            self.attachments = Found::Absent;
        }
        if let Found::Is(parts) = &mut self.parts {
            if !of_user {
                (parts.words, parts.unread) = (Words::default(), None);
            }
            if !of_assistant {
                let (words, unread) = (std::mem::take(&mut parts.words), parts.unread.take());
                *parts = Parts { words, unread, ..Parts::default() };
            }
        }
    }
}

impl Kept for Role {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        match text {
            "user" => Some(Self::User),
            "assistant" => Some(Self::Assistant),
            _ => None,
        }
    }
}

impl Kept for Parts {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let mut parts = Self::default();
        let mut index = 0;
        while let Some(item) = reader.item::<Part, A>(items)? {
            let Found::Is(part) = item else {
                let malformed = || UnreadPart::malformed(format!("parts[{index}]"), "not an object");
                parts.unread.get_or_insert_with(malformed);
                index += 1;
                continue;
            };
            if let (Found::Is(Kind::Text), Found::Is(text)) = (&part.kind, &part.text) {
                parts.words.add(text, index, *reader.with);
            }
            if parts.unread.is_none() {
                parts.unread = part.unread(index);
            }
            parts.approved.extend(part.approved());
            parts.open.extend(part.open());
            parts.decided.extend(part.decided());
            parts.on_time.extend(part.decided().filter(|_| !part.is_late()));
            parts.cards.extend(part.card());
            parts.answers.extend(part.answer());
            index += 1;
        }
        Ok(Some(parts))
    }
}

impl Kept for Part {
    type With = Bounds;

    fn of_object() -> Option<Self> {
        Some(Self::default())
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = reader.value(value)?,
            "text" => self.text = reader.value(value)?,
            "state" => self.state = reader.value(value)?,
            "approval" => self.approval = reader.value(value)?,
            "mediaType" | "mimeType" => self.media_type = reader.value(value)?,
            "id" => self.id = reader.value(value)?,
            "toolCallId" => self.call = reader.value(value)?,
            "toolInvocation" => self.invocation = reader.value(value)?,
            "data" => self.data = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }
}

impl Part {
    /// Returns the part if the model cannot be given its content. `index` is its index in the message.
    fn unread(&self, index: usize) -> Option<UnreadPart> {
        let path = || format!("parts[{index}]");
        let kind = match &self.kind {
            Found::Is(Kind::StepStart) => return None,
            Found::Is(Kind::Text) if self.text.as_is().is_some() => return None,
            Found::Is(Kind::Text) => return Some(UnreadPart::malformed(path(), "text without a text")),
            Found::Is(Kind::Call(name) | Kind::Decision(name) | Kind::Card(name) | Kind::Other(name)) => {
                &name.0
            }
            Found::Absent | Found::Null | Found::Other => {
                return Some(UnreadPart::malformed(path(), "without a type"));
            }
        };
        let media_type = self.media_type.as_is().map(|name| name.0.clone());
        Some(UnreadPart { path: path(), kind: kind.clone(), media_type })
    }

    /// Returns the call that the part shows without an end.
    fn open(&self) -> Option<ToolCallId> {
        let Found::Is(Kind::Call(_)) = self.kind else { return None };
        let (state, call) = match &self.invocation {
            Found::Is(invocation) => (&invocation.state, &invocation.call),
            _ => (&self.state, &self.call),
        };
        state.as_is()?;
        call.as_is().map(|id| id.0)
    }

    /// Returns the call whose decision the part shows.
    fn decided(&self) -> Option<ToolCallId> {
        let Found::Is(Kind::Decision(_)) = self.kind else { return None };
        self.id.as_is().map(|id| id.0)
    }

    /// Returns the call whose card the part is, and the hash of the card.
    fn card(&self) -> Option<(ToolCallId, String)> {
        let Found::Is(Kind::Card(_)) = self.kind else { return None };
        let hash = self.data.as_is()?.input_hash.as_is()?;
        Some((self.id.as_is()?.0, hash.0.clone()))
    }

    /// Whether the part about a decision says that an answer of the page came after the decision.
    fn is_late(&self) -> bool {
        let late = self.data.as_is().and_then(|data| data.late.as_is());
        late.is_some_and(|late| late.0)
    }

    /// Returns the call that the part shows as approved, whatever the state of the part.
    fn approved(&self) -> Option<ToolCallId> {
        let approval = self.approval.as_is()?;
        approval.approved.as_is().filter(|approved| approved.0)?;
        approval.id.as_is().map(|id| id.0)
    }

    /// Returns the decision in the part. A part without exactly the expected shape is not a decision, and
    /// never an approval.
    fn answer(self) -> Option<PostedDecision> {
        let (Found::Is(Kind::Call(_)), Found::Is(CallState::Responded)) = (self.kind, self.state) else {
            return None;
        };
        let approval = self.approval.is()?;
        let reason = approval.reason.given(|| ()).ok()?.map(|reason| reason.0);
        Some(PostedDecision {
            tool_call_id: approval.id.is()?.0,
            approved: approval.approved.is()?.0,
            input_hash: None,
            reason: reason.filter(|reason| !reason.trim().is_empty()),
        })
    }
}

impl Kept for Kind {
    type With = Bounds;

    fn of_text(text: &str, with: &Bounds) -> Option<Self> {
        let name = || TypeName::of_text(text, with);
        match text {
            "text" => Some(Self::Text),
            "step-start" => Some(Self::StepStart),
            "dynamic-tool" => name().map(Self::Call),
            "data-tool-decision" => name().map(Self::Decision),
            "data-tool-hold" => name().map(Self::Card),
            other if other.starts_with("tool-") => name().map(Self::Call),
            _ => name().map(Self::Other),
        }
    }
}

impl Kept for CallState {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        match text {
            "call" | "input-available" | "approval-requested" => Some(Self::Open),
            "approval-responded" => Some(Self::Responded),
            _ => None,
        }
    }
}

impl Kept for Invocation {
    type With = Bounds;

    fn of_object() -> Option<Self> {
        Some(Self::default())
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match key {
            "state" => self.state = reader.value(value)?,
            "toolCallId" => self.call = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }
}

impl Kept for Approval {
    type With = Bounds;

    fn of_object() -> Option<Self> {
        Some(Self::default())
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match key {
            "id" => self.id = reader.value(value)?,
            "approved" => self.approved = reader.value(value)?,
            "reason" => self.reason = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }
}

impl Kept for HoldData {
    type With = Bounds;

    fn of_object() -> Option<Self> {
        Some(Self::default())
    }

    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<(), A::Error> {
        match key {
            "late" => self.late = reader.value(value)?,
            "inputHash" => self.input_hash = reader.value(value)?,
            _ => reader.skip(value)?,
        }
        Ok(())
    }
}

impl Kept for Id {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl Kept for Flag {
    type With = Bounds;

    fn of_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }
}

impl Kept for Hash {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        Some(Self(cut(text, HASH_BYTES).to_owned()))
    }
}

impl Kept for Reason {
    type With = Bounds;

    fn of_text(text: &str, _with: &Bounds) -> Option<Self> {
        Some(Self(text.chars().filter(|char| *char != '\0').take(REASON_MAX).collect()))
    }
}

/// Returns the name that a page gave to a thread or a message, if the name is valid.
pub(super) fn given_name(name: Found<Name>) -> Option<String> {
    name.is().map(|name| name.0)
}
