//! Assignments: the work that a call delegates to a sub-agent.

/// A child thread to create for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The title of the thread.
    pub(crate) title: String,
    /// The task of the child: its user message.
    pub(crate) task: String,
    /// The instructions for the child's model, which replace the server's system prompt.
    pub(crate) instructions: Option<String>,
    /// The child's tools, a subset of the tools that the call's run has. `None`: all tools of that run.
    pub(crate) tools: Option<Vec<String>>,
}
