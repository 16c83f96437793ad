//! The progress of a turn for clients that tail it at another process: the content stored so far.

use crate::entity::{message, run, step, tool_call};
use crate::run::turns::TurnEnd;
use crate::{Read, StoreError, Thread, sql::rows};
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{MessageId, RunId};
use holdpoint_core::message::{Step, Usage};
use holdpoint_core::run::{Run, RunStatus, TurnError};
use holdpoint_core::turn::{FinishReason, TurnEvent};
use sea_orm::sea_query::{Expr, Query};
use sea_orm::{
    ColumnTrait, Condition, EntityName, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
};
use std::collections::HashMap;

/// A turn of another process.
#[derive(Debug, Clone)]
pub struct TailedTurn {
    /// The thread of the turn, as it was read on behalf of the subscriber.
    thread: Thread,
    pub run_id: RunId,
    message_id: MessageId,
    /// When the turn began. No two turns of a run began at the same time.
    pub began: Timestamp,
    /// The first step of the turn.
    pub first: i32,
    /// The states of the held calls that the turn continues after, if any.
    pub continued: Vec<TurnEvent<'static>>,
    /// The token usage of the earlier steps, if it is known.
    pub before: Option<Usage>,
}

/// A mark that changes with every visible change of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressMark {
    owner: Option<String>,
    /// The last step of the message, its status, and the length of its parts.
    last: Option<(i32, String, i64)>,
    ended_calls: u64,
}

/// A step in its stored content so far.
#[derive(Debug, Clone)]
pub struct StoredStep {
    pub step: Step,
    /// Why the step ended, if it has ended.
    pub reason: Option<FinishReason>,
}

#[derive(Debug)]
pub struct TurnProgress {
    /// The steps of the turn, from the requested one on.
    pub steps: Vec<StoredStep>,
    /// How the turn ended, if it has ended.
    pub end: Option<TurnEnd>,
}

impl Read {
    /// Returns the steps of an assistant's message in their stored content, with the current states of their
    /// calls.
    pub async fn steps(&self, thread: &Thread, message: MessageId) -> Result<Vec<Step>, StoreError> {
        let seen = self.steps_from(thread, message, 0, None).await?;
        Ok(seen.into_iter().map(|seen| seen.step).collect())
    }

    /// Returns the steps of a run's answer before its latest turn, with the current states of their calls.
    pub async fn steps_before_turn(&self, thread: &Thread, run: &Run) -> Result<Vec<Step>, StoreError> {
        let Some(began) = self.turn_began(thread, run.id).await? else { return Ok(Vec::new()) };
        let seen = self.steps_from(thread, run.assistant_message_id, 0, Some(began)).await?;
        Ok(seen.into_iter().map(|seen| seen.step).collect())
    }

    /// Returns the turn in progress of this run.
    pub async fn turn_to_tail(&self, thread: &Thread, run: &Run) -> Result<Option<TailedTurn>, StoreError> {
        let Some(began) = self.turn_began(thread, run.id).await? else { return Ok(None) };
        let before = self.steps_before_turn(thread, run).await?;
        Ok(Some(TailedTurn {
            thread: thread.clone(),
            run_id: run.id,
            message_id: run.assistant_message_id,
            began,
            first: before.last().map_or(0, |last| last.n.saturating_add(1)),
            continued: TurnEvent::continuation(&before),
            before: before.iter().filter_map(|step| step.usage).reduce(Usage::plus),
        }))
    }

    /// Returns the progress mark of a turn without reading its content.
    pub async fn mark(&self, turn: &TailedTurn) -> Result<ProgressMark, StoreError> {
        let owner: Option<Option<String>> = run::Entity::find_by_id(turn.run_id.to_string())
            .select_only()
            .column(run::Column::Owner)
            .filter(run::Column::ThreadId.eq(turn.thread.id.to_string()))
            .into_tuple()
            .one(&self.tx)
            .await?;
        let last = step::Entity::find()
            .select_only()
            .columns([step::Column::N, step::Column::Status])
            // The database computes the length, so that the parts are not read.
            .column_as(Expr::cust("CAST(octet_length(parts) AS BIGINT)"), "bytes")
            .filter(step::Column::MessageId.eq(turn.message_id.to_string()))
            .order_by_desc(step::Column::N)
            .into_tuple()
            .one(&self.tx)
            .await?;
        let ended_calls = tool_call::Entity::find()
            .filter(tool_call::Column::MessageId.eq(turn.message_id.to_string()))
            .filter(tool_call::Column::Step.gte(turn.first))
            .filter(tool_call::Column::FinishedAt.is_not_null())
            .count(&self.tx)
            .await?;
        Ok(ProgressMark { owner: owner.flatten(), last, ended_calls })
    }

    /// Returns the stored content of a turn from this step on.
    pub async fn progress(&self, turn: &TailedTurn, from: i32) -> Result<TurnProgress, StoreError> {
        let began = self.turn_began(&turn.thread, turn.run_id).await?;
        let next = began.filter(|began| *began != turn.began);
        let steps = self.steps_from(&turn.thread, turn.message_id, from, next).await?;
        let found = run::Entity::find_by_id(turn.run_id.to_string())
            .filter(run::Column::ThreadId.eq(turn.thread.id.to_string()))
            .one(&self.tx)
            .await?;
        let run = found.as_ref().map(rows::run).transpose()?;
        let run =
            run.ok_or_else(|| rows::inconsistent("runs", format_args!("{} is missing", turn.run_id)))?;
        let end = match (next, run.status) {
            // The run has resumed since, which is possible after a hold and after a failure.
            (Some(_), _) => Some(match steps.last() {
                Some(last) if last.step.calls.iter().any(|call| call.held) => TurnEnd::Waiting,
                _ => TurnEnd::Failed(TurnError::taken_over()),
            }),
            (None, RunStatus::Running) => None,
            (None, RunStatus::Waiting) => Some(TurnEnd::Waiting),
            (None, RunStatus::Completed) => Some(TurnEnd::Completed),
            (None, RunStatus::Cancelled) => Some(TurnEnd::Cancelled),
            (None, RunStatus::Failed) => {
                Some(TurnEnd::Failed(run.error.unwrap_or_else(TurnError::interrupted)))
            }
        };
        Ok(TurnProgress { steps, end })
    }

    /// Returns the steps of a message from this one on, created before this moment.
    async fn steps_from(
        &self,
        thread: &Thread,
        message_id: MessageId,
        from: i32,
        until: Option<Timestamp>,
    ) -> Result<Vec<StoredStep>, StoreError> {
        let of_thread = Query::select()
            .column(message::Column::MessageId)
            .from(message::Entity.table_ref())
            .and_where(message::Column::MessageId.eq(message_id.to_string()))
            .and_where(message::Column::ThreadId.eq(thread.id.to_string()))
            .to_owned();
        let mut query = step::Entity::find()
            .filter(step::Column::MessageId.in_subquery(of_thread))
            .filter(step::Column::N.gte(from));
        if let Some(until) = until {
            query = query.filter(step::Column::CreatedAt.lt(until.as_micros()));
        }
        let found = query.order_by_asc(step::Column::N).all(&self.tx).await?;
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(Vec::new()) };
        let of_steps = Condition::all()
            .add(tool_call::Column::MessageId.eq(message_id.to_string()))
            .add(tool_call::Column::Step.between(first.n, last.n));
        let mut calls: HashMap<i32, Vec<ToolCall>> = HashMap::new();
        for call in self.calls_where(of_steps).await? {
            calls.entry(call.step).or_default().push(call);
        }
        let seen = |row: step::Model| {
            let reason =
                row.finish_reason.as_deref().map(|reason| rows::word("message_steps", reason)).transpose()?;
            let calls = calls.remove(&row.n).unwrap_or_default();
            Ok(StoredStep { step: rows::step((&row).into(), calls)?, reason })
        };
        found.into_iter().map(seen).collect()
    }
}
