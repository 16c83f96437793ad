//! The policy of one session, beside the operator's policy.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::grant::Grant;
use crate::domain::id::ThreadId;
use crate::domain::policy::{ApprovalMode, InForce, Loosened, Rule, Ruling, SessionPolicy};
use crate::store::{ListedSession, Page, SessionScope, StoreError};
use crate::tools::ToolSpec;
use crate::tools::gate::Gate;

/// The policy in force in a session.
#[derive(Debug)]
pub(crate) struct PolicyInForce<'a> {
    /// The session.
    pub(crate) session_id: ThreadId,
    /// The policy of the session itself.
    pub(crate) session: SessionPolicy,
    /// The mode for tools that ask.
    pub(crate) mode: ApprovalMode,
    /// Whether grants outlive the process.
    pub(crate) grants_last: bool,
    /// The tools that run for the principal; for an operator all tools.
    pub(crate) tools: Vec<ToolInForce<'a>>,
}

/// The policy in force for one tool.
#[derive(Debug)]
pub(crate) struct ToolInForce<'a> {
    /// The tool.
    pub(crate) tool: &'a ToolSpec,
    /// The ruling on a call that none of the rules covers.
    pub(crate) ruling: Ruling,
    /// The rules that cover some calls of the tool.
    pub(crate) rules: Vec<&'a Rule>,
    /// The grants that cover calls of the tool.
    pub(crate) grants: Vec<Grant>,
}

/// The reason why the policy of a session is not read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// No such session, for this principal.
    #[error("there is no such session")]
    NotFound,
    /// The policy of a tool would be looser than before, which only an operator may do.
    #[error("the tool {0:?} would go further than before")]
    Loosened(String),
    /// Tools that ask would have a looser policy, if there are any.
    #[error("the mode would go further than before")]
    ModeLoosened,
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Approvals {
    /// Returns the sessions of a principal, newest first, from before a given session. An operator gets those of every
    /// user of the tenant.
    pub(crate) async fn sessions(
        &self,
        principal: &Principal,
        before: Option<ThreadId>,
        size: u64,
    ) -> Result<Page<ListedSession>, StoreError> {
        let operates = principal.has_one_of(&self.operators);
        let scope = if operates { SessionScope::OfTenant } else { SessionScope::Own };
        self.store.read().await?.sessions(principal, scope, before, size).await
    }

    /// Returns the policy in force in a session, for its user and for operators.
    pub(crate) async fn policy_in_force<'a>(
        &self,
        gate: &'a Gate,
        principal: &Principal,
        session: ThreadId,
    ) -> Result<PolicyInForce<'a>, PolicyError> {
        let operates = principal.has_one_of(&self.operators);
        let read = self.store.read().await?;
        let root = read.any_session(principal, session).await?;
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(PolicyError::NotFound)?;
        let policy = read.session_policy(&root).await?;
        let of_caller = root.is_of(principal);
        // The roles of another user are unknown here.
        let roles = of_caller.then_some(principal.roles.as_slice());
        let tools = gate.registry().registered();
        let tools: Vec<_> = tools.filter(|tool| operates || tool.runs_for(&principal.roles)).collect();
        let process = gate.remembering().process.as_deref();
        let names = tools.iter().map(|tool| tool.spec.name.as_str());
        let grants = read.grants_about(&root, names, process).await?;
        let requester = root.actor();
        let in_force = tools.into_iter().map(|tool| {
            let (InForce { ruling, rules }, grants) =
                gate.in_force(tool, roles, &policy, &requester, &grants);
            let grants = grants.into_iter().cloned().collect();
            ToolInForce { tool: &tool.spec, ruling, rules, grants }
        });
        let tools = in_force.collect();
        Ok(PolicyInForce {
            session_id: root.id,
            mode: gate.mode(&policy),
            session: policy,
            grants_last: process.is_none(),
            tools,
        })
    }

    /// Replaces the policy of a session. The session's user may only tighten it, because an operator may have
    /// set the current policy.
    pub(crate) async fn set_policy(
        &self,
        principal: &Principal,
        session: ThreadId,
        policy: &SessionPolicy,
    ) -> Result<(), PolicyError> {
        let operates = principal.has_one_of(&self.operators);
        let write = self.store.urgent_write().await?;
        let root = write.any_session(principal, session).await?;
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(PolicyError::NotFound)?;
        let root = write.lock_thread(root.id).await?;
        let before = write.hold_session(&root).await?;
        let gate = self.gate();
        let registry = gate.registry();
        // The stored policy may name tools of another build. A tool that the principal may not run counts as
        // unknown.
        let is_known = |name: &str| {
            before.tools.contains_key(name)
                || registry.get(name).is_some_and(|tool| operates || tool.is_visible_to(principal))
        };
        if let Some(unknown) = policy.tools.keys().find(|name| !is_known(name)) {
            return Err(PolicyError::UnknownTool(unknown.clone()));
        }
        if !operates && let Some(loosened) = gate.loosened(&before, policy) {
            return Err(match loosened {
                Loosened::Tool(tool) => PolicyError::Loosened(tool.to_owned()),
                Loosened::Mode => PolicyError::ModeLoosened,
            });
        }
        write.set_session_policy(&root, policy).await?;
        write.commit().await?;
        Ok(())
    }
}
