//! Steps: opened with the record of the texts for the model, and written once with their calls.

use crate::call::earlier_calls::EarlierCalls;
use crate::call::permit::{CommittedCall, Permit};
use crate::entity::{decision, sent_answer, step, tool_call};
use crate::event::new_event::{OfCall, Subject};
use crate::run::held_turn::HeldTurn;
use crate::sql::parts::write_parts;
use crate::thread::extents::{bytes_of, bytes_set, sum};
use crate::{Lease, NewDecision, Read, SealedText, StoreError, TurnEnd, Write, sql::rows};
use holdpoint_core::call::{Execution, RiskLevel, StateKind, ToolCall, input_hash, repeated_rejection};
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::card::preview::Preview;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Surface, Verdict};
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::{EventData, MadeCall};
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::message::{Part, StepStatus, Usage, Window};
use holdpoint_core::policy::Judgement;
use holdpoint_core::policy::Source;
use holdpoint_core::run::Run;
use holdpoint_core::text::model_texts;
use holdpoint_core::text::without_nul;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use holdpoint_core::turn::FinishReason;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Maximum number of rows that one statement inserts. SQLite limits the number of parameters.
const ROWS_PER_INSERT: usize = 1000;

/// A step to open.
#[derive(Debug)]
pub struct OpeningStep<'a> {
    pub n: i32,
    /// The provider, address and model that will write the step.
    pub origin: &'a str,
    /// What the request leaves out of the conversation, if the step is the first one of a turn.
    pub window: Window,
    /// The texts that the model reads in the step.
    pub seals: &'a [SealedText],
}

/// A step to write.
#[derive(Debug)]
pub struct NewStep<'a> {
    pub n: i32,
    pub result: &'a StepResult,
    pub calls: Vec<NewCall>,
    pub earlier: EarlierCalls,
}

#[derive(Debug)]
pub struct CommittedStep {
    pub calls: Vec<ToolCall>,
    /// The permits of the calls that run at once: permits exist only after the commit.
    pub permits: Vec<Permit>,
    /// How the turn ended, if it ended with this step.
    pub ended: Option<TurnEnd>,
}

#[derive(Debug, Clone)]
pub struct StepResult {
    /// Texts, reasoning and calls, in order.
    pub parts: Vec<Part>,
    /// Why the step ended.
    pub reason: FinishReason,
    /// The tokens that the step used.
    pub usage: Option<Usage>,
    /// The provider, address and model that wrote the step.
    pub origin: String,
    /// The state that this origin wants back.
    pub provider_state: Option<Value>,
    /// The window of the request that the server took, if it refused a longer one.
    pub narrowed: Option<Window>,
}

/// A call that the model made, with the judgement of the gate.
#[derive(Debug)]
pub struct NewCall {
    pub id: ToolCallId,
    pub provider_call_id: String,
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The parsed arguments.
    pub input: Input,
    /// The parsed arguments before their repair, if they were repaired.
    pub model_input: Option<Input>,
    pub secrets: SecretPaths,
    pub schema_hash: String,
    pub idempotent: bool,
    /// Whether a worker executes the calls of the tool.
    pub by_worker: bool,
    pub risk: RiskLevel,
    /// What the tool says that the call would do, if the call is held and its tool has previews.
    pub preview: Option<Preview>,
    pub judgement: Judgement,
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
    pub async fn calls_of_step(&self, message_id: MessageId, n: i32) -> Result<Vec<ToolCall>, StoreError> {
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
    /// Opens a step of a run's message, and records the texts that the model reads in it. The turn of the run
    /// begins in this transaction, or the transaction holds it.
    pub async fn open_step(&self, run: &Run, new: &OpeningStep<'_>) -> Result<(), StoreError> {
        self.name_commit("step.opened", None);
        let OpeningStep { n, origin, window, seals } = *new;
        let [left_out, shortened] = [window.left_out, window.shortened].map(turns);
        let message_id = run.assistant_message_id.to_string();
        let row = step::ActiveModel {
            message_id: Set(message_id.clone()),
            n: Set(n),
            status: Set(StepStatus::Streaming.word().to_owned()),
            parts: Set("[]".to_owned()),
            origin: Set(Some(origin.to_owned())),
            turns_left_out: Set(left_out),
            turns_shortened: Set(shortened),
            created_at: Set(self.now.as_micros()),
            ..Default::default()
        };
        self.insert_later([row]).await?;
        for seals in seals.chunks(ROWS_PER_INSERT) {
            let rows = seals.iter().map(|seal| sent_answer::ActiveModel {
                tool_call_id: Set(seal.tool_call_id.to_string()),
                n: Set(seal.n),
                kind: Set(seal.kind.word().to_owned()),
                text: Set(seal.text.clone()),
                message_id: Set(message_id.clone()),
                step: Set(n),
                at: Set(self.now.as_micros()),
                erased_at: Set(None),
            });
            let rows: Vec<_> = rows.collect();
            self.add_bytes(run.thread_id, sum(rows.iter().map(bytes_set)));
            self.insert_later(rows).await?;
        }
        Ok(())
    }

    /// Writes a step with its calls, and commits. If nothing follows the step, the turn ends in the same
    /// transaction: `completed` without a call, and `waiting` if `may_wait` is set, a call is held or waits for
    /// a worker, and none runs.
    pub async fn commit_step(
        self,
        turn: &HeldTurn<'_>,
        NewStep { n, result, mut calls, mut earlier }: NewStep<'_>,
        times: &CallTimes,
        may_wait: bool,
    ) -> Result<CommittedStep, StoreError> {
        for call in &mut calls {
            call.scrub();
        }
        let Lease { thread, run, .. } = turn.lease();
        if let Some(held) = calls.iter().find(|call| matches!(call.judgement, Judgement::Held { .. })) {
            self.name_commit(EventType::ToolRequiresApproval.word(), Some(held.id));
        }
        self.write_step(run, n, StepStatus::Complete, result).await?;
        let mut new = NewRows::default();
        for (ordinal, call) in (0..).zip(calls) {
            let wire_call_id = earlier.take_wire_id(call.id, &call.provider_call_id);
            let position = CallPosition { lease: turn.lease(), n, ordinal, wire_call_id };
            self.add_call(&mut new, &position, call, times);
        }
        let NewRows { calls, decisions, running } = new;
        self.add_bytes(thread.id, sum(calls.iter().map(bytes_of)));
        let calls = self.insert_calls(calls, decisions).await?;
        let end = match calls.iter().any(|call| call.pauses() && call.end().is_none()) {
            _ if calls.is_empty() => Some(TurnEnd::Completed),
            true if may_wait && running.is_empty() => Some(TurnEnd::Waiting),
            _ => None,
        };
        if let Some(end) = &end {
            self.end_held_turn(turn, end).await?;
        }
        let committed = self.commit().await;
        if committed.as_ref().is_err_and(|error| !error.is_unavailable()) {
            // The database refused the changes, so the turn has not ended.
            turn.lease().may_have_ended.store(false, Ordering::Relaxed);
        }
        committed?;
        let conversation = thread.conversation(run.id);
        let permits = running
            .into_iter()
            .map(|it| {
                Permit::committed(CommittedCall {
                    tool_call_id: it.id,
                    tool_name: it.name,
                    conversation: conversation.clone(),
                    input: it.input,
                    edit: None,
                    execution: it.execution,
                    // The policy alone lets these calls run.
                    approved_by: Vec::new(),
                })
            })
            .collect();
        Ok(CommittedStep { calls, permits, ended: end })
    }

    /// Inserts calls with their decisions, and returns the calls as they are stored.
    async fn insert_calls(
        &self,
        calls: Vec<tool_call::Model>,
        decisions: Vec<decision::Model>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        self.insert_later(calls.iter().cloned().map(IntoActiveModel::into_active_model)).await?;
        self.insert_later(decisions.iter().cloned().map(IntoActiveModel::into_active_model)).await?;
        let mut of_calls = HashMap::new();
        for row in decisions {
            of_calls.insert(row.tool_call_id.clone(), rows::decision(row)?);
        }
        calls
            .into_iter()
            .map(|row| {
                let decision = of_calls.remove(&row.tool_call_id);
                rows::call(row, decision)
            })
            .collect()
    }

    /// Writes the partial content of a step that broke off.
    pub async fn break_step(
        &self,
        turn: &HeldTurn<'_>,
        n: i32,
        result: &StepResult,
    ) -> Result<(), StoreError> {
        self.name_commit("step.broken", None);
        self.write_step(&turn.lease().run, n, StepStatus::Interrupted, result).await
    }

    async fn write_step(
        &self,
        run: &Run,
        n: i32,
        status: StepStatus,
        result: &StepResult,
    ) -> Result<(), StoreError> {
        let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let state = result.provider_state.as_ref().map(Value::to_string);
        let mut row = step::ActiveModel {
            status: Set(status.word().to_owned()),
            parts: Set(write_parts(&result.parts)),
            finish_reason: Set(Some(result.reason.word().to_owned())),
            input_tokens: Set(result.usage.map(|usage| tokens(usage.input_tokens))),
            output_tokens: Set(result.usage.map(|usage| tokens(usage.output_tokens))),
            origin: Set(Some(result.origin.clone())),
            provider_state: Set(state),
            finished_at: Set(Some(self.now.as_micros())),
            ..Default::default()
        };
        if let Some(window) = result.narrowed {
            row.turns_left_out = Set(turns(window.left_out));
            row.turns_shortened = Set(turns(window.shortened));
            row.refused_tokens = Set(window.refused.map(tokens));
        }
        // Until now the step did not count.
        self.add_bytes(run.thread_id, bytes_set(&row));
        let written = step::Entity::update_many()
            .set(row)
            .filter(step::Column::MessageId.eq(run.assistant_message_id.to_string()))
            .filter(step::Column::N.eq(n))
            .filter(step::Column::Status.eq(StepStatus::Streaming.word()));
        self.update_later(written, "a step to write is not open").await
    }

    /// Adds the rows of a call with its judgement.
    fn add_call(&self, new: &mut NewRows, position: &CallPosition<'_>, call: NewCall, times: &CallTimes) {
        let (id, execution) =
            (call.id, Execution { id: self.fresh_execution(), attempt: 1, started_at: self.now });
        new.calls.push(self.call_row(position, &call, execution, times));

        let NewCall { name, input, schema_hash, by_worker, risk, preview, judgement, .. } = call;
        let Lease { thread, run, .. } = position.lease;
        let is_held = matches!(judgement, Judgement::Held { .. });
        let of_call = OfCall { id, tool: &name, is_held };
        let subject = Subject { thread, run_id: run.id, call: Some(of_call) };
        let hash = input_hash(&name, &input, &schema_hash, preview.as_ref());
        let call = MadeCall { tool_name: name.clone(), risk_level: risk, input_hash: hash.clone() };
        self.event(EventType::ToolCalled, &thread.actor(), &subject, EventData::Made(call.clone()));
        match judgement {
            Judgement::Cleared(_, source) => {
                let (text, decision) = (source.text(), Verdict::Approve);
                let cleared = NewDecision::of_policy(decision, source, None, hash);
                new.decisions.push(self.decision_row(id, &cleared));
                if by_worker {
                    let data = EventData::ClearedForWorker { call, decision, source: text };
                    self.event(EventType::ToolApproved, system::POLICY, &subject, data);
                } else {
                    let data = EventData::StartedAtOnce { call, attempt: execution.attempt, source: text };
                    self.event(EventType::ToolStarted, system::POLICY, &subject, data);
                    new.running.push(Running { id, name, input, execution });
                }
            }
            Judgement::Held { reason, source } => {
                let expires_at = self.now.plus(times.pending_ttl);
                let data = EventData::Held { call, reason, source: source.text(), expires_at };
                self.event(EventType::ToolRequiresApproval, system::POLICY, &subject, data);
            }
            Judgement::Blocked { reason, source } => {
                let (text, decision) = (source.text(), Verdict::Reject);
                let blocked = NewDecision::of_policy(decision, source, Some(reason.clone()), hash);
                new.decisions.push(self.decision_row(id, &blocked));
                let data = EventData::Blocked { call, decision, reason, source: text };
                self.event(EventType::ToolBlocked, system::POLICY, &subject, data);
            }
            Judgement::Duplicate(of) => {
                let decision = self.cancel_repeat(new, id, hash);
                let data = EventData::Duplicate { call, decision, duplicate_of: of };
                self.event(EventType::ToolCancelled, system::DUPLICATE, &subject, data);
            }
            Judgement::ExpiredBefore(of) => {
                let decision = self.cancel_repeat(new, id, hash);
                let data = EventData::ExpiredBefore { call, decision, expired_before: of };
                self.event(EventType::ToolCancelled, system::DUPLICATE, &subject, data);
            }
            Judgement::RejectedBefore { call: rejected_before, reason } => {
                let decision = Verdict::Reject;
                let rejected = NewDecision::new(decision, system::REJECTED, Surface::Policy, hash);
                new.decisions.push(self.decision_row(id, &NewDecision { reason, ..rejected }));
                let data = EventData::RejectedBefore { call, decision, rejected_before };
                self.event(EventType::ToolBlocked, system::REJECTED, &subject, data);
            }
            Judgement::Invalid(_) => {
                self.event(EventType::ToolFailed, system::INVALID, &subject, EventData::Made(call));
            }
        }
    }

    /// Records the withdrawal of a call that repeats another one.
    fn cancel_repeat(&self, new: &mut NewRows, id: ToolCallId, input_hash: String) -> Verdict {
        let verdict = Verdict::Cancel;
        let cancelled = NewDecision::new(verdict, system::DUPLICATE, Surface::Policy, input_hash);
        new.decisions.push(self.decision_row(id, &cancelled));
        verdict
    }

    fn call_row(
        &self,
        position: &CallPosition<'_>,
        call: &NewCall,
        execution: Execution,
        times: &CallTimes,
    ) -> tool_call::Model {
        let now = self.now.as_micros();
        let (preview, preview_failed) = rows::preview_columns(call.preview.as_ref());
        let mut row = tool_call::Model {
            tool_call_id: call.id.to_string(),
            thread_id: position.lease.thread.id.to_string(),
            tenant_id: position.lease.thread.tenant_id.clone(),
            message_id: position.lease.run.assistant_message_id.to_string(),
            step: position.n,
            ordinal: position.ordinal,
            run_id: position.lease.run.id.to_string(),
            provider_call_id: call.provider_call_id.clone(),
            wire_call_id: position.wire_call_id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            model_arguments: call.model_input.as_ref().map(|input| Value::Object(input.clone()).to_string()),
            secret_paths: call.secrets.to_json(),
            schema_hash: call.schema_hash.clone(),
            held: false,
            listed_for: None,
            idempotent: call.idempotent,
            risk_level: call.risk.word().to_owned(),
            reason: None,
            preview,
            preview_failed,
            state: String::new(),
            validated: None,
            validated_inputs: None,
            validated_preview: None,
            validated_preview_failed: None,
            decided_by: None,
            decided_at: None,
            expires_at: None,
            remind_at: None,
            escalate_at: None,
            escalate_to: None,
            escalated_at: None,
            start_deadline: None,
            exec_id: None,
            exec_owner: None,
            exec_attempt: 0,
            lease_until: None,
            started_at: None,
            child_run_id: None,
            by_worker: call.by_worker,
            permit_hash: None,
            result_deadline: None,
            mcp_server: None,
            task_id: None,
            input_round: None,
            polled_by: None,
            polled_until: None,
            progress: None,
            cancel_requested_at: None,
            output: None,
            result: None,
            created_at: now,
            finished_at: None,
            erased_at: None,
        };
        let decided = |row: &mut tool_call::Model, validated: bool, by: &str| {
            row.validated = Some(validated);
            row.decided_by = Some(by.to_owned());
            row.decided_at = Some(now);
        };
        match &call.judgement {
            Judgement::Cleared(..) if call.by_worker => {
                decided(&mut row, true, system::POLICY);
                row.state = StateKind::Approved.word().to_owned();
                row.start_deadline = Some(self.now.plus(times.start_deadline).as_micros());
            }
            Judgement::Cleared(..) => {
                decided(&mut row, true, system::POLICY);
                row.state = StateKind::Executing.word().to_owned();
                row.exec_id = Some(execution.id.to_string());
                row.exec_owner = Some(position.lease.holder.clone());
                row.exec_attempt = 1;
                row.started_at = Some(now);
                row.lease_until = Some(self.now.plus(times.lease).as_micros());
            }
            Judgement::Held { reason, source } => {
                // `validated` stays NULL until a decision.
                let expires_at = self.now.plus(times.pending_ttl);
                let rule = match source {
                    Source::Rule(name) => Some(name.as_str()),
                    _ => None,
                };
                if let Some(escalation) = times.escalation(rule) {
                    row.escalate_at = Some(self.now.plus(escalation.after).as_micros());
                    row.escalate_to = Some(json!(escalation.to).to_string());
                }
                row.remind_at = self.reminder(expires_at, times.remind_before).map(Timestamp::as_micros);
                row.state = StateKind::Pending.word().to_owned();
                row.held = true;
                row.listed_for = Some(position.lease.thread.user_id.clone());
                row.reason = Some(reason.clone());
                row.expires_at = Some(expires_at.as_micros());
            }
            Judgement::Blocked { reason, .. } => {
                decided(&mut row, false, system::POLICY);
                row.state = StateKind::Rejected.word().to_owned();
                row.reason = Some(reason.clone());
                row.result = Some(format!("{} {reason}.", model_texts::BLOCKED));
                row.finished_at = Some(now);
            }
            Judgement::Duplicate(_) => {
                decided(&mut row, false, system::DUPLICATE);
                row.state = StateKind::Cancelled.word().to_owned();
                row.result = Some(model_texts::DUPLICATE.to_owned());
                row.finished_at = Some(now);
            }
            Judgement::ExpiredBefore(_) => {
                decided(&mut row, false, system::DUPLICATE);
                row.state = StateKind::Cancelled.word().to_owned();
                row.result = Some(model_texts::EXPIRED_BEFORE.to_owned());
                row.finished_at = Some(now);
            }
            Judgement::RejectedBefore { reason, .. } => {
                decided(&mut row, false, system::REJECTED);
                row.state = StateKind::Rejected.word().to_owned();
                row.result = Some(repeated_rejection(reason.as_deref()));
                row.finished_at = Some(now);
            }
            Judgement::Invalid(why) => {
                decided(&mut row, false, system::INVALID);
                row.state = StateKind::Invalid.word().to_owned();
                row.result = Some(why.clone());
                row.finished_at = Some(now);
            }
        }
        row
    }
}

#[derive(Default)]
struct NewRows {
    calls: Vec<tool_call::Model>,
    decisions: Vec<decision::Model>,
    /// The calls that run at once.
    running: Vec<Running>,
}

/// A call that was stored as executing.
struct Running {
    id: ToolCallId,
    name: String,
    input: Input,
    execution: Execution,
}

/// Returns a number of turns as the database has it.
fn turns(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The position of a call in its thread.
struct CallPosition<'a> {
    lease: &'a Lease,
    n: i32,
    ordinal: i32,
    wire_call_id: String,
}
