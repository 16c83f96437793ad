//! Tool calls: every statement that moves one.

use super::entity::{message, step, thread, tool_call};
use super::events::Subject;
use super::threads::{of_tenant, threads_of, threads_where};
use super::{NewDecision, Read, Renewed, StoreError, Thread, Voice, Write, rows};
use crate::domain::Principal;
use crate::domain::call::{Execution, Outcome, State, ToolCall, input_hash, rejection, words};
use crate::domain::clock::Timestamp;
use crate::domain::decision::{Answer, Surface, Verdict};
use crate::domain::event::{EventType, system};
use crate::domain::id::{ExecId, MessageId, RunId, ToolCallId};
use crate::domain::permit::Permit;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, UpdateMany};
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

/// What became of the wish to cancel a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It did not run, and will not.
    Withdrawn,
    /// It runs; who runs it is asked to give it up.
    Asked,
    /// It had ended.
    Ended,
}

/// Which calls of a thread to cancel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Those that wait for a person.
    Pending,
    /// Those that nobody has begun, whether or not a person said yes.
    NotBegun,
    /// The same, of messages from this place on.
    NotBegunFrom(i64),
    /// The same, of this run.
    NotBegunOf(RunId),
}

/// What moves a call: its new state's columns, and where it has to stand.
pub(super) struct Move {
    update: UpdateMany<tool_call::Entity>,
}

impl Move {
    /// To this state; the guard has to be added.
    pub(super) fn to(state: &str) -> Self {
        let update = tool_call::Entity::update_many().col_expr(tool_call::Column::State, Expr::value(state));
        Self { update }
    }

    pub(super) fn set(self, column: tool_call::Column, value: impl Into<SimpleExpr>) -> Self {
        Self { update: self.update.col_expr(column, value.into()) }
    }

    pub(super) fn only(self, guard: SimpleExpr) -> Self {
        Self { update: self.update.filter(guard) }
    }
}

impl Read {
    /// A call of one of the principal's threads.
    pub(crate) async fn call(
        &self,
        owner: &Principal,
        id: ToolCallId,
    ) -> Result<Option<(ToolCall, Thread)>, StoreError> {
        let found = tool_call::Entity::find_by_id(id.to_string())
            .filter(tool_call::Column::ThreadId.in_subquery(threads_of(owner)))
            .one(&self.tx)
            .await?;
        let Some(row) = found else { return Ok(None) };
        let Some(call) = self.with_decisions(vec![row]).await?.pop() else { return Ok(None) };
        let thread = self.thread(owner, call.thread_id).await?;
        Ok(thread.map(|thread| (call, thread)))
    }

    /// A call that this principal may decide for another: of their tenant, of one of these tools, whose approver they
    /// are, and held. Of its thread nothing else is theirs to read.
    pub(crate) async fn call_to_approve(
        &self,
        approver: &Principal,
        tools: &[String],
        id: ToolCallId,
    ) -> Result<Option<(ToolCall, Thread)>, StoreError> {
        let found = tool_call::Entity::find_by_id(id.to_string())
            .filter(tool_call::Column::Name.is_in(tools))
            .filter(tool_call::Column::Held.eq(true))
            .filter(tool_call::Column::ThreadId.in_subquery(threads_where(of_tenant(approver))))
            .one(&self.tx)
            .await?;
        let Some(row) = found else { return Ok(None) };
        let thread = thread::Entity::find_by_id(row.thread_id.clone()).filter(of_tenant(approver));
        let Some(thread) = thread.one(&self.tx).await? else { return Ok(None) };
        let thread = Thread::of(thread)?;
        Ok(self.with_decisions(vec![row]).await?.pop().map(|call| (call, thread)))
    }

    pub(super) async fn with_decisions(
        &self,
        found: Vec<tool_call::Model>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let ids = found.iter().map(|row| row.tool_call_id.clone()).collect();
        let mut decisions = self.decisions(ids).await?;
        let with_decision = |row: tool_call::Model| {
            let decision = decisions.remove(&row.tool_call_id);
            rows::call(row, decision)
        };
        found.into_iter().map(with_decision).collect()
    }

    /// Whether any call of a run is not at its end.
    pub(super) async fn has_open_calls(&self, run: RunId) -> Result<bool, StoreError> {
        let open = tool_call::Entity::find()
            .filter(tool_call::Column::RunId.eq(run.to_string()))
            .filter(tool_call::Column::FinishedAt.is_null())
            .count(&self.tx)
            .await?;
        Ok(open > 0)
    }

    /// The calls of a message's last whole step that a person is, or was, asked about.
    pub(crate) async fn held_calls(&self, message: MessageId) -> Result<Vec<ToolCall>, StoreError> {
        let last = step::Entity::find()
            .filter(step::Column::MessageId.eq(message.to_string()))
            .filter(step::Column::Status.eq("complete"))
            .order_by_desc(step::Column::N)
            .one(&self.tx)
            .await?;
        let Some(last) = last else { return Ok(Vec::new()) };
        let calls = self.calls_of_step(message, last.n).await?;
        Ok(calls.into_iter().filter(|call| call.held).collect())
    }

    /// The calls of a thread that wait for a person.
    pub(crate) async fn pending_in(&self, thread: &Thread) -> Result<HashSet<ToolCallId>, StoreError> {
        let ids: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(tool_call::Column::State.eq("pending"))
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }

    /// How many calls wait for a person, of everybody, and when that of them began which expires first.
    pub(crate) async fn all_pending(&self) -> Result<(u64, Option<Timestamp>), StoreError> {
        // Both are read from the index of what is pending.
        let pending = || tool_call::Entity::find().filter(tool_call::Column::State.eq("pending"));
        let count = pending().count(&self.tx).await?;
        let first = pending().select_only().column(tool_call::Column::CreatedAt);
        let first = first.order_by_asc(tool_call::Column::ExpiresAt).into_tuple().one(&self.tx).await?;
        Ok((count, first.map(Timestamp::from_micros)))
    }

    pub(super) async fn is_deleted(&self, thread: &Thread) -> Result<bool, StoreError> {
        let standing = thread::Entity::find_by_id(thread.id.to_string())
            .filter(thread::Column::DeletedAt.is_null())
            .count(&self.tx)
            .await?;
        Ok(standing == 0)
    }
}

impl Write {
    /// Decides a pending call whose time is not over. False if it is not pending any more.
    pub(crate) async fn decide(
        &self,
        thread: &Thread,
        call: &ToolCall,
        answer: &Answer,
        by: &Voice,
        start_deadline: Duration,
    ) -> Result<bool, StoreError> {
        let now = self.now.as_micros();
        let (moved, event) = match answer {
            Answer::Approve { inputs } => {
                let inputs = inputs.as_ref().map(|inputs| json!(inputs).to_string());
                let approved = Move::to("approved")
                    .set(tool_call::Column::Validated, Expr::value(true))
                    .set(tool_call::Column::ValidatedInputs, Expr::value(inputs))
                    .set(
                        tool_call::Column::StartDeadline,
                        Expr::value(self.now.plus(start_deadline).as_micros()),
                    );
                (approved, EventType::ToolApproved)
            }
            Answer::Reject { reason } => {
                let rejected = self
                    .ended("rejected", rejection(reason.as_deref()))
                    .set(tool_call::Column::Validated, Expr::value(false));
                (rejected, EventType::ToolRejected)
            }
        };
        let moved = moved.only(tool_call::Column::ExpiresAt.gt(now));
        self.decided(thread, call, moved, &NewDecision::of(answer, by), event).await
    }

    /// Closes a pending call whose time is over. False if it is not pending any more.
    pub(crate) async fn expire(&self, thread: &Thread, call: &ToolCall) -> Result<bool, StoreError> {
        let hash = input_hash(&call.name, &call.input, &call.schema_hash);
        let decision = NewDecision::new(Verdict::Expire, system::EXPIRY, Surface::Sweeper, hash);
        let expired = self
            .ended("expired", words::EXPIRED.to_owned())
            .set(tool_call::Column::Validated, Expr::value(false))
            .only(tool_call::Column::ExpiresAt.lte(self.now.as_micros()));
        self.decided(thread, call, expired, &decision, EventType::ToolExpired).await
    }

    /// Cancels calls of a thread.
    pub(crate) async fn cancel_calls(
        &self,
        thread: &Thread,
        which: Which,
        actor: &str,
    ) -> Result<(), StoreError> {
        self.lock_thread(thread).await?;
        let pending = tool_call::Column::State.eq("pending");
        let approved = tool_call::Column::State.eq("approved").and(tool_call::Column::ExecAttempt.eq(0));
        let standing = match which {
            Which::Pending => pending,
            Which::NotBegun => pending.or(approved),
            Which::NotBegunFrom(ordinal) => {
                let cut = Query::select()
                    .column(message::Column::MessageId)
                    .from(message::Entity)
                    .and_where(message::Column::ThreadId.eq(thread.id.to_string()))
                    .and_where(message::Column::Ordinal.gte(ordinal))
                    .to_owned();
                pending.or(approved).and(tool_call::Column::MessageId.in_subquery(cut))
            }
            Which::NotBegunOf(run) => pending.or(approved).and(tool_call::Column::RunId.eq(run.to_string())),
        };
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(standing)
            .all(&self.tx)
            .await?;
        for call in self.with_decisions(found).await? {
            self.cancel_call(thread, &call, actor).await?;
        }
        Ok(())
    }

    /// Cancels a call that nobody has begun, or asks who runs it to give it up. The thread has to be locked since
    /// before the call was read.
    pub(crate) async fn cancel_call(
        &self,
        thread: &Thread,
        call: &ToolCall,
        actor: &str,
    ) -> Result<Cancelled, StoreError> {
        let cancelled = || self.ended("cancelled", words::CANCELLED.to_owned());
        let (moved, became) = match &call.state {
            State::Pending => {
                let hash = input_hash(&call.name, &call.input, &call.schema_hash);
                let decision = NewDecision::new(Verdict::Cancel, actor, Surface::Rest, hash);
                let cancelled = cancelled().set(tool_call::Column::Validated, Expr::value(false));
                let event = EventType::ToolCancelled;
                (self.decided(thread, call, cancelled, &decision, event).await?, Cancelled::Withdrawn)
            }
            State::Approved(_) => {
                let cancelled = cancelled()
                    .only(tool_call::Column::State.eq("approved"))
                    .only(tool_call::Column::ExecAttempt.eq(0));
                (
                    self.closed(thread, call, cancelled, EventType::ToolCancelled, actor).await?,
                    Cancelled::Withdrawn,
                )
            }
            State::Executing(..) => {
                let asked = Move { update: tool_call::Entity::update_many() }
                    .set(tool_call::Column::CancelRequestedAt, Expr::value(self.now.as_micros()))
                    .only(tool_call::Column::State.eq("executing"));
                (self.apply(thread, call.id, asked).await?, Cancelled::Asked)
            }
            _ => (false, Cancelled::Ended),
        };
        Ok(if moved { became } else { Cancelled::Ended })
    }

    /// Ends a call without an outcome of its own, with its event.
    pub(super) async fn closed(
        &self,
        thread: &Thread,
        call: &ToolCall,
        moved: Move,
        event: EventType,
        actor: &str,
    ) -> Result<bool, StoreError> {
        self.lock_thread(thread).await?;
        if !self.apply(thread, call.id, moved).await? {
            return Ok(false);
        }
        let subject = Subject { thread, run_id: call.run_id, tool_call_id: Some(call.id) };
        self.event(event, actor, &subject, json!({ "tool_name": call.name })).await?;
        self.complete_if_passed(thread, call.run_id).await?;
        Ok(true)
    }

    /// Ends a call, with the words for the model.
    pub(super) fn ended(&self, state: &str, result: String) -> Move {
        Move::to(state)
            .set(tool_call::Column::Result, Expr::value(result))
            .set(tool_call::Column::FinishedAt, Expr::value(self.now.as_micros()))
    }

    /// Moves a pending call, with its decision and its event.
    async fn decided(
        &self,
        thread: &Thread,
        call: &ToolCall,
        moved: Move,
        decision: &NewDecision,
        event: EventType,
    ) -> Result<bool, StoreError> {
        let moved = moved
            .set(tool_call::Column::DecidedBy, Expr::value(decision.by.clone()))
            .set(tool_call::Column::DecidedAt, Expr::value(self.now.as_micros()))
            .only(tool_call::Column::State.eq("pending"));
        self.lock_thread(thread).await?;
        if !self.apply(thread, call.id, moved).await? {
            return Ok(false);
        }
        self.record_decision(call.id, decision).await?;
        let subject = Subject { thread, run_id: call.run_id, tool_call_id: Some(call.id) };
        let data = json!({
            "tool_name": call.name,
            "input_hash": decision.input_hash,
            "decision": decision.verdict.as_str(),
            "edited": decision.edited,
            "surface": decision.surface.as_str(),
        });
        self.event(event, &decision.by, &subject, data).await?;
        self.complete_if_passed(thread, call.run_id).await?;
        Ok(true)
    }

    /// A fresh execution, begun now.
    pub(super) fn execution(&self) -> Execution {
        Execution { id: ExecId::new(self.clock.uuid()), started_at: self.now }
    }

    /// One guarded move. False if no row stood where it had to.
    async fn apply(&self, thread: &Thread, id: ToolCallId, moved: Move) -> Result<bool, StoreError> {
        let done = moved
            .update
            .filter(tool_call::Column::ToolCallId.eq(id.to_string()))
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .exec(&self.tx)
            .await?;
        Ok(done.rows_affected == 1)
    }

    /// Takes an approved call to run it, commits, and gives the permit. `None` if it is not approved any
    /// more, or its time to start is over: then nobody may run it on this decision.
    pub(crate) async fn claim(
        self,
        thread: &Thread,
        call: &ToolCall,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<Permit>, StoreError> {
        let execution = self.execution();
        let now = self.now.as_micros();
        let attempt = ExprTrait::add(Expr::col(tool_call::Column::ExecAttempt), 1);
        let fresh = tool_call::Column::ExecAttempt.eq(0);
        let fresh_or_harmless = ExprTrait::or(fresh, tool_call::Column::Idempotent.eq(true));
        let claimed = Move::to("executing")
            .set(tool_call::Column::ExecId, Expr::value(execution.id.to_string()))
            .set(tool_call::Column::ExecOwner, Expr::value(owner))
            .set(tool_call::Column::ExecAttempt, attempt)
            .set(tool_call::Column::StartedAt, Expr::value(now))
            .set(tool_call::Column::LeaseUntil, Expr::value(self.now.plus(lease).as_micros()))
            .only(tool_call::Column::State.eq("approved"))
            .only(fresh_or_harmless)
            .only(tool_call::Column::StartDeadline.gt(now));
        self.lock_thread(thread).await?;
        if !self.apply(thread, call.id, claimed).await? {
            return Ok(None);
        }
        let subject = Subject { thread, run_id: call.run_id, tool_call_id: Some(call.id) };
        let data = json!({ "tool_name": call.name });
        self.event(EventType::ToolStarted, owner_actor(call), &subject, data).await?;
        let found = tool_call::Entity::find_by_id(call.id.to_string()).all(&self.tx).await?;
        let Some(stored) = self.with_decisions(found).await?.pop() else { return Ok(None) };
        self.commit().await?;
        let edited = stored.edited_input().cloned();
        let requester = thread.requester();
        Ok(Some(Permit::committed(stored.id, stored.name, requester, stored.input, edited, execution)))
    }

    /// Says that an execution is alive.
    pub(crate) async fn renew_call(
        &self,
        call: ToolCallId,
        execution: Execution,
        lease: Duration,
    ) -> Result<Renewed, StoreError> {
        #[cfg(feature = "torture")]
        self.name.set("call.renewed", Some(&call));
        let held = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::LeaseUntil, Expr::value(self.now.plus(lease).as_micros()))
            .filter(tool_call::Column::ToolCallId.eq(call.to_string()))
            .filter(tool_call::Column::ExecId.eq(execution.id.to_string()))
            .filter(tool_call::Column::State.eq("executing"))
            .exec(&self.tx)
            .await?;
        let asked = tool_call::Entity::find_by_id(call.to_string())
            .filter(tool_call::Column::CancelRequestedAt.is_not_null())
            .count(&self.tx)
            .await?;
        Ok(Renewed::of(held.rows_affected == 1, asked > 0))
    }

    /// Writes how an execution went, by who holds it. It may come late, after the execution was taken for dead.
    /// False if the call is not this execution's any more.
    pub(crate) async fn settle(
        &self,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: String,
    ) -> Result<bool, StoreError> {
        let from: &[&str] = match outcome {
            Outcome::Succeeded(_) | Outcome::Failed(_) => &["executing", "interrupted"],
            Outcome::Interrupted => &["executing"],
        };
        let standing = tool_call::Column::State.is_in(from.iter().copied());
        self.settle_where(standing, None, call, execution, outcome, result).await
    }

    /// The same where the call stands so, told as done by this actor, or else by whoever decided the call.
    pub(super) async fn settle_where(
        &self,
        standing: SimpleExpr,
        actor: Option<&str>,
        call: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: String,
    ) -> Result<bool, StoreError> {
        let (state, event, output) = match outcome {
            Outcome::Succeeded(output) => ("succeeded", EventType::ToolSucceeded, Some(output.to_string())),
            Outcome::Failed(_) => ("failed", EventType::ToolFailed, None),
            Outcome::Interrupted => ("interrupted", EventType::ToolInterrupted, None),
        };
        let found = tool_call::Entity::find_by_id(call.to_string()).one(&self.tx).await?;
        let Some(row) = found else { return Ok(false) };
        let thread = self.any_thread(rows::id("tool_calls", &row.thread_id)?).await?;
        let settled = self
            .ended(state, result)
            .set(tool_call::Column::Output, Expr::value(output))
            .set(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
            .only(tool_call::Column::ExecId.eq(execution.id.to_string()))
            .only(standing);
        self.lock_thread(&thread).await?;
        if !self.apply(&thread, call, settled).await? {
            return Ok(false);
        }
        let run_id = rows::id("tool_calls", &row.run_id)?;
        let subject = Subject { thread: &thread, run_id, tool_call_id: Some(call) };
        let data = json!({ "tool_name": row.name, "state": state });
        let actor = actor.or(row.decided_by.as_deref()).unwrap_or(system::POLICY);
        self.event(event, actor, &subject, data).await?;
        self.complete_if_passed(&thread, run_id).await?;
        Ok(true)
    }
}

/// Who is behind the start of an approved call.
fn owner_actor(call: &ToolCall) -> &str {
    call.decision.as_ref().map_or(system::POLICY, |decision| decision.by.as_str())
}
