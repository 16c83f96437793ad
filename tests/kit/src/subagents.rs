//! Servers with sub-agents, and the calls that their children hold.

use crate::{Clerk, Client, Embedded, add_agents, eventually, probes};
use holdpoint::config::Config;
use std::time::Duration;

/// A server with sub-agents among its tools.
pub async fn with_agents(change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    add_agents(&mut tools);
    tools.register_sub_agent(Clerk).unwrap();
    app.redeploy_with(tools, change).await
}

/// A server without periodic sweeps: these tests rely on immediate wakes only.
pub async fn start() -> Embedded {
    with_agents(unwatchful).await
}

pub fn unwatchful(config: &mut Config) {
    config.approval.sweep = Duration::from_secs(3600);
}

/// The one pending call in the session of this root thread, once it exists.
pub async fn hold_in(client: &Client, session: &str) -> String {
    let found = async || {
        let held = client.get(&format!("/sessions/{session}/approvals?state=pending")).await.body;
        held["results"][0]["tool_call_id"].as_str().map(str::to_owned)
    };
    eventually("a call waits in the session", found).await
}
