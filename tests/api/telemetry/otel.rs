//! Traces, as a collector receives them.

use holdpoint_testkit::WatchedServer;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{IntoResponse, Request};
use prost::Message;
use serde_json::json;
use std::convert::Infallible;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A collector that keeps the requests that it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Collector {
    async fn start() -> (Self, String) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self::default();
        let kept = collector.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (socket, peer) = listener.accept().await.unwrap();
                let kept = kept.clone();
                let service = move |request: hyper::Request<hyper::body::Incoming>| {
                    let addresses = (LocalAddr(address.into()), RemoteAddr(peer.into()));
                    let mut request = Request::from((request, addresses.0, addresses.1, Scheme::HTTP));
                    let kept = kept.clone();
                    async move {
                        assert_eq!(request.uri().path(), "/v1/traces");
                        let body = request.take_body().into_bytes().await.unwrap();
                        kept.0.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
                        Ok::<hyper::Response<_>, Infallible>("".into_response().into())
                    }
                };
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(service);
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ended = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        (collector, format!("http://{address}"))
    }

    fn spans(&self) -> Vec<Span> {
        let batches = self.0.lock().unwrap().clone();
        let of_resources = batches.into_iter().flat_map(|batch| batch.resource_spans);
        of_resources.flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("{name} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>()))
}

fn attribute(span: &Span, key: &str) -> Option<serde_json::Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.clone()?.value? {
        Value::StringValue(text) => text.into(),
        Value::IntValue(number) => number.into(),
        other => panic!("{other:?}"),
    })
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_its_turn_model_calls_and_tools_continues_the_callers_trace() {
    let (collector, endpoint) = Collector::start().await;
    let watched =
        WatchedServer::start(&[("HOLDPOINT_LOG__OTLP_ENDPOINT", &endpoint), ("HOLDPOINT_LOG__LEVEL", "off")])
            .await;
    let ann = watched.server.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    let request = ann.http.post(ann.url(&format!("/qa/chat_streamed/{thread}")));
    let request = request.header("traceparent", format!("00-{TRACE}-{CALLER}-01"));
    let turn = ann.read(request.json(&json!({ "content": "call pay canary-argument" }))).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(ann.approve(id).await.body["state"], "succeeded");
    ann.send_message(&thread, "refuse canary-words").await;
    // Unsent spans are sent when the server stops.
    watched.finish();

    let spans = collector.spans();
    let request = named(&spans, "POST /qa/chat_streamed/:param0");
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.to_owned(), CALLER.to_owned()));
    assert_eq!(attribute(request, "http.response.status_code"), Some(200.into()));
    assert_eq!(attribute(request, "user"), Some("ann".into()));
    let turn = named(&spans, "invoke_agent");
    assert_eq!((&turn.trace_id, &turn.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(attribute(turn, "gen_ai.conversation.id"), Some(thread.clone().into()));
    let chat = named(&spans, "chat m");
    assert_eq!((&chat.trace_id, &chat.parent_span_id), (&request.trace_id, &turn.span_id));
    for (key, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!("m")),
        ("gen_ai.usage.input_tokens", json!(10)),
        ("gen_ai.usage.output_tokens", json!(5)),
    ] {
        assert_eq!(attribute(chat, key), Some(value), "{key}");
    }
    let decision = named(&spans, "decision");
    let decider = named(&spans, "POST /qa/validate_tool");
    assert_eq!((&decision.trace_id, &decision.parent_span_id), (&decider.trace_id, &decider.span_id));
    let tool = named(&spans, "execute_tool pay");
    assert_eq!((&tool.trace_id, &tool.parent_span_id), (&decision.trace_id, &decision.span_id));
    assert_eq!(attribute(tool, "gen_ai.tool.call.id"), Some(id.clone().into()));
    let failed =
        spans.iter().find(|span| attribute(span, "error.type") == Some("upstream_error".into())).unwrap();
    assert_eq!((failed.name.as_str(), failed.status.as_ref().unwrap().code), ("chat m", 2));

    let all = format!("{:?}", collector.0.lock().unwrap());
    assert!(all.contains("service.name"), "{all}");
    for content in ["canary-argument", "canary-words", holdpoint_testkit::MODEL_KEY] {
        assert!(!all.contains(content), "{content} in {all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_collector_is_logged_and_does_not_block_shutdown() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", taken.local_addr().unwrap());
    // The listener accepts connections and never answers. A released port could be reused by another test.
    std::thread::spawn(move || taken.incoming().for_each(drop));
    let watched = WatchedServer::start(&[("HOLDPOINT_LOG__OTLP_ENDPOINT", &nobody)]).await;
    let ann = watched.server.client.as_user("acme", "ann", &[]);
    ann.thread().await;
    let started = std::time::Instant::now();
    let printed = watched.finish();
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(printed.contains("traces could not be sent"), "{printed}");
}

#[tokio::test]
async fn the_standard_environment_variable_of_the_collector_url_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command
        .arg("config")
        .env_clear()
        .current_dir(&dir)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:pw@collector:4318");
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(printed.contains("otlp_endpoint = \"http://me:***@collector:4318/\""), "{printed}");
}
