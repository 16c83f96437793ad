//! Steps: opened with the record of the texts for the model, and written once with their calls.

use super::entity::{run, sent_answer, step, tool_call};
use super::events::{OfCall, Subject};
use super::parts::write_parts;
use super::words::Word;
use super::{Extent, Lease, NewDecision, Read, Seal, StoreError, Thread, Write, rows, words};
use crate::config::Approval;
use crate::domain::call::{Execution, RiskLevel, StateKind, ToolCall, input_hash};
use crate::domain::decision::{Surface, Verdict};
use crate::domain::event::{EventType, system};
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::input::Input;
use crate::domain::message::{Part, StepStatus, Usage};
use crate::domain::model_texts;
use crate::domain::permit::Permit;
use crate::domain::policy::Judgement;
use crate::domain::run::{Run, RunStatus};
use crate::domain::text::without_nul;
use crate::domain::turn::FinishReason;
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The result of opening a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOpening {
    /// The step is open.
    Open,
    /// The turn lost its lease, or its thread was deleted.
    Lost,
    /// The thread holds `limits.thread_bytes`.
    ThreadFull,
}

/// The content of a step.
#[derive(Debug, Clone)]
pub(crate) struct StepResult {
    /// Texts, reasoning and calls, in order.
    pub(crate) parts: Vec<Part>,
    /// Why the step ended.
    pub(crate) reason: FinishReason,
    /// The tokens that the step used.
    pub(crate) usage: Option<Usage>,
    /// The provider, address and model that wrote the step.
    pub(crate) origin: String,
    /// The state that this origin wants back.
    pub(crate) provider_state: Option<Value>,
}

/// A call that the model made, with the judgement of the gate.
#[derive(Debug)]
pub(crate) struct NewCall {
    pub(crate) id: ToolCallId,
    pub(crate) provider_call_id: String,
    pub(crate) name: String,
    /// The arguments as the model wrote them.
    pub(crate) arguments: String,
    /// The parsed arguments.
    pub(crate) input: Input,
    pub(crate) schema_hash: String,
    pub(crate) idempotent: bool,
    pub(crate) risk: RiskLevel,
    pub(crate) judgement: Judgement,
}

impl NewCall {
    /// Postgres text columns refuse U+0000, and a provider's text may contain it.
    fn scrub(&mut self) {
        let scrub = |text: &mut String| {
            if text.contains('\0') {
                *text = without_nul(text);
            }
        };
        scrub(&mut self.provider_call_id);
        scrub(&mut self.name);
        scrub(&mut self.arguments);
        if let Judgement::Invalid(why) = &mut self.judgement {
            scrub(why);
        }
    }
}

impl Read {
    async fn taken_wire_ids(&self, thread: &Thread, ids: &[&str]) -> Result<HashSet<String>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let taken = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(tool_call::Column::WireCallId.is_in(ids.iter().copied()))
            .all(&self.tx)
            .await?;
        Ok(taken.into_iter().map(|row| row.wire_call_id).collect())
    }

    pub(super) async fn calls_of_step(
        &self,
        message_id: MessageId,
        n: i32,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::MessageId.eq(message_id.to_string()))
            .filter(tool_call::Column::Step.eq(n))
            .order_by_asc(tool_call::Column::Ordinal)
            .all(&self.tx)
            .await?;
        self.with_decisions(found).await
    }
}

impl Write {
    /// Opens the next step of a run's message, and records the texts that the model reads in it. Opens no
    /// step if the thread holds `thread_bytes` or more.
    pub(crate) async fn open_step(
        &self,
        lease: &Lease,
        n: i32,
        seals: &[Seal],
        thread_bytes: u64,
    ) -> Result<StepOpening, StoreError> {
        match self.extent_while_running(lease).await? {
            None => return Ok(StepOpening::Lost),
            Some(extent) if extent.bytes >= thread_bytes => return Ok(StepOpening::ThreadFull),
            Some(_) => {}
        }
        self.name_commit("step.opened", None);
        let message_id = lease.run.assistant_message_id.to_string();
        let row = step::ActiveModel {
            message_id: Set(message_id.clone()),
            n: Set(n),
            status: Set(StepStatus::Streaming.word().to_owned()),
            parts: Set("[]".to_owned()),
            created_at: Set(self.now.as_micros()),
            ..Default::default()
        };
        step::Entity::insert(row).exec_without_returning(&self.tx).await?;
        for seal in seals {
            let row = sent_answer::ActiveModel {
                tool_call_id: Set(seal.tool_call_id.to_string()),
                n: Set(seal.n),
                kind: Set(seal.kind.word().to_owned()),
                text: Set(seal.text.clone()),
                message_id: Set(message_id.clone()),
                step: Set(n),
                at: Set(self.now.as_micros()),
                erased_at: Set(None),
            };
            sent_answer::Entity::insert(row).exec_without_returning(&self.tx).await?;
        }
        Ok(StepOpening::Open)
    }

    /// Returns the pending calls of these tools that have not expired. The thread is locked, so no
    /// transaction decides these calls until this transaction ends.
    pub(crate) async fn asked_about(
        &self,
        thread: &Thread,
        tools: HashSet<&str>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        self.lock_thread(thread).await?;
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Pending))
            .filter(tool_call::Column::ExpiresAt.gt(self.now.as_micros()))
            .filter(tool_call::Column::Name.is_in(tools))
            .all(&self.tx)
            .await?;
        self.with_decisions(found).await
    }

    /// Writes a step with its calls, and commits. Returns the calls, and the permits of the calls that run at
    /// once: permits exist only after the commit. Returns `None`, and writes nothing, if the turn lost its
    /// lease or its thread was deleted.
    pub(crate) async fn commit_step(
        self,
        lease: &Lease,
        n: i32,
        result: &StepResult,
        mut calls: Vec<NewCall>,
        times: &Approval,
    ) -> Result<Option<(Vec<ToolCall>, Vec<Permit>)>, StoreError> {
        for call in &mut calls {
            call.scrub();
        }
        let Lease { thread, run, .. } = lease;
        if !self.still_running(lease).await? {
            return Ok(None);
        }
        if let Some(held) = calls.iter().find(|call| matches!(call.judgement, Judgement::Held { .. })) {
            self.name_commit(EventType::ToolRequiresApproval.word(), Some(held.id));
        } else if calls.is_empty() {
            self.name_commit("step.written", None);
        }
        self.write_step(run, n, StepStatus::Complete, result).await?;
        let given: Vec<&str> = calls.iter().map(|call| call.provider_call_id.as_str()).collect();
        let mut taken = self.taken_wire_ids(thread, &given).await?;
        let mut running = Vec::new();
        for (ordinal, call) in (0..).zip(calls) {
            let own = call.id.to_string();
            // Providers repeat or omit ids. The model reads an id that is unique in the thread.
            let given = call.provider_call_id.clone();
            let wire_call_id = if !given.is_empty() && taken.insert(given.clone()) { given } else { own };
            let place = CallPlace { lease, n, ordinal, wire_call_id };
            running.extend(self.insert_call(&place, call, times).await?);
        }
        let stored = self.calls_of_step(run.assistant_message_id, n).await?;
        self.commit().await?;
        let permits = running
            .into_iter()
            .map(|it| Permit::committed(it.id, it.name, thread.requester(), it.input, None, it.execution))
            .collect();
        Ok(Some((stored, permits)))
    }

    /// Writes the partial content of a step that broke off. Returns false if the turn lost its lease or its
    /// thread was deleted.
    pub(crate) async fn break_step(
        &self,
        lease: &Lease,
        n: i32,
        said: &StepResult,
    ) -> Result<bool, StoreError> {
        if !self.still_running(lease).await? {
            return Ok(false);
        }
        self.name_commit("step.broken", None);
        self.write_step(&lease.run, n, StepStatus::Interrupted, said).await?;
        Ok(true)
    }

    async fn write_step(
        &self,
        run: &Run,
        n: i32,
        status: StepStatus,
        said: &StepResult,
    ) -> Result<(), StoreError> {
        let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let state = said.provider_state.as_ref().map(Value::to_string);
        let written = step::Entity::update_many()
            .col_expr(step::Column::Status, Expr::value(status))
            .col_expr(step::Column::Parts, Expr::value(write_parts(&said.parts)))
            .col_expr(step::Column::FinishReason, Expr::value(said.reason))
            .col_expr(step::Column::InputTokens, Expr::value(said.usage.map(|u| tokens(u.input_tokens))))
            .col_expr(step::Column::OutputTokens, Expr::value(said.usage.map(|u| tokens(u.output_tokens))))
            .col_expr(step::Column::Origin, Expr::value(said.origin.clone()))
            .col_expr(step::Column::ProviderState, Expr::value(state))
            .col_expr(step::Column::FinishedAt, Expr::value(self.now.as_micros()))
            .filter(step::Column::MessageId.eq(run.assistant_message_id.to_string()))
            .filter(step::Column::N.eq(n))
            .filter(step::Column::Status.eq(StepStatus::Streaming))
            .exec(&self.tx)
            .await?;
        if written.rows_affected == 1 {
            Ok(())
        } else {
            Err(rows::inconsistent("message_steps", format_args!("step {n} is not open")))
        }
    }

    async fn still_running(&self, lease: &Lease) -> Result<bool, StoreError> {
        Ok(self.extent_while_running(lease).await?.is_some())
    }

    /// Returns how much the thread of a turn holds. Returns `None` if the turn lost its lease or its thread
    /// was deleted.
    async fn extent_while_running(&self, lease: &Lease) -> Result<Option<Extent>, StoreError> {
        let Lease { thread, run, holder, .. } = lease;
        let extent = self.lock_thread(thread).await?;
        let held = run::Entity::find_by_id(run.id.to_string())
            .filter(run::Column::Status.eq(RunStatus::Running))
            .filter(run::Column::Owner.eq(holder))
            .one(&self.tx)
            .await?;
        let runs = held.is_some() && !self.is_deleted(thread).await?;
        Ok(runs.then_some(extent))
    }

    /// Stores a call with its judgement. Returns the parts of its permit if the call runs at once.
    async fn insert_call(
        &self,
        place: &CallPlace<'_>,
        call: NewCall,
        times: &Approval,
    ) -> Result<Option<Running>, StoreError> {
        let (id, execution) =
            (call.id, Execution { id: self.fresh_execution(), attempt: 1, started_at: self.now });
        let row = self.call_row(place, &call, execution, times);
        tool_call::Entity::insert(row).exec_without_returning(&self.tx).await?;

        let NewCall { name, input, schema_hash, risk, judgement, .. } = call;
        let Lease { thread, run, .. } = place.lease;
        let held_tool = matches!(judgement, Judgement::Held { .. }).then_some(name.as_str());
        let subject = Subject { thread, run_id: run.id, call: Some(OfCall { id, held_tool }) };
        let hash = input_hash(&name, &input, &schema_hash);
        let facts = json!({ "tool_name": name, "risk_level": risk.word(), "input_hash": hash });
        self.event(EventType::ToolCalled, &thread.actor(), &subject, facts.clone());
        match judgement {
            Judgement::Cleared(_, source) => {
                let data = json!({
                    "tool_name": name,
                    "risk_level": risk.word(),
                    "input_hash": hash,
                    "attempt": execution.attempt,
                    "source": words::source(&source),
                });
                let cleared = NewDecision::of_policy(Verdict::Approve, source, None, hash);
                self.record_decision(id, &cleared).await?;
                self.event(EventType::ToolStarted, system::POLICY, &subject, data);
                Ok(Some(Running { id, name, input, execution }))
            }
            Judgement::Held { reason, source } => {
                let data = json!({
                    "tool_name": name,
                    "risk_level": risk.word(),
                    "input_hash": hash,
                    "reason": reason,
                    "source": words::source(&source),
                    "expires_at": self.now.plus(times.pending_ttl).to_rfc3339(),
                });
                self.event(EventType::ToolRequiresApproval, system::POLICY, &subject, data);
                Ok(None)
            }
            Judgement::Blocked { reason, source } => {
                let data = json!({
                    "tool_name": name,
                    "risk_level": risk.word(),
                    "input_hash": hash,
                    "decision": Verdict::Reject.word(),
                    "reason": reason,
                    "source": words::source(&source),
                });
                let blocked = NewDecision::of_policy(Verdict::Reject, source, Some(reason), hash);
                self.record_decision(id, &blocked).await?;
                self.event(EventType::ToolBlocked, system::POLICY, &subject, data);
                Ok(None)
            }
            Judgement::Duplicate(of) => {
                let data = json!({
                    "tool_name": name,
                    "risk_level": risk.word(),
                    "input_hash": hash,
                    "decision": Verdict::Cancel.word(),
                    "duplicate_of": of,
                });
                let cancelled = NewDecision::new(Verdict::Cancel, system::DUPLICATE, Surface::Policy, hash);
                self.record_decision(id, &cancelled).await?;
                self.event(EventType::ToolCancelled, system::DUPLICATE, &subject, data);
                Ok(None)
            }
            Judgement::Invalid(_) => {
                self.event(EventType::ToolFailed, system::INVALID, &subject, facts);
                Ok(None)
            }
        }
    }

    fn call_row(
        &self,
        place: &CallPlace<'_>,
        call: &NewCall,
        execution: Execution,
        times: &Approval,
    ) -> tool_call::ActiveModel {
        let now = self.now.as_micros();
        let mut row = tool_call::ActiveModel {
            tool_call_id: Set(call.id.to_string()),
            thread_id: Set(place.lease.thread.id.to_string()),
            tenant_id: Set(place.lease.thread.tenant_id.clone()),
            message_id: Set(place.lease.run.assistant_message_id.to_string()),
            step: Set(place.n),
            ordinal: Set(place.ordinal),
            run_id: Set(place.lease.run.id.to_string()),
            provider_call_id: Set(call.provider_call_id.clone()),
            wire_call_id: Set(place.wire_call_id.clone()),
            name: Set(call.name.clone()),
            arguments: Set(call.arguments.clone()),
            schema_hash: Set(call.schema_hash.clone()),
            held: Set(false),
            idempotent: Set(call.idempotent),
            risk_level: Set(call.risk.word().to_owned()),
            exec_attempt: Set(0),
            created_at: Set(now),
            ..Default::default()
        };
        let decided = |row: &mut tool_call::ActiveModel, validated: bool, by: &str| {
            row.validated = Set(Some(validated));
            row.decided_by = Set(Some(by.to_owned()));
            row.decided_at = Set(Some(now));
        };
        match &call.judgement {
            Judgement::Cleared(..) => {
                decided(&mut row, true, system::POLICY);
                row.state = Set(StateKind::Executing.word().to_owned());
                row.exec_id = Set(Some(execution.id.to_string()));
                row.exec_owner = Set(Some(place.lease.holder.clone()));
                row.exec_attempt = Set(1);
                row.started_at = Set(Some(now));
                row.lease_until = Set(Some(self.now.plus(times.lease).as_micros()));
            }
            Judgement::Held { reason, .. } => {
                row.state = Set(StateKind::Pending.word().to_owned());
                row.held = Set(true);
                row.reason = Set(Some(reason.clone()));
                row.expires_at = Set(Some(self.now.plus(times.pending_ttl).as_micros()));
            }
            Judgement::Blocked { reason, .. } => {
                decided(&mut row, false, system::POLICY);
                row.state = Set(StateKind::Rejected.word().to_owned());
                row.reason = Set(Some(reason.clone()));
                row.result = Set(Some(format!("{} {reason}.", model_texts::BLOCKED)));
                row.finished_at = Set(Some(now));
            }
            Judgement::Duplicate(_) => {
                decided(&mut row, false, system::DUPLICATE);
                row.state = Set(StateKind::Cancelled.word().to_owned());
                row.result = Set(Some(model_texts::DUPLICATE.to_owned()));
                row.finished_at = Set(Some(now));
            }
            Judgement::Invalid(why) => {
                decided(&mut row, false, system::INVALID);
                row.state = Set(StateKind::Invalid.word().to_owned());
                row.result = Set(Some(why.clone()));
                row.finished_at = Set(Some(now));
            }
        }
        row
    }
}

/// A call that was stored as executing.
struct Running {
    id: ToolCallId,
    name: String,
    input: Input,
    execution: Execution,
}

/// The place of a call in its thread.
struct CallPlace<'a> {
    lease: &'a Lease,
    n: i32,
    ordinal: i32,
    wire_call_id: String,
}
