//! The route that opens the link of a message.

use crate::approvals::OpenedLink;
use crate::http::Api;
use crate::http::access::{Access, CallerKind::LinkPerson};
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use holdpoint_core::link::LinkToken;
use poem_openapi::types::Example;
use poem_openapi::{Object, OpenApi};
use serde::Deserialize;

/// A link of a message.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct OpenLink {
    /// The token of the link: the part of its address after `#/link/`.
    link: String,
}

impl Example for OpenLink {
    fn example() -> Self {
        Self { link: "0".repeat(64) }
    }
}

/// The call of a link.
#[derive(Debug, Object)]
#[oai(rename = "OpenedLink")]
struct OpenedLinkView {
    /// The call whose card the link opens.
    tool_call_id: Id,
    /// The `input_hash` of the call when the message was sent.
    input_hash: Hash,
    state: CallState,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("openLink", &[LinkPerson])];

pub(in crate::http) struct Links(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl Links {
    /// Open the link of a message
    ///
    /// Returns the call of a link, and changes nothing: a link is used up by the decision that names it. The link has
    /// to be for the caller and to be at most an hour old, and the caller has to see the call without it.
    #[oai(path = "/links/open", method = "post", operation_id = "openLink")]
    async fn open(&self, caller: Caller, body: Strict<OpenLink>) -> Result<Json<OpenedLinkView>, ApiError> {
        let token = LinkToken::new(body.0.link);
        let OpenedLink { call, input_hash } = self.0.approvals.open_link(&caller.0, &token).await?;
        Ok(Json(OpenedLinkView {
            tool_call_id: Id::of(call.id),
            input_hash: input_hash.into(),
            state: (&call.state).into(),
        }))
    }
}
