//! Executions by workers. A worker holds no connection to the database: it proves with a permit token that it
//! holds the execution of a call. The row has the hash of the token.

use crate::call::executions::SettleOutcome;
use crate::entity::tool_call;
use crate::{LockedRow, Read, RenewalOutcome, StoreError, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{Execution, Outcome, ToolCall};
use holdpoint_core::card::progress::Progress;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::ToolCallId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, RelationTrait};
use std::time::Duration;

/// Maximum number of calls that one query returns.
const PAGE: u64 = 16;

/// Calls that wait for a worker. A literal without parameters, so that the partial index `tool_calls_workers` is
/// usable.
const CLAIMABLE: &str = "by_worker AND state = 'approved'";

/// A call, locked until the transaction ends, whose last execution a worker holds or held.
#[derive(Debug)]
pub struct PermittedCall {
    row: LockedRow,
    pub call: ToolCall,
    /// The execution that the permit token belongs to: the last one.
    pub execution: Execution,
    pub is_cancel_requested: bool,
    lease_until: Option<Timestamp>,
}

impl Read {
    /// Returns the calls of these tools that wait for a worker in this tenant, after this one, in the order of
    /// their ids, with their tools. An empty list means that no more exist.
    pub async fn calls_for_workers(
        &self,
        tenant_id: &str,
        tools: &[String],
        after: Option<ToolCallId>,
    ) -> Result<Vec<(ToolCallId, String)>, StoreError> {
        let mut found = tool_call::Entity::find()
            .select_only()
            .columns([tool_call::Column::ToolCallId, tool_call::Column::Name])
            .filter(Expr::cust(CLAIMABLE))
            .filter(tool_call::Column::TenantId.eq(tenant_id))
            .filter(tool_call::Column::Name.is_in(tools))
            .order_by_asc(tool_call::Column::ToolCallId)
            .limit(PAGE);
        if let Some(after) = after {
            found = found.filter(tool_call::Column::ToolCallId.gt(after.to_string()));
        }
        let found: Vec<(String, String)> = found.into_tuple().all(&self.tx).await?;
        found.into_iter().map(|(id, tool)| Ok((rows::id("tool_calls", &id)?, tool))).collect()
    }
}

impl Write {
    /// Locks a call of the worker's tenant whose last execution has this permit token.
    pub async fn lock_permitted(
        &self,
        worker: &Principal,
        id: ToolCallId,
        permit_hash: &str,
    ) -> Result<Option<PermittedCall>, StoreError> {
        let permitted = tool_call::Entity::find()
            .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
            .filter(tool_call::Column::TenantId.eq(&worker.tenant_id))
            .filter(tool_call::Column::PermitHash.eq(permit_hash));
        let Some(row) = self.lock_one(permitted, id).await? else { return Ok(None) };
        let (Some(exec_id), Some(started_at)) = (&row.call.exec_id, row.call.started_at) else {
            return Ok(None);
        };
        let execution = Execution {
            id: rows::id("tool_calls", exec_id)?,
            attempt: row.call.exec_attempt,
            started_at: Timestamp::from_micros(started_at),
        };
        Ok(Some(PermittedCall {
            call: rows::call(row.call.clone(), None)?,
            execution,
            is_cancel_requested: row.call.cancel_requested_at.is_some(),
            lease_until: row.call.lease_until.map(Timestamp::from_micros),
            row,
        }))
    }

    /// Renews the lease of a worker's execution, which ends `timeout` after its claim at the latest. Returns the
    /// end of the lease, or `None` if the execution is over. A worker that was asked to stop keeps its lease, and
    /// gets no longer one.
    pub async fn renew_permitted(
        &self,
        permitted: &PermittedCall,
        lease: Duration,
        timeout: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let PermittedCall { call, execution, is_cancel_requested, lease_until, .. } = permitted;
        let (now, last) = (self.now, execution.started_at.plus(timeout));
        let until = match lease_until {
            Some(until) if *is_cancel_requested => *until,
            _ => now.plus(lease).min(last),
        };
        if until <= now {
            return Ok(None);
        }
        let rest = until.since(now);
        Ok(match self.renew_call(call.id, *execution, rest).await? {
            RenewalOutcome::Held | RenewalOutcome::CancelRequested => Some(until),
            RenewalOutcome::Lost => None,
        })
    }

    /// Stores what a worker reports about its execution.
    pub async fn report_permitted(
        &self,
        permitted: &PermittedCall,
        progress: &Progress,
    ) -> Result<(), StoreError> {
        self.report_progress_of(&permitted.row, permitted.execution, progress).await
    }

    /// Settles a worker's execution with its outcome: [`Write::settle`].
    pub async fn settle_permitted(
        &self,
        permitted: &PermittedCall,
        outcome: &Outcome,
        result: String,
        start_deadline: Duration,
    ) -> Result<SettleOutcome, StoreError> {
        self.settle_row(&permitted.row, permitted.execution, outcome, result, start_deadline).await
    }
}
