//! The client of MCP servers.

mod caller;
mod definitions;
mod entry;
mod failure;
mod link;
mod log;
mod message;
mod remote_work;
mod server;
mod session;
mod tool;
mod transport;

pub(crate) use server::Server;
