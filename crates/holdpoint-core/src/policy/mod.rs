//! The policy: which calls need an approval, and which users may decide them.

mod in_force;
mod may_decide;
mod rule;

pub use in_force::InForce;
pub use may_decide::{MayDecide, Relation, may_decide, may_run};
pub use rule::{Condition, Effect, Rule, Test, Tools};

use super::id::{GrantId, ToolCallId};
use crate::tool::definition::Unaccepted;
use crate::tool::input::Input;
use crate::vocabulary;
use std::collections::BTreeMap;

/// The operator's policy of a server, which applies before any person decides.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The effect on calls of tools that require approval.
    pub mode: ApprovalMode,
    /// Tools that never run.
    pub always_deny: Tools,
    /// Tools that run without approval.
    pub always_allow: Tools,
    /// Rules on inputs, in the operator's order.
    pub rules: Vec<Rule>,
}

vocabulary! {
    /// The effect on calls of tools that require approval.
    #[derive(Default)]
    pub enum ApprovalMode {
        /// A person decides each call.
        #[default]
        Manual = "manual",
        /// The calls run.
        AutoApprove = "auto-approve",
        /// The calls do not run.
        AutoDeny = "auto-deny",
    }

    /// The policy of a session for one tool.
    pub enum ToolPolicy {
        /// The tool runs without approval.
        Allow = "allow",
        /// A call needs an approval.
        Ask = "ask",
        /// The tool does not run.
        Deny = "deny",
    }
}

/// The policy of one session, in addition to the operator's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionPolicy {
    /// The mode that replaces the server's mode.
    pub mode: Option<ApprovalMode>,
    /// Policies for single tools, by tool name.
    pub tools: BTreeMap<String, ToolPolicy>,
}

/// A call for the policy to evaluate.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// Whether the tool itself requires approval.
    pub hil: bool,
    /// The inputs that would run.
    pub input: &'a Input,
    /// The roles of the user on whose behalf the call would run.
    pub roles: &'a [String],
    /// Whether the tool runs on behalf of a user with these roles.
    pub may_run: bool,
    /// The policy of the call's session.
    pub session: &'a SessionPolicy,
    /// The id of a grant that covers the call.
    pub remembered: Option<GrantId>,
    /// The definition of the tool, if it is not accepted.
    pub unaccepted: Option<&'a Unaccepted>,
}

/// The policy's ruling on a call.
#[derive(Debug)]
pub struct Ruling {
    /// The requirement.
    pub requirement: Requirement,
    /// The part of the policy that ruled.
    pub source: Source,
    /// The reason, for the approver and for the model.
    pub reason: String,
}

/// The requirement of the policy for a call.
#[derive(Debug)]
pub enum Requirement {
    /// The call runs without approval.
    Skip(Cleared),
    /// The call needs an approval.
    NeedsApproval,
    /// The call does not run. No approval changes that.
    Forbidden,
}

/// The part of the policy that ruled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The operator's list of tools that never run.
    AlwaysDeny,
    /// The operator's list of tools that run without approval.
    AlwaysAllow,
    /// An operator's rule, by name.
    Rule(String),
    /// The roles for which the tool runs.
    Role,
    /// A grant, by id.
    Remembered(GrantId),
    /// The session's policy.
    Session,
    /// The tool's own setting.
    Tool,
    /// The mode.
    Mode,
    /// The definition of the tool, which is not accepted.
    Definition,
}

/// The beginning of the text of a grant.
const REMEMBERED: &str = "remembered:";

impl Source {
    /// Returns the text for rows, events and clients. Of this text in a row, only the grant is read back
    /// ([`Source::grant_in`]).
    pub fn text(&self) -> String {
        match self {
            Self::AlwaysDeny => "always_deny".to_owned(),
            Self::AlwaysAllow => "always_allow".to_owned(),
            Self::Rule(name) => format!("rule:{name}"),
            Self::Role => "role".to_owned(),
            Self::Remembered(id) => format!("{REMEMBERED}{id}"),
            Self::Session => "session".to_owned(),
            Self::Tool => "tool".to_owned(),
            Self::Mode => "mode".to_owned(),
            Self::Definition => "definition".to_owned(),
        }
    }

    /// Returns the grant that the text of a source names.
    pub fn grant_in(text: &str) -> Option<GrantId> {
        text.strip_prefix(REMEMBERED)?.parse().ok()
    }
}

/// The judgement on a call that the model makes.
#[derive(Debug)]
pub enum Judgement {
    /// The call runs now.
    Cleared(Cleared, Source),
    /// The HIL marker (*human in the loop*): the gate returns it instead of executing the call. The call is held, a
    /// row with `validated` NULL, until a person decides.
    Held {
        /// The reason, for the approver.
        reason: String,
        /// The part of the policy that requires the approval.
        source: Source,
    },
    /// The policy forbids the call. There is no approval.
    Blocked {
        /// The reason, for the model.
        reason: String,
        /// The part of the policy that forbids the call.
        source: Source,
    },
    /// The call repeats this pending call. It is not held a second time.
    Duplicate(ToolCallId),
    /// The call repeats this call, which expired, in a run that the server resumed since. No person is asked
    /// again.
    ExpiredBefore(ToolCallId),
    /// The call repeats a call that a person rejected in this run. The rejection is the answer, and no person is asked
    /// again.
    RejectedBefore {
        /// The rejected call.
        call: ToolCallId,
        /// The reason of the person.
        reason: Option<String>,
    },
    /// The call cannot run. The reason is for the model.
    Invalid(String),
}

/// Evidence that the policy lets a call run without approval. Only [`Policy::evaluate`] creates it. Without
/// it, no new call is stored as executing.
#[derive(Debug)]
pub struct Cleared(());

impl Policy {
    /// Rules on a call. The first match counts, in this order: `always_deny`, a rule that denies, the roles
    /// of the tool, a session that denies the tool, `always_allow`, a rule that asks, a grant, the session's
    /// policy for the tool, the tool's own setting, the mode. Where the match lets the call run, a definition that is
    /// not accepted asks.
    pub fn evaluate(&self, call: &PolicyRequest<'_>) -> Ruling {
        let ruling = self.first_match(call);
        match (&ruling.requirement, call.unaccepted) {
            (Requirement::Skip(_), Some(unaccepted)) => {
                Ruling::needs_approval(Source::Definition, unaccepted.reason(call.tool))
            }
            (Requirement::NeedsApproval, Some(unaccepted)) => {
                let reason = format!("{}; {}", ruling.reason, unaccepted.reason(call.tool));
                Ruling { reason, ..ruling }
            }
            _ => ruling,
        }
    }

    fn first_match(&self, call: &PolicyRequest<'_>) -> Ruling {
        let PolicyRequest { tool, hil, session, .. } = *call;
        let rule = |effect| self.rules.iter().find(|rule| rule.effect == effect && rule.holds(call));
        let session_policy = session.tools.get(tool);
        if self.always_deny.contains(tool) {
            return Ruling::forbids(Source::AlwaysDeny, format!("{tool} never runs on this server"));
        }
        if let Some(rule) = rule(Effect::Deny) {
            return Ruling::forbids(rule.source(), rule.reason.clone());
        }
        if !call.may_run {
            return Ruling::forbids(Source::Role, format!("{tool} does not run for who asked for it"));
        }
        if session_policy == Some(&ToolPolicy::Deny) {
            return Ruling::forbids(Source::Session, format!("{tool} does not run in this session"));
        }
        if self.always_allow.contains(tool) {
            return Ruling::skips(Source::AlwaysAllow);
        }
        if let Some(rule) = rule(Effect::Ask) {
            return Ruling::needs_approval(rule.source(), rule.reason.clone());
        }
        if let Some(id) = call.remembered {
            return Ruling::skips(Source::Remembered(id));
        }
        match session_policy {
            Some(ToolPolicy::Ask) => {
                let reason = format!("{tool} runs only with a person's approval in this session");
                return Ruling::needs_approval(Source::Session, reason);
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
            ApprovalMode::Manual => {
                Ruling::needs_approval(Source::Tool, format!("{tool} runs only with a person's approval"))
            }
            ApprovalMode::AutoApprove => Ruling::skips(source),
            ApprovalMode::AutoDeny => {
                Ruling::forbids(source, format!("{tool} wants a person's approval, and nobody is asked"))
            }
        }
    }
}

impl Policy {
    /// Returns what `to` permits and `from` does not, if anything.
    ///
    /// `tools` are the registered tools, each with whether it requires approval. A session's policy may also
    /// name tools of other processes and builds, that this process does not know. So no entry of the
    /// session may get weaker, even if another part of the policy hides the entry now. Rules are ignored:
    /// they apply whatever a session permits.
    pub fn loosened<'a>(
        &self,
        from: &'a SessionPolicy,
        to: &'a SessionPolicy,
        mut tools: impl Iterator<Item = (&'a str, bool)>,
    ) -> Option<LoosenedPolicy<'a>> {
        let weaker = |name: &str| strength(to.tools.get(name)) < strength(from.tools.get(name));
        let mut named = from.tools.keys().chain(to.tools.keys());
        if let Some(name) = named.find(|name| weaker(name)) {
            return Some(LoosenedPolicy::Tool(name));
        }
        let without_rules = Self { rules: Vec::new(), ..self.clone() };
        let input = Input::new();
        let strict = |tool: &str, hil: bool, session: &SessionPolicy| {
            let request = PolicyRequest {
                tool,
                hil,
                input: &input,
                roles: &[],
                may_run: true,
                session,
                remembered: None,
                unaccepted: None,
            };
            match without_rules.evaluate(&request).requirement {
                Requirement::Skip(_) => 0,
                Requirement::NeedsApproval => 1,
                Requirement::Forbidden => 2,
            }
        };
        if let Some((tool, _)) = tools.find(|(tool, hil)| strict(tool, *hil, to) < strict(tool, *hil, from)) {
            return Some(LoosenedPolicy::Tool(tool));
        }
        // A session without a mode uses the mode of each server, which may differ from the mode of this
        // server.
        let dropped = to.mode.is_none() && from.mode.is_some_and(|mode| mode != ApprovalMode::AutoApprove);
        let in_force = |session: &SessionPolicy| session.mode.unwrap_or(self.mode).strength();
        (dropped || in_force(to) < in_force(from)).then_some(LoosenedPolicy::Mode)
    }
}

/// The part of a session's policy that got weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoosenedPolicy<'a> {
    /// The policy for this tool.
    Tool(&'a str),
    /// The mode, which applies to tools that require approval.
    Mode,
}

/// Returns how strict a session's entry for a tool is. A missing entry ranks between `Allow` and `Ask`.
fn strength(word: Option<&ToolPolicy>) -> u8 {
    match word {
        Some(ToolPolicy::Allow) => 0,
        None => 1,
        Some(ToolPolicy::Ask) => 2,
        Some(ToolPolicy::Deny) => 3,
    }
}

impl ApprovalMode {
    /// Returns how strict the mode is.
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

    fn needs_approval(source: Source, reason: String) -> Self {
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
