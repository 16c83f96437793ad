//! Vocabularies: small sets of values, each with one word.
//!
//! A value has one word everywhere: in rows, in the data of events, in JSON, in the OpenAPI document, in labels of
//! metrics and for people. So a word is written once, beside its value. The words are a contract with stored rows and
//! with clients. A value may get another name in the code, and keeps its word: the test of this module lists the words.

/// A small set of values, each with one word. [`vocabulary!`](crate::vocabulary!) defines them.
pub trait Vocabulary: Copy + PartialEq + 'static {
    /// The name in the OpenAPI document.
    const NAME: &'static str;
    /// All values, in the order of the documents.
    const ALL: &'static [Self];
    /// The words of all values, in the same order.
    const WORDS: &'static [&'static str];

    /// Returns the description in the OpenAPI document.
    fn description() -> &'static str;

    /// Returns the word of the value.
    fn word(self) -> &'static str;

    /// Returns the value with this word.
    fn of_word(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|value| value.word() == text).copied()
    }
}

/// Defines enums that are a [`Vocabulary`]: each value with its word.
///
/// The comment of an enum is its description in the OpenAPI document. There its name is that of the enum, or the one
/// after `as`.
#[macro_export]
macro_rules! vocabulary {
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $schema:literal) => { $schema };
    ($(
        $(#[doc = $doc:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis enum $name:ident $(as $schema:literal)? {
            $($(#[$attribute:meta])* $value:ident = $word:literal,)+
        }
    )+) => { $(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $(#[derive($($derive),+)])?
        $vis enum $name {
            $($(#[$attribute])* $value,)+
        }

        impl $name {
            /// All values, in the order of the documents.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];
            /// The words of all values, in the same order.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// Returns the word of the value.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// Returns the value with this word.
            pub fn of_word(text: &str) -> Option<Self> {
                $crate::vocabulary::Vocabulary::of_word(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                let unknown = || serde::de::Error::unknown_variant(&text, &Self::WORDS);
                Self::of_word(&text).ok_or_else(unknown)
            }
        }

        impl $crate::vocabulary::Vocabulary for $name {
            const NAME: &'static str = $crate::vocabulary!(@name $name $($schema)?);
            const ALL: &'static [Self] = &Self::ALL;
            const WORDS: &'static [&'static str] = &Self::WORDS;

            fn description() -> &'static str {
                static TEXT: std::sync::LazyLock<String> =
                    std::sync::LazyLock::new(|| [$($doc.trim()),+].join("\n"));
                &TEXT
            }

            fn word(self) -> &'static str {
                self.word()
            }
        }
    )+ };
}

#[cfg(test)]
mod tests {
    use super::Vocabulary;
    use crate::call::{RiskLevel, StateKind};
    use crate::card::CardPart;
    use crate::card::obstacle::ObstacleKind;
    use crate::decision::{Remember, Surface, Verdict};
    use crate::endpoint::{ChannelKind, DisabledReason};
    use crate::event::EventType;
    use crate::message::{MessageStatus, Role, StepStatus};
    use crate::policy::{ApprovalMode, Effect, ToolPolicy};
    use crate::run::{RunStatus, TurnErrorCode};
    use crate::tool::definition::DefinitionCause;
    use crate::tool::tool_request::{RequestKind, RequestState};
    use crate::turn::{FinishReason, Refusal};
    use std::fmt::Debug;

    /// The values, as the code names them, with their words. The words are stored, and clients know them.
    const WORDS: [&str; 23] = [
        "ApprovalMode: Manual manual, AutoApprove auto-approve, AutoDeny auto-deny",
        "CannotApproveCode: Forbidden forbidden, Blocked blocked, Unreadable unreadable, ToolUnavailable tool_unavailable, \
         InvalidInputs invalid_inputs, AlreadyApproved already_approved",
        "CardPart: Inputs inputs, Secrets secrets, Constants constants, Preview preview, Definition definition",
        "DefinitionCause: Changed changed, New new, Unknown unknown",
        "DisabledReason: Gone gone, FailedTooLong failed_too_long",
        "EventType: ToolCalled tool.called, ToolRequiresApproval tool.requires_approval, ToolBlocked tool.blocked, \
         ToolApproved tool.approved, ToolRejected tool.rejected, ToolDecisionRefused tool.decision_refused, \
         ToolExtended tool.extended, ToolDelegated tool.delegated, ToolInputsRevealed tool.inputs_revealed, \
         ToolReminded tool.reminded, ToolVoted tool.voted, ToolEscalated tool.escalated, ToolExpired tool.expired, \
         ToolCancelled tool.cancelled, ToolStarted tool.started, ToolAccepted tool.accepted, \
         ToolProgressed tool.progressed, ToolInputRequested tool.input_requested, ToolInputProposed tool.input_proposed, \
         ToolInputEnded tool.input_ended, ToolSucceeded tool.succeeded, ToolFailed tool.failed, \
         ToolInterrupted tool.interrupted, RunStarted run.started, RunWaiting run.waiting, RunResumed run.resumed, \
         RunCompleted run.completed, RunFailed run.failed, RunCancelled run.cancelled",
        "FinishReason: Stop stop, Length length, ContentFilter content-filter, ToolCalls tool-calls, Error error, Other other",
        "MessageRole: User user, Assistant assistant",
        "MessageStatus: Complete complete, Streaming streaming, Interrupted interrupted, Superseded superseded",
        "Refusal: Rejected rejected, Expired expired, Cancelled cancelled",
        "Remember: Session session",
        "RiskLevel: Low low, Medium medium, High high",
        "RuleEffect: Ask ask, Deny deny",
        "RunFailureCode: UpstreamTimeout upstream_timeout, UpstreamError upstream_error, \
         UpstreamMalformed upstream_malformed, ContextFull context_full, Interrupted interrupted, StepLimit step_limit, \
         ThreadFull thread_full, Internal internal",
        "RunStatus: Running running, Waiting waiting, Completed completed, Failed failed, Cancelled cancelled",
        "StepStatus: Streaming streaming, Complete complete, Interrupted interrupted",
        "Surface: Rest rest, Stream stream, Websocket websocket, Terminal terminal, Slack slack, Handler handler, \
         Policy policy, Sweeper sweeper",
        "ToolCallState: Pending pending, Approved approved, Executing executing, Succeeded succeeded, Failed failed, \
         Interrupted interrupted, Rejected rejected, Expired expired, Cancelled cancelled, Invalid invalid",
        "ToolPolicy: Allow allow, Ask ask, Deny deny",
        "ToolRequestKind: Elicitation elicitation, Custom custom",
        "ToolRequestState: Open open, Accepted accepted, Declined declined, Cancelled cancelled, Expired expired, \
         Withdrawn withdrawn",
        "Verdict: Approve approve, Reject reject, Expire expire, Cancel cancel",
        "WebhookChannel: Webhook webhook, Mail mail, Template template, Slack slack, Ntfy ntfy",
    ];

    /// Returns a row of [`WORDS`], if each word reads back as its value.
    fn words<T: Vocabulary + Debug>() -> String {
        let word = |(value, word): (&T, &&str)| {
            assert_eq!(T::of_word(word), Some(*value), "two values have the word {word}");
            format!("{value:?} {word}")
        };
        let words: Vec<String> = T::ALL.iter().zip(T::WORDS).map(word).collect();
        assert_eq!(T::of_word(""), None);
        format!("{}: {}", T::NAME, words.join(", "))
    }

    #[test]
    fn a_value_keeps_its_word() {
        let words = [
            words::<ApprovalMode>(),
            words::<ObstacleKind>(),
            words::<CardPart>(),
            words::<DefinitionCause>(),
            words::<DisabledReason>(),
            words::<EventType>(),
            words::<FinishReason>(),
            words::<Role>(),
            words::<MessageStatus>(),
            words::<Refusal>(),
            words::<Remember>(),
            words::<RiskLevel>(),
            words::<Effect>(),
            words::<TurnErrorCode>(),
            words::<RunStatus>(),
            words::<StepStatus>(),
            words::<Surface>(),
            words::<StateKind>(),
            words::<ToolPolicy>(),
            words::<RequestKind>(),
            words::<RequestState>(),
            words::<Verdict>(),
            words::<ChannelKind>(),
        ];
        assert_eq!(words, WORDS);
    }
}
