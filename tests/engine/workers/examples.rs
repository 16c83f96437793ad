//! The example workers in TypeScript and Python.

use super::crashes::Worker;
use holdpoint::tools::{RiskLevel, ToolSpec};
use holdpoint_testkit::{Embedded, call, in_repository, probes};
use serde_json::json;
use std::process::Command;
use std::time::Duration;

/// A server with the tool of the examples.
async fn start() -> Embedded {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    let schema = json!({ "type": "object", "additionalProperties": false, "required": ["order", "cents"],
        "properties": { "order": { "type": "string" }, "cents": { "type": "integer" } } });
    let refund = ToolSpec::unclassified("refund", "Refunds an order.", schema);
    let refund = ToolSpec { risk: RiskLevel::High, ..refund };
    tools.register_worker_tool(refund, Duration::from_secs(60)).unwrap();
    app.redeploy_with(tools, |config| config.approval.wait = Duration::ZERO).await
}

/// Has the model ask for a refund, approves it, and waits for its end.
async fn refund(app: &Embedded, cents: u32, state: &str) -> serde_json::Value {
    let thread = app.client.thread().await;
    app.scene.calls(&[call("r", "refund", &json!({ "order": "A7", "cents": cents }))]);
    let held = app.client.send_message(&thread, "refund A7").await.pending();
    let [id] = &held[..] else { panic!("{held:?}") };
    app.client.approve(id).await;
    app.client.becomes(id, state).await
}

/// What every example does.
async fn serves(app: &Embedded, worker: &mut Command) {
    let worker = worker.env("HOLDPOINT_URL", &app.client.base).env_remove("HOLDPOINT_TOKEN");
    let mut worker = Worker(worker.spawn().expect("the interpreter is installed"));
    let done = refund(app, 500, "succeeded").await;
    assert_eq!(done["output"], json!({ "refunded": "A7", "reference": done["tool_call_id"] }));
    let refused = refund(app, 50_000, "failed").await;
    assert_eq!(refused["result"], "The tool failed: more than 100.00 needs the bank");
    assert_eq!(worker.0.try_wait().unwrap(), None, "the worker goes on");
}

#[tokio::test]
async fn the_worker_in_typescript_is_checked_and_executes_calls() {
    let dir = tempfile::tempdir().unwrap();
    let source = in_repository("examples/worker-ts/worker.ts");
    let tsc = in_repository("packages/page/node_modules/.bin/tsc");
    let compiled = Command::new(tsc)
        .args(["--strict", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom"])
        .arg("--outDir")
        .arg(dir.path())
        .arg(&source)
        .output()
        .expect("run `npm ci --ignore-scripts` in packages/page");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    std::fs::write(dir.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    let app = start().await;
    serves(&app, Command::new("node").arg(dir.path().join("worker.js"))).await;
}

#[tokio::test]
async fn the_worker_in_python_executes_calls() {
    let app = start().await;
    let source = in_repository("examples/worker-python/worker.py");
    serves(&app, Command::new("python3").env("PYTHONDONTWRITEBYTECODE", "1").arg(source)).await;
}
