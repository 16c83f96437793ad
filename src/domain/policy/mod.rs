//! Who has to be asked before a tool runs, and who may answer.

mod may_decide;
mod rule;

pub(crate) use may_decide::{MayDecide, Relation, may_decide, may_run};
pub(crate) use rule::{Condition, Effect, Rule, Test, Tools};

use super::call::Input;
use super::id::{GrantId, ToolCallId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a server, by its operator's word, says of calls before anybody is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// What becomes of tools that ask.
    pub(crate) mode: Mode,
    /// Tools that never run.
    pub(crate) always_deny: Tools,
    /// Tools about which nobody is asked.
    pub(crate) always_allow: Tools,
    /// Rules on inputs, in the operator's order.
    pub(crate) rules: Vec<Rule>,
}

/// What becomes of the calls of tools that ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// A person decides each.
    #[default]
    Manual,
    /// They run.
    AutoApprove,
    /// They do not run.
    AutoDeny,
}

/// What holds in one session beside the operator's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionPolicy {
    /// In place of the server's mode.
    pub(crate) mode: Option<Mode>,
    /// For single tools, by their names.
    pub(crate) tools: BTreeMap<String, ToolPolicy>,
}

/// What a session says of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToolPolicy {
    /// Nobody is asked.
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// A call about which the policy is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyRequest<'a> {
    /// The tool's name.
    pub(crate) tool: &'a str,
    /// Whether the tool itself asks.
    pub(crate) hil: bool,
    /// What it would run with.
    pub(crate) input: &'a Input,
    /// The roles of the user on whose behalf it would run.
    pub(crate) roles: &'a [String],
    /// Whether the tool runs on behalf of who has these.
    pub(crate) may_run: bool,
    /// What holds in its session.
    pub(crate) session: &'a SessionPolicy,
    /// The choice that somebody had remembered for such calls, by its id.
    pub(crate) remembered: Option<GrantId>,
}

/// What the policy says of a call.
#[derive(Debug)]
pub(crate) struct Ruling {
    /// What is required.
    pub(crate) requirement: Requirement,
    /// What says so.
    pub(crate) source: Source,
    /// Why, for the person who is asked and for the model.
    pub(crate) reason: String,
}

/// What the policy requires of a call.
#[derive(Debug)]
pub(crate) enum Requirement {
    /// Nobody is asked.
    Skip(Cleared),
    /// A person is asked.
    NeedsApproval,
    /// It does not run, whatever anybody says.
    Forbidden,
}

/// What of the policy answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The operator's list of what never runs.
    AlwaysDeny,
    /// The operator's list of what nobody is asked about.
    AlwaysAllow,
    /// A rule of the operator's, by its name.
    Rule(String),
    /// The roles for which the tool runs.
    Role,
    /// A choice that was to be remembered, by its id.
    Remembered(GrantId),
    /// The session's policy.
    Session,
    /// The tool's own word.
    Tool,
    /// The mode.
    Mode,
}

impl fmt::Display for Source {
    /// The source's word on the wire and in the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlwaysDeny => f.write_str("always_deny"),
            Self::AlwaysAllow => f.write_str("always_allow"),
            Self::Rule(name) => write!(f, "rule:{name}"),
            Self::Role => f.write_str("role"),
            Self::Remembered(id) => write!(f, "remembered:{id}"),
            Self::Session => f.write_str("session"),
            Self::Tool => f.write_str("tool"),
            Self::Mode => f.write_str("mode"),
        }
    }
}

/// What becomes of a call that a model asks for.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// It runs now.
    Cleared(Cleared, Source),
    /// The marker that stands where its execution would: it waits for a person.
    Held {
        /// Why, for the person.
        reason: String,
        /// What of the policy asks.
        source: Source,
    },
    /// The policy forbids it, and nobody is asked.
    Blocked {
        /// Why, for the model.
        reason: String,
        /// What of the policy forbids it.
        source: Source,
    },
    /// It repeats this call, about which a person is being asked: nobody is asked again.
    Duplicate(ToolCallId),
    /// It cannot be run; why, for the model.
    Invalid(String),
}

/// Evidence that the policy said a call may run without a person. Only [`Policy::evaluate`] makes one, and without
/// one no call is stored as executing when the model asks for it.
#[derive(Debug)]
pub(crate) struct Cleared(());

impl Policy {
    /// The first that answers: what never runs, a rule that forbids it, roles for which it does not run, the session
    /// where it forbids it, what nobody is asked about, a rule that asks, a choice that is remembered, the session, the tool under the mode.
    pub(crate) fn evaluate(&self, call: &PolicyRequest<'_>) -> Ruling {
        let PolicyRequest { tool, hil, session, .. } = *call;
        let rule = |effect| self.rules.iter().find(|rule| rule.effect == effect && rule.holds(call));
        let said = session.tools.get(tool);
        if self.always_deny.contains(tool) {
            return Ruling::forbids(Source::AlwaysDeny, format!("{tool} never runs on this server"));
        }
        if let Some(rule) = rule(Effect::Deny) {
            return Ruling::forbids(rule.source(), rule.reason.clone());
        }
        if !call.may_run {
            return Ruling::forbids(Source::Role, format!("{tool} does not run for who asked for it"));
        }
        if said == Some(&ToolPolicy::Deny) {
            return Ruling::forbids(Source::Session, format!("{tool} does not run in this session"));
        }
        if self.always_allow.contains(tool) {
            return Ruling::skips(Source::AlwaysAllow);
        }
        if let Some(rule) = rule(Effect::Ask) {
            return Ruling::asks(rule.source(), rule.reason.clone());
        }
        if let Some(id) = call.remembered {
            return Ruling::skips(Source::Remembered(id));
        }
        match said {
            Some(ToolPolicy::Ask) => {
                let reason = format!("{tool} runs only with a person's approval in this session");
                return Ruling::asks(Source::Session, reason);
            }
            Some(ToolPolicy::Allow) => return Ruling::skips(Source::Session),
            Some(ToolPolicy::Deny) | None => {}
        }
        if !hil {
            return Ruling::skips(Source::Tool);
        }
        let (mode, source) = match session.mode {
            Some(mode) => (mode, Source::Session),
            None => (self.mode, Source::Mode),
        };
        match mode {
            Mode::Manual => Ruling::asks(Source::Tool, format!("{tool} runs only with a person's approval")),
            Mode::AutoApprove => Ruling::skips(source),
            Mode::AutoDeny => {
                Ruling::forbids(source, format!("{tool} wants a person's approval, and nobody is asked"))
            }
        }
    }
}

impl Policy {
    /// What would go further under `to` than under `from`, of these tools, each with whether it asks, and of others: the
    /// words of a session are about tools of other processes and builds too, and of those nothing is known here. So the
    /// words themselves may not get weaker, also where something else hides them now. Rules do not count: whatever a
    /// session says, they hold.
    pub(crate) fn loosened<'a>(
        &self,
        from: &'a SessionPolicy,
        to: &'a SessionPolicy,
        mut tools: impl Iterator<Item = (&'a str, bool)>,
    ) -> Option<Loosened<'a>> {
        let weaker = |name: &str| strength(to.tools.get(name)) < strength(from.tools.get(name));
        let mut named = from.tools.keys().chain(to.tools.keys());
        if let Some(name) = named.find(|name| weaker(name)) {
            return Some(Loosened::Tool(name));
        }
        let without_rules = Self { rules: Vec::new(), ..self.clone() };
        let input = Input::new();
        let strict = |tool: &str, hil: bool, session: &SessionPolicy| {
            let asked = PolicyRequest {
                tool,
                hil,
                input: &input,
                roles: &[],
                may_run: true,
                session,
                remembered: None,
            };
            match without_rules.evaluate(&asked).requirement {
                Requirement::Skip(_) => 0,
                Requirement::NeedsApproval => 1,
                Requirement::Forbidden => 2,
            }
        };
        if let Some((tool, _)) = tools.find(|(tool, hil)| strict(tool, *hil, to) < strict(tool, *hil, from)) {
            return Some(Loosened::Tool(tool));
        }
        // Without a mode of its own the session has that of each server, which need not be that of this one.
        let dropped = to.mode.is_none() && from.mode.is_some_and(|mode| mode != Mode::AutoApprove);
        let in_force = |session: &SessionPolicy| session.mode.unwrap_or(self.mode).strength();
        (dropped || in_force(to) < in_force(from)).then_some(Loosened::Mode)
    }
}

/// What would go further in a session than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loosened<'a> {
    /// This tool.
    Tool(&'a str),
    /// The mode: tools that ask.
    Mode,
}

/// How far a word about a tool, or none, tightens.
fn strength(word: Option<&ToolPolicy>) -> u8 {
    match word {
        Some(ToolPolicy::Allow) => 0,
        None => 1,
        Some(ToolPolicy::Ask) => 2,
        Some(ToolPolicy::Deny) => 3,
    }
}

impl Mode {
    /// How far it tightens.
    const fn strength(self) -> u8 {
        match self {
            Self::AutoApprove => 0,
            Self::Manual => 1,
            Self::AutoDeny => 2,
        }
    }
}

impl Ruling {
    fn skips(source: Source) -> Self {
        Self { requirement: Requirement::Skip(Cleared(())), source, reason: String::new() }
    }

    fn asks(source: Source, reason: String) -> Self {
        Self { requirement: Requirement::NeedsApproval, source, reason }
    }

    fn forbids(source: Source, reason: String) -> Self {
        Self { requirement: Requirement::Forbidden, source, reason }
    }
}

impl From<Ruling> for Judgement {
    fn from(ruling: Ruling) -> Self {
        let Ruling { requirement, source, reason } = ruling;
        match requirement {
            Requirement::Skip(cleared) => Self::Cleared(cleared, source),
            Requirement::NeedsApproval => Self::Held { reason, source },
            Requirement::Forbidden => Self::Blocked { reason, source },
        }
    }
}

#[cfg(test)]
mod tests;
