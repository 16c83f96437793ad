//! The rate of the log lines about a server, which causes most of them.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of lines in each [`PERIOD`].
const LINES_MAX: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

/// A limit on lines of one source: a few in each period, then their number.
pub(in crate::mcp) struct LogRate {
    server: String,
    /// What the lines are about, for the line with their number.
    about: &'static str,
    state: Mutex<State>,
}

struct State {
    since: Instant,
    lines: u32,
}

impl LogRate {
    pub(in crate::mcp) fn new(server: &str, about: &'static str) -> Self {
        let state = Mutex::new(State { since: Instant::now(), lines: 0 });
        Self { server: server.to_owned(), about, state }
    }

    /// Counts a line. Returns whether it may be written.
    pub(in crate::mcp) fn admits(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let over = state.lines.saturating_sub(LINES_MAX);
        let begins = now.duration_since(state.since) >= PERIOD;
        if begins {
            *state = State { since: now, lines: 0 };
        }
        state.lines = state.lines.saturating_add(1);
        let lines = state.lines;
        drop(state);
        let (server, about) = (&*self.server, self.about);
        if begins && over > 0 {
            tracing::warn!(server, about, left_out = over, "lines about an MCP server were left out");
        }
        if lines == LINES_MAX + 1 {
            tracing::warn!(server, about, "an MCP server causes too many lines; the log counts the rest");
        }
        lines <= LINES_MAX
    }

    /// Logs that a message was left out.
    pub(in crate::mcp) fn left_out(&self) {
        if self.admits() {
            tracing::warn!(
                server = self.server,
                "a message of an MCP server is too long, has too many values, or is no text; it is left out"
            );
        }
    }

    /// Logs that a listing has too many values.
    pub(in crate::mcp) fn tools_left_out(&self) {
        if self.admits() {
            tracing::warn!(
                server = self.server,
                "the definitions of an MCP server have too many values; its last tools are left out"
            );
        }
    }

    /// Logs that a request was left out because of its id.
    pub(in crate::mcp) fn repeated_id(&self) {
        if self.admits() {
            tracing::warn!(
                server = self.server,
                "a request of an MCP server has the id of an earlier one; it is left out"
            );
        }
    }

    /// Logs that a request reaches no person.
    pub(in crate::mcp) fn asks_in_vain(&self) {
        if self.admits() {
            tracing::warn!(
                server = self.server,
                "a request of an MCP server is cancelled: it is no form, its schema has no bound, or its call is not certain"
            );
        }
    }

    /// Logs that a stream of a server is not opened again at once.
    pub(in crate::mcp) fn too_many_streams(&self) {
        if self.admits() {
            tracing::warn!(
                server = self.server,
                "an MCP server ends its streams too often; they are opened again once a second"
            );
        }
    }
}
