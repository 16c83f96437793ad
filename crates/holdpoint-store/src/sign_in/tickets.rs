//! Tickets, which replace a token where a browser cannot send one: the key that signs tickets, and the used
//! tickets.

use crate::entity::{ticket_key, used_ticket};
use crate::{Read, Store, StoreError, Write, sql::rows};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::TicketId;
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// The id of the single key.
const KEY: i32 = 1;
/// Maximum difference between the clock of a process that makes tickets and the clock of the database.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
/// How much longer a row is kept than its ticket is valid. This is longer than any transaction takes: a
/// transaction that accepts the ticket may commit after another transaction deleted expired rows.
const KEPT: Duration = Duration::from_secs(600);

impl Store {
    /// Returns the key that signs tickets: the stored key, or else `fresh`, which is then stored.
    pub async fn ticket_key(&self, fresh: SecretString) -> Result<SecretString, StoreError> {
        if let Some(key) = self.read().await?.ticket_key().await? {
            return Ok(key);
        }
        let write = self.write().await?;
        let row =
            ticket_key::ActiveModel { id: Set(KEY), signing_key: Set(fresh.expose_secret().to_owned()) };
        // If several servers start together, one inserts its key. The others wait for that commit, and use
        // that key.
        let insert = ticket_key::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
        insert.exec_without_returning(&write.tx).await?;
        let key = write.ticket_key().await?;
        write.commit().await?;
        key.ok_or_else(|| rows::inconsistent("ticket_keys", format_args!("the key is missing")))
    }
}

impl Read {
    async fn ticket_key(&self) -> Result<Option<SecretString>, StoreError> {
        let row = ticket_key::Entity::find_by_id(KEY).one(&self.tx).await?;
        Ok(row.map(|row| row.signing_key.into()))
    }
}

impl Write {
    /// Uses up a ticket with this expiry. Returns false if the ticket was used before, or has expired by the
    /// database's clock.
    pub async fn use_ticket(&self, id: TicketId, expires_at: Timestamp) -> Result<bool, StoreError> {
        if expires_at.plus(CLOCKS_DIFFER) <= self.now {
            return Ok(false);
        }
        let over = used_ticket::Column::ExpiresAt.lte(self.now.minus(CLOCKS_DIFFER + KEPT).as_micros());
        used_ticket::Entity::delete_many().filter(over).exec(&self.tx).await?;
        let row = used_ticket::ActiveModel {
            ticket_id: Set(id.to_string()),
            expires_at: Set(expires_at.as_micros()),
        };
        let insert = used_ticket::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
        Ok(insert.exec_without_returning(&self.tx).await? == 1)
    }
}
