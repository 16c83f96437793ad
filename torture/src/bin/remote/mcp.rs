//! The MCP server: protocol 2025-11-25, one JSON-RPC message a line.

use crate::{Bench, Job};
use anyhow::Result;
use futures::future::pending;
use holdpoint_torture::work::schema;
use serde_json::{Value, json};
use std::io::{Write, stdin, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the calls of a disconnected client may take to end. Some hang.
const LEFT: Duration = Duration::from_secs(3);
/// The error of JSON-RPC for an unknown method.
const NO_METHOD: i32 = -32601;

/// The number of the next execution.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Serves until the client disconnects, and then ends the calls that it began: a client that dies stops no tool.
pub(crate) async fn serve(bench: Bench, names: Vec<String>) -> Result<()> {
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            let _stopped = sender.send(line);
        }
    });
    let mut calls = JoinSet::new();
    while let Some(line) = lines.recv().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = message.get("id").cloned() else { continue };
        let (bench, names) = (bench.clone(), names.clone());
        calls.spawn(async move {
            let answer = answer(&bench, &names, &message).await;
            let answer = match answer {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            };
            // A disconnected client reads no answer.
            let _gone = writeln!(stdout(), "{answer}").and_then(|()| stdout().flush());
        });
        while calls.try_join_next().is_some() {}
    }
    let _hanging = timeout(LEFT, async { while calls.join_next().await.is_some() {} }).await;
    std::process::exit(0)
}

async fn answer(bench: &Bench, names: &[String], message: &Value) -> Result<Value, Value> {
    let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
    match method {
        "initialize" => Ok(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "bank", "version": "1.0.0" },
        })),
        "ping" => Ok(json!({})),
        "tools/list" => {
            let tool = |name: &String| {
                let (_, name) = name.split_once("__").unwrap_or(("", name));
                json!({ "name": name, "description": "Writes down that it ran.", "inputSchema": schema(false) })
            };
            Ok(json!({ "tools": names.iter().map(tool).collect::<Vec<_>>() }))
        }
        "tools/call" => Ok(call(bench, names, message).await),
        _ => Err(json!({ "code": NO_METHOD, "message": "there is no such method" })),
    }
}

async fn call(bench: &Bench, names: &[String], message: &Value) -> Value {
    let text = |text: String, is_error| json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
    let name = message.pointer("/params/name").and_then(Value::as_str).unwrap_or_default();
    let tool = names.iter().find(|tool| tool.ends_with(&format!("__{name}")));
    let input = message.pointer("/params/arguments").cloned().unwrap_or_default();
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let job = tool.map(|tool| Job::new(tool, "", Some(nth), 1, &input));
    let Some(Ok(mut job)) = job else { return text("there is no such call".to_owned(), true) };
    match bench.execute(&mut job, pending()).await {
        Ok(Ok(output)) => json!({ "content": [], "structuredContent": output }),
        Ok(Err(why)) => text(why, true),
        // Without its lines a call proves nothing.
        Err(_) => std::process::abort(),
    }
}
