//! Rounds of calls: an MCP server asks people before it continues a call, and gets the call again with the answers.
//!
//! Until the round is taken out of the row, any process continues it. From then until the answer of the server is stored,
//! the server may have acted: a call whose process dies in between is never sent again.

use super::execution::Executor;
use super::heartbeat::{Halt, Heartbeat};
use super::polling::{PollingEnd, Questions};
use super::retry::persist;
use crate::tools::remote_work::{RemoteServer, RepeatAnswer, SentCall};
use futures::stream::StreamExt;
use holdpoint_core::call::Outcome;
use holdpoint_core::owner::{InputForm, InputRound, NextAction};
use holdpoint_core::tool::remote::Remote;
use holdpoint_core::tool::tool_request::{Answer, Question, RequestKind};
use holdpoint_store::{PolledCall, StoreError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before a question that could not be asked is asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The pause before the polls are left to another process, if this one cannot send the call again.
const LEFT_AFTER: Duration = Duration::from_secs(5);

impl Executor {
    /// Asks the questions of a round, and sends the call again with the answers. Returns how the call continues, or why the
    /// polls end.
    pub(super) async fn play_round(
        &self,
        polled: &PolledCall,
        round: &InputRound,
        heartbeat: &Heartbeat,
        questions: &mut Questions,
    ) -> Result<ControlFlow<PollingEnd, NextAction>, StoreError> {
        let ready = async {
            let answers = answers(round, questions).await;
            let remote = Remote { server: polled.server.clone(), tool: round.tool.clone() };
            (answers, self.ready_server(polled, &remote).await)
        };
        let (answers, server) = tokio::select! {
            biased;
            halt = heartbeat.halt() => return Ok(ControlFlow::Break(ended(halt))),
            () = self.tasks.stopping() => return Ok(ControlFlow::Break(PollingEnd::Leave)),
            ready = ready => ready,
        };
        let Some(server) = server else { return Ok(ControlFlow::Break(PollingEnd::Leave)) };
        let polls = &polled.polls;
        let take = || async { self.store.urgent_write().await?.take_round(polls).await };
        if !persist(self.lease, take).await?.value {
            // The call is to stop, or another process polls: then this outcome does not count.
            return Ok(ControlFlow::Break(PollingEnd::Outcome(Outcome::Interrupted)));
        }
        let sent = SentCall {
            tool_call_id: polled.call.id,
            conversation: &polled.conversation,
            input: polled.call.effective_input(),
        };
        let again = tokio::select! {
            // A known outcome is not discarded.
            biased;
            again = server.send_again(sent, round, answers) => again,
            halt = heartbeat.halt() => {
                return Ok(ControlFlow::Break(match halt {
                    Halt::Lost => PollingEnd::Lost,
                    Halt::Cancelled | Halt::Leaving => PollingEnd::Outcome(Outcome::Interrupted),
                }));
            }
        };
        let next = match again {
            RepeatAnswer::Ended(output) => {
                return Ok(ControlFlow::Break(PollingEnd::Outcome(self.gate().succeeded(output))));
            }
            RepeatAnswer::Failed(outcome) => return Ok(ControlFlow::Break(PollingEnd::Outcome(outcome))),
            RepeatAnswer::Unknown => {
                return Ok(ControlFlow::Break(PollingEnd::Outcome(Outcome::Interrupted)));
            }
            RepeatAnswer::Next(next) => next,
        };
        let store = || async { self.store.urgent_write().await?.store_next(polls, &next).await };
        let stored = persist(self.lease, store).await?.value;
        Ok(if stored { ControlFlow::Continue(next) } else { ControlFlow::Break(PollingEnd::Lost) })
    }

    /// Returns the server of a tool if it can get a call again now: the tool is still there, and its server has rounds.
    /// Waits before it returns `None`, so that polls that are left do not come back at once.
    async fn ready_server(&self, polled: &PolledCall, remote: &Remote) -> Option<Arc<dyn RemoteServer>> {
        let found = async || {
            let server = self.gate().server_with(&polled.call.name, remote)?;
            server.takes_rounds(&polled.conversation).await.then_some(server)
        };
        if let Some(server) = found().await {
            return Some(server);
        }
        sleep(LEFT_AFTER).await;
        found().await
    }
}

/// Returns the answers to all questions of a round, by their keys at the server.
async fn answers(round: &InputRound, questions: &mut Questions) -> BTreeMap<String, Answer> {
    let stored = |key: &str| format!("{}/{key}", round.number);
    let mut answers = BTreeMap::new();
    loop {
        let open = round.forms.iter().filter(|(key, _)| !answers.contains_key(*key));
        let open = open.map(|(key, form)| {
            let question = form.clone().map(|InputForm { message, schema }| Question {
                kind: RequestKind::Elicitation,
                message,
                schema,
            });
            (stored(key), question)
        });
        questions.are(open.collect()).await;
        let Some(first) = questions.answers.next().await else { return answers };
        let had_answer = first.1.is_some();
        for (key, answer) in questions.answered(first) {
            if let Some((_, key)) = key.split_once('/') {
                answers.insert(key.to_owned(), answer);
            }
        }
        if !had_answer {
            sleep(ASKED_AGAIN_AFTER).await;
        }
    }
}

/// Returns the end of polls whose round is not taken.
fn ended(halt: Halt) -> PollingEnd {
    match halt {
        // The server waits for nothing, so nothing is to be asked to stop. It may have acted before it asked.
        Halt::Cancelled => PollingEnd::Outcome(Outcome::Interrupted),
        Halt::Lost => PollingEnd::Lost,
        Halt::Leaving => PollingEnd::Leave,
    }
}
