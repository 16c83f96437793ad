//! The metrics of a server, in the format of Prometheus.
//!
//! A server has one [`Metrics`], created at start-up and passed on. Labels have few values: routes, fixed
//! names of this program, and names of tools and models that the operator chose. Labels contain no tenant,
//! user or id, and no text that a client or a model chose.
//!
//! Calls are counted with their events: every transition writes an event in its transaction. Counted there and reported
//! after the commit, no transition is missed and no rolled-back one counts.

#![warn(missing_docs)]

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: String,
    method: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    end: &'static str,
    /// The error code of a failed turn, otherwise empty. An empty value is no label.
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tokens {
    model: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reached {
    tool: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    verdict: &'static str,
    surface: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verdict {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Work {
    work: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelCall {
    provider: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    pool: &'static str,
}

/// The metrics of one server. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    tools: BTreeSet<String>,
    requests: Family<Answer, Counter>,
    request_seconds: Timed<Route>,
    streams: Gauge,
    turns: Family<End, Counter>,
    turns_running: Gauge,
    tokens: Family<Tokens, Counter>,
    calls: Family<Reached, Counter>,
    holds: Family<Tool, Counter>,
    open: Arc<Open>,
    decisions: Family<Decision, Counter>,
    decision_age: Timed<Verdict>,
    tool_seconds: Timed<Tool>,
    claims_waiting: Family<Tool, Gauge>,
    leases_lost: Family<Work, Counter>,
    swept: Family<Action, Counter>,
    model_first: Timed<Provider>,
    model_seconds: Timed<ModelCall>,
    model_retries: Family<Provider, Counter>,
    endpoints: BTreeMap<ChannelKind, Endpoints>,
    connection_seconds: Timed<Pool>,
    connection_timeouts: Family<Pool, Counter>,
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

fn timed<L: Clone + std::hash::Hash + Eq>(buckets: fn() -> Histogram) -> Timed<L> {
    Family::new_with_constructor(buckets)
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
        let build = Info::new(Version { version: env!("CARGO_PKG_VERSION") });
        registry.register("holdpoint_build", "The version of this build", build);
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(started);
        registry.register(
            "process_start_time_seconds",
            "Start time of the process, in seconds since 1970",
            start,
        );
        let of = registry.sub_registry_with_prefix("holdpoint");
        let open = Arc::new(Open::default());
        of.register_collector(Box::new(open.clone()));
        let inner = Inner {
            tools: tools.into_iter().collect(),
            requests: add(of, "http_requests", "HTTP requests that got a response", Family::default()),
            request_seconds: add(
                of,
                "http_request_duration_seconds",
                "Time from the head of a request to the head of its response",
                timed(answers),
            ),
            streams: add(of, "streams_open", "Open response streams", Gauge::default()),
            turns: add(of, "turns", "Turns that ended in this process, by outcome", Family::default()),
            turns_running: add(of, "turns_running", "Turns that run in this process", Gauge::default()),
            tokens: add(of, "model_tokens", "Tokens that models reported", Family::default()),
            calls: add(
                of,
                "tool_calls",
                "State transitions of tool calls in this process, by the new state",
                Family::default(),
            ),
            holds: add(of, "holds", "Tool calls that this process held for approval", Family::default()),
            open,
            decisions: add(
                of,
                "decisions",
                "Decisions that this process received, by outcome",
                Family::default(),
            ),
            decision_age: add(
                of,
                "decision_age_seconds",
                "Time from the hold of a call to its decision",
                timed(people),
            ),
            tool_seconds: add(of, "tool_duration_seconds", "Run time of tools", timed(works)),
            claims_waiting: add(
                of,
                "worker_claims_waiting",
                "Claims of workers that wait in this process for a call of the tool",
                Family::default(),
            ),
            leases_lost: add(
                of,
                "leases_lost",
                "Leases that this process lost before its work ended",
                Family::default(),
            ),
            swept: add(of, "sweeper_actions", "Actions of the sweeper", Family::default()),
            model_first: add(
                of,
                "model_first_byte_seconds",
                "Time from a model request to the first byte of the response",
                timed(works),
            ),
            model_seconds: add(
                of,
                "model_request_duration_seconds",
                "Time from a model request to the end of the response",
                timed(works),
            ),
            model_retries: add(of, "model_retries", "Retried model requests", Family::default()),
            endpoints: ChannelKind::ALL.map(|channel| (channel, Endpoints::new(of, channel))).into(),
            connection_seconds: add(
                of,
                "database_wait_seconds",
                "Time that a transaction waited for a connection and its begin",
                timed(answers),
            ),
            connection_timeouts: add(
                of,
                "database_wait_timeouts",
                "Transactions that got no connection in time",
                Family::default(),
            ),
            registry,
        };
        // Counters that should stay at zero have to be visible from the start.
        for work in Self::WORK {
            let _at_zero = inner.leases_lost.get_or_create_owned(&Work { work });
        }
        Self(Arc::new(inner))
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
        let inner = &self.0;
        let seconds = inner.request_seconds.get_or_create(&Route { route: route.clone(), method });
        seconds.observe(time.as_secs_f64());
        inner.requests.get_or_create(&Answer { route, method, status }).inc();
    }

    /// Counts an open stream until the returned value is dropped.
    pub fn stream(&self) -> Now {
        Now::begin(&self.0.streams)
    }

    /// Counts a running turn until the returned value is dropped.
    pub fn turn(&self) -> Now {
        Now::begin(&self.0.turns_running)
    }

    /// Records the end of a turn, with the error code of a failed turn.
    pub fn turn_ended(&self, end: &'static str, code: Option<&'static str>) {
        self.0.turns.get_or_create(&End { end, code: code.unwrap_or_default() }).inc();
    }

    /// Records the tokens that a model reported for a step.
    pub fn tokens(&self, model: &str, input: u64, output: u64) {
        for (direction, count) in [("input", input), ("output", output)] {
            self.0.tokens.get_or_create(&Tokens { model: model.to_owned(), direction }).inc_by(count);
        }
    }

    /// Records that a call reached a state.
    pub fn call_reached(&self, tool: &str, state: &'static str) {
        let tool = self.tool(tool);
        if state == "pending" {
            self.0.holds.get_or_create(&Tool { tool: tool.clone() }).inc();
        }
        self.0.calls.get_or_create(&Reached { tool, state }).inc();
    }

    /// Sets the values that only the database has; `None` while they are unknown.
    pub fn open(&self, found: Option<Found>) {
        *self.0.open.0.lock() = found;
    }

    /// Records a decision about a call and its result.
    pub fn decided(&self, verdict: &'static str, surface: &'static str, outcome: &'static str) {
        self.0.decisions.get_or_create(&Decision { verdict, surface, outcome }).inc();
    }

    /// Records how long a call waited for the decision that counted.
    pub fn hold_ended(&self, verdict: &'static str, age: Duration) {
        self.0.decision_age.get_or_create(&Verdict { verdict }).observe(age.as_secs_f64());
    }

    /// Records the run time of a tool.
    pub fn tool_ran(&self, tool: &str, time: Duration) {
        self.0.tool_seconds.get_or_create(&Tool { tool: self.tool(tool) }).observe(time.as_secs_f64());
    }

    /// Counts a claim that waits for a call of this tool, until the returned value is dropped.
    pub fn claim_waits(&self, tool: &str) -> Now {
        Now::begin(&self.0.claims_waiting.get_or_create_owned(&Tool { tool: self.tool(tool) }))
    }

    /// Records the lost lease of this kind of work.
    pub fn lease_lost(&self, work: &'static str) {
        self.0.leases_lost.get_or_create(&Work { work }).inc();
    }

    /// Records an action of the sweeper.
    pub fn swept(&self, action: &'static str) {
        self.0.swept.get_or_create(&Action { action }).inc();
    }

    /// Records the time from a request to a model until the first byte of the answer.
    pub fn model_began(&self, provider: &str, time: Duration) {
        let provider = Provider { provider: provider.to_owned() };
        self.0.model_first.get_or_create(&provider).observe(time.as_secs_f64());
    }

    /// Records the outcome of a request to a model, and the time until the end of the answer.
    pub fn model_ended(&self, provider: &str, outcome: &'static str, time: Duration) {
        let call = ModelCall { provider: provider.to_owned(), outcome };
        self.0.model_seconds.get_or_create(&call).observe(time.as_secs_f64());
    }

    /// Records a retry of a request to a model.
    pub fn model_retried(&self, provider: &str) {
        self.0.model_retries.get_or_create(&Provider { provider: provider.to_owned() }).inc();
    }

    /// Records an attempt to deliver an event to an endpoint.
    pub fn delivery_attempted(&self, channel: ChannelKind, name: &str, outcome: &'static str) {
        let Some(endpoints) = self.0.endpoints.get(&channel) else { return };
        let labels = [(endpoints.label, name.to_owned()), ("outcome", outcome.to_owned())];
        endpoints.attempts.get_or_create(&labels).inc();
    }

    /// Sets the values of endpoints that only the database has; none while they are unknown.
    pub fn endpoints(&self, found: Vec<EndpointFound>) {
        for endpoints in self.0.endpoints.values() {
            endpoints.disabled.clear();
            endpoints.lag.clear();
        }
        for EndpointFound { channel, name, disabled, lag } in found {
            let Some(endpoints) = self.0.endpoints.get(&channel) else { continue };
            let label = [(endpoints.label, name)];
            endpoints.disabled.get_or_create(&label).set(disabled.into());
            endpoints.lag.get_or_create(&label).set(lag.as_secs_f64());
        }
    }

    /// Records how long a transaction waited for a connection.
    pub fn connection_waited(&self, pool: &'static str, time: Duration) {
        self.0.connection_seconds.get_or_create(&Pool { pool }).observe(time.as_secs_f64());
    }

    /// Records that the wait for a connection timed out.
    pub fn connection_timed_out(&self, pool: &'static str) {
        self.0.connection_timeouts.get_or_create(&Pool { pool }).inc();
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
pub struct Now(Gauge);

impl Now {
    fn begin(of: &Gauge) -> Self {
        of.inc();
        Self(of.clone())
    }
}

impl Drop for Now {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Values that only the database has.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The number of pending calls.
    pub holds: u64,
    /// The waiting time of the pending call that expires first.
    pub oldest_hold: Duration,
    /// The number of events without a number, which no subscriber has received yet.
    pub unnumbered_events: u64,
}

/// The metrics of the endpoints of one channel.
#[derive(Debug)]
struct Endpoints {
    /// The label with the name of the endpoint.
    label: &'static str,
    attempts: Family<[(&'static str, String); 2], Counter>,
    disabled: Family<[(&'static str, String); 1], Gauge>,
    lag: Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>,
}

impl Endpoints {
    fn new(of: &mut Registry, channel: ChannelKind) -> Self {
        let label = if channel == ChannelKind::Webhook { "webhook" } else { "recipient" };
        let channel = channel.name();
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
pub struct EndpointFound {
    /// The channel of the endpoint.
    pub channel: ChannelKind,
    /// The name in the configuration.
    pub name: String,
    /// Whether the endpoint is disabled.
    pub disabled: bool,
    /// The age of the oldest event that is not delivered.
    pub lag: Duration,
}

/// The values of [`Found`] for the collector. They are absent while the database does not respond.
#[derive(Debug, Default)]
struct Open(Mutex<Option<Found>>);

impl Collector for Open {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(Found { holds, oldest_hold, unnumbered_events }) = *self.0.lock() else { return Ok(()) };
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
