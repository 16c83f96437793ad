//! The rights of roles at a tool: to have the tool run, and to decide its calls.
//!
//! The operator sets the rules in `[tools.<name>]`; `holdpoint_core::policy` evaluates them. Roles are those of the
//! current request, so a lost role has no effect from the next request on. Only a run keeps its requester's
//! roles, from the time when the run last started or resumed. A call that an approver approves runs under
//! these roles.
//!
//! A tool that does not run for the caller leaves the tools of a run at its start and at each resume. A grant keeps the
//! roles of its giver.

use super::ToolRegistry;
use super::registry::Registered;
use crate::config::{Answers, ConfigError, ToolRules};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::grant::Grant;
use holdpoint_core::policy::{self, MayDecide, Relation};
use holdpoint_core::quorum::Quorum;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Registered {
    /// Whether the tool runs on behalf of a user with these roles.
    pub(crate) fn runs_for(&self, roles: &[String]) -> bool {
        policy::may_run(roles, &self.rules.run_roles)
    }

    fn is_approved_by(&self, principal: &Principal) -> bool {
        principal.has_one_of(&self.rules.approve_roles)
    }

    /// Whether this principal may have the tool run, or decide its calls.
    pub(crate) fn is_visible_to(&self, principal: &Principal) -> bool {
        self.runs_for(&principal.roles) || self.is_approved_by(principal)
    }

    /// Whether a grant counts in a thread of this requester. Under the current rules, the granter has to have
    /// the right to approve, with the roles from the time of the grant, or has to be the current approval
    /// handler. A role that the granter lost since then still counts here: only a request of the granter
    /// would show the loss.
    pub(super) fn honours(&self, grant: &Grant, requester: &str, handler: &str) -> bool {
        let relation = Relation {
            requester: grant.by == requester,
            may_run: true,
            approver: grant.roles.iter().any(|role| self.rules.approve_roles.contains(role)),
            other_person: self.rules.other_person,
        };
        self.rules.approvals <= 1
            && (grant.by == handler || policy::may_decide(relation) == MayDecide::ApproveOrReject)
    }
}

impl ToolRegistry {
    /// Sets the rules of all tools, by tool name.
    pub(crate) fn apply_rules(&mut self, rules: &BTreeMap<String, ToolRules>) -> Result<(), ConfigError> {
        if let Some(unknown) = rules.keys().find(|name| !self.may_have(name)) {
            let why = format!("there is no such tool; expected one of [{}]", self.names().join(", "));
            return Err(ConfigError::Value { key: format!("tools.{unknown}"), why });
        }
        rules.clone_into(&mut self.rules);
        for (name, registered) in &mut self.tools {
            Arc::make_mut(registered).rules = rules.get(name).cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// Whether a tool of this name exists and runs on behalf of this principal.
    pub(crate) fn has_for(&self, principal: &Principal, name: &str) -> bool {
        self.get(name).is_some_and(|tool| tool.runs_for(&principal.roles))
    }

    /// Returns the names of the tools that run on behalf of this principal; `None` if all tools do.
    pub(crate) fn only_for(&self, principal: &Principal) -> Option<Vec<String>> {
        let some = self.tools.iter().filter(|(_, tool)| tool.runs_for(&principal.roles));
        let some: Vec<String> = some.map(|(name, _)| name.clone()).collect();
        (some.len() < self.tools.len()).then_some(some)
    }

    /// Returns the names of the tools whose calls this principal may decide for other users.
    pub(crate) fn approved_by(&self, principal: &Principal) -> Vec<String> {
        let approved = self.tools.iter().filter(|(_, tool)| tool.is_approved_by(principal));
        approved.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the approvals that a call of this tool needs, by the current rules. The rules of a tool that is not there
    /// now, such as one of an MCP server without a connection, count too.
    pub(crate) fn quorum(&self, tool: &str) -> Quorum {
        let rules = self.rules.get(tool);
        Quorum {
            people: rules.map_or(1, |rules| rules.approvals.into()),
            other_person: rules.is_some_and(|rules| rules.other_person),
        }
    }

    /// Returns the people that have to agree on an answer to a request of this call, by the current rules. A call that
    /// ran without an approval had no quorum, and its request is only seen by the user of its thread.
    pub(crate) fn answer_quorum(&self, call: &ToolCall) -> Quorum {
        let quorum = self.quorum(&call.name);
        let one = self.rules.get(&call.name).is_some_and(|rules| rules.answers == Answers::One);
        if one || !call.held { Quorum { people: 1, ..quorum } } else { quorum }
    }

    /// Returns the roles that may decide the calls of this tool for other users, by the current rules.
    pub(crate) fn approve_roles(&self, tool: &str) -> Vec<String> {
        self.get(tool).map(|tool| tool.rules.approve_roles.clone()).unwrap_or_default()
    }

    /// Returns the decisions that this principal may make about a held call of this tool; `requester` marks
    /// the user of the call, and `escalated_to` are the roles to which the call was escalated. Of a tool that is not
    /// registered only `other_person` counts: no approval runs its calls, and the requester may still withdraw a call.
    pub(crate) fn may_decide(
        &self,
        principal: &Principal,
        requester: bool,
        tool: &str,
        escalated_to: &[String],
    ) -> MayDecide {
        let other_person = self.rules.get(tool).is_some_and(|rules| rules.other_person);
        let tool = self.get(tool);
        policy::may_decide(Relation {
            requester,
            may_run: tool.is_none_or(|tool| tool.runs_for(&principal.roles)),
            approver: tool
                .is_some_and(|tool| tool.is_approved_by(principal) || principal.has_one_of(escalated_to)),
            other_person,
        })
    }
}
