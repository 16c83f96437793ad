//! What the tools of a server share: its connection, and the rules of its calls.

use crate::mcp::client::session::connection::Connection;
use crate::mcp::client::session::sessions::Sessions;
use crate::tools::ToolError;
use crate::tools::request_answer::TimeLimit;
use holdpoint_store::permit::Conversation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the tools of a server share.
pub(in crate::mcp) struct Link {
    /// The name of the server.
    pub(in crate::mcp) server: String,
    /// The connection, if there is one now.
    pub(in crate::mcp) connection: watch::Sender<Option<Connected>>,
    /// How long the server has to answer.
    pub(in crate::mcp) timeout: Duration,
    /// The same for a call of a server that reports progress.
    pub(in crate::mcp) limit: TimeLimit,
    /// Whether a call names its user and its conversation.
    pub(in crate::mcp) identity: bool,
    /// Whether the headers may change from one connection to the next.
    pub(in crate::mcp) has_header_files: bool,
    /// How long a call may continue after an answer of the server without a result.
    pub(in crate::mcp) result_deadline: Duration,
}

/// A connection whose tools are listed.
#[derive(Clone)]
pub(in crate::mcp) struct Connected {
    pub(in crate::mcp) connection: Arc<Connection>,
    /// The hashes of the definitions, by the names of the tools at the server.
    pub(in crate::mcp) definitions: Arc<BTreeMap<String, String>>,
    /// The sessions of callers, if the headers name them. Then no call uses the connection itself.
    pub(in crate::mcp) sessions: Option<Arc<Sessions>>,
}

impl Connected {
    /// Returns the connection for the calls of this conversation. After an error nothing of the call was sent.
    pub(in crate::mcp) async fn of(&self, conversation: &Conversation) -> Result<Arc<Connection>, ToolError> {
        match &self.sessions {
            Some(sessions) => sessions.of(conversation).await,
            None => Ok(self.connection.clone()),
        }
    }
}
