//! The metrics of a server, in the format of Prometheus.
//!
//! A server has one [`Metrics`], created at start-up and passed on. Labels have few values: routes, fixed
//! names of this program, and names of tools and models that the operator chose. Labels contain no tenant,
//! user or id, and no text that a client or a model chose.
//!
//! Calls are counted with their events: every transition writes an event in its transaction. Counted there and reported
//! after the commit, no transition is missed and no rolled-back one counts.

#![warn(missing_docs)]

use holdpoint_core::call::StateKind;
use holdpoint_core::decision::{Surface, Verdict};
use holdpoint_core::endpoint::ChannelKind;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label for all names that are not permitted as a label.
const OTHER: &str = "other";
/// Buckets for responses, from a cache hit in memory to the patience of a client.
const ANSWER_SECONDS: [f64; 12] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];
/// Buckets for models and tools.
const WORK_SECONDS: [f64; 13] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// Buckets for decisions of people, from a second to a week.
const PERSON_SECONDS: [f64; 11] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0];

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

/// Sets of labels.
macro_rules! labels {
    ($($name:ident { $($(#[$comment:meta])* $label:ident: $type:ty),+ $(,)? })+) => {
        $(#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            $($(#[$comment])* $label: $type,)+
        })+
    };
}

labels! {
    VersionLabels { version: &'static str }
    ResponseLabels { route: String, method: &'static str, status: &'static str }
    RouteLabels { route: String, method: &'static str }
    TurnEndLabels {
        end: &'static str,
        /// The error code of a failed turn, otherwise empty. An empty value is no label.
        code: &'static str,
    }
    TokenLabels { model: String, direction: &'static str }
    CallStateLabels { tool: String, state: &'static str }
    ToolLabels { tool: String }
    DecisionLabels { verdict: &'static str, surface: &'static str, outcome: &'static str }
    VerdictLabels { verdict: &'static str }
    WorkLabels { work: &'static str }
    ActionLabels { action: &'static str }
    ProviderLabels { provider: String }
    ModelCallLabels { provider: String, outcome: &'static str }
    PoolLabels { pool: &'static str }
}

/// The metrics of one server. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Registered>);

/// A struct of metrics, each with what makes it and registers it. They are written in this order.
macro_rules! registered {
    ($(#[$comment:meta])* struct $name:ident { $($field:ident: $type:ty = $make:expr,)+ }) => {
        $(#[$comment])*
        #[derive(Debug)]
        struct $name {
            $($field: $type,)+
        }

        impl $name {
            fn new(of: &mut Registry) -> Self {
                Self { $($field: $make(of),)+ }
            }
        }
    };
}

registered! {
    /// What this process counts and measures.
    struct Measured {
        requests: Family<ResponseLabels, Counter> = at_zero("http_requests", "HTTP requests that got a response"),
        request_seconds: Timed<RouteLabels> = timed(answers, "http_request_duration_seconds", "Time from the head of a request to the head of its response"),
        streams: Gauge = at_zero("streams_open", "Open response streams"),
        turns: Family<TurnEndLabels, Counter> = at_zero("turns", "Turns that ended in this process, by outcome"),
        turns_running: Gauge = at_zero("turns_running", "Turns that run in this process"),
        tokens: Family<TokenLabels, Counter> = at_zero("model_tokens", "Tokens that models reported"),
        calls: Family<CallStateLabels, Counter> = at_zero("tool_calls", "State transitions of tool calls in this process, by the new state"),
        holds: Family<ToolLabels, Counter> = at_zero("holds", "Tool calls that this process held for approval"),
        decisions: Family<DecisionLabels, Counter> = at_zero("decisions", "Decisions that this process received, by outcome"),
        decision_age: Timed<VerdictLabels> = timed(people, "decision_age_seconds", "Time from the hold of a call to its decision"),
        tool_seconds: Timed<ToolLabels> = timed(works, "tool_duration_seconds", "Run time of tools"),
        claims_waiting: Family<ToolLabels, Gauge> = at_zero("worker_claims_waiting", "Claims of workers that wait in this process for a call of the tool"),
        leases_lost: Family<WorkLabels, Counter> = at_zero("leases_lost", "Leases that this process lost before its work ended"),
        swept: Family<ActionLabels, Counter> = at_zero("sweeper_actions", "Actions of the sweeper"),
        model_first: Timed<ProviderLabels> = timed(works, "model_first_byte_seconds", "Time from a model request to the first byte of the response"),
        model_seconds: Timed<ModelCallLabels> = timed(works, "model_request_duration_seconds", "Time from a model request to the end of the response"),
        model_retries: Family<ProviderLabels, Counter> = at_zero("model_retries", "Retried model requests"),
        connection_seconds: Timed<PoolLabels> = timed(answers, "database_wait_seconds", "Time that a transaction waited for a connection and its begin"),
        connection_timeouts: Family<PoolLabels, Counter> = at_zero("database_wait_timeouts", "Transactions that got no connection in time"),
    }
}

#[derive(Debug)]
struct Registered {
    registry: Registry,
    tools: BTreeSet<String>,
    open: Arc<DatabaseCollector>,
    endpoints: BTreeMap<ChannelKind, ChannelMetrics>,
    measured: Measured,
}

fn answers() -> Histogram {
    Histogram::new(ANSWER_SECONDS)
}

fn works() -> Histogram {
    Histogram::new(WORK_SECONDS)
}

fn people() -> Histogram {
    Histogram::new(PERSON_SECONDS)
}

fn at_zero<M: Metric + Clone + Default>(name: &str, help: &str) -> impl FnOnce(&mut Registry) -> M {
    move |of| add(of, name, help, M::default())
}

fn timed<L: EncodeLabelSet + Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static>(
    buckets: fn() -> Histogram,
    name: &str,
    help: &str,
) -> impl FnOnce(&mut Registry) -> Timed<L> {
    move |of| add(of, name, help, Family::new_with_constructor(buckets))
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// The kinds of work with a lease.
    const WORK: [&str; 2] = ["turn", "call"];

    /// Creates the metrics, all at zero. `tools` are the names that may be labels; `started` is the start
    /// time, in seconds since 1970.
    pub fn new(tools: impl IntoIterator<Item = String>, started: f64) -> Self {
        let mut registry = Registry::default();
        let build = Info::new(VersionLabels { version: env!("CARGO_PKG_VERSION") });
        registry.register("holdpoint_build", "The version of this build", build);
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(started);
        registry.register(
            "process_start_time_seconds",
            "Start time of the process, in seconds since 1970",
            start,
        );
        let of = registry.sub_registry_with_prefix("holdpoint");
        let open = Arc::new(DatabaseCollector::default());
        of.register_collector(Box::new(open.clone()));
        let measured = Measured::new(of);
        let endpoints = ChannelKind::ALL.map(|channel| (channel, ChannelMetrics::new(of, channel))).into();
        // Counters that should stay at zero have to be visible from the start.
        for work in Self::WORK {
            let _at_zero = measured.leases_lost.get_or_create_owned(&WorkLabels { work });
        }
        Self(Arc::new(Registered { registry, tools: tools.into_iter().collect(), open, endpoints, measured }))
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _infallible = text::encode(&mut text, &self.0.registry);
        text
    }

    /// Records the response to a request. `route` is the template of the route, if there is one.
    pub fn answered(&self, route: Option<&str>, method: &str, status: u16, time: Duration) {
        let route = route.unwrap_or(OTHER).to_owned();
        let method = match method {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            "HEAD" => "HEAD",
            "OPTIONS" => "OPTIONS",
            _ => OTHER,
        };
        let status = match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        let measured = &self.0.measured;
        let seconds = measured.request_seconds.get_or_create(&RouteLabels { route: route.clone(), method });
        seconds.observe(time.as_secs_f64());
        measured.requests.get_or_create(&ResponseLabels { route, method, status }).inc();
    }

    /// Counts an open stream until the returned value is dropped.
    pub fn stream(&self) -> GaugeUnit {
        GaugeUnit::begin(&self.0.measured.streams)
    }

    /// Counts a running turn until the returned value is dropped.
    pub fn turn(&self) -> GaugeUnit {
        GaugeUnit::begin(&self.0.measured.turns_running)
    }

    /// Records the end of a turn, with the error code of a failed turn.
    pub fn turn_ended(&self, end: &'static str, code: Option<&'static str>) {
        self.0.measured.turns.get_or_create(&TurnEndLabels { end, code: code.unwrap_or_default() }).inc();
    }

    /// Records the tokens that a model reported for a step.
    pub fn tokens(&self, model: &str, input: u64, output: u64) {
        for (direction, count) in [("input", input), ("output", output)] {
            self.0
                .measured
                .tokens
                .get_or_create(&TokenLabels { model: model.to_owned(), direction })
                .inc_by(count);
        }
    }

    /// Records that a call reached a state.
    pub fn call_reached(&self, tool: &str, state: StateKind) {
        let tool = self.tool(tool);
        if state == StateKind::Pending {
            self.0.measured.holds.get_or_create(&ToolLabels { tool: tool.clone() }).inc();
        }
        self.0.measured.calls.get_or_create(&CallStateLabels { tool, state: state.word() }).inc();
    }

    /// Sets the values that only the database has; `None` while they are unknown.
    pub fn open(&self, found: Option<DatabaseValues>) {
        *self.0.open.0.lock() = found;
    }

    /// Records a decision about a call and its result.
    pub fn decided(&self, verdict: Verdict, surface: Surface, outcome: &'static str) {
        let (verdict, surface) = (verdict.word(), surface.word());
        self.0.measured.decisions.get_or_create(&DecisionLabels { verdict, surface, outcome }).inc();
    }

    /// Records how long a call waited for the decision that counted.
    pub fn hold_ended(&self, verdict: Verdict, age: Duration) {
        let verdict = verdict.word();
        self.0.measured.decision_age.get_or_create(&VerdictLabels { verdict }).observe(age.as_secs_f64());
    }

    /// Records the run time of a tool.
    pub fn tool_ran(&self, tool: &str, time: Duration) {
        self.0
            .measured
            .tool_seconds
            .get_or_create(&ToolLabels { tool: self.tool(tool) })
            .observe(time.as_secs_f64());
    }

    /// Counts a claim that waits for a call of this tool, until the returned value is dropped.
    pub fn claim_waits(&self, tool: &str) -> GaugeUnit {
        GaugeUnit::begin(
            &self.0.measured.claims_waiting.get_or_create_owned(&ToolLabels { tool: self.tool(tool) }),
        )
    }

    /// Records the lost lease of this kind of work.
    pub fn lease_lost(&self, work: &'static str) {
        self.0.measured.leases_lost.get_or_create(&WorkLabels { work }).inc();
    }

    /// Records an action of the sweeper.
    pub fn swept(&self, action: &'static str) {
        self.0.measured.swept.get_or_create(&ActionLabels { action }).inc();
    }

    /// Records the time from a request to a model until the first byte of the answer.
    pub fn model_began(&self, provider: &str, time: Duration) {
        let provider = ProviderLabels { provider: provider.to_owned() };
        self.0.measured.model_first.get_or_create(&provider).observe(time.as_secs_f64());
    }

    /// Records the outcome of a request to a model, and the time until the end of the answer.
    pub fn model_ended(&self, provider: &str, outcome: &'static str, time: Duration) {
        let call = ModelCallLabels { provider: provider.to_owned(), outcome };
        self.0.measured.model_seconds.get_or_create(&call).observe(time.as_secs_f64());
    }

    /// Records a retry of a request to a model.
    pub fn model_retried(&self, provider: &str) {
        self.0.measured.model_retries.get_or_create(&ProviderLabels { provider: provider.to_owned() }).inc();
    }

    /// Records an attempt to deliver an event to an endpoint.
    pub fn delivery_attempted(&self, channel: ChannelKind, name: &str, outcome: &'static str) {
        let Some(endpoints) = self.0.endpoints.get(&channel) else { return };
        let labels = [(endpoints.label, name.to_owned()), ("outcome", outcome.to_owned())];
        endpoints.attempts.get_or_create(&labels).inc();
    }

    /// Sets the values of endpoints that only the database has; none while they are unknown.
    pub fn endpoints(&self, found: Vec<EndpointValues>) {
        for endpoints in self.0.endpoints.values() {
            endpoints.disabled.clear();
            endpoints.lag.clear();
        }
        for EndpointValues { channel, name, disabled, lag } in found {
            let Some(endpoints) = self.0.endpoints.get(&channel) else { continue };
            let label = [(endpoints.label, name)];
            endpoints.disabled.get_or_create(&label).set(disabled.into());
            endpoints.lag.get_or_create(&label).set(lag.as_secs_f64());
        }
    }

    /// Records how long a transaction waited for a connection.
    pub fn connection_waited(&self, pool: &'static str, time: Duration) {
        self.0.measured.connection_seconds.get_or_create(&PoolLabels { pool }).observe(time.as_secs_f64());
    }

    /// Records that the wait for a connection timed out.
    pub fn connection_timed_out(&self, pool: &'static str) {
        self.0.measured.connection_timeouts.get_or_create(&PoolLabels { pool }).inc();
    }

    /// Returns the label of a tool. A tool of an MCP server that the configuration does not name has the label of its
    /// server, as `files__*`. Names that a model made up become [`OTHER`].
    fn tool(&self, name: &str) -> String {
        if self.0.tools.contains(name) {
            return name.to_owned();
        }
        let of_server = name.split_once("__").map(|(server, _)| format!("{server}__*"));
        of_server.filter(|label| self.0.tools.contains(label)).unwrap_or_else(|| OTHER.to_owned())
    }
}

/// One unit of a gauge, which is released on drop.
#[derive(Debug)]
pub struct GaugeUnit(Gauge);

impl GaugeUnit {
    fn begin(of: &Gauge) -> Self {
        of.inc();
        Self(of.clone())
    }
}

impl Drop for GaugeUnit {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Values that only the database has.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseValues {
    /// The number of pending calls.
    pub holds: u64,
    /// The waiting time of the pending call that expires first.
    pub oldest_hold: Duration,
    /// The number of events without a number, which no subscriber has received yet.
    pub unnumbered_events: u64,
}

/// The metrics of the endpoints of one channel.
#[derive(Debug)]
struct ChannelMetrics {
    /// The label with the name of the endpoint.
    label: &'static str,
    attempts: Family<[(&'static str, String); 2], Counter>,
    disabled: Family<[(&'static str, String); 1], Gauge>,
    lag: Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>,
}

impl ChannelMetrics {
    fn new(of: &mut Registry, channel: ChannelKind) -> Self {
        let label = if channel == ChannelKind::Webhook { "webhook" } else { "recipient" };
        let channel = channel.word();
        let attempts = "Attempts of this process to deliver an event, by outcome";
        let disabled = format!(
            "1 if nothing is delivered to the {label} until an operator enables it; absent while the database does \
             not respond"
        );
        let lag = "Age of the oldest event that is not delivered; absent while the database does not respond";
        Self {
            label,
            attempts: add(of, &format!("{channel}_attempts"), attempts, Family::default()),
            disabled: add(of, &format!("{channel}_disabled"), &disabled, Family::default()),
            lag: add(of, &format!("{channel}_lag_seconds"), lag, Family::default()),
        }
    }
}

/// Values of one endpoint that only the database has.
#[derive(Debug, Clone)]
pub struct EndpointValues {
    /// The channel of the endpoint.
    pub channel: ChannelKind,
    /// The name in the configuration.
    pub name: String,
    /// Whether the endpoint is disabled.
    pub disabled: bool,
    /// The age of the oldest event that is not delivered.
    pub lag: Duration,
}

/// The values of [`DatabaseValues`] for the collector. They are absent while the database does not respond.
#[derive(Debug, Default)]
struct DatabaseCollector(Mutex<Option<DatabaseValues>>);

impl Collector for DatabaseCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(DatabaseValues { holds, oldest_hold, unnumbered_events }) = *self.0.lock() else {
            return Ok(());
        };
        let help = "Pending tool calls of all processes; absent while the database does not respond";
        let count = ConstGauge::new(holds);
        count.encode(encoder.encode_descriptor("holds_pending", help, None, count.metric_type())?)?;
        let help = "Age of the pending call that expires first";
        let oldest = ConstGauge::new(oldest_hold.as_secs_f64());
        let name = "holds_pending_oldest_age_seconds";
        oldest.encode(encoder.encode_descriptor(name, help, None, oldest.metric_type())?)?;
        let help = "Events of all processes that have no number yet, so that no subscriber has received them";
        let waiting = ConstGauge::new(unnumbered_events);
        waiting.encode(encoder.encode_descriptor("events_unnumbered", help, None, waiting.metric_type())?)
    }
}
