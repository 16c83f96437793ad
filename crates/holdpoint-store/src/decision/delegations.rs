//! Delegations of single calls.

use crate::entity::delegation;
use crate::event::new_event::Subject;
use crate::{LockedCall, Read, StoreError, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::delegation::{Delegation, actor_of};
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::ToolCallId;
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;
use std::collections::HashMap;

impl Read {
    /// Returns the delegations of these calls, by call id, the oldest first, those included that are over. A
    /// delegation that was replaced is none of them.
    pub async fn delegations(
        &self,
        calls: Vec<String>,
    ) -> Result<HashMap<String, Vec<Delegation>>, StoreError> {
        let mut delegations: HashMap<String, Vec<Delegation>> = HashMap::new();
        if calls.is_empty() {
            return Ok(delegations);
        }
        let found = delegation::Entity::find()
            .filter(delegation::Column::ToolCallId.is_in(calls))
            .filter(delegation::Column::ReplacedAt.is_null())
            .order_by_asc(delegation::Column::CreatedAt)
            .order_by_asc(delegation::Column::DelegationId)
            .all(&self.tx)
            .await?;
        for row in found {
            delegations.entry(row.tool_call_id.clone()).or_default().push(read(row)?);
        }
        Ok(delegations)
    }

    /// Returns the delegations of this call in the same way.
    pub async fn delegations_of(&self, call: ToolCallId) -> Result<Vec<Delegation>, StoreError> {
        Ok(self.delegations(vec![call.to_string()]).await?.into_values().flatten().collect())
    }
}

impl Write {
    /// Delegates the decision about a locked call, in place of an earlier delegation of the same approver.
    pub async fn delegate_decision(
        &self,
        LockedCall { call, thread, .. }: &LockedCall,
        new: &Delegation,
    ) -> Result<(), StoreError> {
        let Delegation { delegator, delegate, reason, until, .. } = new;
        delegation::Entity::update_many()
            .col_expr(delegation::Column::ReplacedAt, Expr::value(self.now.as_micros()))
            .filter(delegation::Column::ToolCallId.eq(call.id.to_string()))
            .filter(delegation::Column::Delegator.eq(&delegator.user_id))
            .filter(delegation::Column::ReplacedAt.is_null())
            .exec(&self.tx)
            .await?;
        let row = delegation::ActiveModel {
            delegation_id: Set(self.clock.uuid().to_string()),
            tool_call_id: Set(call.id.to_string()),
            tenant_id: Set(thread.tenant_id.clone()),
            delegator: Set(delegator.user_id.clone()),
            delegate: Set(delegate.clone()),
            roles: Set(json!(delegator.roles).to_string()),
            reason: Set(reason.clone()),
            created_at: Set(self.now.as_micros()),
            until: Set(until.as_micros()),
            replaced_at: Set(None),
        };
        delegation::Entity::insert(row).exec_without_returning(&self.tx).await?;
        let data = EventData::Delegated {
            tool_name: call.name.clone(),
            from: delegator.actor(),
            to: actor_of(delegate),
            until: *until,
            reason: reason.clone(),
        };
        self.event(EventType::ToolDelegated, &delegator.actor(), &Subject::call(thread, call), data);
        Ok(())
    }
}

fn read(row: delegation::Model) -> Result<Delegation, StoreError> {
    let roles = rows::json("delegations", &row.roles)?;
    Ok(Delegation {
        delegator: Principal { tenant_id: row.tenant_id, user_id: row.delegator, roles },
        delegate: row.delegate,
        reason: row.reason,
        at: Timestamp::from_micros(row.created_at),
        until: Timestamp::from_micros(row.until),
    })
}
