//! The words of the columns: how the values of small sets are written in rows and in the data of events, and
//! read again.
//!
//! The words are a contract with stored rows, so they do not depend on the names that the domain gives its
//! values. The CHECKs and indexes of the migrations have the same words, and so do the SQL texts of this module
//! that a partial index requires.

use holdpoint_core::call::{RiskLevel, StateKind};
use holdpoint_core::decision::{Remember, Surface, Verdict};
use holdpoint_core::endpoint::{ChannelKind, DisabledReason};
use holdpoint_core::event::EventType;
use holdpoint_core::id::GrantId;
use holdpoint_core::message::{MessageStatus, StepStatus};
use holdpoint_core::policy::{ApprovalMode, Source, ToolPolicy};
use holdpoint_core::run::{RunStatus, TurnErrorCode};
use holdpoint_core::tool_request::{RequestKind, RequestState};
use holdpoint_core::turn::FinishReason;
use sea_orm::sea_query::SimpleExpr;

/// A value that a column holds as a word.
pub(crate) trait Word: Copy + 'static {
    /// All values, each with its word.
    const WORDS: &'static [(Self, &'static str)];

    fn word(self) -> &'static str;

    /// Returns the value with this word.
    fn of_word(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, word)| *word == text).map(|(value, _)| *value)
    }
}

/// Implements [`Word`]. The `match` requires a word for each value.
macro_rules! words {
    ($($kind:ident { $($value:ident $word:literal),+ $(,)? })+) => { $(
        impl Word for $kind {
            const WORDS: &'static [(Self, &'static str)] = &[$((Self::$value, $word)),+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    )+ };
}

/// The role of a message. The domain has no such value: the content of a message determines the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
}

/// The kind of a text about a call that the model read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealKind {
    /// The call's answer.
    Answer,
    /// A text in place of an answer that does not exist yet.
    Placeholder,
    /// A later outcome.
    Note,
}

words! {
    StateKind {
        Pending "pending",
        Approved "approved",
        Executing "executing",
        Succeeded "succeeded",
        Failed "failed",
        Interrupted "interrupted",
        Rejected "rejected",
        Expired "expired",
        Cancelled "cancelled",
        Invalid "invalid",
    }
    RiskLevel {
        Low "low",
        Medium "medium",
        High "high",
    }
    Verdict {
        Approve "approve",
        Reject "reject",
        Expire "expire",
        Cancel "cancel",
    }
    Surface {
        Rest "rest",
        Stream "stream",
        Websocket "websocket",
        Terminal "terminal",
        Slack "slack",
        Handler "handler",
        Policy "policy",
        Sweeper "sweeper",
    }
    Remember {
        Session "session",
    }
    RunStatus {
        Running "running",
        Waiting "waiting",
        Completed "completed",
        Failed "failed",
        Cancelled "cancelled",
    }
    TurnErrorCode {
        UpstreamTimeout "upstream_timeout",
        UpstreamError "upstream_error",
        UpstreamMalformed "upstream_malformed",
        ContextFull "context_full",
        Interrupted "interrupted",
        StepLimit "step_limit",
        ThreadFull "thread_full",
        Internal "internal",
    }
    Role {
        User "user",
        Assistant "assistant",
    }
    MessageStatus {
        Complete "complete",
        Streaming "streaming",
        Interrupted "interrupted",
        Superseded "superseded",
    }
    StepStatus {
        Streaming "streaming",
        Complete "complete",
        Interrupted "interrupted",
    }
    FinishReason {
        Stop "stop",
        Length "length",
        ContentFilter "content-filter",
        ToolCalls "tool-calls",
        Error "error",
        Other "other",
    }
    ApprovalMode {
        Manual "manual",
        AutoApprove "auto-approve",
        AutoDeny "auto-deny",
    }
    ToolPolicy {
        Allow "allow",
        Ask "ask",
        Deny "deny",
    }
    RequestKind {
        Elicitation "elicitation",
        Custom "custom",
    }
    RequestState {
        Open "open",
        Accepted "accepted",
        Declined "declined",
        Cancelled "cancelled",
        Expired "expired",
        Withdrawn "withdrawn",
    }
    SealKind {
        Answer "answer",
        Placeholder "placeholder",
        Note "note",
    }
    ChannelKind {
        Webhook "webhook",
        Mail "mail",
        Template "template",
        Slack "slack",
        Ntfy "ntfy",
    }
    DisabledReason {
        Gone "gone",
        FailedTooLong "failed_too_long",
    }
    EventType {
        ToolCalled "tool.called",
        ToolRequiresApproval "tool.requires_approval",
        ToolBlocked "tool.blocked",
        ToolApproved "tool.approved",
        ToolRejected "tool.rejected",
        ToolDecisionRefused "tool.decision_refused",
        ToolExtended "tool.extended",
        ToolDelegated "tool.delegated",
        ToolInputsRevealed "tool.inputs_revealed",
        ToolReminded "tool.reminded",
        ToolVoted "tool.voted",
        ToolEscalated "tool.escalated",
        ToolExpired "tool.expired",
        ToolCancelled "tool.cancelled",
        ToolStarted "tool.started",
        ToolAccepted "tool.accepted",
        ToolProgressed "tool.progressed",
        ToolInputRequested "tool.input_requested",
        ToolInputProposed "tool.input_proposed",
        ToolInputEnded "tool.input_ended",
        ToolSucceeded "tool.succeeded",
        ToolFailed "tool.failed",
        ToolInterrupted "tool.interrupted",
        RunStarted "run.started",
        RunWaiting "run.waiting",
        RunResumed "run.resumed",
        RunCompleted "run.completed",
        RunFailed "run.failed",
        RunCancelled "run.cancelled",
    }
}

pub fn event_type(word: &str) -> Option<EventType> {
    EventType::of_word(word)
}

pub fn event_types() -> impl Iterator<Item = &'static str> {
    EventType::WORDS.iter().map(|(_, word)| *word)
}

/// Returns the word as a literal of the statement instead of a parameter. The databases use a partial index
/// only if they see the word that the index names.
pub(crate) fn literal(value: impl Word) -> SimpleExpr {
    SimpleExpr::Constant(value.word().into())
}

/// Returns the text of a part of the policy, for decisions and events. Of this text in a row, only the grant is read
/// back (`grant_in`).
pub fn source(source: &Source) -> String {
    match source {
        Source::AlwaysDeny => "always_deny".to_owned(),
        Source::AlwaysAllow => "always_allow".to_owned(),
        Source::Rule(name) => format!("rule:{name}"),
        Source::Role => "role".to_owned(),
        Source::Remembered(id) => format!("{REMEMBERED}{id}"),
        Source::Session => "session".to_owned(),
        Source::Tool => "tool".to_owned(),
        Source::Mode => "mode".to_owned(),
        Source::Definition => "definition".to_owned(),
    }
}

/// The beginning of the text of a grant.
const REMEMBERED: &str = "remembered:";

/// Returns the grant that the text of a decision's source names.
pub(crate) fn grant_in(source: &str) -> Option<GrantId> {
    source.strip_prefix(REMEMBERED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sea_orm::DbBackend;
    use sea_orm::sea_query::Query;
    use std::fmt::Debug;

    fn reads_back<T: Word + PartialEq + Debug>() {
        for (value, word) in T::WORDS {
            assert_eq!(value.word(), *word);
            // Fails also if two values share a word.
            assert_eq!(T::of_word(word), Some(*value), "{word}");
        }
        assert_eq!(T::of_word(""), None);
    }

    #[test]
    fn every_word_reads_back_as_its_value() {
        reads_back::<StateKind>();
        reads_back::<RiskLevel>();
        reads_back::<Verdict>();
        reads_back::<Surface>();
        reads_back::<Remember>();
        reads_back::<RunStatus>();
        reads_back::<TurnErrorCode>();
        reads_back::<Role>();
        reads_back::<MessageStatus>();
        reads_back::<StepStatus>();
        reads_back::<FinishReason>();
        reads_back::<ApprovalMode>();
        reads_back::<ToolPolicy>();
        reads_back::<SealKind>();
        reads_back::<RequestKind>();
        reads_back::<RequestState>();
        reads_back::<EventType>();
    }

    #[test]
    fn a_literal_is_in_the_text_of_the_statement() {
        let query = Query::select().expr(literal(RunStatus::Running)).to_owned();
        for database in [DbBackend::Sqlite, DbBackend::Postgres] {
            assert_eq!(database.build(&query).sql, "SELECT 'running'");
        }
    }
}
