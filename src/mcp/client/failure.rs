//! The end of a call without a result, with the words of the server about it.

use crate::mcp::client::log::redaction::Redaction;
use crate::tools::ToolError;
use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Value, json};

/// The field of the data of an error that has the status of an answer over HTTP which is no message of the protocol.
const STATUS: &str = "holdpoint/status";
/// The field of the same data that says when a server takes a request again.
const RETRY_AFTER: &str = "holdpoint/retryAfter";
/// Maximum length of the words of `Retry-After`, in bytes.
const RETRY_AFTER_BYTES_MAX: usize = 64;

/// Why a call has no result.
pub(in crate::mcp) enum Failure {
    /// The server refused the request because of the connection, not of the call. The tool did not run.
    Connection(RefusedConnection),
    /// The call has this end.
    Error(ToolError),
}

/// Why a server refuses every request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) enum RefusedConnection {
    /// The session has ended.
    Session,
    /// The server wants other credentials.
    Credentials,
}

impl RefusedConnection {
    /// Returns the end of a call that is not sent again.
    pub(in crate::mcp) fn into_error(self) -> ToolError {
        ToolError::new(match self {
            Self::Session => "its server has ended the session; the tool did not run",
            Self::Credentials => "its server wants other credentials; the tool did not run",
        })
    }
}

/// Returns the error of a request that got an answer over HTTP which is no message of the protocol.
pub(in crate::mcp) fn of_status(status: u16, retry_after: Option<&str>, words: String) -> ErrorData {
    let retry_after = retry_after.filter(|it| it.len() <= RETRY_AFTER_BYTES_MAX);
    let data = json!({ STATUS: status, RETRY_AFTER: retry_after });
    ErrorData::new(ErrorCode::INTERNAL_ERROR, words, Some(data))
}

/// Returns the end of a call. A call that is sent again may have had an effect before.
pub(in crate::mcp) fn of(error: ServiceError, is_first: bool, redaction: &Redaction) -> Failure {
    let refused = |why: &str| match is_first {
        true => Failure::Error(ToolError::new(format!("{why}; the tool did not run"))),
        false => Failure::Error(unknown(why, redaction)),
    };
    match error {
        ServiceError::McpError(error) => match status(&error) {
            Some(403) => refused(&redaction.words(format!("its server refuses the call: {}", error.message))),
            Some(401) => refused("its server wants other credentials"),
            Some(429) => {
                let retry_after = error.data.as_ref().and_then(|data| data.get(RETRY_AFTER)?.as_str());
                let when = retry_after.map(|it| format!(", and takes it again {}", when(it)));
                let why = format!(
                    "its server refuses the call for now{}: {}",
                    when.unwrap_or_default(),
                    error.message
                );
                refused(&redaction.words(why))
            }
            Some(_) => Failure::Error(unknown(&error.message, redaction)),
            None => Failure::Error(of_error(error, redaction)),
        },
        ServiceError::UnexpectedResponse => Failure::Error(ToolError::outcome_unknown_with(
            "The server answered in a way that cannot be read.".to_owned(),
        )),
        ServiceError::TransportSend(error) => {
            match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
                Some(StreamableHttpError::SessionExpired) if is_first => {
                    Failure::Connection(RefusedConnection::Session)
                }
                Some(StreamableHttpError::AuthRequired(_)) if is_first => {
                    Failure::Connection(RefusedConnection::Credentials)
                }
                Some(StreamableHttpError::Client(error)) if error.is_connect() => {
                    refused("its server could not be reached")
                }
                _ => Failure::Error(ToolError::outcome_unknown()),
            }
        }
        _ => Failure::Error(ToolError::outcome_unknown()),
    }
}

/// Whether a connection has to be made again after this error. An answer of any kind is none.
pub(in crate::mcp) fn is_lost(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    !matches!(
        error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
        Some(
            StreamableHttpError::HttpStatus(_)
                | StreamableHttpError::UnexpectedServerResponse(_)
                | StreamableHttpError::UnexpectedContentType(_)
                | StreamableHttpError::ResponseBodyTooLarge { .. }
                | StreamableHttpError::Deserialize(_)
        )
    )
}

/// Whether this answer may mean that a session has ended. Some servers have other statuses for that than 404, and they have
/// them for requests of any kind.
pub(in crate::mcp) fn may_end_session(error: &ErrorData) -> bool {
    status(error).is_some_and(|status| (400..500).contains(&status) && !matches!(status, 403 | 429))
}

pub(in crate::mcp) fn message(error: &ErrorData) -> String {
    let data = match &error.data {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(data) => Some(data.to_string()),
    };
    match data {
        Some(data) if status(error).is_none() && !error.message.contains(&data) => {
            format!("{} {data}", error.message)
        }
        _ => error.message.to_string(),
    }
}

fn status(error: &ErrorData) -> Option<u64> {
    error.data.as_ref()?.get(STATUS)?.as_u64()
}

fn of_error(error: ErrorData, redaction: &Redaction) -> ToolError {
    let words = message(&error);
    match error.code {
        // The server refused the request before it began.
        ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST | ErrorCode::METHOD_NOT_FOUND => {
            ToolError::new(redaction.words(words))
        }
        _ => unknown(&words, redaction),
    }
}

/// Returns an unknown outcome with the words of the server.
fn unknown(words: &str, redaction: &Redaction) -> ToolError {
    let words = redaction.words(words.trim());
    match words.is_empty() {
        true => ToolError::outcome_unknown(),
        false => ToolError::outcome_unknown_with(format!("The server said: {words}")),
    }
}

/// Returns the words of `Retry-After`: seconds, or a date.
fn when(retry_after: &str) -> String {
    match retry_after.parse::<u64>() {
        Ok(seconds) => format!("in {seconds} s"),
        Err(_) => format!("at {retry_after}"),
    }
}
