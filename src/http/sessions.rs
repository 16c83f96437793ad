//! Sessions: a root thread and all below it.

use super::Api;
use super::auth::Caller;
use super::body::Strict;
use super::error::ApiError;
use super::payload::{Json, Paged, Tag, page_size};
use crate::domain::grant::Grant;
use crate::domain::id::GrantId;
use crate::domain::policy::{Mode, SessionPolicy, ToolPolicy};
use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What becomes of the calls of tools that ask.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename = "ApprovalMode", rename_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
enum ModeName {
    /// A person decides each.
    Manual,
    /// They run.
    AutoApprove,
    /// They do not run.
    AutoDeny,
}

/// What a session says of one tool.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename = "ToolPolicy", rename_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
enum WordName {
    /// Nobody is asked.
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// What holds in a session beside the server's policy.
#[derive(Debug, Object, Deserialize)]
#[oai(rename = "SessionPolicy", deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    /// In place of the server's mode.
    mode: Option<ModeName>,
    /// For single tools, by their names.
    #[serde(default)]
    tools: Option<BTreeMap<String, WordName>>,
}

impl From<&PolicyBody> for SessionPolicy {
    fn from(body: &PolicyBody) -> Self {
        let mode = body.mode.map(|mode| match mode {
            ModeName::Manual => Mode::Manual,
            ModeName::AutoApprove => Mode::AutoApprove,
            ModeName::AutoDeny => Mode::AutoDeny,
        });
        let word = |word: &WordName| match word {
            WordName::Allow => ToolPolicy::Allow,
            WordName::Ask => ToolPolicy::Ask,
            WordName::Deny => ToolPolicy::Deny,
        };
        let tools = body.tools.iter().flatten().map(|(name, said)| (name.clone(), word(said))).collect();
        Self { mode, tools }
    }
}

/// A yes that is remembered.
#[derive(Debug, Object)]
#[oai(rename = "Grant", skip_serializing_if_is_none)]
struct GrantView {
    grant_id: String,
    session_id: String,
    /// About calls of this tool.
    tool_name: String,
    /// The tool's schema: with another it is about no call any more.
    schema_hash: String,
    /// About calls with these inputs alone, as the decision has their hash; if absent, with any.
    input_hash: Option<String>,
    /// Who said yes.
    granted_by: String,
    /// The call to which they said it.
    tool_call_id: String,
    created_at: String,
}

impl GrantView {
    fn of(grant: &Grant) -> Self {
        Self {
            grant_id: grant.id.to_string(),
            session_id: grant.session_id.to_string(),
            tool_name: grant.tool_name.clone(),
            schema_hash: grant.schema_hash.clone(),
            input_hash: grant.input_hash.clone(),
            granted_by: grant.by.clone(),
            tool_call_id: grant.tool_call_id.to_string(),
            created_at: grant.at.to_rfc3339(),
        }
    }
}

#[derive(ApiResponse)]
enum Revoked {
    /// Revoked: nothing begins on its word any more.
    #[oai(status = 204)]
    Revoked,
}

pub(super) struct Sessions(pub(super) Api);

#[OpenApi]
impl Sessions {
    /// Say what holds in a session
    ///
    /// In place of what held. It is asked before the server's mode, and never instead of what the server always denies,
    /// always allows or has rules about. The session's user may only tighten; an operator may loosen too.
    #[oai(
        path = "/sessions/:session_id/policy",
        method = "put",
        operation_id = "setSessionPolicy",
        tag = "Tag::Threads"
    )]
    async fn set_policy(
        &self,
        caller: Caller,
        session_id: Path<String>,
        body: Strict<PolicyBody>,
    ) -> Result<Json<PolicyBody>, ApiError> {
        let id = session_id.0.parse().map_err(|_| ApiError::not_found())?;
        self.0.approvals.set_policy(&caller.0, id, &SessionPolicy::from(&body.0)).await?;
        Ok(Json(body.0))
    }

    /// What is remembered in a session, newest first
    ///
    /// Each a yes that was to be remembered, and still is. The session's user and operators see all of them; who else
    /// has one there sees their own.
    #[oai(
        path = "/sessions/:session_id/grants",
        method = "get",
        operation_id = "listGrants",
        tag = "Tag::Threads"
    )]
    async fn grants(
        &self,
        caller: Caller,
        session_id: Path<String>,
        /// Where to go on: the `next_cursor` of the page before.
        cursor: Query<Option<String>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<u64>>,
    ) -> Result<Paged<GrantView>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<GrantId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let id = session_id.0.parse().map_err(|_| ApiError::not_found())?;
        let page = self.0.approvals.grants(&caller.0, id, before, size).await?;
        let mut results = Paged::new(self.0.page_bytes);
        for grant in &page.items {
            if !results.push(grant.id.to_string(), [GrantView::of(grant)]) {
                break;
            }
        }
        Ok(results.finish(page.has_more))
    }

    /// Have a yes remembered no more
    ///
    /// People are asked again about what comes from now on. What runs by then goes on, and calls that waited and were
    /// freed stay decided. For the session's user, who gave it, and operators.
    #[oai(
        path = "/sessions/:session_id/grants/:grant_id",
        method = "delete",
        operation_id = "revokeGrant",
        tag = "Tag::Threads"
    )]
    async fn revoke(
        &self,
        caller: Caller,
        session_id: Path<String>,
        grant_id: Path<String>,
    ) -> Result<Revoked, ApiError> {
        let session = session_id.0.parse().map_err(|_| ApiError::not_found())?;
        let grant = grant_id.0.parse().map_err(|_| ApiError::not_found())?;
        self.0.approvals.revoke(&caller.0, session, grant).await?;
        Ok(Revoked::Revoked)
    }
}
