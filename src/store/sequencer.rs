//! The numbers of events.
//!
//! An event gets its number, `seq`, once it is committed, from whoever holds the lock of the one row that knows the last
//! one. So the numbers have no gap, and what a reader sees of them is all there is up to the highest: a transaction that
//! takes long gets a later number, not a place among those that were read. Within a thread, whose lock a writer holds,
//! they are in the order of the commits. SQLite has one writer, who holds that lock anyway and numbers what it writes
//! itself.

use super::entity::{event, thread};
use super::limited::Limited;
use super::{Read, Store, StoreError, Write, rows};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, JoinType, PaginatorTrait,
    QueryFilter, QuerySelect, Statement,
};
use tokio::sync::Notify;

/// Tells whoever listens at the other processes that there are new numbers, and no more: what is new is in the table.
const TELL: &str = "SELECT pg_notify('holdpoint_events', '')";

const STANDING: &str =
    "SELECT last, EXISTS (SELECT 1 FROM events WHERE seq IS NULL) AS unnumbered FROM event_sequence";
/// Until the transaction ends nobody else gives numbers, and the statements behind it see what everybody before gave.
const LOCK: &str = "SELECT last, TRUE AS unnumbered FROM event_sequence FOR UPDATE";
const NUMBER_POSTGRES: &str = "WITH next AS (
        SELECT event_id, row_number() OVER (ORDER BY place) AS n FROM events WHERE seq IS NULL ORDER BY place LIMIT 1000)
    UPDATE events SET seq = next.n + (SELECT last FROM event_sequence) FROM next WHERE events.event_id = next.event_id";
const NUMBER_SQLITE: &str = "WITH next AS (
        SELECT event_id, row_number() OVER (ORDER BY rowid) AS n FROM events WHERE seq IS NULL)
    UPDATE events SET seq = next.n + (SELECT last FROM event_sequence) FROM next WHERE events.event_id = next.event_id";
const COUNT: &str = "UPDATE event_sequence SET last = (SELECT max(seq) FROM events)";

/// How far the numbers go.
#[derive(Debug, Clone, Copy, FromQueryResult)]
pub(crate) struct Numbered {
    /// The last one given.
    pub(crate) last: i64,
    /// Whether there are events without one.
    pub(crate) unnumbered: bool,
}

impl Numbered {
    async fn found_by(statement: Statement, tx: &Limited) -> Result<Self, StoreError> {
        let found = Self::find_by_statement(statement).one(tx).await?;
        found.ok_or_else(|| rows::inconsistent("event_sequence", "its row is missing"))
    }
}

impl Store {
    /// Told whenever this process has committed events, or heard of those of another.
    pub(crate) fn news(&self) -> &Notify {
        &self.news
    }

    /// Numbers all that is committed by now, and says so to every process. The last number.
    pub(crate) async fn number_events(&self) -> Result<i64, StoreError> {
        loop {
            let write = self.write().await?;
            // On SQLite whoever writes has the lock, and nobody else is there to be told.
            let is_alone = write.tx.get_database_backend() == DbBackend::Sqlite;
            let before = if is_alone { write.numbered().await? } else { write.locked().await? };
            if !write.number_events().await? {
                return Ok(before.last);
            }
            if !is_alone {
                write.tx.execute_unprepared(TELL).await?;
            }
            write.commit().await?;
        }
    }
}

impl Read {
    /// How many events have no number yet.
    pub(crate) async fn unnumbered_events(&self) -> Result<u64, StoreError> {
        Ok(event::Entity::find().filter(event::Column::Seq.is_null()).count(&self.tx).await?)
    }

    /// How far the numbers go.
    pub(crate) async fn numbered(&self) -> Result<Numbered, StoreError> {
        let standing = match self.tx.get_database_backend() {
            DbBackend::Sqlite => Statement::from_string(DbBackend::Sqlite, STANDING),
            _ => Statement::from_string(DbBackend::Postgres, STANDING),
        };
        Numbered::found_by(standing, &self.tx).await
    }

    /// The tenants and users in whose threads something happened behind this number.
    pub(crate) async fn touched_since(&self, seq: i64) -> Result<Vec<(String, String)>, StoreError> {
        let of_thread = event::Entity::belongs_to(thread::Entity)
            .from(event::Column::ThreadId)
            .to(thread::Column::ThreadId)
            .into();
        let touched = event::Entity::find()
            .select_only()
            .columns([thread::Column::TenantId, thread::Column::UserId])
            .distinct()
            .join(JoinType::InnerJoin, of_thread)
            .filter(event::Column::Seq.gt(seq))
            .into_tuple()
            .all(&self.tx)
            .await?;
        Ok(touched)
    }
}

impl Write {
    /// How far the numbers go, and nobody else gives any until the transaction ends.
    async fn locked(&self) -> Result<Numbered, StoreError> {
        Numbered::found_by(Statement::from_string(DbBackend::Postgres, LOCK), &self.tx).await
    }

    /// Numbers what has none. False if there is no such event.
    pub(super) async fn number_events(&self) -> Result<bool, StoreError> {
        let numbered = match self.tx.get_database_backend() {
            DbBackend::Sqlite => self.tx.execute_unprepared(NUMBER_SQLITE).await?,
            _ => self.tx.execute_unprepared(NUMBER_POSTGRES).await?,
        };
        if numbered.rows_affected() == 0 {
            return Ok(false);
        }
        self.tx.execute_unprepared(COUNT).await?;
        Ok(true)
    }
}
