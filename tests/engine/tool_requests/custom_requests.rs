//! Requests of tools that the application itself has (`Permit::ask`).

use futures::FutureExt;
use holdpoint::config::Config;
use holdpoint::handlers::{
    ApprovalHandler, ApprovalRequest, BoxFuture, Deferred, HandlerAnswer, HandlerError, InputAnswer,
    InputRequest, RequestKind,
};
use holdpoint::tools::{Answer, Input, Permit, RiskLevel, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::{Client, Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

const SEAT: &str = "canary-12F";

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Flight {
    number: String,
}

fn schema() -> Input {
    let properties = json!({ "seats": { "type": "array", "items": { "type": "string" }, "minItems": 1 } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["seats"] });
    schema.as_object().unwrap().clone()
}

/// Asks for seats, and returns the kind of the answer and the number of the seats.
async fn book<T: ?Sized>(flight: Flight, permit: &Permit<T>) -> Value {
    match permit.ask(&format!("Which seats of {}?", flight.number), schema()).await {
        Answer::Accept(content) => json!(["accept", content.list("seats").len()]),
        Answer::Decline => json!("decline"),
        Answer::Cancel => json!("cancel"),
    }
}

macro_rules! booking {
    ($type:ident, $name:literal, hil: $hil:literal) => {
        struct $type;

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "Books seats.";
            const HIL: bool = $hil;
            const RISK: RiskLevel = RiskLevel::Low;
            type Input = Flight;
            type Output = Value;

            async fn execute(&self, input: Flight, permit: Permit<Self>) -> Result<Value, ToolError> {
                Ok(book(input, &permit).await)
            }
        }
    };
}

booking!(Book, "book", hil: true);
booking!(Reserve, "reserve", hil: false);

async fn server(handler: impl ApprovalHandler, change: impl FnOnce(&mut Config)) -> Embedded {
    let mut tools = ToolRegistry::new();
    tools.register(Book).unwrap();
    tools.register(Reserve).unwrap();
    let change = |config: &mut Config| {
        config.approval.wait = Duration::ZERO;
        change(config);
    };
    // The database stays the one of the tests.
    let started = Box::pin(Embedded::start()).await;
    Box::pin(started.redeploy_with_handler(handler, tools, change)).await
}

/// Has the model call `book`, and approves the call. Returns its id.
async fn running(server: &Embedded, number: &str) -> String {
    let thread = server.client.thread().await;
    server.scene.calls(&[call("p", "book", &json!({ "number": number }))]);
    let turn = server.client.send_message(&thread, "please").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let approved = server.client.approve(id).await;
    assert!(matches!(approved.status, 200 | 202), "{:?}", approved.body);
    id.clone()
}

async fn open(client: &Client) -> Value {
    let found = async || {
        let listed = client.get("/tool_requests").await;
        listed.body.list("results").first().cloned()
    };
    eventually("the tool asks", found).await
}

async fn answer(client: &Client, request: &Value, body: &Value) -> holdpoint_testkit::Answer {
    let id = request.text("request_id");
    client.post(&format!("/tool_requests/{id}/answer"), body).await
}

#[tokio::test]
async fn a_tool_asks_with_a_schema_of_its_own_and_its_content_goes_to_the_tool_alone() {
    let server = server(Deferred, |_| {}).await;
    let id = running(&server, "LH\u{202e}1").await;
    let request = open(&server.client).await;
    for (field, expected) in [
        ("tool_call_id", json!(id)),
        ("tool_name", json!("book")),
        ("mcp", Value::Null),
        ("kind", json!("custom")),
        ("message", json!("Which seats of LH\\u{202e}1?")),
        ("schema", Value::Object(schema())),
        ("state", json!("open")),
    ] {
        assert_eq!(request[field], expected, "{field} of {request}");
    }
    for wrong in [json!({ "seats": [] }), json!({ "seats": [1] }), json!({ "seats": [SEAT], "meal": "none" })]
    {
        let refused =
            answer(&server.client, &request, &json!({ "action": "accept", "content": wrong })).await;
        refused.failed_with(422, "invalid_inputs");
    }
    assert_eq!(server.client.call(&id).await["state"], "executing");
    let accept = json!({ "action": "accept", "content": { "seats": [SEAT, "12E"] } });
    answer(&server.client, &request, &accept).await.has_status(200);
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], json!(["accept", 2]));
    for table in ["events", "tool_calls", "tool_requests", "decisions"] {
        let rows = Value::from(server.rows.all(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains(SEAT), "{table}: {rows}");
    }
    let events = server.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let kinds: Vec<_> = events.list("results").iter().map(|event| &event["data"]["kind"]).collect();
    assert_eq!(kinds.iter().filter(|kind| ***kind == "custom").count(), 2, "{events}");
}

#[tokio::test]
async fn a_tool_learns_that_its_request_was_declined_cancelled_or_not_answered_in_time() {
    let server = server(Deferred, |config| config.tools.timeout = Duration::from_secs(3)).await;
    for action in ["decline", "cancel"] {
        let id = running(&server, action).await;
        let request = open(&server.client).await;
        // Longer than the time limit of the call: the passing of time is what is tested.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        answer(&server.client, &request, &json!({ "action": action })).await.has_status(200);
        assert_eq!(server.client.becomes(&id, "succeeded").await["output"], action);
    }
    let change = |config: &mut Config| {
        config.approval.wait = Duration::ZERO;
        config.approval.answer_timeout = Duration::from_secs(1);
    };
    let mut tools = ToolRegistry::new();
    tools.register(Book).unwrap();
    let server = Box::pin(server.redeploy_with(tools, change)).await;
    let id = running(&server, "late").await;
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "cancel");
    let states = server.rows.all("SELECT state FROM tool_requests ORDER BY request_id").await;
    assert_eq!(states, ["declined", "cancelled", "expired"].map(|state| json!({ "state": state })));
}

/// A handler that answers requests of the kind `Custom`.
struct Clerk;

impl ApprovalHandler for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn ask(&self, _: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        async { Ok(HandlerAnswer::Deferred) }.boxed()
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Result<InputAnswer, HandlerError>> {
        async move {
            if request.kind != RequestKind::Custom {
                return Ok(InputAnswer::Deferred);
            }
            let content = json!({ "seats": [format!("{} for {}", SEAT, request.tool_name)] });
            Ok(InputAnswer::Accepted { content: content.as_object().unwrap().clone() })
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_handler_answers_the_request_of_a_tool_that_runs_without_an_approval() {
    let server = server(Clerk, |_| {}).await;
    let thread = server.client.thread().await;
    server.scene.calls(&[call("p", "reserve", &json!({ "number": "LH1" }))]);
    let turn = server.client.send_message(&thread, "please").await;
    assert_eq!(turn.pending(), Vec::<String>::new(), "{}", turn.raw);
    let outputs = server.rows.all("SELECT answered_by, kind, content FROM tool_requests").await;
    assert_eq!(outputs, [json!({ "answered_by": "handler:clerk", "kind": "custom", "content": null })]);
    assert!(turn.raw.contains("accept") && !turn.raw.contains(SEAT), "{}", turn.raw);
}
