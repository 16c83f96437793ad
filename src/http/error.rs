//! Errors on the wire: the only place that maps a failure to a status.
//!
//! Every failure has the body `{"error":{"code","message","details"?}}`, including failures of the framework.
//! This module writes all texts that clients receive; the error texts of lower layers go to the log.

use super::auth_failure::Unknown;
use super::payload::Json;
use crate::approvals::{DecideError, GrantError, PolicyError};
use crate::chat::{AdmitError, CancelRunError};
use crate::domain::call::{State, ToolCall};
use crate::rate_limit::RateLimited;
use crate::store::StoreError;
use crate::tools::InputError;
use poem::http::{HeaderValue, StatusCode, header};
use poem::{IntoResponse, Response, ResponseBuilder};
use poem_openapi::types::Any;
use poem_openapi::{ApiResponse, Object};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use tracing::{Span, field};

/// `retry-after` of the limits on concurrent turns, in seconds. The end of a turn cannot be predicted.
const TURN_SECONDS: u64 = 5;

/// The body of every failure.
#[derive(Debug, Object)]
pub(super) struct ErrorBody {
    error: Box<ErrorDetail>,
}

/// A failure as one of several results in a response.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) error: Box<ErrorDetail>,
    /// Seconds until a retry may succeed.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    /// Whether the database or this server is unavailable.
    pub(super) fn is_unavailable(&self) -> bool {
        self.status == 503
    }
}

/// The description of a failure.
#[derive(Debug, Clone, Object)]
pub(super) struct ErrorDetail {
    /// The error code, for programs.
    code: String,
    /// What failed and what was expected, for people.
    message: String,
    /// Further facts about the failure, if any.
    #[oai(skip_serializing_if_is_none)]
    details: Option<Any<Value>>,
}

/// A failure, by its status.
#[derive(Debug, ApiResponse)]
pub(super) enum ApiError {
    /// The request is malformed.
    #[oai(status = 400)]
    BadRequest(Json<ErrorBody>),
    /// The caller is not authenticated.
    #[oai(status = 401)]
    Unauthenticated(
        Json<ErrorBody>,
        /// `Bearer`; for refused credentials also `error`, and the cause in `error_description` (RFC 6750,
        /// 3).
        #[oai(header = "www-authenticate")]
        String,
    ),
    /// The caller may see the resource, but may not do this.
    #[oai(status = 403)]
    Forbidden(Json<ErrorBody>),
    /// The resource does not exist, or the caller may not see it.
    #[oai(status = 404)]
    NotFound(Json<ErrorBody>),
    /// The resource has no such method.
    #[oai(status = 405)]
    MethodNotAllowed(Json<ErrorBody>),
    /// The state of the resource does not allow the request.
    #[oai(status = 409)]
    Conflict(Json<ErrorBody>),
    /// The body is too long.
    #[oai(status = 413)]
    BodyTooLarge(Json<ErrorBody>),
    /// The content type of the body is not JSON.
    #[oai(status = 415)]
    UnsupportedMediaType(Json<ErrorBody>),
    /// The request is well-formed but cannot be carried out.
    #[oai(status = 422)]
    Unprocessable(Json<ErrorBody>),
    /// The caller exceeded a rate or concurrency limit. Nothing was done.
    #[oai(status = 429)]
    RateLimited(
        Json<ErrorBody>,
        /// Seconds until a retry may succeed (RFC 9110, 10.2.3).
        #[oai(header = "retry-after")]
        String,
    ),
    /// A fault of the server.
    #[oai(status = 500)]
    Internal(Json<ErrorBody>),
    /// The server is stopping or at a limit, or the database or the issuer of the caller's token is
    /// unreachable. The result of the request may be unknown. A retry is safe.
    #[oai(status = 503)]
    Unavailable(Json<ErrorBody>, #[oai(header = "retry-after")] String),
}

fn body(code: &str, message: impl Into<String>, details: Option<Value>) -> Json<ErrorBody> {
    let error = ErrorDetail { code: code.to_owned(), message: message.into(), details: details.map(Any) };
    Json(ErrorBody { error: Box::new(error) })
}

/// Returns the text of an `error_description`, with `?` in place of characters that the header must not
/// contain (RFC 6750, 3).
fn described(why: &Unknown) -> String {
    why.to_string().replace(|c| !matches!(c, ' '..='~') || matches!(c, '"' | '\\'), "?")
}

impl ApiError {
    /// The request is malformed. The message names the field and the expected value.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(body("bad_request", message, None))
    }

    /// The caller is not authenticated. The cause is in the `www-authenticate` header (RFC 6750, 3) and in
    /// the log.
    pub(super) fn unauthenticated(why: &Unknown) -> Self {
        Span::current().record("cause", field::display(why));
        let challenge = if why.is_without_credentials() {
            "Bearer".to_owned()
        } else {
            format!("Bearer error=\"invalid_token\", error_description=\"{}\"", described(why))
        };
        Self::Unauthenticated(body("unauthenticated", "Expected a valid bearer token.", None), challenge)
    }

    /// The resource does not exist, or the caller may not see it. Both cases have the same response.
    pub(super) fn not_found() -> Self {
        Self::NotFound(body("not_found", "There is nothing here, or nothing for you.", None))
    }

    /// The caller may not do this.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::Forbidden(body("forbidden", message, None))
    }

    /// The body is longer than `bytes_max`.
    pub(super) fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("The body is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body("body_too_large", message, None))
    }

    /// A user message is longer than `bytes_max`.
    pub(super) fn message_too_long(bytes_max: usize) -> Self {
        let message = format!("The message is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body("body_too_large", message, None))
    }

    /// The resource has no such method.
    pub(super) fn method_not_allowed() -> Self {
        Self::MethodNotAllowed(body("method_not_allowed", "The resource has no such method.", None))
    }

    /// The content type of the body is not JSON.
    pub(super) fn unsupported_media_type() -> Self {
        let message = "Expected the content type application/json.";
        Self::UnsupportedMediaType(body("unsupported_media_type", message, None))
    }

    /// The body is compressed. The server does not decompress bodies: the result may be a thousand times as
    /// long.
    pub(super) fn encoded_body() -> Self {
        let message = "Content-Encoding: expected none; the server does not decompress bodies.";
        Self::UnsupportedMediaType(body("unsupported_media_type", message, None))
    }

    /// The caller exceeded a limit. A retry may succeed after `seconds`.
    pub(super) fn rate_limited(message: impl Into<String>, seconds: u64) -> Self {
        Self::RateLimited(body("rate_limited", message, None), seconds.to_string())
    }

    /// The caller exceeded a limit for each minute. A retry may succeed after `seconds`.
    pub(super) fn too_often(max: NonZeroU32, what: &str, seconds: u64) -> Self {
        Self::rate_limited(format!("More than {max} {what} in a minute."), seconds)
    }

    /// A fault of the server.
    pub(super) fn internal() -> Self {
        Self::Internal(body("internal", "The server failed.", None))
    }

    /// The server is stopping. Another server, or the next process, can take the request.
    pub(super) fn stopping() -> Self {
        let message = "The server is stopping. A retry is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// No token can be verified, because the issuer's keys are unreachable.
    pub(super) fn keys_unavailable() -> Self {
        let message = "The issuer's keys cannot be reached. A retry is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// The bodies of other requests use the whole body budget.
    pub(super) fn too_many_bodies() -> Self {
        let message = "The bodies of other requests use the whole memory for bodies. A retry is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// Converts the error to one of several results in a response.
    pub(super) fn refusal(self) -> Refusal {
        let (status, Json(body), retry_after) = match self {
            Self::BadRequest(body) => (400, body, None),
            Self::Unauthenticated(body, _) => (401, body, None),
            Self::Forbidden(body) => (403, body, None),
            Self::NotFound(body) => (404, body, None),
            Self::MethodNotAllowed(body) => (405, body, None),
            Self::Conflict(body) => (409, body, None),
            Self::BodyTooLarge(body) => (413, body, None),
            Self::UnsupportedMediaType(body) => (415, body, None),
            Self::Unprocessable(body) => (422, body, None),
            Self::RateLimited(body, seconds) => (429, body, Some(seconds)),
            Self::Internal(body) => (500, body, None),
            Self::Unavailable(body, seconds) => (503, body, Some(seconds)),
        };
        let retry_after = retry_after.and_then(|seconds| seconds.parse().ok());
        Refusal { status, error: body.error, retry_after }
    }

    fn conflict(code: &str, message: &str, details: Option<Value>) -> Self {
        Self::Conflict(body(code, message, details))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the store failed");
        if error.is_unavailable() {
            let message = "The database cannot be reached. A retry is safe.";
            Self::Unavailable(body("unavailable", message, None), "1".to_owned())
        } else {
            Self::internal()
        }
    }
}

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::NoThread => Self::not_found(),
            AdmitError::TurnInProgress => {
                Self::conflict("turn_in_progress", "A turn of this thread is under way.", None)
            }
            AdmitError::NothingToContinue => {
                Self::conflict("nothing_to_continue", "There is nothing to continue.", None)
            }
            AdmitError::Stopping => Self::stopping(),
            AdmitError::TooManyTurns { of, max } => {
                Self::rate_limited(format!("More than {max} turns of this {of} at once."), TURN_SECONDS)
            }
            AdmitError::TooOften(RateLimited { max, seconds }) => Self::too_often(max, "turns", seconds),
            AdmitError::AwaitingApproval => {
                Self::conflict("awaiting_approval", "Calls of this thread await approval.", None)
            }
            AdmitError::ThreadFull { max, of } => {
                let message = format!("The thread is full: it holds up to {max} {of}. Begin a new one.");
                Self::conflict("thread_full", &message, None)
            }
            AdmitError::UnknownModel(id) => {
                Self::Unprocessable(body("unknown_model", format!("model: there is no model {id:?}."), None))
            }
            AdmitError::UnknownTool(name) => Self::Unprocessable(body(
                "unknown_tool",
                format!("tool_selection: there is no tool {name:?}."),
                None,
            )),
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
                "run_not_waiting",
                "The run has ended.",
                Some(json!({ "state": run.status.name() })),
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
                Self::Unprocessable(body("unknown_tool", format!("tools: there is no tool {name:?}."), None))
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
        Self::conflict("run_not_waiting", "The run does not wait for a decision.", Some(how_closed(call)))
    }

    /// The inputs in this field do not match the tool's schema.
    pub(super) fn invalid_inputs(field: &str, errors: &[InputError]) -> Self {
        let list = errors.iter().map(|error| json!({ "pointer": error.pointer, "message": error.message }));
        let details = json!({ "errors": list.collect::<Vec<Value>>() });
        let message = format!("{field}: the inputs do not fit the tool. The call stays pending.");
        Self::Unprocessable(body("invalid_inputs", message, Some(details)))
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
                "unreadable",
                "The stored inputs of the call cannot be read, so it cannot be approved. \
                 It stays pending; you may reject it.",
                Some(json!({ "state": "pending" })),
            ),
            DecideError::ToolUnavailable(name) => Self::conflict(
                "tool_unavailable",
                "The tool is not available now. The call stays pending.",
                Some(json!({ "state": "pending", "tool_name": name })),
            ),
            DecideError::Stale { input_hash } => Self::conflict(
                "stale",
                &format!(
                    "{}: the call has changed since it was shown. Read it again; it stays pending.",
                    fields.input_hash
                ),
                Some(json!({ "state": "pending", "input_hash": input_hash })),
            ),
            DecideError::InvalidInputs(errors) => Self::invalid_inputs(fields.validated_inputs, &errors),
            DecideError::NotRemembered(expected) => {
                let message = format!("{}: {expected}", fields.remember);
                Self::Unprocessable(body("not_remembered", message, None))
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
            ApiError::conflict("expired", "The call expired without a decision.", Some(details))
        }
        State::Cancelled(..) => ApiError::conflict("cancelled", "The call was cancelled.", Some(details)),
        _ => ApiError::conflict("already_decided", "The call is decided already.", Some(details)),
    }
}

fn how_closed(call: &ToolCall) -> Value {
    let mut details = json!({ "state": call.state.name() });
    if let (Some(decision), Some(details)) = (&call.decision, details.as_object_mut()) {
        details.insert("decision".to_owned(), super::decision_view::decision(decision));
    }
    details
}

/// Converts an error of the framework to the common body. Errors of this module pass through.
pub(super) fn shaped(error: poem::Error) -> Response {
    if error.is_from_response() {
        return error.into_response();
    }
    let status = error.status();
    let ours = match status {
        StatusCode::NOT_FOUND => ApiError::not_found(),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::unsupported_media_type(),
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::BodyTooLarge(body("body_too_large", "The body is too long.", None))
        }
        _ if status.is_client_error() => ApiError::bad_request(error.to_string()),
        _ => {
            tracing::error!(%error, "the framework failed");
            ApiError::internal()
        }
    };
    ours.into_response()
}

/// Whether the response refuses the method.
pub(super) fn refuses_method(response: &Response) -> bool {
    response.status() == StatusCode::METHOD_NOT_ALLOWED
}

/// The response of the readiness probe.
pub(super) fn readiness(ready: bool) -> Response {
    if ready {
        return "ok".into_response();
    }
    let message = "The database cannot be reached.";
    ApiError::Unavailable(body("unavailable", message, None), "1".to_owned()).into_response()
}

/// A redirect to another page of this server.
pub(super) fn redirect(to: &'static str) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    response
}

/// A response that switches the connection to another protocol.
pub(super) fn switching_protocols(head: ResponseBuilder) -> Response {
    head.status(StatusCode::SWITCHING_PROTOCOLS).finish()
}
