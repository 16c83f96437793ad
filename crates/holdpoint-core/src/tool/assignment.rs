//! Assignments: the work that a call delegates to a sub-agent.

/// A child thread to create for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The title of the thread.
    pub title: String,
    /// The task of the child: its user message.
    pub task: String,
    /// The instructions for the child's model, which replace the server's system prompt.
    pub instructions: Option<String>,
    /// The child's tools, a subset of the tools that the call's run has. `None`: all tools of that run.
    pub tools: Option<Vec<String>>,
}
