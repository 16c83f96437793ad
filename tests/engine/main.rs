//! holdpoint at work: turns, runs, decisions, executions and deliveries, across crashes and processes.
#![cfg(test)]

mod client_disconnects;
mod decisions;
mod executions;
mod faults;
mod grants;
mod handlers;
mod http_tools;
mod mail;
mod policy;
mod processes;
mod runs;
mod slack;
mod stories;
mod subagents;
mod templates;
mod tool_requests;
mod webhooks;
mod workers;

holdpoint_testkit::child_servers!();
