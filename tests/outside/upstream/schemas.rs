//! Tools with schemas that the servers of models refuse, as MCP servers list them: the request has an adapted schema, and the
//! arguments are checked against the tool's own.

use super::{Stage, on_each_wire};
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::mcp::SteeredServer;
use holdpoint_testkit::{Probe, ScriptedAnswer, Wire, eventually};
use serde_json::{Value, json};

/// Whether a list somewhere in the schema has no `items`.
fn has_bare_list(schema: &Value) -> bool {
    let bare = schema["type"] == "array" && schema.get("items").is_none();
    bare || schema.as_object().into_iter().flatten().any(|(_, value)| has_bare_list(value))
}

async fn a_turn_has_every_tool_of_an_mcp_server_in_a_form_that_the_server_takes(wire: Wire) {
    let steered = SteeredServer::with("act");
    let tool =
        |name: &str, schema: Value| json!({ "name": name, "description": "Does it.", "inputSchema": schema });
    let either = json!([{ "required": ["issue"] }, { "required": ["pr"] }]);
    let node = json!({ "type": "object", "properties": { "next": { "$ref": "#/$defs/N" }, "n": { "type": "integer" } } });
    steered.lists(&json!([
        tool("plain", json!({ "type": "object", "properties": { "a": { "type": "string" } } })),
        tool("none", json!({ "type": "object" })),
        tool("empty", json!({})),
        tool("lists", json!({ "type": "object", "properties": { "targets": { "type": "array" } } })),
        tool(
            "either",
            json!({ "type": "object", "anyOf": either,
                "properties": { "issue": { "type": "integer" }, "pr": { "type": "integer" } } })
        ),
        tool("odata", json!({ "type": "object", "properties": { "$filter": { "type": "string" } } })),
        tool("tree", json!({ "$ref": "#/$defs/N", "$defs": { "N": node } })),
        tool(
            "old",
            json!({ "$schema": "https://unknown.example/s", "$id": "https://a.example/", "type": ["object", "null"],
                "examples": [{ "id": "A-1" }], "required": null, "properties": { "a": { "type": "string" } } })
        ),
    ]));
    let change = |config: &mut holdpoint::config::Config| {
        config.tools.demo = false;
        config.mcp = vec![steered.entry("s", &json!({}))];
    };
    let stage = Stage::with_config(wire, json!({}), change).await;
    let client = &stage.app.client;
    let there = async || (client.get("/tools/s__plain").await.status == 200).then_some(());
    eventually("the tools are there", there).await;
    stage.upstream.answers(&ScriptedAnswer::call_on(
        wire,
        "e-1",
        "s__either",
        &[&json!({ "note": 1 }).to_string()],
    ));
    stage.upstream.words("I see.");
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "I see.", "{wire:?}: {}", turn.raw);
    assert!(turn.pending().is_empty(), "the arguments have neither: {}", turn.raw);

    let request = stage.upstream.requests().remove(0);
    let sent: Vec<_> =
        wire.tools(&request.body).into_iter().filter(|(name, _)| name.starts_with("s__")).collect();
    assert_eq!(sent.len(), 8, "{wire:?}: {sent:?}");
    for (name, schema) in sent {
        assert_eq!(schema["type"], "object", "{wire:?}: {name}: {schema}");
        assert!(schema["properties"].is_object(), "{wire:?}: {name}: {schema}");
        assert!(!has_bare_list(&schema), "{wire:?}: {name}: {schema}");
        let refused = ["anyOf", "oneOf", "allOf", "not", "enum", "$schema", "$id", "$ref"];
        assert!(refused.iter().all(|key| schema.get(key).is_none()), "{wire:?}: {name}: {schema}");
        let odd = schema["properties"].get("$filter").is_some();
        assert_eq!(odd, name == "s__odata" && wire.accepts_property("$filter"), "{wire:?}: {schema}");
    }
    let body = request.body.to_string();
    assert!(body.contains("The inputs also have to fit this JSON Schema:"), "{body}");
}

on_each_wire!(side by side a_turn_has_every_tool_of_an_mcp_server_in_a_form_that_the_server_takes);

/// A tool whose name begins with a digit, which Gemini refuses.
struct Print3d;

impl Tool for Print3d {
    const NAME: &'static str = "3d_print";
    const DESCRIPTION: &'static str = "Prints.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = String;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<String, ToolError> {
        Ok(input.note)
    }
}

async fn a_tool_whose_name_the_servers_refuse_has_another_one_there(wire: Wire) {
    let Stage { upstream, app, .. } = Stage::on(wire).await;
    let mut tools = ToolRegistry::new();
    tools.register(Print3d).unwrap();
    let model = upstream.model(&json!({}));
    let app = app.redeploy_with(tools, |config| config.model = model).await;
    let stage = Stage { wire, upstream, app };
    let name = if wire.accepts_tool("3d_print") { "3d_print" } else { "_3d_print" };
    let answer = ScriptedAnswer::call_on(wire, "a", name, &[r#"{"note":"1"}"#]);
    let (thread, _, id) = stage.held(&answer).await;
    assert_eq!(stage.app.client.call(&id).await["tool_name"], "3d_print", "{wire:?}");
    assert_eq!(stage.app.client.approve(&id).await.body["state"], "succeeded");
    stage.upstream.words("Printed.");
    assert_eq!(stage.app.client.resume(&thread).await.text(), "Printed.");
    let request = stage.next_turn_works(&thread).await;
    let names: Vec<_> = wire.tools(&request).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [name], "{wire:?}");
    let quoted = format!("\"{name}\"");
    assert!(
        request.to_string().matches(&quoted).count() >= 2,
        "{wire:?}: the call has the same name: {request}"
    );
}
on_each_wire!(a_tool_whose_name_the_servers_refuse_has_another_one_there);
