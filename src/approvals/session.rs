//! The policy of one session, beside the operator's policy.

use super::{Approvals, Denied, has_denied};
use crate::tools::ToolSpec;
use crate::tools::gate::{Gate, PolicyContext, Recheck};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::grant::Grant;
use holdpoint_core::id::{ThreadId, ToolCallId};
use holdpoint_core::policy::{ApprovalMode, InForce, LoosenedPolicy, Rule, Ruling, SessionPolicy, Source};
use holdpoint_store::{ListedSession, LockedThread, Page, SessionScope, StoreError, Thread, Write};
use std::cmp::Reverse;
use std::collections::HashMap;

#[derive(Debug)]
pub(crate) struct PolicyInForce<'a> {
    pub(crate) session_id: ThreadId,
    pub(crate) session: SessionPolicy,
    /// The mode for tools that ask.
    pub(crate) mode: ApprovalMode,
    /// Whether grants outlive the process.
    pub(crate) grants_last: bool,
    /// The tools that run for the principal; for an operator all tools.
    pub(crate) tools: Vec<ToolInForce<'a>>,
}

#[derive(Debug)]
pub(crate) struct ToolInForce<'a> {
    pub(crate) tool: &'a ToolSpec,
    /// The ruling on a call that none of the rules covers.
    pub(crate) ruling: Ruling,
    /// The rules that cover some calls of the tool.
    pub(crate) rules: Vec<&'a Rule>,
    /// The grants that cover calls of the tool.
    pub(crate) grants: Vec<Grant>,
}

/// What a new policy of a session means for the calls that wait in it.
#[derive(Debug, Default)]
pub(crate) struct PolicySet {
    /// The calls that the policy forbids. They are rejected.
    pub(crate) rejected: Vec<ToolCallId>,
    /// The calls that the policy would let run without an approval. They still wait for their deciders.
    pub(crate) allowed: Vec<ToolCallId>,
}

/// The reason why the policy of a session is not read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The policy of a tool would be looser than before, which only an operator may do.
    #[error("the tool {0:?} would go further than before")]
    Loosened(String),
    /// Tools that ask would have a looser policy, if there are any.
    #[error("the mode would go further than before")]
    ModeLoosened,
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
}

has_denied!(PolicyError);

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
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(Denied::NotFound)?;
        let policy = read.session_policy(&root).await?;
        let of_caller = root.is_of(principal);
        // The roles of another user are unknown here.
        let roles = of_caller.then_some(principal.roles.as_slice());
        let tools = gate.registry().registered();
        let tools: Vec<_> = tools.filter(|tool| operates || tool.runs_for(&principal.roles)).collect();
        let as_of = gate.remembering().as_of(self.store.process_time());
        let names = tools.iter().map(|tool| tool.spec.name.as_str());
        let grants = read.grants_about(&root, names, as_of).await?;
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
            grants_last: as_of.process.is_none(),
            tools,
        })
    }

    /// Replaces the policy of a session, and rejects the waiting calls that it forbids. The session's user may only
    /// tighten it, because an operator may have set the current policy.
    pub(crate) async fn set_policy(
        &self,
        principal: &Principal,
        session: ThreadId,
        policy: &SessionPolicy,
    ) -> Result<PolicySet, PolicyError> {
        loop {
            if let Some(set) = self.try_to_set_policy(principal, session, policy).await? {
                return Ok(set);
            }
        }
    }

    /// Sets the policy, unless a call of another thread began to wait after the threads with waiting calls were
    /// locked. Returns `None` then, and changes nothing.
    async fn try_to_set_policy(
        &self,
        principal: &Principal,
        session: ThreadId,
        policy: &SessionPolicy,
    ) -> Result<Option<PolicySet>, PolicyError> {
        let operates = principal.has_one_of(&self.operators);
        let write = self.store.urgent_write().await?;
        let root = write.any_session(principal, session).await?;
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(Denied::NotFound)?;
        // A child thread is younger than its parent, and is locked before it.
        let waiting = write.pending_holds_of_session(root.id).await?;
        let children = waiting.iter().map(|(call, _)| call.thread_id).filter(|id| *id != root.id);
        let mut children: Vec<ThreadId> = children.collect();
        children.sort_by_key(|id| Reverse(id.to_string()));
        children.dedup();
        let mut threads = HashMap::new();
        for id in children {
            threads.insert(id, write.lock_thread(id).await?);
        }
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
                LoosenedPolicy::Tool(tool) => PolicyError::Loosened(tool.to_owned()),
                LoosenedPolicy::Mode => PolicyError::ModeLoosened,
            });
        }
        let waiting = write.pending_holds_of_session(root.id).await?;
        threads.insert(root.id, root.clone());
        if waiting.iter().any(|(call, _)| !threads.contains_key(&call.thread_id)) {
            return Ok(None);
        }
        write.set_session_policy(&root, policy).await?;
        let set = self.settle_waiting(&gate, &write, policy, &waiting, &threads, &principal.actor()).await?;
        write.commit().await?;
        if !set.rejected.is_empty() {
            self.wake_waiters();
        }
        Ok(Some(set))
    }

    /// Rejects the calls that the new policy of their session forbids. Their threads are locked. What the operator
    /// forbids stays for a decision or the expiry: no person has asked for its end.
    async fn settle_waiting(
        &self,
        gate: &Gate,
        write: &Write,
        policy: &SessionPolicy,
        waiting: &[(ToolCall, Thread)],
        threads: &HashMap<ThreadId, LockedThread>,
        actor: &str,
    ) -> Result<PolicySet, StoreError> {
        let mut set = PolicySet::default();
        let Some((_, first)) = waiting.first() else { return Ok(set) };
        let runs = write.call_policies(waiting.iter().map(|(call, _)| call.run_id)).await?;
        let as_of = gate.remembering().as_of(write.now());
        let grants = write.grants_in(std::iter::once(first.session_id), as_of).await?;
        for (call, thread) in waiting {
            let (Some(tool), Some(run)) = (gate.registry().get(&call.name), runs.get(&call.run_id)) else {
                continue;
            };
            let (roles, requester) = (run.roles.as_slice(), thread.actor());
            let context = PolicyContext { roles, session: policy, requester: &requester, grants: &grants };
            match gate.recheck(tool, &call.input, true, context) {
                Recheck::Never { why, source: Source::Session } => {
                    let Some(locked) = threads.get(&call.thread_id) else { continue };
                    if write.reject_by_policy(locked, call, actor, &why).await? {
                        write.person_resumes(locked, call.run_id, true).await?;
                        set.rejected.push(call.id);
                    }
                }
                _ if gate.lets_run(tool, &call.input, context) => set.allowed.push(call.id),
                Recheck::Never { .. } | Recheck::Yes | Recheck::NotUnasked => {}
            }
        }
        Ok(set)
    }
}
