//! The answers of endpoints to POST requests.

use super::channel::FailedAttempt;
use holdpoint_core::endpoint::{Failure, FailureAction};
use holdpoint_egress::Unanswered;
use reqwest::Response;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use std::time::Duration;

/// The status of an endpoint that wants nothing any more.
const GONE: u16 = 410;
/// The statuses whose `retry-after` counts.
const BUSY: [u16; 2] = [429, 503];

/// Returns what a request to an endpoint came to. Only a status of success is a delivery. The body of an answer is not
/// read.
pub(super) fn outcome(answered: Result<Response, Unanswered>) -> Result<(), FailedAttempt> {
    match answered {
        Ok(response) => of_response(&response),
        Err(unanswered) => Err(failed(unanswered)),
    }
}

/// Returns the failed attempt of a request without an answer.
pub(super) fn failed(unanswered: Unanswered) -> FailedAttempt {
    let (failure, why) = match unanswered {
        Unanswered::NotSent(why) => (Failure::NotSent, why),
        Unanswered::Unknown(why) => (Failure::NoAnswer, why),
    };
    FailedAttempt::again(failure, why)
}

/// Returns what an answer with this head is.
pub(super) fn of_response(response: &Response) -> Result<(), FailedAttempt> {
    let status = response.status().as_u16();
    let action = match status {
        200..=299 => return Ok(()),
        GONE => FailureAction::Disable,
        busy if BUSY.contains(&busy) => FailureAction::Retry(retry_after(response.headers())),
        _ => FailureAction::Retry(None),
    };
    Err(FailedAttempt { failure: Failure::Status(status), action, why: format!("it answered {status}") })
}

/// Returns the wait that the endpoint asks for (RFC 9110, 10.2.3). A date is compared with the clock of the endpoint.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let wanted = text(RETRY_AFTER)?;
    if let Ok(seconds) = wanted.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(wanted).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn a_wait_is_read_from_seconds_or_from_two_dates_of_the_endpoint() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (wanted, now, wait) in [
            ("120", None, Some(120)),
            (" 7 ", None, Some(7)),
            ("-1", None, None),
            ("soon", None, None),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(date), Some(30)),
            ("Sun, 06 Nov 1994 08:40:07 GMT", Some(date), Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(wanted));
            headers.extend(now.map(|now| (DATE, HeaderValue::from_static(now))));
            assert_eq!(retry_after(&headers), wait.map(Duration::from_secs), "{wanted}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
