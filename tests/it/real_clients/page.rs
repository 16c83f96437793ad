//! A page of AI SDK 4: the real `useChat`, driven in a process of Node.

use crate::support::Embedded;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the page calls its thread.
pub(super) const CHAT: &str = "chat-1";

/// What a page ended up with.
#[derive(Debug)]
pub(super) struct Page {
    /// The failure that the SDK raised.
    pub(super) error: Option<String>,
    /// What it asked of the server.
    pub(super) requests: Vec<Value>,
    /// How its decisions were answered.
    pub(super) validated: Vec<Value>,
    /// How its streams finished.
    pub(super) finishes: Vec<Value>,
    /// The messages it shows.
    pub(super) messages: Vec<Value>,
}

/// Lets a page play a scenario of `tests/wire/driver/drive.mjs`.
pub(super) async fn drive(app: &Embedded, scenario: &str, flags: &[&str]) -> Page {
    drive_and(app, scenario, flags, || {}).await
}

/// The same, and does something each time an answer to the page has begun.
pub(super) async fn drive_and(
    app: &Embedded,
    scenario: &str,
    flags: &[&str],
    answered: impl Fn() + Send + 'static,
) -> Page {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    assert!(dir.join("node_modules/react4").exists(), "run `npm ci --ignore-scripts` in {}", dir.display());
    let mut node = Command::new("node");
    node.current_dir(dir).args(["driver/drive.mjs", "--version", "4", "--chat-id", CHAT]);
    node.args(["--url", &app.client.base, "--scenario", scenario]).args(flags);
    // The server runs on this thread.
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = node.stdout(Stdio::piped()).spawn().expect("node is installed");
        let mut out = Value::Null;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            match line.strip_prefix("answered ") {
                Some(_) => answered(),
                None => out = serde_json::from_str(&line).unwrap(),
            }
        }
        (child.wait().unwrap().code(), out)
    });
    let (code, out) = ended.await.unwrap();
    let error = out["error"].as_str().map(str::to_owned);
    assert_eq!(code, Some(i32::from(error.is_some())), "{out:#}");
    assert_eq!(out["status"], if error.is_some() { "error" } else { "ready" });
    let list = |name: &str| out[name].as_array().unwrap().clone();
    Page {
        error,
        requests: list("requests"),
        validated: list("validated"),
        finishes: list("onFinish"),
        messages: list("messages"),
    }
}

impl Page {
    /// The last message.
    pub(super) fn last(&self) -> &Value {
        self.messages.last().unwrap()
    }

    /// The ids of all calls it shows.
    pub(super) fn calls(&self) -> Vec<&str> {
        let calls =
            self.messages.iter().filter_map(|message| message["toolInvocations"].as_array()).flatten();
        calls.map(|call| call["toolCallId"].as_str().unwrap()).collect()
    }

    /// Methods and paths of its requests.
    pub(super) fn asked(&self) -> Vec<String> {
        let line =
            |it: &Value| format!("{} {}", it["method"].as_str().unwrap(), it["path"].as_str().unwrap());
        self.requests.iter().map(line).collect()
    }

    /// What it holds has to be what it gets when it is loaded anew.
    pub(super) async fn equals_reload(&self, app: &Embedded) {
        self.equals_reload_but_for(app, &[]).await;
    }

    /// The same, except how these calls went: they were decided or edited outside the streams it read.
    pub(super) async fn equals_reload_but_for(&self, app: &Embedded, outside: &[&str]) {
        let reloaded = reload(app).await;
        assert_eq!(
            comparable(&self.messages, outside),
            comparable(&reloaded, outside),
            "left: held; right: reloaded"
        );
    }
}

/// The messages of the only thread as a page gets them that is loaded now.
pub(super) async fn reload(app: &Embedded) -> Vec<Value> {
    let thread = thread(app).await;
    let found = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await;
    assert_eq!(found.status, 200, "{:?}", found.body);
    found.body["results"].as_array().unwrap().clone()
}

/// The id of the only thread.
pub(super) async fn thread(app: &Embedded) -> String {
    let threads = app.client.get("/threads").await.body;
    let [thread] = &threads["results"].as_array().unwrap()[..] else { panic!("{threads}") };
    thread["thread_id"].as_str().unwrap().to_owned()
}

/// Messages without what may differ: a page's own ids and times, all but the last annotation of a call, calls whose
/// arguments never came to an end, and how the calls stand that were decided elsewhere.
fn comparable(messages: &[Value], outside: &[&str]) -> Vec<Value> {
    messages.iter().map(|message| comparable_message(message, outside)).collect()
}

fn comparable_message(message: &Value, outside: &[&str]) -> Value {
    let mut message = message.as_object().unwrap().clone();
    message.remove("revisionId");
    // An answer has the database's id.
    if message["role"] == "user" {
        message.remove("id");
    }
    let at = message.remove("createdAt");
    assert!(at.is_some_and(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))));
    if let Some(parts) = message.get_mut("parts").and_then(Value::as_array_mut) {
        parts.retain(|part| part["toolInvocation"]["state"] != "partial-call");
        let invocations = parts.iter_mut().filter_map(|part| part.get_mut("toolInvocation"));
        invocations.for_each(|invocation| forget(invocation, outside));
    }
    if let Some(invocations) = message.get_mut("toolInvocations").and_then(Value::as_array_mut) {
        invocations.retain(|invocation| invocation["state"] != "partial-call");
        invocations.iter_mut().for_each(|invocation| forget(invocation, outside));
        if invocations.is_empty() {
            message.remove("toolInvocations");
        }
    }
    if let Some(Value::Array(annotations)) = message.remove("annotations") {
        let mut last = Map::new();
        for annotation in &annotations {
            let id = annotation["toolCallId"].as_str().unwrap();
            if !outside.contains(&id) {
                last.insert(id.to_owned(), annotation.clone());
            }
        }
        message.insert("annotations".to_owned(), json!(last));
    }
    Value::Object(message)
}

fn forget(invocation: &mut Value, outside: &[&str]) {
    let fields = invocation.as_object_mut().unwrap();
    if outside.iter().any(|id| fields["toolCallId"] == *id) {
        for field in ["state", "args", "result"] {
            fields.remove(field);
        }
    }
}
