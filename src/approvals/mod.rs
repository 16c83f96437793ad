//! Approvals: what a person says about a held call, and what follows.
//!
//! ```text
//! decide   pending -> approved | rejected    one compare-and-set, with the decision's row, committed
//! execute  approved -> executing             another; whoever makes it holds the permit
//!          the tool runs, in a tracked task, with no transaction open
//!          executing -> succeeded | failed | interrupted
//! ask      what the handler of this process says, while the turn waits for it
//! sweep    pending -> expired, executing -> interrupted | approved, approved -> failed    when their time is over
//! verify   interrupted -> succeeded | failed    when its tool is asked, and knows
//! ```
//!
//! Every surface a decision can come in by ends in [`Approvals::answer`].

mod ask_handler;
mod cancel;
mod decide;
mod execute;
mod grants;
pub mod handlers;
mod inbox;
#[cfg(feature = "torture")]
mod planted;
mod quorum;
mod scope;
mod session;
mod sweeper;
mod verify;

pub(crate) use decide::{DecideError, Decided, Decider, DecisionRequest};
pub(crate) use grants::GrantError;
pub(crate) use inbox::DecisionStatus;
pub(crate) use scope::Scope;
pub(crate) use session::PolicyError;

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
use tokio::sync::watch;
use verify::Verifications;

/// The approvals of one server.
#[derive(Debug, Clone)]
pub(crate) struct Approvals {
    store: Store,
    executor: Executor,
    handler: Arc<dyn ApprovalHandler>,
    /// This process, as the owner of what it runs.
    owner: String,
    approval: config::Approval,
    /// How often one user may decide.
    rate_limit: Arc<RateLimit>,
    /// Counts the calls that this process settled, so that who waits for one looks again.
    wake: watch::Sender<u64>,
    verifications: Arc<Verifications>,
    /// Who has one of these roles operates the server.
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
        let (wake, verifications) = (watch::Sender::new(0), Arc::default());
        Self { store, executor, handler, owner, approval, rate_limit, wake, verifications, operators }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.executor.gate
    }

    fn tasks(&self) -> &Tasks {
        &self.executor.tasks
    }

    /// A call that this principal may see: of a thread of theirs, or held and of a tool whose approver they are, or of
    /// their tenant where they operate the server.
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

    /// What this principal sees of the calls of others.
    pub(crate) fn visibility(&self, principal: &Principal) -> Visibility {
        if principal.has_one_of(&self.operators) {
            return Visibility::Operator;
        }
        Visibility::Approver(self.gate().registry().approved_by(principal))
    }

    /// The hash a page has to echo to say that it decides what it was shown: with the schema of the tool as
    /// it is registered now, so that it tells when the tool has changed since.
    pub(crate) fn shown_hash(&self, call: &ToolCall) -> String {
        input_hash(&call.name, &call.input, self.current_schema(call))
    }

    /// The hash of what the call's tool takes now, or took if it is gone.
    fn current_schema<'a>(&'a self, call: &'a ToolCall) -> &'a str {
        let registered = self.gate().registry().get(&call.name);
        registered.map_or(&call.schema_hash, |tool| &tool.schema_hash)
    }
}
