//! One session with a server, and the sessions of callers.

pub(in crate::mcp) mod connection;
pub(in crate::mcp) mod elicitation;
pub(in crate::mcp) mod handler;
pub(in crate::mcp) mod handshake;
pub(in crate::mcp) mod sessions;
