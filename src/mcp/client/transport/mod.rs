//! How messages reach a server: a process, streamable HTTP, or HTTP with SSE.

pub(in crate::mcp) mod authorization;
pub(in crate::mcp) mod calls;
pub(in crate::mcp) mod http;
pub(in crate::mcp) mod metadata;
pub(in crate::mcp) mod process;
#[cfg(test)]
pub(in crate::mcp) mod silent;
pub(in crate::mcp) mod sse;
pub(in crate::mcp) mod watched;
