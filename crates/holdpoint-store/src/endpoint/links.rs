//! Links in messages to one person.

use crate::entity::link;
use crate::{Read, StoreError, Write, sql::rows};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::link::{LinkHash, LinkTarget, VALID};
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

/// Matches the links whose time is over.
pub(crate) fn is_over(now: SimpleExpr) -> SimpleExpr {
    ExprTrait::lte(link::Column::ExpiresAt.into_expr(), now)
}

impl Read {
    /// Returns what a link is bound to, if its time is not over.
    pub async fn link(&self, hash: &LinkHash, now: Timestamp) -> Result<Option<LinkTarget>, StoreError> {
        let found = link::Entity::find_by_id(hash.as_str())
            .filter(link::Column::ExpiresAt.gt(now.as_micros()))
            .one(&self.tx)
            .await?;
        let read = |row: link::Model| {
            let tool_call_id = rows::id("links", &row.tool_call_id)?;
            let link::Model { tenant_id, user_id, input_hash, .. } = row;
            Ok(LinkTarget { tool_call_id, tenant_id, user_id, input_hash })
        };
        found.map(read).transpose()
    }
}

impl Write {
    /// Adds a link that is valid from now on.
    pub async fn add_link(&self, hash: &LinkHash, target: &LinkTarget) -> Result<(), StoreError> {
        let row = link::ActiveModel {
            token_hash: Set(hash.as_str().to_owned()),
            tool_call_id: Set(target.tool_call_id.to_string()),
            tenant_id: Set(target.tenant_id.clone()),
            user_id: Set(target.user_id.clone()),
            input_hash: Set(target.input_hash.clone()),
            expires_at: Set(self.now.plus(VALID).as_micros()),
            used_at: Set(None),
        };
        link::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(())
    }

    /// Uses a link up. Returns false if a decision has used it.
    pub async fn use_link(&self, hash: &LinkHash) -> Result<bool, StoreError> {
        let used = link::Entity::update_many()
            .col_expr(link::Column::UsedAt, Expr::value(self.now.as_micros()))
            .filter(link::Column::TokenHash.eq(hash.as_str()))
            .filter(link::Column::UsedAt.is_null())
            .filter(link::Column::ExpiresAt.gt(self.now.as_micros()))
            .exec(&self.tx)
            .await?;
        Ok(used.rows_affected == 1)
    }

    /// Deletes the links whose time is over, and returns their number.
    pub async fn delete_links(&self) -> Result<u64, StoreError> {
        let over = is_over(Expr::value(self.now.as_micros()));
        Ok(link::Entity::delete_many().filter(over).exec(&self.tx).await?.rows_affected)
    }
}
