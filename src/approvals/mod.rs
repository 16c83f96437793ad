//! Approvals: decisions about held calls, and their consequences.
//!
//! ```text
//! decide   pending -> approved | rejected    one compare-and-set, with the decision's row, in one commit
//! execute  approved -> executing             another compare-and-set; its winner holds the permit
//!          the tool runs, in a tracked task, with no transaction open
//!          executing -> succeeded | failed | interrupted
//! ask      the handler of this process decides while the turn waits for it
//! sweep    pending -> expired, executing -> interrupted | approved, approved -> failed    after a deadline
//! verify   interrupted -> succeeded | failed    if the tool knows the outcome
//! ```
//!
//! Every surface for decisions ends in [`Approvals::decide`].

mod ask_handler;
mod cancel;
mod cards;
mod decide;
mod execute;
mod grants;
pub mod handlers;
mod inbox;
mod quorum;
mod scope;
mod session;
mod sweeper;
mod verify;

pub(crate) use decide::{DecideError, Decided, Decider, DecisionRequest};
pub(crate) use grants::GrantError;
pub(crate) use inbox::DecisionStatus;
pub(crate) use scope::Scope;
pub(crate) use session::{PolicyError, PolicyInForce, ToolInForce};

use crate::agent::{Executor, Tasks};
use crate::config;
use crate::domain::Principal;
use crate::domain::call::{ToolCall, input_hash};
use crate::domain::id::ToolCallId;
use crate::rate_limit::RateLimit;
use crate::store::{Read, Store, StoreError, Thread, Visibility};
use crate::tools::gate::Gate;
use handlers::ApprovalHandler;
use std::sync::Arc;
use verify::Verifications;

/// The approvals of one server.
#[derive(Debug, Clone)]
pub(crate) struct Approvals {
    store: Store,
    executor: Executor,
    handler: Arc<dyn ApprovalHandler>,
    /// This process, as the owner of its executions.
    owner: String,
    approval: config::Approval,
    /// The rate limit of decisions per user.
    rate_limit: Arc<RateLimit>,
    verifications: Arc<Verifications>,
    /// The roles of operators.
    operators: Vec<String>,
}

impl Approvals {
    pub(crate) fn new(
        store: Store,
        executor: Executor,
        handler: Arc<dyn ApprovalHandler>,
        owner: String,
        config: &config::Config,
    ) -> Self {
        let caps = config.limits.caps(config.auth.mode);
        let (approval, operators) = (config.approval.clone(), config.auth.operator_roles.clone());
        let rate_limit = Arc::new(RateLimit::new(caps.decisions_per_minute));
        let verifications = Arc::default();
        Self { store, executor, handler, owner, approval, rate_limit, verifications, operators }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.executor.gate
    }

    fn tasks(&self) -> &Tasks {
        &self.executor.tasks
    }

    /// Returns a call if this principal may see it: a call of the principal's threads, a held call of a tool
    /// that the principal approves, or for an operator any call of the tenant.
    pub(crate) async fn visible_call(
        &self,
        read: &Read,
        principal: &Principal,
        id: ToolCallId,
    ) -> Result<Option<(ToolCall, Thread)>, StoreError> {
        match read.call(principal, id).await? {
            Some(own) => Ok(Some(own)),
            None => read.visible_call(principal, &self.visibility(principal), id).await,
        }
    }

    /// Returns which calls of other users this principal may see.
    pub(crate) fn visibility(&self, principal: &Principal) -> Visibility {
        if principal.has_one_of(&self.operators) {
            return Visibility::Operator;
        }
        Visibility::Approver(self.gate().registry().approved_by(principal))
    }

    /// Returns the hash that a client echoes to prove what it was shown. The hash includes the current schema
    /// of the tool, so that a changed tool is detected.
    pub(crate) fn shown_hash(&self, call: &ToolCall) -> String {
        input_hash(&call.name, &call.input, self.current_schema(call))
    }

    /// Returns the current schema hash of the call's tool, or the stored one if the tool is gone.
    fn current_schema<'a>(&'a self, call: &'a ToolCall) -> &'a str {
        let registered = self.gate().registry().get(&call.name);
        registered.map_or(&call.schema_hash, |tool| &tool.schema_hash)
    }
}
