//! Tool calls: read, decide, cancel.

use crate::call::transitions::{
    Approved, Becomes, CallState, Cancelled, Expired, Interrupted, Move, Pending, Rejected,
};
use crate::entity::{decision, message, run, step, thread, tool_call};
use crate::event::new_event::{NewEvent, Subject};
use crate::sweep::sweep_work::{due_at, in_state};
use crate::thread::locked_thread::named;
use crate::thread::threads::threads_of;
use crate::{LockedThread, NewDecision, Read, StoreError, Thread, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{State, StateKind, ToolCall, withdrawal};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::cut_outcomes::cut_mark;
use holdpoint_core::decision::{Decision, Surface, Verdict};
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::{EventData, MoveCause};
use holdpoint_core::id::{MessageId, RunId, ToolCallId};
use holdpoint_core::message::StepStatus;
use holdpoint_core::policy::Source;
use holdpoint_core::text::cut_with;
use holdpoint_core::text::model_texts;
use sea_orm::sea_query::{Expr, ExprTrait, Func, Query, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, EntityName, EntityTrait, IdenStatic, Iterable, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait, UpdateMany,
};
use serde_json::json;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The call is cancelled: no process runs it or will run it.
    Withdrawn,
    /// The call is executing, and its process is asked to stop it.
    Requested,
    /// The call had ended.
    Ended,
}

/// The calls of a thread to cancel.
#[derive(Debug, Clone, Copy)]
pub enum CallsToCancel {
    Pending,
    /// All calls that have not ended.
    Open,
    /// All calls of this run that have not ended.
    OpenOf(RunId),
    ExecutingOf(RunId),
    /// The pending and approved calls of messages from this ordinal on.
    UnclaimedFrom(i64),
}

impl Read {
    /// Returns a call of one of the principal's threads.
    pub async fn call(
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

    /// Adds the decisions to calls. The calls are few: a limit bounds the length of every list.
    pub(crate) async fn with_decisions(
        &self,
        found: Vec<tool_call::Model>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        self.each_with_decision(found).await?.into_iter().map(|(_, call)| call).collect()
    }

    /// The same for a list. Leaves out calls that cannot be read.
    pub(crate) async fn listed_with_decisions(
        &self,
        found: Vec<tool_call::Model>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        Ok(readable(self.each_with_decision(found).await?))
    }

    async fn each_with_decision(&self, found: Vec<tool_call::Model>) -> Result<Vec<ReadCall>, StoreError> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let ids = found.iter().map(|row| row.tool_call_id.as_str());
        let decisions = self.decisions(decision::Column::ToolCallId.is_in(ids)).await?;
        Ok(decided_calls(found, decisions))
    }

    /// Returns all calls that match the condition, without a limit, in the order of their ordinals in their
    /// steps. Leaves out calls that cannot be read.
    pub(crate) async fn calls_where(&self, which: Condition) -> Result<Vec<ToolCall>, StoreError> {
        let found = tool_call::Entity::find().filter(which.clone()).order_by_asc(tool_call::Column::Ordinal);
        self.with_decisions_of(found.all(&self.tx).await?, which).await
    }

    /// Returns the same calls, with at most this number of characters of each output and result. The database
    /// cuts them, so that the server never has the whole.
    pub(crate) async fn calls_where_cut(
        &self,
        which: Condition,
        characters: usize,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let one_more = i32::try_from(characters).unwrap_or(i32::MAX).saturating_add(1);
        let mut query = tool_call::Entity::find().select_only();
        for column in tool_call::Column::iter() {
            query = match column {
                tool_call::Column::Output | tool_call::Column::Result => {
                    let whole = Expr::col((tool_call::Entity, column));
                    let cut = Func::cust("substr").arg(whole).arg(1).arg(one_more);
                    query.column_as(Expr::from(cut), column.as_str())
                }
                column => query.column(column),
            };
        }
        let query = query.filter(which.clone()).order_by_asc(tool_call::Column::Ordinal);
        let mut found = query.into_model::<tool_call::Model>().all(&self.tx).await?;
        for row in &mut found {
            let mark = cut_mark(&row.tool_call_id);
            let is_cut = |text: &mut String| text.chars().nth(characters).is_some();
            if let Some(output) = row.output.take_if(is_cut) {
                row.output = Some(json!(cut_with(output, characters, &mark)).to_string());
            }
            if let Some(result) = row.result.take_if(is_cut) {
                row.result = Some(cut_with(result, characters, &mark));
            }
        }
        self.with_decisions_of(found, which).await
    }

    /// Adds the final decisions to these calls, which are those that match the condition.
    async fn with_decisions_of(
        &self,
        found: Vec<tool_call::Model>,
        which: Condition,
    ) -> Result<Vec<ToolCall>, StoreError> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let ids = Query::select()
            .column(tool_call::Column::ToolCallId)
            .from(tool_call::Entity.table_ref())
            .cond_where(which)
            .to_owned();
        let decisions = self.decisions(decision::Column::ToolCallId.in_subquery(ids)).await?;
        Ok(readable(decided_calls(found, decisions)))
    }

    /// Whether any call of a run has not ended.
    pub(crate) async fn has_open_calls(&self, run: RunId) -> Result<bool, StoreError> {
        let open = tool_call::Entity::find()
            .filter(of_run(run))
            .filter(tool_call::Column::FinishedAt.is_null())
            .count(&self.tx)
            .await?;
        Ok(open > 0)
    }

    /// Returns the held calls of the last complete step of a message, decided ones included.
    pub async fn held_calls(&self, message: MessageId) -> Result<Vec<ToolCall>, StoreError> {
        let calls = self.pausing_calls(message).await?;
        Ok(calls.into_iter().filter(|call| call.held).collect())
    }

    /// Returns these calls, and the calls that child runs or workers execute or executed.
    pub async fn pausing_calls(&self, message: MessageId) -> Result<Vec<ToolCall>, StoreError> {
        let last = step::Entity::find()
            .filter(step::Column::MessageId.eq(message.to_string()))
            .filter(step::Column::Status.eq(StepStatus::Complete.word()))
            .order_by_desc(step::Column::N)
            .one(&self.tx)
            .await?;
        let Some(last) = last else { return Ok(Vec::new()) };
        let calls = self.calls_of_step(message, last.n).await?;
        Ok(calls.into_iter().filter(ToolCall::pauses).collect())
    }

    /// Returns the pending calls of the thread with this id, or else with the caller's own name.
    pub async fn pending_in(&self, owner: &Principal, name: &str) -> Result<HashSet<ToolCallId>, StoreError> {
        let Some(thread) = named(owner, name) else { return Ok(HashSet::new()) };
        let thread = thread.select_only().column(thread::Column::ThreadId).limit(1).into_query();
        // One value and no list, which a plan made for a small table might join by a read of the whole table.
        let thread = Expr::SubQuery(None, Box::new(thread.into()));
        let ids: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(tool_call::Column::ThreadId.into_expr().eq(thread))
            .filter(tool_call::Column::State.eq(StateKind::Pending.word()))
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }

    /// Returns the number of all pending calls, and when the call that is due first was created.
    pub async fn all_pending(&self) -> Result<(u64, Option<Timestamp>), StoreError> {
        // The index of due calls serves both queries.
        let is_pending = || in_state(StateKind::Pending).and(due_at().is_not_null());
        let pending = || tool_call::Entity::find().filter(is_pending());
        let count = pending().count(&self.tx).await?;
        let first = pending().select_only().column(tool_call::Column::CreatedAt);
        let first = first.order_by_asc(due_at()).into_tuple().one(&self.tx).await?;
        Ok((count, first.map(Timestamp::from_micros)))
    }
}

/// Matches the calls of a run: those of its answer, for which the calls have an index.
pub(crate) fn of_run(id: RunId) -> SimpleExpr {
    let answer = Query::select()
        .column(run::Column::AssistantMessageId)
        .from(run::Entity.table_ref())
        .and_where(run::Column::RunId.eq(id.to_string()))
        .to_owned();
    tool_call::Column::MessageId.into_expr().eq(Expr::SubQuery(None, Box::new(answer.into())))
}

/// A call's id, and the call if its row can be read.
pub(crate) type ReadCall = (String, Result<ToolCall, StoreError>);

/// Returns each of these calls with its decision.
pub(crate) fn decided_calls(
    found: Vec<tool_call::Model>,
    mut decisions: HashMap<String, Decision>,
) -> Vec<ReadCall> {
    let with_decision = |row: tool_call::Model| {
        let (id, decision) = (row.tool_call_id.clone(), decisions.remove(&row.tool_call_id));
        (id, rows::call(row, decision))
    };
    found.into_iter().map(with_decision).collect()
}

/// Returns the calls that can be read.
pub(crate) fn readable(calls: Vec<ReadCall>) -> Vec<ToolCall> {
    calls.into_iter().filter_map(|(id, call)| rows::listed("tool_calls", &id, call)).collect()
}

impl Write {
    /// Expires a pending call after its deadline. Returns false if the call is no longer pending. `resume`: whether the
    /// server resumes the run once none of its calls is open.
    pub async fn expire(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        resume: bool,
    ) -> Result<bool, StoreError> {
        let hash = call.proposed_hash(&call.schema_hash);
        let decision = NewDecision::new(Verdict::Expire, system::EXPIRY, Surface::Sweeper, hash);
        let expired = self
            .ended::<Pending, Expired>(model_texts::EXPIRED.to_owned())
            .set(tool_call::Column::Validated, Expr::value(false))
            .only(tool_call::Column::ExpiresAt.lte(self.now.as_micros()));
        let has_expired = self.decided(thread, call, expired, &decision, EventType::ToolExpired).await?;
        if has_expired && resume {
            self.resume_after_expiry(thread, call.run_id).await?;
        }
        Ok(has_expired)
    }

    /// Rejects a pending call that the policy of its session forbids from now on, for this reason.
    pub async fn reject_by_policy(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        actor: &str,
        why: &str,
    ) -> Result<bool, StoreError> {
        let hash = call.proposed_hash(&call.schema_hash);
        let rejected = self
            .ended::<Pending, Rejected>(format!("{} {why}.", model_texts::BLOCKED))
            .set(tool_call::Column::Validated, Expr::value(false));
        let decision = NewDecision {
            reason: Some(why.to_owned()),
            source: Some(Source::Session),
            ..NewDecision::new(Verdict::Reject, actor, Surface::Policy, hash)
        };
        self.decided(thread, call, rejected, &decision, EventType::ToolRejected).await
    }

    /// Cancels calls of a thread. Returns the executing ones, which the caller asks to stop after the commit.
    pub async fn cancel_calls(
        &self,
        thread: &LockedThread,
        which: CallsToCancel,
        actor: &str,
    ) -> Result<Vec<ToolCallId>, StoreError> {
        let pending = tool_call::Column::State.eq(StateKind::Pending.word());
        let approved = tool_call::Column::State.eq(StateKind::Approved.word());
        let executing = tool_call::Column::State.eq(StateKind::Executing.word());
        let of = of_run;
        let which_calls = match which {
            CallsToCancel::Pending => pending,
            CallsToCancel::Open => pending.or(approved).or(executing),
            CallsToCancel::OpenOf(run) => pending.or(approved).or(executing).and(of(run)),
            CallsToCancel::ExecutingOf(run) => executing.and(of(run)),
            CallsToCancel::UnclaimedFrom(ordinal) => {
                let cut = Query::select()
                    .column(message::Column::MessageId)
                    .from(message::Entity.table_ref())
                    .and_where(message::Column::ThreadId.eq(thread.id.to_string()))
                    .and_where(message::Column::Ordinal.gte(ordinal))
                    .to_owned();
                pending.or(approved).and(tool_call::Column::MessageId.in_subquery(cut))
            }
        };
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(which_calls)
            .all(&self.tx)
            .await?;
        let mut requested = Vec::new();
        for call in self.with_decisions(found).await? {
            if self.cancel_call(thread, &call, actor).await? == CancelOutcome::Requested {
                requested.push(call.id);
            }
        }
        Ok(requested)
    }

    /// Cancels a pending call. Returns false if the call is no longer pending.
    pub async fn withdraw(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        actor: &str,
        surface: Surface,
        reason: Option<String>,
    ) -> Result<bool, StoreError> {
        let hash = call.proposed_hash(&call.schema_hash);
        let cancelled = self
            .ended::<Pending, Cancelled>(withdrawal(reason.as_deref()))
            .set(tool_call::Column::Validated, Expr::value(false));
        let decision = NewDecision { reason, ..NewDecision::new(Verdict::Cancel, actor, surface, hash) };
        self.decided(thread, call, cancelled, &decision, EventType::ToolCancelled).await
    }

    /// Cancels a call that no process runs, or asks the process that runs it to stop. The call was read after the
    /// lock of the thread.
    pub async fn cancel_call(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        actor: &str,
    ) -> Result<CancelOutcome, StoreError> {
        let withdrawn = match &call.state {
            State::Pending => self.withdraw(thread, call, actor, Surface::Rest, None).await?,
            State::Approved(_) => {
                let cancelled = self.ended::<Approved, Cancelled>(model_texts::CANCELLED.to_owned());
                // A call that was claimed before may have had its effect then.
                let interrupted = self.ended::<Approved, Interrupted>(call.unknown_outcome());
                self.closed(thread, call, cancelled, EventType::ToolCancelled, actor).await?
                    || self.closed(thread, call, interrupted, EventType::ToolInterrupted, actor).await?
            }
            State::Executing(..) => {
                let requested = self.request_cancel(call).await?;
                return Ok(if requested { CancelOutcome::Requested } else { CancelOutcome::Ended });
            }
            _ => false,
        };
        Ok(if withdrawn { CancelOutcome::Withdrawn } else { CancelOutcome::Ended })
    }

    async fn request_cancel(&self, call: &ToolCall) -> Result<bool, StoreError> {
        let requested = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::CancelRequestedAt, Expr::value(self.now.as_micros()))
            .filter(tool_call::Column::ToolCallId.eq(call.id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .exec(&self.tx)
            .await?;
        Ok(requested.rows_affected == 1)
    }

    /// Ends a call without an output, with its event.
    pub(crate) async fn closed(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        moved: Move,
        event: EventType,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let data =
            EventData::Moved { cause: MoveCause::Itself {}, tool_name: call.name.clone(), state: moved.to };
        let event = NewEvent { event_type: event, actor, subject: &Subject::call(thread, call), data };
        if !self.apply_with_event(call.id, moved, None, &event).await? {
            return Ok(false);
        }
        if call.ends_elsewhere() {
            // No client decided the call, so none knows that the run can resume.
            self.set_server_resumes(thread, call.run_id).await?;
        }
        self.complete_if_passed(thread, call.run_id).await?;
        Ok(true)
    }

    /// Builds the end of a call, with the text for the model.
    pub(crate) fn ended<From: Becomes<To>, To: CallState>(&self, result: String) -> Move {
        Move::of::<From, To>()
            .set(tool_call::Column::Result, Expr::value(result))
            .set(tool_call::Column::FinishedAt, Expr::value(self.now.as_micros()))
    }

    /// Ends a pending call, with its decision and its event.
    pub(crate) async fn decided(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        moved: Move,
        decision: &NewDecision,
        event: EventType,
    ) -> Result<bool, StoreError> {
        if self.record(thread, call, moved, decision, event).await?.is_none() {
            return Ok(false);
        }
        self.complete_if_passed(thread, call.run_id).await?;
        Ok(true)
    }

    /// Moves a pending call, with its decision and its event. Returns `None` if the call is no longer
    /// pending.
    async fn record(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        moved: Move,
        decision: &NewDecision,
        event: EventType,
    ) -> Result<Option<Decision>, StoreError> {
        if !self.apply(thread, call.id, decided_by(moved, decision, self.now)).await? {
            return Ok(None);
        }
        let stored = self.record_decision(call.id, decision).await?;
        self.event(event, &decision.by, &Subject::call(thread, call), decided_data(call, decision));
        Ok(Some(stored))
    }

    /// Applies one guarded transition of a call that has not ended. Returns false if no row matches the guard.
    async fn apply(&self, thread: &Thread, id: ToolCallId, moved: Move) -> Result<bool, StoreError> {
        let added = moved.added_bytes(None);
        let is_moved = of_call(moved, thread, id).exec(&self.tx).await?.rows_affected == 1;
        if is_moved {
            self.add_bytes(thread.id, added);
        }
        Ok(is_moved)
    }

    /// Applies one guarded transition of a call that has not ended, or has this row, with its event. Returns false if no
    /// row matches the guard. On Postgres a certain transition is made with other changes.
    pub(crate) async fn apply_with_event(
        &self,
        id: ToolCallId,
        moved: Move,
        ended: Option<&tool_call::Model>,
        event: &NewEvent<'_>,
    ) -> Result<bool, StoreError> {
        let (thread, added, is_certain) = (event.subject.thread, moved.added_bytes(ended), moved.is_certain);
        let is_moved = if is_certain {
            self.update_later(of_call(moved, thread, id), "a call to move has another state").await?;
            self.add_event(event);
            true
        } else {
            self.update_with_event(of_call(moved, thread, id), event).await?
        };
        if is_moved {
            self.add_bytes(thread.id, added);
        }
        Ok(is_moved)
    }
}

/// Returns the facts of the event of a decision.
pub(crate) fn decided_data(call: &ToolCall, decision: &NewDecision) -> EventData {
    let all = decision.voted_before.iter().chain([&decision.by]);
    EventData::Decided {
        tool_name: call.name.clone(),
        input_hash: decision.input_hash.clone(),
        decision: decision.verdict,
        edited: decision.edited,
        surface: decision.surface,
        source: decision.source.as_ref().map(Source::text),
        grant_id: decision.grant,
        approved_by: (!decision.voted_before.is_empty()).then(|| all.cloned().collect()),
        on_behalf_of: decision.on_behalf_of.clone(),
    }
}

/// Returns the update of a transition for this call.
pub(crate) fn of_call(moved: Move, thread: &Thread, id: ToolCallId) -> UpdateMany<tool_call::Entity> {
    moved
        .update
        .filter(tool_call::Column::ToolCallId.eq(id.to_string()))
        .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
}

/// Adds the author and the time of a decision to its transition.
pub(crate) fn decided_by(moved: Move, decision: &NewDecision, now: Timestamp) -> Move {
    moved
        .set(tool_call::Column::DecidedBy, Expr::value(decision.by.clone()))
        .set(tool_call::Column::DecidedAt, Expr::value(now.as_micros()))
}
