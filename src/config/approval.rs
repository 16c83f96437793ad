//! `[approval]`: how people are asked.

use super::rules::{self, ApprovalRule};
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
    /// `handler_timeout`: how long an approval handler of this process may take to answer; then the call is cancelled.
    #[serde(with = "super::sources::duration")]
    pub handler_timeout: Duration,
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
    #[serde(deserialize_with = "super::sources::word")]
    pub while_pending: WhilePending,
    /// `mode`: what becomes of the calls of tools that ask.
    #[serde(deserialize_with = "super::sources::word")]
    pub mode: ApprovalMode,
    /// `always_allow`: tools about which nobody is asked, by their names; `*` and `?` stand for others.
    #[serde(deserialize_with = "super::sources::list")]
    pub always_allow: Vec<String>,
    /// `always_deny`: tools that never run, by their names; `*` and `?` stand for others.
    #[serde(deserialize_with = "super::sources::list")]
    pub always_deny: Vec<String>,
    /// `remember`: where a yes is kept that is to be remembered in its session.
    #[serde(deserialize_with = "super::sources::word")]
    pub remember: RememberIn,
    /// `remember_inputs`: of which calls of the tool such a yes is then.
    #[serde(deserialize_with = "super::sources::word")]
    pub remember_inputs: RememberInputs,
    /// `exact_numbers`: whether a call is held that has a number which pages in JavaScript cannot show exactly.
    pub exact_numbers: ExactNumbers,
    /// `[[approval.rules]]`: what is asked or forbidden by the inputs and whom a call is for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ApprovalRule>,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            pending_ttl: Duration::from_secs(24 * 60 * 60),
            handler_timeout: Duration::from_secs(120),
            start_deadline: Duration::from_secs(5 * 60),
            lease: Duration::from_secs(30),
            sweep: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            while_pending: WhilePending::Defer,
            mode: ApprovalMode::Manual,
            always_allow: Vec::new(),
            always_deny: Vec::new(),
            remember: RememberIn::Store,
            remember_inputs: RememberInputs::Any,
            exact_numbers: ExactNumbers::Require,
            rules: Vec::new(),
        }
    }
}

/// What becomes of the calls of tools that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// A person decides each.
    Manual,
    /// They run.
    AutoApprove,
    /// They do not run.
    AutoDeny,
}

/// Where a yes is kept that is to be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RememberIn {
    /// In the database: for all processes, until it is revoked.
    Store,
    /// With the process that took it: no other heeds it, and when that process ends nobody does. A row tells that it was
    /// so.
    Memory,
}

/// Of which calls a yes is that is to be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RememberInputs {
    /// Of all calls of the tool, as long as its schema stays what it was.
    Any,
    /// Of those with the inputs that ran.
    Equal,
}

/// What becomes of a call that would be held with an integer beyond ±(2^53 − 1), which JavaScript reads as the double
/// nearest to it (ECMA-262, `Number.MAX_SAFE_INTEGER`), or with a double that it writes as such an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExactNumbers {
    /// The call is invalid, and the model is asked to send the number as a text.
    Require,
    /// The call is held. A page may show another number than the one that runs.
    Allow,
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
        for (key, duration) in [
            ("approval.lease", self.lease),
            ("approval.sweep", self.sweep),
            ("approval.handler_timeout", self.handler_timeout),
        ] {
            if duration.is_zero() {
                return wrong(key, "expected more than 0s");
            }
        }
        duration("approval.pending_ttl", self.pending_ttl)?;
        duration("approval.handler_timeout", self.handler_timeout)?;
        duration("approval.start_deadline", self.start_deadline)?;
        duration("approval.lease", self.lease)?;
        duration("approval.sweep", self.sweep)?;
        duration("approval.wait", self.wait)?;
        rules::names("approval.always_allow", &self.always_allow)?;
        rules::names("approval.always_deny", &self.always_deny)?;
        rules::check(&self.rules)
    }
}
