//! The loop of a turn: step, calls, gate, then results or a hold.

mod asking;

use super::draft::DraftWriter;
use super::execution::{Executor, Ran};
use super::heartbeat::{Halt, Heartbeat, StartCommitted};
use super::history::{self, History};
use super::judge::{Judge, PendingCalls};
use super::previews::{self, MissingPreview, Previews};
use super::retry::persist;
use super::step::{ModelOutput, ProposedCall, StepEnd, Stopped};
use super::window::{self, Limits, Outline};
use crate::config::{self, Config};
use crate::entropy::Entropy;
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use holdpoint_core::call::ToolCall;
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::clock::Clock;
use holdpoint_core::message::{Part, StepStatus, Usage, Window};
use holdpoint_core::run::{TurnError, TurnErrorCode};
use holdpoint_core::turn::{FinishReason, HeldCallStatus, RenderedResult, SpentTokens, TurnEvent};
use holdpoint_models::{LanguageModel, ModelRequest, ToolChoice, ToolDefinition};
use holdpoint_store::permit::Permit;
use holdpoint_store::request_sender::InputRequests;
use holdpoint_store::{
    CommittedStep, Lease, LockedThread, NewStep, OpeningStep, Read, StepResult, Store, StoreError,
    Transcript, TurnEnd, Write,
};
use std::pin::pin;
use std::sync::Arc;

/// The agent, which runs turns.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    store: Store,
    pub(crate) executor: Executor,
    drafts: Arc<DraftWriter>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    model: config::Model,
    pub(crate) limits: config::Limits,
    times: CallTimes,
    /// The most tokens of a request to each model.
    pub(crate) windows: Arc<Limits>,
}

/// One turn: its lease, its model and its handler.
pub(crate) struct Turn<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) heartbeat: &'a Heartbeat,
    pub(crate) model: &'a dyn LanguageModel,
    /// Asks the handler of this process about the held calls of a step. Without a handler the turn ends at a
    /// hold.
    pub(crate) asks: Option<AskHandler<'a>>,
    /// Asks people on behalf of the tools that run.
    pub(crate) people: Arc<dyn InputRequests>,
}

/// Asks about held calls, and returns them with their status after the answers.
pub(crate) type AskHandler<'a> =
    &'a (dyn Fn(Vec<ToolCall>) -> BoxFuture<'a, Result<Vec<ToolCall>, StoreError>> + Send + Sync);

/// The end of a turn that did not fail.
pub(crate) struct EndedTurn {
    pub(crate) end: TurnEnd,
    pub(crate) reason: FinishReason,
    /// Whether the end was committed with the last step.
    pub(crate) is_committed: bool,
}

/// An open step, and its request to the model.
#[derive(Debug)]
struct OpenedStep {
    step: StepPlan,
    request: ModelRequest,
    /// The turns of the request.
    outline: Outline,
}

#[derive(Debug)]
pub(crate) struct FirstStep {
    opened: OpenedStep,
    /// The usage of the earlier steps of the answer, if reported.
    before: Option<Usage>,
    /// Whether the model reads no text about a call for the first time.
    seals_nothing: bool,
}

/// What a step of a turn may do.
#[derive(Debug, Clone, Copy)]
struct StepPlan {
    n: i32,
    /// The number of complete steps of the answer before this one.
    complete: usize,
    /// Whether the step comes after the last step that may call tools.
    last: bool,
    /// Whether the thread has calls. While the turn holds its lease, only the turn adds calls.
    has_calls: bool,
}

impl StepPlan {
    const fn tool_choice(self) -> ToolChoice {
        if self.last { ToolChoice::None } else { ToolChoice::Auto }
    }
}

/// The result of a try to commit a step.
enum Tried {
    Committed(CommittedStep),
    /// The previews of these held calls are missing, and nothing was committed.
    Lacks(Vec<MissingPreview>),
}

impl FirstStep {
    /// Whether the request to the model may leave before the commit that begins the turn. The model must read
    /// no text about a call that the commit may fail to seal.
    pub(crate) const fn may_leave_early(&self) -> bool {
        self.seals_nothing
    }

    #[expect(clippy::boxed_local, reason = "the memory of the box is free after the call")]
    fn begin(self: Box<Self>, spent: &mut SpentTokens) -> OpenedStep {
        spent.message = self.before;
        self.opened
    }
}

type Emit<'a> = &'a (dyn Fn(TurnEvent<'static>) + Sync);

impl Agent {
    pub(crate) fn new(
        executor: Executor,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        config: &Config,
    ) -> Self {
        Self {
            store: executor.store.clone(),
            drafts: DraftWriter::new(executor.store.clone(), executor.tasks.clone()),
            executor,
            clock,
            entropy,
            model: config.model.clone(),
            limits: config.limits.clone(),
            times: config.approval.times(),
            windows: Arc::new(Limits::new(config.model.context_tokens)),
        }
    }

    /// Runs a turn from its open first step to its end, which the caller emits, and commits unless the last
    /// step did. Adds the usage up to that end to `spent`. Returns `None` if the turn never began.
    pub(crate) async fn run(
        &self,
        turn: &Turn<'_>,
        first: Box<FirstStep>,
        start_committed: StartCommitted,
        spent: &mut SpentTokens,
        emit: Emit<'_>,
    ) -> Result<Option<EndedTurn>, TurnError> {
        match self.steps(turn, first, start_committed, spent, emit).await {
            Ok(ended) => Ok(Some(ended)),
            Err(Stopped::NotStarted) => Ok(None),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Halted(Halt::Lost)) => Err(TurnError::taken_over()),
            Err(Stopped::Halted(Halt::Leaving)) => Err(TurnError::interrupted()),
            Err(Stopped::Halted(Halt::Cancelled)) => {
                let reason = FinishReason::Other;
                Ok(Some(EndedTurn { end: TurnEnd::Cancelled, reason, is_committed: false }))
            }
        }
    }

    /// Runs the steps. Each is committed before it is emitted: a held call is a row before the stream reports it.
    // What a turn does beside reading from the model is boxed: the memory of a task is that of its largest future, and most
    // of its time a turn waits for the next token.
    async fn steps(
        &self,
        turn: &Turn<'_>,
        first: Box<FirstStep>,
        start_committed: StartCommitted,
        spent: &mut SpentTokens,
        emit: Emit<'_>,
    ) -> Result<EndedTurn, Stopped> {
        if let Some(halt) = turn.heartbeat.halt().now_or_never() {
            start_committed.await.map_err(|_| Stopped::NotStarted)?;
            return Err(Stopped::Halted(halt));
        }
        let (mut opened, mut start_committed) = (first.begin(spent), Some(start_committed));
        loop {
            let OpenedStep { step, mut request, mut outline } = opened;
            emit(TurnEvent::StepStarted);
            let called = Box::pin(self.call_model(turn, step.n, &request, emit));
            let (output, result) = match start_committed.take() {
                Some(start_committed) => after_start(called, start_committed).await?,
                None => called.await,
            };
            let (output, result, narrowed) = match result {
                Err(Stopped::Failed(error)) if error.is_context_full() && output.is_empty() => {
                    let (request, outline) = (&mut request, &mut outline);
                    Box::pin(self.call_with_less(turn, step.n, request, outline, error, emit)).await
                }
                result => (output, result, None),
            };
            if let Err(broke) = result {
                Box::pin(self.break_off(turn, step.n, output.parts)).await;
                return Err(broke);
            }
            let step_usage = output.end.as_ref().and_then(|end| end.usage);
            if let Some(usage @ Usage { input_tokens, output_tokens }) = step_usage {
                spent.add(usage);
                self.executor.metrics.tokens(turn.model.id(), input_tokens, output_tokens);
            }
            let (reason, committed) = Box::pin(self.commit(turn, step, output, narrowed)).await?;
            let CommittedStep { mut calls, permits, ended } = committed;
            self.emit_stored(&calls, emit);
            // Before the cleared calls run: a worker may end its call meanwhile, and the turn ends even so.
            let mut elsewhere = calls.iter().any(|call| call.ends_elsewhere() && call.end().is_none());
            if !permits.is_empty() {
                elsewhere |= Box::pin(self.run_cleared(turn, permits, emit)).await?;
                calls = Box::pin(self.decided(turn, calls)).await?;
            }

            let held: Vec<_> = calls.iter().filter(|call| call.held).map(HeldCallStatus::of).collect();
            let after_hold = !held.is_empty();
            let mut waits = elsewhere || after_hold;
            if after_hold {
                emit(TurnEvent::Held(held.clone()));
            }
            emit(TurnEvent::StepFinished { reason, usage: step_usage });
            if after_hold && let Some(asks) = turn.asks {
                let asked = Box::pin(self.ask_handler(turn, asks, calls.clone(), &held, emit));
                waits = asked.await? || elsewhere;
            }
            if let Some(end) = ended {
                return Ok(EndedTurn { end, reason, is_committed: true });
            }
            if waits {
                return Ok(EndedTurn { end: TurnEnd::Waiting, reason, is_committed: false });
            }
            if step.last {
                let message = "The model asked for tools again and again.".to_owned();
                return Err(TurnError { code: TurnErrorCode::StepLimit, message }.into());
            }
            if let Some(halt) = turn.heartbeat.halt().now_or_never() {
                return Err(Stopped::Halted(halt));
            }
            opened = Box::pin(self.open_next(turn, step, request, outline, after_hold)).await?;
        }
    }

    /// Asks the handler about the held calls of a step and emits the outcomes. Returns whether the turn still
    /// waits for a call.
    async fn ask_handler(
        &self,
        turn: &Turn<'_>,
        asks: AskHandler<'_>,
        mut calls: Vec<ToolCall>,
        emitted: &[HeldCallStatus],
        emit: Emit<'_>,
    ) -> Result<bool, Stopped> {
        calls.retain(|call| call.held);
        let current = tokio::select! {
            current = asks(calls) => current.map_err(internal)?,
            halt = turn.heartbeat.halt() => return Err(Stopped::Halted(halt)),
        };
        let waits = current.iter().any(|call| call.end().is_none());
        // Does not emit a pending status again: a client may show a decision that it has yet to send.
        let awaited = if waits {
            HeldCallStatus::changed(&current, emitted)
        } else {
            Some(current.iter().map(HeldCallStatus::of).collect())
        };
        if let Some(current) = awaited {
            emit(TurnEvent::Continued(current));
        }
        Ok(waits)
    }

    /// Opens the first step of a turn in the transaction that begins the turn. The input of the model is the history of
    /// the thread. The step of a turn that has no room fails.
    pub(crate) async fn open_first(
        &self,
        write: &Write,
        thread: &LockedThread,
        lease: &Lease,
        transcript: &Transcript,
        model: &dyn LanguageModel,
    ) -> Result<Result<Box<FirstStep>, TurnError>, StoreError> {
        if thread.extent.bytes >= self.limits.thread_bytes {
            return Ok(Err(TurnError::thread_full()));
        }
        if thread.is_deleted {
            return Ok(Err(TurnError::taken_over()));
        }
        let answer = lease.run.assistant_message_id;
        let steps = transcript.steps(answer);
        let complete = steps.iter().filter(|step| step.status == StepStatus::Complete).count();
        let before = steps.iter().filter_map(|step| step.usage).reduce(Usage::plus);
        let n = i32::try_from(steps.len()).unwrap_or(i32::MAX);
        let history = history::project(transcript, answer, steps.is_empty(), model.origin());
        let last = complete >= self.model.max_steps;
        let step = StepPlan { n, complete, last, has_calls: transcript.has_calls() };
        let own = lease.run.options.instructions.clone();
        let system = own.or_else(|| self.model.system_prompt.clone());
        let tools = self.tools_of(lease);
        let History { messages, seals, mut outline } = history;
        let mut request = ModelRequest { system, messages, tools, tool_choice: step.tool_choice() };
        let overhead = window::overhead(&request);
        let window = outline.fit(&mut request.messages, self.windows.of(model.id()), overhead);
        let new = OpeningStep { n, origin: model.origin(), window, seals: &seals };
        write.open_step(&lease.run, &new).await?;
        let opened = OpenedStep { step, request, outline };
        Ok(Ok(Box::new(FirstStep { opened, before, seals_nothing: seals.is_empty() })))
    }

    /// Opens the step after this one, which is complete. One transaction adds that step to the input of the model, and
    /// records the texts that the model reads for the first time.
    async fn open_next(
        &self,
        turn: &Turn<'_>,
        done: StepPlan,
        mut request: ModelRequest,
        outline: Outline,
        after_hold: bool,
    ) -> Result<OpenedStep, TurnError> {
        let open = async {
            let write = self.store.write().await?;
            let Some(held) = write.lock_turn(turn.lease).await? else {
                return Ok(Err(TurnError::taken_over()));
            };
            if held.thread.extent.bytes >= self.limits.thread_bytes {
                return Ok(Err(TurnError::thread_full()));
            }
            let added = write.step_of(&held, done.n).await?;
            let added = added.map(|step| history::project_step(&step, turn.model.origin()));
            let History { messages, seals, .. } = added.unwrap_or_default();
            let (n, complete) = (done.n.saturating_add(1), done.complete.saturating_add(1));
            // A turn continues only after a step with calls.
            let step = StepPlan { n, complete, last: complete >= self.model.max_steps, has_calls: true };
            // The window is that of the first step.
            let window = Window::default();
            let new = OpeningStep { n, origin: turn.model.origin(), window, seals: &seals };
            write.open_step(&turn.lease.run, &new).await?;
            if after_hold {
                // The mark was about the holds before this step. A turn that lost its lease keeps the mark:
                // another turn has to resume.
                write.clear_server_resumes(&held.thread, turn.lease.run.id).await?;
            }
            write.commit().await?;
            request.messages.extend(messages);
            request.tools = self.tools_of(turn.lease);
            request.tool_choice = step.tool_choice();
            Ok::<_, StoreError>(Ok(OpenedStep { step, request, outline }))
        };
        open.await.map_err(internal)?
    }

    fn tools_of(&self, lease: &Lease) -> Vec<Arc<ToolDefinition>> {
        let gate = self.executor.gate();
        let offered = gate
            .registry()
            .registered()
            .map(|tool| &tool.definition)
            .filter(|tool| lease.run.options.offers(&tool.name));
        offered.cloned().collect()
    }

    /// Judges the calls of a step, and commits the step with them. Held calls of tools with previews are
    /// stored with their previews.
    async fn commit(
        &self,
        turn: &Turn<'_>,
        step: StepPlan,
        output: ModelOutput,
        narrowed: Option<Window>,
    ) -> Result<(FinishReason, CommittedStep), Stopped> {
        let ModelOutput { parts, calls, end, .. } = output;
        let end = end.unwrap_or(StepEnd { reason: FinishReason::Other, usage: None, provider_state: None });
        // Providers disagree about the reason. Only the presence of calls counts.
        let reason = if calls.is_empty() { end.reason } else { FinishReason::ToolCalls };
        let result = StepResult {
            parts,
            reason,
            usage: end.usage,
            origin: turn.model.origin().to_owned(),
            provider_state: end.provider_state,
            narrowed,
        };
        let (mut previews, requester) = (Previews::new(), turn.lease.thread.requester());
        loop {
            let missing = match self.try_commit(turn, step, &result, &calls, &previews).await? {
                Tried::Committed(committed) => return Ok((reason, committed)),
                Tried::Lacks(missing) => missing,
            };
            let gate = self.executor.gate();
            tokio::select! {
                made = previews::make(&gate, &requester, missing) => previews.extend(made),
                halt = turn.heartbeat.halt() => {
                    self.break_off(turn, step.n, result.parts).await;
                    return Err(Stopped::Halted(halt));
                }
            }
        }
    }

    /// Commits a step, unless previews of its held calls are missing.
    async fn try_commit(
        &self,
        turn: &Turn<'_>,
        StepPlan { n, last, has_calls, .. }: StepPlan,
        result: &StepResult,
        calls: &[ProposedCall],
        previews: &Previews,
    ) -> Result<Tried, Stopped> {
        // A commit that ends the turn is retried: it starts no tool, and its outcome can be looked up.
        let commit = || async {
            let write = self.store.write().await?;
            let Some(held) = write.lock_turn(turn.lease).await? else {
                let found = find_end(&write, turn, n).await?;
                return Ok(found.map(Tried::Committed).ok_or_else(|| TurnError::taken_over().into()));
            };
            if !calls.is_empty() && held.is_cancel_requested {
                // No call begins, and no call is held.
                let broken = broken_off(turn, result.parts.clone());
                write.break_step(&held, n, &broken).await?;
                let broken = write.commit().await.map_err(|error| internal(error).into());
                return Ok(broken.and(Err(Stopped::Halted(Halt::Cancelled))));
            }
            let (mut earlier, gate) = (PendingCalls::none_at(write.now()), self.executor.gate());
            if !calls.is_empty() {
                earlier.find(&gate, &write, &held, calls, has_calls).await?;
            }
            let judge = Judge { gate: &gate, limits: &self.limits, lease: turn.lease, last, previews };
            let calls = calls.iter().cloned().enumerate();
            let calls: Vec<_> =
                calls.map(|(ordinal, call)| judge.judge(ordinal, call, &mut earlier)).collect();
            let missing = previews::missing(&gate, &calls);
            if !missing.is_empty() {
                return Ok(Ok(Tried::Lacks(missing)));
            }
            earlier.count_uses(&write).await?;
            let (earlier, may_wait) = (earlier.into_earlier(), turn.asks.is_none());
            let step = NewStep { n, result, calls, earlier };
            match write.commit_step(&held, step, &self.times, may_wait).await {
                Err(error) if !turn.lease.may_have_ended() => Ok(Err(internal(error).into())),
                committed => committed.map(|committed| Ok(Tried::Committed(committed))),
            }
        };
        let commit = || async {
            match commit().await {
                Err(error) if !error.is_unavailable() && !turn.lease.may_have_ended() => {
                    Ok(Err(internal(error).into()))
                }
                tried => tried,
            }
        };
        persist(self.times.lease, commit).await.map_err(internal)?.value
    }

    /// Emits the stored calls, and the end of each call that ended with the commit.
    fn emit_stored(&self, calls: &[ToolCall], emit: Emit<'_>) {
        for call in calls {
            let (tool_call_id, tool_name) = (call.id, call.name.clone());
            emit(TurnEvent::CallStored { tool_call_id, tool_name, input: call.shown_input() });
        }
        for call in calls {
            if let Some(shown) = RenderedResult::of(call) {
                emit(TurnEvent::CallEnded { tool_call_id: call.id, result: shown });
            }
        }
    }

    /// Returns the held calls of the step with their current status. A call may have been decided meanwhile,
    /// and must not be emitted as pending. Returns `calls` unchanged if none is held.
    async fn decided(&self, turn: &Turn<'_>, calls: Vec<ToolCall>) -> Result<Vec<ToolCall>, TurnError> {
        if !calls.iter().any(|call| call.held) {
            return Ok(calls);
        }
        let read = async {
            let read = self.store.read().await?;
            read.held_calls(turn.lease.run.assistant_message_id).await
        };
        read.await.map_err(internal)
    }

    /// Runs the permitted calls concurrently and emits their results. If the turn has to end, the calls
    /// continue without it. Returns whether a child run executes one of them.
    async fn run_cleared(
        &self,
        turn: &Turn<'_>,
        permits: Vec<Permit>,
        emit: Emit<'_>,
    ) -> Result<bool, Stopped> {
        let mut running: FuturesUnordered<_> = permits
            .into_iter()
            .map(|permit| {
                let (executor, tool_call_id) = (self.executor.clone(), permit.tool_call_id());
                let people = turn.people.clone();
                let task = self.executor.tasks.spawn(async move { executor.run(permit, people, None).await });
                async move { (tool_call_id, task.await) }
            })
            .collect();
        let halt = turn.heartbeat.halt();
        tokio::pin!(halt);
        let (mut failed, mut delegated) = (None, false);
        loop {
            let next = tokio::select! {
                next = running.next() => next,
                halt = &mut halt => return Err(Stopped::Halted(halt)),
            };
            let Some((tool_call_id, settled)) = next else { break };
            let state = match settled {
                Ok(Ok(Ran::Ended(state))) => state,
                Ok(Ok(Ran::Delegated)) => {
                    delegated = true;
                    continue;
                }
                // The call has not ended: it will begin again, and its outcome is emitted later.
                Ok(Ok(Ran::Again)) => continue,
                // Not emitted, because the outcome is not stored.
                Ok(Err(error)) => {
                    failed = Some(internal(error));
                    continue;
                }
                Err(_broken) => {
                    failed = Some(TurnError::internal());
                    continue;
                }
            };
            if let Some(result) = RenderedResult::of_execution(&state) {
                emit(TurnEvent::CallEnded { tool_call_id, result });
            }
        }
        failed.map_or(Ok(delegated), |error| Err(error.into()))
    }

    /// Stores the output of a step that broke off.
    async fn break_off(&self, turn: &Turn<'_>, n: i32, parts: Vec<Part>) {
        let result = broken_off(turn, parts);
        let write = async {
            let write = self.store.write().await?;
            let Some(held) = write.lock_turn(turn.lease).await? else { return Ok(false) };
            write.break_step(&held, n, &result).await?;
            write.commit().await?;
            Ok::<_, StoreError>(true)
        };
        let run_id = turn.lease.run.id;
        match write.await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(%run_id, "a turn without its lease had more output"),
            Err(error) => tracing::error!(%run_id, %error, "could not store the output of a broken-off step"),
        }
    }
}

/// Returns the step with which this turn ended, if the database did not confirm that commit.
async fn find_end(read: &Read, turn: &Turn<'_>, n: i32) -> Result<Option<CommittedStep>, StoreError> {
    if !turn.lease.may_have_ended() {
        return Ok(None);
    }
    let Some(end) = read.ended_as(turn.lease, TurnEnd::Completed).await? else { return Ok(None) };
    let calls = read.calls_of_step(turn.lease.run.assistant_message_id, n).await?;
    Ok(Some(CommittedStep { calls, permits: Vec::new(), ended: Some(end) }))
}

/// Returns the output of the model once the turn has started. Drops the request if the turn never begins.
async fn after_start<T>(
    called: impl Future<Output = T>,
    start_committed: StartCommitted,
) -> Result<T, Stopped> {
    let never = |_| Stopped::NotStarted;
    match select(pin!(called), start_committed).await {
        Either::Left((output, start_committed)) => start_committed.await.map(|()| output).map_err(never),
        Either::Right((Ok(()), called)) => Ok(called.await),
        Either::Right((Err(error), _)) => Err(never(error)),
    }
}

/// Returns the part of a broken-off step that is stored.
fn broken_off(turn: &Turn<'_>, mut parts: Vec<Part>) -> StepResult {
    // A call that was never stored does not count as a call.
    parts.retain(|part| !matches!(part, Part::ToolCall { .. }));
    StepResult {
        parts,
        reason: FinishReason::Error,
        usage: None,
        origin: turn.model.origin().to_owned(),
        provider_state: None,
        narrowed: None,
    }
}

/// Converts a fault of this server to the error that clients read.
fn internal(error: StoreError) -> TurnError {
    tracing::error!(%error, "a turn failed");
    TurnError::internal()
}
