//! Grants: remembered approvals in the session of a thread.
//!
//! A transaction that stores a call by a grant locks the session before it reads the grant. Transactions that
//! create or revoke a grant lock the session too. So no call starts by a revoked grant.

use super::entity::{grant, thread, tool_call};
use super::{LockedThread, Page, Read, StoreError, Thread, Write, rows};
use crate::domain::call::{StateKind, ToolCall};
use crate::domain::grant::Grant;
use crate::domain::id::{GrantId, ThreadId, ToolCallId};
use sea_orm::sea_query::{Expr, Query, SimpleExpr};
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use serde_json::json;

/// The owner of the grants of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Granted<'a> {
    /// The grants of all actors.
    ByAnybody,
    /// The grants of this actor.
    By(&'a str),
}

/// The grant that an approval creates.
#[derive(Debug, Clone)]
pub(crate) struct NewGrant {
    /// The grant.
    pub(crate) grant: Grant,
    /// Whether the grant exists already: the same person gave the same grant before.
    found_now: bool,
}

fn in_force(session: &Thread, process: Option<&str>) -> Condition {
    Condition::all()
        .add(grant::Column::SessionId.eq(session.session_id.to_string()))
        .add(grant::Column::TenantId.eq(&session.tenant_id))
        .add(grant::Column::RevokedAt.is_null())
        .add(is(grant::Column::ProcessId, process))
}

/// Returns the condition that a column has this value, or NULL for `None`.
fn is(column: grant::Column, value: Option<&str>) -> SimpleExpr {
    value.map_or_else(|| column.is_null(), |value| column.eq(value))
}

impl Read {
    /// Returns the grants for these tools in the session of a thread that apply in this process.
    pub(crate) async fn grants_about<'a>(
        &self,
        thread: &Thread,
        tools: impl IntoIterator<Item = &'a str>,
        process: Option<&str>,
    ) -> Result<Vec<Grant>, StoreError> {
        let tools: Vec<&str> = tools.into_iter().collect();
        if tools.is_empty() {
            return Ok(Vec::new());
        }
        let found = grant::Entity::find()
            .filter(in_force(thread, process))
            .filter(grant::Column::ToolName.is_in(tools))
            .order_by_asc(grant::Column::GrantId)
            .all(&self.tx)
            .await?;
        found.into_iter().map(rows::grant).collect()
    }

    /// Returns the grants in these sessions that apply in this process.
    pub(crate) async fn grants_in(
        &self,
        sessions: impl Iterator<Item = ThreadId>,
        process: Option<&str>,
    ) -> Result<Vec<Grant>, StoreError> {
        let found = grant::Entity::find()
            .filter(grant::Column::SessionId.is_in(sessions.map(|session| session.to_string())))
            .filter(grant::Column::RevokedAt.is_null())
            .filter(is(grant::Column::ProcessId, process))
            .order_by_asc(grant::Column::GrantId)
            .all(&self.tx)
            .await?;
        found.into_iter().map(rows::grant).collect()
    }

    /// Returns the grants of a session, newest first, older than `before`.
    pub(crate) async fn grants(
        &self,
        root: &Thread,
        whose: Granted<'_>,
        process: Option<&str>,
        before: Option<GrantId>,
        size: u64,
    ) -> Result<Page<Grant>, StoreError> {
        let mut found = grant::Entity::find().filter(in_force(root, process));
        if let Granted::By(actor) = whose {
            found = found.filter(grant::Column::GrantedBy.eq(actor));
        }
        if let Some(before) = before {
            found = found.filter(grant::Column::GrantId.lt(before.to_string()));
        }
        let found = found.order_by_desc(grant::Column::GrantId).limit(size.saturating_add(1));
        let found = found.all(&self.tx).await?.into_iter().map(rows::grant).collect::<Result<_, _>>()?;
        Ok(Page::of(found, size))
    }

    /// Returns the root threads of all sessions with a grant in force.
    pub(crate) async fn remembering_sessions(&self) -> Result<Vec<ThreadId>, StoreError> {
        let ids: Vec<String> = grant::Entity::find()
            .select_only()
            .column(grant::Column::SessionId)
            .distinct()
            .filter(grant::Column::RevokedAt.is_null())
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("grants", id)).collect()
    }

    /// Returns the pending calls of a tool with this schema in the session of a thread, oldest first.
    pub(crate) async fn pending_in_session(
        &self,
        of: &Thread,
        tool_name: &str,
        schema_hash: &str,
    ) -> Result<Vec<ToolCallId>, StoreError> {
        let threads = Query::select()
            .column(thread::Column::ThreadId)
            .from(thread::Entity.table_ref())
            .and_where(thread::Column::SessionId.eq(of.session_id.to_string()))
            .and_where(thread::Column::DeletedAt.is_null())
            .to_owned();
        let ids: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(tool_call::Column::ThreadId.in_subquery(threads))
            .filter(tool_call::Column::State.eq(StateKind::Pending))
            .filter(tool_call::Column::Name.eq(tool_name))
            .filter(tool_call::Column::SchemaHash.eq(schema_hash))
            .order_by_asc(tool_call::Column::ToolCallId)
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }
}

impl Write {
    /// Returns the grant that an approval of a call of this thread, by an actor with these roles, would
    /// create. Returns the actor's earlier grant if its roles are the same. Returns `None` if the session is
    /// deleted.
    pub(crate) async fn to_grant(
        &self,
        (thread, root): (&Thread, &LockedThread),
        (by, roles): (&str, &[String]),
        call: &ToolCall,
        input_hash: Option<String>,
        process: Option<&str>,
    ) -> Result<Option<NewGrant>, StoreError> {
        if root.is_deleted {
            return Ok(None);
        }
        let found = grant::Entity::find()
            .filter(in_force(thread, process))
            .filter(grant::Column::ToolName.eq(&call.name))
            .filter(grant::Column::SchemaHash.eq(&call.schema_hash))
            .filter(grant::Column::GrantedBy.eq(by))
            .filter(is(grant::Column::InputHash, input_hash.as_deref()))
            .one(&self.tx)
            .await?;
        let found_now = found.map(rows::grant).transpose()?.filter(|grant| grant.roles == roles);
        Ok(Some(match found_now {
            Some(grant) => NewGrant { grant, found_now: true },
            None => NewGrant {
                grant: Grant {
                    id: GrantId::new(self.clock.uuid()),
                    session_id: root.id,
                    tool_name: call.name.clone(),
                    schema_hash: call.schema_hash.clone(),
                    input_hash,
                    by: by.to_owned(),
                    roles: roles.to_vec(),
                    tool_call_id: call.id,
                    at: self.now,
                },
                found_now: false,
            },
        }))
    }

    /// Stores a grant after the decision that creates it. Revokes the same person's grant with other roles,
    /// because the new roles replace the old ones.
    pub(crate) async fn grant(
        &self,
        thread: &Thread,
        new: &NewGrant,
        process: Option<&str>,
    ) -> Result<(), StoreError> {
        if new.found_now {
            return Ok(());
        }
        let Grant { id, session_id, tool_name, schema_hash, input_hash, by, roles, tool_call_id, at } =
            &new.grant;
        let same = in_force(thread, process)
            .add(grant::Column::ToolName.eq(tool_name))
            .add(grant::Column::SchemaHash.eq(schema_hash))
            .add(grant::Column::GrantedBy.eq(by))
            .add(is(grant::Column::InputHash, input_hash.as_deref()));
        self.revoke_where(same, by).await?;
        let row = grant::ActiveModel {
            grant_id: Set(id.to_string()),
            tenant_id: Set(thread.tenant_id.clone()),
            session_id: Set(session_id.to_string()),
            tool_name: Set(tool_name.clone()),
            schema_hash: Set(schema_hash.clone()),
            input_hash: Set(input_hash.clone()),
            process_id: Set(process.map(str::to_owned)),
            granted_by: Set(by.clone()),
            roles: Set(json!(roles).to_string()),
            tool_call_id: Set(tool_call_id.to_string()),
            created_at: Set(at.as_micros()),
            revoked_at: Set(None),
            revoked_by: Set(None),
        };
        grant::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(())
    }

    /// Revokes a grant. Returns false if no such grant is in force. The session must be locked.
    pub(crate) async fn revoke_grant(
        &self,
        root: &Thread,
        whose: Granted<'_>,
        process: Option<&str>,
        id: GrantId,
        by: &str,
    ) -> Result<bool, StoreError> {
        let mut which = in_force(root, process).add(grant::Column::GrantId.eq(id.to_string()));
        if let Granted::By(actor) = whose {
            which = which.add(grant::Column::GrantedBy.eq(actor));
        }
        Ok(self.revoke_where(which, by).await? > 0)
    }

    /// Revokes all grants in the session of this root thread, for all processes. Changes no grants if the
    /// thread is not a root. The thread must be locked.
    pub(super) async fn revoke_grants_in(&self, root: &Thread, by: &str) -> Result<u64, StoreError> {
        self.revoke_where(Condition::all().add(grant::Column::SessionId.eq(root.id.to_string())), by).await
    }

    async fn revoke_where(&self, which: Condition, by: &str) -> Result<u64, StoreError> {
        let revoked = grant::Entity::update_many()
            .col_expr(grant::Column::RevokedAt, Expr::value(self.now.as_micros()))
            .col_expr(grant::Column::RevokedBy, Expr::value(by))
            .filter(which)
            .filter(grant::Column::RevokedAt.is_null())
            .exec(&self.tx)
            .await?;
        Ok(revoked.rows_affected)
    }
}
