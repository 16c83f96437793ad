//! Endpoints: receivers of the events of a tenant, one after the other, with retries.

use super::clock::Timestamp;
use std::time::Duration;

/// The wait after the first failed attempt. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest wait between two attempts, whatever an endpoint asks for.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
/// The shortest wait that an endpoint can ask for.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// For how long attempts may fail until the endpoint is disabled.
const FAILING_MAX: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// An endpoint, and how far its delivery went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name in the configuration.
    pub name: String,
    /// The tenant whose events it gets.
    pub tenant_id: String,
    /// The way in which it gets them.
    pub channel: ChannelKind,
    /// The number up to which each event is delivered, or is of no type that the endpoint gets.
    pub cursor: i64,
    /// How the delivery goes.
    pub state: EndpointState,
    /// The messages that were refused for good, if there are any. The delivery went on after each.
    pub refusals: Option<Refusals>,
}

impl Endpoint {
    /// Whether events after the cursor are gone, if this one is the oldest that is not deleted. They cannot be delivered.
    pub const fn has_gap(&self, oldest: i64) -> bool {
        oldest > self.cursor.saturating_add(1)
    }
}

/// The messages that the service of a channel refused for good, since the endpoint is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusals {
    /// The number of messages.
    pub count: u32,
    /// When the last one was refused.
    pub at: Timestamp,
    /// The status with which the last one was refused.
    pub status: u16,
}

/// The way in which an endpoint gets events, without the facts of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelKind {
    /// One signed request for each event.
    Webhook,
    /// One mail for each event that is of concern to the recipient.
    Mail,
    /// One request of a filled template for each event that is of concern to the recipient.
    Template,
    /// One message in Slack for each call that is of concern to the recipient.
    Slack,
    /// One message to a topic of ntfy for each event that is of concern to the recipient.
    Ntfy,
}

impl ChannelKind {
    /// All channels.
    pub const ALL: [Self; 5] = [Self::Webhook, Self::Mail, Self::Template, Self::Slack, Self::Ntfy];

    /// Returns the name of the channel for people, rows and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Mail => "mail",
            Self::Template => "template",
            Self::Slack => "slack",
            Self::Ntfy => "ntfy",
        }
    }
}

/// How the delivery to an endpoint goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointState {
    /// The last attempt succeeded, or there was none.
    Delivering,
    /// The last attempt failed, and another follows.
    Failing {
        /// The failed attempts.
        failures: Failures,
        /// When the next attempt may begin.
        next_attempt_at: Timestamp,
    },
    /// There are no attempts until an operator enables the endpoint.
    Disabled {
        /// The failed attempts.
        failures: Failures,
        /// When the endpoint was disabled.
        at: Timestamp,
        /// Why the endpoint was disabled.
        reason: DisabledReason,
    },
}

/// The failed attempts since the last success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    /// The number of attempts.
    pub count: u32,
    /// When the first one failed.
    pub since: Timestamp,
    /// What came of the last one.
    pub last: Failure,
}

/// Why an endpoint is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledReason {
    /// The address of a webhook or a template answered that it is gone for good.
    Gone,
    /// The attempts failed for three days.
    FailedTooLong,
}

/// What came of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The endpoint, or the service of its channel, answered with this status, or with an error of this status.
    Status(u16),
    /// The request or the message was sent, and no answer came in time, or the connection broke.
    NoAnswer,
    /// The request or the message was not sent: no connection, or an address that the server may not reach.
    NotSent,
}

/// How a failed attempt is to be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// By another attempt, not before this wait is over, if the endpoint asks for one.
    Retry(Option<Duration>),
    /// By none: the endpoint is gone for good.
    Disable,
}

impl EndpointState {
    /// Returns the state after one more failed attempt.
    pub fn failed(&self, failure: Failure, action: FailureAction, now: Timestamp) -> Self {
        let (count, since) = match self {
            Self::Delivering => (1, now),
            Self::Failing { failures, .. } | Self::Disabled { failures, .. } => {
                (failures.count.saturating_add(1), failures.since)
            }
        };
        let failures = Failures { count, since, last: failure };
        match action {
            FailureAction::Disable => Self::Disabled { failures, at: now, reason: DisabledReason::Gone },
            FailureAction::Retry(_) if now.since(since) >= FAILING_MAX => {
                Self::Disabled { failures, at: now, reason: DisabledReason::FailedTooLong }
            }
            FailureAction::Retry(asked) => {
                let wait = asked.map_or_else(|| wait(count), |asked| asked.clamp(WAIT_MIN, WAIT_MAX));
                // The last attempt is made when the three days are over, not up to an hour later.
                let next_attempt_at = now.plus(wait).min(since.plus(FAILING_MAX));
                Self::Failing { failures, next_attempt_at }
            }
        }
    }

    /// Whether no attempt is made until an operator enables the endpoint.
    pub fn is_disabled(&self) -> bool {
        matches!(self, Self::Disabled { .. })
    }

    /// Returns the failed attempts since the last success.
    pub fn failures(&self) -> Option<&Failures> {
        match self {
            Self::Delivering => None,
            Self::Failing { failures, .. } | Self::Disabled { failures, .. } => Some(failures),
        }
    }
}

/// Returns the wait after this many failed attempts.
fn wait(failed: u32) -> Duration {
    let doublings = failed.saturating_sub(1).min(16);
    FIRST_WAIT.saturating_mul(1 << doublings).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * SECOND)
    }

    fn fails(state: &EndpointState, asked: Option<Duration>, now: i64) -> EndpointState {
        state.failed(Failure::Status(500), FailureAction::Retry(asked), at(now))
    }

    fn next(state: &EndpointState) -> i64 {
        let EndpointState::Failing { next_attempt_at, .. } = state else { panic!("{state:?}") };
        next_attempt_at.as_micros() / SECOND
    }

    #[test]
    fn the_waits_double_up_to_an_hour_until_three_days_have_passed() {
        let (mut now, mut state, mut waits) = (1000, EndpointState::Delivering, Vec::new());
        loop {
            state = fails(&state, None, now);
            if state.is_disabled() {
                break;
            }
            waits.push(next(&state) - now);
            now = next(&state);
        }
        assert_eq!(waits[..12], [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        assert_eq!(now, 1000 + 3 * 24 * 60 * 60, "the last attempt is at the end of the three days");
        let EndpointState::Disabled { failures, at: disabled_at, reason } = state else { panic!() };
        assert_eq!((reason, disabled_at, failures.since), (DisabledReason::FailedTooLong, at(now), at(1000)));
        assert_eq!(usize::try_from(failures.count).unwrap(), waits.len() + 1);
    }

    #[test]
    fn a_wait_that_the_endpoint_asks_for_is_kept_within_bounds() {
        for (asked, waits) in [(0, 1), (7, 7), (3600, 3600), (1_000_000, 3600)] {
            let state = fails(&EndpointState::Delivering, Some(Duration::from_secs(asked)), 1000);
            assert_eq!(next(&state) - 1000, waits, "{asked}");
        }
    }

    #[test]
    fn an_endpoint_that_is_gone_is_disabled_at_once() {
        let state = EndpointState::Delivering.failed(Failure::Status(410), FailureAction::Disable, at(5));
        let failures = Failures { count: 1, since: at(5), last: Failure::Status(410) };
        assert_eq!(state, EndpointState::Disabled { failures, at: at(5), reason: DisabledReason::Gone });
    }
}
