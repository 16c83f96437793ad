//! Decisions about held calls: each call is decided once, finally, and in the same way on every surface.

mod error;
mod previews;
mod request;

pub(crate) use error::DecideError;
pub(crate) use previews::EditPreview;
pub(crate) use request::{Decider, DecisionRequest, Scope};

use super::execute::{Running, is_in_progress};
use super::grants::{ApprovedCall, may_be_remembered};
use super::may_approve::{Proposal, fits};
use super::{Approvals, Denied, Right, own_right};
use crate::agent::UnsettledOutcome;
use crate::tools::InputError;
use crate::tools::gate::{Gate, Recheck};
use futures::FutureExt;
use futures::future::join_all;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall, input_hash};
use holdpoint_core::decision::Choice;
use holdpoint_core::id::{GrantId, ToolCallId};
use holdpoint_core::json::canonical::same_object;
use holdpoint_core::policy::MayDecide;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::MASK;
use holdpoint_store::permit::Permit;
use holdpoint_store::{LockedCall, StoreError, Thread, Vote, VoteOutcome, Write};
use std::time::Duration;
use tracing::Instrument;

/// An accepted decision.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The call in its current state.
    pub(crate) call: ToolCall,
    /// Whether the same decision was made before.
    pub(crate) replayed: bool,
    /// Whether the server resumes the run once none of its calls is open. Otherwise the next request to the thread does.
    pub(crate) server_resumes: bool,
    /// The number of approvals that are still missing before the call runs.
    pub(crate) missing: usize,
    /// What the approval covers beyond the call, if it was remembered now.
    pub(crate) remembered: Option<Remembered>,
    /// The execution, if this process runs the call.
    pub(in crate::approvals) running: Option<Running>,
}

impl Decided {
    /// Returns a call that was decided just now.
    pub(in crate::approvals) fn now(call: ToolCall) -> Self {
        Self { call, replayed: false, server_resumes: false, missing: 0, remembered: None, running: None }
    }
}

/// The grant of an approval, and the waiting calls that were to be approved with it.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) grant: GrantId,
    pub(crate) approved: Vec<ToolCallId>,
    /// The calls that still wait or were decided otherwise: they have changed since they were shown, or the grant does
    /// not cover them.
    pub(crate) left: Vec<ToolCallId>,
}

struct CommittedDecision {
    decided: Decided,
    thread: Thread,
    /// The permit, if the same commit claimed the call.
    permit: Option<Box<Permit>>,
}

impl CommittedDecision {
    /// Returns a decision that claimed nothing.
    fn unclaimed(decided: Decided, thread: Thread) -> Self {
        Self { decided, thread, permit: None }
    }
}

/// How long the stream of a client that posts a decision waits for the tool before it begins. A tool that ends in
/// this time leaves nothing to wait for: the request itself resumes the run, in one transaction instead of two.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Completes when these executions of this process are over, and updates the calls that they ended.
async fn executions_ended(decided: impl Iterator<Item = &mut Decided>) {
    let running = decided.filter_map(|decided| {
        let running = decided.running.take()?;
        Some(running.ended(&mut decided.call))
    });
    join_all(running).await;
}

impl Remembered {
    fn new(grant: GrantId) -> Self {
        Self { grant, approved: Vec::new(), left: Vec::new() }
    }
}

impl Approvals {
    /// Decides a call and, after an approval, starts to run it. Does not wait for the run. `POST /qa/validate_tool` and
    /// every other surface end here.
    pub(crate) async fn decide(
        &self,
        by: Decider<'_>,
        request: DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let span = tracing::error_span!("decision", tool_call_id = %request.tool_call_id);
        let decided = async {
            let decided = Box::pin(self.decide_and_begin(by, &request)).await;
            if let Err(error) = &decided {
                self.record_refusal(by, &request, error).await;
            }
            decided
        };
        // The future is large. Boxing keeps it out of the futures of all callers.
        Box::pin(decided.instrument(span)).await
    }

    /// Waits for the ends of decided calls, at most `approval.wait`, and updates the calls.
    pub(crate) async fn await_outcomes(&self, decided: &mut [&mut Decided]) -> Result<(), DecideError> {
        let limit = self.tasks().wait_limit(self.approval.wait).shared();
        tokio::select! {
            () = executions_ended(decided.iter_mut().map(|decided| &mut **decided)) => {}
            () = limit.clone() => {}
        }
        let mut calls: Vec<&mut ToolCall> = decided.iter_mut().map(|decided| &mut decided.call).collect();
        self.await_ends(&mut calls, is_in_progress, limit).await?;
        Ok(())
    }

    /// Waits for the tools of these calls in this process, but only as long as a tool takes that answers at once.
    /// Returns the outcomes if all tools have returned. Of these the caller stores those that it can.
    pub(crate) async fn await_at_once(&self, decided: &mut [Decided]) -> Vec<UnsettledOutcome> {
        let returned = decided.iter_mut().filter_map(|decided| {
            let running = decided.running.take()?;
            Some(running.returned(&mut decided.call))
        });
        tokio::select! {
            unsettled = join_all(returned) => unsettled.into_iter().flatten().collect(),
            () = self.tasks().wait_limit(AT_ONCE) => Vec::new(),
        }
    }

    async fn decide_and_begin(
        &self,
        by: Decider<'_>,
        request: &DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let committed = Box::pin(self.commit_decision(by, request)).await;
        self.measure(request, committed.as_ref().map(|committed| &committed.decided));
        let CommittedDecision { mut decided, thread, permit } = committed?;
        decided.running = self.start(&decided.call, permit, request.surface);
        if !decided.replayed && !matches!(decided.call.state, State::Approved(_)) {
            // The call may have ended, and may have been the last open call of its run.
            self.wake_waiters_in(thread.id);
        }
        if let Some(covers) = &request.remember {
            // The future is large.
            Box::pin(self.decide_covered(by, &thread, &mut decided, request, covers)).await;
        }
        Ok(decided)
    }

    /// Counts a decision of this principal against the rate limit.
    pub(crate) fn count(&self, principal: &Principal) -> Result<(), DecideError> {
        Ok(self.rate_limit.count(principal)?)
    }

    pub(in crate::approvals) fn measure(
        &self,
        request: &DecisionRequest,
        decided: Result<&Decided, &DecideError>,
    ) {
        let verdict = request.choice.verdict();
        let outcome = match decided {
            Ok(Decided { replayed: true, .. }) => "replayed",
            Ok(Decided { missing: 1.., .. }) => "counted",
            Ok(Decided { call, .. }) => {
                if let Some(decision) = &call.decision {
                    self.executor.metrics.hold_ended(verdict, decision.at.since(call.created_at));
                }
                "decided"
            }
            Err(error) => error.outcome(),
        };
        self.executor.metrics.decided(verdict, request.surface, outcome);
    }

    /// Locks a call for a decider, in their own right or as a delegate. A pending call whose time is over expires
    /// first.
    pub(in crate::approvals) async fn lock_for(
        &self,
        gate: &Gate,
        by: Decider<'_>,
        request: &DecisionRequest,
    ) -> Result<(Write, LockedCall), DecideError> {
        let visibility = self.visibility(by.visible_as());
        loop {
            let write = self.store.urgent_write().await?;
            let found = write.lock_visible_call(by.visible_as(), &visibility, request.tool_call_id).await?;
            let mut locked = found
                .filter(|found| found.call.held && request.scope.contains(&found.call, &found.thread))
                .ok_or(Denied::NotFound)?;
            // Before all other checks: their errors reveal the state of the call.
            if let Err(refused) = Self::check_decider(gate, by, &locked.thread, &locked.call, &request.choice)
            {
                let delegator = Self::delegator(gate, &write, by, &locked).await?;
                locked.on_behalf_of = Some(delegator.ok_or(refused)?);
            }
            let LockedCall { call, thread, .. } = &locked;
            let is_over = call.expires_at.is_some_and(|at| at <= write.now());
            if !(is_over && matches!(call.state, State::Pending)) {
                return Ok((write, locked));
            }
            write.expire(thread, call, self.times.resume_on_expiry).await?;
            let thread = thread.id;
            write.commit().await?;
            self.wake_waiters_in(thread);
        }
    }

    async fn commit_decision(
        &self,
        by: Decider<'_>,
        request: &DecisionRequest,
    ) -> Result<CommittedDecision, DecideError> {
        if let Decider::Person(principal) = by {
            self.count(principal)?;
        }
        may_be_remembered(request)?;
        let (gate, mut edited_preview) = (self.gate(), None);
        // Of several decisions at once, the first to lock the call decides. The others find its decision.
        loop {
            let (write, mut locked) = self.lock_for(&gate, by, request).await?;
            let LockedCall { call, thread, .. } = &locked;
            if !matches!(call.state, State::Pending) {
                return match is_repeat(call, &request.choice) {
                    true => {
                        let server_resumes = locked.server_resumes;
                        let decided = Decided { replayed: true, server_resumes, ..Decided::now(locked.call) };
                        Ok(CommittedDecision::unclaimed(decided, locked.thread.into_thread()))
                    }
                    false => Err(DecideError::Closed(Box::new(locked.call))),
                };
            }
            let answer = check(&gate, call, request)?;
            if request.remember.is_some() && !Self::may_leave_grant(&gate, by, &locked) {
                return Err(DecideError::not_remembered(
                    "a caller that approves the calls of the tool in their own right",
                ));
            }
            let root = match &request.remember {
                // Before the policy is read under a shared lock. Two transactions with that lock would each
                // wait for the other one here.
                Some(_) => Some(write.lock_session(thread).await?),
                None => None,
            };
            self.check_policy(&gate, &write, &locked, &answer).await?;
            if let (Some(inputs), None) = (needs_preview(&gate, call, &answer), &edited_preview) {
                if request.preview_hash.is_none() {
                    return Err(DecideError::StalePreview);
                }
                // No transaction is open while a tool works. Everything is checked again after it.
                drop(write);
                edited_preview = Some(gate.preview(&call.name, inputs, &thread.requester()).await);
                continue;
            }
            let (runs, preview) = match &answer {
                Choice::Approve { inputs: Some(inputs), .. } => (inputs, edited_preview.as_ref()),
                Choice::Approve { inputs: None, .. } | Choice::Reject { .. } => {
                    (&call.input, call.preview.as_ref())
                }
            };
            let input_hash = input_hash(&call.name, runs, gate.current_schema(call), preview);
            check_preview(request, &input_hash)?;
            let grant = match (&request.remember, &root) {
                (Some(covers), Some(root)) => {
                    let approved = ApprovedCall { thread, root, call, runs };
                    Some(self.to_grant(&gate, &write, by, approved, covers).await?)
                }
                _ => None,
            };
            let mut vote = Vote {
                actor: by.actor(),
                on_behalf_of: locked.on_behalf_of.clone(),
                surface: request.surface,
                input_hash,
                edited_preview: edited_preview.clone(),
                source: None,
                grant: grant.as_ref().map(|new| new.grant.id),
                voted_before: Vec::new(),
            };
            let counted = self.count_vote(&gate, &write, &locked, &answer, &vote).await?;
            let changes = !matches!(counted, VoteOutcome::Short { repeated: true, .. });
            if let Some(link) = request.link.as_ref().filter(|_| changes) {
                let shown = gate.shown_hash(&locked.call);
                Self::use_link(&write, by, &locked.call, link, &shown).await?;
            }
            match counted {
                VoteOutcome::Enough(with) => vote.voted_before = with,
                VoteOutcome::Short { missing, repeated } => {
                    write.commit().await?;
                    let server_resumes = locked.server_resumes;
                    let decided =
                        Decided { replayed: repeated, server_resumes, missing, ..Decided::now(locked.call) };
                    return Ok(CommittedDecision::unclaimed(decided, locked.thread.into_thread()));
                }
            }
            let claims = |call: &ToolCall| self.claims(&gate, call);
            if let Some(write) = write.decide(&mut locked, &answer, &vote, &self.times, claims).await? {
                let granted = vote.grant;
                self.grant(&gate, &write, &locked.thread, grant).await?;
                let server_resumes = write.allow_resume(&locked, request.server_resumes).await?;
                let permit = self.commit_decided(write, &mut locked).await?;
                return Ok(CommittedDecision {
                    decided: Decided {
                        server_resumes,
                        remembered: granted.map(Remembered::new),
                        ..Decided::now(locked.call)
                    },
                    thread: locked.thread.into_thread(),
                    permit,
                });
            }
        }
    }

    /// Checks that the decider may make this choice.
    pub(in crate::approvals) fn check_decider(
        gate: &Gate,
        by: Decider<'_>,
        thread: &Thread,
        call: &ToolCall,
        answer: &Choice,
    ) -> Result<(), DecideError> {
        let Decider::Person(principal) = by else { return Ok(()) };
        match (own_right(gate, principal, thread, call), answer) {
            (MayDecide::ApproveOrReject, _) | (MayDecide::OnlyReject, Choice::Reject { .. }) => Ok(()),
            (MayDecide::OnlyReject, Choice::Approve { .. }) | (MayDecide::Nothing, _) => {
                Err(Denied::Forbidden(Right::DecideCall).into())
            }
        }
    }

    /// Refuses to approve a call that the policy now forbids with these inputs. Until the transaction ends,
    /// the policy of the session stays as it is.
    pub(in crate::approvals) async fn check_policy(
        &self,
        gate: &Gate,
        write: &Write,
        locked: &LockedCall,
        answer: &Choice,
    ) -> Result<(), DecideError> {
        let Choice::Approve { inputs, .. } = answer else { return Ok(()) };
        let Some(tool) = gate.registry().get(&locked.call.name) else { return Ok(()) };
        let runs = inputs.as_ref().unwrap_or(&locked.call.input);
        match self.recheck(gate, write, locked, tool, runs).await? {
            Recheck::Never { why: message, .. } if inputs.is_some() => {
                Err(DecideError::InvalidInputs(vec![InputError { pointer: String::new(), message }]))
            }
            Recheck::Never { why, .. } => Err(DecideError::Blocked(why)),
            Recheck::Yes | Recheck::NotUnasked => Ok(()),
        }
    }

    /// Counts a vote before it decides. One rejection is always enough. An approval counts for its inputs and for the
    /// schema of the tool at that time, so that all counted approvers agreed on the same call, and until the call is
    /// decided. An approver with second thoughts rejects the call.
    async fn count_vote(
        &self,
        gate: &Gate,
        write: &Write,
        locked: &LockedCall,
        answer: &Choice,
        vote: &Vote,
    ) -> Result<VoteOutcome, StoreError> {
        let quorum = gate.registry().quorum(&locked.call.name);
        if quorum.people <= 1 || matches!(answer, Choice::Reject { .. }) {
            return Ok(VoteOutcome::Enough(Vec::new()));
        }
        write.count_vote(locked, answer, vote, quorum).await
    }
}

/// Checks the choice for a pending call, and returns it. Inputs that equal the model's are no edit.
pub(in crate::approvals) fn check(
    gate: &Gate,
    call: &ToolCall,
    request: &DecisionRequest,
) -> Result<Choice, DecideError> {
    let tool = match &request.choice {
        Choice::Approve { .. } => Some(Proposal::of(call).tool(gate)?),
        Choice::Reject { .. } => None,
    };
    let current = gate.shown_hash(call);
    if request.input_hash.as_ref().is_some_and(|shown| *shown != current) {
        return Err(DecideError::Stale { input_hash: current });
    }
    // After a deploy, and after a change at an MCP server, the call is not what its card was made of: the schema, the
    // description or the constants of the tool may differ. So an approval has to name the hash of the new ones.
    let has_moved = tool.is_some_and(|tool| tool.schema_hash != call.schema_hash);
    if has_moved && request.input_hash.is_none() {
        return Err(DecideError::Stale { input_hash: current });
    }
    match &request.choice {
        Choice::Approve { inputs, note } => {
            let inputs = unmasked(call, inputs.as_ref())?.filter(|inputs| !same_object(inputs, &call.input));
            let runs = inputs.as_ref().unwrap_or(&call.input);
            let edited = inputs.as_ref().map(|_| &call.input);
            tool.map_or(Ok(()), |tool| fits(gate, tool, runs, &call.secrets, edited))?;
            Ok(Choice::Approve { inputs, note: note.clone() })
        }
        Choice::Reject { reason } => Ok(Choice::Reject { reason: reason.clone() }),
    }
}

/// Returns the inputs of an approval with the proposed value in place of each mask of a secret.
fn unmasked(call: &ToolCall, inputs: Option<&Input>) -> Result<Option<Input>, DecideError> {
    let whole = inputs.map(|inputs| call.secrets.unmasked(inputs, &call.input)).transpose();
    whole.map_err(|pointer| {
        let message = format!("{MASK} leaves a secret as it was proposed, and no value was proposed here");
        DecideError::InvalidInputs(vec![InputError { pointer, message }])
    })
}

/// Returns the edited inputs that need a preview of their own: the tool has previews, or had one for the proposed
/// inputs.
pub(in crate::approvals) fn needs_preview<'a>(
    gate: &Gate,
    call: &ToolCall,
    answer: &'a Choice,
) -> Option<&'a Input> {
    let Choice::Approve { inputs, .. } = answer else { return None };
    inputs.as_ref().filter(|_| call.preview.is_some() || gate.has_preview(&call.name))
}

/// Checks that an approval is about the inputs and the preview that the decider was shown, if it names them.
fn check_preview(request: &DecisionRequest, input_hash: &str) -> Result<(), DecideError> {
    let approves = matches!(request.choice, Choice::Approve { .. });
    match &request.preview_hash {
        Some(shown) if approves && shown != input_hash => Err(DecideError::StalePreview),
        _ => Ok(()),
    }
}

/// Whether the same was decided before: the same verdict and, for an approval, the same inputs.
fn is_repeat(call: &ToolCall, answer: &Choice) -> bool {
    match (&call.state, answer) {
        (
            State::Approved(_)
            | State::Executing(..)
            | State::Succeeded(..)
            | State::Failed(..)
            | State::Interrupted(..),
            Choice::Approve { inputs, .. },
        ) => unmasked(call, inputs.as_ref())
            .is_ok_and(|inputs| same_object(inputs.as_ref().unwrap_or(&call.input), call.effective_input())),
        (State::Rejected(_), Choice::Reject { .. }) => true,
        _ => false,
    }
}
