//! Executions of calls: claim, renew, settle, reap.

use crate::call::permit::{CommittedCall, Permit};
use crate::call::transitions::{Approved, Becomes, Executing, Failed, Interrupted, Move, Succeeded};
use crate::entity::{message, run, tool_call};
use crate::event::new_event::{NewEvent, OfCall, Subject};
use crate::{
    LockedCall, LockedRow, LockedThread, Read, RenewalOutcome, StoreError, Thread, Write, sql::rows,
};
use holdpoint_core::call::{CallEnd, Execution, Outcome, State, StateKind, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::Surface;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::{EventData, MoveCause};
use holdpoint_core::id::{ExecId, ToolCallId};
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{ColumnTrait, EntityName, EntityTrait, PaginatorTrait, QueryFilter};
use std::ops::Deref;
use std::time::Duration;

/// A transaction that claims a call, or that was to claim one.
pub enum Claim {
    /// The transaction claims the call.
    Made(Box<OpenClaim>),
    /// The call cannot be claimed, or its start deadline is reached, or it has no claimant. The transaction makes what
    /// else it was to make.
    Unclaimed(Box<Write>),
}

impl Deref for Claim {
    type Target = Write;

    fn deref(&self) -> &Write {
        match self {
            Self::Made(claim) => &claim.write,
            Self::Unclaimed(write) => write,
        }
    }
}

/// A transaction that claims a call. Only its commit gives the permit, and a drop rolls it back.
pub struct OpenClaim {
    write: Write,
    call: CommittedCall,
}

/// The result of the commit of a claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// This execution holds the call.
    Permitted(Box<Permit>),
    /// The database did not confirm the commit. The process may run the call only after it finds this
    /// execution in the row.
    Unknown(Execution, StoreError),
}

#[derive(Debug, Clone, Copy)]
pub enum Claimant<'a> {
    /// A process of a server, for its own tool.
    Process(&'a str),
    Worker {
        /// The actor of its token.
        actor: &'a str,
        /// The hash of the permit token that the worker gets.
        permit_hash: &'a str,
    },
}

/// Whether a call that was claimed before may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeatability {
    /// The tool declares that a second run is harmless.
    Harmless,
    /// A second run is not harmless.
    Never,
}

/// The way in which the outcome of an interrupted call was found out.
#[derive(Debug, Clone, Copy)]
pub enum ResolvedBy<'a> {
    /// An operator established the outcome.
    Operator {
        /// The operator.
        actor: &'a str,
        /// The operator's reason.
        reason: Option<&'a str>,
        /// Where the operator said so.
        surface: Surface,
    },
    /// The tool reported the outcome when the server asked.
    Tool,
}

/// The result of a settlement.
#[derive(Debug)]
pub enum SettleOutcome {
    /// The execution has ended the call, which has this state now.
    Ended(Box<State>),
    /// The call may be claimed again.
    Again,
    /// Another execution holds the call, or the call was settled without this one.
    Nothing,
}

/// The result of a reap of a call whose execution went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReapOutcome {
    /// Another execution holds the call, or the call had ended.
    Nothing,
    /// The call may be claimed again.
    Repeatable,
    /// The outcome is unknown, and the call never runs again.
    Interrupted,
}

impl Read {
    /// Reads decided calls again. Their decisions stay as they are.
    pub async fn update_decided(&self, calls: &mut [&mut ToolCall]) -> Result<(), StoreError> {
        let ids = calls.iter().map(|call| call.id.to_string());
        let found = tool_call::Entity::find().filter(tool_call::Column::ToolCallId.is_in(ids));
        for row in found.all(&self.tx).await? {
            let now = rows::call(row, None)?;
            if let Some(call) = calls.iter_mut().find(|call| call.id == now.id) {
                let decision = call.decision.take();
                **call = ToolCall { decision, ..now };
            }
        }
        Ok(())
    }

    /// Returns a call by its id, whatever its owner, for work of the server itself.
    pub async fn any_call(&self, id: ToolCallId) -> Result<Option<ToolCall>, StoreError> {
        let found = tool_call::Entity::find_by_id(id.to_string()).all(&self.tx).await?;
        Ok(self.with_decisions(found).await?.pop())
    }
}

impl Write {
    /// Returns the id of a new execution.
    pub(crate) fn fresh_execution(&self) -> ExecId {
        ExecId::new(self.clock.uuid())
    }

    /// Claims an approved call. The row stores whether the tool was idempotent, and whether workers executed its
    /// calls, when the model made the call. `again` is whether the tool is idempotent now.
    pub async fn claim(
        self,
        locked: &LockedCall,
        claimant: Claimant<'_>,
        lease: Duration,
        again: Repeatability,
    ) -> Result<Claim, StoreError> {
        let LockedCall { call, thread, attempts, .. } = locked;
        // A call with unreadable inputs has no permit.
        if call.unreadable || (again == Repeatability::Never && *attempts > 0) {
            return Ok(Claim::Unclaimed(Box::new(self)));
        }
        let execution = self.next_execution(*attempts);
        let (claimed, data) =
            with_claim(Move::of::<Approved, Executing>(), call, execution, claimant, self.now.plus(lease));
        let claimed = claimed
            .only(tool_call::Column::StartDeadline.gt(self.now.as_micros()))
            .only(tool_call::Column::ExecAttempt.eq(*attempts));
        let subject = Subject::call(thread, call);
        let event_type = EventType::ToolStarted;
        let started = NewEvent { event_type, actor: owner_actor(call), subject: &subject, data };
        if !self.apply_with_event(call.id, claimed, None, &started).await? {
            return Ok(Claim::Unclaimed(Box::new(self)));
        }
        Ok(self.claim_made(locked, execution))
    }

    /// Returns a new execution of a call that was executed this number of times.
    pub(crate) fn next_execution(&self, attempts: i32) -> Execution {
        let attempt = attempts.saturating_add(1);
        Execution { id: ExecId::new(self.clock.uuid()), attempt, started_at: self.now }
    }

    /// Returns the claim of an approved call that this transaction has moved.
    pub(crate) fn claim_made(self, locked: &LockedCall, execution: Execution) -> Claim {
        let LockedCall { thread, call, approved_by, .. } = locked;
        let call = committed(thread, call.clone(), approved_by.clone(), execution);
        Claim::Made(Box::new(OpenClaim { write: self, call }))
    }

    /// Finds a claim whose commit the database did not confirm. Returns the permit if this execution holds
    /// the call and no cancel is requested. If the commit arrives later, it fails, or leaves a call that no
    /// process runs.
    pub async fn find_claim(
        self,
        call: ToolCallId,
        execution: Execution,
        lease: Duration,
    ) -> Result<Option<Permit>, StoreError> {
        // Waits for the transaction in doubt, as long as the database keeps it open.
        let Some(locked) = self.lock_call(call).await? else { return Ok(None) };
        let held = match self.renew_call(call, execution, lease).await? {
            RenewalOutcome::Lost => return Ok(None),
            RenewalOutcome::Held => true,
            RenewalOutcome::CancelRequested => {
                let unknown = &Outcome::Interrupted;
                self.settle(call, execution, unknown, locked.call.unknown_outcome(), Duration::ZERO).await?;
                false
            }
        };
        self.commit().await?;
        // A call with unreadable inputs has no permit.
        let held = held && !locked.call.unreadable;
        let LockedCall { thread, call, approved_by, .. } = locked;
        Ok(held.then(|| Permit::committed(committed(&thread, call, approved_by, execution))))
    }

    /// Renews the lease of an execution.
    pub async fn renew_call(
        &self,
        call: ToolCallId,
        execution: Execution,
        lease: Duration,
    ) -> Result<RenewalOutcome, StoreError> {
        self.name_commit("call.renewed", Some(call));
        let renewal = Query::update()
            .table(tool_call::Entity.table_ref())
            .value(tool_call::Column::LeaseUntil, self.now.plus(lease).as_micros())
            .and_where(tool_call::Column::ToolCallId.eq(call.to_string()))
            .and_where(tool_call::Column::ExecId.eq(execution.id.to_string()))
            .and_where(tool_call::Column::State.eq(StateKind::Executing.word()))
            .and_where(tool_call::Column::ChildRunId.is_null())
            .and_where(tool_call::Column::ResultDeadline.is_null())
            .returning_col(tool_call::Column::CancelRequestedAt)
            .to_owned();
        self.renewed(&renewal).await
    }

    /// Settles an execution with its outcome. The outcome may come late, after the call was interrupted.
    pub async fn settle(
        &self,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: String,
        start_deadline: Duration,
    ) -> Result<SettleOutcome, StoreError> {
        match self.lock_row(call).await? {
            Some(locked) => self.settle_row(&locked, execution, outcome, result, start_deadline).await,
            None => Ok(SettleOutcome::Nothing),
        }
    }

    /// Settles an execution of a locked call.
    pub(crate) async fn settle_row(
        &self,
        locked: &LockedRow,
        execution: Execution,
        outcome: &Outcome,
        result: String,
        start_deadline: Duration,
    ) -> Result<SettleOutcome, StoreError> {
        let actor = locked.call.decided_by.as_deref().unwrap_or(system::POLICY);
        let own = tool_call::Column::ExecId.eq(execution.id.to_string());
        // The end of a child run ends the call that the child executes.
        let own = own.and(tool_call::Column::ChildRunId.is_null());
        let settling = match outcome {
            Outcome::Succeeded(_) | Outcome::Failed(_) => self.known::<Executing>(outcome, &result),
            Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::InterruptedWith(_) => {
                Some(self.unknown(result.clone()))
            }
            Outcome::Lost => {
                return Ok(match self.reap(locked, own, start_deadline, actor).await? {
                    ReapOutcome::Nothing => SettleOutcome::Nothing,
                    ReapOutcome::Repeatable => SettleOutcome::Again,
                    ReapOutcome::Interrupted => {
                        let result = rows::call(locked.call.clone(), None)?.unknown_outcome();
                        SettleOutcome::Ended(Box::new(self.settled(locked, outcome, result)?))
                    }
                });
            }
        };
        let late = self.known::<Interrupted>(outcome, &result);
        // The call is locked, so its row decides which of the two matches.
        let row = &locked.call;
        let is_held = row.exec_id == Some(execution.id.to_string())
            && row.child_run_id.is_none()
            && row.erased_at.is_none();
        for Settling { moved, event } in settling.into_iter().chain(late) {
            let moved = moved.only(own.clone());
            let is_certain = is_held && row.state == moved.from.word();
            let moved = if is_certain { moved.certain() } else { moved };
            if self.move_row(locked, moved, event, actor, MoveCause::Itself {}).await? {
                return Ok(SettleOutcome::Ended(Box::new(self.settled(locked, outcome, result)?)));
            }
        }
        Ok(SettleOutcome::Nothing)
    }

    /// Returns the state of a call that this transaction settles.
    fn settled(&self, locked: &LockedRow, outcome: &Outcome, result: String) -> Result<State, StoreError> {
        rows::settled(&locked.call, outcome, CallEnd { result, at: self.now })
    }

    /// Settles an interrupted call after its outcome was found out. Returns false if the call is no longer
    /// interrupted.
    pub async fn resolve(
        &self,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: &str,
        by: ResolvedBy<'_>,
    ) -> Result<bool, StoreError> {
        let Some(locked) = self.lock_row(call).await? else { return Ok(false) };
        let Some(Settling { moved, event }) = self.known::<Interrupted>(outcome, result) else {
            return Ok(false);
        };
        let moved = moved.only(tool_call::Column::ExecId.eq(execution.id.to_string()));
        let (actor, cause) = by.recorded();
        self.move_row(&locked, moved, event, actor, cause).await
    }

    /// Reaps an execution that went away, if the call matches the guard. An idempotent call becomes approved
    /// again, unless the call is no longer wanted. Any other call becomes interrupted.
    pub(crate) async fn reap(
        &self,
        locked: &LockedRow,
        guard: SimpleExpr,
        start_deadline: Duration,
        actor: &str,
    ) -> Result<ReapOutcome, StoreError> {
        let row = &locked.call;
        if row.idempotent && self.is_current(&locked.thread, row).await? {
            let until = self.now.plus(start_deadline);
            let again = unleased(Move::of::<Executing, Approved>())
                .set(tool_call::Column::StartDeadline, Expr::value(until.as_micros()))
                .set(tool_call::Column::Progress, Expr::value(None::<String>))
                .only(tool_call::Column::CancelRequestedAt.is_null())
                .only(same_execution(row))
                .only(guard.clone());
            let lost = MoveCause::LostAttempt { attempt: row.exec_attempt };
            if self.move_row(locked, again, EventType::ToolInterrupted, actor, lost).await? {
                return Ok(ReapOutcome::Repeatable);
            }
        }
        let moved = self.interrupt(locked, guard, actor).await?;
        Ok(if moved { ReapOutcome::Interrupted } else { ReapOutcome::Nothing })
    }

    /// Whether the call is still wanted: its thread is not deleted, its message not superseded, and its run
    /// not cancelled. The thread must be locked.
    pub(crate) async fn is_current(
        &self,
        thread: &LockedThread,
        row: &tool_call::Model,
    ) -> Result<bool, StoreError> {
        let stopped = run::Column::Status
            .eq(RunStatus::Cancelled.word())
            .or(run::Column::CancelRequestedAt.is_not_null());
        let stopped = run::Entity::find_by_id(row.run_id.clone()).filter(stopped).count(&self.tx).await?;
        let cut_off = message::Column::SupersededAt.is_not_null();
        let cut_off =
            message::Entity::find_by_id(row.message_id.clone()).filter(cut_off).count(&self.tx).await?;
        Ok(stopped + cut_off == 0 && !thread.is_deleted)
    }

    /// Interrupts an execution if the call matches the guard: its outcome is unknown.
    pub(crate) async fn interrupt(
        &self,
        locked: &LockedRow,
        guard: SimpleExpr,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let row = &locked.call;
        let result = rows::call(row.clone(), None)?.unknown_outcome();
        let Settling { moved, event } = self.unknown(result);
        let moved = moved.only(same_execution(row)).only(guard);
        self.move_row(locked, moved, event, actor, MoveCause::Itself {}).await
    }

    /// Builds the transition to a known outcome, or returns `None` for an unknown one. An erased call keeps
    /// its state.
    pub(crate) fn known<From: Becomes<Succeeded> + Becomes<Failed>>(
        &self,
        outcome: &Outcome,
        result: &str,
    ) -> Option<Settling> {
        let result = result.to_owned();
        let (moved, event) = match outcome {
            Outcome::Succeeded(output) => {
                let output = Expr::value(output.as_value().to_string());
                let moved = self.ended::<From, Succeeded>(result).set(tool_call::Column::Output, output);
                (moved, EventType::ToolSucceeded)
            }
            Outcome::Failed(_) => (self.ended::<From, Failed>(result), EventType::ToolFailed),
            Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::InterruptedWith(_) | Outcome::Lost => {
                return None;
            }
        };
        Some(Settling { moved: unleased(moved).only(tool_call::Column::ErasedAt.is_null()), event })
    }

    /// Builds the transition of an execution whose outcome is unknown.
    pub(crate) fn unknown(&self, result: String) -> Settling {
        let moved = unleased(self.ended::<Executing, Interrupted>(result));
        Settling { moved, event: EventType::ToolInterrupted }
    }

    /// Moves a call, with its event.
    pub(crate) async fn move_row(
        &self,
        locked: &LockedRow,
        moved: Move,
        event: EventType,
        actor: &str,
        cause: MoveCause,
    ) -> Result<bool, StoreError> {
        let LockedRow { call: row, thread, is_passed, .. } = locked;
        let ends = moved.to != StateKind::Approved && row.finished_at.is_none();
        let (id, run_id) = (rows::id("tool_calls", &row.tool_call_id)?, rows::id("tool_calls", &row.run_id)?);
        let data = EventData::Moved { cause, tool_name: row.name.clone(), state: moved.to };
        let of_call = OfCall { id, tool: &row.name, is_held: row.held };
        let subject = Subject { thread, run_id, call: Some(of_call) };
        let event = NewEvent { event_type: event, actor, subject: &subject, data };
        if !self.apply_with_event(id, moved, Some(row), &event).await? {
            return Ok(false);
        }
        if ends && row.by_worker && !row.held {
            // No client decided the call, so none knows that the run can resume.
            self.set_server_resumes(thread, run_id).await?;
        }
        if *is_passed {
            self.complete_if_passed(thread, run_id).await?;
        }
        Ok(true)
    }
}

impl<'a> ResolvedBy<'a> {
    /// Returns the actor of the event, and how the outcome is known.
    fn recorded(self) -> (&'a str, MoveCause) {
        match self {
            Self::Operator { actor, reason, surface } => {
                let (resolved_by, reason) = ("operator".to_owned(), reason.map(str::to_owned));
                (actor, MoveCause::Operator { surface, resolved_by, reason })
            }
            Self::Tool => (system::SWEEPER, MoveCause::Tool { surface: Surface::Sweeper }),
        }
    }
}

/// A transition that settles a call, and its event.
pub(crate) struct Settling {
    pub(crate) moved: Move,
    pub(crate) event: EventType,
}

/// Matches the call if the execution of this row still holds it.
fn same_execution(row: &tool_call::Model) -> SimpleExpr {
    tool_call::Column::ExecId.eq(row.exec_id.clone())
}

fn unleased(moved: Move) -> Move {
    moved
        .set(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
        .set(tool_call::Column::InputRound, Expr::value(None::<String>))
        .set(tool_call::Column::PolledBy, Expr::value(None::<String>))
        .set(tool_call::Column::PolledUntil, Expr::value(None::<i64>))
}

impl OpenClaim {
    /// Commits the claim, and with it everything else that its transaction wrote.
    pub async fn commit(self) -> ClaimOutcome {
        let Self { write, call } = self;
        match write.commit().await {
            Ok(()) => ClaimOutcome::Permitted(Box::new(Permit::committed(call))),
            Err(error) => ClaimOutcome::Unknown(call.execution, error),
        }
    }
}

/// Returns what a permit says about a call, for the time after its commit as executing.
fn committed(
    thread: &Thread,
    call: ToolCall,
    approved_by: Vec<String>,
    execution: Execution,
) -> CommittedCall {
    let (input, edit) = (call.effective_input().clone(), call.edit());
    let conversation = thread.conversation(call.run_id);
    CommittedCall {
        tool_call_id: call.id,
        tool_name: call.name,
        conversation,
        input,
        edit,
        execution,
        approved_by,
    }
}

/// Adds a claim to the transition that makes it, and returns the facts of its event.
pub(crate) fn with_claim(
    moved: Move,
    call: &ToolCall,
    execution: Execution,
    claimant: Claimant<'_>,
    until: Timestamp,
) -> (Move, EventData) {
    let (owner, permit_hash) = match claimant {
        Claimant::Process(owner) => (owner, None),
        Claimant::Worker { actor, permit_hash } => (actor, Some(permit_hash)),
    };
    let claimed = moved
        .set(tool_call::Column::ExecId, Expr::value(execution.id.to_string()))
        .set(tool_call::Column::ExecOwner, Expr::value(owner))
        .set(tool_call::Column::PermitHash, Expr::value(permit_hash))
        .set(tool_call::Column::ExecAttempt, Expr::value(execution.attempt))
        .set(tool_call::Column::StartedAt, Expr::value(execution.started_at.as_micros()))
        .set(tool_call::Column::LeaseUntil, Expr::value(until.as_micros()))
        .only(tool_call::Column::ByWorker.eq(permit_hash.is_some()));
    let worker = permit_hash.map(|_| owner.to_owned());
    (claimed, EventData::Attempt { tool_name: call.name.clone(), attempt: execution.attempt, worker })
}

/// Returns the actor that caused the start of an approved call.
fn owner_actor(call: &ToolCall) -> &str {
    call.decision.as_ref().map_or(system::POLICY, |decision| decision.by.as_str())
}
