//! Traces over HTTP: the server continues the trace of the caller and names the span of a request by its
//! route. Without the feature `otel` there are no traces.

#[cfg(feature = "otel")]
mod kept {
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_http::HeaderExtractor;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use poem::{PathPattern, Request, Response};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    /// Continues the trace that the request belongs to (W3C Trace Context), if the request names one.
    pub(in crate::http) fn continued(span: &Span, request: &Request) {
        let caller = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
        // `set_parent` fails if no tracing layer is installed.
        let _set = span.set_parent(caller);
    }

    /// Records the response in the span.
    pub(in crate::http) fn answered(span: &Span, method: &str, response: &Response) {
        if let Some(PathPattern(route)) = response.data::<PathPattern>() {
            span.record("http.route", &**route);
            // A field cannot rename a span that has started.
            span.context().span().update_name(format!("{method} {route}"));
        }
        // Unsigned integers would be exported as strings.
        span.record("http.response.status_code", i64::from(response.status().as_u16()));
        if response.status().is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
    }
}

#[cfg(not(feature = "otel"))]
mod kept {
    use poem::{Request, Response};
    use tracing::Span;

    pub(in crate::http) fn continued(_: &Span, _: &Request) {}

    pub(in crate::http) fn answered(_: &Span, _: &str, _: &Response) {}
}

pub(in crate::http) use kept::{answered, continued};
