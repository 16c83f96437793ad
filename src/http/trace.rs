//! Traces over HTTP: a caller's goes on here, and a request is named by its route. Without the feature `otel` there
//! are none.

#[cfg(feature = "otel")]
mod kept {
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_http::HeaderExtractor;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use poem::{PathPattern, Request, Response};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    /// Goes on with the trace that the request belongs to (W3C Trace Context), where it says one.
    pub(in crate::http) fn continued(span: &Span, request: &Request) {
        let caller = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
        // Nobody may be tracing.
        let _set = span.set_parent(caller);
    }

    /// Says what came of the request.
    pub(in crate::http) fn answered(span: &Span, method: &str, response: &Response) {
        if let Some(PathPattern(route)) = response.data::<PathPattern>() {
            span.record("http.route", &**route);
            // A span that has begun takes no other name by its fields.
            span.context().span().update_name(format!("{method} {route}"));
        }
        // Unsigned numbers go out as texts.
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

pub(super) use kept::{answered, continued};
