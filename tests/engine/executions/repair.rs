//! Repairs of arguments (`tools.repair`): what a person decides and what runs is repaired, and the model reads its own words.

use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::config::Config;
use holdpoint::llm::ModelMessage;
use holdpoint::tools::{DynTool, Permit, ToolError, ToolRegistry, ToolSpec};
use holdpoint_testkit::{Embedded, JsonFields, Ledger, Turn, call};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool with optional inputs and a list.
struct SendMail {
    name: &'static str,
    /// Whether the subject is secret.
    secret: bool,
    ledger: Ledger,
}

impl DynTool for SendMail {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "required": ["to"], "additionalProperties": false, "properties": {
            "to": { "type": "array", "items": { "type": "string" } },
            "subject": { "type": "string", "writeOnly": self.secret },
        } });
        ToolSpec::unclassified(self.name, "Sends mail.", schema)
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.ledger.write(Value::Object(permit.input().clone()).to_string());
        async { Ok(json!("sent")) }.boxed()
    }
}

async fn server(repair: bool) -> (Embedded, Ledger) {
    let ledger = Ledger::new();
    let mut tools = ToolRegistry::new();
    for (name, secret) in [("send", false), ("confide", true)] {
        tools.register_dyn(Arc::new(SendMail { name, secret, ledger: ledger.clone() })).unwrap();
    }
    let change = |config: &mut Config| config.tools.repair = repair;
    let server = Embedded::start().await.redeploy_with(tools, change).await;
    (server, ledger)
}

/// What the model writes.
fn written() -> Value {
    json!({ "to": "[\"ann\", \"bob\"]", "subject": null })
}

async fn proposed(server: &Embedded, thread: &str, id: &str, tool: &str) -> Turn {
    server.scene.calls(&[call(id, tool, &written())]);
    server.client.send_message(thread, "tell them").await
}

/// The inputs of the calls in the last request to the model.
fn history(server: &Embedded) -> Vec<Value> {
    let last = server.scene.growing_requests().pop().unwrap();
    let calls = last.messages.into_iter().filter_map(|message| match message {
        ModelMessage::Assistant { calls, .. } => Some(calls),
        _ => None,
    });
    calls.flatten().map(|call| Value::Object(call.input)).collect()
}

#[tokio::test]
async fn a_repaired_call_is_shown_and_run_repaired_and_the_model_reads_its_own_words() {
    let (server, ledger) = server(true).await;
    let thread = server.client.thread().await;
    let turn = proposed(&server, &thread, "p", "send").await;
    let repaired = json!({ "to": ["ann", "bob"] });
    assert_eq!(turn.one('9')["args"], repaired);
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let card = server.client.call(id).await;
    assert_eq!(
        json!([card["input"], card["model_input"], card["state"]]),
        json!([repaired, written(), "pending"])
    );
    assert_eq!(server.client.approve(id).await.body["state"], "succeeded");
    assert_eq!(ledger.lines(), [repaired.to_string()]);
    server.scene.answers("Sent.");
    server.client.resume(&thread).await;
    assert_eq!(history(&server), [written()]);

    // After an edit the model reads what ran.
    let turn = proposed(&server, &thread, "q", "send").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let edited = json!({ "to": ["ann"] });
    let decision = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": edited });
    assert_eq!(server.client.validate(&decision).await.body["state"], "succeeded");
    server.scene.answers("Sent to one.");
    server.client.resume(&thread).await;
    assert_eq!(history(&server), [written(), edited]);
    assert_eq!(ledger.lines().len(), 2);

    // Both are erased with the thread.
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    server.operate(&["purge", "--older-than", "0s"]).stdout_of_success();
    let rows = server.rows.all("SELECT DISTINCT arguments, model_arguments FROM tool_calls").await;
    assert_eq!(rows, [json!({ "arguments": "{}", "model_arguments": "{}" })]);
}

#[tokio::test]
async fn what_a_model_wrote_to_a_tool_with_secrets_is_not_shown() {
    let (server, _ledger) = server(true).await;
    let thread = server.client.thread().await;
    let turn = proposed(&server, &thread, "p", "confide").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let card = server.client.call(id).await;
    assert_eq!(json!([card["input"], card.get("model_input")]), json!([{ "to": ["ann", "bob"] }, null]));
}

#[tokio::test]
async fn without_the_switch_a_call_that_does_not_fit_is_invalid() {
    let (server, ledger) = server(false).await;
    let thread = server.client.thread().await;
    server.scene.calls(&[call("p", "send", &written())]).answers("I cannot.");
    let turn = server.client.send_message(&thread, "tell them").await;
    let id = turn.one('9').text("toolCallId");
    let card = server.client.call(id).await;
    assert_eq!(json!([card["state"], card.get("model_input")]), json!(["invalid", null]));
    assert!(card.text("result").contains("/to"), "{card}");
    assert_eq!(ledger.lines(), Vec::<String>::new());
}
