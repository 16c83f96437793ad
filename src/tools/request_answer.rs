//! The checks of an answer to a tool, and the time limits of a tool that waits for one.

use super::InputError;
use super::registry::{ERRORS_MAX, MESSAGE_BYTES_MAX};
use holdpoint_core::json::pointer;
use holdpoint_core::text::cut;
use holdpoint_core::tool::input::Input;
use holdpoint_store::waited::WaitedTime;
use jsonschema::PatternOptions;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum size of a compiled pattern of a schema, in bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// The least pause between two looks at a time that waits make longer.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the errors of a content by the schema of its request. A field that the schema does not have is one of them.
pub(crate) fn errors_in(content: &Input, schema: &Input) -> Vec<InputError> {
    let patterns = PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options().with_pattern_options(patterns).should_validate_formats(true);
    let validator = options.build(&Value::Object(schema.clone()));
    let Ok(validator) = validator else {
        let message = "the schema of the request cannot be used; decline the request".to_owned();
        return vec![InputError { pointer: String::new(), message }];
    };
    let known = schema.get("properties").and_then(Value::as_object);
    let unknown = content.keys().filter(|name| !known.is_some_and(|known| known.contains_key(*name)));
    let unknown = unknown.map(|name| InputError {
        pointer: pointer::join("", name),
        message: "the request has no such field".to_owned(),
    });
    let content = Value::Object(content.clone());
    let errors = validator.iter_errors(&content).map(|error| InputError {
        pointer: error.instance_path().to_string(),
        message: cut(error.to_string(), MESSAGE_BYTES_MAX),
    });
    unknown.chain(errors).take(ERRORS_MAX).collect()
}

/// How long a tool may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    /// Since its beginning, or since its last report of progress.
    pub(crate) quiet: Duration,
    /// Altogether, with reports of progress.
    pub(crate) whole: Duration,
}

/// Completes at the limit of the time, without the time that the call waits for people meanwhile.
pub(crate) async fn time_without_waits(limit: TimeLimit, waited: &WaitedTime) {
    let (began, before) = (Instant::now(), waited.total());
    loop {
        let passed = began.elapsed().saturating_sub(waited.total().saturating_sub(before));
        let quiet = waited.since_report().map_or(passed, |since| since.min(passed));
        let left = limit.quiet.saturating_sub(quiet).min(limit.whole.max(limit.quiet).saturating_sub(passed));
        if left.is_zero() {
            return;
        }
        sleep(left.max(LOOK.min(limit.quiet))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant as Clock;

    #[tokio::test]
    async fn a_time_limit_leaves_out_the_time_of_waits() {
        let (waited, began) = (WaitedTime::default(), Clock::now());
        let limit = TimeLimit { quiet: Duration::from_millis(50), whole: Duration::from_secs(60) };
        let waiting = waited.begin();
        let ends = time_without_waits(limit, &waited);
        let answers = async {
            sleep(Duration::from_millis(200)).await;
            drop(waiting);
        };
        tokio::join!(ends, answers);
        assert!(began.elapsed() >= Duration::from_millis(240), "{:?}", began.elapsed());
        let waited = WaitedTime::default();
        let ends = time_without_waits(limit, &waited);
        tokio::time::timeout(Duration::from_secs(30), ends).await.unwrap();
    }
}
