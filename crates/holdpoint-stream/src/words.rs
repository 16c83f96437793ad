//! The words of the streams and of the messages that pages build from them. The words are a contract with
//! pages, so they do not depend on the names that the domain gives its values.

use holdpoint_core::call::{RiskLevel, StateKind};
use holdpoint_core::decision::Verdict;
use holdpoint_core::definition::Cause;
use holdpoint_core::run::TurnErrorCode;
use holdpoint_core::turn::{FinishReason, Refusal};

/// Returns the label of a held call, in annotations and data parts.
pub(super) const fn label(label: StateKind) -> &'static str {
    match label {
        StateKind::Pending => "pending",
        StateKind::Approved | StateKind::Executing | StateKind::Succeeded | StateKind::Failed => "approved",
        StateKind::Interrupted => "interrupted",
        StateKind::Rejected => "rejected",
        StateKind::Expired => "expired",
        StateKind::Cancelled => "cancelled",
        StateKind::Invalid => "invalid",
    }
}

pub(super) const fn risk(risk: RiskLevel) -> &'static str {
    match risk {
        RiskLevel::Low => "low",
        RiskLevel::Medium => "medium",
        RiskLevel::High => "high",
    }
}

pub(super) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve => "approve",
        Verdict::Reject => "reject",
        Verdict::Expire => "expire",
        Verdict::Cancel => "cancel",
    }
}

/// Returns why a definition is not accepted.
pub(super) const fn definition_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Changed => "changed",
        Cause::New => "new",
        Cause::Unknown => "unknown",
    }
}

/// Returns the cause that kept a held call from running.
pub(super) const fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Rejected => "rejected",
        Refusal::Expired => "expired",
        Refusal::Cancelled => "cancelled",
    }
}

/// Returns the reason why a step or a turn ended.
pub(super) const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content-filter",
        FinishReason::ToolCalls => "tool-calls",
        FinishReason::Error => "error",
        FinishReason::Other => "other",
    }
}

pub(super) const fn error_code(code: TurnErrorCode) -> &'static str {
    match code {
        TurnErrorCode::UpstreamTimeout => "upstream_timeout",
        TurnErrorCode::UpstreamError => "upstream_error",
        TurnErrorCode::UpstreamMalformed => "upstream_malformed",
        TurnErrorCode::ContextFull => "context_full",
        TurnErrorCode::Interrupted => "interrupted",
        TurnErrorCode::StepLimit => "step_limit",
        TurnErrorCode::ThreadFull => "thread_full",
        TurnErrorCode::Internal => "internal",
    }
}
