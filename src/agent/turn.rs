//! The loop: step, calls, gate, results or a hold.

use super::execution::run_and_settle;
use super::history;
use super::step::{self, AskedCall, Said, StepEnd};
use crate::config;
use crate::domain::call::{State, ToolCall, words};
use crate::domain::clock::Clock;
use crate::domain::message::Part;
use crate::domain::message::Usage;
use crate::domain::permit::Permit;
use crate::domain::policy::Judgement;
use crate::domain::run::{TurnError, TurnErrorCode};
use crate::domain::turn::{FinishReason, Shown, TurnEvent};
use crate::llm::{LanguageModel, ModelRequest, ToolDefinition};
use crate::store::{Lease, NewCall, StepResult, Store, StoreError, TurnEnd};
use crate::tools::gate::Gate;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// What runs turns.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) store: Store,
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<dyn Clock>,
    /// Owns running tools, so that nothing that goes away takes one with it.
    pub(crate) tasks: TaskTracker,
    pub(crate) model: config::Model,
    pub(crate) limits: config::Limits,
    pub(crate) approval: config::Approval,
}

/// One turn: whose, and with what.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) model: &'a dyn LanguageModel,
}

/// How a turn ended well.
pub(crate) struct Ended {
    pub(crate) end: TurnEnd,
    pub(crate) reason: FinishReason,
    pub(crate) usage: Usage,
}

type Say<'a> = &'a (dyn Fn(TurnEvent) + Sync);

impl Agent {
    /// Runs a turn up to its end, which the caller commits and tells.
    pub(crate) async fn run(&self, turn: &Turn<'_>, say: Say<'_>) -> Result<Ended, TurnError> {
        let mut usage = Usage::default();
        loop {
            let (n, request) = self.open(turn).await?;
            let last = self.is_last(n);
            say(TurnEvent::StepStarted { message_id: turn.lease.run.assistant_message_id });
            let (said, result) = self.ask(turn.model, request, say).await;
            let step = i32::try_from(n).unwrap_or(i32::MAX);
            if let Err(error) = result {
                self.break_off(turn, step, said).await?;
                return Err(error);
            }
            let step_usage = said.end.as_ref().and_then(|end| end.usage);
            usage = usage.plus(step_usage.unwrap_or_default());
            let (reason, calls, permits) = self.commit(turn, step, said).await?;
            self.settle_ungated(&calls, permits, say).await?;

            let held = calls.iter().filter(|call| call.held);
            let holds: Vec<_> = held.map(|call| (call.id, call.state.validation_word())).collect();
            let waits = !holds.is_empty();
            if waits {
                say(TurnEvent::Validations(holds));
            }
            say(TurnEvent::StepFinished { reason, usage: step_usage });
            if waits {
                return Ok(Ended { end: TurnEnd::Waiting, reason, usage });
            }
            if calls.is_empty() {
                return Ok(Ended { end: TurnEnd::Completed, reason, usage });
            }
            if last {
                return Err(TurnError {
                    code: TurnErrorCode::StepLimit,
                    message: "The model asked for tools again and again.".to_owned(),
                });
            }
        }
    }

    /// Whether a step comes after all that may have tools.
    fn is_last(&self, n: usize) -> bool {
        n >= self.model.max_steps
    }

    async fn ask(
        &self,
        model: &dyn LanguageModel,
        request: ModelRequest,
        say: Say<'_>,
    ) -> (Said, Result<(), TurnError>) {
        let (silence, bytes) = (self.model.idle_timeout, self.limits.args_bytes);
        step::ask(model, request, silence, bytes, self.clock.as_ref(), say).await
    }

    /// Opens the next step: what the model will be told is computed and recorded in one transaction.
    async fn open(&self, turn: &Turn<'_>) -> Result<(usize, ModelRequest), TurnError> {
        let open = async {
            let write = self.store.write().await?;
            let transcript = write.transcript(&turn.lease.thread).await?;
            let answer = turn.lease.run.assistant_message_id;
            let steps = transcript.messages.iter().find(|message| message.id == answer);
            let n = steps.map_or(0, |message| message.steps().len());
            let history = history::project(&transcript, answer, n == 0, turn.model.provider());
            let number = i32::try_from(n).unwrap_or(i32::MAX);
            let opened = write.open_step(turn.lease, number, &history.seals).await?;
            write.commit().await?;
            Ok::<_, StoreError>(opened.then_some((n, history.messages)))
        };
        let Some((n, messages)) = open.await.map_err(internal)? else { return Err(TurnError::taken_over()) };
        let tools = if self.is_last(n) { Vec::new() } else { self.offered(turn) };
        Ok((n, ModelRequest { system: self.model.system_prompt.clone(), messages, tools }))
    }

    fn offered(&self, turn: &Turn<'_>) -> Vec<Arc<ToolDefinition>> {
        let specs = self.gate.registry().specs();
        specs
            .filter(|spec| turn.lease.run.options.offers(&spec.name))
            .map(|spec| {
                Arc::new(ToolDefinition {
                    name: spec.name.clone(),
                    description: spec.description.clone(),
                    input_schema: spec.input_schema.clone(),
                })
            })
            .collect()
    }

    /// Judges the calls of a step and commits it with them.
    async fn commit(
        &self,
        turn: &Turn<'_>,
        n: i32,
        said: Said,
    ) -> Result<(FinishReason, Vec<ToolCall>, Vec<Permit>), TurnError> {
        let Said { parts, calls, end } = said;
        let end = end.unwrap_or(StepEnd { reason: FinishReason::Other, usage: None, provider_state: None });
        // Providers disagree about the reason; what counts is whether there are calls.
        let reason = if calls.is_empty() { end.reason } else { FinishReason::ToolCalls };
        let result = StepResult {
            parts,
            reason,
            usage: end.usage,
            provider: turn.model.provider().to_owned(),
            provider_state: end.provider_state,
        };
        let commit = async {
            let write = self.store.write().await?;
            let mut pending = write.pending_count(&turn.lease.thread).await?;
            let calls = calls
                .into_iter()
                .enumerate()
                .map(|(ordinal, call)| self.judge(turn, (n, ordinal), call, &mut pending))
                .collect();
            write.commit_step(turn.lease, n, &result, calls, &self.approval).await
        };
        let committed = commit.await.map_err(internal)?;
        let (calls, permits) = committed.ok_or_else(TurnError::taken_over)?;
        Ok((reason, calls, permits))
    }

    fn judge(&self, turn: &Turn<'_>, place: (i32, usize), call: AskedCall, pending: &mut u64) -> NewCall {
        let (step, ordinal) = place;
        let last = usize::try_from(step).is_ok_and(|n| self.is_last(n));
        let offered = |name: &str| !last && turn.lease.run.options.offers(name);
        let judged = self.gate.judge(&call.name, &call.arguments, offered);
        let limit = |why: String| Judgement::Invalid(format!("{why} The tool did not run."));
        let judgement = if ordinal >= self.limits.calls_per_step {
            limit(format!("More than {} calls in one step.", self.limits.calls_per_step))
        } else if !call.whole {
            limit("The call broke off before its arguments were complete.".to_owned())
        } else {
            match judged.judgement {
                Judgement::Held(_) if *pending >= self.limits.pending_per_thread => {
                    limit(format!("{} calls of this conversation wait for approval already.", *pending))
                }
                Judgement::Held(reason) => {
                    *pending += 1;
                    Judgement::Held(reason)
                }
                other => other,
            }
        };
        let arguments = if call.arguments.trim().is_empty() { "{}".to_owned() } else { call.arguments };
        NewCall {
            id: call.id,
            provider_call_id: call.provider_call_id,
            name: call.name,
            arguments,
            input: judged.input,
            schema_hash: judged.schema_hash,
            idempotent: judged.idempotent,
            risk: judged.risk,
            judgement,
        }
    }

    /// Tells the stored calls and runs those that were cleared, side by side.
    async fn settle_ungated(
        &self,
        calls: &[ToolCall],
        permits: Vec<Permit>,
        say: Say<'_>,
    ) -> Result<(), TurnError> {
        for call in calls {
            say(TurnEvent::CallStored {
                tool_call_id: call.id,
                tool_name: call.name.clone(),
                input: call.input.clone(),
            });
        }
        for call in calls.iter().filter(|call| matches!(call.state, State::Invalid(_))) {
            if let Some(shown) = Shown::of(call) {
                say(TurnEvent::CallEnded { tool_call_id: call.id, shown });
            }
        }
        let mut running: FuturesUnordered<_> = permits
            .into_iter()
            .map(|permit| {
                let (store, gate, tool_call_id) =
                    (self.store.clone(), self.gate.clone(), permit.tool_call_id());
                let task = self.tasks.spawn(async move { run_and_settle(&store, &gate, permit).await });
                async move { (tool_call_id, task.await) }
            })
            .collect();
        let mut failed = None;
        while let Some((tool_call_id, settled)) = running.next().await {
            let shown = match settled {
                Ok(Ok(Some(shown))) => shown,
                Ok(Ok(None)) | Err(_) => Shown::Error(words::INTERRUPTED.to_owned()),
                // Not told: what became of it is not written.
                Ok(Err(error)) => {
                    failed = Some(internal(error));
                    continue;
                }
            };
            say(TurnEvent::CallEnded { tool_call_id, shown });
        }
        failed.map_or(Ok(()), Err)
    }

    /// Keeps what there is of a step that broke off.
    async fn break_off(&self, turn: &Turn<'_>, n: i32, said: Said) -> Result<(), TurnError> {
        let parts = said.parts.into_iter().filter(|part| {
            // A call that was never stored is no call.
            !matches!(part, Part::ToolCall { .. })
        });
        let result = StepResult {
            parts: parts.collect(),
            reason: FinishReason::Error,
            usage: None,
            provider: turn.model.provider().to_owned(),
            provider_state: None,
        };
        let write = async {
            let write = self.store.write().await?;
            write.break_step(&turn.lease.run, n, &result).await?;
            write.commit().await
        };
        write.await.map_err(internal)
    }
}

/// A fault of this server, as clients read it.
fn internal(error: StoreError) -> TurnError {
    tracing::error!(%error, "a turn failed");
    TurnError::internal()
}
