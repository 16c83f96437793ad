//! Tools that MCP servers have.

/// The place of a tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The name of the server in the configuration.
    pub server: String,
    /// The name of the tool at the server.
    pub tool: String,
}
