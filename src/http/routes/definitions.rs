//! Definitions of MCP tools that are not accepted, and their acceptance.

use crate::http::Api;
use crate::http::access::{Access, CallerKind::DefinitionAccepter};
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use holdpoint_core::tool::definition::{Accepted, DefinitionCause, DefinitionChange, Unaccepted};
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{Object, OpenApi};
use serde::Deserialize;

/// A field of a definition that differs from the accepted one. Characters that hide or reverse text are replaced by
/// their numbers.
#[derive(Debug, Object)]
#[oai(rename = "DefinitionChange", skip_serializing_if_is_none)]
struct ChangeView {
    /// The name of the field: `name`, `title`, `description`, `inputSchema`, `outputSchema` or `annotations`.
    field: String,
    /// The accepted value, if there is one: a text, or JSON.
    accepted: Option<String>,
    /// The value now, if there is one: a text, or JSON.
    current: Option<String>,
}

/// What an MCP server says about its tool now, if that is not accepted. Each call of the tool asks, unless the policy
/// forbids it.
#[derive(Debug, Object)]
#[oai(rename = "UnacceptedDefinition")]
pub(in crate::http) struct UnacceptedView {
    cause: Word<DefinitionCause>,
    /// The hash of the definition, for `acceptDefinition`.
    hash: Hash,
    /// How the definition differs from the accepted one, or from none.
    changes: Vec<ChangeView>,
}

impl UnacceptedView {
    pub(in crate::http) fn of(unaccepted: &Unaccepted) -> Self {
        let change = |DefinitionChange { field, accepted, current }: &DefinitionChange| ChangeView {
            field: (*field).to_owned(),
            accepted: accepted.clone(),
            current: current.clone(),
        };
        Self {
            cause: unaccepted.cause.into(),
            hash: unaccepted.hash.clone().into(),
            changes: unaccepted.changes.iter().map(change).collect(),
        }
    }
}

/// The definition that the caller has read and accepts.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct AcceptDefinition {
    /// The `hash` of the definition.
    hash: Hash,
}

impl Example for AcceptDefinition {
    fn example() -> Self {
        Self { hash: "0".repeat(64).into() }
    }
}

/// The accepted definition of a tool.
#[derive(Debug, Object)]
#[oai(rename = "AcceptedDefinition")]
struct AcceptedView {
    /// The tool in the path of the request.
    tool_name: String,
    /// The hash of the definition.
    hash: Hash,
    /// The actor: `user:<sub>`, or `system:first_listing` for the first listing of the server.
    accepted_by: String,
    /// When it was accepted.
    accepted_at: Time,
}

impl AcceptedView {
    fn of(accepted: Accepted) -> Self {
        let Accepted { tool_name, hash, by, at } = accepted;
        Self { tool_name, hash: hash.into(), accepted_by: by, accepted_at: at.into() }
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("acceptDefinition", &[DefinitionAccepter])];

pub(in crate::http) struct Definitions(pub(in crate::http) Api);

#[OpenApi]
impl Definitions {
    /// Accept the definition of an MCP tool
    ///
    /// Accepts what the server of the tool says about it, so that its calls run again where the policy lets them, in
    /// all sessions and for all tenants. The hash has to be that of the definition as its server lists it now, else
    /// 409 `stale`. A repeated request returns the acceptance that is in force. Allowed for callers with one of
    /// `auth.accept_roles`, and without authentication for the one user.
    #[oai(
        path = "/tools/:name/accept",
        method = "post",
        operation_id = "acceptDefinition",
        tag = "Tag::Tools"
    )]
    async fn accept(
        &self,
        caller: Caller,
        /// The `tool_name` of the tool.
        name: Path<String>,
        body: Strict<AcceptDefinition>,
    ) -> Result<Json<AcceptedView>, ApiError> {
        let hash = &*body.0.hash;
        if hash.len() != 64 || !hash.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
            let expected = "hash: expected the hash of a definition, 64 of 0-9 and a-f";
            return Err(ApiError::bad_request(expected));
        }
        let accepted = self.0.approvals.accept_definition(&caller.0, &name.0, hash).await?;
        Ok(Json(AcceptedView::of(accepted)))
    }
}
