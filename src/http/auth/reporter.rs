//! Reporters: services that report the outcome of a call at its `callback_url`.
//!
//! The URL is the right to do so, and the service signs the body. Both are checked with the secrets of the tool, without
//! the database. A reporter has no token, and sees and does nothing else.

use crate::http::auth::failure::Unknown;
use crate::http::body::templates::without_api;
use crate::http::failure::error::ApiError;
use crate::tools::ToolRegistry;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{ExecId, ToolCallId};
use holdpoint_egress::callback::{Callback, EXECUTION, MAC, TOOL};
use holdpoint_egress::standard_webhooks::{ID, RefusedMessage, SIGNATURE, SignedHeaders, Signer, TIMESTAMP};
use poem::http::Method;
use poem::{FromRequest, Request, RequestBody, Result};
use std::sync::Arc;

/// The service of a tool, as the URL of its request shows. The middleware puts it into the request.
#[derive(Debug, Clone)]
pub(in crate::http) struct Reporter {
    pub(in crate::http) tool: String,
    pub(in crate::http) call: ToolCallId,
    pub(in crate::http) execution: ExecId,
    keys: Arc<Signer>,
    /// The time of the request.
    now: Timestamp,
}

impl Reporter {
    /// Returns the reporter of a request for a `callback_url`, or the refusal. `None` for every other request.
    pub(in crate::http) fn of(
        request: &Request,
        tools: &ToolRegistry,
        now: Timestamp,
    ) -> Option<Result<Self, ApiError>> {
        let path = without_api(request.uri().path());
        let call = path.strip_prefix("/tool_calls/")?.strip_suffix("/result")?;
        let is_report = request.method() == Method::POST && !call.contains('/');
        is_report.then(|| {
            // An invalid id names no call.
            let call = call.parse().map_err(|_| ApiError::not_found())?;
            let known = Self::known(request.uri().query().unwrap_or_default(), call, tools, now);
            known.ok_or_else(|| ApiError::unauthenticated(&Unknown::Callback, None))
        })
    }

    fn known(query: &str, call: ToolCallId, tools: &ToolRegistry, now: Timestamp) -> Option<Self> {
        let parameter = |name: &str| {
            let mut found = url::form_urlencoded::parse(query.as_bytes()).filter(|(other, _)| other == name);
            found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.into_owned())
        };
        let (tool, mac) = (parameter(TOOL)?, parameter(MAC)?);
        let execution = parameter(EXECUTION)?.parse().ok()?;
        let keys = tools.get(&tool)?.callback_keys.clone()?;
        let is_own = Callback { tool: &tool, call, execution }.has(&mac, &keys);
        is_own.then_some(Self { tool, call, execution, keys, now })
    }

    /// Verifies that the service signed this body.
    pub(in crate::http) fn verify(&self, request: &Request, body: &[u8]) -> Result<(), ApiError> {
        let (id, timestamp, signature) =
            (request.header(ID), request.header(TIMESTAMP), request.header(SIGNATURE));
        let signed = match (id, timestamp, signature) {
            (Some(id), Some(timestamp), Some(signature)) => SignedHeaders { id, timestamp, signature },
            _ => return Err(ApiError::unauthenticated(&Unknown::Unsigned, None)),
        };
        let now = self.now.as_micros().div_euclid(1_000_000);
        self.keys.verify(signed, body, now).map_err(|refused| {
            let why = match refused {
                RefusedMessage::Time => Unknown::WebhookTime,
                RefusedMessage::Signature => Unknown::WebhookSignature,
            };
            ApiError::unauthenticated(&why, None)
        })
    }
}

impl<'a> FromRequest<'a> for Reporter {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        // The path of another request can lead here too: its id is written in another way.
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::not_found)?)
    }
}
