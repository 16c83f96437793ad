//! Tools with secret inputs, and calls of them.

use crate::{Embedded, Ledger, call, probes};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::config::Config;
use holdpoint::tools::{DynTool, Permit, RiskLevel, ToolError, ToolRegistry, ToolSpec};
use serde_json::{Value, json};
use std::sync::Arc;

/// The text in place of a secret.
pub const MASK: &str = "•••";
/// What no person reads before it is opened.
pub const SECRETS: [&str; 4] = ["hunter2-canary", "48151623", "tok-canary-one", "tok-canary-two"];

/// A tool with secrets in several places.
pub struct Login {
    pub name: &'static str,
    pub asks: bool,
    pub risk: RiskLevel,
    pub ledger: Ledger,
}

impl DynTool for Login {
    fn spec(&self) -> ToolSpec {
        let secret = json!({ "type": "string", "writeOnly": true });
        let schema = json!({
            "type": "object",
            "properties": {
                "user": { "type": "string" },
                "password": { "type": "string", "format": "password" },
                "card": { "type": "object", "properties": {
                    "holder": { "type": "string" }, "pin": { "type": "integer", "writeOnly": true },
                } },
                "keys": { "type": "array", "items": { "$ref": "#/$defs/key" } },
            },
            "required": ["user"],
            "additionalProperties": false,
            "$defs": { "key": { "type": "object", "properties": { "name": {}, "token": secret } } },
        });
        ToolSpec {
            hil: self.asks,
            risk: self.risk,
            headline: Some("Log {user} in with {password}?".to_owned()),
            ..ToolSpec::unclassified(self.name, "Logs in.", schema)
        }
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.ledger.write(Value::Object(permit.input().clone()).to_string());
        async { Ok(json!({ "logged": "in" })) }.boxed()
    }
}

/// The probes, `login` (high risk), `login_low` (low risk) and `login_now`, which does not ask.
pub fn tools(ledger: &Ledger) -> ToolRegistry {
    let mut tools = probes(ledger);
    for (name, asks, risk) in [
        ("login", true, RiskLevel::High),
        ("login_low", true, RiskLevel::Low),
        ("login_now", false, RiskLevel::Low),
    ] {
        tools.register_dyn(Arc::new(Login { name, asks, risk, ledger: ledger.clone() })).unwrap();
    }
    tools
}

/// A server with these tools.
pub async fn server(change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let tools = tools(&app.ledger);
    app.redeploy_with(tools, change).await
}

/// The inputs of a call, with every secret.
pub fn input() -> Value {
    json!({
        "user": "ada", "password": SECRETS[0], "card": { "holder": "Ada", "pin": 48_151_623 },
        "keys": [{ "name": "one", "token": SECRETS[2] }, { "name": "two", "token": SECRETS[3] }],
    })
}

/// The same inputs as people read them.
pub fn masked() -> Value {
    json!({
        "user": "ada", "password": MASK, "card": { "holder": "Ada", "pin": MASK },
        "keys": [{ "name": "one", "token": MASK }, { "name": "two", "token": MASK }],
    })
}

/// The places of the secrets.
pub fn pointers() -> Value {
    json!(["/card/pin", "/keys/0/token", "/keys/1/token", "/password"])
}

/// A call of this tool that waits.
pub async fn held(app: &Embedded, tool: &str) -> String {
    app.scene.calls(&[call(&format!("{tool}-call"), tool, &input())]);
    let turn = app.client.send_message(&app.client.thread().await, "log in").await;
    assert_hidden(&turn.raw);
    turn.pending().remove(0)
}

#[track_caller]
pub fn assert_hidden(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

pub async fn revealed(client: &crate::Client, id: &str) -> crate::Answer {
    client.send(client.http.post(client.url(&format!("/tool_calls/{id}/reveal")))).await
}
