//! The transcript of a thread, and the texts that the model read about its calls.

use super::calls::{decided_calls, readable};
use super::entity::{decision, message, run, sent_answer, step, tool_call};
use super::union::{Union, UnionRows, UnionStatement};
use super::words::{SealKind, Word};
use super::{Page, Read, StoreError, Thread, Write, rows};
use crate::domain::call::{StateKind, ToolCall};
use crate::domain::clock::Timestamp;
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::message::{Message, MessageStatus, Step, StepStatus};
use crate::domain::run::{Run, RunStatus};
use sea_orm::sea_query::{ExprTrait, Query};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, EntityName, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect, Value,
};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The number of messages up to which one statement reads a transcript. Calls have more columns than all other rows,
/// and each row of a statement is as wide as the widest. So in a longer thread the calls are read apart.
const TOGETHER_MAX: u64 = 40;
/// The number of messages above which each table is read with a statement of its own, so that a statement on a
/// very long thread ends in time.
const HALVES_MAX: u64 = 2000;

/// The statements that select the rows of a transcript. They have hundreds of expressions, so they are built once.
struct Statements {
    together: [UnionStatement; 1],
    halves: [UnionStatement; 2],
    apart: Vec<UnionStatement>,
}

static OF_POSTGRES: LazyLock<Statements> = LazyLock::new(|| Statements::of(DbBackend::Postgres));
static OF_SQLITE: LazyLock<Statements> = LazyLock::new(|| Statements::of(DbBackend::Sqlite));

impl Statements {
    fn of(backend: DbBackend) -> Self {
        Self {
            together: [select_answers().and(select_calls()).build(backend)],
            halves: [select_answers().build(backend), select_calls().build(backend)],
            apart: select_answers().and(select_calls()).apart(backend),
        }
    }

    /// Returns the statements for a thread with this number of messages.
    fn for_messages(&self, messages: u64) -> &[UnionStatement] {
        match messages {
            ..=TOGETHER_MAX => &self.together,
            ..=HALVES_MAX => &self.halves,
            _ => &self.apart,
        }
    }
}

/// The placeholder of the thread's id.
const ID: &str = "";

fn select_answers() -> Union {
    let of_messages = Query::select()
        .column(message::Column::MessageId)
        .from(message::Entity.table_ref())
        .and_where(message::Column::ThreadId.eq(ID))
        .to_owned();
    Union::default()
        .of::<message::Entity>("messages", message::Column::ThreadId.eq(ID))
        .of::<run::Entity>("runs", run::Column::ThreadId.eq(ID))
        .of::<step::Entity>("message_steps", step::Column::MessageId.in_subquery(of_messages))
}

fn select_calls() -> Union {
    let of_calls = Query::select()
        .column(tool_call::Column::ToolCallId)
        .from(tool_call::Entity.table_ref())
        .and_where(tool_call::Column::ThreadId.eq(ID))
        .to_owned();
    let is_final =
        decision::Column::ToolCallId.in_subquery(of_calls.clone()).and(decision::Column::IsFinal.eq(true));
    Union::default()
        .of::<tool_call::Entity>("tool_calls", tool_call::Column::ThreadId.eq(ID))
        .of::<decision::Entity>("decisions", is_final)
        .of::<sent_answer::Entity>("sent_answers", sent_answer::Column::ToolCallId.in_subquery(of_calls))
}

/// The data from which a history is built.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    /// All messages, oldest first, superseded ones included.
    pub(crate) messages: Vec<Message>,
    /// The user message that each assistant's message answers.
    pub(crate) questions: HashMap<MessageId, MessageId>,
    /// The runs, in the order of their answers.
    pub(crate) runs: Vec<StoredRun>,
    /// The texts that the model read about each call, in order.
    pub(crate) sent: HashMap<ToolCallId, Vec<Sent>>,
    /// The number of calls, unreadable ones included.
    calls: usize,
    /// The number of pending calls, unreadable ones included.
    pending: usize,
    /// The number of calls that have not ended and cannot be read.
    unreadable: usize,
}

/// A run of a transcript.
#[derive(Debug, Clone)]
pub(crate) struct StoredRun {
    /// The answer of the run.
    answer: MessageId,
    /// Whether the answer is superseded.
    is_superseded: bool,
    /// When the lease of the turn ends, if the run is running.
    pub(crate) lease_until: Option<Timestamp>,
    /// `None` if the row cannot be read.
    run: Option<Run>,
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
    /// Returns the whole transcript of a thread with this number of messages.
    async fn whole_transcript(&self, thread: &Thread, messages: u64) -> Result<Transcript, StoreError> {
        let statements = match self.tx.get_database_backend() {
            DbBackend::Sqlite => &OF_SQLITE,
            _ => &OF_POSTGRES,
        };
        let id = thread.id.to_string();
        let mut found = UnionRows::default();
        for mut union in statements.for_messages(messages).iter().cloned() {
            for value in union.statement.values.iter_mut().flat_map(|values| &mut values.0) {
                // Each text in the statement is the id of the thread.
                if let Value::String(of_thread) = value {
                    *of_thread = Some(id.clone());
                }
            }
            found.add(&self.tx, union).await?;
        }
        Transcript::of(&mut found)
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

    /// Returns a message of a thread, superseded or not.
    pub(crate) async fn message(
        &self,
        thread: &Thread,
        id: MessageId,
    ) -> Result<Option<Message>, StoreError> {
        let which = Condition::all()
            .add(message::Column::ThreadId.eq(thread.id.to_string()))
            .add(message::Column::MessageId.eq(id.to_string()));
        let found = message::Entity::find().filter(which.clone()).all(&self.tx).await?;
        Ok(self.messages_of(found, which).await?.pop())
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
                .from(message::Entity.table_ref())
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
        Ok(whole(found, steps, calls))
    }
}

impl Write {
    /// Returns the whole transcript of a thread, which stays true until the transaction ends.
    pub(crate) async fn transcript(&self, thread: &Thread) -> Result<Transcript, StoreError> {
        let messages = self.lock_thread(thread).await?.messages;
        self.whole_transcript(thread, messages).await
    }
}

fn sent_texts(found: Vec<sent_answer::Model>) -> Result<HashMap<ToolCallId, Vec<Sent>>, StoreError> {
    const TABLE: &str = "sent_answers";
    let mut sent: HashMap<ToolCallId, Vec<Sent>> = HashMap::new();
    for row in found {
        let kind = rows::word(TABLE, &row.kind)?;
        let one = Sent { kind, text: row.text, message_id: rows::id(TABLE, &row.message_id)? };
        sent.entry(rows::id(TABLE, &row.tool_call_id)?).or_default().push(one);
    }
    Ok(sent)
}

/// Builds messages of their rows, steps and calls. Leaves out rows that cannot be read.
fn whole(
    found: Vec<message::Model>,
    mut steps: HashMap<String, Vec<step::Model>>,
    mut calls: HashMap<(String, i32), Vec<ToolCall>>,
) -> Vec<Message> {
    let mut messages = Vec::with_capacity(found.len());
    for row in found {
        let own = steps.remove(&row.message_id).unwrap_or_default();
        let own = own.into_iter().filter_map(|row| {
            let (id, calls) =
                (row.message_id.clone(), calls.remove(&(row.message_id.clone(), row.n)).unwrap_or_default());
            rows::listed("message_steps", &id, rows::step(row, calls))
        });
        let (id, own) = (row.message_id.clone(), own.collect());
        messages.extend(rows::listed("messages", &id, rows::message(row, own)));
    }
    messages
}

impl StoredRun {
    fn run(&self) -> Result<&Run, StoreError> {
        self.run.as_ref().ok_or_else(|| rows::inconsistent("runs", "a run cannot be read"))
    }
}

impl Transcript {
    fn of(found: &mut UnionRows) -> Result<Self, StoreError> {
        let mut messages: Vec<message::Model> = found.take::<message::Entity>()?;
        messages.sort_by_key(|row| row.ordinal);
        let mut runs: HashMap<String, run::Model> = HashMap::new();
        for row in found.take::<run::Entity>()? {
            runs.insert(row.assistant_message_id.clone(), row);
        }
        let mut steps: HashMap<String, Vec<step::Model>> = HashMap::new();
        for row in found.take::<step::Entity>()? {
            steps.entry(row.message_id.clone()).or_default().push(row);
        }
        steps.values_mut().for_each(|steps| steps.sort_by_key(|row| row.n));
        let mut decisions = HashMap::new();
        for row in found.take::<decision::Entity>()? {
            decisions.insert(row.tool_call_id.clone(), rows::decision(row)?);
        }
        let mut rows_of_calls = found.take::<tool_call::Entity>()?;
        rows_of_calls.sort_by_key(|row| row.ordinal);
        let all = rows_of_calls.len();
        let pending = rows_of_calls.iter().filter(|row| row.state == StateKind::Pending.word()).count();
        let open = rows_of_calls.iter().filter(|row| row.finished_at.is_none()).count();
        let mut calls: HashMap<(String, i32), Vec<ToolCall>> = HashMap::new();
        let mut read = 0;
        for call in readable(decided_calls(rows_of_calls, decisions)) {
            read += usize::from(call.end().is_none());
            calls.entry((call.message_id.to_string(), call.step)).or_default().push(call);
        }
        let mut sent = found.take::<sent_answer::Entity>()?;
        sent.sort_by_key(|row| row.n);
        let unreadable = open.saturating_sub(read);
        let sent = sent_texts(sent)?;
        let mut transcript = Self { sent, calls: all, pending, unreadable, ..Self::default() };
        for row in &messages {
            let Some(run) = runs.remove(&row.message_id) else { continue };
            transcript.add_run(run, row.status == MessageStatus::Superseded.word());
        }
        transcript.messages = whole(messages, steps, calls);
        Ok(transcript)
    }

    fn add_run(&mut self, row: run::Model, is_superseded: bool) {
        let (question, id) = (rows::id("runs", &row.user_message_id), row.run_id.clone());
        let answer = rows::id::<MessageId>("runs", &row.assistant_message_id);
        let ids = answer.and_then(|answer| Ok((answer, question?)));
        let Some((answer, question)) = rows::listed("runs", &id, ids) else { return };
        self.questions.insert(answer, question);
        let lease_until = row.lease_until.map(Timestamp::from_micros);
        let run = rows::listed("runs", &id, rows::run(row));
        self.runs.push(StoredRun { answer, is_superseded, lease_until, run });
    }

    /// Adds a run that this transaction began, with its messages.
    pub(super) fn begin(&mut self, question: MessageId, run: &Run, messages: Vec<Message>) {
        self.messages.extend(messages);
        let answer = run.assistant_message_id;
        self.questions.insert(answer, question);
        let run = Some(run.clone());
        self.runs.push(StoredRun { answer, is_superseded: false, lease_until: None, run });
    }

    /// Returns the run of the last answer that is not superseded.
    pub(crate) fn latest_run(&self) -> Result<Option<&Run>, StoreError> {
        self.runs.iter().rfind(|stored| !stored.is_superseded).map(StoredRun::run).transpose()
    }

    /// Returns the run that writes this message.
    pub(crate) fn run_of(&self, answer: MessageId) -> Result<Option<&Run>, StoreError> {
        self.runs.iter().find(|stored| stored.answer == answer).map(StoredRun::run).transpose()
    }

    /// Returns the running run, and when the lease of its turn ends.
    pub(crate) fn running(&self) -> Option<(&Run, Option<Timestamp>)> {
        let running = |stored: &'_ StoredRun| stored.run.as_ref().map(|run| run.status);
        let found = self.runs.iter().find(|stored| running(stored) == Some(RunStatus::Running))?;
        Some((found.run.as_ref()?, found.lease_until))
    }

    /// Returns the waiting runs.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter_map(|stored| stored.run.as_ref())
            .filter(|run| run.status == RunStatus::Waiting)
    }

    /// Returns the steps of a message.
    pub(crate) fn steps(&self, message: MessageId) -> &[Step] {
        self.messages.iter().find(|stored| stored.id == message).map_or(&[], |message| message.steps())
    }

    /// Returns the calls of the last complete step of a message that are held, or that child runs or workers
    /// execute or executed. Fails if an open call of the thread cannot be read, because the run may wait for that call.
    pub(crate) fn pausing_calls(&self, message: MessageId) -> Result<Vec<ToolCall>, StoreError> {
        if self.unreadable > 0 {
            return Err(rows::inconsistent("tool_calls", "an open call cannot be read"));
        }
        let last = self.steps(message).iter().rfind(|step| step.status == StepStatus::Complete);
        let calls = last.map_or(&[][..], |step| step.calls.as_slice());
        Ok(calls.iter().filter(|call| call.pauses()).cloned().collect())
    }

    /// Returns the number of pending calls.
    pub(crate) const fn pending_count(&self) -> usize {
        self.pending
    }

    /// Whether the thread has any call.
    pub(crate) const fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Returns the messages that are not superseded, oldest first.
    pub(crate) fn current(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.messages.iter().filter(|message| message.status != MessageStatus::Superseded)
    }

    /// Returns the texts that the model read about a call.
    pub(crate) fn texts_of(&self, call: ToolCallId) -> &[Sent] {
        self.sent.get(&call).map_or(&[], Vec::as_slice)
    }
}
