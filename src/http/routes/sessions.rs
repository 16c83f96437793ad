//! Sessions and their remembered approvals. A session is a root thread with all threads below it.

use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Granter, Operator, Owner, User},
};
use crate::http::approvals::remember::GrantCondition;
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id, Time};
use crate::http::body::page::{Paged, RequestedSize, page_size};
use crate::http::body::payload::Tag;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::failure::error::ApiError;
use holdpoint_core::grant::{CoveredInputs, Grant};
use holdpoint_core::id::{GrantId, ThreadId};
use holdpoint_store::ListedSession;
use poem_openapi::param::{Path, Query};
use poem_openapi::{ApiResponse, Object, OpenApi};

/// A session: a root thread with all threads below it.
#[derive(Debug, Object)]
#[oai(rename = "Session")]
pub(in crate::http) struct SessionView {
    /// The id of the session, which is that of its root thread.
    session_id: Id,
    /// The user of the session.
    user_id: String,
    /// The title of the root thread.
    title: String,
    /// When the session was created.
    created_at: Time,
    /// When the root thread last got a message or another title.
    updated_at: Time,
    /// Number of pending calls in all threads of the session.
    pending_count: u64,
    /// Whether the session has a policy of its own.
    has_policy: bool,
}

impl SessionView {
    fn of(session: &ListedSession) -> Self {
        let ListedSession { root, pending_count, has_policy } = session;
        Self {
            session_id: Id::of(root.id),
            user_id: root.user_id.clone(),
            title: root.title.clone(),
            created_at: root.created_at.into(),
            updated_at: root.updated_at.into(),
            pending_count: *pending_count,
            has_policy: *has_policy,
        }
    }
}

/// A remembered approval. On a call, the one in force that its approval left, or under which it was approved, if the caller
/// may revoke it.
#[derive(Debug, Object)]
#[oai(rename = "Grant", skip_serializing_if_is_none)]
pub(in crate::http) struct GrantView {
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
    /// If present, the grant approves only calls with inputs that meet these conditions, and without any value that
    /// neither they nor `free` name.
    when: Option<Vec<GrantCondition>>,
    /// With `when`: the arguments that may have any value, as JSON pointers (RFC 6901).
    free: Option<Vec<String>>,
    /// If present, the grant approves no call from this time on.
    until: Option<Time>,
    /// If present, how many later calls the grant was for.
    uses: Option<u32>,
    /// With `uses`: how many of them are left.
    uses_left: Option<u32>,
    /// The actor that approved.
    granted_by: String,
    /// The call that was approved.
    tool_call_id: Id,
    /// When the approval was given.
    created_at: Time,
}

impl GrantView {
    pub(in crate::http) fn of(grant: &Grant) -> Self {
        let (input_hash, bounds) = match &grant.inputs {
            CoveredInputs::Any => (None, None),
            CoveredInputs::Equal(hash) => (Some(hash.clone()), None),
            CoveredInputs::Within(bounds) => (None, Some(bounds)),
        };
        Self {
            grant_id: Id::of(grant.id),
            session_id: Id::of(grant.session_id),
            tool_name: grant.tool_name.clone(),
            schema_hash: grant.schema_hash.clone().into(),
            input_hash: input_hash.map(Hash::from),
            when: bounds.map(|bounds| bounds.when().iter().map(GrantCondition::of).collect()),
            free: bounds.map(|bounds| bounds.free().to_vec()),
            until: grant.until.map(Time::from),
            uses: grant.uses.map(|uses| uses.given),
            uses_left: grant.uses.map(|uses| uses.left),
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

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("listSessions", &[User]),
    ("listGrants", &[Owner, Granter, Operator]),
    ("revokeGrant", &[Owner, Granter, Operator]),
];

pub(in crate::http) struct Sessions(pub(in crate::http) Api);

#[OpenApi]
impl Sessions {
    /// List sessions, newest first
    ///
    /// Returns the caller's sessions. Operators get the sessions of every user of their tenant, without messages.
    #[oai(path = "/sessions", method = "get", operation_id = "listSessions", tag = "Tag::Threads")]
    async fn list(
        &self,
        caller: Caller,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<SessionView>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<ThreadId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        let page = self.0.approvals.sessions(&caller.0, before, size).await?;
        Ok(results.of_rows(&page, |session| (session.root.id.to_string(), SessionView::of(session))))
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
        let results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        let grants = async |id| Ok(self.0.approvals.grants(&caller.0, id, before, size).await?);
        let page = self.0.with_thread(&caller, &session_id, grants).await?;
        Ok(results.of_rows(&page, |grant| (grant.id.to_string(), GrantView::of(grant))))
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
        /// The remembered approval, as the list of grants names it.
        grant_id: Path<Id>,
    ) -> Result<Revoked, ApiError> {
        let grant = grant_id.0.parse().map_err(|_| ApiError::not_found())?;
        let revoke = async |session| Ok(self.0.approvals.revoke(&caller.0, session, grant).await?);
        self.0.with_thread(&caller, &session_id, revoke).await?;
        Ok(Revoked::Revoked)
    }
}
