//! The trace of a request for the server that gets it (W3C Trace Context). Without the feature `otel` there are
//! no traces.

use reqwest::header::HeaderMap;

/// Adds the headers that continue the current trace, if there is one.
#[cfg(feature = "otel")]
pub fn continue_trace(headers: &mut HeaderMap) {
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry_http::HeaderInjector;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let current = tracing::Span::current().context();
    TraceContextPropagator::new().inject_context(&current, &mut HeaderInjector(headers));
}

/// Adds nothing.
#[cfg(not(feature = "otel"))]
pub fn continue_trace(_: &mut HeaderMap) {}
