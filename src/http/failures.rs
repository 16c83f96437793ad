//! The errors of the failures of lower layers: the only place that gives such a failure a status.
//!
//! This module writes the texts that clients receive; the error texts of lower layers go to the log.

use super::call::CallState;
use super::decision_view;
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::runs::RunStatus;
use crate::approvals::{DecideError, GrantError, PolicyError};
use crate::chat::{AdmitError, CancelRunError};
use crate::domain::call::{State, ToolCall};
use crate::rate_limit::RateLimited;
use crate::store::StoreError;
use holdpoint_serve::BodyError;
use poem_openapi::types::ToJSON;
use serde_json::{Value, json};

/// `retry-after` of the limits on concurrent turns, in seconds. The end of a turn cannot be predicted.
const TURN_SECONDS: u64 = 5;

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Encoded => Self::encoded_body(),
            BodyError::TooLong(bytes_max) => Self::body_too_large(bytes_max),
            BodyError::NoRoom => Self::too_many_bodies(),
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

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::NoThread => Self::not_found(),
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
            AdmitError::TooOften(RateLimited { max, seconds }) => Self::too_often(max, "turns", seconds),
            AdmitError::AwaitingApproval => {
                Self::conflict(ErrorCode::AwaitingApproval, "Calls of this thread await approval.", None)
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
            AdmitError::Store(error) => error.into(),
        }
    }
}

impl From<CancelRunError> for ApiError {
    fn from(error: CancelRunError) -> Self {
        match error {
            CancelRunError::NotFound => Self::not_found(),
            CancelRunError::Ended(run) => Self::conflict(
                ErrorCode::RunNotWaiting,
                "The run has ended.",
                Some(json!({ "state": RunStatus::from(run.status).to_json() })),
            ),
            CancelRunError::Store(error) => error.into(),
        }
    }
}

impl From<PolicyError> for ApiError {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::NotFound => Self::not_found(),
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
            PolicyError::Store(error) => error.into(),
        }
    }
}

impl From<GrantError> for ApiError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::NotFound => Self::not_found(),
            GrantError::Store(error) => error.into(),
        }
    }
}

/// The names of the fields of a decision.
struct DecisionFields {
    input_hash: &'static str,
    validated_inputs: &'static str,
    remember: &'static str,
}

impl DecisionFields {
    /// Under `/qa`.
    const CAMEL: Self =
        Self { input_hash: "inputHash", validated_inputs: "validatedInputs", remember: "remember" };
    /// On the other routes. There the value of `decision` itself can ask to remember an approval.
    const SNAKE: Self =
        Self { input_hash: "input_hash", validated_inputs: "validated_inputs", remember: "decision" };
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::CAMEL)
    }
}

impl ApiError {
    /// The error of a refused decision, on a route with fields in snake case.
    pub(super) fn not_decided_here(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::SNAKE)
    }

    /// The run of the call does not wait for a decision.
    pub(super) fn run_not_waiting(call: &ToolCall) -> Self {
        Self::conflict(
            ErrorCode::RunNotWaiting,
            "The run does not wait for a decision.",
            Some(how_closed(call)),
        )
    }

    fn not_decided(error: DecideError, fields: DecisionFields) -> Self {
        match error {
            DecideError::TooOften(RateLimited { max, seconds }) => Self::too_often(max, "decisions", seconds),
            DecideError::NotFound => Self::not_found(),
            DecideError::Forbidden => {
                Self::forbidden("You may see this call, but this decision is not yours to make.")
            }
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
            DecideError::InvalidInputs(errors) => Self::invalid_inputs(fields.validated_inputs, &errors),
            DecideError::NotRemembered(expected) => {
                Self::unprocessable(ErrorCode::NotRemembered, format!("{}: {expected}", fields.remember))
            }
            DecideError::Store(error) => error.into(),
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
