//! Opening the secret inputs of a held call.

use crate::approvals::{Decider, Revealed};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Owner},
};
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::JsonObject;
use crate::http::failure::error::ApiError;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};

/// The inputs of a call as they are.
#[derive(Debug, Object)]
#[oai(rename = "RevealedInputs", skip_serializing_if_is_none)]
struct RevealedView {
    /// The call in the path of the request.
    tool_call_id: Id,
    /// The inputs as the model proposed them.
    input: JsonObject,
    /// The inputs that replaced the proposed ones in the approval.
    validated_inputs: Option<JsonObject>,
    /// The JSON Pointers of the secrets in `input` and `validated_inputs`.
    secret_inputs: Vec<String>,
    /// The `input_hash` of the call.
    input_hash: Hash,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("revealToolCall", &[Owner, Approver, Delegate])];

pub(in crate::http) struct Reveals(pub(in crate::http) Api);

#[OpenApi]
impl Reveals {
    /// Read the secret inputs of a held call
    ///
    /// Returns the inputs without masks. Allowed for callers that may approve or reject the call, also after its end, and
    /// for the delegate of an approver while the call is pending. For a call with secrets each request is the event
    /// `tool.inputs_revealed`, with the caller and without the values. Counts as a decision for the rate limit.
    #[oai(
        path = "/tool_calls/:tool_call_id/reveal",
        method = "post",
        operation_id = "revealToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn reveal(
        &self,
        caller: Caller,
        /// The held call.
        tool_call_id: Path<Id>,
    ) -> Result<Json<RevealedView>, ApiError> {
        let Ok(id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts, as for a decision.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let revealed = self.0.approvals.reveal(Decider::Person(&caller.0), id).await;
        let Revealed { input, edited, secrets, input_hash } = revealed.map_err(ApiError::not_decided_here)?;
        Ok(Json(RevealedView {
            tool_call_id: Id::of(id),
            input: JsonObject(input),
            validated_inputs: edited.map(JsonObject),
            secret_inputs: secrets,
            input_hash: input_hash.into(),
        }))
    }
}
