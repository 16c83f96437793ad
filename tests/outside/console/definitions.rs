//! Definitions of MCP tools that changed, in the console.

use super::{play, roles};
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::{Embedded, call, eventually, token};
use serde_json::json;

#[tokio::test]
async fn a_card_shows_a_changed_definition_and_an_operator_accepts_it() {
    let steered = SteeredServer::with("act");
    let mut server = Box::pin(Embedded::with(|config: &mut Config| {
        token::with_tokens(config);
        config.auth.operator_roles = roles(&["admin"]);
        config.mcp = vec![steered.entry("s", &json!({}))];
        let rules = ToolRules { approve_roles: roles(&["chief"]), ..ToolRules::default() };
        config.tools.rules.insert("s__act".to_owned(), rules);
    }))
    .await;
    server.client = server.client.as_user("acme", "alice", &[]);
    let tool =
        async || Some(server.client.get("/tools/s__act").await.body).filter(|tool| tool["mcp"].is_object());
    eventually("the tool is there", &tool).await;
    let markup = "<img src=x onerror=\"alert(1)\">";
    let odd = json!({ "name": "odd", "description": "Does it.", "inputSchema": { "type": "string" } });
    steered.lists(&json!([definition("act", &format!("{markup}\nSecond line\u{202e}.")), odd]));
    let changed = async || tool().await.filter(|tool| tool["unaccepted_definition"].is_object());
    eventually("the definition has changed", changed).await;
    server.scene.calls(&[call("p", "s__act", &json!({ "note": "a" }))]);
    let turn = server.client.send_message(&server.client.thread().await, "please").await;
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    let facts = json!({
        "carol": token::token("acme", "carol", &["chief"]),
        "oscar": token::token("acme", "oscar", &["admin"]),
        "markup": markup,
    });
    play("definitions", &server.client.base, facts).await;
    assert_eq!(steered.called(), ["act"]);
    let accepted = server.rows.all("SELECT accepted_by FROM accepted_definitions ORDER BY n").await;
    assert_eq!(
        accepted,
        [json!({ "accepted_by": "system:first_listing" }), json!({ "accepted_by": "user:oscar" })]
    );
}
