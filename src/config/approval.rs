//! `[approval]`: how people are asked.

use super::{ConfigError, duration, wrong};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[approval]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// `pending_ttl`: how long a person may take to answer.
    #[serde(with = "super::sources::duration")]
    pub pending_ttl: Duration,
    /// `start_deadline`: how long after a yes a call may be begun, or after it was cut off be begun again; and how long
    /// its tool is asked what became of it.
    #[serde(with = "super::sources::duration")]
    pub start_deadline: Duration,
    /// `lease`: how long whoever runs a turn or a tool may be silent before it is taken for dead, and how long the
    /// outcome of a call is tried to be written.
    /// On Postgres a process that stands still holds its locks for up to ten seconds, and others that wait for them may
    /// be silent meanwhile.
    #[serde(with = "super::sources::duration")]
    pub lease: Duration,
    /// `sweep`: how often to look for what time or a crash left behind.
    #[serde(with = "super::sources::duration")]
    pub sweep: Duration,
    /// `wait`: how long a decider waits for the outcome.
    #[serde(with = "super::sources::duration")]
    pub wait: Duration,
    /// `while_pending`: what a new message does while calls wait for a person.
    pub while_pending: WhilePending,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            pending_ttl: Duration::from_secs(24 * 60 * 60),
            start_deadline: Duration::from_secs(5 * 60),
            lease: Duration::from_secs(30),
            sweep: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            while_pending: WhilePending::Defer,
        }
    }
}

/// What a new message does while calls wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhilePending {
    /// The conversation goes on; the model is told that they wait.
    Defer,
    /// The message is refused with 409 `awaiting_approval`.
    Reject,
    /// The calls are cancelled.
    Cancel,
}

impl Approval {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (key, duration) in [("approval.lease", self.lease), ("approval.sweep", self.sweep)] {
            if duration.is_zero() {
                return wrong(key, "expected more than 0s");
            }
        }
        duration("approval.pending_ttl", self.pending_ttl)?;
        duration("approval.start_deadline", self.start_deadline)?;
        duration("approval.lease", self.lease)?;
        duration("approval.sweep", self.sweep)?;
        duration("approval.wait", self.wait)
    }
}
