//! `[log]`: what is logged and traced.

use serde::Deserialize;

/// `[log]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `format`: how lines look; if absent, text on a terminal and JSON elsewhere.
    pub format: Option<LogFormat>,
    /// `level`: what is logged, as `tracing`'s filters are written; if absent, `info`.
    pub level: Option<String>,
    /// `otlp_endpoint`: where traces go, over OTLP by HTTP: `http://collector:4318`; needs a build with the feature
    /// `otel`. `OTEL_EXPORTER_OTLP_ENDPOINT` is taken too.
    pub otlp_endpoint: Option<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object a line.
    Json,
}
