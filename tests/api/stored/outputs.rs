//! Tool outputs are measured before they are stored.

use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::tools::{DynTool, Permit, Tool, ToolError, ToolRegistry, ToolSpec};
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum depth of an output that is stored unchanged.
const DEEPEST: usize = 100;
/// The text that is stored in place of a deeper output.
const TOO_DEEP: &str =
    "The tool succeeded, but its output is nested more than 100 levels deep and was not kept.";

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Depth {
    depth: usize,
}

/// This many nested arrays.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("core"), |inner, _| Value::Array(vec![inner]))
}

macro_rules! gives {
    ($type:ident, $name:literal, $output:ty, |$depth:ident| $body:expr) => {
        struct $type;

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "A probe.";
            const HIL: bool = false;
            type Input = Depth;
            type Output = $output;

            async fn execute(
                &self,
                Depth { depth: $depth }: Depth,
                _: Permit<Self>,
            ) -> Result<$output, ToolError> {
                Ok($body)
            }
        }
    };
}

/// A list of lists with its own type.
struct Chain(Option<Box<Chain>>);

impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(inner) => [inner].serialize(to),
            None => "core".serialize(to),
        }
    }
}

/// A response of another server, in an envelope.
#[derive(Serialize)]
struct Page {
    body: Value,
}

gives!(GivesValue, "gives_value", Value, |depth| nested(depth));
gives!(GivesPage, "gives_page", Page, |depth| Page { body: nested(depth - 1) });
gives!(GivesChain, "gives_chain", Chain, |depth| (0..depth)
    .fold(Chain(None), |it, _| Chain(Some(Box::new(it)))));
gives!(GivesPairs, "gives_pairs", BTreeMap<(i32, i32), i32>, |depth| BTreeMap::from([((1, 2), depth as i32)]));
gives!(GivesMuch, "gives_much", i128, |_depth| i128::MAX);

/// A tool without types.
struct GivesAnything;

impl DynTool for GivesAnything {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "properties": { "depth": { "type": "integer" } } });
        ToolSpec { hil: false, ..ToolSpec::unclassified("gives_anything", "A probe.", schema) }
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        async move { Ok(nested(permit.input()["depth"].as_u64().unwrap() as usize)) }.boxed()
    }
}

async fn with_deep_tools() -> Embedded {
    let mut tools = ToolRegistry::new();
    tools.register(GivesValue).unwrap();
    tools.register(GivesPage).unwrap();
    tools.register(GivesChain).unwrap();
    tools.register(GivesPairs).unwrap();
    tools.register(GivesMuch).unwrap();
    tools.register_dyn(Arc::new(GivesAnything)).unwrap();
    Embedded::start().await.redeploy(tools).await
}

/// Has the model call a tool whose output has this depth, and read the result. Returns the call.
async fn given(app: &Embedded, thread: &str, tool: &str, depth: usize) -> Value {
    app.scene.calls(&[call(&format!("{tool}-{depth}"), tool, &json!({ "depth": depth }))]).answers("I see.");
    let turn = app.client.send_message(thread, "go").await;
    assert_eq!(turn.text(), "I see.", "{tool} {depth}: {}", turn.raw);
    let newest = "SELECT tool_call_id FROM tool_calls ORDER BY tool_call_id DESC LIMIT 1";
    let found = app.rows.all(newest).await;
    let shown = app.client.call(found[0].text("tool_call_id")).await;
    assert_eq!((&shown["tool_name"], &shown["state"]), (&json!(tool), &json!("succeeded")), "{depth}");
    shown
}

#[tokio::test]
async fn a_too_deep_output_is_replaced_by_a_text_that_states_it() {
    let app = with_deep_tools().await;
    let thread = app.client.thread().await;
    for tool in ["gives_value", "gives_page", "gives_chain", "gives_anything"] {
        for depth in [DEEPEST + 1, 127, 128, 2_000, 20_000] {
            let shown = given(&app, &thread, tool, depth).await;
            assert_eq!(
                (&shown["output"], &shown["result"]),
                (&json!(TOO_DEEP), &json!(TOO_DEEP)),
                "{tool} {depth}"
            );
        }
        let shown = given(&app, &thread, tool, DEEPEST).await;
        let text = shown["output"].to_string();
        assert_eq!(text.matches(['[', '{']).count(), DEEPEST, "{tool}");
        assert_eq!(shown["result"], text, "{tool}");
    }
    app.client.get(&format!("/threads/{thread}/messages")).await.has_status(200);
}

#[tokio::test]
async fn an_output_deeper_than_the_stack_does_not_crash_the_server() {
    let app = with_deep_tools().await;
    let thread = app.client.thread().await;
    for tool in ["gives_value", "gives_anything"] {
        assert_eq!(given(&app, &thread, tool, 1_000_000).await["result"], TOO_DEEP, "{tool}");
    }
}

#[tokio::test]
async fn a_call_whose_output_is_not_json_succeeds_and_the_result_contains_the_reason() {
    let app = with_deep_tools().await;
    let thread = app.client.thread().await;
    for (tool, why) in [("gives_pairs", "key must be a string"), ("gives_much", "number out of range")] {
        let shown = given(&app, &thread, tool, 1).await;
        let reported =
            format!("The tool succeeded, but its output cannot be written as JSON and was not kept: {why}");
        assert_eq!((&shown["output"], &shown["result"]), (&json!(reported), &json!(reported)));
    }
}

#[tokio::test]
async fn a_panicking_tool_leaves_its_call_interrupted() {
    let app = Embedded::start().await;
    let (_, id) = app.held("break", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has(200, "state", "interrupted");
    assert_eq!(answer.body["result"], holdpoint_testkit::UNKNOWN);
    assert_eq!(app.ledger.lines(), ["break 10"]);
}
