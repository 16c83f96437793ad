//! A page of the AI SDK: the real client of one of its versions, in a process of Node, and the actions of its
//! user.

use super::node::Node;
use holdpoint_testkit::dialects::{PageApprovals, TestedDialect, dialect, dialects_of, sdks};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};
use std::time::Duration;

/// The id that the page gives its chat.
pub(super) const CHAT: &str = "chat-1";
/// The header of a page of 7 that reads decisions from its streams.
pub(super) const UI_V7: &str = "x-stream-protocol: ui-v7";
/// The default request of a post.
pub(super) const POST: &str = "POST /qa/chat_streamed";

/// The dialects that the server chooses for a page that names none.
const CHOSEN: [&str; 2] = ["data-v1", "ui-v6"];

/// A version of the AI SDK, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(pub(super) &'static str);

/// All versions.
pub(super) fn all() -> Vec<Version> {
    sdks().into_iter().map(Version).collect()
}

/// The versions that read the UI message stream.
pub(super) fn ui() -> Vec<Version> {
    all().into_iter().filter(|version| version.is_ui()).collect()
}

/// The versions with their own approval requests.
pub(super) fn native() -> Vec<Version> {
    all().into_iter().filter(|version| version.is_native()).collect()
}

impl Version {
    pub(super) const V4: Self = Self("4");
    pub(super) const V5: Self = Self("5");
    pub(super) const V7: Self = Self("7");

    /// The version's number.
    pub(super) const fn number(self) -> &'static str {
        self.0
    }

    /// The dialect of its pages that want no other one.
    pub(super) fn dialect(self) -> &'static TestedDialect {
        dialects_of(self.0).next().unwrap()
    }

    pub(super) fn is_ui(self) -> bool {
        self.dialect().is_ui
    }

    pub(super) fn is_native(self) -> bool {
        self.dialect().approvals != PageApprovals::Unknown
    }

    /// The `format` of messages that this version shows.
    pub(super) fn format(self) -> &'static str {
        &self.dialect().format
    }
}

/// The header of a page that names its dialect.
pub(super) fn header(dialect: &TestedDialect) -> String {
    format!("x-stream-protocol: {}", dialect.name)
}

/// The dialect that these flags of a page name.
fn named(flags: &[&str]) -> Option<&'static TestedDialect> {
    flags.windows(2).find_map(|pair| match pair {
        ["--header", header] => header.strip_prefix("x-stream-protocol: ").map(dialect),
        ["--dialect", name] => Some(dialect(name)),
        _ => None,
    })
}

/// A page, and what it shows since the last action of its user.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) version: Version,
    /// The failure that the SDK raised.
    pub(super) error: Option<String>,
    /// The requests of the page to the server.
    pub(super) requests: Vec<Value>,
    /// How its streams finished.
    pub(super) finishes: Vec<Value>,
    /// The messages that it shows.
    pub(super) messages: Vec<Value>,
    /// The data that a page of 4 has beside its messages.
    pub(super) data: Vec<Value>,
    /// What `safeValidateUIMessages` of 5 to 7 refuses in its messages.
    pub(super) invalid: Option<String>,
    /// What `@holdpoint/page` makes of it, on a page that uses the package.
    pub(super) package: Value,
    pub(super) dialect: &'static TestedDialect,
    /// The calls that its own user answered, in 6 and 7.
    pub(super) answered: Vec<String>,
    /// The process of the page; present until the page is closed.
    node: Option<Node>,
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.give_back();
        }
    }
}

impl Page {
    pub(super) async fn open(app: &Embedded, version: Version) -> Self {
        Self::open_with(app, version, &[]).await
    }

    /// Opens a page with the messages of a reload.
    pub(super) async fn load(app: &Embedded, version: Version) -> Self {
        let loaded = reload(app, version).await;
        Self::open_with(app, version, &["--messages", &json!(loaded).to_string()]).await
    }

    /// Opens a page with these flags of `tests/wire/driver/drive.mjs`.
    pub(super) async fn open_with(app: &Embedded, version: Version, flags: &[&str]) -> Self {
        // Printed so that a failure names its version.
        println!("a page of AI SDK {}", version.number());
        let mut all = vec!["--url", &app.client.base, "--chat-id", CHAT];
        let own = header(version.dialect());
        if !CHOSEN.contains(&version.dialect().name.as_str()) && !flags.contains(&"--header") {
            all.extend(["--header", &own]);
        }
        all.extend(flags);
        let dialect = named(flags).unwrap_or_else(|| version.dialect());
        let node = Some(Node::of(version));
        let mut page = Self {
            version,
            error: None,
            requests: Vec::new(),
            finishes: Vec::new(),
            messages: Vec::new(),
            data: Vec::new(),
            invalid: None,
            package: Value::Null,
            dialect,
            answered: Vec::new(),
            node,
        };
        page.act(&json!({ "do": "open", "flags": all })).await;
        page
    }

    /// What the page knows of approvals.
    pub(super) fn approvals(&self) -> PageApprovals {
        self.dialect.approvals
    }

    /// Performs this action of the page's user.
    pub(super) async fn act(&mut self, act: &Value) {
        let node = self.node.as_mut().unwrap();
        let shown = tokio::time::timeout(Duration::from_secs(30), node.act(act)).await;
        let mut shown =
            shown.unwrap_or_else(|_| panic!("nothing came of {act}, behind {:#?}", self.messages));
        self.error = shown["error"].as_str().map(str::to_owned);
        let mut list = |name: &str| match shown[name].take() {
            Value::Array(list) => list,
            other => panic!("{name}: {other}"),
        };
        self.requests = list("requests");
        self.finishes = list("finishes");
        self.messages = list("messages");
        self.data = list("data");
        self.invalid = shown["invalid"].as_str().map(str::to_owned);
        self.package = shown["package"].take();
        if act.get("until").is_none() {
            assert_eq!(shown["status"], if self.error.is_some() { "error" } else { "ready" }, "{self:#?}");
        }
    }

    /// Sends this message, and waits until the answer is read.
    pub(super) async fn send(&mut self, text: &str) {
        self.act(&json!({ "do": "send", "text": text })).await;
    }

    /// Posts the conversation unchanged: `sendMessage()`.
    pub(super) async fn send_nothing(&mut self) {
        self.act(&json!({ "do": "sendNothing" })).await;
    }

    /// Replaces the text of a user message.
    pub(super) async fn edit(&mut self, message: &str, text: &str) {
        self.act(&json!({ "do": "edit", "id": message, "text": text })).await;
    }

    /// Regenerates the last answer.
    pub(super) async fn regenerate(&mut self) {
        self.act(&json!({ "do": "regenerate" })).await;
    }

    /// Regenerates this answer.
    pub(super) async fn regenerate_by_id(&mut self, message: &str) {
        self.act(&json!({ "do": "regenerate", "id": message })).await;
    }

    /// Resumes the running turn.
    pub(super) async fn resume(&mut self) {
        self.act(&json!({ "do": "resume" })).await;
    }

    pub(super) async fn stop(&mut self) {
        self.act(&json!({ "do": "stop" })).await;
    }

    /// Answers an approval request as pages of 6 and 7 do: the call's id is the approval's id.
    pub(super) async fn answer(&mut self, call: &str, approved: bool) {
        self.answered.push(call.to_owned());
        self.act(&json!({ "do": "answer", "id": call, "approved": approved })).await;
    }

    pub(super) async fn approve(&mut self, call: &str) {
        self.answer(call, true).await;
    }

    pub(super) async fn deny(&mut self, call: &str) {
        self.answer(call, false).await;
    }

    /// Answers an approval request with a reason.
    pub(super) async fn answer_because(&mut self, call: &str, approved: bool, reason: &str) {
        self.answered.push(call.to_owned());
        self.act(&json!({ "do": "answer", "id": call, "approved": approved, "reason": reason })).await;
    }

    pub(super) async fn set_output(&mut self, call: &str, output: &Value) {
        self.act(&json!({ "do": "give", "id": call, "output": output, "tool": "pay" })).await;
    }

    /// Sends this message, and waits until this part of the answer is shown.
    pub(super) async fn send_until_shown(&mut self, text: &str, shown: &str) {
        self.act(&json!({ "do": "send", "text": text, "until": { "shown": shown } })).await;
    }

    /// Resumes the running turn, and waits until the response begins.
    pub(super) async fn begin_to_resume(&mut self) {
        self.act(&json!({ "do": "resume", "until": "answered" })).await;
    }

    /// Approves a call, and waits until the response begins.
    pub(super) async fn begin_to_approve(&mut self, call: &str) {
        self.answered.push(call.to_owned());
        self.act(&json!({ "do": "answer", "id": call, "approved": true, "until": "answered" })).await;
    }

    /// Waits until the last message contains this text.
    pub(super) async fn shows(&mut self, shown: &str) {
        self.act(&json!({ "do": "wait", "until": { "shown": shown } })).await;
    }

    /// Waits until every running stream is read.
    pub(super) async fn settles(&mut self) {
        self.act(&json!({ "do": "wait" })).await;
    }

    /// Methods and paths of its requests.
    pub(super) fn requests(&self) -> Vec<String> {
        let line = |it: &Value| format!("{} {}", it.text("method"), it.text("path"));
        self.requests.iter().map(line).collect()
    }

    /// The body of its last request.
    pub(super) fn posted(&self) -> Value {
        let body = self.requests.last().unwrap().text("body");
        serde_json::from_str(body).unwrap()
    }

    /// Status and error code of the refusal that was raised.
    pub(super) fn refused(&self) -> (u64, String) {
        let error: Value = serde_json::from_str(self.error.as_deref().unwrap()).unwrap();
        let status = self.requests.last().unwrap()["status"].as_u64().unwrap();
        (status, error["error"].text("code").to_owned())
    }

    /// The last message.
    pub(super) fn last(&self) -> &Value {
        self.messages.last().unwrap()
    }

    /// The text of the last message.
    pub(super) fn text(&self) -> String {
        words(self.last())
    }

    /// All calls that it shows, in order.
    pub(super) fn calls(&self) -> Vec<ShownCall> {
        self.messages.iter().flat_map(calls).collect()
    }

    /// The ids of all calls that it shows.
    pub(super) fn call_ids(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.id).collect()
    }

    /// The data of its last part of this kind about a call, wherever the page has it.
    pub(super) fn data_about(&self, kind: &str, call: &str) -> Value {
        let parts = self.messages.iter().flat_map(|message| {
            let parts = message.list("parts").iter();
            parts.chain(message["data"].as_array().into_iter().flatten())
        });
        let mut about = parts.chain(&self.data).filter(|part| part["type"] == kind && part["id"] == call);
        about.next_back().map_or(Value::Null, |part| part["data"].clone())
    }

    /// The states of its calls, in order.
    pub(super) fn states(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.state).collect()
    }
}

/// The text of a message.
pub(super) fn words(message: &Value) -> String {
    let parts = message.list("parts").iter();
    parts.filter(|part| part["type"] == "text").map(|part| part.text("text")).collect()
}

/// A call as a page shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShownCall {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) state: String,
    pub(super) input: Value,
    /// The output of the tool.
    pub(super) output: Value,
    /// The error of the tool.
    pub(super) error: Option<String>,
}

/// The calls of a message, in order.
pub(super) fn calls(message: &Value) -> Vec<ShownCall> {
    message.list("parts").iter().filter_map(ShownCall::of).collect()
}

impl ShownCall {
    fn of(part: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = part.text("type");
        if kind == "tool-invocation" {
            let call = &part["toolInvocation"];
            return Some(Self {
                id: text(&call["toolCallId"]),
                tool: text(&call["toolName"]),
                state: text(&call["state"]),
                input: call["args"].clone(),
                output: call["result"].clone(),
                error: call["result"]["error"].as_str().map(str::to_owned),
            });
        }
        let tool = kind.strip_prefix("tool-")?;
        Some(Self {
            id: text(&part["toolCallId"]),
            tool: tool.to_owned(),
            state: text(&part["state"]),
            input: part["input"].clone(),
            output: part["output"].clone(),
            error: part["errorText"].as_str().map(str::to_owned),
        })
    }
}

/// The messages of the only thread after a reload.
pub(super) async fn reload(app: &Embedded, version: Version) -> Vec<Value> {
    reload_as(app, version.format()).await
}

/// The messages of the only thread in this format.
pub(super) async fn reload_as(app: &Embedded, format: &str) -> Vec<Value> {
    let thread = thread(app).await;
    let found = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await;
    found.has_status(200);
    found.body.list("results").clone()
}

/// The id of the only top-level thread.
pub(super) async fn thread(app: &Embedded) -> String {
    let threads = app.client.get("/threads").await.body;
    let roots = threads.list("results").iter().filter(|thread| thread["parent_id"].is_null());
    let [thread] = &roots.collect::<Vec<_>>()[..] else { panic!("{threads}") };
    thread.text("thread_id").to_owned()
}
