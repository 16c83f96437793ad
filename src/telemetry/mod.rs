//! The telemetry of a server: log lines, and traces in a build with the feature `otel`.
//!
//! For `main`. An app that embeds the server sets up `tracing` itself, and gets the same spans.
//!
//! Spans of requests, turns and tools have the level ERROR. With a filter for errors, log lines would otherwise not
//! name their request.

mod lines;
#[cfg(feature = "otel")]
mod traces;

use crate::config::{Log, LogFormat};
use lines::Lines;
use std::io::IsTerminal;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The beginning of the targets that are logged at every level of `log.level`: those of this crate and of
/// `holdpoint_serve`. Below INFO, libraries log what they send and receive: headers, URLs, statements and
/// WebSocket frames, and with them secrets and the inputs of calls. So all other targets stay at INFO, even if
/// `log.level` asks for more.
const OWN: &str = "holdpoint";
/// Targets whose lines may contain secrets or inputs: unknown options of the database URL with their values, and the
/// messages of MCP servers.
const KEPT_QUIET: [&str; 2] = ["sqlx_postgres::options", "rmcp"];

/// The error of a failed setup of logs or traces. The texts are for the operator.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Running logs and traces.
#[must_use = "what is traced last is sent by `end`"]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    traces: Option<traces::Traces>,
}

/// Starts to log to stderr and to trace, as configured. The caller must be inside of a runtime.
///
/// # Errors
/// `log.level` is not a filter, `log.otlp_endpoint` is not usable, or logging is set up already.
pub fn begin(log: &Log) -> Result<Telemetry, Failed> {
    let configured = configured(log.level.as_deref().unwrap_or("info"))?;
    let kept = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target(OWN, LevelFilter::TRACE)
        .with_targets(KEPT_QUIET.map(|target| (target, LevelFilter::OFF)));
    let terminal = std::io::stderr().is_terminal();
    let format = log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = Lines { format, writer: std::io::stderr };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(configured.and(kept)));
    #[cfg(feature = "otel")]
    let traces = log.otlp_endpoint.as_deref().map(traces::Traces::begin).transpose()?;
    #[cfg(feature = "otel")]
    let subscriber = subscriber.with(traces.as_ref().map(traces::Traces::layer));
    subscriber.try_init()?;
    report_panics();
    Ok(Telemetry {
        #[cfg(feature = "otel")]
        traces,
    })
}

/// Returns the filter of this text. The filter of a level alone looks nothing up when a task enters a span, which is often.
fn configured(level: &str) -> Result<Box<dyn Filter<Registry> + Send + Sync>, Failed> {
    Ok(match level.parse::<LevelFilter>() {
        Ok(level) => Box::new(level),
        Err(_) => Box::new(EnvFilter::try_new(level)?),
    })
}

impl Telemetry {
    /// Sends the remaining traces.
    pub async fn end(self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = self.traces {
            traces.end().await;
        }
    }
}

/// Logs a panic as one line, without its message. The message may contain the inputs of a tool.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "something panicked");
    }));
}
