//! A server that answers what no specification has (`tests/mcp/odd.mjs`, `tests/mcp/session.mjs`).

use super::sessions::Session;
use super::{SteeredServer, approved, entry, hold, packages, tool, with};
use holdpoint::config::Config;
use holdpoint_testkit::{Client, Embedded, JsonFields, Process, UNKNOWN, eventually, free_port};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server over HTTP. Dropping it kills the process.
pub(super) struct OddServer {
    child: Child,
    port: u16,
}

impl Drop for OddServer {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl OddServer {
    pub(super) async fn start(state: &Value) -> Self {
        let port = free_port();
        let mut node = Command::new("node");
        node.arg(packages().join("odd.mjs")).arg(port.to_string()).stdin(Stdio::null());
        let odd = Self { child: node.spawn().unwrap(), port };
        let put = async || odd.client().put(odd.url("state")).body(state.to_string()).send().await.ok();
        eventually("the server answers", put).await;
        odd
    }

    fn client(&self) -> reqwest::Client {
        Client::new(String::new()).http
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    async fn set(&self, state: &Value) {
        self.client().put(self.url("state")).body(state.to_string()).send().await.unwrap();
    }

    async fn seen(&self) -> Value {
        let seen = self.client().get(self.url("state")).send().await.unwrap();
        serde_json::from_str(&seen.text().await.unwrap()).unwrap()
    }

    async fn server(&self) -> Embedded {
        self.server_with(&json!({ "timeout": "6s" })).await
    }

    async fn server_with(&self, lines: &Value) -> Embedded {
        let mut all = json!({ "name": "s", "url": self.url("mcp"), "timeout": "6s" });
        all.as_object_mut().unwrap().extend(lines.as_object().unwrap().clone());
        let entry = entry(&all);
        let server = Box::pin(Embedded::with(|config: &mut Config| {
            config.egress.allow = vec!["127.0.0.1".to_owned()];
            config.mcp = vec![entry];
        }))
        .await;
        tool(&server.client, "s__act").await;
        server
    }
}

/// The sentence of an unknown outcome about which the server said something.
fn unknown(said: &str) -> String {
    format!("{UNKNOWN} The server said: {said}")
}

#[tokio::test]
async fn each_part_of_a_result_that_can_be_read_counts_and_the_connection_stays() {
    let odd = OddServer::start(&json!({})).await;
    let server = odd.server().await;
    let shipped = json!({ "type": "text", "text": "order 5 shipped" });
    let with = |part: Value| json!({ "content": [shipped, part] });
    let told = |part: &str| json!(format!("order 5 shipped\n{part}"));
    for (result, output) in [
        (with(json!({ "type": "resource_link", "uri": "file:///report.pdf" })), told("[file:///report.pdf]")),
        (with(json!({ "type": "json", "json": { "a": 1 } })), told("[content of an unknown kind: json]")),
        (with(json!({ "type": "tool\u{202e}use" })), told("[content of an unknown kind: tool\\u{202e}use]")),
        (with(json!({ "type": "output_text", "text": "more" })), told("more")),
        (with(json!({ "type": "image", "data": "QUFB" })), told("[image, 3 B]")),
        (with(json!({ "type": "audio", "data": "QUFB", "mimeType": 5 })), told("[audio, 3 B]")),
        (with(json!({ "type": "text", "text": null })), told("[content of an unknown kind]")),
        (with(json!({ "type": "text", "text": { "a": 1 } })), told("{\"a\":1}")),
        (with(json!({ "type": "resource", "resource": { "text": "inside" } })), told("inside")),
        (
            with(json!({ "type": "resource", "resource": { "blob": "QUFB" } })),
            told("[application/octet-stream, 3 B]"),
        ),
        (with(json!({ "type": "resource" })), told("[content of an unknown kind]")),
        (with(json!({ "type": "text", "text": "hot", "annotations": { "priority": 3 } })), told("hot")),
        (with(json!({ "type": "text", "text": "hot", "annotations": { "audience": ["bot"] } })), told("hot")),
        (with(json!(null)), told("[content of an unknown kind]")),
        (with(json!("plain")), told("plain")),
        (json!({ "content": [shipped], "_meta": "x" }), json!("order 5 shipped")),
        (json!({ "content": [shipped], "isError": "false" }), json!("order 5 shipped")),
        (json!({ "content": [shipped], "isError": null }), json!("order 5 shipped")),
        (json!({ "content": [shipped], "resultType": 5 }), json!("order 5 shipped")),
        (json!({ "content": "order 5 shipped" }), json!("order 5 shipped")),
        (json!({ "content": shipped }), json!("order 5 shipped")),
        (json!([shipped]), json!("order 5 shipped")),
        (json!("\"order 5 shipped\""), json!("order 5 shipped")),
        (json!({ "toolResult": { "shipped": 5 } }), json!({ "toolResult": { "shipped": 5 } })),
        (json!({ "content": [shipped], "structuredContent": "order 5 shipped" }), json!("order 5 shipped")),
        (
            json!({ "content": [shipped], "structuredContent": { "content": "order 5 shipped" } }),
            json!("order 5 shipped"),
        ),
    ] {
        let call = approved(&server, "s__act", &json!({ "result": result })).await;
        assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &output), "{result}");
    }
    for (result, why) in [
        (json!({ "content": [shipped], "isError": "true" }), "order 5 shipped"),
        (json!({ "content": [shipped], "isError": 1 }), "order 5 shipped"),
        (json!({ "content": [{ "type": "error", "text": "no account" }] }), "no account"),
        (json!({ "content": [{ "type": "odd" }], "isError": true }), "[content of an unknown kind: odd]"),
        (json!({ "content": [], "isError": true, "structuredContent": { "line": 121 } }), "{\"line\":121}"),
    ] {
        let call = approved(&server, "s__act", &json!({ "result": result })).await;
        let expected = format!("The tool failed: {why}");
        assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(expected)), "{result}");
    }
    assert_eq!(odd.seen().await["initialized"], 1);
}

#[tokio::test]
async fn the_words_of_a_server_are_in_the_outcome_and_its_status_does_not_end_the_connection() {
    let odd = OddServer::start(&json!({})).await;
    let server = odd.server().await;
    let error = |code: i64, message: &str, data: Value| json!({ "error": { "code": code, "message": message, "data": data } });
    let failed = |why: &str| ("failed", format!("The tool failed: {why}"));
    let interrupted = |said: &str| ("interrupted", unknown(said));
    let long = "x".repeat(5000);
    for (input, (state, result)) in [
        (error(-32603, "fetch failed", Value::Null), interrupted("fetch failed")),
        (error(-32000, "closed\u{202e} today", Value::Null), interrupted("closed\\u{202e} today")),
        (error(-32002, "gone", json!({ "uri": "a:b" })), interrupted("gone {\"uri\":\"a:b\"}")),
        (
            error(-32602, "Invalid params", json!({ "field": "x" })),
            failed("Invalid params {\"field\":\"x\"}"),
        ),
        (error(-32602, "field x is missing", json!("field x")), failed("field x is missing")),
        (
            json!({ "status": 403, "body": "not this project" }),
            failed("its server refuses the call: HTTP 403 Forbidden: not this project; the tool did not run"),
        ),
        (
            json!({ "status": 403, "headers": { "www-authenticate": "Bearer scope=\"a\"" } }),
            failed("its server refuses the call: HTTP 403 Forbidden; the tool did not run"),
        ),
        (
            json!({ "status": 429, "headers": { "retry-after": "2" } }),
            failed(
                "its server refuses the call for now, and takes it again in 2 s: HTTP 429 Too Many Requests; the tool did not run",
            ),
        ),
        (
            json!({ "status": 429, "headers": { "content-type": "application/json" },
                "body": "{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32000,\"message\":\"slow down\"}}" }),
            failed(
                "its server refuses the call for now: HTTP 429 Too Many Requests: slow down; the tool did not run",
            ),
        ),
        (json!({ "status": 400, "body": "no" }), interrupted("HTTP 400 Bad Request: no")),
        (json!({ "status": 404 }), interrupted("HTTP 404 Not Found")),
        (
            json!({ "status": 500, "body": "<html>broken</html>" }),
            interrupted("HTTP 500 Internal Server Error"),
        ),
        (json!({ "status": 502 }), interrupted("HTTP 502 Bad Gateway")),
        (json!({ "status": 503, "body": "busy" }), interrupted("HTTP 503 Service Unavailable: busy")),
        (
            json!({ "status": 200, "headers": { "content-type": "text/plain" }, "body": "hello" }),
            interrupted("HTTP 200 OK, and no message of the protocol"),
        ),
        (
            json!({ "status": 200, "headers": { "content-type": "application/json" }, "body": "[" }),
            interrupted("HTTP 200 OK, and no message of the protocol"),
        ),
    ] {
        let call = approved(&server, "s__act", &input).await;
        assert_eq!((&call["state"], &call["result"]), (&json!(state), &json!(result)), "{input}");
    }
    let call = approved(&server, "s__act", &error(-32603, &long, Value::Null)).await;
    assert!(call.text("result").len() < 1500, "{call}");
    assert_eq!(odd.seen().await["initialized"], 1);
    let called = odd.seen().await.list("called").len();
    assert_eq!(called, 17, "each call is made once");
}

#[tokio::test]
async fn the_model_and_the_page_read_the_words_of_a_server_about_an_unknown_outcome() {
    let odd = OddServer::start(&json!({})).await;
    let server = odd.server().await;
    let thread = server.client.thread().await;
    let input = json!({ "error": { "code": -32603, "message": "fetch failed" } });
    server.scene.calls(&[holdpoint_testkit::call("p", "s__act", &input)]);
    let turn = server.client.send_message(&thread, "please").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    server.client.approve(id).await;
    let resumed = server.client.resume(&thread).await;
    let said = unknown("fetch failed");
    assert!(resumed.raw.contains(&said), "{}", resumed.raw);
    let sent = format!("{:?}", server.scene.requests().last().unwrap());
    assert!(sent.contains(&said), "{sent}");
}

#[tokio::test]
async fn a_tool_whose_definition_cannot_be_read_is_left_out_by_its_name_and_the_others_are_there() {
    let good = json!({ "name": "act", "description": "Is there.", "inputSchema": { "type": "object" } });
    let mut tools = vec![good.clone()];
    for (n, (field, value)) in [
        ("inputSchema", json!(null)),
        ("inputSchema", json!(true)),
        ("description", json!(5)),
        ("outputSchema", json!(true)),
        ("annotations", json!({ "readOnlyHint": "true" })),
        ("title", json!(["a"])),
        ("icons", json!("x.png")),
        ("_meta", json!("x")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut odd = good.clone();
        odd["name"] = json!(format!("odd{n}"));
        odd[field] = value;
        tools.push(odd);
    }
    tools.extend([
        json!({ "name": "bare" }),
        json!("a text"),
        json!({ "inputSchema": { "type": "object" } }),
    ]);
    let odd = OddServer::start(&json!({ "tools": tools })).await;
    let dir = tempfile::tempdir().unwrap();
    let toml = format!(
        "tools.demo = false\negress.allow = [\"127.0.0.1\"]\n[[mcp]]\nname = \"s\"\nurl = \"{}\"\n\
         [[mcp]]\nname = \"moved\"\nurl = \"{}\"\n[[mcp]]\nname = \"away\"\nurl = \"{}\"\n\
         [[mcp]]\nname = \"stream\"\nurl = \"{}\"\n",
        odd.url("mcp"),
        odd.url("old"),
        odd.url("away"),
        odd.url("stream")
    );
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(dir.path()).env("HOLDPOINT_LOG__LEVEL", "warn");
    let server = Process::spawn_captured(&mut command);
    tool(&server.client, "s__act").await;
    // The server redirects within its origin.
    tool(&server.client, "moved__act").await;
    let is_named = async || {
        let printed = server.printed();
        let words = [
            "it redirects to https://away.example/mcp,",
            "names https://away.example/messages, which is of another",
        ];
        words.iter().all(|words| printed.contains(words)).then_some(())
    };
    eventually("the log has the address of a redirect to another origin", is_named).await;
    let listed = server.client.get("/tools").await.body;
    let names = listed.list("results").iter().map(|tool| tool.text("tool_name"));
    let names: Vec<_> = names.filter(|name| name.starts_with("s__")).collect();
    assert_eq!(names, ["s__act", "s__odd6", "s__odd7"]);
    let printed = server.finish();
    for (tool, field) in [
        ("odd0", "inputSchema"),
        ("odd1", "inputSchema"),
        ("odd2", "description"),
        ("odd3", "outputSchema"),
        ("odd4", "annotations"),
        ("odd5", "title"),
        ("bare", "inputSchema"),
        ("a tool without a name", "name"),
    ] {
        let of_server = |line: &&str| line.contains("is left out") && !line.contains("moved");
        let lines = printed.lines().filter(of_server);
        let words = format!("\"tool\":\"{tool}\",\"why\":\"the field {field} cannot be read\"");
        let named = |line: &&str| line.contains(&words);
        assert_eq!(lines.filter(named).count(), 1, "{tool} {field}: {printed}");
    }
    assert_eq!(odd.seen().await["initialized"], 2);
}

#[tokio::test]
async fn the_title_that_a_server_gives_a_tool_is_on_the_card_with_its_name() {
    let tool_with = |title: &str| json!({ "name": "branch_del", "title": title, "description": "Deletes it.", "inputSchema": { "type": "object" } });
    let mut act = tool_with("Act");
    act["name"] = json!("act");
    let odd = OddServer::start(&json!({ "tools": [tool_with("Delete {a} branch\u{202e}"), act] })).await;
    let server = odd.server().await;
    hold(&server, "s__branch_del", &json!({})).await;
    hold(&server, "s__act", &json!({})).await;
    let listed = server.client.get("/approvals").await.body;
    let headline = |tool: &str| {
        let mut items = listed.list("results").iter();
        items.find(|item| item["tool_name"] == tool).unwrap()["headline"].clone()
    };
    assert_eq!(headline("s__branch_del"), "Delete {a} branch\\u{202e} (branch_del)");
    assert_eq!(headline("s__act"), Value::Null, "its title says no more than its name");
}

#[tokio::test]
async fn an_answer_that_is_no_listing_leaves_the_connection_and_its_tools() {
    let odd = OddServer::start(&json!({ "listing": 500 })).await;
    let entry = entry(&json!({ "name": "s", "url": odd.url("mcp") }));
    let server = Box::pin(Embedded::with(|config: &mut Config| {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.mcp = vec![entry];
    }))
    .await;
    let connected = async || (odd.seen().await["initialized"] == 1).then_some(());
    eventually("the server is connected", connected).await;
    odd.set(&json!({ "listing": 200 })).await;
    tool(&server.client, "s__act").await;
    assert_eq!(odd.seen().await["initialized"], 1);
}

#[tokio::test]
async fn a_call_that_met_the_end_of_its_session_is_made_once_in_the_next_one() {
    let odd = OddServer::start(&json!({ "sessions": true })).await;
    let server = odd.server().await;
    let id = hold(&server, "s__act", &json!({ "note": "a" })).await;
    odd.set(&json!({ "forget": true })).await;
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    assert_eq!(odd.seen().await, json!({ "initialized": 2, "called": ["a"] }));

    // The next session has another tool of this name. The approval was for the first one.
    tool(&server.client, "s__act").await;
    let id = hold(&server, "s__act", &json!({ "note": "b" })).await;
    let other =
        json!({ "name": "act", "description": "Sends it away.", "inputSchema": { "type": "object" } });
    odd.set(&json!({ "forget": true, "tools": [other] })).await;
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "failed", "{:?}", done.body);
    let result = server.client.call(&id).await["result"].clone();
    assert_eq!(result, "The tool failed: its definition has changed; the tool did not run");
    assert_eq!(odd.seen().await, json!({ "initialized": 3, "called": ["a"] }));
}

#[tokio::test]
async fn a_session_whose_end_has_another_status_is_followed_by_the_next_one() {
    let odd = OddServer::start(&json!({ "sessions": true, "stale": 400 })).await;
    let server = odd.server().await;
    odd.set(&json!({ "forget": true })).await;
    let call = approved(&server, "s__act", &json!({ "note": "a" })).await;
    let expected = unknown("HTTP 400 Bad Request");
    assert_eq!((&call["state"], &call["result"]), (&json!("interrupted"), &json!(expected)));
    let next = async || (odd.seen().await["initialized"] == 2).then_some(());
    eventually("the server has a new session", next).await;
    tool(&server.client, "s__act").await;
    let call = approved(&server, "s__act", &json!({ "note": "b" })).await;
    assert_eq!(call["state"], "succeeded", "{call}");
    assert_eq!(odd.seen().await["called"], json!(["b"]));
}

#[tokio::test]
async fn a_token_that_was_replaced_in_its_file_is_used_without_a_restart() {
    let odd = OddServer::start(&json!({ "token": "Bearer first-token" })).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "Bearer first-token\n").unwrap();
    let server = odd.server_with(&json!({ "header_files": { "authorization": token } })).await;
    let id = hold(&server, "s__act", &json!({ "note": "a" })).await;
    std::fs::write(&token, "Bearer second-token\n").unwrap();
    odd.set(&json!({ "token": "Bearer second-token" })).await;
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    assert_eq!(odd.seen().await, json!({ "initialized": 2, "called": ["a"] }));

    // Without another token in the file the call is not sent again.
    tool(&server.client, "s__act").await;
    let id = hold(&server, "s__act", &json!({ "note": "b" })).await;
    odd.set(&json!({ "token": "Bearer third-token" })).await;
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "failed", "{:?}", done.body);
    let result = server.client.call(&id).await["result"].clone();
    assert_eq!(result, "The tool failed: its server wants other credentials; the tool did not run");
    assert_eq!(odd.seen().await["called"], json!(["a"]));
}

#[tokio::test]
async fn an_odd_result_over_stdio_ends_no_process_and_no_other_call() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let (first, second) = (session.call(&ann, "first").await, session.call(&ann, "second").await);
    session.does(&json!([{ "raw": "first", "result": "{\"content\":[{\"type\":\"text\",\"text\":\"shipped\"},{\"type\":\"odd\"}]}" }]));
    let output = ann.becomes(&first, "succeeded").await["output"].clone();
    assert_eq!(output, "shipped\n[content of an unknown kind: odd]");
    session.does(&json!([{ "finish": "second" }]));
    assert_eq!(ann.becomes(&second, "succeeded").await["output"], "done");
    assert_eq!(session.starts(), 1);
}

#[tokio::test]
async fn a_form_of_any_schema_is_asked() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let color = json!({ "enum": ["red", "blue"] });
    for (n, (properties, content)) in [
        (json!(null), json!({})),
        (json!({ "a": { "type": "array", "items": { "enum": ["x", "y"] } } }), json!({ "a": ["x"] })),
        (json!({ "a": { "type": "string", "format": "password" } }), json!({ "a": "s" })),
        (json!({ "a": { "type": ["string", "null"] } }), json!({ "a": null })),
        (json!({ "a": { "anyOf": [{ "type": "string" }, { "type": "null" }] } }), json!({ "a": "s" })),
        (json!({ "a": { "$ref": "#/$defs/Color" } }), json!({ "a": "red" })),
        (
            json!({ "a": { "type": "object", "properties": { "b": { "type": "integer" } } } }),
            json!({ "a": { "b": 1 } }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut schema = json!({ "type": "object", "$defs": { "Color": color } });
        if !properties.is_null() {
            schema["properties"] = properties;
        }
        let note = format!("call {n}");
        let call = session.call(&ann, &note).await;
        session.does(&json!([{ "ask": note, "schema": schema }]));
        let answer = session.is_answered(&ann, &call, &note, &schema, &content).await;
        assert_eq!((&answer["action"], &answer["content"]), (&json!("accept"), &content), "{schema}");
        session.does(&json!([{ "finish": note }]));
        ann.becomes(&call, "succeeded").await;
    }
    // A schema whose cost has no bound reaches no person.
    let call = session.call(&ann, "endless").await;
    let endless = json!({ "type": "object", "allOf": [{ "$ref": "#" }] });
    session.does(&json!([{ "ask": "endless", "schema": endless }]));
    assert_eq!(session.answer("endless").await["action"], "cancel");
    session.does(&json!([{ "finish": "endless" }]));
    ann.becomes(&call, "succeeded").await;
}

#[tokio::test]
async fn a_report_of_progress_begins_the_time_of_a_call_again_up_to_a_limit() {
    let mut session = Session::with(&json!({ "timeout": "4s" }), |config| {
        config.tools.timeout = Duration::from_secs(4);
        config.tools.timeout_max = Some(Duration::from_secs(9));
    })
    .await;
    let ann = session.ann.clone();
    let (ends, endless) = (session.call(&ann, "ends").await, session.call(&ann, "endless").await);
    let began = Instant::now();
    session.does(&json!([{ "report": "ends" }, { "report": "endless" }]));
    let is_longer = async || (began.elapsed() > Duration::from_secs(6)).then_some(());
    eventually("the time without reports has passed", is_longer).await;
    session.does(&json!([{ "finish": "ends" }]));
    assert_eq!(ann.becomes(&ends, "succeeded").await["output"], "done");
    ann.becomes(&endless, "interrupted").await;
}

#[tokio::test]
async fn the_protocol_of_a_server_is_the_one_that_the_operator_names() {
    for protocol in ["legacy", "newest"] {
        let steered = SteeredServer::with("act");
        let server = with(steered.entry("s", &json!({ "protocol": protocol }))).await;
        tool(&server.client, "s__act").await;
        let id = hold(&server, "s__act", &json!({ "do": "task" })).await;
        server.client.approve(&id).await;
        if protocol == "legacy" {
            let call = server.client.becomes(&id, "succeeded").await;
            assert_eq!(call["output"], "the client has no tasks");
        } else {
            assert!(server.client.call(&id).await["result_deadline"].is_string(), "it is a task");
        }
    }
}
