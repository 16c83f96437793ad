//! The transcript of a thread, and the texts that the model read about its calls.

use super::entity::{message, run, sent_answer, step, tool_call};
use super::words::SealKind;
use super::{Page, Read, StoreError, Thread, rows};
use crate::domain::call::ToolCall;
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::message::{Message, MessageStatus};
use sea_orm::sea_query::{Query, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use std::collections::HashMap;

/// The data from which a history is built.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// All messages, oldest first, superseded ones included.
    pub(crate) messages: Vec<Message>,
    /// The user message that each assistant's message answers.
    pub(crate) questions: HashMap<MessageId, MessageId>,
    /// The texts that the model read about each call, in order.
    pub(crate) sent: HashMap<ToolCallId, Vec<Sent>>,
}

/// A text about a call that the model read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The kind of the text.
    pub(crate) kind: SealKind,
    /// The text.
    pub(crate) text: String,
    /// The assistant's message whose step first contained the text.
    pub(crate) message_id: MessageId,
}

/// A text about a call that the model reads now for the first time. A sealed text never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) n: i32,
    pub(crate) kind: SealKind,
    pub(crate) text: String,
}

impl Read {
    /// Returns the whole transcript of a thread.
    pub(crate) async fn transcript(&self, thread: &Thread) -> Result<Transcript, StoreError> {
        let of_thread = Condition::all().add(message::Column::ThreadId.eq(thread.id.to_string()));
        let found = message::Entity::find()
            .filter(of_thread.clone())
            .order_by_asc(message::Column::Ordinal)
            .all(&self.tx)
            .await?;
        let messages = self.messages_of(found, of_thread).await?;
        let runs = run::Entity::find().filter(run::Column::ThreadId.eq(thread.id.to_string()));
        let mut questions = HashMap::new();
        for row in runs.all(&self.tx).await? {
            let question = || rows::id("runs", &row.user_message_id);
            let answer = rows::id::<MessageId>("runs", &row.assistant_message_id);
            let ids = answer.and_then(|answer| Ok((answer, question()?)));
            questions.extend(rows::listed("runs", &row.run_id, ids));
        }
        let calls = Query::select()
            .column(tool_call::Column::ToolCallId)
            .from(tool_call::Entity)
            .and_where(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .to_owned();
        let sent = self.sent_where(sent_answer::Column::ToolCallId.in_subquery(calls)).await?;
        Ok(Transcript { messages, questions, sent })
    }

    /// Returns a page of the messages that a user sees: the newest page first, each page oldest first.
    pub(crate) async fn messages(
        &self,
        thread: &Thread,
        before: Option<i64>,
        size: u64,
    ) -> Result<Page<Message>, StoreError> {
        let mut shown = Condition::all()
            .add(message::Column::ThreadId.eq(thread.id.to_string()))
            .add(message::Column::Status.ne(MessageStatus::Superseded));
        if let Some(before) = before {
            shown = shown.add(message::Column::Ordinal.lt(before));
        }
        let found = message::Entity::find()
            .filter(shown.clone())
            .order_by_desc(message::Column::Ordinal)
            .limit(size.saturating_add(1))
            .all(&self.tx)
            .await?;
        let mut page = Page::of(found, size);
        page.items.reverse();
        let first = page.items.first().map(|oldest| message::Column::Ordinal.gte(oldest.ordinal));
        let items = self.messages_of(page.items, shown.add_option(first)).await?;
        Ok(Page { items, has_more: page.has_more })
    }

    /// Adds the steps and calls to these messages, which are those that match the condition. The statements
    /// use the condition instead of a list of ids, because databases limit the length of a list.
    async fn messages_of(
        &self,
        found: Vec<message::Model>,
        which: Condition,
    ) -> Result<Vec<Message>, StoreError> {
        let mut steps: HashMap<String, Vec<step::Model>> = HashMap::new();
        let mut calls: HashMap<(String, i32), Vec<ToolCall>> = HashMap::new();
        if !found.is_empty() {
            let ids = Query::select()
                .column(message::Column::MessageId)
                .from(message::Entity)
                .cond_where(which)
                .to_owned();
            let query = step::Entity::find().filter(step::Column::MessageId.in_subquery(ids.clone()));
            for row in query.order_by_asc(step::Column::N).all(&self.tx).await? {
                steps.entry(row.message_id.clone()).or_default().push(row);
            }
            let of_messages = Condition::all().add(tool_call::Column::MessageId.in_subquery(ids));
            for call in self.calls_where(of_messages).await? {
                calls.entry((call.message_id.to_string(), call.step)).or_default().push(call);
            }
        }
        let mut messages = Vec::with_capacity(found.len());
        for row in found {
            let own = steps.remove(&row.message_id).unwrap_or_default();
            let own = own.into_iter().filter_map(|row| {
                let (id, calls) = (
                    row.message_id.clone(),
                    calls.remove(&(row.message_id.clone(), row.n)).unwrap_or_default(),
                );
                rows::listed("message_steps", &id, rows::step(row, calls))
            });
            let (id, own) = (row.message_id.clone(), own.collect());
            messages.extend(rows::listed("messages", &id, rows::message(row, own)));
        }
        Ok(messages)
    }

    /// Returns the texts that the model read about these calls of one step, in order. A call may have no
    /// texts.
    pub(crate) async fn sent(
        &self,
        calls: Vec<ToolCallId>,
    ) -> Result<HashMap<ToolCallId, Vec<Sent>>, StoreError> {
        if calls.is_empty() {
            return Ok(HashMap::new());
        }
        let calls = calls.iter().map(ToString::to_string);
        self.sent_where(sent_answer::Column::ToolCallId.is_in(calls)).await
    }

    async fn sent_where(&self, which: SimpleExpr) -> Result<HashMap<ToolCallId, Vec<Sent>>, StoreError> {
        let mut sent: HashMap<ToolCallId, Vec<Sent>> = HashMap::new();
        let query = sent_answer::Entity::find().filter(which);
        for row in query.order_by_asc(sent_answer::Column::N).all(&self.tx).await? {
            const TABLE: &str = "sent_answers";
            let kind = rows::word(TABLE, &row.kind)?;
            let one = Sent { kind, text: row.text, message_id: rows::id(TABLE, &row.message_id)? };
            sent.entry(rows::id(TABLE, &row.tool_call_id)?).or_default().push(one);
        }
        Ok(sent)
    }
}

impl Transcript {
    /// Returns the messages that are not superseded, oldest first.
    pub(crate) fn current(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.messages.iter().filter(|message| message.status != MessageStatus::Superseded)
    }

    /// Returns the texts that the model read about a call.
    pub(crate) fn texts_of(&self, call: ToolCallId) -> &[Sent] {
        self.sent.get(&call).map_or(&[], Vec::as_slice)
    }
}
