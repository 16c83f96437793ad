//! What a server reports about itself: probes, lines, metrics and traces, and what must not be there.

mod canary;
mod health;
mod metrics;
#[cfg(feature = "otel")]
mod otel;
mod startup;
