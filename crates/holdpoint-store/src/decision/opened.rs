//! Calls of other users that are opened to one user by a delegation, or to a role by an escalation.

use crate::entity::{delegation, escalation};
use crate::{Read, StoreError};
use holdpoint_core::Principal;
use holdpoint_core::clock::Timestamp;
use sea_orm::sea_query::{ColumnRef, Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityName, EntityTrait, QueryFilter};

/// Matches the delegations to this principal that no other replaced, those included that are over.
fn to_user(principal: &Principal) -> Condition {
    Condition::all()
        .add(delegation::Column::TenantId.eq(&principal.tenant_id))
        .add(delegation::Column::Delegate.eq(&principal.user_id))
        .add(delegation::Column::ReplacedAt.is_null())
}

/// Selects the delegations to this principal that end after this time.
pub(crate) fn delegations_to(principal: &Principal, at: Timestamp) -> Condition {
    to_user(principal).add(delegation::Column::Until.gt(at.as_micros()))
}

/// Whether the call with the id in this column is delegated to this principal until after this time.
pub(crate) fn is_delegated(principal: &Principal, call: ColumnRef, at: Expr) -> SimpleExpr {
    let of_call = delegation::Column::ToolCallId.into_expr().eq(Expr::col(call));
    let until = delegation::Column::Until.into_expr().gt(at);
    exists(&delegation::Entity, to_user(principal).add(of_call).add(until))
}

pub(crate) fn to_roles_of(principal: &Principal) -> Condition {
    Condition::all()
        .add(escalation::Column::TenantId.eq(&principal.tenant_id))
        .add(escalation::Column::Role.is_in(&principal.roles))
}

/// Whether the call with the id in this column was escalated to a role of this principal.
pub(crate) fn is_escalated(principal: &Principal, call: ColumnRef) -> SimpleExpr {
    let of_call = escalation::Column::ToolCallId.into_expr().eq(Expr::col(call));
    exists(&escalation::Entity, to_roles_of(principal).add(of_call))
}

fn exists(table: &impl EntityName, which: Condition) -> SimpleExpr {
    Expr::exists(Query::select().expr(Expr::val(1)).from(table.table_ref()).cond_where(which).to_owned())
}

impl Read {
    /// Whether any call is delegated to this principal at this time.
    pub(crate) async fn has_delegations(
        &self,
        principal: &Principal,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let found = delegation::Entity::find().filter(delegations_to(principal, at));
        Ok(found.one(&self.tx).await?.is_some())
    }

    /// Whether any call was escalated to a role of this principal.
    pub(crate) async fn has_escalations(&self, principal: &Principal) -> Result<bool, StoreError> {
        if principal.roles.is_empty() {
            return Ok(false);
        }
        let found = escalation::Entity::find().filter(to_roles_of(principal));
        Ok(found.one(&self.tx).await?.is_some())
    }
}
