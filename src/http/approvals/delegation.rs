//! The route with which an approver lets another person decide a held call.

use crate::approvals::DelegationRequest;
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Owner},
};
use crate::http::approvals::validate::{REASON_MAX, given_reason};
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::failure::error::ApiError;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::delegation::Delegation;
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{Object, OpenApi};
use serde::Deserialize;

/// Maximum length of a user in a request, in characters.
const USER_MAX: usize = 256;

/// A delegation of one call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct DelegateCall {
    /// The user that decides in the caller's place: the `sub` of their tokens, in the tenant of the caller. The server
    /// does not know which users exist. 1 to 256 characters.
    #[oai(validator(min_length = 1, max_length = 256))]
    to: String,
    /// The end of the delegation, in RFC 3339: in the future, and not after the `expires_at` of the call.
    until: Time,
    /// Why, for the delegate and the record. 1 to 2000 characters, and not blank.
    #[oai(validator(min_length = 1, max_length = 2000, pattern = "\\S"))]
    reason: String,
}

impl Example for DelegateCall {
    fn example() -> Self {
        Self {
            to: "bob".to_owned(),
            until: "2030-01-01T12:00:00Z".to_owned().into(),
            reason: "I am out of office until Monday.".to_owned(),
        }
    }
}

impl DelegateCall {
    fn checked(self) -> Result<DelegationRequest, ApiError> {
        let Self { to, until, reason } = self;
        if to.is_empty() || to.chars().count() > USER_MAX {
            return Err(ApiError::bad_request(format!("to: expected a user, in 1 to {USER_MAX} characters")));
        }
        let until = Timestamp::of_rfc3339(&until)
            .ok_or_else(|| ApiError::bad_request("until: expected a time in RFC 3339, with its offset"))?;
        let length = reason.chars().count();
        let reason = given_reason(Some(reason)).filter(|_| length <= REASON_MAX);
        let reason = reason.ok_or_else(|| {
            ApiError::bad_request(format!("reason: expected a text, in 1 to {REASON_MAX} characters"))
        })?;
        Ok(DelegationRequest { to, until, reason })
    }
}

/// A delegation of a call.
#[derive(Debug, Object)]
#[oai(rename = "Delegation")]
pub(in crate::http) struct DelegationView {
    /// The approver, as an actor.
    from: String,
    /// The person that decides in the approver's place, as an actor.
    to: String,
    /// The end of the delegation.
    until: Time,
    /// The reason that the approver gave.
    reason: String,
    /// When the call was delegated.
    at: Time,
}

impl DelegationView {
    pub(in crate::http) fn of(delegation: &Delegation) -> Self {
        Self {
            from: delegation.delegator.actor(),
            to: delegation.delegate_actor(),
            until: delegation.until.into(),
            reason: delegation.reason.clone(),
            at: delegation.at.into(),
        }
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("delegateApproval", &[Owner, Approver])];

pub(in crate::http) struct DelegationRoutes(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl DelegationRoutes {
    /// Let another person decide a held call
    ///
    /// The delegate sees the call like an approver and decides it in the caller's place until the end of the delegation.
    /// The two have one vote together: the first of them decides or votes. Allowed for callers that may approve the call
    /// in their own right and have not approved it. The user of the thread is never a delegate. Another delegation of the
    /// same caller replaces this one. A delegation that is not possible gets 422 `not_delegated`. Counts as a decision for
    /// the rate limit.
    #[oai(path = "/approvals/:tool_call_id/delegate", method = "post", operation_id = "delegateApproval")]
    async fn delegate(
        &self,
        caller: Caller,
        /// The held call.
        tool_call_id: Path<Id>,
        body: Strict<DelegateCall>,
    ) -> Result<Json<DelegationView>, ApiError> {
        let delegation = body.0.checked()?;
        let Ok(id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts, as for a decision.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let delegation = self.0.approvals.delegate(&caller.0, id, delegation).await?;
        Ok(Json(DelegationView::of(&delegation)))
    }
}
