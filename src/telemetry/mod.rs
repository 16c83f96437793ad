//! What a server says of itself: log lines, and traces where it is built with the feature `otel`.
//!
//! For `main`; an app of one's own sets up `tracing` as it likes, and gets the same spans.

mod lines;
#[cfg(feature = "otel")]
mod traces;

use crate::config::{Log, LogFormat};
use lines::Lines;
use std::io::IsTerminal;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged at every level that `log.level` asks for: holdpoint's own. Below INFO all others write what they send
/// and receive: headers, URLs, statements, the frames of a WebSocket, and with them secrets and the inputs of calls. So
/// they are kept at INFO, whatever `log.level` says of them.
const OWN: &str = "holdpoint";
/// It warns of options of the database's URL that it does not know, with their values, which may be secret.
const KEPT_QUIET: &str = "sqlx_postgres::options";

/// Why there can be no logs or traces. The texts are for the operator.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Logs and traces under way.
#[must_use = "what is traced last is sent by `end`"]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    traces: Option<traces::Traces>,
}

/// Logs to stderr and traces from now on, as configured; inside of a runtime.
///
/// # Errors
/// `log.level` is no filter, `log.otlp_endpoint` cannot be sent to, or somebody has set up logging before.
pub fn begin(log: &Log) -> Result<Telemetry, Failed> {
    let asked = EnvFilter::try_new(log.level.as_deref().unwrap_or("info"))?;
    let kept = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target(OWN, LevelFilter::TRACE)
        .with_target(KEPT_QUIET, LevelFilter::OFF);
    let terminal = std::io::stderr().is_terminal();
    let format = log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = Lines { format, writer: std::io::stderr };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(asked.and(kept)));
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

impl Telemetry {
    /// Sends what is left to send.
    pub async fn end(self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = self.traces {
            traces.end().await;
        }
    }
}

/// Has a panic logged as one line, without its message: that may hold what a tool was given.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "something panicked");
    }));
}
