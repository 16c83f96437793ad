//! Errors on the wire: their statuses, their body, and the failures of the framework.
//!
//! Every failure has the body `{"error":{"code","message","details"?}}`. `failures.rs` gives the failures of
//! lower layers their errors.

use crate::http::auth::failure::Unknown;
use crate::http::body::payload::Json;
use crate::http::failure::error_code::ErrorCode;
use crate::tools::InputError;
use holdpoint_serve::Exhausted;
use poem::http::{HeaderValue, StatusCode, header};
use poem::{IntoResponse, Response, ResponseBuilder};
use poem_openapi::types::Any;
use poem_openapi::{ApiResponse, Object};
use serde_json::{Value, json};
use tracing::{Span, field};

/// The body of every failure.
#[derive(Debug, Object)]
pub(in crate::http) struct ErrorBody {
    error: Box<ErrorDetail>,
}

/// A failure as one of several results in a response.
#[derive(Debug, Clone)]
pub(in crate::http) struct Refusal {
    pub(in crate::http) status: u16,
    pub(in crate::http) error: Box<ErrorDetail>,
    /// Seconds until a retry may succeed.
    pub(in crate::http) retry_after: Option<u64>,
}

impl Refusal {
    /// Whether the database or this server is unavailable.
    pub(in crate::http) fn is_unavailable(&self) -> bool {
        self.status == 503
    }
}

/// The description of a failure.
#[derive(Debug, Clone, Object)]
pub(in crate::http) struct ErrorDetail {
    code: ErrorCode,
    /// What failed and what was expected, for people.
    message: String,
    /// Further facts about the failure, if any.
    #[oai(skip_serializing_if_is_none)]
    details: Option<Any<Value>>,
}

/// A failure, by its status.
#[derive(Debug, ApiResponse)]
pub(in crate::http) enum ApiError {
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

fn body(code: ErrorCode, message: impl Into<String>, details: Option<Value>) -> Json<ErrorBody> {
    let error = ErrorDetail { code, message: message.into(), details: details.map(Any) };
    Json(ErrorBody { error: Box::new(error) })
}

/// Returns the text of an `error_description`, with `?` in place of characters that the header must not
/// contain (RFC 6750, 3).
fn described(why: &Unknown) -> String {
    why.to_string().replace(|c| !matches!(c, ' '..='~') || matches!(c, '"' | '\\'), "?")
}

impl ApiError {
    /// The request is malformed. The message names the field and the expected value.
    pub(in crate::http) fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(body(ErrorCode::BadRequest, message, None))
    }

    /// The caller is not authenticated. The cause is in the `www-authenticate` header (RFC 6750, 3) and in
    /// the log. The details name the path at which a browser can sign in, if there is one.
    pub(in crate::http) fn unauthenticated(why: &Unknown, sign_in: Option<&str>) -> Self {
        Span::current().record("cause", field::display(why));
        if let Some((scheme, expected)) = why.signature() {
            let challenge = format!("{scheme} error_description=\"{}\"", described(why));
            return Self::Unauthenticated(body(ErrorCode::Unauthenticated, expected, None), challenge);
        }
        let challenge = if why.is_without_credentials() {
            "Bearer".to_owned()
        } else {
            format!("Bearer error=\"invalid_token\", error_description=\"{}\"", described(why))
        };
        let details = sign_in.map(|path| json!({ "sign_in": path }));
        Self::Unauthenticated(
            body(ErrorCode::Unauthenticated, "Expected a valid bearer token.", details),
            challenge,
        )
    }

    /// The resource does not exist, or the caller may not see it. Both cases have the same response.
    pub(in crate::http) fn not_found() -> Self {
        Self::NotFound(body(ErrorCode::NotFound, "There is nothing here, or nothing for you.", None))
    }

    /// The link of a message is unknown, or has expired. Both cases have the same response.
    pub(in crate::http) fn link_not_found() -> Self {
        let message =
            "link: expected a link of a message of the last hour. The inbox has the calls that wait.";
        Self::NotFound(body(ErrorCode::NotFound, message, None))
    }

    /// Whether this error is [`not_found`](Self::not_found).
    pub(in crate::http) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// The caller may not do this.
    pub(in crate::http) fn forbidden(message: impl Into<String>) -> Self {
        Self::Forbidden(body(ErrorCode::Forbidden, message, None))
    }

    /// The body is longer than `bytes_max`.
    pub(in crate::http) fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("The body is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body(ErrorCode::BodyTooLarge, message, None))
    }

    /// A user message is longer than `bytes_max`.
    pub(in crate::http) fn message_too_long(bytes_max: usize) -> Self {
        let message = format!("The message is longer than {bytes_max} bytes.");
        Self::BodyTooLarge(body(ErrorCode::BodyTooLarge, message, None))
    }

    /// The resource has no such method.
    pub(in crate::http) fn method_not_allowed() -> Self {
        Self::MethodNotAllowed(body(ErrorCode::MethodNotAllowed, "The resource has no such method.", None))
    }

    /// The content type of the body is not JSON.
    pub(in crate::http) fn unsupported_media_type() -> Self {
        let message = "Expected the content type application/json.";
        Self::UnsupportedMediaType(body(ErrorCode::UnsupportedMediaType, message, None))
    }

    /// The body is compressed. The server does not decompress bodies: the result may be a thousand times as
    /// long.
    pub(in crate::http) fn encoded_body() -> Self {
        let message = "Content-Encoding: expected none; the server does not decompress bodies.";
        Self::UnsupportedMediaType(body(ErrorCode::UnsupportedMediaType, message, None))
    }

    /// The caller exceeded a limit. A retry may succeed after `seconds`.
    pub(in crate::http) fn rate_limited(message: impl Into<String>, seconds: u64) -> Self {
        Self::RateLimited(body(ErrorCode::RateLimited, message, None), seconds.to_string())
    }

    /// A fault of the server.
    pub(in crate::http) fn internal() -> Self {
        Self::Internal(body(ErrorCode::Internal, "The server failed.", None))
    }

    /// The server is stopping. Another server, or the next process, can take the request.
    pub(in crate::http) fn stopping() -> Self {
        let message = "The server is stopping. A retry is safe.";
        Self::Unavailable(body(ErrorCode::Unavailable, message, None), "1".to_owned())
    }

    /// No token can be verified, because the issuer's keys are unreachable.
    pub(in crate::http) fn keys_unavailable() -> Self {
        let message = "The issuer's keys cannot be reached. A retry is safe.";
        Self::Unavailable(body(ErrorCode::Unavailable, message, None), "1".to_owned())
    }

    /// The session needs a new token of the issuer, which gives none now.
    pub(in crate::http) fn issuer_unavailable() -> Self {
        let message = "The issuer cannot renew the session now. A retry is safe.";
        Self::Unavailable(body(ErrorCode::Unavailable, message, None), "5".to_owned())
    }

    /// The memory for bodies has too few bytes left.
    pub(in crate::http) fn too_many_bodies(exhausted: Exhausted) -> Self {
        Self::in_flight("bodies", exhausted)
    }

    /// The memory for answers has too few bytes left.
    pub(in crate::http) fn too_many_answers(exhausted: Exhausted) -> Self {
        Self::in_flight("answers", exhausted)
    }

    fn in_flight(what: &str, exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::User => Self::rate_limited(
                format!("The {what} of your open requests use the memory for one caller. A retry is safe."),
                1,
            ),
            Exhausted::All => {
                let message =
                    format!("The {what} of other requests use the whole memory for {what}. A retry is safe.");
                Self::Unavailable(body(ErrorCode::Unavailable, message, None), "1".to_owned())
            }
        }
    }

    /// Converts the error to one of several results in a response.
    pub(in crate::http) fn refusal(self) -> Refusal {
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

    /// Returns the message of the failure, for people.
    pub(in crate::http) fn into_text(self) -> String {
        self.refusal().error.message
    }

    /// The state of the resource does not allow the request.
    pub(in crate::http) fn conflict(code: ErrorCode, message: &str, details: Option<Value>) -> Self {
        Self::Conflict(body(code, message, details))
    }

    /// The request is well-formed but cannot be carried out.
    pub(in crate::http) fn unprocessable(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Unprocessable(body(code, message, None))
    }

    /// The database cannot be reached.
    pub(in crate::http) fn database_unavailable() -> Self {
        let message = "The database cannot be reached. A retry is safe.";
        Self::Unavailable(body(ErrorCode::Unavailable, message, None), "1".to_owned())
    }

    /// The inputs in this field do not match the tool's schema.
    pub(in crate::http) fn invalid_inputs(field: &str, errors: &[InputError]) -> Self {
        Self::unfit(format!("{field}: the inputs do not fit the tool. The call stays pending."), errors)
    }

    /// The content of an answer does not match the schema of its request.
    pub(in crate::http) fn invalid_content(errors: &[InputError]) -> Self {
        let message = "content: the content does not fit the schema of the request. The request stays open.";
        Self::unfit(message.to_owned(), errors)
    }

    fn unfit(message: String, errors: &[InputError]) -> Self {
        let list = errors.iter().map(|error| json!({ "pointer": error.pointer, "message": error.message }));
        let details = json!({ "errors": list.collect::<Vec<Value>>() });
        Self::Unprocessable(body(ErrorCode::InvalidInputs, message, Some(details)))
    }
}

/// Converts an error of the framework to the common body. Errors of this module pass through.
pub(in crate::http) fn shaped(error: poem::Error) -> Response {
    if error.is_from_response() {
        return error.into_response();
    }
    let status = error.status();
    let ours = match status {
        StatusCode::NOT_FOUND => ApiError::not_found(),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::unsupported_media_type(),
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::BodyTooLarge(body(ErrorCode::BodyTooLarge, "The body is too long.", None))
        }
        _ if status.is_client_error() => ApiError::bad_request(error.to_string()),
        _ => {
            tracing::error!(%error, "the framework failed");
            ApiError::internal()
        }
    };
    ours.into_response()
}

pub(in crate::http) fn refuses_method(response: &Response) -> bool {
    response.status() == StatusCode::METHOD_NOT_ALLOWED
}

pub(in crate::http) fn readiness(ready: bool) -> Response {
    if ready {
        return "ok".into_response();
    }
    let message = "The database cannot be reached.";
    ApiError::Unavailable(body(ErrorCode::Unavailable, message, None), "1".to_owned()).into_response()
}

/// A redirect to another page of this server.
pub(in crate::http) fn redirect(to: &'static str) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    response
}

/// A redirect of a browser to another page, which it reads with a GET.
pub(in crate::http) fn see_other(to: &str) -> Response {
    let Ok(to) = HeaderValue::from_str(to) else { return ApiError::internal().into_response() };
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// A response that switches the connection to another protocol.
pub(in crate::http) fn switching_protocols(head: ResponseBuilder) -> Response {
    head.status(StatusCode::SWITCHING_PROTOCOLS).finish()
}
