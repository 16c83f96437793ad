//! A turn as those see it who read along at another process: what is written of it so far.

use super::entity::{message, run, step, tool_call};
use super::turns::TurnEnd;
use super::{Read, StoreError, Thread, rows};
use crate::domain::call::ToolCall;
use crate::domain::clock::Timestamp;
use crate::domain::id::{MessageId, RunId};
use crate::domain::message::{Step, Usage};
use crate::domain::run::{Run, RunStatus, TurnError};
use crate::domain::turn::{FinishReason, TurnEvent};
use sea_orm::sea_query::{Expr, Query};
use sea_orm::{ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use std::collections::HashMap;

/// A turn of another process.
#[derive(Debug, Clone)]
pub(crate) struct TailedTurn {
    /// Its thread, as it was read for whoever reads along.
    thread: Thread,
    pub(crate) run_id: RunId,
    message_id: MessageId,
    /// When it began: no two turns of a run began at once.
    pub(crate) began: Timestamp,
    /// Its first step.
    pub(crate) first: i32,
    /// How the held calls stand that it goes on behind, if it does behind any.
    pub(crate) continued: Vec<TurnEvent<'static>>,
    /// What the steps before it cost, where that was told.
    pub(crate) before: Option<Usage>,
}

/// What changes whenever there is something new to see of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgressMark {
    owner: Option<String>,
    /// The message's last step, its status, and the length of its parts.
    last: Option<(i32, String, i64)>,
    ended_calls: u64,
}

/// A step as it is written so far.
#[derive(Debug, Clone)]
pub(crate) struct StoredStep {
    pub(crate) step: Step,
    /// Why it ended, if it did.
    pub(crate) reason: Option<FinishReason>,
}

/// What is written of a turn.
#[derive(Debug)]
pub(crate) struct TurnProgress {
    /// Its steps from the one on that was asked for.
    pub(crate) steps: Vec<StoredStep>,
    /// How it ended, if it has.
    pub(crate) end: Option<TurnEnd>,
}

impl Read {
    /// The steps of an assistant's message as they are written so far, with their calls as they stand now.
    pub(crate) async fn steps(&self, thread: &Thread, message: MessageId) -> Result<Vec<Step>, StoreError> {
        let seen = self.steps_from(thread, message, 0, None).await?;
        Ok(seen.into_iter().map(|seen| seen.step).collect())
    }

    /// The steps of a run's answer from before its latest turn, with their calls as they stand now.
    pub(crate) async fn steps_before_turn(
        &self,
        thread: &Thread,
        run: &Run,
    ) -> Result<Vec<Step>, StoreError> {
        let Some(began) = self.turn_began(thread, run.id).await? else { return Ok(Vec::new()) };
        let seen = self.steps_from(thread, run.assistant_message_id, 0, Some(began)).await?;
        Ok(seen.into_iter().map(|seen| seen.step).collect())
    }

    /// The turn of this run, which is under way.
    pub(crate) async fn turn_to_tail(
        &self,
        thread: &Thread,
        run: &Run,
    ) -> Result<Option<TailedTurn>, StoreError> {
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

    /// How far a turn is, without its words.
    pub(crate) async fn mark(&self, turn: &TailedTurn) -> Result<ProgressMark, StoreError> {
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
            // It is told without reading the parts.
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

    /// What is written of a turn from this step on.
    pub(crate) async fn progress(&self, turn: &TailedTurn, from: i32) -> Result<TurnProgress, StoreError> {
        let began = self.turn_began(&turn.thread, turn.run_id).await?;
        let next = began.filter(|began| *began != turn.began);
        let steps = self.steps_from(&turn.thread, turn.message_id, from, next).await?;
        let found = run::Entity::find_by_id(turn.run_id.to_string())
            .filter(run::Column::ThreadId.eq(turn.thread.id.to_string()))
            .one(&self.tx)
            .await?;
        let run = found.map(rows::run).transpose()?;
        let run =
            run.ok_or_else(|| rows::inconsistent("runs", format_args!("{} is missing", turn.run_id)))?;
        let end = match (next, run.status) {
            // The run has gone on since, as it can behind a hold and behind a failure.
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

    /// The steps of a message from this one on, and from before this moment.
    async fn steps_from(
        &self,
        thread: &Thread,
        message_id: MessageId,
        from: i32,
        until: Option<Timestamp>,
    ) -> Result<Vec<StoredStep>, StoreError> {
        let of_thread = Query::select()
            .column(message::Column::MessageId)
            .from(message::Entity)
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
            let reason = row.finish_reason.as_deref().map(rows::finish_reason).transpose()?;
            let calls = calls.remove(&row.n).unwrap_or_default();
            Ok(StoredStep { step: rows::step(row, calls)?, reason })
        };
        found.into_iter().map(seen).collect()
    }
}
