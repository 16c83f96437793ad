//! The sizes of threads, which the store counts. A transaction sums what it adds to each thread, and its commit adds the
//! sum to the thread with one statement.
//!
//! The rows of a thread change while the thread is locked. So the size of a thread is the count that the transaction has
//! read with the lock, and what it has added since.

use crate::entity::{message, sent_answer, step, thread, tool_call};
use crate::{Extent, LockedThread, StoreError, Write};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::ThreadId;
use sea_orm::sea_query::{Expr, ExprTrait, Func, Query, SimpleExpr};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, ModelTrait, QueryFilter, QueryTrait,
    UpdateMany, Value,
};
use std::collections::BTreeMap;

/// A table whose texts count for the size of a thread. A step counts once it has ended, not while it streams.
pub(crate) trait CountedTable: EntityTrait {
    /// The columns with the texts.
    const TEXTS: &'static [Self::Column];
}

impl CountedTable for message::Entity {
    const TEXTS: &'static [message::Column] = &[message::Column::Content];
}

impl CountedTable for step::Entity {
    const TEXTS: &'static [step::Column] = &[step::Column::Parts, step::Column::ProviderState];
}

impl CountedTable for tool_call::Entity {
    const TEXTS: &'static [tool_call::Column] = &[
        tool_call::Column::Arguments,
        tool_call::Column::ModelArguments,
        tool_call::Column::ValidatedInputs,
        tool_call::Column::Preview,
        tool_call::Column::ValidatedPreview,
        tool_call::Column::Output,
        tool_call::Column::Result,
    ];
}

impl CountedTable for sent_answer::Entity {
    const TEXTS: &'static [sent_answer::Column] = &[sent_answer::Column::Text];
}

/// Returns the bytes of the texts of a row.
pub(crate) fn bytes_of<M: ModelTrait>(row: &M) -> i64
where
    M::Entity: CountedTable,
{
    sum(M::Entity::TEXTS.iter().map(|column| bytes_of_value(&row.get(*column))))
}

/// Returns the bytes of the texts that an insert or an update sets.
pub(crate) fn bytes_set<A: ActiveModelTrait>(row: &A) -> i64
where
    A::Entity: CountedTable,
{
    let set = A::Entity::TEXTS.iter().filter_map(|column| row.get(*column).into_value());
    sum(set.map(|value| bytes_of_value(&value)))
}

/// Returns the bytes of the texts of a row, in a statement.
pub(crate) fn bytes_in_rows<E: CountedTable>() -> SimpleExpr {
    let bytes = |column: &E::Column| {
        let bytes = Func::cust("octet_length").arg(column.into_expr());
        Expr::from(Func::coalesce([bytes.into(), Expr::val(0)]))
    };
    let sum = E::TEXTS.iter().map(bytes).reduce(ExprTrait::add);
    sum.unwrap_or_else(|| Expr::val(0)).cast_as("BIGINT")
}

/// Returns the bytes of a text. A value that is no text has none.
pub(crate) fn bytes_of_value(value: &Value) -> i64 {
    match value {
        Value::String(Some(text)) => i64::try_from(text.len()).unwrap_or(i64::MAX),
        _ => 0,
    }
}

pub(crate) fn sum(bytes: impl IntoIterator<Item = i64>) -> i64 {
    bytes.into_iter().fold(0, i64::saturating_add)
}

/// What a transaction adds to threads.
#[derive(Debug, Default)]
pub(crate) struct Additions(BTreeMap<ThreadId, Addition>);

/// What a transaction adds to a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Addition {
    messages: i64,
    /// Less than zero if the transaction erases texts, or replaces them by shorter ones.
    bytes: i64,
}

impl Additions {
    fn add(&mut self, thread: ThreadId, added: Addition) {
        let sum = self.0.entry(thread).or_default();
        sum.messages = sum.messages.saturating_add(added.messages);
        sum.bytes = sum.bytes.saturating_add(added.bytes);
    }

    /// Returns the size of a thread with these counts.
    fn applied(&self, thread: ThreadId, stored: Extent) -> Extent {
        let Addition { messages, bytes } = self.0.get(&thread).copied().unwrap_or_default();
        Extent {
            messages: stored.messages.saturating_add_signed(messages),
            bytes: stored.bytes.saturating_add_signed(bytes),
        }
    }
}

impl Addition {
    /// Builds the update of the counts of a thread. A message also makes the thread as new as the message.
    fn update(self, thread: ThreadId, now: Timestamp) -> UpdateMany<thread::Entity> {
        let Self { messages, bytes } = self;
        let mut update = thread::Entity::update_many();
        if messages != 0 {
            let (at, now) = (|| thread::Column::UpdatedAt.into_expr(), || Expr::value(now.as_micros()));
            let newest = Expr::case(at().lt(now()), now()).finally(at());
            update = update
                .col_expr(thread::Column::Messages, thread::Column::Messages.into_expr().add(messages))
                .col_expr(thread::Column::UpdatedAt, newest.into());
        }
        update
            .col_expr(thread::Column::Bytes, thread::Column::Bytes.into_expr().add(bytes))
            .filter(thread::Column::ThreadId.eq(thread.to_string()))
    }
}

impl Write {
    /// Adds to the bytes of a thread. The thread is locked, or new.
    pub(crate) fn add_bytes(&self, thread: ThreadId, bytes: i64) {
        self.additions.lock().add(thread, Addition { messages: 0, bytes });
    }

    /// Adds messages with these bytes to a thread. The thread is locked, or new.
    pub(crate) fn add_messages(&self, thread: ThreadId, messages: usize, bytes: i64) {
        let messages = i64::try_from(messages).unwrap_or(i64::MAX);
        self.additions.lock().add(thread, Addition { messages, bytes });
    }

    /// Returns a thread that this transaction has locked, with its size as this transaction leaves it so far.
    pub(crate) fn locked(&self, row: thread::Model) -> Result<LockedThread, StoreError> {
        let mut locked = LockedThread::of(row)?;
        locked.extent = self.additions.lock().applied(locked.id, locked.extent);
        Ok(locked)
    }

    /// Updates rows of a counted table, and returns the bytes of the texts of each as it is then.
    pub(crate) async fn update_counted<E: CountedTable>(
        &self,
        update: UpdateMany<E>,
    ) -> Result<Vec<i64>, StoreError> {
        let returning = Query::returning().expr(bytes_in_rows::<E>());
        let update = update.into_query().returning(returning).take();
        let updated = self.tx.query_all_raw(self.tx.get_database_backend().build(&update)).await?;
        updated.iter().map(|row| Ok(row.try_get_by_index(0)?)).collect()
    }

    /// Adds what this transaction has added to the counts of its threads.
    pub(crate) async fn write_additions(&self) -> Result<(), StoreError> {
        let Additions(added) = std::mem::take(&mut *self.additions.lock());
        for (thread, addition) in added {
            if addition != Addition::default() {
                let update = addition.update(thread, self.now);
                self.update_later(update, "a thread to count is missing").await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sea_orm::ActiveValue::Set;
    use sea_orm::{DbBackend, EntityName};

    #[test]
    fn the_bytes_of_a_row_are_those_of_its_texts() {
        let row = sent_answer::ActiveModel { text: Set("é".to_owned()), n: Set(7), ..Default::default() };
        assert_eq!(bytes_set(&row), 2);
        let row = step::ActiveModel {
            parts: Set("[]".to_owned()),
            provider_state: Set(None),
            origin: Set(Some("no text".to_owned())),
            ..Default::default()
        };
        assert_eq!(bytes_set(&row), 2);
    }

    #[test]
    fn a_statement_counts_the_same_columns() {
        let query =
            Query::select().expr(bytes_in_rows::<step::Entity>()).from(step::Entity.table_ref()).take();
        for database in [DbBackend::Sqlite, DbBackend::Postgres] {
            let sql = database.build(&query).to_string();
            assert!(sql.contains("octet_length"), "{sql}");
            for column in ["parts", "provider_state"] {
                assert!(sql.contains(column), "{sql}");
            }
        }
    }

    #[test]
    fn the_additions_of_a_thread_are_summed() {
        let (one, other) = (ThreadId::new(uuid::Uuid::from_u128(1)), ThreadId::new(uuid::Uuid::from_u128(2)));
        let mut additions = Additions::default();
        additions.add(one, Addition { messages: 2, bytes: 5 });
        additions.add(one, Addition { messages: 0, bytes: -9 });
        let stored = Extent { messages: 3, bytes: 10 };
        assert_eq!(additions.applied(one, stored), Extent { messages: 5, bytes: 6 });
        assert_eq!(additions.applied(other, stored), stored);
    }
}
