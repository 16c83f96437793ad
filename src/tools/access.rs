//! What a role may do with a tool: have it run, and decide its calls.
//!
//! The rules are the operator's, `[tools.<name>]`; what follows from them is in `domain::policy`. Roles are those of
//! the request that is being answered: who lost one has lost it at their next request. Only a run keeps its requester's,
//! as they were when it last began or went on; by those an approver's yes runs what was held.

use super::registry::Registered;
use super::{ToolRegistry, ToolSpec};
use crate::config::{ConfigError, ToolRules};
use crate::domain::Principal;
use crate::domain::grant::Grant;
use crate::domain::policy::{self, MayDecide, Relation};
use crate::domain::quorum::Quorum;
use std::collections::BTreeMap;

impl Registered {
    /// Whether it runs on behalf of somebody with these roles.
    pub(super) fn runs_for(&self, roles: &[String]) -> bool {
        policy::may_run(roles, &self.rules.run_roles)
    }

    fn is_approved_by(&self, principal: &Principal) -> bool {
        principal.has_one_of(&self.rules.approve_roles)
    }

    /// Whether this principal may have it run, or decide on its calls.
    pub(crate) fn is_visible_to(&self, principal: &Principal) -> bool {
        self.runs_for(&principal.roles) || self.is_approved_by(principal)
    }

    /// Whether a grant counts in a thread of this requester's: its granter's yes would do by the rules of now, with the
    /// roles that they had then, or they are the approval handler of now. Who lost a role since has to be known by a request
    /// of theirs, and is not here.
    pub(super) fn honours(&self, grant: &Grant, requester: &str, handler: &str) -> bool {
        let standing = Relation {
            requester: grant.by == requester,
            may_run: true,
            approver: grant.roles.iter().any(|role| self.rules.approve_roles.contains(role)),
            other_person: self.rules.other_person,
        };
        self.rules.approvals <= 1
            && (grant.by == handler || policy::may_decide(standing) == MayDecide::ApproveOrReject)
    }
}

impl ToolRegistry {
    /// Has these rules hold from now on, by the names of their tools.
    pub(crate) fn apply_rules(&mut self, rules: &BTreeMap<String, ToolRules>) -> Result<(), ConfigError> {
        let names: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        if let Some(unknown) = rules.keys().find(|name| !self.tools.contains_key(*name)) {
            let why = format!("there is no such tool; expected one of [{}]", names.join(", "));
            return Err(ConfigError::Value { key: format!("tools.{unknown}"), why });
        }
        for (name, registered) in &mut self.tools {
            registered.rules = rules.get(name).cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// Whether there is such a tool that runs on behalf of this principal.
    pub(crate) fn has_for(&self, principal: &Principal, name: &str) -> bool {
        self.get(name).is_some_and(|tool| tool.runs_for(&principal.roles))
    }

    /// The names of those that run on behalf of this principal; `None` where all do.
    pub(crate) fn only_for(&self, principal: &Principal) -> Option<Vec<String>> {
        let some = self.tools.iter().filter(|(_, tool)| tool.runs_for(&principal.roles));
        let some: Vec<String> = some.map(|(name, _)| name.clone()).collect();
        (some.len() < self.tools.len()).then_some(some)
    }

    /// The names of those whose calls this principal may decide for others.
    pub(crate) fn approved_by(&self, principal: &Principal) -> Vec<String> {
        let approved = self.tools.iter().filter(|(_, tool)| tool.is_approved_by(principal));
        approved.map(|(name, _)| name.clone()).collect()
    }

    /// How many people have to say yes to a call of this tool, as it is registered now.
    pub(crate) fn quorum(&self, tool: &str) -> Quorum {
        let rules = self.get(tool).map(|tool| &tool.rules);
        Quorum {
            people: rules.map_or(1, |rules| rules.approvals.into()),
            other_person: rules.is_some_and(|rules| rules.other_person),
        }
    }

    /// What is known of those that this principal may have run, or decide on.
    pub(crate) fn visible_to(&self, principal: &Principal) -> impl Iterator<Item = &ToolSpec> {
        self.tools.values().filter(|tool| tool.is_visible_to(principal)).map(|tool| &tool.spec)
    }

    /// What this principal, who made the request or did not, may say about a held call of this tool. Of one that is
    /// gone no rule is known, and nobody's yes runs it; who asked for it may still take it back.
    pub(crate) fn may_decide(&self, principal: &Principal, requester: bool, tool: &str) -> MayDecide {
        let tool = self.get(tool);
        policy::may_decide(Relation {
            requester,
            may_run: tool.is_none_or(|tool| tool.runs_for(&principal.roles)),
            approver: tool.is_some_and(|tool| tool.is_approved_by(principal)),
            other_person: tool.is_some_and(|tool| tool.rules.other_person),
        })
    }
}
