//! Runs: begun with their two messages, taken up, left behind, cancelled.

use super::entity::{message, run, tool_call};
use super::events::Subject;
use super::threads::threads_of;
use super::{Lease, Read, StoreError, Thread, Which, Write, rows};
use crate::domain::Principal;
use crate::domain::clock::Timestamp;
use crate::domain::event::EventType;
use crate::domain::id::{MessageId, RunId, ThreadId, ToolCallId};
use crate::domain::run::{Run, RunOptions, RunStatus};
use sea_orm::sea_query::{Expr, Query};
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;
use std::time::Duration;

/// A run to begin.
#[derive(Debug, Clone)]
pub(crate) struct NewRun {
    /// What is asked.
    pub(crate) question: Question,
    /// What to ask the model with.
    pub(crate) options: RunOptions,
    /// How long the turn may be silent before it is taken for dead.
    pub(crate) lease: Duration,
}

/// The user message of a run.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// A new one.
    New {
        /// Its words.
        text: String,
        /// The page's name for it.
        client_id: Option<String>,
    },
    /// One that is stored already: its answer is written anew.
    Stored(MessageId),
}

/// A message of a run: the user's has a text.
struct NewMessage {
    id: MessageId,
    ordinal: i64,
    status: &'static str,
    text: Option<String>,
    client_id: Option<String>,
}

/// How a run ends in which no turn is under way.
#[derive(Debug, Clone, Copy)]
enum Close {
    /// The user went on without it, and it waits for nothing any more.
    Passed,
    /// Somebody stopped it, or cut it off.
    Cancelled,
}

impl Read {
    /// The run whose answer stands last in the thread. Places tell, not ids: a clock can be set back.
    pub(crate) async fn latest_run(&self, thread: &Thread) -> Result<Option<Run>, StoreError> {
        let last = message::Entity::find()
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::Role.eq("assistant"))
            .filter(message::Column::Status.ne("superseded"))
            .order_by_desc(message::Column::Ordinal)
            .one(&self.tx)
            .await?;
        let Some(last) = last else { return Ok(None) };
        self.run_answering(thread, &last.message_id).await
    }

    /// The run that writes this message of the thread.
    pub(crate) async fn run_of(&self, thread: &Thread, answer: MessageId) -> Result<Option<Run>, StoreError> {
        self.run_answering(thread, &answer.to_string()).await
    }

    /// The roles of the user for whom a run is, as they were when it last went on.
    pub(crate) async fn roles_of(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        let found = run::Entity::find_by_id(run.to_string()).one(&self.tx).await?;
        Ok(found.map(rows::run).transpose()?.map(|run| run.options.roles).unwrap_or_default())
    }

    async fn run_answering(&self, thread: &Thread, answer: &str) -> Result<Option<Run>, StoreError> {
        let found = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::AssistantMessageId.eq(answer))
            .one(&self.tx)
            .await?;
        found.map(rows::run).transpose()
    }

    /// The run that is under way in the thread.
    pub(crate) async fn running(&self, thread: &Thread) -> Result<Option<Run>, StoreError> {
        let found = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.eq("running"))
            .one(&self.tx)
            .await?;
        found.map(rows::run).transpose()
    }

    /// A run of one of the principal's threads.
    pub(crate) async fn run(
        &self,
        owner: &Principal,
        id: RunId,
    ) -> Result<Option<(Run, Thread)>, StoreError> {
        let found = run::Entity::find_by_id(id.to_string())
            .filter(run::Column::ThreadId.in_subquery(threads_of(owner)))
            .one(&self.tx)
            .await?;
        let Some(run) = found.map(rows::run).transpose()? else { return Ok(None) };
        let thread = self.thread(owner, run.thread_id).await?;
        Ok(thread.map(|thread| (run, thread)))
    }

    /// The calls of a run of this thread that wait for a person, in the order they were asked for.
    pub(crate) async fn pending_of(
        &self,
        thread: &Thread,
        run: RunId,
    ) -> Result<Vec<ToolCallId>, StoreError> {
        let ids: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(tool_call::Column::RunId.eq(run.to_string()))
            .filter(tool_call::Column::ThreadId.eq(thread.id.to_string()))
            .filter(tool_call::Column::State.eq("pending"))
            .order_by_asc(tool_call::Column::Step)
            .order_by_asc(tool_call::Column::Ordinal)
            .into_tuple()
            .all(&self.tx)
            .await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }

    async fn last_ordinal(&self, thread: &Thread) -> Result<i64, StoreError> {
        let last = message::Entity::find()
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .order_by_desc(message::Column::Ordinal)
            .one(&self.tx)
            .await?;
        Ok(last.map_or(-1, |row| row.ordinal))
    }
}

impl Write {
    /// Begins a run: its user message if that is new, the assistant's message and the run, as one.
    pub(crate) async fn begin_run(&self, thread: &Thread, new: NewRun) -> Result<Lease, StoreError> {
        let holder = self.clock.uuid().to_string();
        let held = (holder.clone(), self.now.plus(new.lease));
        let run = self.insert_run(thread, new.question, new.options, Some(held)).await?;
        self.complete_passed_runs(thread).await?;
        Ok(Lease { thread: thread.clone(), run, holder, time: new.lease })
    }

    /// Stores a run with its messages: one that is under way, by this holder until then, or else one that waits to be
    /// begun.
    pub(super) async fn insert_run(
        &self,
        thread: &Thread,
        question: Question,
        options: RunOptions,
        held: Option<(String, Timestamp)>,
    ) -> Result<Run, StoreError> {
        let (status, shown) = match held {
            Some(_) => (RunStatus::Running, "streaming"),
            None => (RunStatus::Waiting, "complete"),
        };
        let (owner, lease_until) = held.map(|(holder, until)| (holder, until.as_micros())).unzip();
        let run_id = RunId::new(self.clock.uuid());
        let mut ordinal = self.last_ordinal(thread).await?;
        let user_message_id = match question {
            Question::Stored(id) => id,
            Question::New { text, client_id } => {
                ordinal += 1;
                let id = MessageId::new(self.clock.uuid());
                let words = NewMessage { id, ordinal, status: "complete", text: Some(text), client_id };
                self.insert_message(thread, run_id, words).await?;
                id
            }
        };
        let assistant_message_id = MessageId::new(self.clock.uuid());
        let (id, ordinal) = (assistant_message_id, ordinal + 1);
        let answer = NewMessage { id, ordinal, status: shown, text: None, client_id: None };
        self.insert_message(thread, run_id, answer).await?;
        let begun = Run {
            id: run_id,
            thread_id: thread.id,
            assistant_message_id,
            status,
            error: None,
            options,
            created_at: self.now,
            finished_at: None,
        };
        let row = run::ActiveModel {
            run_id: Set(run_id.to_string()),
            thread_id: Set(thread.id.to_string()),
            user_message_id: Set(user_message_id.to_string()),
            assistant_message_id: Set(assistant_message_id.to_string()),
            status: Set(status.as_str().to_owned()),
            model: Set(begun.options.model.clone()),
            tools: Set(tools_column(&begun.options)),
            instructions: Set(begun.options.instructions.clone()),
            roles: Set(json!(begun.options.roles).to_string()),
            owner: Set(owner),
            lease_until: Set(lease_until),
            server_resumes: Set(false),
            created_at: Set(self.now.as_micros()),
            ..Default::default()
        };
        run::Entity::insert(row).exec_without_returning(&self.tx).await?;
        self.touch_thread(thread).await?;
        self.run_event(EventType::RunStarted, thread, run_id).await?;
        if status == RunStatus::Waiting {
            self.run_event(EventType::RunWaiting, thread, run_id).await?;
        }
        Ok(begun)
    }

    async fn insert_message(
        &self,
        thread: &Thread,
        run_id: RunId,
        new: NewMessage,
    ) -> Result<(), StoreError> {
        let NewMessage { id, ordinal, status, text, client_id } = new;
        let role = if text.is_some() { "user" } else { "assistant" };
        let row = message::ActiveModel {
            message_id: Set(id.to_string()),
            thread_id: Set(thread.id.to_string()),
            run_id: Set(run_id.to_string()),
            ordinal: Set(ordinal),
            role: Set(role.to_owned()),
            status: Set(status.to_owned()),
            client_id: Set(client_id),
            content: Set(text),
            created_at: Set(self.now.as_micros()),
            erased_at: Set(None),
        };
        message::Entity::insert(row).exec_without_returning(&self.tx).await?;
        Ok(())
    }

    /// Takes up a run that waits or broke, with the options that it has here. `None` if somebody else did, or the user went on without it: what was
    /// said since does not change any more.
    pub(crate) async fn resume_run(
        &self,
        thread: &Thread,
        run: &Run,
        time: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        self.lock_thread(thread).await?;
        let is_latest = self.latest_run(thread).await?.is_some_and(|latest| latest.id == run.id);
        if !is_latest || self.running(thread).await?.is_some() {
            return Ok(None);
        }
        let holder = self.clock.uuid().to_string();
        let lease_until = self.now.plus(time);
        let moved = run::Entity::update_many()
            .col_expr(run::Column::Status, Expr::value("running"))
            .col_expr(run::Column::Tools, Expr::value(tools_column(&run.options)))
            .col_expr(run::Column::Roles, Expr::value(json!(run.options.roles).to_string()))
            .col_expr(run::Column::Owner, Expr::value(holder.clone()))
            .col_expr(run::Column::LeaseUntil, Expr::value(lease_until.as_micros()))
            // What was said about its holds was about those that it goes on behind.
            .col_expr(run::Column::ServerResumes, Expr::value(false))
            .col_expr(run::Column::ErrorCode, Expr::value(None::<String>))
            .col_expr(run::Column::ErrorMessage, Expr::value(None::<String>))
            .col_expr(run::Column::FinishedAt, Expr::value(None::<i64>))
            .filter(run::Column::RunId.eq(run.id.to_string()))
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.is_in(["waiting", "failed"]))
            .exec(&self.tx)
            .await?;
        if moved.rows_affected == 0 {
            return Ok(None);
        }
        self.set_message_status(run.assistant_message_id, "streaming").await?;
        self.run_event(EventType::RunResumed, thread, run.id).await?;
        let run = Run { status: RunStatus::Running, error: None, finished_at: None, ..run.clone() };
        Ok(Some(Lease { thread: thread.clone(), run, holder, time }))
    }

    /// Cancels a run that waits or could be tried again, or asks its turn to stop, with its calls: those that are executing,
    /// which are to be asked to stop after the commit. `None` if the run has ended. The thread has to be locked since
    /// before the run was read.
    pub(crate) async fn cancel_run(
        &self,
        thread: &Thread,
        run: &Run,
        actor: &str,
    ) -> Result<Option<Vec<ToolCallId>>, StoreError> {
        match run.status {
            RunStatus::Waiting | RunStatus::Failed => {
                // First the run: with its last call closed it would be completed, were the user further on.
                let closed = self.close_paused(thread, run.id, Close::Cancelled).await?;
                let asked = self.cancel_calls(thread, Which::OpenOf(run.id), actor).await?;
                Ok(closed.then_some(asked))
            }
            RunStatus::Running => {
                let asked = run::Entity::update_many()
                    .col_expr(run::Column::CancelRequestedAt, Expr::value(self.now.as_micros()))
                    .filter(run::Column::RunId.eq(run.id.to_string()))
                    .filter(run::Column::ThreadId.eq(thread.id.to_string()))
                    .filter(run::Column::Status.eq("running"))
                    .exec(&self.tx)
                    .await?;
                if asked.rows_affected == 0 {
                    return Ok(None);
                }
                // The others are cancelled when the turn ends.
                Ok(Some(self.cancel_calls(thread, Which::ExecutingOf(run.id), actor).await?))
            }
            RunStatus::Completed | RunStatus::Cancelled => Ok(None),
        }
    }

    /// A thread by its id, whoever owns it: for what the server does by itself.
    pub(super) async fn any_thread(&self, id: ThreadId) -> Result<Thread, StoreError> {
        let found = super::entity::thread::Entity::find_by_id(id.to_string()).one(&self.tx).await?;
        found
            .map(Thread::of)
            .transpose()?
            .ok_or_else(|| rows::inconsistent("threads", format_args!("{id} is missing")))
    }

    pub(super) async fn set_message_status(&self, id: MessageId, status: &str) -> Result<(), StoreError> {
        message::Entity::update_many()
            .col_expr(message::Column::Status, Expr::value(status))
            .filter(message::Column::MessageId.eq(id.to_string()))
            .filter(message::Column::Status.ne("superseded"))
            .exec(&self.tx)
            .await?;
        Ok(())
    }

    /// Cuts the thread at this place: what stands there and behind it is kept, not shown, not sent, and its
    /// holds are cancelled.
    pub(crate) async fn supersede_from(
        &self,
        thread: &Thread,
        ordinal: i64,
        actor: &str,
    ) -> Result<(), StoreError> {
        self.cancel_calls(thread, Which::NotBegunFrom(ordinal), actor).await?;
        message::Entity::update_many()
            .col_expr(message::Column::Status, Expr::value("superseded"))
            .filter(message::Column::ThreadId.eq(thread.id.to_string()))
            .filter(message::Column::Ordinal.gte(ordinal))
            .exec(&self.tx)
            .await?;
        let cut = Query::select()
            .column(message::Column::MessageId)
            .from(message::Entity)
            .and_where(message::Column::ThreadId.eq(thread.id.to_string()))
            .and_where(message::Column::Status.eq("superseded"))
            .to_owned();
        let waiting = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.eq("waiting"))
            .filter(run::Column::AssistantMessageId.in_subquery(cut))
            .all(&self.tx)
            .await?;
        for row in waiting {
            let run_id = rows::id("runs", &row.run_id)?;
            self.close_paused(thread, run_id, Close::Cancelled).await?;
        }
        Ok(())
    }

    /// The user went on: runs that wait for nothing any more are over.
    async fn complete_passed_runs(&self, thread: &Thread) -> Result<(), StoreError> {
        let waiting = run::Entity::find()
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.eq("waiting"))
            .all(&self.tx)
            .await?;
        for row in waiting {
            self.complete_if_passed(thread, rows::id("runs", &row.run_id)?).await?;
        }
        Ok(())
    }

    /// After a change to a run's calls: if the user went on without it and none of its calls is open, it is
    /// over. The thread has to be locked, or two who close its last calls at once would each see the other's
    /// as open.
    pub(super) async fn complete_if_passed(&self, thread: &Thread, run_id: RunId) -> Result<(), StoreError> {
        let answer = Query::select()
            .column(run::Column::AssistantMessageId)
            .from(run::Entity)
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
            self.close_paused(thread, run_id, Close::Passed).await?;
        }
        Ok(())
    }

    async fn close_paused(&self, thread: &Thread, run_id: RunId, close: Close) -> Result<bool, StoreError> {
        let (from, status, event): (&[&str], _, _) = match close {
            Close::Passed => (&["waiting"], "completed", EventType::RunCompleted),
            Close::Cancelled => (&["waiting", "failed"], "cancelled", EventType::RunCancelled),
        };
        let moved = run::Entity::update_many()
            .col_expr(run::Column::Status, Expr::value(status))
            .col_expr(run::Column::ErrorCode, Expr::value(None::<String>))
            .col_expr(run::Column::ErrorMessage, Expr::value(None::<String>))
            .col_expr(run::Column::FinishedAt, Expr::value(self.now.as_micros()))
            .filter(run::Column::RunId.eq(run_id.to_string()))
            .filter(run::Column::ThreadId.eq(thread.id.to_string()))
            .filter(run::Column::Status.is_in(from.iter().copied()))
            .exec(&self.tx)
            .await?;
        let closed = moved.rows_affected == 1;
        if closed {
            self.run_event(event, thread, run_id).await?;
        }
        Ok(closed)
    }

    async fn run_event(&self, event: EventType, thread: &Thread, run_id: RunId) -> Result<(), StoreError> {
        self.event(event, &thread.actor(), &Subject::run(thread, run_id), json!({})).await
    }
}

fn tools_column(options: &RunOptions) -> Option<String> {
    options.tools.as_ref().map(|tools| json!(tools).to_string())
}
