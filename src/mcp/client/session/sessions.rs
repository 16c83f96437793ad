//! The sessions of a server whose headers name who calls: one for each caller.
//!
//! A session is used for the caller whose values it began with, and for no other one. Sessions that no call uses are
//! closed to make room, the one that was used longest ago first.

use crate::agent::Tasks;
use crate::mcp::client::caller::Caller;
use crate::mcp::client::entry::Entry;
use crate::mcp::client::session::connection::Connection;
use crate::tools::ToolError;
use holdpoint_store::permit::Conversation;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Maximum number of sessions of a server, besides the one that lists its tools.
const SESSIONS_MAX: usize = 64;
/// A session that was not used for as long is closed at the next call of any caller.
const UNUSED_MAX: Duration = Duration::from_secs(10 * 60);

pub(in crate::mcp) struct Sessions {
    entry: Arc<Entry>,
    tasks: Tasks,
    all: Mutex<Vec<Session>>,
}

struct Session {
    caller: Caller,
    /// Locked while the session begins.
    slot: Slot,
    used_at: Instant,
}

/// The connection of a session, once it is open.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

impl Session {
    /// Whether no call uses the session. Its users hold its slot or its connection.
    fn is_unused(&self) -> bool {
        let is_free =
            |now: &Option<Arc<Connection>>| now.as_ref().is_none_or(|it| Arc::strong_count(it) == 1);
        Arc::strong_count(&self.slot) == 1 && self.slot.try_lock().is_ok_and(|now| is_free(&now))
    }
}

impl Sessions {
    /// None so far. They end with their last holder.
    pub(in crate::mcp) fn new(entry: Arc<Entry>, tasks: Tasks) -> Self {
        Self { entry, tasks, all: Mutex::default() }
    }

    /// Returns the session of the caller of this conversation, and begins it if there is none that can be used. After an
    /// error nothing of the call was sent.
    pub(in crate::mcp) async fn of(&self, conversation: &Conversation) -> Result<Arc<Connection>, ToolError> {
        let failed = |why: String| ToolError::new(format!("{why}; the tool did not run"));
        let headers = self.entry.headers().ok_or_else(|| failed("its server has no headers".to_owned()))?;
        let caller = headers.caller(conversation).map_err(failed)?;
        let slot =
            self.slot(&caller).ok_or_else(|| failed("its server has too many sessions now".to_owned()))?;
        let begun = timeout(self.entry.timeout / 2, self.begun(&slot, &caller)).await;
        let begun = begun.unwrap_or_else(|_elapsed| Err("it did not answer in time".to_owned()));
        begun.map_err(|why| {
            if self.entry.log.admits() {
                let server = &self.entry.config.name;
                tracing::warn!(server, why, "could not begin the session of a caller with an MCP server");
            }
            failed(format!("its server began no session for this call: {}", self.entry.redaction.words(why)))
        })
    }

    async fn begun(&self, slot: &Slot, caller: &Caller) -> Result<Arc<Connection>, String> {
        let mut now = slot.lock().await;
        if let Some(connection) = now.as_ref().filter(|connection| !connection.is_lost()) {
            return Ok(connection.clone());
        }
        // The lost one closes before the next one begins, unless a call waits for its answer.
        *now = None;
        let connection = Arc::new(Box::pin(Connection::open(&self.entry, &self.tasks, Some(caller))).await?);
        *now = Some(connection.clone());
        Ok(connection)
    }

    /// Returns the place of a caller. `None` if there is no room.
    fn slot(&self, caller: &Caller) -> Option<Slot> {
        let now = Instant::now();
        let mut all = self.all.lock();
        if let Some(session) = all.iter_mut().find(|session| session.caller == *caller) {
            session.used_at = now;
            return Some(session.slot.clone());
        }
        all.retain(|session| now.duration_since(session.used_at) < UNUSED_MAX || !session.is_unused());
        if all.len() >= SESSIONS_MAX {
            let unused = all.iter().enumerate().filter(|(_, session)| session.is_unused());
            let (place, _) = unused.min_by_key(|(_, session)| session.used_at)?;
            all.swap_remove(place);
        }
        let slot = Slot::default();
        all.push(Session { caller: caller.clone(), slot: slot.clone(), used_at: now });
        Some(slot)
    }
}
