//! Calls of other users that are opened to one user by a delegation, or to a role by an escalation.

use super::entity::{delegation, escalation};
use super::{Read, StoreError};
use crate::domain::Principal;
use crate::domain::clock::Timestamp;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SelectStatement};
use sea_orm::{ColumnTrait, Condition, EntityName, EntityTrait, PaginatorTrait, QueryFilter};

/// Matches the delegations to this principal that no other replaced, those included that are over.
fn to_user(principal: &Principal) -> Condition {
    Condition::all()
        .add(delegation::Column::TenantId.eq(&principal.tenant_id))
        .add(delegation::Column::Delegate.eq(&principal.user_id))
        .add(delegation::Column::ReplacedAt.is_null())
}

/// Selects the ids of the calls that are delegated to this principal at this time.
pub(super) fn delegated_calls(principal: &Principal, at: Timestamp) -> SelectStatement {
    delegated_after(principal, Expr::value(at.as_micros()))
}

/// Selects the ids of the calls whose delegation to this principal ends after this time.
pub(super) fn delegated_after(principal: &Principal, at: Expr) -> SelectStatement {
    Query::select()
        .column(delegation::Column::ToolCallId)
        .from(delegation::Entity.table_ref())
        .cond_where(to_user(principal).add(Expr::col(delegation::Column::Until).gt(at)))
        .to_owned()
}

fn to_roles_of(principal: &Principal) -> Condition {
    Condition::all()
        .add(escalation::Column::TenantId.eq(&principal.tenant_id))
        .add(escalation::Column::Role.is_in(&principal.roles))
}

/// Selects the ids of the calls that were escalated to a role of this principal.
pub(super) fn escalated_calls(principal: &Principal) -> SelectStatement {
    Query::select()
        .column(escalation::Column::ToolCallId)
        .from(escalation::Entity.table_ref())
        .cond_where(to_roles_of(principal))
        .to_owned()
}

impl Read {
    /// Whether any call is delegated to this principal at this time.
    pub(super) async fn has_delegations(
        &self,
        principal: &Principal,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let found = delegation::Entity::find()
            .filter(to_user(principal).add(delegation::Column::Until.gt(at.as_micros())))
            .count(&self.tx)
            .await?;
        Ok(found > 0)
    }

    /// Whether any call was escalated to a role of this principal.
    pub(super) async fn has_escalations(&self, principal: &Principal) -> Result<bool, StoreError> {
        if principal.roles.is_empty() {
            return Ok(false);
        }
        let found = escalation::Entity::find().filter(to_roles_of(principal));
        Ok(found.count(&self.tx).await? > 0)
    }
}
