//! What a call gives a sub-agent to do.

/// A child thread to begin, for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The thread's title.
    pub(crate) title: String,
    /// What the child is asked: its user message.
    pub(crate) task: String,
    /// What its model is told of itself, in place of the server's own.
    pub(crate) instructions: Option<String>,
    /// Its tools, of those that the run of the call has; or all of these.
    pub(crate) tools: Option<Vec<String>>,
}
