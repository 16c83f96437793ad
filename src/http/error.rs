//! Errors on the wire: the only place where a failure gets its status.
//!
//! Every failure is `{"error":{"code","message","details"?}}`, those of the framework too. What goes out is
//! written here; what a lower layer says of itself goes to the log.

use super::auth::Unknown;
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

/// When to ask again where turns under way are in the way: nobody knows when one ends.
const TURN_SECONDS: u64 = 5;

/// The body of every failure.
#[derive(Debug, Object)]
pub(super) struct ErrorBody {
    error: Box<ErrorDetail>,
}

/// A failure as one of several answers.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) error: Box<ErrorDetail>,
    /// In so many seconds it may go.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    /// Whether the database, or this server, is not there.
    pub(super) fn is_unavailable(&self) -> bool {
        self.status == 503
    }
}

/// What failed.
#[derive(Debug, Clone, Object)]
pub(super) struct ErrorDetail {
    /// What failed, for programs.
    code: String,
    /// What failed and what was expected, for people.
    message: String,
    /// More facts, where there are any.
    #[oai(skip_serializing_if_is_none)]
    details: Option<Any<Value>>,
}

/// A failure, by its status.
#[derive(Debug, ApiResponse)]
pub(super) enum ApiError {
    /// The request cannot be read.
    #[oai(status = 400)]
    BadRequest(Json<ErrorBody>),
    /// Who calls is not known.
    #[oai(status = 401)]
    Unauthenticated(
        Json<ErrorBody>,
        /// `Bearer`; of credentials that were refused also `error` and, in `error_description`, why (RFC 6750, 3).
        #[oai(header = "www-authenticate")]
        String,
    ),
    /// The caller may see this, but not do it.
    #[oai(status = 403)]
    Forbidden(Json<ErrorBody>),
    /// It is not there, or not for the caller.
    #[oai(status = 404)]
    NotFound(Json<ErrorBody>),
    /// The resource has no such method.
    #[oai(status = 405)]
    MethodNotAllowed(Json<ErrorBody>),
    /// It stands otherwise than the request takes for granted.
    #[oai(status = 409)]
    Conflict(Json<ErrorBody>),
    /// The body is too long.
    #[oai(status = 413)]
    BodyTooLarge(Json<ErrorBody>),
    /// The body is not JSON by its content type.
    #[oai(status = 415)]
    UnsupportedMediaType(Json<ErrorBody>),
    /// The request can be read, but not be done.
    #[oai(status = 422)]
    Unprocessable(Json<ErrorBody>),
    /// Too much of this at once, or too often. Nothing was done.
    #[oai(status = 429)]
    RateLimited(
        Json<ErrorBody>,
        /// In so many seconds it may go (RFC 9110, 10.2.3).
        #[oai(header = "retry-after")]
        String,
    ),
    /// A fault of the server.
    #[oai(status = 500)]
    Internal(Json<ErrorBody>),
    /// The database, or the issuer of the caller's token, cannot be reached: what became of the request is unknown, asking again is safe.
    #[oai(status = 503)]
    Unavailable(Json<ErrorBody>, #[oai(header = "retry-after")] String),
}

fn body(code: &str, message: impl Into<String>, details: Option<Value>) -> Json<ErrorBody> {
    let error = ErrorDetail { code: code.to_owned(), message: message.into(), details: details.map(Any) };
    Json(ErrorBody { error: Box::new(error) })
}

/// The words of an `error_description`, with `?` for what none may have (RFC 6750, 3).
fn described(why: &Unknown) -> String {
    why.to_string().replace(|c| !matches!(c, ' '..='~') || matches!(c, '"' | '\\'), "?")
}

impl ApiError {
    /// The request cannot be read; the message names the field and says what was expected.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(body("bad_request", message, None))
    }

    /// Who calls is not known. Why not is in the head of the answer (RFC 6750, 3) and in the log.
    pub(super) fn unauthenticated(why: &Unknown) -> Self {
        Span::current().record("cause", field::display(why));
        let challenge = if why.is_without_credentials() {
            "Bearer".to_owned()
        } else {
            format!("Bearer error=\"invalid_token\", error_description=\"{}\"", described(why))
        };
        Self::Unauthenticated(body("unauthenticated", "Expected a valid bearer token.", None), challenge)
    }

    /// It is not there, or not for the caller: the answer is the same.
    pub(super) fn not_found() -> Self {
        Self::NotFound(body("not_found", "There is nothing here, or nothing for you.", None))
    }

    /// A caller from outside of what this server serves.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::Forbidden(body("forbidden", message, None))
    }

    /// The body is longer than this.
    pub(super) fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("The body is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body("body_too_large", message, None))
    }

    /// A user's message is longer than this.
    pub(super) fn message_too_long(bytes_max: usize) -> Self {
        let message = format!("The message is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body("body_too_large", message, None))
    }

    /// The resource has no such method.
    pub(super) fn method_not_allowed() -> Self {
        Self::MethodNotAllowed(body("method_not_allowed", "The resource has no such method.", None))
    }

    /// The body is no JSON by its content type.
    pub(super) fn unsupported_media_type() -> Self {
        let message = "Expected the content type application/json.";
        Self::UnsupportedMediaType(body("unsupported_media_type", message, None))
    }

    /// The body is compressed, and nobody unpacks what may be a thousand times as long.
    pub(super) fn encoded_body() -> Self {
        let message = "Content-Encoding: expected none; a body is read as it comes.";
        Self::UnsupportedMediaType(body("unsupported_media_type", message, None))
    }

    /// Too much of this at once, or too often; `seconds` from now it may go.
    pub(super) fn rate_limited(message: impl Into<String>, seconds: u64) -> Self {
        Self::RateLimited(body("rate_limited", message, None), seconds.to_string())
    }

    /// The caller did this as often as they may for now; `seconds` from now they may again.
    pub(super) fn too_often(max: NonZeroU32, what: &str, seconds: u64) -> Self {
        Self::rate_limited(format!("More than {max} {what} in a minute."), seconds)
    }

    /// A fault of the server.
    pub(super) fn internal() -> Self {
        Self::Internal(body("internal", "The server failed.", None))
    }

    /// The server is about to leave; another one, or the next, will answer.
    pub(super) fn stopping() -> Self {
        let message = "The server is stopping. Asking again is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// Nobody can be known: the keys for their tokens cannot be had.
    pub(super) fn keys_unavailable() -> Self {
        let message = "The issuer's keys cannot be had. Asking again is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// The bodies of other requests take all the bytes that there are for bodies.
    pub(super) fn too_many_bodies() -> Self {
        let message = "The server reads as many bytes of bodies as it may. Asking again is safe.";
        Self::Unavailable(body("unavailable", message, None), "1".to_owned())
    }

    /// The same as one of several answers.
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
            let message = "The database cannot be reached. Asking again is safe.";
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
                Some(json!({ "state": run.status.as_str() })),
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
                "{tool} would go further than before. You may only tighten what holds in the session."
            )),
            PolicyError::ModeLoosened => Self::forbidden(
                "mode: tools that ask would go further than before. You may only tighten what holds in the session.",
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

/// What a body that decides calls its fields.
struct DecisionFields {
    input_hash: &'static str,
    validated_inputs: &'static str,
    remember: &'static str,
}

impl DecisionFields {
    /// Under `/qa`.
    const CAMEL: Self =
        Self { input_hash: "inputHash", validated_inputs: "validatedInputs", remember: "remember" };
    /// Everywhere else, where a decision's own word may say that it reaches further.
    const SNAKE: Self =
        Self { input_hash: "input_hash", validated_inputs: "validated_inputs", remember: "decision" };
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::CAMEL)
    }
}

impl ApiError {
    /// Why a decision is not taken, where fields are in snake case.
    pub(super) fn not_decided_here(error: DecideError) -> Self {
        Self::not_decided(error, DecisionFields::SNAKE)
    }

    /// A decision about a call of a run that waits for nobody any more.
    pub(super) fn run_not_waiting(call: &ToolCall) -> Self {
        Self::conflict("run_not_waiting", "The run waits for nobody any more.", Some(how_closed(call)))
    }

    /// The inputs in this field do not fit the tool.
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
                "The stored inputs of the call cannot be read, so it cannot be approved. It stays pending; you may reject it.",
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
                    "{}: what was shown is out of date. Look at the call again; it stays pending.",
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

/// A decision that came behind another end; the details say which.
fn closed(call: &ToolCall) -> ApiError {
    let details = how_closed(call);
    match &call.state {
        State::Expired(_) => {
            ApiError::conflict("expired", "Nobody decided in time; the call expired.", Some(details))
        }
        State::Cancelled(..) => ApiError::conflict("cancelled", "The call was cancelled.", Some(details)),
        _ => ApiError::conflict("already_decided", "The call is decided already.", Some(details)),
    }
}

fn how_closed(call: &ToolCall) -> Value {
    let mut details = json!({ "state": call.state.as_str() });
    if let (Some(decision), Some(details)) = (&call.decision, details.as_object_mut()) {
        details.insert("decision".to_owned(), super::call::decision(decision));
    }
    details
}

/// A failure of the framework in the one shape; ours pass through.
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

/// Whether it says that the resource has no such method.
pub(super) fn refuses_method(response: &Response) -> bool {
    response.status() == StatusCode::METHOD_NOT_ALLOWED
}

/// A readiness answer.
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

/// The connection is another protocol's from here on.
pub(super) fn switching_protocols(head: ResponseBuilder) -> Response {
    head.status(StatusCode::SWITCHING_PROTOCOLS).finish()
}
