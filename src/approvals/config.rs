//! `[approval]`: how held calls are decided.

use crate::config::rules::{self, ApprovalRule};
use holdpoint_core::call_times::{CallTimes, EscalationRule};
use holdpoint_settings::{ConfigError, check_duration, wrong};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[approval]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// `pending_ttl`: how long a call is held for a decision. After it the call expires.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub pending_ttl: Duration,
    /// `ttl_max`: the longest time that an approver may hold a call for a decision, from the call's creation. It does
    /// not shorten `pending_ttl`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub ttl_max: Duration,
    /// `remind_before`: how long before its deadline a pending call is announced once more, as the event `tool.reminded`.
    /// Zero is never. A call that waits no longer than this has no reminder.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub remind_before: Duration,
    /// `escalate_after`: how long a call waits before the roles `escalate_to` may decide it too.
    #[serde(with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<Duration>,
    /// `escalate_to`: the roles that may decide a call besides those of its tool, after `escalate_after`.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub escalate_to: Vec<String>,
    /// `resume_on_expiry`: whether the server resumes a run after its last held call has expired or was cancelled by
    /// itself.
    pub resume_on_expiry: bool,
    /// `handler_timeout`: how long an approval handler of this process may take to answer. After it the call
    /// is cancelled.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub handler_timeout: Duration,
    /// `answer_timeout`: how long a tool that runs waits for the answer of a person to a request.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub answer_timeout: Duration,
    /// `start_deadline`: how long after its approval a call may start, or start again after an interruption.
    /// Also how long the server asks the tool about the outcome of an interrupted call.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub start_deadline: Duration,
    /// `lease`: how long a turn or an execution may miss its renewals before it counts as dead. Also how long
    /// a process retries to store the outcome of a call. On Postgres, a stalled process holds its locks for
    /// up to ten seconds. Processes that wait for these locks may miss renewals meanwhile.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub lease: Duration,
    /// `sweep`: the interval of the sweeper, which looks for expired calls and for the work of dead
    /// processes.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub sweep: Duration,
    /// `wait`: how long a decision waits for the outcome of the call.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub wait: Duration,
    /// `while_pending`: what a new message does while calls are pending.
    pub while_pending: WhilePending,
    /// `mode`: what happens to the calls of tools that ask.
    pub mode: ApprovalMode,
    /// `always_allow`: the names of tools whose calls run without an approval. `*` and `?` match other
    /// characters.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub always_allow: Vec<String>,
    /// `always_deny`: the names of tools that never run. `*` and `?` match other characters.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub always_deny: Vec<String>,
    /// `remember`: where the server keeps an approval that is to be remembered in its session.
    pub remember: RememberIn,
    /// `remember_inputs`: which calls of the tool a remembered approval covers.
    pub remember_inputs: RememberInputs,
    /// `exact_numbers`: whether the server holds a call with a number that JavaScript pages cannot show
    /// exactly.
    pub exact_numbers: ExactNumbers,
    /// `share_context`: which callers read the words around a held call.
    pub share_context: ShareContext,
    /// `[[approval.rules]]`: rules that ask or forbid, by the inputs of a call and the roles of its user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ApprovalRule>,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            pending_ttl: Duration::from_secs(24 * 60 * 60),
            ttl_max: Duration::from_secs(7 * 24 * 60 * 60),
            remind_before: Duration::from_secs(60 * 60),
            escalate_after: None,
            escalate_to: Vec::new(),
            resume_on_expiry: true,
            handler_timeout: Duration::from_secs(120),
            answer_timeout: Duration::from_secs(10 * 60),
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
            share_context: ShareContext::Requester,
            rules: Vec::new(),
        }
    }
}

/// What happens to the calls of tools that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// A person decides each call.
    Manual,
    /// The calls run.
    AutoApprove,
    /// The calls do not run.
    AutoDeny,
}

/// Where the server keeps a remembered approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RememberIn {
    /// In the database: for all processes, until the grant is revoked.
    Store,
    /// In the memory of the process that took the decision. Other processes do not apply the grant, and the
    /// grant ends with the process. A row records the grant.
    Memory,
}

/// Which calls a remembered approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RememberInputs {
    /// All calls of the tool, as long as the schema of the tool does not change.
    Any,
    /// Calls with the same inputs as the call that ran.
    Equal,
}

/// What happens to a call that would be held, if an input is an integer beyond ±(2^53 − 1) or a double that
/// JavaScript writes as such an integer. JavaScript reads such an integer as the nearest double (ECMA-262,
/// `Number.MAX_SAFE_INTEGER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExactNumbers {
    /// The call is invalid. The model is asked to send the number as a string.
    Require,
    /// The call is held. A page may show a different number than the one that runs.
    Allow,
}

/// Which callers read the last words of the user and the words of the model before a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareContext {
    /// The user of the thread alone.
    Requester,
    /// Also the callers that may decide the call.
    Approvers,
}

/// What a new message does while calls are pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhilePending {
    /// The conversation continues. The model reads that calls are pending.
    Defer,
    /// The message is refused with 409 `awaiting_approval`.
    Reject,
    /// The calls are cancelled.
    Cancel,
}

impl Approval {
    pub(crate) fn times(&self) -> CallTimes {
        let rule = |after: Option<Duration>, to: &[String]| {
            after.map(|after| EscalationRule { after, to: to.to_vec() })
        };
        let of_rule = |it: &ApprovalRule| Some((it.name.clone(), rule(it.escalate_after, &it.escalate_to)?));
        CallTimes {
            pending_ttl: self.pending_ttl,
            remind_before: self.remind_before,
            start_deadline: self.start_deadline,
            lease: self.lease,
            resume_on_expiry: self.resume_on_expiry,
            escalation: rule(self.escalate_after, &self.escalate_to),
            rule_escalations: self.rules.iter().filter_map(of_rule).collect(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (key, duration) in [
            ("approval.lease", self.lease),
            ("approval.sweep", self.sweep),
            ("approval.handler_timeout", self.handler_timeout),
            ("approval.answer_timeout", self.answer_timeout),
        ] {
            if duration.is_zero() {
                return wrong(key, "expected more than 0s");
            }
        }
        check_duration("approval.pending_ttl", self.pending_ttl)?;
        check_duration("approval.ttl_max", self.ttl_max)?;
        check_duration("approval.remind_before", self.remind_before)?;
        rules::escalation("approval.", self.escalate_after, &self.escalate_to)?;
        check_duration("approval.handler_timeout", self.handler_timeout)?;
        check_duration("approval.answer_timeout", self.answer_timeout)?;
        check_duration("approval.start_deadline", self.start_deadline)?;
        check_duration("approval.lease", self.lease)?;
        check_duration("approval.sweep", self.sweep)?;
        check_duration("approval.wait", self.wait)?;
        rules::names("approval.always_allow", &self.always_allow)?;
        rules::names("approval.always_deny", &self.always_deny)?;
        rules::check(&self.rules)
    }
}
