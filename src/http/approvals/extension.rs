//! The route that lets a held call wait longer for its decision.

use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Owner},
};
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::failure::error::ApiError;
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{Object, OpenApi};
use serde::Deserialize;
use std::time::Duration;

/// The longest time in a request, in seconds: ten years.
const SECONDS_MAX: u64 = 315_360_000;

/// A longer time to decide.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct ExtendCall {
    /// How many seconds from now on the call waits, at least 1. Not less than it waits already, and not longer than
    /// `approval.ttl_max` after the call was made.
    #[oai(validator(minimum(value = "1"), maximum(value = "315360000")))]
    expires_in: u64,
}

impl Example for ExtendCall {
    fn example() -> Self {
        Self { expires_in: 172_800 }
    }
}

/// The new deadline of a call.
#[derive(Debug, Object)]
struct ExtendResult {
    /// The call in the path of the request.
    tool_call_id: Id,
    /// When the call expires if it is still pending.
    expires_at: Time,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("extendToolCall", &[Owner, Approver, Delegate])];

pub(in crate::http) struct Extensions(pub(in crate::http) Api);

#[OpenApi]
impl Extensions {
    /// Let a held call wait longer
    ///
    /// Sets a later deadline for the decision about a pending call. Allowed for callers that may approve the call. A call
    /// whose time is over expires, and no request makes it wait again. A deadline that is not later, or later than
    /// `approval.ttl_max` allows, gets 422 `not_extended`. Counts as a decision for the rate limit.
    #[oai(
        path = "/tool_calls/:tool_call_id/extend",
        method = "post",
        operation_id = "extendToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn extend(
        &self,
        caller: Caller,
        /// The held call.
        tool_call_id: Path<Id>,
        body: Strict<ExtendCall>,
    ) -> Result<Json<ExtendResult>, ApiError> {
        let seconds = body.0.expires_in;
        if !(1..=SECONDS_MAX).contains(&seconds) {
            let message = format!("expires_in: expected 1 to {SECONDS_MAX} seconds");
            return Err(ApiError::bad_request(message));
        }
        let Ok(id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts, as for a decision.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let expires_at = self.0.approvals.extend(&caller.0, id, Duration::from_secs(seconds)).await?;
        Ok(Json(ExtendResult { tool_call_id: Id::of(id), expires_at: expires_at.into() }))
    }
}
