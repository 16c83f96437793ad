//! What the answer of a service says about a call.

use crate::tools::{ToolError, Verified};
use holdpoint_core::json::strict_json;
use holdpoint_core::output::DEPTH_MAX;
use holdpoint_core::owner::Owner;
use holdpoint_core::text::cut;
use holdpoint_core::text::visible::escaped_lines;
use serde_json::Value;
use std::time::Duration;

/// The status by which a service accepts a call whose outcome comes later.
pub(super) const ACCEPTED: u16 = 202;

/// Maximum length of the words of a service about an unknown outcome, in bytes.
const WORDS_BYTES_MAX: usize = 1000;

/// What came back after a request.
#[derive(Debug, PartialEq)]
pub(super) enum ServiceResponse {
    /// The request was not sent, for this reason.
    NotSent(String),
    /// The request may have been read, and there is no answer, for this reason.
    Unknown(String),
    Status {
        status: u16,
        body: String,
        /// Whether this is the whole body.
        is_complete: bool,
    },
}

/// Why there is no result.
#[derive(Debug)]
enum NoResult {
    /// The tool did not run, for this reason.
    Refused(String),
    /// The tool may have run. The service may have said something about it.
    Unknown(Option<String>),
}

impl ServiceResponse {
    /// Returns the result of an execution. `later` is how long a service has to report the outcome after a 202, if it
    /// can report one. The words of the service about an unknown outcome end a call, so an idempotent tool, whose call begins
    /// again, has none.
    pub(super) fn into_result(
        self,
        later: Option<Duration>,
        is_idempotent: bool,
    ) -> Result<Value, ToolError> {
        match (self, later) {
            (Self::Status { status: ACCEPTED, .. }, Some(within)) => {
                Err(ToolError::accepted(Owner { within, work: None }))
            }
            (answered, _) => answered.into_outcome().map_err(|unanswered| match unanswered {
                NoResult::Refused(why) => ToolError::new(why),
                NoResult::Unknown(Some(words)) if !is_idempotent => {
                    let words = escaped_lines(&cut(words, WORDS_BYTES_MAX));
                    ToolError::outcome_unknown_with(format!("The service said: {words}"))
                }
                NoResult::Unknown(_) => ToolError::outcome_unknown(),
            }),
        }
    }

    fn into_outcome(self) -> Result<Value, NoResult> {
        match self {
            Self::NotSent(_) => {
                Err(NoResult::Refused("its service could not be reached; the tool did not run".to_owned()))
            }
            Self::Unknown(_) => Err(NoResult::Unknown(None)),
            Self::Status { status: 200, body, is_complete: true } => Ok(value(body)),
            // The store cuts the text, because it is longer than the limit.
            Self::Status { status: 200, body, is_complete: false } => Ok(Value::String(body)),
            Self::Status { status: status @ 400..=499, body, .. } => {
                Err(refusal(&body).map_or_else(|| unknown(status, &body), NoResult::Refused))
            }
            Self::Status { status: ACCEPTED, .. } => {
                tracing::warn!(
                    "a service accepted a call; without server.public_url it cannot report the outcome"
                );
                Err(unknown(ACCEPTED, ""))
            }
            Self::Status { status, body, .. } => Err(unknown(status, &body)),
        }
    }

    /// Returns what the service says that a call would do.
    pub(super) fn into_preview(self) -> Result<String, ToolError> {
        let refused = |why: &str| Err(ToolError::new(why));
        match self {
            Self::NotSent(_) => refused("its service could not be reached"),
            Self::Unknown(_) => refused("its service did not answer"),
            Self::Status { status: 200, body, is_complete: true } => {
                let body = strict_json::parse(&body, DEPTH_MAX).unwrap_or_default();
                let preview = body.get("preview").and_then(Value::as_str).map(str::to_owned);
                preview.ok_or_else(|| ToolError::new("its service answered something else than a preview"))
            }
            Self::Status { status: 200, is_complete: false, .. } => refused("its service answered too much"),
            Self::Status { status: status @ 400..=499, body, .. } => Err(ToolError::new(
                refusal(&body).unwrap_or_else(|| format!("its service answered {status}")),
            )),
            Self::Status { status, .. } => refused(&format!("its service answered {status}")),
        }
    }

    /// Returns the outcome of an interrupted call.
    pub(super) fn into_verified(self) -> Result<Verified<Value>, ToolError> {
        let Self::Status { status: 200, body, is_complete: true } = self else {
            return Err(ToolError::outcome_unknown());
        };
        let body = strict_json::parse(&body, DEPTH_MAX).unwrap_or_default();
        match body.get("outcome").and_then(Value::as_str) {
            Some("succeeded") => Ok(Verified::Happened(body.get("result").cloned().unwrap_or_default())),
            Some("failed") => Ok(Verified::NeverHappened),
            Some("unknown") => Ok(Verified::Unknown),
            _ => {
                tracing::warn!("an HTTP tool was asked for an outcome and answered with something else");
                Err(ToolError::outcome_unknown())
            }
        }
    }
}

/// Returns the reason in the body of a refusal, if it has one.
fn refusal(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    Some(body.get("error")?.as_str()?.to_owned())
}

fn unknown(status: u16, body: &str) -> NoResult {
    tracing::warn!(status, "the outcome of an HTTP tool is unknown");
    NoResult::Unknown(refusal(body))
}

/// Returns a body as JSON. A body that is no JSON, or whose numbers or keys would change by parsing, is a text.
fn value(body: String) -> Value {
    if body.trim().is_empty() {
        return Value::Null;
    }
    strict_json::parse(&body, DEPTH_MAX).unwrap_or(Value::String(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_egress::RequestFailure;
    use serde_json::json;

    fn late() -> ServiceResponse {
        RequestFailure::late().into()
    }

    fn status(status: u16, body: &str) -> ServiceResponse {
        ServiceResponse::Status { status, body: body.to_owned(), is_complete: true }
    }

    #[test]
    fn a_200_is_the_result_in_the_form_that_changes_nothing() {
        for (body, expected) in [
            (r#"{"a":[1,2.5,null]}"#, json!({ "a": [1, 2.5, null] })),
            ("plain words", json!("plain words")),
            ("", json!(null)),
            (r#"{"a":1,"a":2}"#, json!(r#"{"a":1,"a":2}"#)),
            ("123456789012345678901234567890", json!("123456789012345678901234567890")),
            (r#""\u0000""#, json!(r#""\u0000""#)),
        ] {
            assert_eq!(status(200, body).into_result(None, false), Ok(expected), "{body}");
        }
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert_eq!(status(200, &deep).into_result(None, false), Ok(json!(deep)));
    }

    #[test]
    fn only_a_refusal_in_words_is_a_failure() {
        let refused = status(422, r#"{"error":"no such account","code":7}"#).into_result(None, false);
        assert_eq!(refused, Err(ToolError::new("no such account")));
        let unknown = Err(ToolError::outcome_unknown());
        for (code, body) in [
            (201, "{}"),
            (202, r#"{"error":"later"}"#),
            (204, ""),
            (400, "{}"),
            (400, "nope"),
            (404, r#"{"error":{"message":"x"}}"#),
            (500, "{}"),
            (503, ""),
        ] {
            assert_eq!(status(code, body).into_result(None, false), unknown, "{code} {body}");
        }
        assert_eq!(late().into_result(None, false), unknown);
        for code in [301, 500, 503] {
            let broken = || status(code, r#"{"error":"bro\u0007ken"}"#);
            let said = "The service said: bro\\u{7}ken".to_owned();
            assert_eq!(
                broken().into_result(None, false),
                Err(ToolError::outcome_unknown_with(said)),
                "{code}"
            );
            assert_eq!(broken().into_result(None, true), unknown, "the call begins again");
        }
    }

    #[test]
    fn a_202_alone_accepts_a_call_of_a_service_that_can_report() {
        let later = Some(Duration::from_secs(5));
        let accepted = Err(ToolError::accepted(Owner { within: Duration::from_secs(5), work: None }));
        for body in ["", "{}", r#"{"error":"later"}"#] {
            assert_eq!(status(202, body).into_result(later, false), accepted, "{body}");
        }
        assert_eq!(status(200, "1").into_result(later, false), Ok(json!(1)));
        for code in [201, 203, 302, 500] {
            assert_eq!(
                status(code, "").into_result(later, false),
                Err(ToolError::outcome_unknown()),
                "{code}"
            );
        }
    }

    #[test]
    fn a_preview_is_the_text_in_a_200_and_everything_else_is_a_reason() {
        let said = status(200, r#"{"preview":"deletes 3 rows\n","more":1}"#).into_preview();
        assert_eq!(said, Ok("deletes 3 rows\n".to_owned()));
        for (answered, why) in [
            (status(422, r#"{"error":"no such account"}"#), "no such account"),
            (status(404, "nope"), "its service answered 404"),
            (status(202, r#"{"preview":"later"}"#), "its service answered 202"),
            (status(500, r#"{"error":"secret"}"#), "its service answered 500"),
            (status(200, "deletes 3 rows"), "its service answered something else than a preview"),
            (status(200, r#"{"preview":3}"#), "its service answered something else than a preview"),
            (late(), "its service did not answer"),
            (ServiceResponse::NotSent("refused".to_owned()), "its service could not be reached"),
            (
                ServiceResponse::Status {
                    status: 200,
                    body: r#"{"preview":"x"#.to_owned(),
                    is_complete: false,
                },
                "its service answered too much",
            ),
        ] {
            assert_eq!(answered.into_preview(), Err(ToolError::new(why)), "{why}");
        }
    }

    #[test]
    fn the_outcome_of_an_interrupted_call_is_read_from_a_200_alone() {
        for (body, expected) in [
            (r#"{"outcome":"succeeded","result":{"n":1}}"#, Verified::Happened(json!({ "n": 1 }))),
            (r#"{"outcome":"succeeded"}"#, Verified::Happened(json!(null))),
            (r#"{"outcome":"failed","error":"no"}"#, Verified::NeverHappened),
            (r#"{"outcome":"unknown"}"#, Verified::Unknown),
        ] {
            assert_eq!(status(200, body).into_verified(), Ok(expected), "{body}");
            assert!(status(202, body).into_verified().is_err());
        }
        for body in ["", "{}", r#"{"outcome":"maybe"}"#, r#"["succeeded"]"#] {
            assert!(status(200, body).into_verified().is_err(), "{body}");
        }
    }
}
