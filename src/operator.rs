//! The operator's commands at a terminal, next to running servers: list calls, resolve an interrupted call, list the
//! tools of MCP servers and accept their definitions, purge deleted threads, and fence a database that lost commits.

mod webhooks;

use crate::config::Config;
pub use holdpoint_core::call::{CALL_STATES, WAITING_STATES};
use holdpoint_core::call::{Outcome, StateKind};
use holdpoint_core::decision::Surface;
use holdpoint_core::id::ThreadId;
use holdpoint_core::output::{DEPTH_MAX, Output, is_too_deep};
use holdpoint_core::text::visible::visible;
use holdpoint_core::tool::definition::{DefinitionCause, DefinitionChange, Unaccepted};
use holdpoint_store::{
    self, AcceptOutcome, EstablishOutcome, FencedThread, ListedCall, ListedTool, PurgeProgress, Store,
    StoreError,
};
use serde_json::Value;
use std::time::Duration;
pub use webhooks::WebhookLine;

/// Maximum length of an operator's name and of a reason, in characters.
const TEXT_MAX: usize = 2000;

/// An operator at a terminal, with access to the database of the servers.
#[derive(Debug)]
pub struct Operator {
    store: Store,
    config: Config,
}

/// A call in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLine {
    /// The id of the call.
    pub tool_call_id: String,
    /// The tool of the call.
    pub tool: String,
    /// The state of the call.
    pub state: String,
    /// The tenant of the call's user.
    pub tenant_id: String,
    /// The user of the call, in the tenant.
    pub user_id: String,
    /// The time at which the call entered the state, RFC 3339.
    pub since: String,
}

/// A tool of an MCP server in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLine {
    /// The name of the tool.
    pub tool: String,
    /// `accepted`, or why the definition is not: `changed` or `new`.
    pub definition: String,
    /// The hash of the definition, as the server lists it.
    pub hash: String,
    /// The actor that accepted the definition in force, and the time, RFC 3339; none if none was ever accepted.
    pub accepted: Option<(String, String)>,
    /// How the definition differs from the accepted one: nothing for an accepted one.
    pub changes: Vec<FieldChange>,
}

/// A field of a definition that differs from the accepted one. The texts have no characters that control a terminal
/// besides line ends and tabs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// The name of the field.
    pub field: String,
    /// The accepted value, if there is one.
    pub accepted: Option<String>,
    /// The value now, if there is one.
    pub current: Option<String>,
}

/// The outcome of an interrupted call, as the operator established it.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// The call had its effect and returned this output; null if the output is unknown.
    Succeeded(Value),
    /// The call had no effect, or not the intended one. The text is the error.
    Failed(String),
}

/// The numbers of changes that a fence made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fenced {
    /// Pending calls that are now cancelled.
    pub pending: u64,
    /// Approved calls that had not started and are now cancelled.
    pub approved: u64,
    /// Started calls that are now interrupted, because their outcome is unknown.
    pub interrupted: u64,
    /// Open turns that are now closed.
    pub turns: u64,
    /// Grants that are now revoked.
    pub grants: u64,
    /// Sign-ins that have ended.
    pub sign_ins: u64,
}

/// The numbers of threads that a purge processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Deleted threads that hold nothing any more.
    pub threads: u64,
    /// Deleted threads with unfinished work. The finished content is erased, the rest is not.
    pub unfinished: u64,
}

/// The reason why a command failed. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// An argument is invalid.
    #[error("{field}: {expected}")]
    InvalidArgument {
        /// The name of the argument.
        field: &'static str,
        /// The expected form.
        expected: String,
    },
    /// The call does not exist.
    #[error("there is no tool call {0}")]
    NoCall(String),
    /// The payload of the call is erased, and the call cannot change any more.
    #[error("the tool call {0} was purged; its outcome can no longer be recorded")]
    Purged(String),
    /// The call is not in a state that can be resolved.
    #[error("the tool call {id} is {state}; only an interrupted one can be resolved")]
    NotInterrupted {
        /// The id of the call.
        id: String,
        /// The state of the call.
        state: &'static str,
    },
    /// No MCP server lists the tool.
    #[error("no MCP server lists a tool {0}")]
    NoTool(String),
    /// The server of the tool lists another definition.
    #[error(
        "the definition of {tool} has another hash now: {current}; read it again with `holdpoint tools list`"
    )]
    Moved {
        /// The name of the tool.
        tool: String,
        /// The hash of the definition now.
        current: String,
    },

    /// No server has delivered to a webhook or a recipient of this name.
    #[error("there is no webhook or recipient {0:?}; `holdpoint webhooks list` names them")]
    NoWebhook(String),
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

    /// Returns the newest calls in these states, of all users, and whether there are more.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn calls(&self, states: &[&str], limit: u64) -> Result<(Vec<CallLine>, bool), OperatorError> {
        let states: Vec<StateKind> = states.iter().filter_map(|name| StateKind::of_word(name)).collect();
        let page = self.store.read().await?.calls_in(&states, limit).await?;
        Ok((page.items.into_iter().map(CallLine::of).collect(), page.has_more))
    }

    /// Records the outcome of an interrupted call. The model reads that an operator established the outcome.
    ///
    /// # Errors
    /// Returns an error if an argument is invalid, if the call does not exist, is not interrupted or was
    /// purged, or if the database fails.
    pub async fn resolve(
        &self,
        tool_call_id: &str,
        by: &str,
        finding: &Finding,
        reason: Option<&str>,
    ) -> Result<(), OperatorError> {
        let actor = actor(by)?;
        let reason = reason.map(|reason| checked_text("--reason", reason)).transpose()?;
        let outcome = match finding {
            Finding::Succeeded(output) if is_too_deep(output) => {
                let expected = format!("expected at most {DEPTH_MAX} levels of arrays and objects");
                return Err(OperatorError::InvalidArgument { field: "--succeeded", expected });
            }
            Finding::Succeeded(output) => {
                Outcome::Succeeded(Output::new(output.clone(), self.config.limits.result_bytes))
            }
            Finding::Failed(why) => Outcome::Failed(checked_text("--failed", why)?.to_owned()),
        };
        let no_call = || OperatorError::NoCall(tool_call_id.to_owned());
        let id = tool_call_id.parse().map_err(|_| no_call())?;
        let write = self.store.write().await?;
        let locked = write.lock_call(id).await?.ok_or_else(no_call)?;
        let finding = holdpoint_store::Finding { outcome, actor: &actor, reason, surface: Surface::Terminal };
        match write.establish(&locked, &finding, self.config.limits.result_bytes).await? {
            EstablishOutcome::Now => Ok(write.commit().await?),
            EstablishOutcome::NotInterrupted(state) => {
                Err(OperatorError::NotInterrupted { id: id.to_string(), state: state.word() })
            }
            EstablishOutcome::Erased => Err(OperatorError::Purged(tool_call_id.to_owned())),
        }
    }

    /// Returns the tools that MCP servers list, as the servers of holdpoint saw them last.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn tools(&self) -> Result<Vec<ToolLine>, OperatorError> {
        let tools = self.store.read().await?.listed_tools().await?;
        Ok(tools.into_iter().map(ToolLine::of).collect())
    }

    /// Accepts the definition with this hash, which the server of the tool has to list now. The servers of holdpoint
    /// learn it within seconds.
    ///
    /// # Errors
    /// Returns an error if an argument is invalid, if no MCP server lists the tool, or lists it with another
    /// definition, or if the database fails.
    pub async fn accept(&self, tool: &str, hash: &str, by: &str) -> Result<(), OperatorError> {
        let actor = actor(by)?;
        let write = self.store.write().await?;
        match write.accept_definition(tool, hash, &actor).await? {
            AcceptOutcome::Accepted(_) => Ok(write.commit().await?),
            AcceptOutcome::Moved { current } => Err(OperatorError::Moved { tool: visible(tool), current }),
            AcceptOutcome::NoTool => Err(OperatorError::NoTool(visible(tool))),
        }
    }

    /// Erases the content of threads that were deleted at least this long ago: texts, titles, and the inputs
    /// and results of calls. Every transaction is short and complete in itself, so the purge may be
    /// interrupted and started again. `progress` receives the number of processed threads and the number of all threads.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn purge(
        &self,
        deleted_for: Duration,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Purged, OperatorError> {
        let all = self.store.timed_read().await?.count_threads_to_purge(deleted_for).await?;
        let (mut purged, mut after) = (Purged::default(), None);
        loop {
            let threads = self.store.timed_read().await?.threads_to_purge(deleted_for, after).await?;
            let Some(last) = threads.last() else { return Ok(purged) };
            after = Some(*last);
            for thread in threads {
                let is_complete = self.purge_thread(thread).await?;
                *(if is_complete { &mut purged.threads } else { &mut purged.unfinished }) += 1;
                progress(purged.threads + purged.unfinished, all);
            }
        }
    }

    /// Returns false if work in progress is left in the thread.
    async fn purge_thread(&self, thread: ThreadId) -> Result<bool, OperatorError> {
        loop {
            let write = self.store.write().await?;
            let erased = write.purge_batch(thread).await?;
            write.commit().await?;
            match erased {
                PurgeProgress::Batch => {}
                PurgeProgress::AllFinished => return Ok(false),
                PurgeProgress::All => return Ok(true),
            }
        }
    }
}

/// Fences a database. No server may use the database meanwhile.
#[derive(Debug)]
pub struct Fencer(Store);

impl Fencer {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Returns the number of turns and executions with a valid lease. Zero if the database has one writer,
    /// because then no server can be running.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn leases_held(&self) -> Result<u64, OperatorError> {
        if self.0.has_one_writer() {
            return Ok(0);
        }
        Ok(self.0.timed_read().await?.leases_held().await?)
    }

    /// Closes all open work after a restore, or after a failover that lost commits, so that nothing resumes
    /// automatically: the work may have been done in the time that was lost. The fence may be interrupted and
    /// started again. `progress` receives the number of processed threads and the number of all threads.
    ///
    /// # Errors
    /// Returns an error if the argument is invalid or the database fails.
    pub async fn fence(&self, by: &str, mut progress: impl FnMut(u64, u64)) -> Result<Fenced, OperatorError> {
        let actor = actor(by)?;
        let store = &self.0;
        // A restored database has the sign-ins of people that have signed out since.
        let write = store.write().await?;
        let sign_ins = write.end_all_sign_ins().await?;
        write.commit().await?;
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
        Ok(Fenced { pending, approved, interrupted, turns, grants, sign_ins })
    }
}

impl CallLine {
    fn of(call: ListedCall) -> Self {
        let ListedCall { id, tool, state, tenant_id, user_id, since } = call;
        let (state, since) = (state.word().to_owned(), since.to_rfc3339());
        Self { tool_call_id: id, tool, state, tenant_id, user_id, since }
    }

    /// Returns the fields, in order, in a form that is safe for a terminal. Names from users and models may
    /// contain control characters and invisible characters.
    pub fn cells(&self) -> [String; 6] {
        let Self { tool_call_id, tool, state, tenant_id, user_id, since } = self;
        [tool_call_id, tool, state, tenant_id, user_id, since].map(|text| visible(text))
    }
}

impl ToolLine {
    fn of(tool: ListedTool) -> Self {
        let ListedTool { listed, accepted } = tool;
        let unaccepted = match &accepted {
            Some((_, accepted)) if accepted.hash == listed.hash => None,
            Some((text, _)) => Some(Unaccepted::new(&listed, DefinitionCause::Changed, Some(text))),
            None => Some(Unaccepted::new(&listed, DefinitionCause::New, None)),
        };
        let change = |DefinitionChange { field, accepted, current }| FieldChange {
            field: field.to_owned(),
            accepted,
            current,
        };
        Self {
            tool: listed.tool_name,
            definition: unaccepted.as_ref().map_or("accepted", |it| it.cause.word()).to_owned(),
            hash: listed.hash,
            accepted: accepted.map(|(_, accepted)| (accepted.by, accepted.at.to_rfc3339())),
            changes: unaccepted.into_iter().flat_map(|it| it.changes).map(change).collect(),
        }
    }

    /// Returns the fields, in order, in a form that is safe for a terminal.
    pub fn cells(&self) -> [String; 5] {
        let (by, at) = self.accepted.clone().unwrap_or_default();
        [&self.tool, &self.definition, &by, &at, &self.hash].map(|text| visible(text))
    }
}

fn actor(by: &str) -> Result<String, OperatorError> {
    Ok(format!("user:{}", checked_text("--by", by)?))
}

/// Returns an operator's text, trimmed, if it is valid.
fn checked_text<'a>(field: &'static str, text: &'a str) -> Result<&'a str, OperatorError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > TEXT_MAX || text.chars().any(char::is_control) {
        let expected = format!("expected 1 to {TEXT_MAX} characters, and none that controls a terminal");
        return Err(OperatorError::InvalidArgument { field, expected });
    }
    Ok(text)
}
