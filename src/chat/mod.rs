//! Chat: one turn end to end.
//!
//! [`Chat::admit`] takes a [`TurnRequest`], finds or creates its run in one transaction, and starts the turn
//! in a task of its own. The turn continues if the client disconnects. A [`TurnLog`] keeps the events of the
//! turn, and any number of clients read from it.
//!
//! # One request of a turn
//!
//! 1. The middleware of `http` checks the caller and the rate limits, and reads the body. `ChatBody` makes a
//!    [`TurnRequest`] of the body, read in one pass by `partial_json`: it keeps the fields of `posted`, with the parts
//!    of `posted_part`, and finds repeated keys. The route chooses the `Dialect` and calls [`Chat::admit`] with the
//!    traits of its clients (`ClientTraits`). The chat knows no dialects. A turn as JSON is admitted in the same way,
//!    and its answer is the rows at the end of its [`TurnLog`].
//! 2. [`Chat::admit`] applies the posted decisions, each in a transaction of its own. Then one transaction finds and
//!    locks the thread, or creates it, reads its transcript (with one statement, in a long thread with a few), and
//!    compares the request with it (`intent`): a new message, an edit, a regenerate or a continuation.
//! 3. For a continuation, `continuation` makes a `StoredView` of the transcript, the pure function `plan` decides, and
//!    `Chat::execute` carries the plan out: attach to the running turn, resume the run, or wait for calls. A GET, the
//!    resumer and the end of a wait (`pending_continuation`) get their plans from the same function. While a turn runs,
//!    only a continuation is accepted.
//! 4. A turn that begins here also opens its first step in that transaction (`Agent::open_first`).
//!    `Chat::commit_and_start` commits and starts `TurnTask::turn` in a task. The response reads the [`TurnLog`] of
//!    that task from its beginning.
//! 5. `TurnTask::end` commits an end that no step has committed (`Write::end_turn`) before the last event. A failed run
//!    keeps its text; a continuation writes the next step of the same message.
//!
//! Pages of AI SDK 6 and 7 put their decisions into the next POST, and repeat that POST as long as a part that they
//! answered shows no outcome. So a continuation in a UI dialect stays open until each answered call has ended, reports
//! the calls again, or fails (`ClientTraits::reposts_until_settled`). Of a posted part the server reads the id of the
//! call, the verdict and the reason, and whether the page shows the call without an end. From that `report` reports the
//! decisions made elsewhere to a page; the encoder marks an answer that came too late.

mod admit;
mod attach;
mod cancel;
mod continuation;
mod earlier;
mod intent;
mod pending_continuation;
mod plan;
mod posted_decisions;
mod report;
mod request;
mod resumer;
mod sub_agents;
mod tail;
mod turn;
pub(crate) mod turn_log;

pub(crate) use admit::DEFAULT_TITLE;
pub(crate) use cancel::CancelRunError;
pub(crate) use earlier::{EarlierMessage, EarlierMessages, ShownMessage};
pub(crate) use request::{
    Action, AdmitError, PostedDecision, PostedMessage, ShownCalls, ThreadName, TurnRequest,
};
pub(crate) use resumer::ResumeRunError;

use crate::agent::{Agent, Tasks, Wake};
use crate::approvals::Approvals;
use crate::config;
use crate::rate_limit::RateLimit;
use holdpoint_core::id::{MessageId, RunId, ThreadId, ToolCallId};
use holdpoint_core::run::Run;
use holdpoint_core::turn::TurnEvent;
use holdpoint_models::LanguageModel;
use holdpoint_store::Store;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use tail::TailedTurns;
use turn_log::{LiveTurns, TurnLog};

/// The turns of a process. Each turn holds a clone, so all clones share one value.
#[derive(Debug, Clone)]
pub(crate) struct Chat(Arc<ChatParts>);

#[derive(Debug)]
pub(crate) struct ChatParts {
    store: Store,
    tasks: Tasks,
    agent: Agent,
    approvals: Approvals,
    /// The first model is the default.
    models: Arc<[Arc<dyn LanguageModel>]>,
    approval: config::Approval,
    caps: config::Caps,
    /// The rate limit of turns per user.
    rate_limit: Arc<RateLimit>,
    live: LiveTurns,
    tailed: TailedTurns,
    wake: Wake,
}

/// A running turn to read.
#[derive(Debug)]
pub(crate) struct StartedTurn {
    pub(crate) thread_id: ThreadId,
    pub(crate) run_id: RunId,
    /// The message that the turn writes.
    pub(crate) message_id: MessageId,
    /// Events that this reader gets before those of the turn.
    pub(crate) backfill: Vec<TurnEvent<'static>>,
    pub(crate) log: Arc<TurnLog>,
    /// The calls whose answers the server took with the request of this reader.
    pub(crate) accepted: HashSet<ToolCallId>,
    /// The user messages in the request of this reader that can never be taken, with the reasons.
    pub(crate) left_out: Vec<String>,
}

impl StartedTurn {
    /// Returns the turn of this run, without a backfill.
    fn of(run: &Run, log: Arc<TurnLog>) -> Self {
        Self {
            thread_id: run.thread_id,
            run_id: run.id,
            message_id: run.assistant_message_id,
            backfill: Vec::new(),
            log,
            accepted: HashSet::new(),
            left_out: Vec::new(),
        }
    }
}

impl Deref for Chat {
    type Target = ChatParts;

    fn deref(&self) -> &ChatParts {
        &self.0
    }
}

impl Chat {
    pub(crate) fn new(
        store: Store,
        tasks: Tasks,
        agent: Agent,
        approvals: Approvals,
        models: Arc<[Arc<dyn LanguageModel>]>,
        approval: config::Approval,
        caps: config::Caps,
    ) -> Self {
        let rate_limit = Arc::new(RateLimit::new("turns", caps.turns_per_minute));
        let (live, tailed) = (LiveTurns::default(), TailedTurns::default());
        let wake = agent.executor.wake.clone();
        Self(Arc::new(ChatParts {
            store,
            tasks,
            agent,
            approvals,
            models,
            approval,
            caps,
            rate_limit,
            live,
            tailed,
            wake,
        }))
    }

    /// Returns the most tokens of a request to the default model, if known.
    pub(crate) fn context_limit(&self) -> Option<u64> {
        self.agent.windows.known(self.model(None)?.id())
    }

    fn model(&self, id: Option<&str>) -> Option<&Arc<dyn LanguageModel>> {
        match id {
            None => self.models.first(),
            Some(id) => self.models.iter().find(|model| model.id() == id),
        }
    }
}
