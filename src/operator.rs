//! What an operator does at a terminal, beside the servers: looks at calls, says how one went, and fences what a database
//! that lost commits holds as open.

use crate::config::Config;
pub use crate::domain::call::CALL_STATES;
use crate::domain::call::{Outcome, State, ToolCall, established};
use crate::domain::decision::Surface;
use crate::domain::output::{DEPTH_MAX, Output, is_too_deep};
use crate::domain::visible::visible;
use crate::store::{FencedThread, ListedCall, Store, StoreError};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest name of an operator, and longest reason, in characters.
const TEXT_MAX: usize = 2000;

/// The states that wait for a person: one who says yes or no, or one who finds out how a call went.
pub const WAITING_STATES: [&str; 2] = ["pending", "interrupted"];

/// Somebody at a terminal, with the database of the servers.
#[derive(Debug)]
pub struct Operator {
    store: Store,
    config: Config,
}

/// A call in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLine {
    /// Its id.
    pub tool_call_id: String,
    /// Its tool.
    pub tool: String,
    /// Where it stands.
    pub state: String,
    /// The tenant it is of.
    pub tenant_id: String,
    /// The user it is of, in the tenant.
    pub user_id: String,
    /// When it came to stand so, RFC 3339.
    pub since: String,
}

/// How an interrupted call went, as somebody found out.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// It had its effect, and gave this; null where that is not known.
    Succeeded(Value),
    /// It had none, or not the one that was wanted; in these words.
    Failed(String),
}

/// What a fence did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fenced {
    /// Calls that waited for a person, and are cancelled.
    pub pending: u64,
    /// Calls that a person had approved and nobody had begun, and are cancelled.
    pub approved: u64,
    /// Calls that were begun, and are interrupted: nobody knows how they went.
    pub interrupted: u64,
    /// Turns that were under way, and are closed.
    pub turns: u64,
    /// What was to be remembered in sessions, and is not any more.
    pub grants: u64,
}

/// What a purge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Deleted threads that hold nothing any more.
    pub threads: u64,
    /// Deleted threads in which something is still under way: what had finished is erased, the rest is not.
    pub unfinished: u64,
}

/// Why something was not done. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// What was said cannot be taken.
    #[error("{field}: {expected}")]
    Said {
        /// Which of it.
        field: &'static str,
        /// What was expected.
        expected: String,
    },
    /// No such call.
    #[error("there is no tool call {0}")]
    NoCall(String),
    /// Its payload is erased, and nothing of it changes any more.
    #[error("the tool call {0} was purged; its outcome can no longer be recorded")]
    Purged(String),
    /// It does not stand where it could be resolved.
    #[error("the tool call {id} is {state}; only an interrupted one can be resolved")]
    NotInterrupted {
        /// The call.
        id: String,
        /// Where it stands.
        state: &'static str,
    },
    /// The database failed.
    #[error("the database: {0}")]
    Database(String),
}

impl From<StoreError> for OperatorError {
    fn from(error: StoreError) -> Self {
        Self::Database(error.to_string())
    }
}

impl Operator {
    pub(crate) fn new(store: Store, config: Config) -> Self {
        Self { store, config }
    }

    /// The newest calls in these states, whoever they are of, and whether there are more.
    ///
    /// # Errors
    /// The database failed.
    pub async fn calls(&self, states: &[&str], limit: u64) -> Result<(Vec<CallLine>, bool), OperatorError> {
        let page = self.store.read().await?.calls_in(states, limit).await?;
        Ok((page.items.into_iter().map(CallLine::of).collect(), page.has_more))
    }

    /// Says how an interrupted call went. The model is told that an operator established it.
    ///
    /// # Errors
    /// There is no such call, it is not interrupted, or the database failed.
    pub async fn resolve(
        &self,
        tool_call_id: &str,
        by: &str,
        finding: &Finding,
        reason: Option<&str>,
    ) -> Result<(), OperatorError> {
        let actor = actor(by)?;
        let reason = reason.map(|reason| said("--reason", reason)).transpose()?;
        let outcome = match finding {
            Finding::Succeeded(output) if is_too_deep(output) => {
                let expected = format!("expected at most {DEPTH_MAX} levels of arrays and objects");
                return Err(OperatorError::Said { field: "--succeeded", expected });
            }
            Finding::Succeeded(output) => {
                Outcome::Succeeded(Output::new(output.clone(), self.config.limits.result_bytes))
            }
            Finding::Failed(why) => Outcome::Failed(said("--failed", why)?.to_owned()),
        };
        let no_call = || OperatorError::NoCall(tool_call_id.to_owned());
        let id = tool_call_id.parse().map_err(|_| no_call())?;
        let write = self.store.write().await?;
        let call = write.any_call(id).await?.ok_or_else(no_call)?;
        let State::Interrupted(_, execution, _) = &call.state else { return Err(not_interrupted(&call)) };
        let result = established(&outcome, &call, reason, self.config.limits.result_bytes);
        let mut facts = json!({ "surface": Surface::Terminal.as_str(), "resolved_by": "operator" });
        if let (Some(reason), Some(facts)) = (reason, facts.as_object_mut()) {
            facts.insert("reason".to_owned(), json!(reason));
        }
        if write.resolve(id, *execution, &outcome, &result, &actor, facts).await? {
            return Ok(write.commit().await?);
        }
        Err(match write.any_call(id).await? {
            None => no_call(),
            Some(call) if matches!(call.state, State::Interrupted(..)) => {
                OperatorError::Purged(tool_call_id.to_owned())
            }
            // Its own late result was faster.
            Some(call) => not_interrupted(&call),
        })
    }

    /// Erases what the threads hold that were deleted at least this long ago: texts, titles, and the inputs and results
    /// of calls. A transaction per thread; may be interrupted and started again. `progress` gets the number of
    /// threads that are done, and of all.
    ///
    /// # Errors
    /// The database failed.
    pub async fn purge(
        &self,
        deleted_for: Duration,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Purged, OperatorError> {
        let all = self.store.write().await?.count_threads_to_purge(deleted_for).await?;
        let (mut purged, mut after) = (Purged::default(), None);
        loop {
            let threads = self.store.write().await?.threads_to_purge(deleted_for, after).await?;
            let Some(last) = threads.last() else { return Ok(purged) };
            after = Some(*last);
            for thread in threads {
                let write = self.store.write().await?;
                let is_whole = write.purge_thread(thread).await?;
                write.commit().await?;
                *(if is_whole { &mut purged.threads } else { &mut purged.unfinished }) += 1;
                progress(purged.threads + purged.unfinished, all);
            }
        }
    }
}

/// Fences a database from which no server may serve meanwhile.
#[derive(Debug)]
pub struct Fencer(Store);

impl Fencer {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// How many turns and executions say that they are alive, where servers may be at work meanwhile.
    ///
    /// # Errors
    /// The database failed.
    pub async fn leases_held(&self) -> Result<u64, OperatorError> {
        if self.0.has_one_writer() {
            return Ok(0);
        }
        // Dropped, not committed: it only looks.
        Ok(self.0.write().await?.leases_held().await?)
    }

    /// After a restore, or a failover that lost commits: has nothing go on by itself that the database holds as open,
    /// because it may have happened in the time that was lost. May be broken off and begun again. `progress` is told how
    /// many threads are done, and of how many.
    ///
    /// # Errors
    /// The database failed.
    pub async fn fence(&self, by: &str, mut progress: impl FnMut(u64, u64)) -> Result<Fenced, OperatorError> {
        let actor = actor(by)?;
        let store = &self.0;
        let mut grants = 0;
        for session in store.read().await?.remembering_sessions().await? {
            let write = store.write().await?;
            grants += write.fence_session(session, &actor).await?;
            write.commit().await?;
        }
        let open = store.read().await?.open_threads().await?;
        let mut fenced = FencedThread::default();
        for (done, thread) in (1..).zip(&open) {
            let write = store.write().await?;
            fenced += write.fence_thread(*thread, &actor).await?;
            write.commit().await?;
            progress(done, open.len() as u64);
        }
        let FencedThread { pending, approved, interrupted, turns } = fenced;
        Ok(Fenced { pending, approved, interrupted, turns, grants })
    }
}

impl CallLine {
    fn of(call: ListedCall) -> Self {
        let ListedCall { id, tool, state, tenant_id, user_id, since } = call;
        Self { tool_call_id: id, tool, state, tenant_id, user_id, since: since.to_rfc3339() }
    }

    /// What a person may read, in the order of the fields: what users and models named may hold what a terminal obeys, or
    /// does not show.
    pub fn cells(&self) -> [String; 6] {
        let Self { tool_call_id, tool, state, tenant_id, user_id, since } = self;
        [tool_call_id, tool, state, tenant_id, user_id, since].map(|text| visible(text))
    }
}

fn actor(by: &str) -> Result<String, OperatorError> {
    Ok(format!("user:{}", said("--by", by)?))
}

/// A text that somebody gave, if it says something and can be kept.
fn said<'a>(field: &'static str, text: &'a str) -> Result<&'a str, OperatorError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > TEXT_MAX || text.chars().any(char::is_control) {
        let expected = format!("expected 1 to {TEXT_MAX} characters, and none that controls a terminal");
        return Err(OperatorError::Said { field, expected });
    }
    Ok(text)
}

fn not_interrupted(call: &ToolCall) -> OperatorError {
    OperatorError::NotInterrupted { id: call.id.to_string(), state: call.state.as_str() }
}
