//! Events: pages of past events and streams of new ones, in order.

mod backfill;
mod concurrent_writers;
mod numbering;
mod processes;
mod stream;
mod tickets;
mod visibility;
mod websocket;

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::JsonFields;
use holdpoint_testkit::token::with_tokens;
use serde_json::Value;

/// Turns on tokens. A `chief` approves calls of `pay`.
fn office(config: &mut Config) {
    with_tokens(config);
    config.auth.operator_roles = vec!["operator".to_owned()];
    let rules = ToolRules { approve_roles: vec!["chief".to_owned()], ..ToolRules::default() };
    config.tools.rules.insert("pay".to_owned(), rules);
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event.text("type")).collect()
}

fn seqs(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["seq"].as_i64().unwrap()).collect()
}
