//! Erases the payloads of deleted threads: the texts of users and models, and the inputs and results of
//! calls, and the bounds of grants. The rows stay as evidence: ids, states, decisions and hashes.

use crate::entity::{grant, message, run, sent_answer, step, thread, tool_call, tool_request};
use crate::thread::extents::{CountedTable, bytes_in_rows, sum};
use crate::{StoreError, TimedRead, Write};
use holdpoint_core::id::ThreadId;
use holdpoint_core::run::RunStatus;
use holdpoint_core::tool::tool_request::RequestState;
use sea_orm::sea_query::{Expr, ExprTrait, Func, Query, SelectStatement, SimpleExpr};
use sea_orm::{ColumnTrait, EntityName, EntityTrait, PaginatorTrait, QueryFilter, QuerySelect, UpdateMany};
use std::time::Duration;

/// Maximum number of threads that one statement reads.
const PAGE: u64 = 500;

/// The deleted threads that are not erased. A literal, so that the partial index `threads_to_erase` is
/// usable.
const TO_ERASE: &str = "deleted_at IS NOT NULL AND erased_at IS NULL";

/// A turn writes the message.
const WRITTEN: &str = r#"EXISTS (SELECT 1 FROM "holdpoint".runs
    WHERE runs.assistant_message_id = messages.message_id AND runs.status = 'running')"#;

/// The number of keys of a table whose rows one transaction erases, so that other work in the thread waits briefly.
const BATCH: u64 = 200;

/// What a batch of a purge left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeProgress {
    /// Perhaps more finished rows.
    Batch,
    /// Work in progress, and no finished row. The thread has to be purged again after that work ends.
    AllFinished,
    /// No row.
    All,
}

impl TimedRead {
    /// Returns how many threads were deleted at least this long ago and are not erased.
    pub async fn count_threads_to_purge(&self, deleted_for: Duration) -> Result<u64, StoreError> {
        Ok(self.threads_to_erase(deleted_for).count(&self.tx).await?)
    }

    /// Returns the next of these threads after `after`, in the order of their ids. An empty list means that
    /// no more exist.
    pub async fn threads_to_purge(
        &self,
        deleted_for: Duration,
        after: Option<ThreadId>,
    ) -> Result<Vec<ThreadId>, StoreError> {
        self.next_ids(self.threads_to_erase(deleted_for), thread::Column::ThreadId, after, PAGE).await
    }

    fn threads_to_erase(&self, deleted_for: Duration) -> sea_orm::Select<thread::Entity> {
        let until = self.now.minus(deleted_for).as_micros();
        thread::Entity::find().filter(Expr::cust(TO_ERASE)).filter(thread::Column::DeletedAt.lte(until))
    }
}

impl Write {
    /// Erases the payloads of the next finished rows of a deleted thread, and the title after the last of them. The
    /// caller commits and calls again until nothing is left.
    pub async fn purge_batch(&self, id: ThreadId) -> Result<PurgeProgress, StoreError> {
        self.lock_thread(id).await?;
        let erased = self.erase_messages(id).await? + self.erase_steps(id).await?;
        if erased + self.erase_calls(id).await? + self.erase_requests(id).await? > 0 {
            return Ok(PurgeProgress::Batch);
        }
        run::Entity::update_many()
            .col_expr(run::Column::Instructions, Expr::value(None::<String>))
            .col_expr(run::Column::ErrorMessage, emptied(run::Column::ErrorMessage, ""))
            .filter(run::Column::ThreadId.eq(id.to_string()))
            .filter(run::Column::FinishedAt.is_not_null())
            .exec(&self.tx)
            .await?;
        let of_thread = || thread::Column::ThreadId.eq(id.to_string());
        grant::Entity::update_many()
            .col_expr(grant::Column::InputBounds, Expr::value(""))
            .filter(grant::Column::SessionId.eq(id.to_string()))
            .filter(grant::Column::InputBounds.is_not_null())
            .filter(grant::Column::RevokedAt.is_not_null())
            .exec(&self.tx)
            .await?;
        thread::Entity::update_many()
            .col_expr(thread::Column::Title, Expr::value(""))
            .filter(of_thread())
            .exec(&self.tx)
            .await?;
        if self.has_open_work(id).await? {
            return Ok(PurgeProgress::AllFinished);
        }
        self.erasing::<thread::Entity>(thread::Column::ErasedAt).filter(of_thread()).exec(&self.tx).await?;
        Ok(PurgeProgress::All)
    }

    async fn erase_messages(&self, id: ThreadId) -> Result<u64, StoreError> {
        let of_thread = message::Column::ThreadId.eq(id.to_string());
        let ended = of_thread.and(message::Column::SupersededAt.is_not_null().or(Expr::cust(WRITTEN).not()));
        let erasing = self
            .erasing::<message::Entity>(message::Column::ErasedAt)
            .col_expr(message::Column::Content, emptied(message::Column::Content, ""));
        self.erase(id, message::Column::MessageId, message::Column::ErasedAt, ended, erasing).await
    }

    async fn erase_steps(&self, id: ThreadId) -> Result<u64, StoreError> {
        let of_thread = step::Column::MessageId.in_subquery(messages_of(id));
        let ended = of_thread.and(step::Column::FinishedAt.is_not_null());
        let erasing = self
            .erasing::<step::Entity>(step::Column::ErasedAt)
            .col_expr(step::Column::Parts, Expr::value("[]"))
            .col_expr(step::Column::ProviderState, Expr::value(None::<String>));
        self.erase(id, step::Column::MessageId, step::Column::ErasedAt, ended, erasing).await
    }

    async fn erase_calls(&self, id: ThreadId) -> Result<u64, StoreError> {
        let sent = sent_answer::Column::ToolCallId.in_subquery(calls_of(id));
        let erasing = self
            .erasing::<sent_answer::Entity>(sent_answer::Column::ErasedAt)
            .col_expr(sent_answer::Column::Text, Expr::value(""));
        let (key, erased_at) = (sent_answer::Column::ToolCallId, sent_answer::Column::ErasedAt);
        let texts = self.erase(id, key, erased_at, sent, erasing).await?;
        let of_thread = tool_call::Column::ThreadId.eq(id.to_string());
        let ended = of_thread.and(tool_call::Column::FinishedAt.is_not_null());
        let erasing = self
            .erasing::<tool_call::Entity>(tool_call::Column::ErasedAt)
            .col_expr(tool_call::Column::Arguments, Expr::value("{}"))
            .col_expr(tool_call::Column::ModelArguments, emptied(tool_call::Column::ModelArguments, "{}"))
            .col_expr(tool_call::Column::ValidatedInputs, emptied(tool_call::Column::ValidatedInputs, "{}"))
            .col_expr(tool_call::Column::Preview, emptied(tool_call::Column::Preview, ""))
            .col_expr(tool_call::Column::ValidatedPreview, emptied(tool_call::Column::ValidatedPreview, ""))
            .col_expr(tool_call::Column::Reason, Expr::value(None::<String>))
            .col_expr(tool_call::Column::Output, emptied(tool_call::Column::Output, "null"))
            .col_expr(tool_call::Column::Result, Expr::value(""))
            .col_expr(tool_call::Column::Progress, Expr::value(None::<String>));
        let (key, erased_at) = (tool_call::Column::ToolCallId, tool_call::Column::ErasedAt);
        Ok(texts + self.erase(id, key, erased_at, ended, erasing).await?)
    }

    async fn erase_requests(&self, id: ThreadId) -> Result<u64, StoreError> {
        let of_thread = tool_request::Column::ToolCallId.in_subquery(calls_of(id));
        let ended = of_thread
            .and(tool_request::Column::State.ne(RequestState::Open.word()))
            .and(tool_request::Column::Content.is_null());
        let batch = batch::<tool_request::Entity>(
            tool_request::Column::RequestId,
            tool_request::Column::ErasedAt,
            ended.clone(),
        );
        let erased = self
            .erasing::<tool_request::Entity>(tool_request::Column::ErasedAt)
            .col_expr(tool_request::Column::Message, Expr::value(""))
            .col_expr(tool_request::Column::AnswerSchema, Expr::value("{}"))
            .col_expr(tool_request::Column::ServerKey, Expr::value(None::<String>))
            .filter(tool_request::Column::RequestId.in_subquery(batch))
            .filter(ended)
            .exec(&self.tx)
            .await?;
        Ok(erased.rows_affected)
    }

    /// Erases the next of these rows of a thread with this update, and takes their bytes from the thread. The texts of a
    /// row are as before while the thread is locked.
    async fn erase<E: CountedTable>(
        &self,
        thread: ThreadId,
        key: E::Column,
        erased_at: E::Column,
        which: SimpleExpr,
        erasing: UpdateMany<E>,
    ) -> Result<u64, StoreError> {
        let bytes = Expr::from(Func::sum(bytes_in_rows::<E>())).cast_as("BIGINT");
        let batch: Vec<(String, i64)> = E::find()
            .select_only()
            .column(key)
            .column_as(bytes, "bytes")
            .filter(erased_at.is_null())
            .filter(which.clone())
            .group_by(key)
            .limit(BATCH)
            .into_tuple()
            .all(&self.tx)
            .await?;
        if batch.is_empty() {
            return Ok(0);
        }
        let (keys, before): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let left = self.update_counted(erasing.filter(key.is_in(keys)).filter(which)).await?;
        let rows = u64::try_from(left.len()).unwrap_or(u64::MAX);
        self.add_bytes(thread, sum(left).saturating_sub(sum(before)));
        Ok(rows)
    }

    async fn has_open_work(&self, id: ThreadId) -> Result<bool, StoreError> {
        let calls = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(id.to_string()))
            .filter(tool_call::Column::FinishedAt.is_null());
        let runs = run::Entity::find()
            .filter(run::Column::ThreadId.eq(id.to_string()))
            .filter(run::Column::Status.eq(RunStatus::Running.word()));
        let steps = step::Entity::find()
            .filter(step::Column::MessageId.in_subquery(messages_of(id)))
            .filter(step::Column::FinishedAt.is_null());
        let (calls, runs) = (calls.count(&self.tx).await?, runs.count(&self.tx).await?);
        Ok(calls + runs + steps.count(&self.tx).await? > 0)
    }

    /// Builds an update that erases the rows that are not erased yet, at the time of this transaction.
    fn erasing<E: EntityTrait>(&self, erased_at: E::Column) -> UpdateMany<E> {
        E::update_many().col_expr(erased_at, Expr::value(self.now.as_micros())).filter(erased_at.is_null())
    }
}

/// Returns the value of an erased column: NULL if the column was NULL, else `empty`.
fn emptied(column: impl ColumnTrait, empty: &'static str) -> SimpleExpr {
    Expr::case(column.is_null(), Expr::value(None::<String>)).finally(Expr::value(empty)).into()
}

/// Selects the keys of the next rows to erase.
fn batch<E: EntityTrait>(key: E::Column, erased_at: E::Column, which: SimpleExpr) -> SelectStatement {
    Query::select()
        .column(key)
        .from(E::default().table_ref())
        .and_where(erased_at.is_null())
        .and_where(which)
        .limit(BATCH)
        .to_owned()
}

fn calls_of(id: ThreadId) -> SelectStatement {
    Query::select()
        .column(tool_call::Column::ToolCallId)
        .from(tool_call::Entity.table_ref())
        .and_where(tool_call::Column::ThreadId.eq(id.to_string()))
        .to_owned()
}

fn messages_of(id: ThreadId) -> SelectStatement {
    Query::select()
        .column(message::Column::MessageId)
        .from(message::Entity.table_ref())
        .and_where(message::Column::ThreadId.eq(id.to_string()))
        .to_owned()
}
