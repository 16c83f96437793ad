//! Polls of the work of MCP servers: the outcome of a call that its server executes as a task, or continues after a round
//! of answers.
//!
//! One process polls at a time, and keeps the right to with a heartbeat. Everything that another process needs to take
//! over is in the rows: the task or the round, and the answers to the questions.

use super::execution::Executor;
use super::heartbeat::{Halt, Heartbeat, LeaseInForce};
use super::progress::{self, LastReport};
use super::retry::persist;
use crate::tools::remote_work::Polled;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use holdpoint_core::call::{Execution, Outcome};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::owner::{NextAction, TaskId};
use holdpoint_core::tool::tool_request::{Answer, Question};
use holdpoint_store::request_sender::InputRequests;
use holdpoint_store::waited::WaitedTime;
use holdpoint_store::{PolledCall, Polls, SettleOutcome, StoreError};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

/// The time between two polls, unless the server wants another one, and its limits.
const POLLED_EVERY: Duration = Duration::from_secs(5);
const POLLED_EVERY_MIN: Duration = Duration::from_millis(500);
const POLLED_EVERY_MAX: Duration = Duration::from_secs(60);
/// How long a server has for each answer about a task.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the polls of a process end.
pub(super) enum PollingEnd {
    /// The call has this outcome.
    Outcome(Outcome),
    /// Another process takes over.
    Leave,
    /// The call has ended, or another process polls.
    Lost,
}

/// The open questions of a server that this process asks people.
pub(super) struct Questions {
    asks: Arc<dyn InputRequests>,
    of: (ToolCallId, Execution),
    /// The keys of the questions that have no answer yet.
    keys: HashSet<String>,
    pub(super) answers: FuturesUnordered<BoxFuture<'static, AnsweredQuestion>>,
}

/// The key of a question, and its answer. `None` if the question could not be asked.
pub(super) type AnsweredQuestion = (String, Option<Answer>);

impl Executor {
    /// Starts to poll the work of a call that this process has handed over.
    pub(super) async fn poll_handed_over(
        &self,
        call: ToolCallId,
        execution: Execution,
        asks: Arc<dyn InputRequests>,
    ) {
        let read = async { self.store.urgent_read().await?.polled_call(Polls::first(call, execution)).await };
        match read.await {
            Ok(Some(polled)) => self.start_polls(polled, asks),
            Ok(None) => {}
            // A sweeper finds the call after the lease.
            Err(error) => tracing::warn!(%error, "could not begin to poll the work of a call"),
        }
    }

    /// Starts to poll the work of this call, until its end or that of this process.
    pub(crate) fn start_polls(&self, polled: PolledCall, asks: Arc<dyn InputRequests>) {
        let span =
            tracing::error_span!("remote_work", tool_call_id = %polled.call.id, tool = polled.call.name);
        let executor = self.clone();
        self.tasks.spawn(
            async move {
                if let Err(error) = executor.keep_polling(polled, asks).await {
                    tracing::error!(%error, "the polls of a call broke off; they begin again");
                }
            }
            .instrument(span),
        );
    }

    async fn keep_polling(&self, polled: PolledCall, asks: Arc<dyn InputRequests>) -> Result<(), StoreError> {
        let heartbeat = self.heartbeats.keep(LeaseInForce::Polls(Box::new(polled.polls.clone())));
        let (waited, id, execution) = (WaitedTime::default(), polled.call.id, polled.polls.execution);
        let ended = tokio::select! {
            ended = self.poll_until_end(&polled, &heartbeat, asks, &waited) => ended?,
            never = progress::keep_reports(&self.store, &self.tasks, id, execution, &waited) => match never {},
        };
        drop(heartbeat);
        let PolledCall { polls, call, .. } = polled;
        match ended {
            PollingEnd::Outcome(outcome) => {
                let outcome = outcome.of_attempt(polls.execution.attempt);
                let result = self.gate().result_text(&outcome, call.edit().as_ref());
                let last = LastReport::of(&waited);
                let settle = || async {
                    let write = self.store.urgent_write().await?;
                    Box::pin(last.store(&write, id, execution)).await?;
                    let settled = write.settle_polled(&polls, &outcome, result.clone()).await?;
                    write.commit().await?;
                    Ok(settled)
                };
                if matches!(persist(self.lease, settle).await?.value, SettleOutcome::Ended(_)) {
                    self.wake.send_in(call.thread_id);
                }
            }
            PollingEnd::Leave => {
                let write = self.store.urgent_write().await?;
                write.renew_polls(&polls, Duration::ZERO).await?;
                write.commit().await?;
            }
            PollingEnd::Lost => {}
        }
        Ok(())
    }

    async fn poll_until_end(
        &self,
        polled: &PolledCall,
        heartbeat: &Heartbeat,
        asks: Arc<dyn InputRequests>,
        waited: &WaitedTime,
    ) -> Result<PollingEnd, StoreError> {
        let mut questions = Questions::new(asks, (polled.call.id, polled.polls.execution));
        let mut next = polled.next.clone();
        loop {
            next = match next {
                Some(NextAction::Task(task)) => {
                    return Ok(self.poll_task(polled, &task, heartbeat, questions, waited).await);
                }
                Some(NextAction::Round(round)) => {
                    match self.play_round(polled, &round, heartbeat, &mut questions).await? {
                        ControlFlow::Continue(next) => Some(next),
                        ControlFlow::Break(end) => return Ok(end),
                    }
                }
                None => {
                    tracing::warn!("a process died after it had sent a call again; the outcome is unknown");
                    return Ok(PollingEnd::Outcome(Outcome::Interrupted));
                }
            };
        }
    }

    async fn poll_task(
        &self,
        PolledCall { server: server_name, conversation, .. }: &PolledCall,
        task: &TaskId,
        heartbeat: &Heartbeat,
        mut questions: Questions,
        waited: &WaitedTime,
    ) -> PollingEnd {
        let (mut is_cancelled, mut said) = (false, None);
        loop {
            // The connection may be another one after each poll.
            let Some(server) = self.gate().remote_server(server_name) else { return PollingEnd::Leave };
            let polled = tokio::select! {
                polled = timeout(ANSWER_TIMEOUT, server.poll(task, conversation)) => polled.unwrap_or(Polled::Unanswered),
                () = self.tasks.stopping() => return PollingEnd::Leave,
            };
            let again = match polled {
                Polled::Ended(Ok(output)) => return PollingEnd::Outcome(self.gate().succeeded(output)),
                Polled::Ended(Err(why)) => return PollingEnd::Outcome(Outcome::Failed(why)),
                Polled::Unknown => {
                    tracing::warn!("a server does not know the task of a call; the outcome is unknown");
                    return PollingEnd::Outcome(Outcome::Interrupted);
                }
                Polled::Unanswered => None,
                Polled::Open { asks, is_stuck, again, progress } => {
                    if progress.is_some() && progress != said {
                        said.clone_from(&progress);
                        waited.report(progress);
                    }
                    questions.are(asks).await;
                    if is_stuck {
                        tracing::warn!("a task waits for what holdpoint does not have; it is asked to end");
                        within(server.cancel(task, conversation)).await;
                    }
                    again
                }
            };
            let again = again.unwrap_or(POLLED_EVERY).clamp(POLLED_EVERY_MIN, POLLED_EVERY_MAX);
            tokio::select! {
                halt = heartbeat.halt(), if !is_cancelled => match halt {
                    Halt::Cancelled => {
                        is_cancelled = true;
                        within(server.cancel(task, conversation)).await;
                    }
                    Halt::Lost => return PollingEnd::Lost,
                    Halt::Leaving => return PollingEnd::Leave,
                },
                Some(first) = questions.answers.next(), if !questions.answers.is_empty() => {
                    let answers = questions.answered(first);
                    if !answers.is_empty() {
                        within(server.answer(task, conversation, answers)).await;
                    }
                    // A server that asks without end is not polled without a pause.
                    sleep(POLLED_EVERY_MIN).await;
                }
                () = sleep(again) => {}
                () = self.tasks.stopping() => return PollingEnd::Leave,
            }
            if matches!(heartbeat.halt().now_or_never(), Some(Halt::Lost)) {
                return PollingEnd::Lost;
            }
        }
    }
}

impl Questions {
    fn new(asks: Arc<dyn InputRequests>, of: (ToolCallId, Execution)) -> Self {
        Self { asks, of, keys: HashSet::new(), answers: FuturesUnordered::new() }
    }

    /// Asks the questions that are new, and withdraws those that the server does not ask any more.
    pub(super) async fn are(&mut self, now: Vec<(String, Option<Question>)>) {
        let gone: Vec<String> =
            self.keys.iter().filter(|key| !now.iter().any(|(other, _)| other == *key)).cloned().collect();
        for key in gone {
            self.asks.withdraw(self.of, key.clone()).await;
            self.keys.remove(&key);
        }
        for (key, question) in now {
            if !self.keys.insert(key.clone()) {
                continue;
            }
            let (asks, of) = (self.asks.clone(), self.of);
            self.answers.push(
                async move {
                    let answer = match question {
                        Some(question) => asks.send_once(of, key.clone(), question).await,
                        None => Some(Answer::Cancel),
                    };
                    (key, answer)
                }
                .boxed(),
            );
        }
    }

    /// Returns this answer and those that are there already. A question without an answer is asked again when it is set
    /// again, and an answer to what the server does not ask any more is dropped.
    pub(super) fn answered(&mut self, first: AnsweredQuestion) -> Vec<(String, Answer)> {
        let mut answers = vec![first];
        while let Some(Some(more)) = self.answers.next().now_or_never() {
            answers.push(more);
        }
        let mut is_asked = |key: &String| self.keys.remove(key);
        answers.into_iter().filter_map(|(key, answer)| is_asked(&key).then_some((key, answer?))).collect()
    }
}

/// Waits for an answer about a task, for a limited time. The next poll shows what came of it.
async fn within(answer: impl Future<Output = ()>) {
    if timeout(ANSWER_TIMEOUT, answer).await.is_err() {
        tracing::warn!("a server did not answer about a task in time");
    }
}
