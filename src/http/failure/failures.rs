//! The errors of the failures of lower layers: the only place that gives such a failure a status.
//!
//! This module writes the texts that clients receive; the error texts of lower layers go to the log.

use crate::approvals::{
    AcceptError, AnswerError, DecideError, DelegateError, Denied, ExtendError, NotDelegated, OpenLinkError,
    PolicyError, ReportError, ResolveError, WorkerError,
};
use crate::chat::{AdmitError, CancelRunError, ResumeRunError};
use crate::http::approvals::decision_view;
use crate::http::failure::error::ApiError;
use crate::http::failure::error_code::ErrorCode;
use crate::http::routes::call::CallState;
use crate::rate_limit::RateLimited;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::link::LinkRefused;
use holdpoint_serve::BodyError;
use holdpoint_store::StoreError;
use poem_openapi::types::ToJSON;
use serde_json::{Value, json};

/// `retry-after` of the limits on concurrent turns, in seconds. The end of a turn cannot be predicted.
const TURN_SECONDS: u64 = 5;

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Encoded => Self::encoded_body(),
            BodyError::TooLong(bytes_max) => Self::body_too_large(bytes_max),
            BodyError::NoRoom(exhausted) => Self::too_many_bodies(exhausted),
            error => Self::bad_request(format!("body: {error}")),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the store failed");
        if error.is_unavailable() { Self::database_unavailable() } else { Self::internal() }
    }
}

impl From<RateLimited> for ApiError {
    fn from(RateLimited { of, max, seconds }: RateLimited) -> Self {
        Self::rate_limited(format!("More than {max} {of} in a minute."), seconds)
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::TooOften(limited) => limited.into(),
            Denied::NotFound => Self::not_found(),
            Denied::Forbidden(right) => Self::forbidden(right.refusal()),
            Denied::Store(error) => error.into(),
        }
    }
}

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Denied(denied) => denied.into(),
            AdmitError::TurnInProgress => {
                Self::conflict(ErrorCode::TurnInProgress, "A turn of this thread is under way.", None)
            }
            AdmitError::NothingToContinue => {
                Self::conflict(ErrorCode::NothingToContinue, "There is nothing to continue.", None)
            }
            AdmitError::Stopping => Self::stopping(),
            AdmitError::TooManyTurns { of, max } => {
                Self::rate_limited(format!("More than {max} turns of this {of} at once."), TURN_SECONDS)
            }
            AdmitError::AwaitingApproval => {
                Self::conflict(ErrorCode::AwaitingApproval, "Calls of this thread await approval.", None)
            }
            AdmitError::NameUsed(name) => {
                let message = format!(
                    "{name:?} names a stored message with another text. \
                     Send a new message under a name of its own, and an edit with messageId."
                );
                Self::conflict(ErrorCode::NameUsed, &message, None)
            }
            AdmitError::ThreadFull { max, of } => {
                let message = format!("The thread is full: it holds up to {max} {of}. Begin a new one.");
                Self::conflict(ErrorCode::ThreadFull, &message, None)
            }
            AdmitError::UnknownModel(id) => {
                Self::unprocessable(ErrorCode::UnknownModel, format!("model: there is no model {id:?}."))
            }
            AdmitError::UnknownTool(name) => Self::unprocessable(
                ErrorCode::UnknownTool,
                format!("tool_selection: there is no tool {name:?}."),
            ),
            AdmitError::Refused(error) => error.into(),
        }
    }
}

impl From<CancelRunError> for ApiError {
    fn from(error: CancelRunError) -> Self {
        match error {
            CancelRunError::Denied(denied) => denied.into(),
            CancelRunError::Ended(run) => Self::conflict(
                ErrorCode::RunNotWaiting,
                "The run has ended.",
                Some(json!({ "state": run.status.word() })),
            ),
        }
    }
}

impl From<ResumeRunError> for ApiError {
    fn from(error: ResumeRunError) -> Self {
        match error {
            ResumeRunError::NotWaiting(run) => Self::conflict(
                ErrorCode::RunNotWaiting,
                "The run has ended, or is not the last of its thread.",
                Some(json!({ "state": run.status.word() })),
            ),
            ResumeRunError::OpenCalls => {
                Self::conflict(ErrorCode::AwaitingApproval, "A call of the run is open.", None)
            }
            ResumeRunError::NotAdmitted(error) => error.into(),
        }
    }
}

impl From<PolicyError> for ApiError {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Denied(denied) => denied.into(),
            PolicyError::Loosened(tool) => Self::forbidden(format!(
                "{tool} would go further than before. You may only tighten the policy of the session."
            )),
            PolicyError::ModeLoosened => Self::forbidden(
                "mode: tools that ask would go further than before. \
                 You may only tighten the policy of the session.",
            ),
            PolicyError::UnknownTool(name) => {
                Self::unprocessable(ErrorCode::UnknownTool, format!("tools: there is no tool {name:?}."))
            }
        }
    }
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        let details = |state| Some(json!({ "state": CallState::from(state).to_json() }));
        match error {
            ReportError::Denied(denied) => denied.into(),
            ReportError::Stale(state) => Self::conflict(
                ErrorCode::Stale,
                "The call has started again, or is about to. The new request asks for its outcome.",
                details(state),
            ),
            ReportError::Settled(state) => {
                Self::conflict(ErrorCode::AlreadySettled, "The call has another outcome.", details(state))
            }
        }
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Denied(denied) => denied.into(),
            AnswerError::Closed(state) => Self::conflict(
                ErrorCode::RequestClosed,
                "The request has another answer, or has ended.",
                Some(json!({ "state": state.word() })),
            ),
            AnswerError::NotProposed => Self::conflict(
                ErrorCode::Stale,
                "content_hash: no open proposal has this hash. Read the request again; it stays open.",
                Some(json!({ "state": "open" })),
            ),
            AnswerError::InvalidContent(errors) => Self::invalid_content(&errors),
        }
    }
}

impl From<ResolveError> for ApiError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Denied(denied) => denied.into(),
            ResolveError::NotInterrupted(state) => Self::conflict(
                ErrorCode::NotInterrupted,
                "Only an interrupted call can be resolved.",
                Some(json!({ "state": CallState::from(state).to_json() })),
            ),
        }
    }
}

impl From<ExtendError> for ApiError {
    fn from(error: ExtendError) -> Self {
        match error {
            ExtendError::Refused(error) => Self::not_decided_here(error),
            ExtendError::OutOfBounds { more_than, at_most } if more_than >= at_most => Self::unprocessable(
                ErrorCode::NotExtended,
                "expires_in: the call waits as long already as approval.ttl_max allows.",
            ),
            ExtendError::OutOfBounds { more_than, at_most } => Self::unprocessable(
                ErrorCode::NotExtended,
                format!(
                    "expires_in: expected more than {} and at most {} seconds, by approval.ttl_max.",
                    more_than.as_secs(),
                    at_most.as_secs()
                ),
            ),
        }
    }
}

impl From<DelegateError> for ApiError {
    fn from(error: DelegateError) -> Self {
        let why = match error {
            DelegateError::Refused(error) => return Self::not_decided_here(error),
            DelegateError::Not(why) => why,
        };
        let message = match why {
            NotDelegated::ToSelf => "to: expected another user than the caller.".to_owned(),
            NotDelegated::ToRequester => {
                "to: expected another user than the one that asked for the call.".to_owned()
            }
            NotDelegated::Voted => "The caller has approved the call, in person or by a delegate.".to_owned(),
            NotDelegated::Until(deadline) => {
                format!("until: expected a time in the future, at most {}.", deadline.to_rfc3339())
            }
        };
        Self::unprocessable(ErrorCode::NotDelegated, message)
    }
}

impl From<AcceptError> for ApiError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Denied(denied) => denied.into(),
            AcceptError::Moved { current } => Self::conflict(
                ErrorCode::Stale,
                "hash: the definition has changed since it was shown. Read the tool again.",
                Some(json!({ "hash": current })),
            ),
        }
    }
}

impl From<WorkerError> for ApiError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Denied(denied) => denied.into(),
            WorkerError::UnknownTool(name) => Self::unprocessable(
                ErrorCode::UnknownTool,
                format!("tools: there is no worker tool {name:?}."),
            ),
            WorkerError::Over(state) => Self::conflict(
                ErrorCode::ExecutionOver,
                "The execution is over, and the call keeps its state.",
                Some(json!({ "state": CallState::from(&*state).to_json() })),
            ),
            WorkerError::NoRandomness => {
                tracing::error!("the system gives no random numbers for a permit token");
                Self::internal()
            }
        }
    }
}

/// The names of the fields of a decision.
struct DecisionFields {
    input_hash: &'static str,
    preview_hash: &'static str,
    validated_inputs: &'static str,
    remember: &'static str,
}

impl DecisionFields {
    /// Under `/qa`.
    const CAMEL: Self = Self {
        input_hash: "inputHash",
        preview_hash: "previewHash",
        validated_inputs: "validatedInputs",
        remember: "remember",
    };
    /// On the other routes. There the value of `decision` itself can ask to remember an approval.
    const SNAKE: Self = Self {
        input_hash: "input_hash",
        preview_hash: "preview_hash",
        validated_inputs: "validated_inputs",
        remember: "decision",
    };
}

impl From<LinkRefused> for ApiError {
    fn from(why: LinkRefused) -> Self {
        match why {
            LinkRefused::Unknown => Self::link_not_found(),
            LinkRefused::OtherPerson => Self::forbidden("link: the link is for another person."),
            LinkRefused::Used => Self::conflict(
                ErrorCode::AlreadyDecided,
                "link: a decision has used the link. This decision has no effect.",
                None,
            ),
        }
    }
}

impl From<OpenLinkError> for ApiError {
    fn from(error: OpenLinkError) -> Self {
        match error {
            OpenLinkError::Refused(why) => why.into(),
            OpenLinkError::Store(error) => error.into(),
        }
    }
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::CAMEL)
    }
}

impl ApiError {
    /// The error of a refused decision, on a route with fields in snake case.
    pub(in crate::http) fn not_decided_here(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::SNAKE)
    }

    /// The run of the call does not wait for a decision.
    pub(in crate::http) fn run_not_waiting(call: &ToolCall) -> Self {
        Self::conflict(
            ErrorCode::RunNotWaiting,
            "The run does not wait for a decision.",
            Some(how_closed(call)),
        )
    }

    fn not_decided(error: DecideError, fields: DecisionFields) -> Self {
        match error {
            DecideError::Denied(denied) => denied.into(),
            DecideError::Blocked(why) => Self::forbidden(format!(
                "The policy forbids the call: {why}. It stays pending; you may reject it."
            )),
            DecideError::Closed(call) => closed(&call),
            DecideError::Unreadable => Self::conflict(
                ErrorCode::Unreadable,
                "The stored inputs of the call cannot be read, so it cannot be approved. \
                 It stays pending; you may reject it.",
                Some(json!({ "state": "pending" })),
            ),
            DecideError::ToolUnavailable(name) => Self::conflict(
                ErrorCode::ToolUnavailable,
                "The tool is not available now. The call stays pending.",
                Some(json!({ "state": "pending", "tool_name": name })),
            ),
            DecideError::Stale { input_hash } => Self::conflict(
                ErrorCode::Stale,
                &format!(
                    "{}: the call has changed since it was shown. Read it again; it stays pending.",
                    fields.input_hash
                ),
                Some(json!({ "state": "pending", "input_hash": input_hash })),
            ),
            DecideError::StalePreview => Self::conflict(
                ErrorCode::Stale,
                &format!(
                    "{}: expected the hash of a preview of these inputs, as it is now. \
                     Read the preview again; the call stays pending.",
                    fields.preview_hash
                ),
                Some(json!({ "state": "pending" })),
            ),
            DecideError::InvalidInputs(errors) => Self::invalid_inputs(fields.validated_inputs, &errors),
            DecideError::NotRemembered { place, expected } => {
                let field = if place.is_empty() { fields.remember } else { "remember" };
                let message = format!("{field}{place}: expected {expected}");
                Self::unprocessable(ErrorCode::NotRemembered, message)
            }
            DecideError::Link(why) => why.into(),
        }
    }
}

/// The error of a decision about a call that is not pending any more. The details have the call's state and
/// decision.
fn closed(call: &ToolCall) -> ApiError {
    let details = how_closed(call);
    match &call.state {
        State::Expired(_) => {
            ApiError::conflict(ErrorCode::Expired, "The call expired without a decision.", Some(details))
        }
        State::Cancelled(..) => {
            ApiError::conflict(ErrorCode::Cancelled, "The call was cancelled.", Some(details))
        }
        _ => ApiError::conflict(ErrorCode::AlreadyDecided, "The call is decided already.", Some(details)),
    }
}

fn how_closed(call: &ToolCall) -> Value {
    let mut details = json!({ "state": CallState::from(&call.state).to_json() });
    if let (Some(decision), Some(details)) = (&call.decision, details.as_object_mut()) {
        details.insert("decision".to_owned(), decision_view::decision(decision));
    }
    details
}
