//! Runs: start with two messages, resume, complete, cancel.

use crate::call::calls::of_run;
use crate::entity::{message, run, tool_call};
use crate::event::new_event::Subject;
use crate::run::run_transitions::{Cancelled, Completed, Failed, RunMove, Running, Waiting};
use crate::thread::extents::{bytes_set, sum};
use crate::thread::threads::threads_of;
use crate::{CallsToCancel, Lease, LockedThread, Read, StoreError, Thread, Transcript, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::StateKind;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::{MessageId, RunId, ToolCallId};
use holdpoint_core::message::{Body, Message, MessageStatus, Role, UserWords};
use holdpoint_core::run::{Run, RunOptions, RunStatus};
use sea_orm::sea_query::{Expr, Query};
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;
use std::time::Duration;

/// A run to start.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// The user message of the run.
    pub question: Question,
    /// The options for the model.
    pub options: RunOptions,
    /// How long the turn may be silent before it loses its lease.
    pub lease: Duration,
}

/// The user message of a run.
#[derive(Debug, Clone)]
pub enum Question {
    New {
        /// The messages of the user before it, which are stored with it, oldest first.
        earlier: Vec<UserWords>,
        message: UserWords,
    },
    /// A stored message, whose answer is written again.
    Stored(MessageId),
}

/// A run that this transaction stored, with its messages.
pub(crate) struct InsertedRun {
    pub(crate) run: Run,
    /// The user message of the run.
    question: MessageId,
    /// The messages that this transaction stored with the run.
    messages: Vec<Message>,
}

/// The end of a run without a turn in progress.
#[derive(Debug, Clone, Copy)]
enum RunClosing {
    /// The user sent a later message, and the run has no open call.
    Passed,
    /// A cancel, or an edit or a regenerate that superseded the answer.
    Cancelled,
}

impl Read {
    /// Returns the run of the last answer in the thread. The ordinals decide, not the ids, because a clock
    /// can be set back.
    pub async fn latest_run(&self, thread: &Thread) -> Result<Option<Run>, StoreError> {
        let last = message::Entity::find()
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::Role.eq(Role::Assistant.word()))
            .filter(message::Column::SupersededAt.is_null())
            .order_by_desc(message::Column::Ordinal)
            .one(&self.tx)
            .await?;
        let Some(last) = last else { return Ok(None) };
        self.run_answering(thread, &last.message_id).await
    }

    async fn run_answering(&self, thread: &Thread, answer: &str) -> Result<Option<Run>, StoreError> {
        let found = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::AssistantMessageId.eq(answer))
            .one(&self.tx)
            .await?;
        found.as_ref().map(rows::run).transpose()
    }

    pub async fn running(&self, thread: &Thread) -> Result<Option<Run>, StoreError> {
        let found = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.eq(RunStatus::Running.word()))
            .one(&self.tx)
            .await?;
        found.as_ref().map(rows::run).transpose()
    }

    /// Returns a run of one of the principal's threads.
    pub async fn run(&self, owner: &Principal, id: RunId) -> Result<Option<(Run, Thread)>, StoreError> {
        let found = run::Entity::find_by_id(id.to_string())
            .filter(run::Column::ThreadId.in_subquery(threads_of(owner)))
            .one(&self.tx)
            .await?;
        let Some(run) = found.as_ref().map(rows::run).transpose()? else { return Ok(None) };
        let thread = self.thread(owner, run.thread_id).await?;
        Ok(thread.map(|thread| (run, thread)))
    }

    /// Returns the pending calls of a run of this thread, in the order in which the model made them.
    pub async fn pending_of(&self, thread: &Thread, run: RunId) -> Result<Vec<ToolCallId>, StoreError> {
        let ids: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(of_run(run))
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Pending.word()))
            .order_by_asc(tool_call::Column::Step)
            .order_by_asc(tool_call::Column::Ordinal)
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }
}

impl Write {
    /// Starts a run in a thread with this transcript: inserts a new user message, if any, the
    /// assistant's message and the run, and adds them to the transcript.
    pub async fn begin_run(
        &self,
        thread: &LockedThread,
        transcript: &mut Transcript,
        new: NewRun,
    ) -> Result<Lease, StoreError> {
        let holder = self.clock.uuid().to_string();
        let held = (holder.clone(), self.now.plus(new.lease));
        let InsertedRun { run, question, messages } =
            self.insert_run(thread, new.question, new.options, Some(held)).await?;
        for waiting in transcript.waiting() {
            self.complete_if_passed(thread, waiting.id).await?;
        }
        transcript.begin(question, &run, messages);
        Ok(Lease::new(thread, run, holder, new.lease))
    }

    /// Stores a run with its messages. The run is running with a lease of this holder, or waiting if `held`
    /// is `None`.
    pub(crate) async fn insert_run(
        &self,
        thread: &LockedThread,
        question: Question,
        options: RunOptions,
        held: Option<(String, Timestamp)>,
    ) -> Result<InsertedRun, StoreError> {
        let (status, shown) = match held {
            Some(_) => (RunStatus::Running, MessageStatus::Streaming),
            None => (RunStatus::Waiting, MessageStatus::Complete),
        };
        let (owner, lease_until) = held.map(|(holder, until)| (holder, until.as_micros())).unzip();
        let run_id = RunId::new(self.clock.uuid());
        // The ordinals of a thread have no gaps, and messages are never deleted.
        let mut ordinal = i64::try_from(thread.extent.messages).unwrap_or(i64::MAX);
        let message = |ordinal: i64, body: Body, status: MessageStatus, client_id: Option<String>| Message {
            id: MessageId::new(self.clock.uuid()),
            client_id,
            thread_id: thread.id,
            run_id,
            ordinal,
            body,
            status,
            created_at: self.now,
        };
        let mut messages = Vec::with_capacity(2);
        let question = match question {
            Question::Stored(id) => id,
            Question::New { earlier, message: asked } => {
                let mut store = |UserWords { text, client_id }: UserWords| {
                    let stored = message(ordinal, Body::User(text), MessageStatus::Complete, client_id);
                    let id = stored.id;
                    messages.push(stored);
                    ordinal = ordinal.saturating_add(1);
                    id
                };
                for words in earlier {
                    store(words);
                }
                store(asked)
            }
        };
        let answer = message(ordinal, Body::Assistant(Vec::new()), shown, None);
        let assistant_message_id = answer.id;
        messages.push(answer);
        let rows: Vec<_> = messages.iter().map(message_row).collect();
        self.add_messages(thread.id, rows.len(), sum(rows.iter().map(bytes_set)));
        self.insert_later(rows).await?;
        let run = Run {
            id: run_id,
            thread_id: thread.id,
            assistant_message_id,
            status,
            resumed_alone: false,
            error: None,
            options,
            created_at: self.now,
            finished_at: None,
        };
        let row = run::ActiveModel {
            run_id: Set(run_id.to_string()),
            thread_id: Set(thread.id.to_string()),
            user_message_id: Set(question.to_string()),
            assistant_message_id: Set(assistant_message_id.to_string()),
            status: Set(status.word().to_owned()),
            model: Set(run.options.model.clone()),
            tools: Set(tools_column(&run.options)),
            instructions: Set(run.options.instructions.clone()),
            roles: Set(json!(run.options.roles).to_string()),
            owner: Set(owner),
            lease_until: Set(lease_until),
            cut_short: Set(false),
            server_resumes: Set(false),
            resumed_alone: Set(false),
            created_at: Set(self.now.as_micros()),
            ..Default::default()
        };
        self.insert_later([row]).await?;
        self.run_event(EventType::RunStarted, thread, run_id);
        if status == RunStatus::Waiting {
            self.run_event(EventType::RunWaiting, thread, run_id);
        }
        Ok(InsertedRun { run, question, messages })
    }

    /// Resumes a waiting or failed run, with the options in `run`. The run must be the last one of the thread, and
    /// read after the lock of the thread. Returns `None` if another caller resumed the run.
    pub async fn resume_run(
        &self,
        thread: &LockedThread,
        run: &Run,
        time: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        if !matches!(run.status, RunStatus::Waiting | RunStatus::Failed) {
            return Ok(None);
        }
        let holder = self.clock.uuid().to_string();
        let resumed =
            RunMove::of(run.id, Running { holder: holder.clone(), lease_until: self.now.plus(time) })
                .from::<Waiting>()
                .from::<Failed>()
                .only(run::Column::ThreadId.eq(thread.id.to_string()))
                .set(run::Column::Tools, Expr::value(tools_column(&run.options)))
                .set(run::Column::Roles, Expr::value(json!(run.options.roles).to_string()))
                // The mark was about the holds that this continuation follows.
                .set(run::Column::ServerResumes, Expr::value(false));
        self.update_later(resumed.statement(), "a run to resume is not waiting").await?;
        self.run_event(EventType::RunResumed, thread, run.id);
        let run = Run { status: RunStatus::Running, error: None, finished_at: None, ..run.clone() };
        Ok(Some(Lease::new(thread, run, holder, time)))
    }

    /// Cancels a waiting or failed run with its calls, or asks the turn of a running run to stop. Returns the
    /// executing calls, which the caller asks to stop after the commit. Returns `None` if the run has ended.
    /// The run was read after the lock of the thread.
    pub async fn cancel_run(
        &self,
        thread: &LockedThread,
        run: &Run,
        actor: &str,
    ) -> Result<Option<Vec<ToolCallId>>, StoreError> {
        match run.status {
            RunStatus::Waiting | RunStatus::Failed => {
                // The run comes first. If the user sent a later message, closing the last call would complete
                // the run.
                let closed = self.close_paused(thread, run.id, RunClosing::Cancelled).await?;
                let asked = self.cancel_calls(thread, CallsToCancel::OpenOf(run.id), actor).await?;
                Ok(closed.then_some(asked))
            }
            RunStatus::Running => {
                let asked = run::Entity::update_many()
                    .col_expr(run::Column::CancelRequestedAt, Expr::value(self.now.as_micros()))
                    .filter(run::Column::RunId.eq(run.id.to_string()))
                    .filter(run::Column::ThreadId.eq(thread.id.to_string()))
                    .filter(run::Column::Status.eq(RunStatus::Running.word()))
                    .exec(&self.tx)
                    .await?;
                if asked.rows_affected == 0 {
                    return Ok(None);
                }
                // The other calls are cancelled when the turn ends.
                Ok(Some(self.cancel_calls(thread, CallsToCancel::ExecutingOf(run.id), actor).await?))
            }
            RunStatus::Completed | RunStatus::Cancelled => Ok(None),
        }
    }

    /// Supersedes the messages from this ordinal on. The rows stay, but are neither shown nor sent to the
    /// model, and their holds are cancelled.
    pub async fn supersede_from(
        &self,
        thread: &LockedThread,
        ordinal: i64,
        actor: &str,
    ) -> Result<(), StoreError> {
        self.cancel_calls(thread, CallsToCancel::UnclaimedFrom(ordinal), actor).await?;
        message::Entity::update_many()
            .col_expr(message::Column::SupersededAt, Expr::value(self.now.as_micros()))
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::Ordinal.gte(ordinal))
            .filter(message::Column::SupersededAt.is_null())
            .exec(&self.tx)
            .await?;
        let cut = Query::select()
            .column(message::Column::MessageId)
            .from(message::Entity.table_ref())
            .and_where(message::Column::ThreadId.eq(thread.id.to_string()))
            .and_where(message::Column::SupersededAt.is_not_null())
            .to_owned();
        let waiting = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.eq(RunStatus::Waiting.word()))
            .filter(run::Column::AssistantMessageId.in_subquery(cut))
            .all(&self.tx)
            .await?;
        for row in waiting {
            let run_id = rows::id("runs", &row.run_id)?;
            self.close_paused(thread, run_id, RunClosing::Cancelled).await?;
        }
        Ok(())
    }

    /// Completes a run after a change to its calls, if the user sent a later message and no call of the run
    /// is open. Without the lock, two transactions that close the last two calls would
    /// each see the other call as open.
    pub(crate) async fn complete_if_passed(
        &self,
        thread: &LockedThread,
        run_id: RunId,
    ) -> Result<(), StoreError> {
        let answer = Query::select()
            .column(run::Column::AssistantMessageId)
            .from(run::Entity.table_ref())
            .and_where(run::Column::RunId.eq(run_id.to_string()))
            .to_owned();
        let answer = message::Entity::find().filter(message::Column::MessageId.in_subquery(answer));
        let Some(answer) = answer.one(&self.tx).await? else { return Ok(()) };
        let after = message::Entity::find()
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::Ordinal.gt(answer.ordinal))
            .limit(1)
            .one(&self.tx)
            .await?;
        if after.is_some() && !self.has_open_calls(run_id).await? {
            self.close_paused(thread, run_id, RunClosing::Passed).await?;
        }
        Ok(())
    }

    async fn close_paused(
        &self,
        thread: &LockedThread,
        run_id: RunId,
        close: RunClosing,
    ) -> Result<bool, StoreError> {
        let (closing, event) = match close {
            RunClosing::Passed => {
                let passed = RunMove::of(run_id, Completed(self.now)).from::<Waiting>();
                (passed.statement(), EventType::RunCompleted)
            }
            RunClosing::Cancelled => {
                let cancelled = RunMove::of(run_id, Cancelled(self.now)).from::<Waiting>().from::<Failed>();
                (cancelled.statement(), EventType::RunCancelled)
            }
        };
        let closing = closing.filter(run::Column::ThreadId.eq(thread.id.to_string()));
        let moved = closing.exec(&self.tx).await?;
        let closed = moved.rows_affected == 1;
        if closed {
            self.run_event(event, thread, run_id);
        }
        Ok(closed)
    }

    fn run_event(&self, event: EventType, thread: &Thread, run_id: RunId) {
        self.event(event, &thread.actor(), &Subject::run(thread, run_id), EventData::none());
    }
}

fn tools_column(options: &RunOptions) -> Option<String> {
    options.tools.as_ref().map(|tools| json!(tools).to_string())
}

fn message_row(message: &Message) -> message::ActiveModel {
    let content = match &message.body {
        Body::User(text) => Some(text.clone()),
        Body::Assistant(_) => None,
    };
    message::ActiveModel {
        message_id: Set(message.id.to_string()),
        thread_id: Set(message.thread_id.to_string()),
        run_id: Set(message.run_id.to_string()),
        ordinal: Set(message.ordinal),
        role: Set(message.body.role().word().to_owned()),
        client_id: Set(message.client_id.clone()),
        content: Set(content),
        created_at: Set(message.created_at.as_micros()),
        superseded_at: Set(None),
        erased_at: Set(None),
    }
}
