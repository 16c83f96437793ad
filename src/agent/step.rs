//! One model call: collects the output to store and emits it live.

use super::draft::{Drafts, Length};
use super::heartbeat::{Halt, Heartbeat};
use super::retry::backoff;
use crate::config;
use crate::entropy::Entropy;
use crate::tools::gate::Gate;
use futures::StreamExt;
use holdpoint_core::clock::Clock;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::json::nesting::Nesting;
use holdpoint_core::message::{File, Part, Source, Usage};
use holdpoint_core::run::{TurnError, TurnErrorCode};
use holdpoint_core::text::without_nul;
use holdpoint_core::turn::{FinishReason, TurnEvent};
use holdpoint_metrics::Metrics;
use holdpoint_models::{CALLS_MAX, LanguageModel, ModelError, ModelEvent, ModelRequest};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// The limit on text, reasoning and files, in bytes. Only a broken server sends more.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The limit on the emitted sources of a step. No user looks at more.
const SOURCES_MAX: usize = 256;
/// Signs of life extend `idle_timeout` up to this factor: some models think for a long time, and some servers
/// never end.
const ALIVE_TIMES: u32 = 10;
/// A model that asks for a longer pause is not called again, because a user is waiting.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ModelOutput {
    pub(super) parts: Vec<Part>,
    pub(super) calls: Vec<ProposedCall>,
    pub(super) end: Option<StepEnd>,
    /// Bytes of text, reasoning and files so far.
    output_bytes: usize,
    /// The URLs of the sources so far.
    named: HashSet<String>,
    /// Sources that are not emitted yet.
    sources: Vec<Source>,
}

#[derive(Debug)]
pub(super) struct StepEnd {
    pub(super) reason: FinishReason,
    pub(super) usage: Option<Usage>,
    pub(super) provider_state: Option<Value>,
}

/// A call as the model proposed it.
#[derive(Debug, Clone)]
pub(super) struct ProposedCall {
    pub(super) id: ToolCallId,
    pub(super) provider_call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The nesting of the emitted arguments.
    nesting: Nesting,
    /// Whether the tool has secret inputs, so that no piece of the arguments is emitted.
    has_secrets: bool,
    /// Whether the model completed the call.
    pub(super) complete: bool,
}

/// The reason why a turn stops.
#[derive(Debug)]
pub(super) enum Stopped {
    Failed(TurnError),
    /// The turn has to end.
    Halted(Halt),
    /// The transaction that begins the turn was not committed.
    NotStarted,
}

impl From<TurnError> for Stopped {
    fn from(error: TurnError) -> Self {
        Self::Failed(error)
    }
}

/// The settings of a model call.
pub(super) struct ModelCaller<'a> {
    pub(super) model: &'a dyn LanguageModel,
    /// The timeouts, and the number of retries.
    pub(super) timeouts: &'a config::Model,
    pub(super) limits: &'a config::Limits,
    pub(super) gate: &'a Gate,
    pub(super) clock: &'a dyn Clock,
    pub(super) entropy: &'a dyn Entropy,
    pub(super) heartbeat: &'a Heartbeat,
    pub(super) metrics: &'a Metrics,
}

/// Calls the model and emits its output live. Returns the output even if the call fails.
pub(super) async fn call_model(
    with: &ModelCaller<'_>,
    request: &ModelRequest,
    drafts: &mut Drafts,
    emit: &(dyn Fn(TurnEvent<'static>) + Sync),
) -> (ModelOutput, Result<(), Stopped>) {
    let mut output = ModelOutput::default();
    // A halt drops the model's stream, and with it the request.
    let result = tokio::select! {
        result = with.call_with_retry(request, &mut output, drafts, emit) => result.map_err(Stopped::Failed),
        halt = with.heartbeat.halt() => Err(Stopped::Halted(halt)),
    };
    output.emit_sources(emit);
    (output, result)
}

impl ModelCaller<'_> {
    /// Retries while the model is unavailable, as long as no output has been emitted.
    async fn call_with_retry(
        &self,
        request: &ModelRequest,
        output: &mut ModelOutput,
        drafts: &mut Drafts,
        emit: &(dyn Fn(TurnEvent<'static>) + Sync),
    ) -> Result<(), TurnError> {
        for pause in backoff(self.timeouts.retries, self.entropy) {
            let (why, retry_after) = match self.attempt(request, output, drafts, emit).await {
                Err(Failure::Model(ModelError::Unavailable { why, retry_after })) => (why, retry_after),
                other => return other.map_err(TurnError::from),
            };
            let requested = retry_after.unwrap_or_default();
            if !output.is_empty() || requested > RETRY_AFTER_MAX {
                return Err(model_failure(&ModelError::Unavailable { why, retry_after }));
            }
            let pause = pause.saturating_add(requested);
            tracing::info!(%why, ?pause, "the model is unavailable; retrying");
            tokio::time::sleep(pause).await;
            self.metrics.model_retried(self.model.provider());
        }
        self.attempt(request, output, drafts, emit).await.map_err(TurnError::from)
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        output: &mut ModelOutput,
        drafts: &mut Drafts,
        emit: &(dyn Fn(TurnEvent<'static>) + Sync),
    ) -> Result<(), Failure> {
        let mut timed = TimedCall::begin(self);
        let span = tracing::error_span!(
            "model",
            model = self.model.id(),
            otel.name = format_args!("chat {}", self.model.id()),
            otel.kind = "client",
            otel.status_code = Empty,
            error.type = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = self.model.provider(),
            gen_ai.request.model = self.model.id(),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
        );
        let read = self.read_stream(request, output, drafts, emit, &mut timed, &span).await;
        if let Some(usage) = output.end.as_ref().and_then(|end| end.usage) {
            // Unsigned numbers would be exported as strings.
            let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            span.record("gen_ai.usage.input_tokens", signed(usage.input_tokens));
            span.record("gen_ai.usage.output_tokens", signed(usage.output_tokens));
        }
        if let Err(failure) = &read {
            span.record("otel.status_code", "ERROR").record("error.type", failure.outcome());
        }
        timed.outcome = read.as_ref().map_or_else(Failure::outcome, |()| "completed");
        read
    }

    async fn read_stream(
        &self,
        request: &ModelRequest,
        output: &mut ModelOutput,
        drafts: &mut Drafts,
        emit: &(dyn Fn(TurnEvent<'static>) + Sync),
        timed: &mut TimedCall<'_>,
        span: &Span,
    ) -> Result<(), Failure> {
        let mut stream = self.model.stream(request);
        let mut limit = self.timeouts.first_byte_timeout;
        let mut last_output = Instant::now();
        // The request needs the span of the call. The events do not, and to enter it for each of them costs time.
        let mut span = span.clone();
        loop {
            let next = stream.next().instrument(std::mem::replace(&mut span, Span::none()));
            let next = tokio::time::timeout(limit, next);
            tokio::pin!(next);
            let next = loop {
                tokio::select! {
                    biased;
                    // A draft is also due while the model pauses.
                    () = drafts.due(output.length()) => drafts.write(output.length(), output.parts.clone()),
                    next = &mut next => break next,
                }
            };
            limit = self.timeouts.idle_timeout;
            if let Ok(Some(Ok(_))) = &next {
                timed.responded();
            }
            match next.map_err(|_elapsed| Failure::Silent)? {
                Some(Ok(ModelEvent::Alive)) => {
                    if last_output.elapsed() > limit.saturating_mul(ALIVE_TIMES) {
                        return Err(Failure::Silent);
                    }
                }
                Some(event) => {
                    output.apply(event?, self, emit)?;
                    last_output = Instant::now();
                }
                None if output.end.is_some() => return Ok(()),
                None => return Err(ModelError::Malformed("no end".to_owned()).into()),
            }
        }
    }
}

/// The clock of a model call. A halt drops it, and the call then counts as cancelled.
struct TimedCall<'a> {
    metrics: &'a Metrics,
    provider: &'a str,
    started: Instant,
    has_responded: bool,
    outcome: &'static str,
}

impl<'a> TimedCall<'a> {
    fn begin(with: &ModelCaller<'a>) -> Self {
        let (metrics, provider) = (with.metrics, with.model.provider());
        Self { metrics, provider, started: Instant::now(), has_responded: false, outcome: "cancelled" }
    }

    fn responded(&mut self) {
        if !self.has_responded {
            self.has_responded = true;
            self.metrics.model_began(self.provider, self.started.elapsed());
        }
    }
}

impl Drop for TimedCall<'_> {
    fn drop(&mut self) {
        self.metrics.model_ended(self.provider, self.outcome, self.started.elapsed());
    }
}

/// The reason why a model call failed.
enum Failure {
    Model(ModelError),
    Silent,
    /// The output is invalid.
    Turn(TurnError),
}

impl Failure {
    /// Returns the name of the failure, for metrics.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Model(ModelError::Unavailable { .. }) => "unavailable",
            Self::Silent => TurnErrorCode::UpstreamTimeout.word(),
            Self::Model(ModelError::Upstream(_)) => TurnErrorCode::UpstreamError.word(),
            Self::Model(ModelError::ContextFull(_)) => TurnErrorCode::ContextFull.word(),
            Self::Model(ModelError::Malformed(_)) => TurnErrorCode::UpstreamMalformed.word(),
            Self::Turn(error) => error.code.word(),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<TurnError> for Failure {
    fn from(error: TurnError) -> Self {
        Self::Turn(error)
    }
}

impl From<Failure> for TurnError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Model(error) => model_failure(&error),
            Failure::Silent => silent(),
            Failure::Turn(error) => error,
        }
    }
}

impl ModelOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn length(&self) -> Length {
        Length { parts: self.parts.len(), bytes: self.output_bytes }
    }

    fn apply(
        &mut self,
        event: ModelEvent,
        ModelCaller { limits, gate, clock, .. }: &ModelCaller<'_>,
        emit: &(dyn Fn(TurnEvent<'static>) + Sync),
    ) -> Result<(), TurnError> {
        match event {
            ModelEvent::Alive => {}
            // An empty delta is the same as no delta.
            ModelEvent::Text(delta) | ModelEvent::Reasoning(delta) if delta.is_empty() => {}
            ModelEvent::Text(delta) => {
                let delta = as_stored(delta);
                self.count(delta.len())?;
                if let Some(Part::Text { text }) = self.parts.last_mut() {
                    text.push_str(&delta);
                } else {
                    self.emit_sources(emit);
                    self.parts.push(Part::Text { text: delta.clone() });
                }
                emit(TurnEvent::Text(delta.into()));
            }
            ModelEvent::Reasoning(delta) => {
                let delta = as_stored(delta);
                self.count(delta.len())?;
                if let Some(Part::Reasoning { text }) = self.parts.last_mut() {
                    text.push_str(&delta);
                } else {
                    self.emit_sources(emit);
                    self.parts.push(Part::Reasoning { text: delta.clone() });
                }
                emit(TurnEvent::Reasoning(delta.into()));
            }
            ModelEvent::Source { url, title } => {
                if let Some(source) = Source::new(&url, title)
                    && self.named.len() < SOURCES_MAX
                    && self.named.insert(source.url.clone())
                {
                    self.sources.push(source);
                    if !matches!(self.parts.last(), Some(Part::Text { .. } | Part::Reasoning { .. })) {
                        self.emit_sources(emit);
                    }
                }
            }
            ModelEvent::File { media_type, data } => {
                if let Some(file) = File::new(&media_type, &data) {
                    self.count(file.url.len())?;
                    self.emit_sources(emit);
                    self.parts.push(Part::File(file.clone()));
                    emit(TurnEvent::File(file));
                }
            }
            ModelEvent::CallStarted { index, provider_call_id, tool_name } => {
                if index != self.calls.len() || index >= CALLS_MAX {
                    let why = format!("call {index} after {} calls", self.calls.len());
                    return Err(model_failure(&ModelError::Malformed(why)));
                }
                self.emit_sources(emit);
                let id = ToolCallId::new(clock.uuid());
                self.parts.push(Part::ToolCall { tool_call_id: id });
                self.calls.push(ProposedCall {
                    id,
                    provider_call_id,
                    name: tool_name.clone(),
                    arguments: String::new(),
                    nesting: Nesting::default(),
                    has_secrets: gate.has_secrets(&tool_name),
                    complete: false,
                });
                emit(TurnEvent::CallStarted { tool_call_id: id, tool_name });
            }
            ModelEvent::CallArguments { index, mut delta } => {
                let call = self.call(index)?;
                // One byte over the limit is enough for the gate to refuse the call. The arguments of a call
                // over the number of calls are not read.
                let most =
                    if index < limits.calls_per_step { limits.args_bytes.saturating_add(1) } else { 0 };
                let room = most.saturating_sub(call.arguments.len());
                delta.truncate(delta.ceil_char_boundary(room));
                call.arguments.push_str(&delta);
                // Clients parse the arguments as they arrive, and endless nesting crashes them. The gate
                // refuses such arguments.
                delta.truncate(call.nesting.within(&delta, limits.json_depth).len());
                // Pieces cannot be masked. The stored inputs follow.
                if !delta.is_empty() && !call.has_secrets {
                    let tool_call_id = call.id;
                    emit(TurnEvent::CallArguments { tool_call_id, delta: delta.into() });
                }
            }
            ModelEvent::CallFinished { index } => self.call(index)?.complete = true,
            ModelEvent::Finished { reason, usage, provider_state } => {
                // A reason of the server's own cuts nothing off.
                if matches!(reason, FinishReason::Length | FinishReason::ContentFilter) {
                    self.cut_off();
                }
                self.end = Some(StepEnd { reason, usage, provider_state });
            }
        }
        Ok(())
    }

    /// Handles an output that did not end by itself. Unreadable arguments, and missing arguments of the last
    /// call, may have been cut off. In any other output the model meant them, and the gate reports the error.
    fn cut_off(&mut self) {
        let last = self.calls.len().saturating_sub(1);
        for (position, call) in self.calls.iter_mut().enumerate() {
            let blank = call.arguments.trim().is_empty();
            let readable = serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok();
            call.complete &= readable || blank && position != last;
        }
    }

    /// Emits the sources that arrived within a text after that text: in place they would split it.
    fn emit_sources(&mut self, emit: &(dyn Fn(TurnEvent<'static>) + Sync)) {
        for source in self.sources.drain(..) {
            self.parts.push(Part::Source(source.clone()));
            emit(TurnEvent::Source(source));
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), TurnError> {
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        if self.output_bytes > OUTPUT_BYTES_MAX {
            return Err(model_failure(&ModelError::Malformed(format!("more than {OUTPUT_BYTES_MAX} bytes"))));
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<&mut ProposedCall, TurnError> {
        self.calls.get_mut(index).ok_or_else(|| {
            model_failure(&ModelError::Malformed(format!("arguments for an unknown call {index}")))
        })
    }
}

/// Removes characters that the database cannot store, so that a client shows the same text live and after a
/// reload.
fn as_stored(delta: String) -> String {
    if delta.contains('\0') { without_nul(&delta) } else { delta }
}

fn silent() -> TurnError {
    tracing::warn!("the model was silent for too long");
    TurnError {
        code: TurnErrorCode::UpstreamTimeout,
        message: "The model was silent for too long.".to_owned(),
    }
}

/// Converts a failure to the error that clients read. The provider's text stays in the log.
fn model_failure(error: &ModelError) -> TurnError {
    tracing::warn!(%error, "a model call failed");
    match error {
        ModelError::Unavailable { .. } | ModelError::Upstream(_) => TurnError {
            code: TurnErrorCode::UpstreamError,
            message: "The model could not be reached, or refused.".to_owned(),
        },
        ModelError::ContextFull(_) => TurnError {
            code: TurnErrorCode::ContextFull,
            message:
                "The conversation is longer than the model can read. Begin a new one, or edit an earlier \
                message."
                    .to_owned(),
        },
        ModelError::Malformed(_) => TurnError {
            code: TurnErrorCode::UpstreamMalformed,
            message: "The model's answer broke off or could not be read.".to_owned(),
        },
    }
}
