//! The messages of a server, read item by item.

pub(in crate::mcp) mod greeting;
pub(in crate::mcp) mod lines;
pub(in crate::mcp) mod output;
pub(in crate::mcp) mod raw;
pub(in crate::mcp) mod readable;
