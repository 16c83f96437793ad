//! Approvals: decisions about held calls, and their consequences.
//!
//! ```text
//! decide   pending -> approved | rejected    one compare-and-set, with the decision's row, in one commit
//! execute  approved -> executing             another compare-and-set; its winner holds the permit
//!          the tool runs, in a tracked task, with no transaction open
//!          executing -> succeeded | failed | interrupted
//! ask      the handler of this process decides while the turn waits for it
//! input    executing: a tool asks people, and one answer goes to the tool; with a quorum people agree on it
//! sweep    pending -> expired, executing -> interrupted | approved, approved -> failed    after a deadline
//! report   executing -> succeeded | failed    by the service that owns the call; also interrupted -> …
//! verify   interrupted -> succeeded | failed    if the tool knows the outcome
//! resolve  interrupted -> succeeded | failed    if an operator found out the outcome
//! workers  approved -> executing -> succeeded | failed | interrupted    over HTTP, by programs outside
//! ```
//!
//! Every surface for decisions ends in [`Approvals::decide`].

mod ask_handler;
mod cancel;
mod cards;
mod claim_queue;
mod decide;
mod definitions;
mod delegate;
mod detail;
mod execute;
mod extend;
mod grants;
pub mod handlers;
mod inbox;
mod input;
mod links;
mod may_approve;
mod previews;
mod proposals;
mod quorum;
mod refusals;
mod report;
mod resolve;
mod reveal;
mod scope;
mod session;
mod sweeper;
mod verify;
mod workers;

pub(crate) use cards::title_of;
pub(crate) use decide::{DecideError, Decided, Decider, DecisionRequest, Remembered};
pub(crate) use definitions::AcceptError;
pub(crate) use delegate::{DelegateError, NotDelegated};
pub(crate) use detail::ApprovalDetail;
pub(crate) use extend::ExtendError;
pub(crate) use grants::GrantError;
pub(crate) use inbox::DecisionStatus;
pub(crate) use input::{AnswerError, Answered};
pub(crate) use links::{OpenLinkError, OpenedLink};
pub(crate) use previews::EditPreview;
pub(crate) use proposals::Proposed;
pub(crate) use report::{Report, ReportError, Reported};
pub(crate) use resolve::ResolveError;
pub(crate) use reveal::Revealed;
pub(crate) use scope::Scope;
pub(crate) use session::{PolicyError, PolicyInForce, PolicySet, ToolInForce};
pub(crate) use workers::{WorkerClaim, WorkerError};

use crate::agent::{Executor, Tasks};
use crate::config;
use crate::domain::Principal;
use crate::domain::call::ToolCall;
use crate::domain::call_times::CallTimes;
use crate::domain::id::ToolCallId;
use crate::domain::policy::MayDecide;
use crate::entropy::Entropy;
use crate::rate_limit::RateLimit;
use crate::store::{Read, Store, StoreError, Thread, Visibility};
use crate::tools::gate::Gate;
use claim_queue::ClaimQueue;
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
    /// The times of calls.
    times: CallTimes,
    /// The rate limit of decisions per user.
    rate_limit: Arc<RateLimit>,
    verifications: Arc<Verifications>,
    /// The roles of operators.
    operators: Vec<String>,
    /// The roles that accept definitions of MCP tools; `None` without authentication, when the one user does.
    accepting: Option<Vec<String>>,
    /// Whether the server has no authentication, and so one user.
    has_one_user: bool,
    /// Maximum length of the text that the model reads about an outcome, in bytes.
    result_bytes: usize,
    workers: workers::Workers,
    /// The claims of workers that wait in this process.
    claims: ClaimQueue,
    /// The source of secrets.
    entropy: Arc<dyn Entropy>,
}

impl Approvals {
    pub(crate) fn new(
        store: Store,
        executor: Executor,
        handler: Arc<dyn ApprovalHandler>,
        owner: String,
        entropy: Arc<dyn Entropy>,
        config: &config::Config,
    ) -> Self {
        let caps = config.limits.caps(config.auth.mode);
        let (approval, operators) = (config.approval.clone(), config.auth.operator_roles.clone());
        let times = approval.times();
        let accepting = config.auth.accepting();
        let has_one_user = config.auth.mode == config::AuthMode::None;
        let result_bytes = config.limits.result_bytes;
        let rate_limit = Arc::new(RateLimit::new(caps.decisions_per_minute));
        let verifications = Arc::default();
        let workers = workers::Workers::new(&config.auth);
        let claims = ClaimQueue::default();
        Self {
            store,
            executor,
            handler,
            owner,
            approval,
            times,
            rate_limit,
            verifications,
            operators,
            accepting,
            has_one_user,
            result_bytes,
            workers,
            claims,
            entropy,
        }
    }

    /// Returns the gate with the tools of this moment. A decision uses one gate from its checks to its commit: what
    /// the decider was shown has to be what runs.
    pub(crate) fn gate(&self) -> Gate {
        self.executor.gate()
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
        let tools = self.gate().registry().approved_by(principal);
        Visibility::Approver { tools, delegated_at: Some(self.store.process_time()), escalated: true }
    }
}

/// Returns the decisions that this principal may make about a held call in their own right.
fn own_right(gate: &Gate, principal: &Principal, thread: &Thread, call: &ToolCall) -> MayDecide {
    gate.registry().may_decide(principal, thread.is_of(principal), (&call.name, call.escalated_to()))
}
