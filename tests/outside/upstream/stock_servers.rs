//! The tools of five MCP servers from npm, in one request: the strict servers take all of them.

use super::{Stage, on_each_wire};
use crate::mcp::STOCK;
use holdpoint_testkit::Wire;
use serde_json::json;

async fn a_turn_has_every_tool_of_five_servers_from_npm(wire: Wire) {
    let change = |config: &mut holdpoint::config::Config| {
        config.tools.demo = false;
        config.mcp = STOCK.iter().map(|server| server.entry(None)).collect();
    };
    let stage = Stage::with_config(wire, json!({}), change).await;
    for server in STOCK {
        server.is_listed(&stage.app.client).await;
    }
    // A fault in the request would be refused, and found when the stage ends.
    stage.upstream.words("I see.");
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "I see.", "{wire:?}: {}", turn.raw);
    let request = stage.upstream.requests().remove(0);
    let offered = wire.read(&request.body).unwrap().tools;
    for server in STOCK {
        for tool in server.tools {
            let name = format!("{}__{tool}", server.name);
            assert!(offered.contains(&name), "{wire:?}: {name}");
        }
    }
    let of_servers = offered.iter().filter(|name| name.contains("__")).count();
    assert_eq!(of_servers, STOCK.iter().map(|server| server.tools.len()).sum::<usize>(), "{wire:?}");
}

on_each_wire!(side by side a_turn_has_every_tool_of_five_servers_from_npm);
