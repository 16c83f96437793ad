//! HTTP tools: tools that other services run (`[[http_tools]]`).
//!
//! One execution of a call is one signed POST. An answer with status 200 is the result, and a refusal in words is
//! a failure. With 202 the service accepts the call, and reports the outcome later. After any other answer, and without
//! an answer, the outcome is unknown. A preview is a POST of its own.
//!
//! A repeated request is a repeated execution, with its attempt and its events in the record: retries inside of the
//! tool would be invisible there. There is no pool of connections and no proxy. A new connection is resolved and
//! checked, and an error before it exists proves that nothing was sent; a proxy resolves names itself.

mod answer;
mod service;

use crate::config::{self, Config, ConfigError};
use crate::tools::{DynTool, IdempotencyKey, Input, Permit, Requester, ToolError, ToolSpec, Verified};
use answer::ServiceResponse;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_core::clock::Clock;
use holdpoint_core::id::{RunId, ThreadId};
use holdpoint_egress::Reach;
use holdpoint_egress::callback::Callback;
use holdpoint_egress::signed_post::Message;
use holdpoint_egress::standard_webhooks::Signer;
use serde::Serialize;
use serde_json::Value;
use service::Service;
use std::sync::Arc;
use std::time::Duration;

/// A tool that another service runs.
pub(crate) struct HttpTool {
    spec: ToolSpec,
    executes: Service,
    /// The address that knows the outcomes of interrupted calls.
    verifies: Option<Service>,
    /// The address that says what a call would do.
    previews: Option<Service>,
    /// How the service reports an outcome later. Without this server's public address it cannot.
    reports: Option<Reports>,
    signer: Arc<Signer>,
    clock: Arc<dyn Clock>,
}

/// Outcomes that come later.
struct Reports {
    /// The address of this server, as services reach it.
    public_url: String,
    /// How long the service has after it accepted a call.
    within: Duration,
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    r#type: &'static str,
    tool_call_id: &'a str,
    tool_name: &'a str,
    requester: RequesterView<'a>,
    #[serde(flatten)]
    execution: Option<ExecutionView<'a>>,
}

/// The body of a request for a preview. It names no call, so that no service takes it for one.
#[derive(Debug, Serialize)]
struct PreviewRequest<'a> {
    r#type: &'static str,
    tool_name: &'a str,
    requester: RequesterView<'a>,
    input: Input,
}

#[derive(Debug, Serialize)]
struct RequesterView<'a> {
    tenant_id: &'a str,
    user_id: &'a str,
}

#[derive(Debug, Serialize)]
struct ExecutionView<'a> {
    thread_id: ThreadId,
    session_id: ThreadId,
    run_id: RunId,
    input: Input,
    approved_by: &'a [String],
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
}

impl<'a> RequesterView<'a> {
    fn of(requester: &'a Requester) -> Self {
        Self { tenant_id: requester.tenant_id(), user_id: requester.user_id() }
    }
}

impl HttpTool {
    /// Creates the tool of the entry at this place of the configuration.
    pub(crate) fn new(
        config: &Config,
        index: usize,
        tool: &config::HttpTool,
        reach: &Reach,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let key = config::http_tool_key(index);
        let wrong = |field: &str, why: String| ConfigError::Value { key: format!("{key}.{field}"), why };
        let secrets = tool.read_secrets(&key)?;
        let signer = Signer::parse(&secrets).map_err(|why| wrong("secret_file", why.to_owned()))?;
        let timeout = tool.timeout(&config.tools);
        let service = |field: &str, url: &str| {
            Service::new(url, reach, &signer, timeout, config.limits.result_bytes)
                .map_err(|why| wrong(field, why))
        };
        let executes = service("url", &tool.url)?;
        let verifies = tool.verify_url.as_deref().map(|url| service("verify_url", url)).transpose()?;
        let previews = tool.preview_url.as_deref().map(|url| {
            let timeout = timeout.min(config.tools.preview_timeout);
            Service::new(url, reach, &signer, timeout, config.limits.result_bytes)
                .map_err(|why| wrong("preview_url", why))
        });
        let previews = previews.transpose()?;
        let spec = ToolSpec {
            preview: tool.preview_url.is_some(),
            constants: tool.constants.clone(),
            ..ToolSpec::configured(&tool.entry(), &key)?
        };
        let within = tool.result_deadline();
        let reports = config.server.public_url.clone().map(|public_url| Reports { public_url, within });
        Ok(Self { spec, executes, verifies, previews, reports, signer: Arc::new(signer), clock })
    }

    /// Returns the inputs that the service gets: those of the call, and the constants.
    fn with_constants(&self, input: &Input) -> Input {
        let mut input = input.clone();
        input.extend(self.spec.constants.clone());
        input
    }

    /// Returns the keys of the service, if the service can report outcomes later.
    pub(crate) fn callback_keys(&self) -> Option<Arc<Signer>> {
        self.reports.as_ref().map(|_| self.signer.clone())
    }

    async fn execute(&self, permit: Permit) -> Result<Value, ToolError> {
        let cancellation = permit.cancellation();
        if cancellation.is_cancelled() {
            return Err(ToolError::new("it was stopped before it began; it did not run"));
        }
        let id = permit.idempotency_key().as_str();
        let (call, execution) = (permit.tool_call_id(), permit.execution().id);
        let callback = Callback { tool: &self.spec.name, call, execution };
        let callback_url = self.reports.as_ref().map(|it| callback.url(&it.public_url, &self.signer));
        let request = Request {
            r#type: "tool.execute",
            tool_call_id: id,
            tool_name: &self.spec.name,
            requester: RequesterView::of(permit.requester()),
            execution: Some(ExecutionView {
                thread_id: permit.thread_id(),
                session_id: permit.session_id(),
                run_id: permit.run_id(),
                input: self.with_constants(permit.input()),
                approved_by: permit.approved_by(),
                attempt: permit.attempt(),
                callback_url,
            }),
        };
        let message = Message { id: id.to_owned(), now: self.clock.now(), idempotency_key: Some(id) };
        let answered = tokio::select! {
            biased;
            answered = self.executes.post(&message, &request) => answered,
            // The connection closes, so the service can notice that the server waits no longer.
            () = cancellation.cancelled() => ServiceResponse::Unknown("the call was asked to stop".to_owned()),
        };
        let later = self.reports.as_ref().map(|reports| reports.within);
        answered.into_result(later, self.spec.idempotent)
    }

    async fn verify(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        let Some(service) = &self.verifies else { return Ok(Verified::Unknown) };
        let request = Request {
            r#type: "tool.verify",
            tool_call_id: key.as_str(),
            tool_name: &self.spec.name,
            requester: RequesterView::of(key.requester()),
            execution: None,
        };
        // Each question is a message of its own. A receiver drops a message whose id it has seen.
        let id = format!("verify_{}", self.clock.uuid());
        let message = Message { id, now: self.clock.now(), idempotency_key: None };
        service.post(&message, &request).await.into_verified()
    }

    async fn preview(&self, input: &Input, requester: &Requester) -> Result<String, ToolError> {
        let Some(service) = &self.previews else { return Err(ToolError::new("the tool has no preview_url")) };
        let request = PreviewRequest {
            r#type: "tool.preview",
            tool_name: &self.spec.name,
            requester: RequesterView::of(requester),
            input: self.with_constants(input),
        };
        // Each question is a message of its own. It has no key: there is nothing to do once.
        let id = format!("preview_{}", self.clock.uuid());
        let message = Message { id, now: self.clock.now(), idempotency_key: None };
        service.post(&message, &request).await.into_preview()
    }
}

impl DynTool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.execute(permit).boxed()
    }

    fn verify<'a>(&'a self, key: &'a IdempotencyKey) -> BoxFuture<'a, Result<Verified<Value>, ToolError>> {
        self.verify(key).boxed()
    }

    fn preview<'a>(
        &'a self,
        input: &'a Input,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        self.preview(input, requester).boxed()
    }
}
