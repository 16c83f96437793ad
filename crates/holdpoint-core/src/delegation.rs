//! Delegations: for one held call, a person decides in place of an approver.

use super::Principal;
use super::clock::Timestamp;

/// A delegation that no later one of the same approver has replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// The approver in whose place the delegate decides, in the tenant of the call.
    pub delegator: Principal,
    /// The user that decides, in the same tenant.
    pub delegate: String,
    /// The reason of the delegator, for the delegate and the record.
    pub reason: String,
    /// The time of the delegation.
    pub at: Timestamp,
    /// The end of the delegation.
    pub until: Timestamp,
}

impl Delegation {
    /// Whether this principal decides in place of the delegator at this time.
    pub fn is_to(&self, principal: &Principal, now: Timestamp) -> bool {
        self.is_ever_to(principal) && now < self.until
    }

    /// Whether this principal is the delegate, before the end of the delegation or after it.
    pub fn is_ever_to(&self, principal: &Principal) -> bool {
        let Principal { tenant_id, user_id, .. } = principal;
        *tenant_id == self.delegator.tenant_id && *user_id == self.delegate
    }

    /// Returns the delegate as the actor of decisions.
    pub fn delegate_actor(&self) -> String {
        actor_of(&self.delegate)
    }
}

/// Returns a user as the actor of an event or a decision.
pub fn actor_of(user_id: &str) -> String {
    format!("user:{user_id}")
}
