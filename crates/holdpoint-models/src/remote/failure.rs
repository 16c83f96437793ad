//! The failures that servers report inside a response with status 200: as an event, as a field of an event, or
//! as a document in place of a stream.

use super::context::sentence;
use super::{context, lenient};
use crate::ModelError;
use holdpoint_core::json::surrogates::without_lone_halves;
use serde_json::Value;
use std::time::Duration;

/// Parts of the types and codes of errors that indicate a temporary failure, in small letters and without
/// separators.
const FOR_NOW: [&str; 11] = [
    "overloaded",
    "ratelimit",
    "throttl",
    "toomanyrequests",
    "unavailable",
    "servererror",
    "internalerror",
    "apierror",
    "exhausted",
    "busy",
    "timeout",
];
/// Messages of throttles that some servers give another type.
const THROTTLES: [&str; 3] = ["toomanyrequests", "ratelimitexceeded", "ratelimitreached"];
/// The places of the type and the code of an error.
const KINDS: [&str; 8] = [
    "/type",
    "/code",
    "/status",
    "/error_type",
    "/status_code",
    "/metadata/error_type",
    "/error/type",
    "/error/code",
];
/// The places of the wait that a server asks for, in seconds.
const WAITS: [&str; 3] = ["/retry_after", "/error/retry_after", "/metadata/retry_after"];

/// Returns the error for the object, or the text, with which a server reports a failure.
pub(super) fn in_event(error: &Value) -> ModelError {
    let message = sentence(error).or_else(|| error.as_str()).map(str::to_owned);
    let known = message.or_else(|| error.get("code").map(lenient::text).filter(|code| !code.is_empty()));
    let why = format!("error in the stream: {}", known.as_deref().unwrap_or("no message"));
    if context::says_full(error) {
        return ModelError::ContextFull(why);
    }
    let kinds = KINDS.into_iter().filter_map(|place| error.pointer(place)).map(lenient::text);
    let is_throttle = known.is_some_and(|message| THROTTLES.iter().any(|it| plain(&message).contains(it)));
    if is_throttle || kinds.into_iter().any(|kind| is_for_now(&kind)) {
        let wait = WAITS.into_iter().find_map(|place| lenient::count(error.pointer(place)));
        return ModelError::Unavailable { why, retry_after: wait.map(Duration::from_secs) };
    }
    ModelError::Upstream(why)
}

/// Returns whether a type or a code indicates a temporary failure.
fn is_for_now(kind: &str) -> bool {
    if let Ok(status) = kind.trim().parse::<u64>() {
        return status == 429 || (500..600).contains(&status);
    }
    let plain = plain(kind);
    FOR_NOW.iter().any(|part| plain.contains(part))
}

/// Returns the letters and digits of a text, in small letters.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|it| it.to_ascii_lowercase()).collect()
}

/// Returns the error for the data of an error event, or for a document that is no answer.
pub(super) fn in_text(data: &str) -> ModelError {
    let data = data.trim();
    let Ok(whole) = serde_json::from_str::<Value>(&without_lone_halves(data)) else {
        return in_event(&Value::String(data.to_owned()));
    };
    let error = whole.get(0).unwrap_or(&whole);
    match error.get("error") {
        Some(inner @ (Value::Object(_) | Value::String(_))) if sentence(inner).is_some() => in_event(inner),
        _ => in_event(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_is_temporary_by_its_type_its_code_or_its_status() {
        for error in [
            json!({"message": "no", "code": 429}),
            json!({"message": "no", "code": "429"}),
            json!({"message": "no", "code": 503.0}),
            json!({"message": "no", "status": "RESOURCE_EXHAUSTED"}),
            json!({"message": "no", "code": "Throttling.AllocationQuota"}),
            json!({"message": "no", "code": "InternalError.Algo"}),
            json!({"message": "no", "type": "Too Many Requests"}),
            json!({"message": "no", "metadata": {"error_type": "rate_limit_exceeded"}}),
            json!({"error": {"message": "no", "type": "overloaded_error"}}),
        ] {
            let read = in_text(&error.to_string());
            assert!(matches!(read, ModelError::Unavailable { .. }), "{error}: {read:?}");
            assert!(read.to_string().ends_with("error in the stream: no"), "{read}");
        }
        let hidden =
            json!({"type": "invalid_request_error", "message": "{\"message\":\"Too many requests.\"}"});
        assert!(matches!(in_event(&hidden), ModelError::Unavailable { .. }));
        for (error, why) in [
            (json!({"message": "no", "code": 400}), "no"),
            (json!({"message": "no", "code": "insufficient_quota"}), "no"),
            (json!({"code": "DataInspectionFailed"}), "DataInspectionFailed"),
            (json!({"error": "no"}), "no"),
            (json!({"detail": "no"}), "no"),
            (json!([{"error": {"message": "no"}}]), "no"),
            (json!({}), "no message"),
        ] {
            let read = in_text(&error.to_string());
            assert!(
                matches!(&read, ModelError::Upstream(it) if it.ends_with(&format!(": {why}"))),
                "{read:?}"
            );
        }
        assert_eq!(in_text(" busy ").to_string(), "the model's server failed: error in the stream: busy");
    }

    #[test]
    fn the_wait_in_an_error_is_read() {
        let error = json!({"message": "no", "code": 429, "metadata": {"retry_after": 7}});
        let read = in_event(&error);
        assert!(
            matches!(read, ModelError::Unavailable { retry_after: Some(wait), .. } if wait == Duration::from_secs(7))
        );
    }
}
