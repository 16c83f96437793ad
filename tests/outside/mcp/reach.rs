//! The addresses of servers, and what a server over HTTP learns and may do.

use super::{entry, no_tool};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, RemoteTool, ServiceAction, eventually};
use serde_json::json;

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_headers_go_to_the_named_address_alone() {
    let elsewhere = RemoteTool::start(ServiceAction::answers(200, "{}")).await;
    let remote = RemoteTool::start(ServiceAction::Redirects(elsewhere.base.clone())).await;
    let lines =
        json!({ "name": "s", "url": format!("{}/mcp", remote.base), "headers": { "x-key": "hunter2" } });
    let change = |config: &mut Config| {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.mcp = vec![entry(&lines)];
    };
    let server = Box::pin(Embedded::with(change)).await;
    let asked = async || remote.received().first().cloned();
    let first = eventually("the server is asked", asked).await;
    assert_eq!(first.header("x-key"), "hunter2");
    no_tool(&server.client, "s__any").await;
    assert!(elsewhere.received().is_empty());
}
