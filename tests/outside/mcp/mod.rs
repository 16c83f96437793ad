//! Tools of MCP servers, with servers from npm (`tests/mcp`).

mod callers;
mod configuration;
mod conformance;
mod crashes;
mod earlier;
mod elicitation;
mod everything;
mod exact;
mod files;
mod floods;
mod hostile;
mod oauth;
mod odd;
mod pins;
mod progress;
mod python;
mod reach;
mod rooms;
mod rounds;
mod schema;
mod sessions;
mod stock;
mod tasks;

pub(crate) use stock::STOCK;

use holdpoint_testkit::mcp::{
    Deployment, SteeredServer, approved, definition, entry, hold, no_tool, node, packages, program, tool,
    turn, with,
};
