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
//!
//! # One decision
//!
//! 1. A route reads a strict body and calls [`Approvals::decide`]. So do the WebSocket, the hooks of channels, the posted parts of
//!    pages (`chat`) and the handler of the process (`ask_handler`).
//! 2. `Approvals::commit_decision` is one transaction. Its first statement locks the thread, the run and the call under
//!    the condition of visibility, and reads them. So of several decisions at once the first one counts, and the others
//!    find it. The checks follow in this order: scope, `check_decider`, a decision in force (replay or conflict),
//!    expiry, `check` (readable inputs, tool, hash, schema), `check_policy`, the preview of an edit, the grant,
//!    `count_vote`. An edit that needs its preview rolls the transaction back, asks the tool (`decide::previews`), and
//!    begins again. A vote below the quorum is a row that is not final.
//! 3. `Write::decide` of the store moves the call by compare-and-set, with the decision row and the event. If this
//!    process runs the tool (`Approvals::claims`), the same transaction claims the call: on Postgres one statement moves
//!    it from `pending` to `executing`.
//! 4. `Approvals::commit_decided` commits, and the commit of a claim gives the permit. A stopping process, and a process
//!    that lacks the tool, leave the call `approved`; the call of a sub-agent is claimed later too.
//!    `Approvals::take` is a claim in a transaction of its own. It locks the call and evaluates the policy again.
//! 5. `Executor::run` runs the tool in a task of its own (`Gate::run`) and settles the call by its execution id
//!    (`Write::settle`). The decider waits at most `approval.wait`: in [`Approvals::await_outcomes`] for the task of
//!    this process, which hands the outcome over in memory, or in `Approvals::await_ends`, which reads the rows. If a
//!    page posted the decision and the tool answers at once, the executor offers the outcome to that request, and
//!    `Chat::admit` stores it in the transaction that resumes the run. If that transaction is not committed soon, the
//!    executor stores the outcome itself.
//! 6. `Approvals::decide_covered` decides the other pending calls that a remembered approval covers, each in a
//!    transaction of its own.
//! 7. The client's next POST resumes the run, or the resumer of `chat` does if the decision set `server_resumes`. Both
//!    use the compare-and-set of `Write::resume_run`.
//!
//! The policy is evaluated again at the decision, and at a claim in another transaction. Only a tighter verdict counts,
//! except that an approval answers an `ask`. If the commit of a claim is not confirmed, `Write::find_claim` looks for
//! its execution id in the row, over another connection. Without that id the tool does not run.

mod ask_handler;
mod cancel;
mod cards;
mod claim_queue;
mod decide;
mod definitions;
mod delegate;
mod denied;
mod detail;
mod execute;
mod extend;
mod grants;
pub mod handlers;
mod inbox;
mod input;
mod links;
mod may_approve;
mod proposals;
mod report;
mod resolve;
mod reveal;
mod session;
mod sweeper;
mod verify;
mod workers;

pub(crate) use cards::title_of;
pub(crate) use decide::{DecideError, Decided, Decider, DecisionRequest, EditPreview, Remembered, Scope};
pub(crate) use definitions::AcceptError;
pub(crate) use delegate::{DelegateError, DelegationRequest, NotDelegated};
pub(crate) use denied::{Denied, Right, has_denied};
pub(crate) use detail::ApprovalDetail;
pub(crate) use extend::ExtendError;
pub(crate) use inbox::DecisionStatus;
pub(crate) use input::{AnswerError, AnsweredRequest};
pub(crate) use links::{OpenLinkError, OpenedLink};
pub(crate) use proposals::Proposed;
pub(crate) use report::{Report, ReportError, Reported};
pub(crate) use resolve::ResolveError;
pub(crate) use reveal::Revealed;
pub(crate) use session::{PolicyError, PolicyInForce, PolicySet, ToolInForce};
pub(crate) use workers::{WorkerClaim, WorkerError};

use crate::agent::{Executor, Heartbeats, Tasks};
use crate::config;
use crate::entropy::Entropy;
use crate::rate_limit::RateLimit;
use crate::tools::gate::Gate;
use claim_queue::ClaimQueue;
use handlers::ApprovalHandler;
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::MayDecide;
use holdpoint_store::{Read, Store, StoreError, Thread, Visibility};
use std::ops::Deref;
use std::sync::Arc;
use verify::Verifications;

/// The decisions of a process. Each turn and each request holds a clone, so all clones share one value.
#[derive(Debug, Clone)]
pub(crate) struct Approvals(Arc<ApprovalParts>);

#[derive(Debug)]
pub(crate) struct ApprovalParts {
    store: Store,
    executor: Executor,
    handler: Arc<dyn ApprovalHandler>,
    /// This process, as the owner of its executions.
    owner: String,
    approval: config::Approval,
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

impl Deref for Approvals {
    type Target = ApprovalParts;

    fn deref(&self) -> &ApprovalParts {
        &self.0
    }
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
        let rate_limit = Arc::new(RateLimit::new("decisions", caps.decisions_per_minute));
        let verifications = Arc::default();
        let workers = workers::Workers::new(&config.auth);
        let claims = ClaimQueue::default();
        Self(Arc::new(ApprovalParts {
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
        }))
    }

    /// Returns the gate with the tools of this moment. A decision uses one gate from its checks to its commit: what
    /// the decider was shown has to be what runs.
    pub(crate) fn gate(&self) -> Gate {
        self.executor.gate()
    }

    /// Returns the leases of this process.
    pub(crate) fn heartbeats(&self) -> Heartbeats {
        self.executor.heartbeats.clone()
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
    gate.registry().may_decide(principal, thread.is_of(principal), &call.name, call.escalated_to())
}
