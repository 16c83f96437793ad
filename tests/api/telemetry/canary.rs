//! Canaries: secrets and the content of people and models must not appear where they do not belong, whatever
//! fails (security cases H1, H2, H4).

use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{
    Client, Cluster, JsonFields, MODEL_KEY, Rows, Socket, WatchedServer, postgres_if_chosen, sqlite, token,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The password in the database's URL, for databases that require a login.
const PASSWORD: &str = "canary-password-41d7";
/// The content of messages, of model output, of tool inputs and of tool outputs.
const CONTENT: [&str; 5] = ["canary-words", "canary-argument", "canary-edit", "canary-reason", "canary-body"];

/// A client that sends every canary and keeps every response.
struct Prober {
    client: Client,
    came_back: Mutex<String>,
    sent: Mutex<usize>,
}

impl Prober {
    fn of(client: Client) -> Self {
        Self { client, came_back: Mutex::default(), sent: Mutex::default() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Value {
        *self.sent.lock().unwrap() += 1;
        let response = request.send().await.unwrap();
        let head = format!("{:?} {:?}\n", response.status(), response.headers());
        let body = response.text().await.unwrap();
        self.came_back.lock().unwrap().push_str(&format!("{head}{body}\n"));
        serde_json::from_str(&body).unwrap_or(Value::String(body))
    }

    async fn get(&self, path: &str) -> Value {
        self.send(self.client.http.get(self.client.url(path))).await
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.send(self.client.http.post(self.client.url(path)).json(body)).await
    }

    async fn post_raw(&self, path: &str, body: &str) -> Value {
        let request = self.client.http.post(self.client.url(path)).header("content-type", "application/json");
        self.send(request.body(body.to_owned())).await
    }

    async fn send_message(&self, thread: &str, words: &str) {
        self.post(&format!("/qa/chat_streamed/{thread}"), &json!({ "content": words })).await;
    }

    /// Has the model request a call. Returns its id if the call is held.
    async fn hold(&self, thread: &str, tool: &str, note: &str) -> Option<String> {
        self.send_message(thread, &format!("call {tool} {note}")).await;
        let messages = self.get(&format!("/threads/{thread}/messages")).await;
        let parts = messages["results"].as_array()?.last()?["parts"].as_array()?.clone();
        let call = parts.iter().rev().find(|part| part["type"] == "tool_call")?["tool_call"].clone();
        (call["state"] == "pending").then(|| call.text("tool_call_id").to_owned())
    }

    /// Posts malformed bodies to every route that takes a body.
    async fn bad_bodies(&self, thread: &str) {
        let paths =
            ["/threads", "/qa/validate_tool", "/qa/chat_streamed", &format!("/qa/chat_streamed/{thread}")];
        for path in paths {
            for body in [
                "canary-body",
                "{\"canary-body\":",
                "{\"canary-body\":1}",
                "\"canary-body\"",
                "[\"canary-body\"]",
                "{\"title\":[\"canary-body\"],\"content\":[\"canary-body\"],\"toolCallId\":[\"canary-body\"]}",
                "{\"title\":\"canary-body\",\"title\":\"canary-body\"}",
                "{\"toolCallId\":\"canary-body\",\"isValidated\":\"canary-body\"}",
                "{\"toolCallId\":\"canary-body\",\"isValidated\":true}",
                "{\"messages\":[{\"role\":\"canary-body\",\"content\":\"canary-body\"}]}",
                "{\"id\":\"canary-body\\u0000\",\"content\":\"canary-body\"}",
                "{\"model\":\"canary-body\",\"content\":\"canary-body\"}",
                &format!("{}\"canary-body\"{}", "[".repeat(300), "]".repeat(300)),
                &"canary-body".repeat(30_000),
            ] {
                self.post_raw(path, body).await;
            }
            let plain = self.client.http.post(self.client.url(path)).header("content-type", "text/plain");
            self.send(plain.body("canary-body")).await;
            for method in [Method::PUT, Method::PATCH, Method::OPTIONS, Method::TRACE] {
                self.send(self.client.http.request(method, self.client.url(path)).body("canary-body")).await;
            }
        }
    }

    /// Sends requests with every kind of invalid token.
    async fn wrong_tokens(&self) {
        let good = token::claims("acme", "ann", &[]);
        let mut tokens = vec![
            "nonsense".to_owned(),
            "a.b.c".to_owned(),
            token::SECRET.to_owned(),
            format!("{}x", token::signed(&good)),
        ];
        for change in [
            json!({ "exp": 1 }),
            json!({ "exp": null }),
            json!({ "iss": "canary-body" }),
            json!({ "aud": "canary-body" }),
            json!({ "sub": null }),
            json!({ "sub": "canary-body\r\n" }),
            json!({ "tenant": ["canary-body"] }),
            json!({ "roles": { "canary-body": 1 } }),
        ] {
            tokens.push(token::signed(&token::changed(good.clone(), &change)));
        }
        for token in tokens {
            let other_user = self.client.with_token(&token);
            for path in ["/threads", "/tools", "/qa/models"] {
                self.send(other_user.http.get(other_user.url(path))).await;
            }
            self.send(other_user.http.post(other_user.url("/threads")).body("{\"title\":\"canary-body\"}"))
                .await;
        }
    }

    /// Runs turns, calls and decisions, some of which fail.
    async fn turns(&self) {
        for n in 0..4 {
            let thread = self.post("/threads", &json!({ "title": "canary-words" })).await;
            let thread = thread.text("thread_id").to_owned();
            self.send_message(&thread, &format!("canary-words {n}")).await;
            self.send_message(&thread, "refuse canary-words").await;
            self.send_message(&thread, "garble canary-words").await;
            self.send_message(&thread, "call look canary-argument").await;
            self.send_message(&thread, "call made_up canary-argument").await;
            self.send_message(&thread, &format!("call pay {}", "canary-argument".repeat(20))).await;
            for tool in ["break", "refuse", "mumble"] {
                let id = self.hold(&thread, tool, "canary-argument").await.unwrap();
                let bad = json!({ "toolCallId": id, "isValidated": true,
                                  "validatedInputs": { "canary-edit": "canary-edit" } });
                self.post("/qa/validate_tool", &bad).await;
                let stale = json!({ "toolCallId": id, "isValidated": true, "inputHash": "canary-body" });
                self.post("/qa/validate_tool", &stale).await;
                let edited = json!({ "toolCallId": id, "isValidated": true,
                                     "validatedInputs": { "note": "canary-edit" } });
                for _again in 0..2 {
                    self.post("/qa/validate_tool", &edited).await;
                }
                let other = json!({ "toolCallId": id, "isValidated": false, "reason": "canary-reason" });
                self.post("/qa/validate_tool", &other).await;
                self.get(&format!("/tool_calls/{id}")).await;
            }
            let id = self.hold(&thread, "pay", "canary-argument").await.unwrap();
            let no = json!({ "toolCallId": id, "isValidated": false, "reason": "canary-reason" });
            self.post("/qa/validate_tool", &no).await;
            self.send_message(&thread, "canary-words and on").await;
            self.get(&format!("/threads/{thread}/messages")).await;
            self.get(&format!("/threads/{thread}/messages?format=v4")).await;
            for path in
                ["/threads/canary-body", "/tool_calls/x", "/runs/x", "/tools/x", "/threads?page_size=x"]
            {
                self.get(path).await;
            }
        }
    }

    /// Uses a ticket where it is valid, after it has expired, and where it never was valid.
    async fn ticket(&self, nobody: &Client) -> String {
        let made = self.client.post("/tickets", &json!({})).await.body;
        let ticket = made.text("ticket").to_owned();
        for (path, status) in [("/threads", 401), ("/ws", 400), ("/ws", 401), ("/events", 401)] {
            let answer = nobody.get(&format!("{path}?ticket={ticket}")).await;
            assert_eq!(answer.status, status, "{path}: {:?}", answer.body);
            self.came_back.lock().unwrap().push_str(&answer.body.to_string());
        }
        ticket
    }

    /// Sends decisions over the WebSocket, which emits their events too.
    async fn socket(&self, nobody: &Client) {
        let thread = self.post("/threads", &json!({})).await;
        let thread = thread.text("thread_id").to_owned();
        let edited = self.hold(&thread, "mumble", "canary-argument").await.unwrap();
        let rejected = self.hold(&thread, "mumble", "canary-argument 2").await.unwrap();
        let made = self.client.post("/tickets", &json!({})).await.body;
        let path = format!("/ws?ticket={}", made.text("ticket"));
        let mut socket = Socket::open(nobody, &path, &[]).await.ok().unwrap();
        let yes = json!({ "tool_call_id": edited, "decision": "approve", "validated_inputs": { "note": "canary-edit" } });
        let (status, _) = socket.ask(&json!("canary-body"), &yes).await;
        assert_eq!(status, 200);
        let no = json!({ "tool_call_id": rejected, "decision": "reject", "reason": "canary-reason" });
        let (status, _) = socket.ask(&json!("canary-body"), &no).await;
        assert_eq!(status, 200);
        socket.send("canary-body").await;
        assert_eq!(socket.answer(&Value::Null).await.0, 400);
    }

    /// Sends bytes that no client sends.
    async fn raw(&self, head: &str) {
        let address = self.client.base.strip_prefix("http://").unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may cut the connection.
        let _ended = socket.read_to_end(&mut answer).await;
        self.came_back.lock().unwrap().push_str(&String::from_utf8_lossy(&answer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_h2_h4_no_output_contains_a_secret_and_no_log_contains_content() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = postgres_if_chosen().await.map(|_| Cluster::start());
    let database = match &cluster {
        Some(cluster) => cluster.database().await.replace("postgres@", &format!("postgres:{PASSWORD}@")),
        None => sqlite(&dir),
    };
    let loud = [
        ("HOLDPOINT_LOG__LEVEL", "trace,tungstenite=trace,tokio_tungstenite=trace,hyper=trace,sqlx=trace"),
        ("HOLDPOINT_LOG__FORMAT", "json"),
        ("HOLDPOINT_SERVER__METRICS_BIND", "127.0.0.1:0"),
    ];
    let watched = WatchedServer::start_on(dir, database.clone(), &loud).await;
    let bearer = token::token("acme", "ann", &[]);
    let prober = Prober::of(watched.server.client.with_token(&bearer));

    let thread = prober.post("/threads", &json!({ "title": "canary-words" })).await;
    prober.bad_bodies(thread.text("thread_id")).await;
    prober.wrong_tokens().await;
    prober.turns().await;
    let ticket = prober.ticket(&watched.server.client).await;
    prober.socket(&watched.server.client).await;
    for head in [
        "GET /threads HTTP/1.1\r\nhost: x\r\nuser-agent: canary-body\u{1b}[31m\r\nconnection: close\r\n\r\n",
        "GET /threads HTTP/1.1\r\nhost: x\r\nx-request-id: canary-body\u{7f}\r\nconnection: close\r\n\r\n",
        "POST /threads HTTP/1.1\r\nhost: x\r\ncontent-length: canary-body\r\n\r\n",
        "canary-body\r\n\r\n",
    ] {
        prober.raw(head).await;
    }
    for path in ["/openapi.json", "/docs", "/healthz", "/readyz", "/nowhere"] {
        prober.get(path).await;
    }
    let operators = watched.server.operators().await;
    let metrics =
        prober.send(operators.http.get(operators.url("/metrics"))).await.as_str().unwrap().to_owned();
    assert!(metrics.contains("holdpoint_turns_total"), "{metrics}");

    // The database has failed, or refuses every write.
    let rows = Rows::open(&database).await;
    let ticket_key = rows.all("SELECT signing_key FROM ticket_keys").await[0]["signing_key"].clone();
    let ticket_key = ticket_key.as_str().unwrap();
    match &cluster {
        Some(cluster) => cluster.stop_now(),
        None => drop(rows.change("BEGIN EXCLUSIVE").await.unwrap()),
    }
    let gone = (0..5).map(|_| async {
        prober.post("/threads", &json!({ "title": "canary-words" })).await;
        prober.send_message(thread.text("thread_id"), "canary-words").await;
    });
    join_all(gone).await;
    prober.get("/readyz").await;
    match &cluster {
        Some(cluster) => cluster.start_again(),
        None => drop(rows.change("ROLLBACK").await.unwrap()),
    }

    let came_back = prober.came_back.lock().unwrap().clone();
    let sent = *prober.sent.lock().unwrap();
    assert!(sent > 300, "{sent} requests");
    for status in ["401", "404", "405", "409", "413", "415", "422", "503"] {
        assert!(came_back.lines().any(|line| line.starts_with(status)), "nothing was answered with {status}");
    }
    drop(prober);
    let printed = watched.finish();
    for failure in ["something panicked", "a model call failed", "the store failed"] {
        assert!(printed.contains(failure), "{failure:?} is not in the log:\n{printed}");
    }
    // Neither half of a ticket may appear alone.
    let (texts, mac) = ticket.split_once('.').unwrap();
    for secret in [MODEL_KEY, token::SECRET, PASSWORD, &bearer, texts, mac, ticket_key] {
        for (place, text) in [("the log", &printed), ("an answer", &came_back), ("the metrics", &metrics)] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is in {place}");
        }
    }
    for content in CONTENT {
        for (place, text) in [("the log", &printed), ("the metrics", &metrics)] {
            // The access log contains the path of a request.
            let line = text.lines().find(|line| line.replace("/threads/canary-body", "").contains(content));
            assert_eq!(line, None, "{content} is in {place}");
        }
    }
    let logged: Vec<Value> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    assert!(logged.iter().filter(|line| line["message"] == "answered").count() >= sent);
    let broke = logged.iter().find(|line| line["message"] == "something panicked").unwrap();
    for field in ["timestamp", "level", "target", "request_id", "tool_call_id", "tool", "tenant", "user"] {
        assert!(broke[field].is_string(), "{field} in {broke}");
    }
    let failed = logged.iter().find(|line| line["message"] == "a model call failed").unwrap();
    for field in ["request_id", "thread_id", "run_id", "user"] {
        assert!(failed[field].is_string(), "{field} in {failed}");
    }
}

#[test]
fn h1_a_failed_start_and_a_printed_configuration_contain_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.args(arguments).env_clear().current_dir(dir.path());
        command.env("HOLDPOINT_MODEL__API_KEY", MODEL_KEY).envs(token::VARIABLES);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let nobody = format!("postgres://me:{PASSWORD}@127.0.0.1:1/x");
    let mut texts = vec![run(&["config"], &[("HOLDPOINT_DATABASE__URL", &nobody)])];
    assert!(texts[0].0, "{}", texts[0].1);
    for (key, value, named) in [
        ("HOLDPOINT_DATABASE__URL", nobody.as_str(), "database.url"),
        ("HOLDPOINT_DATABASE__URL", &format!("{nobody}?{PASSWORD}"), "database.url"),
        ("HOLDPOINT_DATABASE__URL", &format!("{nobody}?sslpassword={PASSWORD}"), "database.url"),
        ("HOLDPOINT_DATABASE__URL", PASSWORD, "database.url"),
        ("DATABASE_URL", &format!("mysql://me:{PASSWORD}@h/x"), "database.url"),
        ("HOLDPOINT_MODEL__BASE_URL", &format!("https://me:{PASSWORD}@m.example"), "model.base_url"),
        ("HOLDPOINT_LOG__OTLP_ENDPOINT", &format!("ftp://me:{PASSWORD}@m.example"), "log.otlp_endpoint"),
    ] {
        let with = [
            ("HOLDPOINT_MODEL__PROVIDER", "openai"),
            ("HOLDPOINT_MODEL__NAME", "m"),
            ("HOLDPOINT_MODEL__BASE_URL", "http://127.0.0.1:1/v1"),
            ("HOLDPOINT_SERVER__BIND", "127.0.0.1:0"),
            ("HOLDPOINT_LOG__LEVEL", "trace"),
            (key, value),
        ];
        let ended = run(&[], &with);
        assert!(!ended.0 && ended.1.contains(named), "{key}: {}", ended.1);
        texts.push(ended);
    }
    let keys = format!("jwks_url = \"https://a:{PASSWORD}@b/\"");
    for keys in [format!("secret = \"{}\"", token::SECRET), keys] {
        let secrets = format!(
            "[auth]\nmode = \"jwt\"\nissuer = \"i\"\naudience = \"a\"\n{keys}\n[model]\napi_key = \"{MODEL_KEY}\"\n\
             base_url = \"https://a:{PASSWORD}@b/\"\n[database]\nurl = \"postgres://a:{PASSWORD}@b/c\"\n",
        );
        let config: Config = toml::from_str(&secrets).unwrap();
        texts.push((true, format!("{config:?} {config:#?}")));
    }
    for secret in [MODEL_KEY, token::SECRET, PASSWORD] {
        for (_, texts) in &texts {
            assert!(!texts.contains(secret), "{secret} in {texts}");
        }
    }
}
