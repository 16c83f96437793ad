//! The numbers of events.
//!
//! An event gets its number, `seq`, after its commit, in a pass that locks the single row with the last
//! number. The numbers therefore have no gaps, and a reader sees all events up to the highest number: a long
//! transaction gets later numbers, not a place among numbers that readers have passed. Within a thread, whose
//! lock a writer holds, the numbers follow the order of the commits. SQLite has one writer, which numbers its
//! own events in its transaction.

use crate::entity::event;
use crate::event::events::EventFilter;
use crate::{Read, Store, StoreError, Write, sql::rows};
use holdpoint_core::Principal;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, PaginatorTrait, QueryFilter,
    QuerySelect, Statement,
};
use std::collections::HashSet;
use tokio::sync::Notify;

/// Number of events that one pass numbers on Postgres. `PASS_POSTGRES` contains the same number.
const PASS: i64 = 1000;

/// The first event of an index is found whatever the statistics say about the events without a number.
const UNNUMBERED_POSTGRES: &str = r#"SELECT last,
        (SELECT place FROM "holdpoint".events WHERE seq IS NULL ORDER BY place LIMIT 1) IS NOT NULL AS unnumbered
    FROM "holdpoint".event_sequence"#;
const UNNUMBERED_SQLITE: &str =
    "SELECT last, EXISTS (SELECT 1 FROM events WHERE seq IS NULL) AS unnumbered FROM event_sequence";
/// A pass finds its events by indexes alone. A session keeps the plan that it made while the table was small, or while most
/// events had no number: otherwise each pass would read all events until Postgres gathers statistics again. The table with
/// one row has no other plan, which counts as so expensive then that Postgres would compile the statement.
const BY_INDEXES: &str = "SELECT set_config('enable_seqscan', 'off', true), \
    set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), \
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)";
/// Waits until no other pass is in progress, and locks the numbering until the transaction ends. The later
/// statements see all numbers of earlier passes. Changes no row.
const LOCK: &str = r#"SELECT last FROM "holdpoint".event_sequence FOR UPDATE"#;
/// A whole pass: locks the numbering, numbers events, updates the last number, and notifies the other processes
/// of it at the commit, on the channel `$1`. Returns the last number before the pass, and whom the events touch.
///
/// The whole statement sees the rows of one moment, before the lock. So `locked` is empty, and no event gets a
/// number, while another pass is in progress, and also if one was committed since that moment: the row of the
/// lock is then read again, and no longer has the `last` of that moment.
const PASS_POSTGRES: &str = r#"WITH locked AS (
        SELECT last FROM "holdpoint".event_sequence WHERE last = (SELECT last FROM "holdpoint".event_sequence)
            AND (SELECT place FROM "holdpoint".events WHERE seq IS NULL ORDER BY place LIMIT 1) IS NOT NULL
            FOR UPDATE SKIP LOCKED),
    next AS (
        SELECT place, row_number() OVER (ORDER BY place) AS n FROM "holdpoint".events
            WHERE seq IS NULL AND EXISTS (SELECT 1 FROM locked) ORDER BY place LIMIT 1000),
    numbered AS (
        UPDATE "holdpoint".events SET seq = next.n + (SELECT last FROM locked) FROM next
        WHERE events.place = next.place RETURNING events.tenant_id, events.user_id, events.tool_call_id),
    counted AS (
        UPDATE "holdpoint".event_sequence SET last = last + (SELECT count(*) FROM numbered)
        WHERE EXISTS (SELECT 1 FROM numbered) RETURNING last)
    SELECT (SELECT last FROM "holdpoint".event_sequence) AS before,
        (SELECT last FROM counted WHERE pg_notify($1, last::TEXT) IS NOT NULL) AS last,
        (SELECT place FROM "holdpoint".events WHERE seq IS NULL ORDER BY place LIMIT 1) IS NOT NULL AS unnumbered,
        touched.tenant_id, touched.user_id, touched.role
        FROM (SELECT NULL AS tenant_id, NULL AS user_id, NULL AS role
            UNION ALL SELECT DISTINCT tenant_id, user_id, NULL FROM numbered
            UNION ALL SELECT delegations.tenant_id, delegate, NULL FROM "holdpoint".delegations
                JOIN numbered ON numbered.tool_call_id = delegations.tool_call_id WHERE replaced_at IS NULL
            UNION ALL SELECT escalations.tenant_id, NULL, role FROM "holdpoint".escalations
                JOIN numbered ON numbered.tool_call_id = escalations.tool_call_id) AS touched"#;
/// Whom the events after `$1` touch.
const TOUCHED: &str = r#"SELECT DISTINCT tenant_id, user_id, NULL AS role FROM "holdpoint".events WHERE seq > $1
    UNION ALL SELECT delegations.tenant_id, delegate, NULL FROM "holdpoint".delegations
        JOIN "holdpoint".events ON events.tool_call_id = delegations.tool_call_id
        WHERE events.seq > $1 AND replaced_at IS NULL
    UNION ALL SELECT escalations.tenant_id, NULL, role FROM "holdpoint".escalations
        JOIN "holdpoint".events ON events.tool_call_id = escalations.tool_call_id WHERE events.seq > $1"#;
const NUMBER_SQLITE: &str = "WITH next AS (
        SELECT place, row_number() OVER (ORDER BY place) AS n FROM events WHERE seq IS NULL)
    UPDATE events SET seq = next.n + (SELECT last FROM event_sequence) FROM next WHERE events.place = next.place";
const COUNT_SQLITE: &str =
    "UPDATE event_sequence SET last = (SELECT max(seq) FROM events WHERE seq IS NOT NULL)";

#[derive(Debug, Clone, Copy, FromQueryResult)]
pub struct NumberedEvents {
    pub last: i64,
    /// Whether events without a number exist.
    pub unnumbered: bool,
}

/// The result of a committed pass.
#[derive(Debug)]
pub struct NumberingPass {
    /// The last number before the pass.
    pub before: i64,
    /// The last number after the pass.
    pub last: i64,
    /// Whom the events touch that the pass numbered.
    pub touched: AffectedReaders,
    /// The events that the pass left without a number.
    pub left: UnnumberedEvents,
}

/// Those that may see new events without the right to see all events of a tool or a tenant.
#[derive(Debug, Default)]
pub struct AffectedReaders {
    /// Users, by tenant: of the threads of the events, and the delegates of their calls.
    users: HashSet<(String, String)>,
    /// The roles, by tenant, to which the calls of the events were escalated.
    roles: HashSet<(String, String)>,
}

impl AffectedReaders {
    fn of(rows: impl IntoIterator<Item = AffectedRow>) -> Self {
        let mut touched = Self::default();
        for AffectedRow { tenant_id, user_id, role } in rows {
            let Some(tenant) = tenant_id else { continue };
            touched.users.extend(user_id.map(|user| (tenant.clone(), user)));
            touched.roles.extend(role.map(|role| (tenant, role)));
        }
        touched
    }

    /// Whether the events touch this tenant.
    pub fn has_tenant(&self, tenant_id: &str) -> bool {
        self.users.iter().any(|(tenant, _)| tenant == tenant_id)
    }

    /// Whether the events touch this principal, as a user or by a role.
    pub fn has(&self, principal: &Principal) -> bool {
        let Principal { tenant_id, user_id, roles } = principal;
        self.users.contains(&(tenant_id.clone(), user_id.clone()))
            || self.roles.iter().any(|(tenant, role)| tenant == tenant_id && roles.contains(role))
    }
}

/// Whom an event touches: a user, or a role.
#[derive(FromQueryResult)]
struct AffectedRow {
    tenant_id: Option<String>,
    user_id: Option<String>,
    role: Option<String>,
}

/// The events that a pass left without a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnnumberedEvents {
    /// No event that was committed before the pass began.
    Nothing,
    /// Maybe some: the pass numbered its maximum of events.
    More,
    /// All of them: a pass of another process was faster.
    All,
}

/// A row of [`PASS_POSTGRES`]: one without a user and a role, and one for each of them. `last` is there if the pass gave
/// numbers.
#[derive(FromQueryResult)]
struct PassRow {
    before: i64,
    last: Option<i64>,
    tenant_id: Option<String>,
    user_id: Option<String>,
    role: Option<String>,
    unnumbered: bool,
}

impl NumberingPass {
    /// A pass that gave no number.
    fn without(found: NumberedEvents) -> Self {
        let left = if found.unnumbered { UnnumberedEvents::All } else { UnnumberedEvents::Nothing };
        Self { before: found.last, last: found.last, touched: AffectedReaders::default(), left }
    }

    fn of(rows: Vec<PassRow>) -> Result<Self, StoreError> {
        let Some(PassRow { before, last, unnumbered, .. }) = rows.first() else { return Err(no_sequence()) };
        let (before, unnumbered) = (*before, *unnumbered);
        let Some(last) = *last else { return Ok(Self::without(NumberedEvents { last: before, unnumbered })) };
        let left = if last - before < PASS { UnnumberedEvents::Nothing } else { UnnumberedEvents::More };
        let touched = |PassRow { tenant_id, user_id, role, .. }| AffectedRow { tenant_id, user_id, role };
        let touched = AffectedReaders::of(rows.into_iter().map(touched));
        Ok(Self { before, last, touched, left })
    }
}

fn no_sequence() -> StoreError {
    rows::inconsistent("event_sequence", "its row is missing")
}

impl Store {
    /// Notified when this process commits events, which may lack numbers.
    pub fn committed_signal(&self) -> &Notify {
        &self.committed_signal
    }

    /// Runs one pass of the numbering. The pass does not wait for chats or for the pass of another process.
    pub async fn number_events(&self) -> Result<NumberingPass, StoreError> {
        if self.has_one_writer() {
            // A transaction numbers its own events. Only rows written by other means lack a number.
            let found = self.read_once().await?.numbered().await?;
            if !found.unnumbered {
                return Ok(NumberingPass::without(found));
            }
        }
        self.urgent_write().await?.number().await
    }

    /// Runs one pass after that of any other process, so that all events committed before have a number.
    pub async fn number_events_in_turn(&self) -> Result<(), StoreError> {
        let write = self.write().await?;
        if write.tx.get_database_backend() == DbBackend::Postgres {
            write.tx.execute_unprepared(LOCK).await?;
        }
        write.number().await.map(drop)
    }
}

impl Read {
    /// Returns how many events have no number yet.
    pub async fn unnumbered_events(&self) -> Result<u64, StoreError> {
        Ok(event::Entity::find().filter(event::Column::Seq.is_null()).count(&self.tx).await?)
    }

    /// Whether any event that the filter matches has no number yet.
    pub async fn lacks_numbers(&self, about: &EventFilter) -> Result<bool, StoreError> {
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

    pub async fn numbered(&self) -> Result<NumberedEvents, StoreError> {
        let query = match self.tx.get_database_backend() {
            DbBackend::Sqlite => Statement::from_string(DbBackend::Sqlite, UNNUMBERED_SQLITE),
            _ => Statement::from_string(DbBackend::Postgres, UNNUMBERED_POSTGRES),
        };
        NumberedEvents::find_by_statement(query).one(&self.tx).await?.ok_or_else(no_sequence)
    }

    /// Returns whom the events after this number touch.
    pub async fn touched_since(&self, seq: i64) -> Result<AffectedReaders, StoreError> {
        let after = [seq.into()];
        let query = match self.tx.get_database_backend() {
            DbBackend::Sqlite => Statement::from_sql_and_values(DbBackend::Sqlite, TOUCHED, after),
            _ => Statement::from_sql_and_values(DbBackend::Postgres, TOUCHED, after),
        };
        Ok(AffectedReaders::of(AffectedRow::find_by_statement(query).all(&self.tx).await?))
    }
}

impl Write {
    /// Runs one pass, and commits.
    async fn number(self) -> Result<NumberingPass, StoreError> {
        let pass = match self.tx.get_database_backend() {
            DbBackend::Sqlite => {
                self.number_own_events().await?;
                NumberingPass::without(self.numbered().await?)
            }
            _ => {
                self.tx.execute_unprepared(BY_INDEXES).await?;
                let channel = self.tx.schema().channel();
                let pass =
                    Statement::from_sql_and_values(DbBackend::Postgres, PASS_POSTGRES, [channel.into()]);
                NumberingPass::of(PassRow::find_by_statement(pass).all(&self.tx).await?)?
            }
        };
        self.commit().await?;
        Ok(pass)
    }

    /// Numbers all events without a number, which this transaction wrote. For SQLite only.
    pub(crate) async fn number_own_events(&self) -> Result<(), StoreError> {
        if self.tx.execute_unprepared(NUMBER_SQLITE).await?.rows_affected() > 0 {
            self.tx.execute_unprepared(COUNT_SQLITE).await?;
        }
        Ok(())
    }
}
