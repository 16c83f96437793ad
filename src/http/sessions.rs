//! Sessions. A session is a root thread with all threads below it.

use super::Api;
use super::auth::Caller;
use super::body::Strict;
use super::error::ApiError;
use super::formats::{Hash, Id, Time};
use super::nullable::WordOrNull;
use super::page::{Paged, RequestedSize, page_size};
use super::payload::{Json, Tag};
use super::thread_ref::ThreadRef;
use crate::domain::grant::Grant;
use crate::domain::id::GrantId;
use crate::domain::policy::{self, SessionPolicy};
use poem_openapi::param::{Path, Query};
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The effect on calls of tools that require approval.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename_all = "kebab-case", remote = "policy::ApprovalMode")]
#[serde(rename_all = "kebab-case")]
pub(super) enum ApprovalMode {
    /// A person decides each call.
    Manual,
    /// The calls run.
    AutoApprove,
    /// The calls do not run.
    AutoDeny,
}

/// The policy of a session for one tool.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename_all = "kebab-case", remote = "policy::ToolPolicy")]
#[serde(rename_all = "kebab-case")]
enum ToolPolicy {
    /// The call runs without an approval.
    Allow,
    /// The call is held for an approval.
    Ask,
    /// The call does not run.
    Deny,
}

/// The policy of a session, in addition to the server's policy.
#[derive(Debug, Object, Deserialize)]
#[oai(rename = "SessionPolicy", deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyBody {
    /// The effect on calls of tools that require approval: `manual` holds them, `auto-approve` runs them,
    /// `auto-deny` refuses them. Absent or null: as the server's mode says.
    mode: Option<WordOrNull<ApprovalMode>>,
    /// The policy of single tools, by the name of the tool.
    #[serde(default)]
    tools: Option<BTreeMap<String, ToolPolicy>>,
}

impl Example for PolicyBody {
    fn example() -> Self {
        Self { mode: Some(WordOrNull(ApprovalMode::AutoDeny)), tools: None }
    }
}

impl From<&SessionPolicy> for PolicyBody {
    fn from(policy: &SessionPolicy) -> Self {
        let tools = policy.tools.iter().map(|(name, tool_policy)| (name.clone(), (*tool_policy).into()));
        Self {
            mode: policy.mode.map(|mode| WordOrNull(mode.into())),
            tools: Some(tools.collect()).filter(|tools: &BTreeMap<_, _>| !tools.is_empty()),
        }
    }
}

impl From<&PolicyBody> for SessionPolicy {
    fn from(body: &PolicyBody) -> Self {
        let tools = body.tools.iter().flatten();
        Self {
            mode: body.mode.map(|mode| mode.0.into()),
            tools: tools.map(|(name, tool_policy)| (name.clone(), (*tool_policy).into())).collect(),
        }
    }
}

/// A remembered approval.
#[derive(Debug, Object)]
#[oai(rename = "Grant", skip_serializing_if_is_none)]
pub(super) struct GrantView {
    /// The id of the grant, to revoke it.
    grant_id: Id,
    /// The session whose calls the grant approves.
    session_id: Id,
    /// The tool whose calls the grant approves.
    tool_name: String,
    /// The hash of the tool's schema. The grant approves no call after the schema changes.
    schema_hash: Hash,
    /// If present, the grant approves only calls with these inputs. The hash is that of the decision.
    input_hash: Option<Hash>,
    /// The actor that approved.
    granted_by: String,
    /// The call that was approved.
    tool_call_id: Id,
    /// When the approval was given.
    created_at: Time,
}

impl GrantView {
    pub(super) fn of(grant: &Grant) -> Self {
        Self {
            grant_id: Id::of(grant.id),
            session_id: Id::of(grant.session_id),
            tool_name: grant.tool_name.clone(),
            schema_hash: grant.schema_hash.clone().into(),
            input_hash: grant.input_hash.clone().map(Hash::from),
            granted_by: grant.by.clone(),
            tool_call_id: Id::of(grant.tool_call_id),
            created_at: grant.at.into(),
        }
    }
}

#[derive(ApiResponse)]
enum Revoked {
    /// Revoked: the grant starts no further call.
    #[oai(status = 204)]
    Revoked,
}

pub(super) struct Sessions(pub(super) Api);

#[OpenApi]
impl Sessions {
    /// Set the policy of a session
    ///
    /// The policy replaces the previous one. It takes precedence over the server's mode, but not over the
    /// tools that the server always denies or always allows, and not over the server's rules. The session's
    /// user may only tighten the policy; an operator may also loosen it.
    #[oai(
        path = "/sessions/:session_id/policy",
        method = "put",
        operation_id = "setSessionPolicy",
        tag = "Tag::Threads"
    )]
    async fn set_policy(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        body: Strict<PolicyBody>,
    ) -> Result<Json<PolicyBody>, ApiError> {
        let policy = &SessionPolicy::from(&body.0);
        let set = async |id| Ok(self.0.approvals.set_policy(&caller.0, id, policy).await?);
        self.0.with_thread(&caller, &session_id, set).await?;
        Ok(Json(body.0))
    }

    /// List the remembered approvals of a session, newest first
    ///
    /// Returns the grants that are still in force. The session's user and operators see all of them. Another
    /// caller with a grant in the session sees only their own.
    #[oai(
        path = "/sessions/:session_id/grants",
        method = "get",
        operation_id = "listGrants",
        tag = "Tag::Threads"
    )]
    async fn grants(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<GrantView>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<GrantId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let grants = async |id| Ok(self.0.approvals.grants(&caller.0, id, before, size).await?);
        let page = self.0.with_thread(&caller, &session_id, grants).await?;
        let mut results = Paged::new(self.0.page_bytes);
        for grant in &page.items {
            if !results.push(grant.id.to_string(), [GrantView::of(grant)]) {
                break;
            }
        }
        Ok(results.finish(page.has_more))
    }

    /// Revoke a remembered approval
    ///
    /// Later calls are held again. Running calls continue, and pending calls that the grant approved stay
    /// approved. Allowed for the session's user, the user that gave the approval, and operators.
    #[oai(
        path = "/sessions/:session_id/grants/:grant_id",
        method = "delete",
        operation_id = "revokeGrant",
        tag = "Tag::Threads"
    )]
    async fn revoke(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        /// The `grant_id` of the grant.
        grant_id: Path<Id>,
    ) -> Result<Revoked, ApiError> {
        let grant = grant_id.0.parse().map_err(|_| ApiError::not_found())?;
        let revoke = async |session| Ok(self.0.approvals.revoke(&caller.0, session, grant).await?);
        self.0.with_thread(&caller, &session_id, revoke).await?;
        Ok(Revoked::Revoked)
    }
}
