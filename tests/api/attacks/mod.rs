//! Attacks by another user, a page, a model or a tool, each named by its id in `docs/threats.md`. An attack
//! must not change the response, the rows, the executed calls or the model's context.

mod approvals_forged;
mod authority_forged;
mod database;
mod database_roles;
mod inputs_forged;
mod model_text;
mod pages_forged;
mod races;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::llm::ModelMessage;
use holdpoint::tools::{DynTool, Permit, RegistryError, ToolError, ToolRegistry, ToolSpec};
use holdpoint_testkit::{Embedded, probes};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// An id that identifies nothing.
const UNKNOWN_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A marker in every forged text.
const FORGED: &str = "FORGED";

/// All rows of the tables that an attack could change, but the records of refused decisions.
async fn everything(app: &Embedded) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for table in [
        "threads",
        "messages",
        "message_steps",
        "runs",
        "tool_calls",
        "decisions",
        "sent_answers",
        "events WHERE type <> 'tool.decision_refused'",
    ] {
        all.push(app.rows.all(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
    }
    all
}

/// Asserts that the server still works: a call is held, approved and run.
async fn assert_server_works(app: &Embedded) {
    let ran = app.ledger.lines().len();
    let (thread, id) = app.held("pay", "1").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines()[ran..], ["pay 1"]);
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
}

fn user(words: &str) -> Value {
    json!({ "role": "user", "content": words })
}

fn user_message(words: &str) -> ModelMessage {
    ModelMessage::User(words.to_owned())
}

fn last_request(app: &Embedded) -> Vec<ModelMessage> {
    app.scene.requests().pop().unwrap().messages
}

/// The operations of the OpenAPI document: method, path, and whether the operation takes a body.
fn operations() -> Vec<(String, String, bool)> {
    let document: Value = serde_json::from_str(include_str!("../../../openapi/holdpoint-full.json")).unwrap();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            if let Some(operation) = item.get(method) {
                let body = operation.get("requestBody").is_some();
                all.push((method.to_uppercase(), path.clone(), body));
            }
        }
    }
    assert!(all.len() >= 16, "{all:?}");
    all
}

/// A dynamic tool that returns its input. With the input `fail`, the tool fails with that text.
struct Echo {
    schema: Value,
    ran: Arc<Mutex<Vec<Value>>>,
}

impl DynTool for Echo {
    fn spec(&self) -> ToolSpec {
        ToolSpec::unclassified("echo", "Gives back what it gets.", self.schema.clone())
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        let input = Value::Object(permit.input().clone());
        self.ran.lock().unwrap().push(input.clone());
        let fails = input["fail"].as_str().map(ToolError::new);
        async { fails.map_or(Ok(input), Err) }.boxed()
    }
}

/// Registers `echo` with this schema and returns the inputs of its executions.
fn echo(tools: &mut ToolRegistry, schema: Value) -> Result<Arc<Mutex<Vec<Value>>>, RegistryError> {
    let ran = Arc::default();
    tools.register_dyn(Arc::new(Echo { schema, ran: Arc::clone(&ran) }))?;
    Ok(ran)
}

/// A server with the tool `echo` of this schema, and the inputs that `echo` ran with.
async fn with_echo(schema: Value) -> (Embedded, Arc<Mutex<Vec<Value>>>) {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    let ran = echo(&mut tools, schema).unwrap();
    (app.redeploy(tools).await, ran)
}

/// Has the model call `echo` with this input. Returns the thread, the raw stream and the call id.
async fn held_echo(app: &Embedded, input: &Value) -> (String, String, String) {
    let thread = app.client.thread().await;
    app.scene.calls(&[holdpoint_testkit::call("e", "echo", input)]);
    let turn = app.client.send_message(&thread, "echo").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let id = id.clone();
    (thread, turn.raw, id)
}
