//! What the tools of a server are: their definitions, checked, usable and pinned.

pub(in crate::mcp) mod definition;
pub(in crate::mcp) mod input_schema;
pub(in crate::mcp) mod pins;
pub(in crate::mcp) mod usable;
