//! `[log]`: logs and traces.

use holdpoint_settings::{ConfigError, shown, wrong};
use serde::{Deserialize, Serialize};
use std::fmt;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

/// `[log]`
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Format of log lines, one line per event.
    ///
    /// Value: `text`, `json`. Default: `text` if standard error is a terminal, else `json`.
    pub format: Option<LogFormat>,
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; or for example `info,holdpoint=debug`.
    ///
    /// Value: a level, or a list of `target=level`. Default: `info`.
    pub level: Option<String>,
    /// Collector for traces, OTLP over HTTP: `http://collector:4318`. Needs a build with the feature `otel`.
    ///
    /// Value: URL. Default: none.
    #[serde(serialize_with = "shown::url")]
    pub otlp_endpoint: Option<String>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object per line.
    Json,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Log {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !self.level.as_deref().is_none_or(is_filter) {
            return wrong(
                "log.level",
                "expected error, warn, info, debug, trace or off, or a list of target=level",
            );
        }
        if self.otlp_endpoint.is_some() && !cfg!(feature = "otel") {
            return wrong("log.otlp_endpoint", "expected none: this build lacks the feature \"otel\"");
        }
        let readable = |url: &String| {
            reqwest::Url::parse(url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        };
        if !self.otlp_endpoint.as_ref().is_none_or(readable) {
            return wrong("log.otlp_endpoint", "expected a URL of HTTP, as http://localhost:4318");
        }
        Ok(())
    }
}

/// Returns whether the text is a valid filter. A word alone must be a level. The filter syntax would take a
/// misspelt level for a target, and would log nothing else.
fn is_filter(level: &str) -> bool {
    let misspelt = |part: &str| !part.contains(['=', '[']) && part.trim().parse::<LevelFilter>().is_err();
    !level.split(',').any(misspelt) && EnvFilter::try_new(level).is_ok()
}
