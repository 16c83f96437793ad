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
    /// Time to decide a held call. After it the call expires.
    ///
    /// Value: duration. Default: `24h`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub pending_ttl: Duration,
    /// The longest time to decide to which an approver may extend a call, from its creation. It does not shorten
    /// `pending_ttl`.
    ///
    /// Value: duration. Default: `7d`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub ttl_max: Duration,
    /// How long before its deadline a pending call gets the event `tool.reminded`. `0s` is never. A call that waits
    /// no longer than this has none.
    ///
    /// Value: duration. Default: `1h`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub remind_before: Duration,
    /// How long a held call waits before the roles of `escalate_to` may decide it too. Stored with the call when it
    /// is held.
    ///
    /// Value: duration, more than 0. Default: none.
    #[serde(with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<Duration>,
    /// The roles that may decide after `escalate_after`. Each of the two keys needs the other.
    ///
    /// Value: list of roles. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub escalate_to: Vec<String>,
    /// Whether the server resumes a run whose last held call has [expired](approvers.md#expiry-and-start-deadline),
    /// or was cancelled by itself.
    ///
    /// Value: switch. Default: `true`.
    pub resume_on_expiry: bool,
    /// Time for a handler in the process to answer. After it the call is cancelled with the reason `timeout`.
    ///
    /// Value: duration, more than 0. Default: `120s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub handler_timeout: Duration,
    /// Time to answer a [request of a tool](tools.md#forms) that runs. After it the request expires, and the tool
    /// continues without an answer.
    ///
    /// Value: duration, more than 0. Default: `10m`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub answer_timeout: Duration,
    /// Time for an approved call to begin, or to begin again. Also how long the server asks `verify` about an
    /// interrupted call.
    ///
    /// Value: duration. Default: `5m`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub start_deadline: Duration,
    /// Time without a renewal after which a turn or an execution counts as dead. Also how long a process retries to
    /// store an outcome.
    ///
    /// Value: duration, more than 0. Default: `30s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub lease: Duration,
    /// Interval in which each process looks for expired calls, dead leases, unclaimed approvals and runs to resume.
    ///
    /// Value: duration, more than 0. Default: `5s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub sweep: Duration,
    /// How long a decision waits for the tool's outcome before it answers 202. Also how long a continuation of AI SDK
    /// 4 waits for approved calls.
    ///
    /// Value: duration. Default: `30s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub wait: Duration,
    /// What a new message does while calls of the thread are pending: the model answers it and knows about the
    /// pending calls; the message gets 409 `awaiting_approval`; or the pending calls are cancelled.
    ///
    /// Value: `defer`, `reject`, `cancel`. Default: `defer`.
    pub while_pending: WhilePending,
    /// What happens to calls of tools that ask: a person decides, they run, or they never run.
    ///
    /// Value: `manual`, `auto-approve`, `auto-deny`. Default: `manual`.
    pub mode: ApprovalMode,
    /// Tools whose calls run without an approval.
    ///
    /// Value: list of tool names and patterns. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub always_allow: Vec<String>,
    /// Tools that never run.
    ///
    /// Value: list of tool names and patterns. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub always_deny: Vec<String>,
    /// Where a grant is kept: in the database for all processes, or in the process that took the decision, until that
    /// process ends.
    ///
    /// Value: `store`, `memory`. Default: `store`.
    pub remember: RememberIn,
    /// The most that a grant covers: all calls of the tool in the session, or only calls with equal inputs. An
    /// approval may [cover less](approvers.md#remembered-approvals).
    ///
    /// Value: `any`, `equal`. Default: `any`.
    pub remember_inputs: RememberInputs,
    /// What happens to held calls with numbers that a page cannot show; see [tools.md](tools.md#exact-numbers).
    ///
    /// Value: `require`, `allow`. Default: `require`.
    pub exact_numbers: ExactNumbers,
    /// Who reads the words before a held call ([`context`](http.md#get-approvalstool_call_id)): the user of the
    /// thread alone, or also the callers that may decide the call.
    ///
    /// Value: `requester`, `approvers`. Default: `requester`.
    pub share_context: ShareContext,
    /// See [`approval.rules`](#approvalrules).
    ///
    /// Value: tables. Default: none.
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
