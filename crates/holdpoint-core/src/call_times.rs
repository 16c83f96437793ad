//! The times of calls, as the operator set them.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long calls wait for people and for processes.
#[derive(Debug, Clone)]
pub struct CallTimes {
    /// How long a call is held for a decision.
    pub pending_ttl: Duration,
    /// How long before its deadline a pending call is announced once more. Zero is never.
    pub remind_before: Duration,
    /// How long after its approval a call may start, or start again after an interruption.
    pub start_deadline: Duration,
    /// How long an execution may miss its renewals before it counts as dead.
    pub lease: Duration,
    /// Whether the server resumes a run after its last held call has expired.
    pub resume_on_expiry: bool,
    /// The escalation of held calls. `None` is never.
    pub escalation: Option<EscalationRule>,
    /// The escalations of calls that the rules with these names hold.
    pub rule_escalations: BTreeMap<String, EscalationRule>,
}

/// Who may decide a held call besides the roles of its tool, and from when on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationRule {
    /// The time from the creation of the call.
    pub after: Duration,
    /// The roles that may decide it from then on.
    pub to: Vec<String>,
}

impl CallTimes {
    /// Returns the escalation of a call that this rule holds: the rule's own, if it has one.
    pub fn escalation(&self, rule: Option<&str>) -> Option<&EscalationRule> {
        rule.and_then(|rule| self.rule_escalations.get(rule)).or(self.escalation.as_ref())
    }
}
