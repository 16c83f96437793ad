//! The transcript of a thread, and the texts that the model read about its calls.

use crate::call::calls::{decided_calls, readable};
use crate::entity::{decision, message, run, sent_answer, step, tool_call};
use crate::sql::cells::ColumnCounts;
use crate::sql::paging::Outputs;
use crate::sql::rows::AnswerState;
use crate::sql::union::{Union, UnionRows, UnionStatement};
use crate::sql::views::{MessageRow, RunRow, StepRow};
use crate::sql::words::{SealKind, literal};
use crate::{HeldTurn, LockedThread, Page, Read, StoreError, Thread, Write, sql::rows};
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::Decision;
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::message::{Message, MessageStatus, Role, Step, StepStatus};
use holdpoint_core::run::{Run, RunStatus};
use sea_orm::sea_query::{Expr, ExprTrait, Query, SelectStatement, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityName, EntityTrait, FromQueryResult,
    JoinType, QueryFilter, QueryOrder, QueryResult, QuerySelect, RelationTrait, Select, Value,
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
    step: UnionStatement,
}

static OF_POSTGRES: LazyLock<Statements> = LazyLock::new(|| Statements::of(DbBackend::Postgres));
static OF_SQLITE: LazyLock<Statements> = LazyLock::new(|| Statements::of(DbBackend::Sqlite));

impl Statements {
    fn of(backend: DbBackend) -> Self {
        Self {
            together: [select_messages().and(select_calls()).build(backend)],
            halves: [select_messages().build(backend), select_calls().build(backend)],
            apart: select_messages().and(select_calls()).apart(backend),
            step: select_step().build(backend),
        }
    }

    fn on(backend: DbBackend) -> &'static Self {
        match backend {
            DbBackend::Sqlite => &OF_SQLITE,
            _ => &OF_POSTGRES,
        }
    }

    /// Returns the statements for a thread with this number of messages.
    fn for_messages(&self, messages: u64) -> &[UnionStatement] {
        match messages {
            _ if messages <= TOGETHER_MAX => &self.together,
            _ if messages <= HALVES_MAX => &self.halves,
            _ => &self.apart,
        }
    }
}

/// The placeholder of the thread's id, or of the message's id.
const ID: &str = "";
/// The placeholder of the number of a step.
const N: i32 = 0;
/// The parts of the union.
const MESSAGES: &str = "messages";
const STEPS: &str = "message_steps";
const CALLS: &str = "tool_calls";
const DECISIONS: &str = "decisions";
const SENT: &str = "sent_answers";

/// The messages, each with its run and its steps: a row for each step, or one without.
fn select_messages() -> Union {
    // A message of the user has neither, so it costs no look for them. The role is a literal, because each text
    // among the values is the id of the thread.
    let is_answer = || ExprTrait::ne(message::Column::Role.into_expr(), literal(Role::User));
    let answer = || Expr::case(is_answer(), message::Column::MessageId.into_expr());
    let of_run = ExprTrait::eq(run::Column::AssistantMessageId.into_expr(), answer());
    let of_step = ExprTrait::eq(step::Column::MessageId.into_expr(), answer());
    Union::default()
        .of::<message::Entity>(MESSAGES, message::Column::ThreadId.eq(ID))
        .with::<run::Entity>(of_run)
        .with::<step::Entity>(of_step)
}

fn select_calls() -> Union {
    let of_thread = || tool_call::Column::ThreadId.eq(ID);
    let sent = sent_answer::Column::ToolCallId.in_subquery(ids_of_calls(of_thread()));
    select_calls_where(of_thread).of::<sent_answer::Entity>(SENT, sent)
}

/// One step, and its calls.
fn select_step() -> Union {
    let step = step::Column::MessageId.eq(ID).and(step::Column::N.eq(N));
    let of_step = || tool_call::Column::MessageId.eq(ID).and(tool_call::Column::Step.eq(N));
    Union::default().of::<step::Entity>(STEPS, step).and(select_calls_where(of_step))
}

/// The calls that match the condition, with their final decisions.
fn select_calls_where(condition: impl Fn() -> SimpleExpr) -> Union {
    let is_final = decision::Column::ToolCallId
        .in_subquery(ids_of_calls(condition()))
        .and(decision::Column::IsFinal.eq(true));
    Union::default().of::<tool_call::Entity>(CALLS, condition()).of::<decision::Entity>(DECISIONS, is_final)
}

fn ids_of_calls(condition: SimpleExpr) -> SelectStatement {
    Query::select()
        .column(tool_call::Column::ToolCallId)
        .from(tool_call::Entity.table_ref())
        .and_where(condition)
        .to_owned()
}

/// Returns the statement with these values in place of its placeholders: each text in it is an id, and each number of 32
/// bits is that of a step.
fn bound(union: &UnionStatement, id: &str, n: i32) -> UnionStatement {
    let mut union = union.clone();
    for value in union.statement.values.iter_mut().flat_map(|values| &mut values.0) {
        match value {
            Value::String(placeholder) => *placeholder = Some(id.to_owned()),
            Value::Int(placeholder) => *placeholder = Some(n),
            _ => {}
        }
    }
    union
}

/// The data from which a history is built.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// All messages, oldest first, superseded ones included.
    pub messages: Vec<Message>,
    /// The user message that each assistant's message answers.
    pub questions: HashMap<MessageId, MessageId>,
    /// The runs, in the order of their answers.
    pub runs: Vec<StoredRun>,
    /// The texts that the model read about each call, in order.
    pub sent: HashMap<ToolCallId, Vec<SentText>>,
    /// The number of calls, unreadable ones included.
    calls: usize,
    /// The number of pending calls, unreadable ones included.
    pending: usize,
    /// The number of calls that have not ended and cannot be read.
    unreadable: usize,
}

#[derive(Debug, Clone)]
pub struct StoredRun {
    answer: MessageId,
    /// Whether the answer is superseded.
    is_superseded: bool,
    /// When the lease of the turn ends, if the run is running.
    pub lease_until: Option<Timestamp>,
    /// `None` if the row cannot be read.
    run: Option<Run>,
}

/// A text about a call that the model read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentText {
    pub kind: SealKind,
    pub text: String,
    /// The assistant's message whose step first contained the text.
    pub message_id: MessageId,
}

/// A text about a call that the model reads now for the first time. A sealed text never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedText {
    pub tool_call_id: ToolCallId,
    pub n: i32,
    pub kind: SealKind,
    pub text: String,
}

impl Read {
    /// Returns the whole transcript of a thread with this number of messages.
    async fn whole_transcript(&self, thread: &Thread, messages: u64) -> Result<Transcript, StoreError> {
        let statements = Statements::on(self.tx.get_database_backend());
        let id = thread.id.to_string();
        let mut found = UnionRows::default();
        for union in statements.for_messages(messages) {
            found.add(&self.tx, bound(union, &id, N)).await?;
        }
        Transcript::of(&found)
    }

    /// Returns a page of the messages that a user sees: the newest page first, each page oldest first.
    pub async fn messages(
        &self,
        thread: &Thread,
        before: Option<i64>,
        size: u64,
        outputs: Outputs,
    ) -> Result<Page<Message>, StoreError> {
        let mut shown = Condition::all()
            .add(message::Column::ThreadId.eq(thread.id.to_string()))
            .add(message::Column::SupersededAt.is_null());
        if let Some(before) = before {
            shown = shown.add(message::Column::Ordinal.lt(before));
        }
        let found = StoredMessage::find()
            .filter(shown.clone())
            .order_by_desc(message::Column::Ordinal)
            .limit(size.saturating_add(1))
            .into_model()
            .all(&self.tx)
            .await?;
        let mut page: Page<StoredMessage> = Page::of(found, size);
        page.items.reverse();
        let first = page.items.first().map(|oldest| message::Column::Ordinal.gte(oldest.message.ordinal));
        let items = self.messages_of(page.items, shown.add_option(first), outputs).await?;
        Ok(Page { items, has_more: page.has_more })
    }

    /// Returns a message of a thread, superseded or not.
    pub async fn message(&self, thread: &Thread, id: MessageId) -> Result<Option<Message>, StoreError> {
        let which = Condition::all()
            .add(message::Column::ThreadId.eq(thread.id.to_string()))
            .add(message::Column::MessageId.eq(id.to_string()));
        let found = StoredMessage::find().filter(which.clone()).into_model().all(&self.tx).await?;
        Ok(self.messages_of(found, which, Outputs::Whole).await?.pop())
    }

    /// Adds the steps and calls to these messages, which are those that match the condition. The statements
    /// use the condition instead of a list of ids, because databases limit the length of a list.
    async fn messages_of(
        &self,
        found: Vec<StoredMessage>,
        which: Condition,
        outputs: Outputs,
    ) -> Result<Vec<Message>, StoreError> {
        let mut steps: HashMap<String, Vec<step::Model>> = HashMap::new();
        let mut calls = CallsOfSteps::new();
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
            let found = match outputs {
                Outputs::Whole => self.calls_where(of_messages).await?,
                Outputs::Cut { characters } => self.calls_where_cut(of_messages, characters).await?,
            };
            for call in found {
                calls.entry((call.message_id, call.step)).or_default().push(call);
            }
        }
        let read = found.iter().filter_map(|row| {
            let own = steps.get(&row.message.message_id).into_iter().flatten();
            whole((&row.message).into(), row.answer(), own.map(StepRow::from), &mut calls)
        });
        Ok(read.collect())
    }
}

impl Write {
    /// Returns the whole transcript of a thread, which stays true until the transaction ends.
    pub async fn transcript(&self, thread: &LockedThread) -> Result<Transcript, StoreError> {
        self.whole_transcript(thread, thread.extent.messages).await
    }

    /// Returns a step of the answer of a turn, with its calls as they are now. Returns `None` if the step cannot be
    /// read.
    pub async fn step_of(&self, turn: &HeldTurn<'_>, n: i32) -> Result<Option<Step>, StoreError> {
        let id = turn.lease().run.assistant_message_id.to_string();
        let union = &Statements::on(self.tx.get_database_backend()).step;
        let mut found = UnionRows::default();
        found.add(&self.tx, bound(union, &id, n)).await?;
        let (calls, decisions) = calls_and_decisions(&found)?;
        let calls = readable(decided_calls(calls, decisions));
        let row = found
            .all::<step::Entity>(STEPS)?
            .pop()
            .ok_or_else(|| rows::inconsistent(STEPS, "a step is missing"))?;
        Ok(rows::listed(STEPS, &id, rows::step(row, calls)))
    }
}

/// Returns the calls that a union found, in their order, and their final decisions.
fn calls_and_decisions(
    found: &UnionRows,
) -> Result<(Vec<tool_call::Model>, HashMap<String, Decision>), StoreError> {
    let mut decisions = HashMap::new();
    for row in found.all::<decision::Entity>(DECISIONS)? {
        decisions.insert(row.tool_call_id.clone(), rows::decision(row)?);
    }
    let mut calls = found.all::<tool_call::Entity>(CALLS)?;
    calls.sort_by_key(|row| row.ordinal);
    Ok((calls, decisions))
}

fn sent_texts(found: Vec<sent_answer::Model>) -> Result<HashMap<ToolCallId, Vec<SentText>>, StoreError> {
    const TABLE: &str = "sent_answers";
    let mut sent: HashMap<ToolCallId, Vec<SentText>> = HashMap::new();
    for row in found {
        let kind = rows::word(TABLE, &row.kind)?;
        let one = SentText { kind, text: row.text, message_id: rows::id(TABLE, &row.message_id)? };
        sent.entry(rows::id(TABLE, &row.tool_call_id)?).or_default().push(one);
    }
    Ok(sent)
}

/// The readable calls of each step, in order.
type CallsOfSteps = HashMap<(MessageId, i32), Vec<ToolCall>>;

/// A row of the messages: a message with its run, if it is an answer, and one of its steps, if it has any.
struct MessageParts<'r> {
    message: MessageRow<'r>,
    run: Option<RunRow<'r>>,
    step: Option<StepRow<'r>>,
}

/// A message, and the facts of its run if it is an answer.
struct StoredMessage {
    message: message::Model,
    run_status: Option<String>,
    cut_short: Option<bool>,
}

impl StoredMessage {
    fn find() -> Select<message::Entity> {
        message::Entity::find()
            .join(JoinType::LeftJoin, message::Relation::AnsweredRun.def())
            .column_as(run::Column::Status, "run_status")
            .column(run::Column::CutShort)
    }

    fn answer(&self) -> Option<AnswerState<'_>> {
        Some(AnswerState { run_status: self.run_status.as_deref()?, is_cut_short: self.cut_short? })
    }
}

impl FromQueryResult for StoredMessage {
    fn from_query_result(row: &QueryResult, prefix: &str) -> Result<Self, DbErr> {
        Ok(Self {
            message: message::Model::from_query_result(row, prefix)?,
            run_status: row.try_get(prefix, "run_status")?,
            cut_short: row.try_get(prefix, "cut_short")?,
        })
    }
}

/// Builds a message of its rows and its calls. Leaves out rows that cannot be read.
fn whole<'r>(
    row: MessageRow<'r>,
    answer: Option<AnswerState<'r>>,
    steps: impl Iterator<Item = StepRow<'r>>,
    calls: &mut CallsOfSteps,
) -> Option<Message> {
    let text = row.message_id;
    let id = text.parse::<MessageId>().ok();
    let own = steps.filter_map(|row| {
        let calls = id.and_then(|id| calls.remove(&(id, row.n))).unwrap_or_default();
        rows::listed("message_steps", text, rows::step(row, calls))
    });
    let own = own.collect();
    rows::listed("messages", text, rows::message(row, answer, own))
}

impl StoredRun {
    fn run(&self) -> Result<&Run, StoreError> {
        self.run.as_ref().ok_or_else(|| rows::inconsistent("runs", "a run cannot be read"))
    }
}

impl Transcript {
    fn of(found: &UnionRows) -> Result<Self, StoreError> {
        let (rows_of_calls, decisions) = calls_and_decisions(found)?;
        let all = rows_of_calls.len();
        let pending = rows_of_calls.iter().filter(|row| row.state == StateKind::Pending.word()).count();
        let open = rows_of_calls.iter().filter(|row| row.finished_at.is_none()).count();
        let mut calls = CallsOfSteps::new();
        let mut read = 0;
        for call in readable(decided_calls(rows_of_calls, decisions)) {
            read += usize::from(call.end().is_none());
            calls.entry((call.message_id, call.step)).or_default().push(call);
        }
        let mut sent = found.all::<sent_answer::Entity>(SENT)?;
        sent.sort_by_key(|row| row.n);
        let unreadable = open.saturating_sub(read);
        let sent = sent_texts(sent)?;
        let mut transcript = Self { sent, calls: all, pending, unreadable, ..Self::default() };
        transcript.add_messages(found, calls)?;
        Ok(transcript)
    }

    fn add_messages(&mut self, found: &UnionRows, mut calls: CallsOfSteps) -> Result<(), StoreError> {
        let (of_message, of_run) = (ColumnCounts::of::<message::Entity>(), ColumnCounts::of::<run::Entity>());
        let mut parts = Vec::with_capacity(found.of(MESSAGES).len());
        for cells in found.of(MESSAGES) {
            let cells = cells?;
            let message = cells.read::<message::Entity>()?;
            let cells = cells.after(of_message);
            let run = cells.read_joined::<run::Entity>()?;
            let step = cells.after(of_run).read_joined::<step::Entity>()?;
            parts.push(MessageParts { message, run, step });
        }
        let n = |step: &Option<StepRow<'_>>| step.as_ref().map(|step| step.n);
        parts.sort_by_key(|row| (row.message.ordinal, n(&row.step)));
        self.messages.reserve(parts.len());
        self.questions.reserve(parts.len() / 2);
        let mut parts = parts.into_iter().peekable();
        while let Some(MessageParts { message, run, step }) = parts.next() {
            let ordinal = message.ordinal;
            let answer = run.as_ref().map(AnswerState::from);
            if let Some(run) = run {
                self.add_run(run, message.superseded_at.is_some());
            }
            let more = std::iter::from_fn(|| parts.next_if(|row| row.message.ordinal == ordinal)?.step);
            self.messages.extend(whole(message, answer, step.into_iter().chain(more), &mut calls));
        }
        Ok(())
    }

    fn add_run(&mut self, row: RunRow<'_>, is_superseded: bool) {
        let (question, id) = (rows::id("runs", row.user_message_id), row.run_id);
        let answer = rows::id::<MessageId>("runs", row.assistant_message_id);
        let ids = answer.and_then(|answer| Ok((answer, question?)));
        let Some((answer, question)) = rows::listed("runs", id, ids) else { return };
        self.questions.insert(answer, question);
        let lease_until = row.lease_until.map(Timestamp::from_micros);
        let run = rows::listed("runs", id, rows::run(row));
        self.runs.push(StoredRun { answer, is_superseded, lease_until, run });
    }

    /// Adds a run that this transaction began, with its messages.
    pub(crate) fn begin(&mut self, question: MessageId, run: &Run, messages: Vec<Message>) {
        self.messages.extend(messages);
        let answer = run.assistant_message_id;
        self.questions.insert(answer, question);
        let run = Some(run.clone());
        self.runs.push(StoredRun { answer, is_superseded: false, lease_until: None, run });
    }

    /// Returns the run of the last answer that is not superseded.
    pub fn latest_run(&self) -> Result<Option<&Run>, StoreError> {
        self.runs.iter().rfind(|stored| !stored.is_superseded).map(StoredRun::run).transpose()
    }

    /// Returns the run that writes this message.
    pub fn run_of(&self, answer: MessageId) -> Result<Option<&Run>, StoreError> {
        self.runs.iter().find(|stored| stored.answer == answer).map(StoredRun::run).transpose()
    }

    /// Returns the running run, and when the lease of its turn ends.
    pub fn running(&self) -> Option<(&Run, Option<Timestamp>)> {
        let running = |stored: &'_ StoredRun| stored.run.as_ref().map(|run| run.status);
        let found = self.runs.iter().find(|stored| running(stored) == Some(RunStatus::Running))?;
        Some((found.run.as_ref()?, found.lease_until))
    }

    pub fn waiting(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter_map(|stored| stored.run.as_ref())
            .filter(|run| run.status == RunStatus::Waiting)
    }

    pub fn steps(&self, message: MessageId) -> &[Step] {
        self.messages.iter().find(|stored| stored.id == message).map_or(&[], |message| message.steps())
    }

    /// Returns the calls of the last complete step of a message that are held, or that child runs or workers
    /// execute or executed. Fails if an open call of the thread cannot be read, because the run may wait for that call.
    pub fn pausing_calls(&self, message: MessageId) -> Result<Vec<ToolCall>, StoreError> {
        if self.unreadable > 0 {
            return Err(rows::inconsistent("tool_calls", "an open call cannot be read"));
        }
        let last = self.steps(message).iter().rfind(|step| step.status == StepStatus::Complete);
        let calls = last.map_or(&[][..], |step| step.calls.as_slice());
        Ok(calls.iter().filter(|call| call.pauses()).cloned().collect())
    }

    /// Returns the number of pending calls.
    pub const fn pending_count(&self) -> usize {
        self.pending
    }

    /// Whether the thread has any call.
    pub const fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Returns the messages that are not superseded, oldest first.
    pub fn current(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.messages.iter().filter(|message| message.status != MessageStatus::Superseded)
    }

    /// Returns the texts that the model read about a call.
    pub fn texts_of(&self, call: ToolCallId) -> &[SentText] {
        self.sent.get(&call).map_or(&[], Vec::as_slice)
    }
}
