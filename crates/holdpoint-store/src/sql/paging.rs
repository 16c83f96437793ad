//! Pages: of ids, and of rows limited by bytes. The database counts the bytes of the rows, so that the server
//! reads only rows that fit.

use crate::entity::{event, message, tool_call};
use crate::{Page, Read, StoreError, Thread, sql::rows};
use holdpoint_core::message::Message;
use sea_orm::sea_query::{Expr, ExprTrait, Order, Query, SelectStatement};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select,
};
use std::fmt::Display;
use std::str::FromStr;

/// The bytes of a call, in a statement with its row.
pub(crate) const CALL_BYTES: &str = "CAST(octet_length(tool_calls.arguments) \
    + COALESCE(octet_length(tool_calls.model_arguments), 0) + COALESCE(octet_length(tool_calls.validated_inputs), 0) \
    + COALESCE(octet_length(tool_calls.preview), 0) + COALESCE(octet_length(tool_calls.validated_preview), 0) \
    + COALESCE(octet_length(tool_calls.output), 0) + COALESCE(octet_length(tool_calls.result), 0) \
    + COALESCE(octet_length(tool_calls.input_round), 0) \
    + COALESCE(octet_length(tool_calls.progress), 0) AS BIGINT)";

/// The bytes of the output of a call, and of its result.
const OUTPUT_BYTES: &str = "CAST(COALESCE(octet_length(tool_calls.output), 0) AS BIGINT)";
const RESULT_BYTES: &str = "CAST(COALESCE(octet_length(tool_calls.result), 0) AS BIGINT)";

/// The bytes of an event, with its call if the event has one.
const EVENT_BYTES: &str = "CAST(octet_length(events.data) + COALESCE(octet_length(tool_calls.arguments), 0) \
    + COALESCE(octet_length(tool_calls.model_arguments), 0) \
    + COALESCE(octet_length(tool_calls.validated_inputs), 0) \
    + COALESCE(octet_length(tool_calls.preview), 0) + COALESCE(octet_length(tool_calls.validated_preview), 0) \
    + COALESCE(octet_length(tool_calls.output), 0) + COALESCE(octet_length(tool_calls.result), 0) \
    + COALESCE(octet_length(tool_calls.input_round), 0) \
    + COALESCE(octet_length(tool_calls.progress), 0) AS BIGINT)";

/// The bytes of a message with its steps and calls.
const MESSAGE_BYTES: &str = r#"CAST(COALESCE(octet_length(messages.content), 0)
    + COALESCE((SELECT SUM(octet_length(parts)) FROM "holdpoint".message_steps
        WHERE message_steps.message_id = messages.message_id), 0)
    + COALESCE((SELECT SUM(octet_length(arguments) + COALESCE(octet_length(model_arguments), 0)
        + COALESCE(octet_length(validated_inputs), 0)
        + COALESCE(octet_length(preview), 0) + COALESCE(octet_length(validated_preview), 0)
        + COALESCE(octet_length(output), 0) + COALESCE(octet_length(result), 0)
        + COALESCE(octet_length(input_round), 0) + COALESCE(octet_length(progress), 0)) FROM "holdpoint".tool_calls
        WHERE tool_calls.message_id = messages.message_id), 0) AS BIGINT)"#;

/// How much of the outputs and results of calls is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    Whole,
    /// At most this number of characters of each.
    Cut {
        characters: usize,
    },
}

/// The limits of a page. A page holds at least one item, whatever its size.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    /// Maximum number of items.
    pub items: u64,
    /// Maximum number of bytes of their rows.
    pub bytes: u64,
}

impl PageSize {
    /// Returns how many of the items with these bytes fit.
    pub(crate) fn fitting(self, bytes: Vec<i64>) -> u64 {
        let mut left = self.bytes;
        let fits = |bytes: &i64| {
            let rest = left.checked_sub(u64::try_from(*bytes).unwrap_or_default());
            left = rest.unwrap_or_default();
            rest.is_some()
        };
        let fitting = u64::try_from(bytes.into_iter().take_while(fits).count());
        fitting.unwrap_or(u64::MAX).clamp(1, Ord::max(self.items, 1))
    }
}

impl Read {
    /// Returns the ids of at most `size` of these rows after `after`, in the order of the ids. An empty list means
    /// that no more exist.
    pub(crate) async fn next_ids<E: EntityTrait, Id: FromStr + Display>(
        &self,
        found: Select<E>,
        id: E::Column,
        after: Option<Id>,
        size: u64,
    ) -> Result<Vec<Id>, StoreError> {
        let after = after.map(|after| id.gt(after.to_string()));
        let ids = found
            .select_only()
            .column(id)
            .filter(Condition::all().add_option(after))
            .order_by_asc(id)
            .limit(size)
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|text: &String| rows::id(E::default().table_name(), text)).collect()
    }

    /// Returns the bytes of the first of these events, each with its call.
    pub(crate) async fn event_bytes(
        &self,
        events: SelectStatement,
        most: u64,
    ) -> Result<Vec<i64>, StoreError> {
        let of_call = Expr::col((tool_call::Entity, tool_call::Column::ToolCallId))
            .equals((event::Entity, event::Column::ToolCallId));
        let bytes = Query::select()
            .expr(Expr::cust(EVENT_BYTES))
            .from_subquery(events, event::Entity)
            .left_join(tool_call::Entity.table_ref(), of_call)
            .order_by((event::Entity, event::Column::Seq), Order::Asc)
            .limit(most)
            .to_owned();
        let found = self.tx.query_all_raw(self.tx.get_database_backend().build(&bytes)).await?;
        found.iter().map(|row| Ok(row.try_get_by_index(0)?)).collect()
    }

    /// Returns a page of the messages that a user sees: the newest page first, each page oldest first.
    pub async fn messages_page(
        &self,
        thread: &Thread,
        before: Option<i64>,
        page: PageSize,
    ) -> Result<Page<Message>, StoreError> {
        let mut query = message::Entity::find()
            .select_only()
            .column_as(Expr::cust(MESSAGE_BYTES), "bytes")
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::SupersededAt.is_null());
        if let Some(before) = before {
            query = query.filter(message::Column::Ordinal.lt(before));
        }
        let newest = query.order_by_desc(message::Column::Ordinal).limit(page.items);
        let bytes: Vec<i64> = newest.into_tuple().all(&self.tx).await?;
        let first = bytes.first().and_then(|first| u64::try_from(*first).ok()).unwrap_or_default();
        let outputs = match first.checked_sub(page.bytes) {
            None | Some(0) => Outputs::Whole,
            Some(excess) => self.outputs_shorter_by(thread, before, excess).await?,
        };
        self.messages(thread, before, page.fitting(bytes), outputs).await
    }

    /// Returns how much of each output and result to read so that the newest message before `before` is shorter
    /// by `excess` bytes.
    async fn outputs_shorter_by(
        &self,
        thread: &Thread,
        before: Option<i64>,
        excess: u64,
    ) -> Result<Outputs, StoreError> {
        let newest = message::Entity::find()
            .select_only()
            .column(message::Column::MessageId)
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::SupersededAt.is_null())
            .filter(Condition::all().add_option(before.map(|before| message::Column::Ordinal.lt(before))))
            .order_by_desc(message::Column::Ordinal)
            .limit(1);
        let lengths: Vec<(i64, i64)> = tool_call::Entity::find()
            .select_only()
            .column_as(Expr::cust(OUTPUT_BYTES), "output_bytes")
            .column_as(Expr::cust(RESULT_BYTES), "result_bytes")
            .filter(tool_call::Column::MessageId.in_subquery(newest.into_query()))
            .into_tuple()
            .all(&self.tx)
            .await?;
        let lengths = lengths.into_iter().flat_map(|(output, result)| [output, result]);
        let lengths = lengths.filter_map(|length| u64::try_from(length).ok()).collect();
        Ok(Outputs::Cut { characters: usize::try_from(longest(lengths, excess)).unwrap_or(usize::MAX) })
    }
}

/// Returns the greatest length to which all of `lengths` can be cut so that their sum is less by at least `excess`.
fn longest(mut lengths: Vec<u64>, excess: u64) -> u64 {
    lengths.sort_unstable();
    let mut left = lengths.iter().sum::<u64>().saturating_sub(excess);
    let mut cut = u64::try_from(lengths.len()).unwrap_or(u64::MAX);
    // The shorter ones stay whole, as long as each is at most an equal part of what is left.
    for length in lengths {
        let part = left.checked_div(cut).unwrap_or_default();
        if length > part {
            return part;
        }
        left = left.saturating_sub(length);
        cut = cut.saturating_sub(1);
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_cut_to_equal_parts_and_short_ones_stay_whole() {
        assert_eq!(longest(vec![10, 10, 10], 15), 5);
        assert_eq!(longest(vec![1, 10, 100], 50), 50);
        assert_eq!(longest(vec![1, 10, 100], 99), 5);
        assert_eq!(longest(vec![4, 4], 100), 0);
        assert_eq!(longest(vec![4, 4], 0), u64::MAX);
    }

    #[test]
    fn a_page_has_the_items_that_fit_and_at_least_one() {
        let page = |items, bytes| PageSize { items, bytes };
        assert_eq!(page(50, 10).fitting(vec![4, 6, 1]), 2);
        assert_eq!(page(50, 10).fitting(vec![11, 1]), 1);
        assert_eq!(page(50, 0).fitting(vec![1]), 1);
        assert_eq!(page(50, 10).fitting(vec![]), 1);
        assert_eq!(page(2, 10).fitting(vec![1, 1]), 2);
    }
}
