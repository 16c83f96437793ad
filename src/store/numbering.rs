//! The numbers of events.
//!
//! An event gets its number, `seq`, after its commit, in a pass that locks the single row with the last
//! number. The numbers therefore have no gaps, and a reader sees all events up to the highest number: a long
//! transaction gets later numbers, not a place among numbers that readers have passed. Within a thread, whose
//! lock a writer holds, the numbers follow the order of the commits. SQLite has one writer, which numbers its
//! own events in its transaction.

use super::entity::event;
use super::events::EventFilter;
use super::tx::Tx;
use super::{Read, Store, StoreError, Write, rows};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, PaginatorTrait, QueryFilter,
    QuerySelect, Statement,
};
use tokio::sync::Notify;

/// Number of events that one pass numbers on Postgres. `PASS_POSTGRES` contains the same number.
const PASS: i64 = 1000;

const UNNUMBERED: &str =
    "SELECT last, EXISTS (SELECT 1 FROM events WHERE seq IS NULL) AS unnumbered FROM event_sequence";
/// Locks the numbering until the transaction ends. The later statements see all numbers of earlier passes.
/// Returns no row if all events have a number.
const LOCK: &str = "SELECT last, TRUE AS unnumbered FROM event_sequence
    WHERE EXISTS (SELECT 1 FROM events WHERE seq IS NULL) FOR UPDATE";
/// The same, but also returns no row while another pass is in progress.
const LOCK_IF_FREE: &str = "SELECT last, TRUE AS unnumbered FROM event_sequence
    WHERE EXISTS (SELECT 1 FROM events WHERE seq IS NULL) FOR UPDATE SKIP LOCKED";
/// A whole pass, after the lock. The statement numbers events, updates the last number, and notifies the
/// other processes of it at the commit. Returns the tenants and users of the events.
const PASS_POSTGRES: &str = "WITH next AS (
        SELECT event_id, row_number() OVER (ORDER BY place) AS n FROM events WHERE seq IS NULL ORDER BY place LIMIT 1000),
    numbered AS (
        UPDATE events SET seq = next.n + (SELECT last FROM event_sequence) FROM next
        WHERE events.event_id = next.event_id RETURNING events.tenant_id, events.user_id),
    counted AS (
        UPDATE event_sequence SET last = last + (SELECT count(*) FROM numbered)
        WHERE EXISTS (SELECT 1 FROM numbered)
        RETURNING last, pg_notify('holdpoint_events', last::TEXT))
    SELECT DISTINCT counted.last, numbered.tenant_id, numbered.user_id FROM counted, numbered";
const NUMBER_SQLITE: &str = "WITH next AS (
        SELECT event_id, row_number() OVER (ORDER BY rowid) AS n FROM events WHERE seq IS NULL)
    UPDATE events SET seq = next.n + (SELECT last FROM event_sequence) FROM next WHERE events.event_id = next.event_id";
const COUNT_SQLITE: &str = "UPDATE event_sequence SET last = (SELECT max(seq) FROM events)";

/// The state of the numbering.
#[derive(Debug, Clone, Copy, FromQueryResult)]
pub(crate) struct Numbered {
    /// The last number.
    pub(crate) last: i64,
    /// Whether events without a number exist.
    pub(crate) unnumbered: bool,
}

/// The result of a committed pass.
#[derive(Debug)]
pub(crate) struct Pass {
    /// The last number before the pass.
    pub(crate) before: i64,
    /// The last number after the pass.
    pub(crate) last: i64,
    /// The tenants and users of the threads with the events that the pass numbered.
    pub(crate) touched: Vec<(String, String)>,
    /// The events that the pass left without a number.
    pub(crate) left: Left,
}

/// The events that a pass left without a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// No event that was committed before the pass began.
    Nothing,
    /// Maybe some: the pass numbered its maximum of events.
    More,
    /// All of them: a pass of another process was in progress.
    All,
}

#[derive(FromQueryResult)]
struct Touched {
    last: i64,
    tenant_id: String,
    user_id: String,
}

impl Numbered {
    async fn found_by(statement: Statement, tx: &Tx) -> Result<Option<Self>, StoreError> {
        Ok(Self::find_by_statement(statement).one(tx).await?)
    }
}

impl Pass {
    /// A pass that gave no number.
    fn without(found: Numbered) -> Self {
        let left = if found.unnumbered { Left::All } else { Left::Nothing };
        Self { before: found.last, last: found.last, touched: Vec::new(), left }
    }
}

impl Store {
    /// Notified when this process commits events, which may lack numbers.
    pub(crate) fn news(&self) -> &Notify {
        &self.news
    }

    /// Runs one pass of the numbering. The pass does not wait for chats or for the pass of another process.
    pub(crate) async fn number_events(&self) -> Result<Pass, StoreError> {
        if self.has_one_writer() {
            // A transaction numbers its own events. Only rows written by other means lack a number.
            let found = self.urgent_read().await?.numbered().await?;
            if !found.unnumbered {
                return Ok(Pass::without(found));
            }
        }
        let lock = Statement::from_string(DbBackend::Postgres, LOCK_IF_FREE);
        self.urgent_write().await?.number(lock).await
    }

    /// Runs one pass after that of any other process, so that all events committed before have a number.
    pub(crate) async fn number_events_in_turn(&self) -> Result<(), StoreError> {
        let lock = Statement::from_string(DbBackend::Postgres, LOCK);
        self.write().await?.number(lock).await.map(drop)
    }
}

impl Read {
    /// Returns how many events have no number yet.
    pub(crate) async fn unnumbered_events(&self) -> Result<u64, StoreError> {
        Ok(event::Entity::find().filter(event::Column::Seq.is_null()).count(&self.tx).await?)
    }

    /// Whether any event that the filter matches has no number yet.
    pub(crate) async fn lacks_numbers(&self, about: &EventFilter) -> Result<bool, StoreError> {
        let found: Option<String> = event::Entity::find()
            .select_only()
            .column(event::Column::EventId)
            .filter(event::Column::Seq.is_null())
            .filter(about.condition())
            .limit(1)
            .into_tuple()
            .one(&self.tx)
            .await?;
        Ok(found.is_some())
    }

    /// Returns the state of the numbering.
    pub(crate) async fn numbered(&self) -> Result<Numbered, StoreError> {
        let query = match self.tx.get_database_backend() {
            DbBackend::Sqlite => Statement::from_string(DbBackend::Sqlite, UNNUMBERED),
            _ => Statement::from_string(DbBackend::Postgres, UNNUMBERED),
        };
        let found = Numbered::found_by(query, &self.tx).await?;
        found.ok_or_else(|| rows::inconsistent("event_sequence", "its row is missing"))
    }

    /// Returns the tenants and users of the threads with events after this number.
    pub(crate) async fn touched_since(&self, seq: i64) -> Result<Vec<(String, String)>, StoreError> {
        let touched = event::Entity::find()
            .select_only()
            .columns([event::Column::TenantId, event::Column::UserId])
            .distinct()
            .filter(event::Column::Seq.gt(seq))
            .into_tuple()
            .all(&self.tx)
            .await?;
        Ok(touched)
    }
}

impl Write {
    /// Numbers all events without a number, and commits.
    async fn number(self, lock: Statement) -> Result<Pass, StoreError> {
        if self.tx.get_database_backend() == DbBackend::Sqlite {
            self.number_own_events().await?;
            let found = self.numbered().await?;
            self.commit().await?;
            return Ok(Pass::without(found));
        }
        let Some(Numbered { last: before, .. }) = Numbered::found_by(lock, &self.tx).await? else {
            return Ok(Pass::without(self.numbered().await?));
        };
        let pass = Statement::from_string(DbBackend::Postgres, PASS_POSTGRES);
        let touched = Touched::find_by_statement(pass).all(&self.tx).await?;
        self.commit().await?;
        let last = touched.first().map_or(before, |touched| touched.last);
        let left = if last - before < PASS { Left::Nothing } else { Left::More };
        let touched = touched.into_iter().map(|it| (it.tenant_id, it.user_id)).collect();
        Ok(Pass { before, last, touched, left })
    }

    /// Numbers all events without a number, which this transaction wrote. For SQLite only.
    pub(super) async fn number_own_events(&self) -> Result<(), StoreError> {
        if self.tx.execute_unprepared(NUMBER_SQLITE).await?.rows_affected() > 0 {
            self.tx.execute_unprepared(COUNT_SQLITE).await?;
        }
        Ok(())
    }
}
