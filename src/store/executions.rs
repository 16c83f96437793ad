//! Executions of calls: claim, renew, settle, reap.

use super::entity::{message, run, tool_call};
use super::events::{OfCall, Subject};
use super::transitions::{Approved, Becomes, Executing, Failed, Interrupted, Move, Succeeded};
use super::words::Word;
use super::{Read, Renewed, StoreError, Thread, Write, rows};
use crate::domain::call::{Execution, Outcome, StateKind, ToolCall};
use crate::domain::decision::Surface;
use crate::domain::event::{EventType, system};
use crate::domain::id::{ExecId, ToolCallId};
use crate::domain::message::MessageStatus;
use crate::domain::permit::Permit;
use crate::domain::run::RunStatus;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use std::time::Duration;

/// The result of a claim of an approved call.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// This execution holds the call.
    Taken(Box<Permit>),
    /// The call is no longer approved, or its start deadline is reached. The claim gives no permit.
    Nothing,
    /// The database did not confirm the commit. The process may run the call only after it finds this
    /// execution in the row.
    Unknown(Execution, StoreError),
}

/// Whether a call that was claimed before may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// The tool declares that a second run is harmless.
    Harmless,
    /// A second run is not harmless.
    Never,
}

/// The way in which the outcome of an interrupted call was found out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResolvedBy<'a> {
    /// An operator established the outcome.
    Operator {
        /// The operator.
        actor: &'a str,
        /// The operator's reason.
        reason: Option<&'a str>,
    },
    /// The tool reported the outcome when the server asked.
    Tool,
}

/// The result of a reap of a call whose execution went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// Another execution holds the call, or the call had ended.
    Nothing,
    /// The call may be claimed again.
    Repeatable,
    /// The outcome is unknown, and the call never runs again.
    Interrupted,
}

impl Read {
    /// Returns a call by its id, whatever its owner, for work of the server itself.
    pub(crate) async fn any_call(&self, id: ToolCallId) -> Result<Option<ToolCall>, StoreError> {
        let found = tool_call::Entity::find_by_id(id.to_string()).all(&self.tx).await?;
        Ok(self.with_decisions(found).await?.pop())
    }
}

impl Write {
    /// Returns the id of a new execution.
    pub(super) fn fresh_execution(&self) -> ExecId {
        ExecId::new(self.clock.uuid())
    }

    /// Claims an approved call for this process, commits, and returns the permit. The row stores whether the
    /// tool was idempotent when the model made the call. `again` is whether the tool is idempotent now.
    pub(crate) async fn claim(
        self,
        thread: &Thread,
        call: &ToolCall,
        owner: &str,
        lease: Duration,
        again: Again,
    ) -> Result<Claimed, StoreError> {
        let now = self.now.as_micros();
        let attempt = ExprTrait::add(Expr::col(tool_call::Column::ExecAttempt), 1);
        let mut claimed = Move::of::<Approved, Executing>()
            .set(tool_call::Column::ExecId, Expr::value(self.fresh_execution().to_string()))
            .set(tool_call::Column::ExecOwner, Expr::value(owner))
            .set(tool_call::Column::ExecAttempt, attempt)
            .set(tool_call::Column::StartedAt, Expr::value(now))
            .set(tool_call::Column::LeaseUntil, Expr::value(self.now.plus(lease).as_micros()))
            .only(tool_call::Column::StartDeadline.gt(now));
        if again == Again::Never {
            claimed = claimed.only(tool_call::Column::ExecAttempt.eq(0));
        }
        self.lock_thread(thread).await?;
        if !self.apply(thread, call.id, claimed).await? {
            return Ok(Claimed::Nothing);
        }
        let stored = self.any_call(call.id).await?;
        let Some((stored, execution)) = with_execution(stored) else { return Ok(Claimed::Nothing) };
        let subject = Subject::call(thread, call);
        let data = json!({ "tool_name": call.name, "attempt": execution.attempt });
        self.event(EventType::ToolStarted, owner_actor(call), &subject, data);
        Ok(match self.commit().await {
            Ok(()) => Claimed::Taken(Box::new(permit(thread, stored, execution))),
            Err(error) => Claimed::Unknown(execution, error),
        })
    }

    /// Finds a claim whose commit the database did not confirm. Returns the permit if this execution holds
    /// the call and no cancel is requested. If the commit arrives later, it fails, or leaves a call that no
    /// process runs.
    pub(crate) async fn find_claim(
        self,
        thread: &Thread,
        call: ToolCallId,
        execution: Execution,
        lease: Duration,
    ) -> Result<Option<Permit>, StoreError> {
        // Waits for the transaction in doubt, as long as the database keeps it open.
        self.lock_thread(thread).await?;
        let renewed = self.renew_call(call, execution, lease).await?;
        let stored = self.any_call(call).await?;
        let found = match (renewed, with_execution(stored)) {
            (Renewed::Lost, _) | (_, None) => return Ok(None),
            (Renewed::Held, Some(found)) => Some(found),
            (Renewed::CancelRequested, Some((stored, execution))) => {
                let unknown = &Outcome::Interrupted;
                self.settle(call, execution, unknown, stored.unknown_outcome(), Duration::ZERO).await?;
                None
            }
        };
        self.commit().await?;
        Ok(found.map(|(stored, execution)| permit(thread, stored, execution)))
    }

    /// Renews the lease of an execution.
    pub(crate) async fn renew_call(
        &self,
        call: ToolCallId,
        execution: Execution,
        lease: Duration,
    ) -> Result<Renewed, StoreError> {
        self.name_commit("call.renewed", Some(call));
        let renewal = Query::update()
            .table(tool_call::Entity)
            .value(tool_call::Column::LeaseUntil, self.now.plus(lease).as_micros())
            .and_where(tool_call::Column::ToolCallId.eq(call.to_string()))
            .and_where(tool_call::Column::ExecId.eq(execution.id.to_string()))
            .and_where(tool_call::Column::State.eq(StateKind::Executing))
            .and_where(tool_call::Column::ChildRunId.is_null())
            .returning_col(tool_call::Column::CancelRequestedAt)
            .to_owned();
        self.renewed(&renewal).await
    }

    /// Settles an execution with its outcome. The outcome may come late, after the call was interrupted.
    /// Returns false if another execution holds the call, or the call was settled without this one.
    pub(crate) async fn settle(
        &self,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: String,
        start_deadline: Duration,
    ) -> Result<bool, StoreError> {
        let Some(row) = self.row(call).await? else { return Ok(false) };
        let actor = row.decided_by.as_deref().unwrap_or(system::POLICY);
        let own = tool_call::Column::ExecId.eq(execution.id.to_string());
        // The end of a child run ends the call that the child executes.
        let own = own.and(tool_call::Column::ChildRunId.is_null());
        let settling = match outcome {
            Outcome::Succeeded(_) | Outcome::Failed(_) => self.known::<Executing>(outcome, &result),
            Outcome::FailedAgain(_) | Outcome::Interrupted => Some(self.unknown(result.clone())),
            Outcome::Lost => return Ok(self.reap(&row, own, start_deadline, actor).await? != Reaped::Nothing),
        };
        let late = self.known::<Interrupted>(outcome, &result);
        for Settling { moved, event } in settling.into_iter().chain(late) {
            let moved = moved.only(own.clone());
            if self.move_row(&row, moved, event, actor, json!({})).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Settles an interrupted call after its outcome was found out. Returns false if the call is no longer
    /// interrupted.
    pub(crate) async fn resolve(
        &self,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: &str,
        by: ResolvedBy<'_>,
    ) -> Result<bool, StoreError> {
        let Some(row) = self.row(call).await? else { return Ok(false) };
        let Some(Settling { moved, event }) = self.known::<Interrupted>(outcome, result) else {
            return Ok(false);
        };
        let moved = moved.only(tool_call::Column::ExecId.eq(execution.id.to_string()));
        let (actor, facts) = by.recorded();
        self.move_row(&row, moved, event, actor, facts).await
    }

    /// Reaps an execution that went away, if the call matches the guard. An idempotent call becomes approved
    /// again, unless the call is no longer wanted. Any other call becomes interrupted.
    pub(super) async fn reap(
        &self,
        row: &tool_call::Model,
        guard: SimpleExpr,
        start_deadline: Duration,
        actor: &str,
    ) -> Result<Reaped, StoreError> {
        let thread = self.any_thread(rows::id("tool_calls", &row.thread_id)?).await?;
        self.lock_thread(&thread).await?;
        if row.idempotent && self.is_wanted(&thread, row).await? {
            let until = self.now.plus(start_deadline);
            let again = unleased(Move::of::<Executing, Approved>())
                .set(tool_call::Column::StartDeadline, Expr::value(until.as_micros()))
                .only(tool_call::Column::CancelRequestedAt.is_null())
                .only(same_execution(row))
                .only(guard.clone());
            let attempt = json!({ "attempt": row.exec_attempt });
            if self.move_row(row, again, EventType::ToolInterrupted, actor, attempt).await? {
                return Ok(Reaped::Repeatable);
            }
        }
        let moved = self.interrupt(row, guard, actor).await?;
        Ok(if moved { Reaped::Interrupted } else { Reaped::Nothing })
    }

    /// Whether the call is still wanted: its thread is not deleted, its message not superseded, and its run
    /// not cancelled. The thread must be locked.
    pub(super) async fn is_wanted(
        &self,
        thread: &Thread,
        row: &tool_call::Model,
    ) -> Result<bool, StoreError> {
        let stopped =
            run::Column::Status.eq(RunStatus::Cancelled).or(run::Column::CancelRequestedAt.is_not_null());
        let stopped = run::Entity::find_by_id(row.run_id.clone()).filter(stopped).count(&self.tx).await?;
        let cut_off = message::Column::Status.eq(MessageStatus::Superseded);
        let cut_off =
            message::Entity::find_by_id(row.message_id.clone()).filter(cut_off).count(&self.tx).await?;
        Ok(stopped + cut_off == 0 && !self.is_deleted(thread).await?)
    }

    /// Interrupts an execution if the call matches the guard: its outcome is unknown.
    pub(super) async fn interrupt(
        &self,
        row: &tool_call::Model,
        guard: SimpleExpr,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let result = rows::call(row.clone(), None)?.unknown_outcome();
        let Settling { moved, event } = self.unknown(result);
        let moved = moved.only(same_execution(row)).only(guard);
        self.move_row(row, moved, event, actor, json!({})).await
    }

    pub(super) async fn row(&self, id: ToolCallId) -> Result<Option<tool_call::Model>, StoreError> {
        Ok(tool_call::Entity::find_by_id(id.to_string()).one(&self.tx).await?)
    }

    /// Builds the transition to a known outcome, or returns `None` for an unknown one. An erased call keeps
    /// its state.
    pub(super) fn known<From: Becomes<Succeeded> + Becomes<Failed>>(
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
            Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::Lost => return None,
        };
        Some(Settling { moved: unleased(moved).only(tool_call::Column::ErasedAt.is_null()), event })
    }

    /// Builds the transition of an execution whose outcome is unknown.
    pub(super) fn unknown(&self, result: String) -> Settling {
        let moved = unleased(self.ended::<Executing, Interrupted>(result));
        Settling { moved, event: EventType::ToolInterrupted }
    }

    /// Moves a call, with its event: the actor, and these facts besides the state.
    pub(super) async fn move_row(
        &self,
        row: &tool_call::Model,
        moved: Move,
        event: EventType,
        actor: &str,
        mut facts: Value,
    ) -> Result<bool, StoreError> {
        let thread = self.any_thread(rows::id("tool_calls", &row.thread_id)?).await?;
        let (id, run_id) = (rows::id("tool_calls", &row.tool_call_id)?, rows::id("tool_calls", &row.run_id)?);
        if let Some(facts) = facts.as_object_mut() {
            facts.insert("tool_name".to_owned(), json!(row.name));
            facts.insert("state".to_owned(), json!(moved.to.word()));
        }
        self.lock_thread(&thread).await?;
        if !self.apply(&thread, id, moved).await? {
            return Ok(false);
        }
        let held_tool = row.held.then_some(row.name.as_str());
        let subject = Subject { thread: &thread, run_id, call: Some(OfCall { id, held_tool }) };
        self.event(event, actor, &subject, facts);
        self.complete_if_passed(&thread, run_id).await?;
        Ok(true)
    }
}

impl<'a> ResolvedBy<'a> {
    /// Returns the actor and the facts of the event.
    fn recorded(self) -> (&'a str, Value) {
        match self {
            Self::Operator { actor, reason } => {
                let mut facts = json!({ "surface": Surface::Terminal.word(), "resolved_by": "operator" });
                if let (Some(reason), Some(facts)) = (reason, facts.as_object_mut()) {
                    facts.insert("reason".to_owned(), json!(reason));
                }
                (actor, facts)
            }
            Self::Tool => (system::SWEEPER, json!({ "surface": Surface::Sweeper.word() })),
        }
    }
}

/// A transition that settles a call, and its event.
pub(super) struct Settling {
    pub(super) moved: Move,
    pub(super) event: EventType,
}

/// Matches the call if the execution of this row still holds it.
fn same_execution(row: &tool_call::Model) -> SimpleExpr {
    tool_call::Column::ExecId.eq(row.exec_id.clone())
}

fn unleased(moved: Move) -> Move {
    moved.set(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
}

/// Returns `None` also for a call with unreadable inputs, because such a call has no permit.
fn with_execution(stored: Option<ToolCall>) -> Option<(ToolCall, Execution)> {
    let stored = stored.filter(|call| !call.unreadable)?;
    let execution = stored.execution()?;
    Some((stored, execution))
}

/// Builds the permit of a call that is committed as executing.
fn permit(thread: &Thread, stored: ToolCall, execution: Execution) -> Permit {
    let edited = stored.edited_input().cloned();
    Permit::committed(stored.id, stored.name, thread.requester(), stored.input, edited, execution)
}

/// Returns the actor that caused the start of an approved call.
fn owner_actor(call: &ToolCall) -> &str {
    call.decision.as_ref().map_or(system::POLICY, |decision| decision.by.as_str())
}
