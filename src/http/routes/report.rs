//! The route at which services report outcomes of calls that they accepted.

use crate::approvals::{Report, Reported};
use crate::http::Api;
use crate::http::access::{Access, CallerKind::ToolService};
use crate::http::auth::Reporter;
use crate::http::body::formats::Id;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{self, CONTENT_TYPE};
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::{Any, Example, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, ApiResponse, ExtractParamOptions, Object, OpenApi};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// The outcome of a call, from the service of its tool: either `result` or `error`.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct ReportedOutcome {
    /// The output of the tool, any JSON: the call succeeded.
    #[serde(default, deserialize_with = "given")]
    result: Option<Any<Value>>,
    /// The reason of a failure, for the model: nothing happened, and nothing will.
    error: Option<String>,
}

impl Example for ReportedOutcome {
    fn example() -> Self {
        Self { result: Some(Any(json!({ "refunded": 1200 }))), error: None }
    }
}

/// Reads a field that may be null. An absent field is `None`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Any<Value>>, D::Error> {
    Value::deserialize(deserializer).map(|value| Some(Any(value)))
}

impl ReportedOutcome {
    fn report(self) -> Result<Report, ApiError> {
        match (self.result, self.error) {
            (Some(Any(output)), None) => Ok(Report::Succeeded(output)),
            (None, Some(message)) => Ok(Report::Failed(message)),
            _ => Err(ApiError::bad_request("body: expected either result or error")),
        }
    }
}

/// A body that its reporter signed.
struct SignedBody(ReportedOutcome);

impl<'a> ApiExtractor<'a> for SignedBody {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        ReportedOutcome::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let content = MetaMediaType { content_type: CONTENT_TYPE, schema: ReportedOutcome::schema_ref() };
        Some(MetaRequest { description: None, content: vec![content], required: true })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        let reporter = Reporter::from_request_without_body(request).await?;
        let bytes = strict::bytes(request, body).await?.unwrap_or_default();
        reporter.verify(request, &bytes)?;
        Ok(Self(strict::parse(strict::utf8(&bytes)?)?))
    }
}

/// The call of a report.
#[derive(Debug, Object)]
struct ReportResult {
    /// The call in the path of the request.
    tool_call_id: Id,
    state: CallState,
}

#[derive(ApiResponse)]
enum ReportResponse {
    /// The outcome is stored.
    #[oai(status = 200)]
    Stored(
        Json<ReportResult>,
        /// True if the call had this outcome already.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("reportResult", &[ToolService])];

pub(in crate::http) struct Reports(pub(in crate::http) Api);

#[OpenApi]
impl Reports {
    /// Report the outcome of a tool call
    ///
    /// For the service of an HTTP tool, which got this URL with the call as `callback_url` and accepted the call with
    /// 202. The request needs no token: the URL has an HMAC, and the service signs the request by Standard Webhooks with
    /// the secret of the tool. The first outcome counts, also before the 202 was read and after the result deadline. The
    /// same outcome again gets 200, another outcome 409 `already_settled`, and the outcome of an earlier attempt 409
    /// `stale`.
    #[oai(
        path = "/tool_calls/:tool_call_id/result",
        method = "post",
        operation_id = "reportResult",
        tag = "Tag::ToolCalls"
    )]
    #[expect(
        clippy::too_many_arguments,
        reason = "they describe the parts of the request that are verified before"
    )]
    async fn report(
        &self,
        reporter: Reporter,
        body: SignedBody,
        /// The call, as in the `callback_url`.
        #[oai(name = "tool_call_id")]
        _tool_call_id: Path<Id>,
        /// The tool, as in the `callback_url`.
        #[oai(name = "tool_name")]
        _tool_name: Query<String>,
        /// The execution of the call, as in the `callback_url`.
        #[oai(name = "execution_id")]
        _execution_id: Query<Id>,
        /// The HMAC over tool, call and execution, as in the `callback_url`.
        #[oai(name = "mac")]
        _mac: Query<String>,
        /// The id of the message, any text.
        #[oai(name = "webhook-id")]
        _webhook_id: Header<String>,
        /// The time of the message in seconds since 1970, at most 5 minutes from now.
        #[oai(name = "webhook-timestamp")]
        _webhook_timestamp: Header<String>,
        /// `v1,` and the HMAC-SHA256 over id, time and body in base64; several with a space between.
        #[oai(name = "webhook-signature")]
        _webhook_signature: Header<String>,
    ) -> Result<ReportResponse, ApiError> {
        let Reporter { tool, call, execution, .. } = reporter;
        let report = body.0.report()?;
        let Reported { state, replayed } = self.0.approvals.report(&tool, call, execution, report).await?;
        let result = ReportResult { tool_call_id: Id::of(call), state: state.into() };
        Ok(ReportResponse::Stored(Json(result), replayed.then(|| "true".to_owned())))
    }
}
