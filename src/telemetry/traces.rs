//! Traces over OTLP with HTTP.

use super::Failed;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// The longest wait for the collector to take a batch.
const SEND_TIME: Duration = Duration::from_secs(5);
/// The longest wait for the last batch when the server stops.
const LAST_BATCH_TIME: Duration = Duration::from_secs(3);

/// The provider that sends spans in batches.
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Prepares an exporter to the collector at this URL.
    pub(super) fn begin(endpoint: &str) -> Result<Self, Failed> {
        let url = reqwest::Url::parse(endpoint).map_err(|error| error.to_string())?;
        let sender = Sender { client: holdpoint_egress::client(&url)?, runtime: Handle::current() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()?;
        let resource = Resource::builder()
            .with_service_name("holdpoint")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    /// Returns the layer that exports the spans of holdpoint, and no other spans.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("holdpoint"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target("holdpoint", LevelFilter::INFO))
    }

    /// Sends the remaining spans.
    pub(super) async fn end(self) {
        // The shutdown blocks on the exporter thread, and that thread needs the runtime to send.
        let sent = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_BATCH_TIME)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("the last traces could not be sent");
        }
    }
}

/// Sends batches. The exporter makes batches on its own thread, outside of the runtime that the client needs.
#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let request = request.try_into()?;
        let sent = self.runtime.spawn(async move {
            let answer = tokio::time::timeout(SEND_TIME, client.execute(request));
            match answer.await {
                Ok(answer) => answer.map(|answer| answer.status()).map_err(holdpoint_egress::chain),
                Err(_elapsed) => Err("the collector did not answer in time".to_owned()),
            }
        });
        let status = sent.await?.inspect_err(|error| tracing::warn!(%error, "traces could not be sent"))?;
        if !status.is_success() {
            tracing::warn!(status = status.as_u16(), "the collector refused traces");
        }
        Ok(Response::builder().status(status).body(Bytes::new())?)
    }
}
