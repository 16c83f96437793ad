//! holdpoint among other programs: pages and their SDKs, browsers, terminals, proxies, model servers and MCP servers.
#![cfg(test)]

mod browser;
mod console;
mod mcp;
mod native_approval;
mod pages;
mod providers;
mod real_clients;
mod sign_in;
mod streaming;
mod terminal;
mod transport;
mod upstream;

holdpoint_testkit::child_servers!();
