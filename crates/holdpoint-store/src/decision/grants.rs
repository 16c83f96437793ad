//! Grants: remembered approvals in the session of a thread.
//!
//! A transaction that stores a call by a grant locks the session before it reads the grant. Transactions that
//! create or revoke a grant lock the session too. So no call starts by a revoked grant.

use crate::decision::inbox::is_pending;
use crate::entity::{grant, thread, tool_call};
use crate::{LockedThread, Page, Read, StoreError, Thread, Write, decision::input_bounds, sql::rows};
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::grant::{CoveredInputs, Grant, GrantUses, GrantsAsOf};
use holdpoint_core::id::{GrantId, ThreadId, ToolCallId};
use holdpoint_core::policy::Source;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, EntityName, EntityTrait, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect,
};
use serde_json::json;

/// The owner of the grants of a session.
#[derive(Debug, Clone, Copy)]
pub enum GrantsOwner<'a> {
    /// The grants of all actors.
    ByAnybody,
    By(&'a str),
}

/// Maximum number of grants in force for one tool in one session. Each judgement of a call reads all of them.
pub const GRANTS_MAX: u64 = 100;

/// What the grant of an approval covers, and who gives it.
#[derive(Debug)]
pub struct GrantFacts<'a> {
    /// The approved call.
    pub call: &'a ToolCall,
    /// The granter, as an actor.
    pub by: &'a str,
    /// The granter's roles.
    pub roles: &'a [String],
    /// The inputs of later calls.
    pub inputs: CoveredInputs,
    /// The time from which the grant covers no call.
    pub until: Option<Timestamp>,
    /// The number of later calls.
    pub uses: Option<u32>,
}

/// The grant that an approval creates.
#[derive(Debug, Clone)]
pub struct NewGrant {
    pub grant: Grant,
    /// Whether the grant exists already: the same person gave the same grant before.
    found_now: bool,
}

/// The reason why an approval cannot create its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoGrant {
    /// The root thread of the session is deleted.
    SessionDeleted,
    /// The session has [`GRANTS_MAX`] grants for the tool.
    TooMany,
}

/// Returns the condition of the grants that are not revoked and whose time is not over.
fn not_ended(GrantsAsOf { process, now }: GrantsAsOf<'_>) -> Condition {
    let until = grant::Column::Until;
    Condition::all()
        .add(grant::Column::RevokedAt.is_null())
        .add(is(grant::Column::ProcessId, process))
        .add(Condition::any().add(until.is_null()).add(until.gt(now.as_micros())))
}

/// Returns the condition of those of them that may let a further call run.
fn may_cover(as_of: GrantsAsOf<'_>) -> Condition {
    let left = grant::Column::UsesLeft;
    not_ended(as_of).add(Condition::any().add(left.is_null()).add(left.gt(0)))
}

fn in_force(session: &Thread, as_of: GrantsAsOf<'_>) -> Condition {
    not_ended(as_of).add(of_session(session))
}

fn of_session(session: &Thread) -> Condition {
    Condition::all()
        .add(grant::Column::SessionId.eq(session.session_id.to_string()))
        .add(grant::Column::TenantId.eq(&session.tenant_id))
}

/// Returns the condition that a column has this value, or NULL for `None`.
fn is(column: grant::Column, value: Option<&str>) -> SimpleExpr {
    value.map_or_else(|| column.is_null(), |value| column.eq(value))
}

/// Returns the condition that a grant covers these inputs, and only these.
fn covers_just(inputs: &CoveredInputs) -> Condition {
    let (hash, bounds) = columns(inputs);
    Condition::all()
        .add(is(grant::Column::InputHash, hash.as_deref()))
        .add(is(grant::Column::InputBounds, bounds.as_deref()))
}

/// Returns the values of the columns `input_hash` and `input_bounds`.
fn columns(inputs: &CoveredInputs) -> (Option<String>, Option<String>) {
    match inputs {
        CoveredInputs::Any => (None, None),
        CoveredInputs::Equal(hash) => (Some(hash.clone()), None),
        CoveredInputs::Within(bounds) => (None, Some(input_bounds::text_of(bounds))),
    }
}

impl Read {
    /// Returns the grants for these tools in the session of a thread that may let calls run in this process at this
    /// time.
    pub async fn grants_about<'a>(
        &self,
        thread: &Thread,
        tools: impl IntoIterator<Item = &'a str>,
        as_of: GrantsAsOf<'_>,
    ) -> Result<Vec<Grant>, StoreError> {
        let tools: Vec<&str> = tools.into_iter().collect();
        if tools.is_empty() {
            return Ok(Vec::new());
        }
        let found = grant::Entity::find()
            .filter(may_cover(as_of).add(of_session(thread)))
            .filter(grant::Column::ToolName.is_in(tools))
            .order_by_asc(grant::Column::GrantId)
            .all(&self.tx)
            .await?;
        found.into_iter().map(rows::grant).collect()
    }

    /// Returns the grants in these sessions that may let calls run in this process at this time.
    pub async fn grants_in(
        &self,
        sessions: impl Iterator<Item = ThreadId>,
        as_of: GrantsAsOf<'_>,
    ) -> Result<Vec<Grant>, StoreError> {
        let found = grant::Entity::find()
            .filter(grant::Column::SessionId.is_in(sessions.map(|session| session.to_string())))
            .filter(may_cover(as_of))
            .order_by_asc(grant::Column::GrantId)
            .all(&self.tx)
            .await?;
        found.into_iter().map(rows::grant).collect()
    }

    /// Returns the grants of a session that may let further calls run, newest first, older than `before`.
    pub async fn grants(
        &self,
        root: &Thread,
        whose: GrantsOwner<'_>,
        as_of: GrantsAsOf<'_>,
        before: Option<GrantId>,
        size: u64,
    ) -> Result<Page<Grant>, StoreError> {
        let mut found = grant::Entity::find().filter(may_cover(as_of).add(of_session(root)));
        if let GrantsOwner::By(actor) = whose {
            found = found.filter(grant::Column::GrantedBy.eq(actor));
        }
        if let Some(before) = before {
            found = found.filter(grant::Column::GrantId.lt(before.to_string()));
        }
        let found = found.order_by_desc(grant::Column::GrantId).limit(size.saturating_add(1));
        let found = found.all(&self.tx).await?.into_iter().map(rows::grant).collect::<Result<_, _>>()?;
        Ok(Page::of(found, size))
    }

    /// Returns the grant that the approval of this call left, or under which the call was approved, if it is in force, used
    /// up or not.
    pub async fn grant_of(
        &self,
        call: &ToolCall,
        thread: &Thread,
        as_of: GrantsAsOf<'_>,
    ) -> Result<Option<Grant>, StoreError> {
        let Some(decision) = &call.decision else { return Ok(None) };
        let id = match decision.source.as_deref().and_then(Source::grant_in) {
            Some(under) => Some(under),
            None if decision.remember.is_some() => self.left_grant(call).await?,
            None => None,
        };
        let Some(id) = id else { return Ok(None) };
        let found = grant::Entity::find_by_id(id.to_string()).filter(in_force(thread, as_of));
        found.one(&self.tx).await?.map(rows::grant).transpose()
    }

    /// Returns the root threads of all sessions with a grant in force.
    pub async fn remembering_sessions(&self) -> Result<Vec<ThreadId>, StoreError> {
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
    pub async fn pending_in_session(
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
            .filter(is_pending())
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
    /// Returns the grant that an approval of a call of this thread would create, or the actor's earlier grant if
    /// nothing about it differs. The session must be locked.
    pub async fn to_grant(
        &self,
        thread: &Thread,
        root: &LockedThread,
        facts: GrantFacts<'_>,
        process: Option<&str>,
    ) -> Result<Result<NewGrant, NoGrant>, StoreError> {
        if root.is_deleted {
            return Ok(Err(NoGrant::SessionDeleted));
        }
        let GrantFacts { call, by, roles, inputs, until, uses } = facts;
        let of_tool = may_cover(GrantsAsOf { process, now: self.now })
            .add(of_session(thread))
            .add(grant::Column::ToolName.eq(&call.name))
            .add(grant::Column::SchemaHash.eq(&call.schema_hash));
        let found = grant::Entity::find()
            .filter(of_tool.clone())
            .filter(grant::Column::GrantedBy.eq(by))
            .filter(covers_just(&inputs))
            .one(&self.tx)
            .await?;
        let found = found.map(rows::grant).transpose()?;
        // The last word counts: a grant of the same person about the same inputs replaces the one before.
        let replaces = found.is_some();
        let is_same =
            |found: &Grant| (&found.roles[..], found.until, found.uses, uses) == (roles, until, None, None);
        if let Some(grant) = found.filter(is_same) {
            return Ok(Ok(NewGrant { grant, found_now: true }));
        }
        if !replaces && grant::Entity::find().filter(of_tool).count(&self.tx).await? >= GRANTS_MAX {
            return Ok(Err(NoGrant::TooMany));
        }
        let grant = Grant {
            id: GrantId::new(self.clock.uuid()),
            session_id: root.id,
            tool_name: call.name.clone(),
            schema_hash: call.schema_hash.clone(),
            inputs,
            until,
            uses: uses.map(|given| GrantUses { given, left: given }),
            by: by.to_owned(),
            roles: roles.to_vec(),
            tool_call_id: call.id,
            at: self.now,
        };
        Ok(Ok(NewGrant { grant, found_now: false }))
    }

    /// Stores a grant after the decision that creates it. Revokes the same person's grant about the same inputs, because
    /// the new one replaces it.
    pub async fn grant(
        &self,
        thread: &Thread,
        new: &NewGrant,
        process: Option<&str>,
    ) -> Result<(), StoreError> {
        if new.found_now {
            return Ok(());
        }
        let Grant {
            id,
            session_id,
            tool_name,
            schema_hash,
            inputs,
            until,
            uses,
            by,
            roles,
            tool_call_id,
            at,
        } = &new.grant;
        // Those that are over too: they are not revoked.
        let same = in_force(thread, GrantsAsOf { process, now: Timestamp::from_micros(0) })
            .add(grant::Column::ToolName.eq(tool_name))
            .add(grant::Column::SchemaHash.eq(schema_hash))
            .add(grant::Column::GrantedBy.eq(by))
            .add(covers_just(inputs));
        self.revoke_where(same, by).await?;
        let (input_hash, input_bounds) = columns(inputs);
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let row = grant::ActiveModel {
            grant_id: Set(id.to_string()),
            tenant_id: Set(thread.tenant_id.clone()),
            session_id: Set(session_id.to_string()),
            tool_name: Set(tool_name.clone()),
            schema_hash: Set(schema_hash.clone()),
            input_hash: Set(input_hash),
            input_bounds: Set(input_bounds),
            until: Set(until.map(Timestamp::as_micros)),
            uses: Set(uses.map(|uses| number(uses.given))),
            uses_left: Set(uses.map(|uses| number(uses.left))),
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

    /// Reads the grants with a number of uses again, and locks them until the transaction ends: of several
    /// transactions that count uses, each counts after the other. Grants that are over since are left out.
    pub async fn lock_counted(&self, grants: &mut Vec<Grant>) -> Result<(), StoreError> {
        let counted = grants.iter().filter(|grant| grant.uses.is_some()).map(|grant| grant.id.to_string());
        let counted: Vec<String> = counted.collect();
        if counted.is_empty() {
            return Ok(());
        }
        let locked = grant::Entity::find()
            .filter(grant::Column::GrantId.is_in(counted))
            .filter(grant::Column::RevokedAt.is_null())
            // In one order, so that no two transactions wait for each other.
            .order_by_asc(grant::Column::GrantId)
            .lock_exclusive()
            .all(&self.tx)
            .await?;
        let locked = locked.into_iter().map(rows::grant).collect::<Result<Vec<_>, _>>()?;
        grants.retain_mut(|grant| {
            if grant.uses.is_none() {
                return true;
            }
            let Some(now) = locked.iter().find(|now| now.id == grant.id) else { return false };
            grant.uses = now.uses;
            true
        });
        Ok(())
    }

    /// Counts calls that run under a grant with a number of uses. The grant must be locked by [`Self::lock_counted`].
    pub async fn count_uses(&self, id: GrantId, uses: u32) -> Result<(), StoreError> {
        let left = Expr::col(grant::Column::UsesLeft);
        let counted = grant::Entity::update_many()
            .col_expr(grant::Column::UsesLeft, left.sub(uses))
            .filter(grant::Column::GrantId.eq(id.to_string()))
            .filter(grant::Column::UsesLeft.gte(uses))
            .exec(&self.tx)
            .await?;
        if counted.rows_affected == 0 {
            return Err(rows::inconsistent("grants", "a grant has fewer uses left than were counted"));
        }
        Ok(())
    }

    /// Revokes a grant. Returns false if no such grant is in force. The session must be locked.
    pub async fn revoke_grant(
        &self,
        root: &Thread,
        whose: GrantsOwner<'_>,
        process: Option<&str>,
        id: GrantId,
        by: &str,
    ) -> Result<bool, StoreError> {
        let mut which = in_force(root, GrantsAsOf { process, now: self.now })
            .add(grant::Column::GrantId.eq(id.to_string()));
        if let GrantsOwner::By(actor) = whose {
            which = which.add(grant::Column::GrantedBy.eq(actor));
        }
        Ok(self.revoke_where(which, by).await? > 0)
    }

    /// Revokes all grants in the session of this root thread, for all processes. Changes no grants if the
    /// thread is not a root. The thread must be locked.
    pub(crate) async fn revoke_grants_in(&self, root: &Thread, by: &str) -> Result<u64, StoreError> {
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
