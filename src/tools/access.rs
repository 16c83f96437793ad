//! What a role may do with a tool: have it run, and decide its calls.
//!
//! The rules are the operator's, `[tools.<name>]`; what follows from them is in `domain::policy`. Roles are those of
//! the request that is being answered, and nobody's are stored: who lost one has lost it at their next request, but an
//! approver's yes still runs what was held while the requester had theirs.

use super::registry::Registered;
use super::{ToolRegistry, ToolSpec};
use crate::config::{ConfigError, ToolRules};
use crate::domain::Principal;
use crate::domain::policy::{self, Say, Standing};
use std::collections::BTreeMap;

impl Registered {
    fn runs_for(&self, principal: &Principal) -> bool {
        policy::may_run(principal, &self.rules.run_roles)
    }

    fn is_approved_by(&self, principal: &Principal) -> bool {
        principal.has_one_of(&self.rules.approve_roles)
    }
}

impl ToolRegistry {
    /// Has these rules hold from now on, by the names of their tools.
    pub(crate) fn put_under(&mut self, rules: &BTreeMap<String, ToolRules>) -> Result<(), ConfigError> {
        let names: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        if let Some(unknown) = rules.keys().find(|name| !self.tools.contains_key(*name)) {
            let why = format!("there is no such tool; expected one of [{}]", names.join(", "));
            return Err(ConfigError::Value { key: format!("tools.{unknown}"), why });
        }
        for (name, registered) in &mut self.tools {
            let rules = rules.get(name).cloned().unwrap_or_default();
            if !registered.spec.hil && !rules.approve_roles.is_empty() {
                let why = "the tool asks nobody; expected roles only for one that does".to_owned();
                return Err(ConfigError::Value { key: format!("tools.{name}.approve_roles"), why });
            }
            registered.rules = rules;
        }
        Ok(())
    }

    /// Whether there is such a tool that runs on behalf of this principal.
    pub(crate) fn has_for(&self, principal: &Principal, name: &str) -> bool {
        self.get(name).is_some_and(|tool| tool.runs_for(principal))
    }

    /// The names of those that run on behalf of this principal; `None` where all do.
    pub(crate) fn only_for(&self, principal: &Principal) -> Option<Vec<String>> {
        let some = self.tools.iter().filter(|(_, tool)| tool.runs_for(principal));
        let some: Vec<String> = some.map(|(name, _)| name.clone()).collect();
        (some.len() < self.tools.len()).then_some(some)
    }

    /// The names of those whose calls this principal may decide for others.
    pub(crate) fn approved_by(&self, principal: &Principal) -> Vec<String> {
        let approved = self.tools.iter().filter(|(_, tool)| tool.is_approved_by(principal));
        approved.map(|(name, _)| name.clone()).collect()
    }

    /// What is known of those that this principal may have run, or decide on.
    pub(crate) fn shown_to(&self, principal: &Principal) -> impl Iterator<Item = &ToolSpec> {
        let shown = |tool: &&Registered| tool.runs_for(principal) || tool.is_approved_by(principal);
        self.tools.values().filter(shown).map(|tool| &tool.spec)
    }

    /// What this principal, who made the request or did not, may say about a held call of this tool. Of one that is
    /// gone no rule is known, and nobody's yes runs it; who asked for it may still take it back.
    pub(crate) fn say(&self, principal: &Principal, requester: bool, tool: &str) -> Say {
        let tool = self.get(tool);
        policy::say(Standing {
            requester,
            may_run: tool.is_none_or(|tool| tool.runs_for(principal)),
            approver: tool.is_some_and(|tool| tool.is_approved_by(principal)),
            other_person: tool.is_some_and(|tool| tool.rules.other_person),
        })
    }
}
