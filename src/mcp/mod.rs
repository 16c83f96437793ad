//! MCP servers, whose tools the model may call (`[[mcp]]`).
//!
//! Each process of a deployment connects for itself. A server is not trusted: its hints change nothing, its
//! definitions are checked before they are used and pinned as they were accepted, and it may ask for nothing but the
//! fields of a form. If its headers name who calls, each caller has a session, and the tools are listed on one without a
//! caller. One execution of a call is one `tools/call`, which is repeated only as the server requires, or after
//! the server refused it with the end of its session. A call whose answer is lost has an unknown outcome. If the answer is
//! a task, or asks for input with a state, the call has an owner, and any process continues the call.

#[cfg(feature = "mcp")]
mod client;
mod names;

#[cfg(feature = "mcp")]
pub(crate) use client::Server;
pub(crate) use names::{announced, local_name};
