//! HTTP tools: tools that other services run (`[[http_tools]]`).
//!
//! One execution of a call is one signed POST. An answer with status 200 is the result, and a refusal in words is
//! a failure. After any other answer, and without an answer, the outcome is unknown.

mod answer;
mod service;

use crate::config::{self, Config, ConfigError, ToolRisk};
use crate::domain::clock::Clock;
use crate::egress::Reach;
use crate::standard_webhooks::Signer;
use crate::tools::{
    DynTool, IdempotencyKey, Input, Permit, Requester, RiskLevel, ToolError, ToolSpec, Verified,
};
use answer::Answered;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value};
use service::{Message, Service};
use std::sync::Arc;

/// A tool that another service runs.
pub(crate) struct HttpTool {
    spec: ToolSpec,
    executes: Service,
    /// The address that knows the outcomes of interrupted calls.
    verifies: Option<Service>,
    clock: Arc<dyn Clock>,
}

/// The body of a request.
#[derive(Debug, Serialize)]
struct Request<'a> {
    r#type: &'static str,
    tool_call_id: &'a str,
    tool_name: &'a str,
    requester: RequesterView<'a>,
    #[serde(flatten)]
    execution: Option<ExecutionView<'a>>,
}

#[derive(Debug, Serialize)]
struct RequesterView<'a> {
    tenant_id: &'a str,
    user_id: &'a str,
}

#[derive(Debug, Serialize)]
struct ExecutionView<'a> {
    input: Input,
    approved_by: &'a [String],
    attempt: u32,
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
        place: usize,
        tool: &config::HttpTool,
        reach: &Reach,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let key = config::http_tool_key(place);
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
        let spec = spec(tool, tool.read_schema(&key)?);
        Ok(Self { spec, executes, verifies, clock })
    }

    async fn execute(&self, permit: Permit) -> Result<Value, ToolError> {
        let cancellation = permit.cancellation();
        if cancellation.is_cancelled() {
            return Err(ToolError::new("it was stopped before it began; it did not run"));
        }
        let mut input = permit.input().clone();
        input.extend(self.spec.constants.clone());
        let id = permit.idempotency_key().as_str();
        let request = Request {
            r#type: "tool.execute",
            tool_call_id: id,
            tool_name: &self.spec.name,
            requester: RequesterView::of(permit.requester()),
            execution: Some(ExecutionView {
                input,
                approved_by: permit.approved_by(),
                attempt: permit.attempt(),
            }),
        };
        let message = Message { id: id.to_owned(), now: self.clock.now(), idempotency_key: Some(id) };
        let answered = tokio::select! {
            biased;
            answered = self.executes.post(&message, &request) => answered,
            // The connection closes, which tells the service that the server waits no longer.
            () = cancellation.cancelled() => Answered::Unknown("the call was asked to stop".to_owned()),
        };
        answered.into_result()
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
}

fn spec(tool: &config::HttpTool, mut input_schema: Map<String, Value>) -> ToolSpec {
    // As for tools in Rust: a schema that says nothing about other inputs allows none.
    input_schema.entry("additionalProperties").or_insert(Value::Bool(false));
    let risk = match tool.risk {
        Some(ToolRisk::Low) => RiskLevel::Low,
        Some(ToolRisk::Medium) => RiskLevel::Medium,
        Some(ToolRisk::High) => RiskLevel::High,
        None if tool.hil => RiskLevel::High,
        None => RiskLevel::Low,
    };
    ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        hil: tool.hil,
        idempotent: tool.idempotent,
        risk,
        headline: tool.headline.clone(),
        input_schema: Value::Object(input_schema),
        constants: tool.constants.clone(),
    }
}
