//! The parts of a posted message, each up to the length that can matter: the text of a user, and what a page shows about
//! held calls.

use crate::chat::PostedDecision;
use crate::http::approvals::validate::REASON_MAX;
use crate::http::body::partial_json::{FieldValue, Kept, Reader};
use crate::http::body::posted_text::{Bounds, PostedText, cut, kept};
use crate::http::body::unread_part::{TypeName, UnreadPart};
use holdpoint_core::id::ToolCallId;
use serde::de::SeqAccess;

/// Length of a hash of the server, in bytes.
const HASH_BYTES: usize = 64;

/// The kept content of the parts of a message.
#[derive(Debug, Default)]
pub(in crate::http) struct MessageParts {
    /// The text of the text parts, in a user message.
    pub(in crate::http) words: PostedText,
    /// The decisions about held calls, in an assistant message.
    pub(in crate::http) answers: Vec<PostedDecision>,
    /// The hashes of the cards of held calls, in an assistant message.
    pub(in crate::http) cards: Vec<(ToolCallId, String)>,
    /// The calls that are shown as approved, in an assistant message.
    pub(in crate::http) approved: Vec<ToolCallId>,
    /// The first part that the model cannot be given, in a user message.
    pub(in crate::http) unread: Option<UnreadPart>,
    /// The calls that are shown without an end, in an assistant message.
    pub(in crate::http) open: Vec<ToolCallId>,
    /// The calls whose decisions the page has, in an assistant message.
    pub(in crate::http) decided: Vec<ToolCallId>,
    /// Those of them whose decision is not marked as one that an answer of the page came after.
    pub(in crate::http) on_time: Vec<ToolCallId>,
}

#[derive(Debug, Default)]
struct MessagePart {
    kind: FieldValue<Kind>,
    text: FieldValue<PostedText>,
    state: FieldValue<CallState>,
    approval: FieldValue<Approval>,
    media_type: FieldValue<TypeName>,
    id: FieldValue<Id>,
    call: FieldValue<Id>,
    invocation: FieldValue<Invocation>,
    data: FieldValue<HoldData>,
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
    state: FieldValue<CallState>,
    call: FieldValue<Id>,
}

#[derive(Debug, Default)]
struct Approval {
    id: FieldValue<Id>,
    approved: FieldValue<Flag>,
    reason: FieldValue<Reason>,
}

/// The content of a part about a held call: of its decision, or of its card.
#[derive(Debug, Default)]
struct HoldData {
    late: FieldValue<Flag>,
    input_hash: FieldValue<Hash>,
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

impl Kept for MessageParts {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let mut parts = Self::default();
        let mut index = 0;
        while let Some(item) = reader.item::<MessagePart, A>(items)? {
            let FieldValue::Is(part) = item else {
                let malformed = || UnreadPart::malformed(format!("parts[{index}]"), "not an object");
                parts.unread.get_or_insert_with(malformed);
                index += 1;
                continue;
            };
            if let (FieldValue::Is(Kind::Text), FieldValue::Is(text)) = (&part.kind, &part.text) {
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

kept! {
    object MessagePart {
        "type" => kind,
        "text" => text,
        "state" => state,
        "approval" => approval,
        "mediaType" | "mimeType" => media_type,
        "id" => id,
        "toolCallId" => call,
        "toolInvocation" => invocation,
        "data" => data,
    }
}

impl MessagePart {
    /// Returns the part if the model cannot be given its content. `index` is its index in the message.
    fn unread(&self, index: usize) -> Option<UnreadPart> {
        let path = || format!("parts[{index}]");
        let kind = match &self.kind {
            FieldValue::Is(Kind::StepStart) => return None,
            FieldValue::Is(Kind::Text) if self.text.as_is().is_some() => return None,
            FieldValue::Is(Kind::Text) => return Some(UnreadPart::malformed(path(), "text without a text")),
            FieldValue::Is(
                Kind::Call(name) | Kind::Decision(name) | Kind::Card(name) | Kind::Other(name),
            ) => &name.0,
            FieldValue::Absent | FieldValue::Null | FieldValue::Other => {
                return Some(UnreadPart::malformed(path(), "without a type"));
            }
        };
        let media_type = self.media_type.as_is().map(|name| name.0.clone());
        Some(UnreadPart { path: path(), kind: kind.clone(), media_type })
    }

    /// Returns the call that the part shows without an end.
    fn open(&self) -> Option<ToolCallId> {
        let FieldValue::Is(Kind::Call(_)) = self.kind else { return None };
        let (state, call) = match &self.invocation {
            FieldValue::Is(invocation) => (&invocation.state, &invocation.call),
            _ => (&self.state, &self.call),
        };
        state.as_is()?;
        call.as_is().map(|id| id.0)
    }

    /// Returns the call whose decision the part shows.
    fn decided(&self) -> Option<ToolCallId> {
        let FieldValue::Is(Kind::Decision(_)) = self.kind else { return None };
        self.id.as_is().map(|id| id.0)
    }

    /// Returns the call whose card the part is, and the hash of the card.
    fn card(&self) -> Option<(ToolCallId, String)> {
        let FieldValue::Is(Kind::Card(_)) = self.kind else { return None };
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
        let (FieldValue::Is(Kind::Call(_)), FieldValue::Is(CallState::Responded)) = (self.kind, self.state)
        else {
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

kept! {
    word CallState {
        "call" | "input-available" | "approval-requested" => Open,
        "approval-responded" => Responded,
    }
}

kept! {
    object Invocation {
        "state" => state,
        "toolCallId" => call,
    }
}

kept! {
    object Approval {
        "id" => id,
        "approved" => approved,
        "reason" => reason,
    }
}

kept! {
    object HoldData {
        "late" => late,
        "inputHash" => input_hash,
    }
}

kept! { text Id(text) => text.parse().ok().map(Self) }

impl Kept for Flag {
    type With = Bounds;

    fn of_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }
}

kept! { text Hash(text) => Some(Self(cut(text, HASH_BYTES).to_owned())) }

kept! { text Reason(text) => Some(Self(text.chars().filter(|char| *char != '\0').take(REASON_MAX).collect())) }
