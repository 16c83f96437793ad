//! Chat: one turn end to end.
//!
//! A request says what it wants ([`Ask`]); [`Chat::ask`] finds or makes the run in one transaction and starts
//! the turn in a task of its own, which goes on when the client goes away. What the turn says is kept in a
//! [`TurnLog`], from which any number of clients read.

mod admit;
mod attach;
mod cancel;
mod continuation;
mod intent;
mod posted_decisions;
mod resumer;
mod sub_agents;
mod tail;
mod turn;
pub(crate) mod turn_log;

pub(crate) use admit::{
    Action, AdmitError, DEFAULT_TITLE, PostedDecision, PostedMessage, ThreadName, TurnRequest,
};
pub(crate) use cancel::CancelRunError;

use crate::agent::{Agent, Tasks};
use crate::approvals::Approvals;
use crate::config;
use crate::domain::id::{MessageId, RunId};
use crate::domain::run::Run;
use crate::domain::turn::TurnEvent;
use crate::llm::LanguageModel;
use crate::rate_limit::RateLimit;
use crate::store::Store;
use std::sync::Arc;
use tail::TailedTurns;
use tokio::sync::Notify;
use turn_log::{LiveTurns, TurnLog};

/// The chat of one server.
#[derive(Debug, Clone)]
pub(crate) struct Chat {
    store: Store,
    tasks: Tasks,
    agent: Agent,
    approvals: Approvals,
    /// The first is the default.
    models: Arc<[Arc<dyn LanguageModel>]>,
    approval: config::Approval,
    caps: config::Caps,
    /// How often one user may have the model asked.
    rate_limit: Arc<RateLimit>,
    live: LiveTurns,
    tailed: TailedTurns,
    /// A turn of this process has paused: its run may be one that the server goes on with. Or it has ended, or somebody
    /// stopped a run: others may wait for that.
    wake: Arc<Notify>,
}

/// A turn under way, to read along.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) run_id: RunId,
    /// The message that is written.
    pub(crate) message_id: MessageId,
    /// What this reader is told before the turn.
    pub(crate) backfill: Vec<TurnEvent<'static>>,
    pub(crate) log: Arc<TurnLog>,
}

impl Started {
    /// The turn of this run alone.
    fn of(run: &Run, log: Arc<TurnLog>) -> Self {
        Self { run_id: run.id, message_id: run.assistant_message_id, backfill: Vec::new(), log }
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
        let rate_limit = Arc::new(RateLimit::new(caps.turns_per_minute));
        let (live, tailed) = (LiveTurns::default(), TailedTurns::default());
        let wake = Arc::default();
        Self { store, tasks, agent, approvals, models, approval, caps, rate_limit, live, tailed, wake }
    }

    fn model(&self, id: Option<&str>) -> Option<&Arc<dyn LanguageModel>> {
        match id {
            None => self.models.first(),
            Some(id) => self.models.iter().find(|model| model.id() == id),
        }
    }
}
