//! Tickets: what stands in for a token, once and not for long, where a browser cannot send one.
//!
//! A row has the hash of a ticket, never the ticket: who reads the table opens nothing with it.

use super::entity::ticket;
use super::{StoreError, Write, rows};
use crate::domain::Principal;
use crate::domain::clock::Timestamp;
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::ExprTrait;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;

fn hash(ticket: &str) -> String {
    Sha256::digest(ticket).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Write {
    /// Keeps a ticket for this principal, who is known until then if there is an end to it. When the ticket is over.
    pub(crate) async fn keep_ticket(
        &self,
        ticket: &str,
        principal: &Principal,
        known_until: Option<Timestamp>,
        lasts: Duration,
    ) -> Result<Timestamp, StoreError> {
        // Those that nobody came with.
        let over = ticket::Column::ExpiresAt.lte(self.now.as_micros());
        ticket::Entity::delete_many().filter(over).exec(&self.tx).await?;
        let expires_at = self.now.plus(lasts);
        let row = ticket::ActiveModel {
            ticket_hash: Set(hash(ticket)),
            tenant_id: Set(principal.tenant_id.clone()),
            user_id: Set(principal.user_id.clone()),
            roles: Set(json!(principal.roles).to_string()),
            expires_at: Set(expires_at.as_micros()),
            known_until: Set(known_until.map(Timestamp::as_micros)),
        };
        ticket::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(expires_at)
    }

    /// Takes a ticket, after which there is none: whose it was, and until when they are known.
    pub(crate) async fn take_ticket(
        &self,
        ticket: &str,
    ) -> Result<Option<(Principal, Option<Timestamp>)>, StoreError> {
        let standing = ticket::Column::TicketHash
            .eq(hash(ticket))
            .and(ticket::Column::ExpiresAt.gt(self.now.as_micros()));
        let found = ticket::Entity::find().filter(standing.clone()).one(&self.tx).await?;
        let Some(row) = found else { return Ok(None) };
        // Of two who come with it at once, one deletes it.
        if ticket::Entity::delete_many().filter(standing).exec(&self.tx).await?.rows_affected != 1 {
            return Ok(None);
        }
        let roles = rows::json("tickets", &row.roles)?;
        let principal = Principal { tenant_id: row.tenant_id, user_id: row.user_id, roles };
        Ok(Some((principal, row.known_until.map(Timestamp::from_micros))))
    }
}
