//! Chat: one turn end to end.
//!
//! A request says what it wants ([`Ask`]); [`Chat::ask`] finds or makes the run in one transaction and starts
//! the turn in a task of its own, which goes on when the client goes away. What the turn says is kept in a
//! [`TurnLog`], from which any number of clients read.

mod answers;
mod ask;
mod attach;
mod cancel;
mod children;
mod follow;
mod intent;
pub(crate) mod live;
mod runner;
mod turn;
mod waiting;

pub(crate) use ask::{Ask, AskError, DEFAULT_TITLE, PostedAnswer, PostedMessage, ThreadName, Wants};
pub(crate) use cancel::CancelRunError;

use crate::agent::{Agent, Tasks};
use crate::approvals::Approvals;
use crate::config;
use crate::domain::id::{MessageId, RunId};
use crate::domain::run::Run;
use crate::domain::turn::TurnEvent;
use crate::llm::LanguageModel;
use crate::pace::Pace;
use crate::store::Store;
use follow::FollowedTurns;
use live::{LiveTurns, TurnLog};
use std::sync::Arc;
use tokio::sync::Notify;

/// The chat of one server.
#[derive(Debug, Clone)]
pub(crate) struct Chat {
    store: Store,
    tasks: Tasks,
    agent: Agent,
    approvals: Approvals,
    /// The first is the default.
    models: Arc<[Arc<dyn LanguageModel>]>,
    settings: config::Approval,
    caps: config::Caps,
    /// How often one user may have the model asked.
    pace: Arc<Pace>,
    live: LiveTurns,
    followed: FollowedTurns,
    /// A turn of this process has paused: its run may be one that the server goes on with. Or it has ended, or somebody
    /// stopped a run: others may wait for that.
    paused: Arc<Notify>,
}

/// A turn under way, to read along.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) run_id: RunId,
    /// The message that is written.
    pub(crate) message_id: MessageId,
    /// What this reader is told before the turn.
    pub(crate) before: Vec<TurnEvent<'static>>,
    pub(crate) log: Arc<TurnLog>,
}

impl Started {
    /// The turn of this run alone.
    fn of(run: &Run, log: Arc<TurnLog>) -> Self {
        Self { run_id: run.id, message_id: run.assistant_message_id, before: Vec::new(), log }
    }
}

impl Chat {
    pub(crate) fn new(
        store: Store,
        tasks: Tasks,
        agent: Agent,
        approvals: Approvals,
        models: Arc<[Arc<dyn LanguageModel>]>,
        settings: config::Approval,
        caps: config::Caps,
    ) -> Self {
        let pace = Arc::new(Pace::new(caps.turns_per_minute));
        let (live, followed) = (LiveTurns::default(), FollowedTurns::default());
        let paused = Arc::default();
        Self { store, tasks, agent, approvals, models, settings, caps, pace, live, followed, paused }
    }

    fn model(&self, id: Option<&str>) -> Option<&Arc<dyn LanguageModel>> {
        match id {
            None => self.models.first(),
            Some(id) => self.models.iter().find(|model| model.id() == id),
        }
    }
}
