//! Numbers: the number that runs is the number that was shown, to the last digit.

mod big_integers;
mod edits;
mod generated;
mod held;
mod rules;
mod surfaces;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::config::{Config, ExactNumbers};
use holdpoint::handlers::{ApprovalHandler, Deferred};
use holdpoint::tools::{DynTool, Permit, ToolError, ToolRegistry, ToolSpec};
use holdpoint_testkit::{Embedded, JsonFields, Turn, probes};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A tool that records its inputs and accepts what its schema accepts.
struct Recorder {
    name: &'static str,
    asks: bool,
    schema: Value,
    ran: RecordedInputs,
}

/// The inputs with which tools ran, in order.
#[derive(Debug, Clone, Default)]
struct RecordedInputs(Arc<Mutex<Vec<Value>>>);

impl RecordedInputs {
    fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    /// The inputs of the last execution, as JSON text.
    fn last(&self) -> String {
        self.0.lock().unwrap().last().map(Value::to_string).unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl DynTool for Recorder {
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::unclassified(self.name, "Writes down its inputs.", self.schema.clone());
        ToolSpec { hil: self.asks, ..spec }
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        let input = Value::Object(permit.input().clone());
        self.ran.0.lock().unwrap().push(input.clone());
        async { Ok(input) }.boxed()
    }
}

/// `transfer` asks and accepts anything. `account` asks and accepts only integers as `account`. `note` runs
/// unasked.
fn tools(app: &Embedded) -> (ToolRegistry, RecordedInputs) {
    let ran = RecordedInputs::default();
    let mut tools = probes(&app.ledger);
    let strict = json!({ "type": "object", "properties": {
        "account": { "type": "integer" }, "lines": { "type": "array", "items": { "type": "integer" } },
        "either": { "type": ["integer", "string"] } } });
    for (name, asks, schema) in [
        ("transfer", true, json!({ "type": "object" })),
        ("account", true, strict),
        ("note", false, json!({ "type": "object" })),
    ] {
        let recorder = Recorder { name, asks, schema, ran: ran.clone() };
        tools.register_dyn(Arc::new(recorder)).unwrap();
    }
    (tools, ran)
}

async fn server_with(
    handler: impl ApprovalHandler,
    change: impl Fn(&mut Config) + Clone,
) -> (Embedded, RecordedInputs) {
    let app = Embedded::start().await;
    let (tools, ran) = tools(&app);
    (app.redeploy_with_handler(handler, tools, change).await, ran)
}

/// A server whose tools record their inputs.
async fn server(change: impl Fn(&mut Config) + Clone) -> (Embedded, RecordedInputs) {
    server_with(Deferred, change).await
}

/// Holds calls with any integers.
fn allow(config: &mut Config) {
    config.approval.exact_numbers = ExactNumbers::Allow;
}

/// Has the model call a tool with exactly this text as its arguments.
async fn calls(app: &Embedded, thread: &str, tool: &str, arguments: &str) -> Turn {
    let id = format!("p{}", app.scene.requests().len());
    app.scene.calls(&[(id, tool.to_owned(), arguments.to_owned())]).answers("I see.");
    let turn = app.client.send_message(thread, "please").await;
    app.scene.forget();
    turn
}

/// The only call of a turn.
async fn call_of(app: &Embedded, turn: &Turn) -> Value {
    let [call] = &turn.all('9')[..] else { panic!("{}", turn.raw) };
    app.client.call(call.text("toolCallId")).await
}

/// Has the model call a tool in a new thread. Returns the thread and the id of the held call.
async fn held(app: &Embedded, tool: &str, arguments: &str) -> (String, String) {
    let thread = app.client.thread().await;
    let turn = calls(app, &thread, tool, arguments).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    (thread, id.clone())
}

/// A decision that approves with these inputs.
fn edit(id: &str, inputs: &str) -> Value {
    let inputs: Value = serde_json::from_str(inputs).unwrap();
    json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs })
}
