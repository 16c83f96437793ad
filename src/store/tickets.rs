//! Tickets, which stand in for a token where a browser cannot send one: the key that they are signed with, and which of
//! them were used.

use super::entity::{ticket_key, used_ticket};
use super::{Read, Store, StoreError, Write, rows};
use crate::domain::clock::Timestamp;
use crate::domain::id::TicketId;
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// The id of the one key.
const KEY: i32 = 1;
/// By how much the clock of a process that makes tickets may differ from the database's.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
/// How much longer a used ticket is kept than it could be used. Longer than any transaction takes: one that finds the
/// ticket good may commit after another has removed what is over.
const KEPT: Duration = Duration::from_secs(600);

impl Store {
    /// The key that tickets are signed with: the one that is there, or from now on this one.
    pub(crate) async fn ticket_key(&self, fresh: SecretString) -> Result<SecretString, StoreError> {
        if let Some(key) = self.read().await?.ticket_key().await? {
            return Ok(key);
        }
        let write = self.write().await?;
        let row =
            ticket_key::ActiveModel { id: Set(KEY), signing_key: Set(fresh.expose_secret().to_owned()) };
        // Of servers that begin together one inserts, and the others wait for its commit and take its key.
        let insert = ticket_key::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
        insert.exec_without_returning(&write.tx).await?;
        let key = write.ticket_key().await?;
        write.commit().await?;
        key.ok_or_else(|| rows::inconsistent("ticket_keys", format_args!("there is none")))
    }
}

impl Read {
    async fn ticket_key(&self) -> Result<Option<SecretString>, StoreError> {
        let row = ticket_key::Entity::find_by_id(KEY).one(&self.tx).await?;
        Ok(row.map(|row| row.signing_key.into()))
    }
}

impl Write {
    /// Uses up a ticket that is good until then. False if it was used before, or is over by the database's clock.
    pub(crate) async fn use_ticket(&self, id: TicketId, expires_at: Timestamp) -> Result<bool, StoreError> {
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
