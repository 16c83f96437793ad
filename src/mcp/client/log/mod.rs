//! What is logged of a server: at a bounded rate, without secrets.

pub(in crate::mcp) mod log_rate;
pub(in crate::mcp) mod pace;
pub(in crate::mcp) mod redaction;
pub(in crate::mcp) mod stderr;
