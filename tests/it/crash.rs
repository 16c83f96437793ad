//! A server that dies: what was under way is `interrupted`, what waited still waits, and nothing runs twice.
//!
//! The server is this very binary, started again as a process of its own that serves slow tools.

use crate::support::{Client, Probe, Process, Rows, eventually, postgres};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::{self, BoxStream};
use holdpoint::app::App;
use holdpoint::config::{Config, Flags};
use holdpoint::llm::FinishReason;
use holdpoint::llm::{LanguageModel, ModelError, ModelEvent, ModelMessage, ModelRequest};
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// What is told of a call that nobody saw the end of.
const UNKNOWN: &str = "The outcome is unknown: the tool may have run, wholly or in part. \
                       Do not repeat it without asking the user.";

/// Set for the child only. Not `HOLDPOINT_…`: the server refuses to start on a variable of that kind it does not know.
const CHILD: &str = "CRASH_CHILD_SERVER";
/// What happened, in the folder of the server: one line for each execution, and for each answer begun.
const LEDGER: &str = "ledger";
/// Whoever waits goes on when this file is there.
const GO: &str = "go";

async fn record(line: String) {
    let mut ledger = std::fs::File::options().create(true).append(true).open(LEDGER).unwrap();
    ledger.write_all(format!("{line}\n").as_bytes()).unwrap();
    ledger.sync_all().unwrap();
    // As long as the test wants it: there is no deadline but the test's own.
    while !Path::new(GO).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Asks first.
struct Transfer;
/// Runs by itself.
struct Sync;

impl Tool for Transfer {
    const NAME: &'static str = "transfer";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        record(format!("transfer {}", input.note)).await;
        Ok(json!({ "transferred": input.note }))
    }
}

impl Tool for Sync {
    const NAME: &'static str = "sync";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = false;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        record(format!("sync {}", input.note)).await;
        Ok(json!({ "synced": input.note }))
    }
}

/// Calls the tool a user names, says back what a tool answered, and thinks for long when told `think`.
#[derive(Debug)]
struct Parrot;

impl LanguageModel for Parrot {
    fn id(&self) -> &str {
        "parrot"
    }

    fn provider(&self) -> &str {
        "test"
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        let end = |reason| ModelEvent::Finished { reason, usage: None, provider_state: None };
        let said = |text: &str| vec![ModelEvent::Text(text.to_owned()), end(FinishReason::Stop)];
        let events = match request.messages.last() {
            Some(ModelMessage::User(words)) if words == "think" => {
                let begun = stream::iter([Ok(ModelEvent::Text("Half an ".to_owned()))]);
                let rest = stream::once(record("think".to_owned())).flat_map(move |()| {
                    stream::iter([ModelEvent::Text("answer.".to_owned()), end(FinishReason::Stop)])
                });
                return begun.chain(rest.map(Ok)).boxed();
            }
            Some(ModelMessage::User(words)) => match words.split_once(' ') {
                Some((tool_name, note)) => vec![
                    ModelEvent::CallStarted {
                        index: 0,
                        provider_call_id: format!("p-{note}"),
                        tool_name: tool_name.to_owned(),
                    },
                    ModelEvent::CallArguments { index: 0, delta: json!({ "note": note }).to_string() },
                    ModelEvent::CallFinished { index: 0 },
                    end(FinishReason::ToolCalls),
                ],
                None => said(words),
            },
            Some(ModelMessage::Tool { text, .. }) => said(text),
            Some(ModelMessage::Assistant { .. }) | None => said("nobody asked"),
        };
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// Not a test: the server of the tests below.
#[test]
#[ignore = "serves until it is stopped; the tests of this file start it"]
fn child_server() {
    #[expect(clippy::disallowed_methods, reason = "tells the child from a test run with --ignored")]
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let config = Config::load(&Flags::default()).unwrap();
        let mut tools = ToolRegistry::new();
        tools.register(Transfer).unwrap();
        tools.register(Sync).unwrap();
        let bind = config.server.bind;
        let app = App::build(config, tools, vec![Arc::new(Parrot)]).await.unwrap();
        let listener = TcpListener::bind(bind).await.unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        println!("holdpoint listens on http://{}", listener.local_addr().unwrap());
        let stop = async {
            terminate.recv().await;
        };
        app.serve(listener, stop).await.unwrap();
    });
}

/// The folder and the database of a server that is started again and again.
struct Place {
    dir: TempDir,
    database: String,
}

impl Place {
    /// On SQLite, whatever the others stand on: there the next start puts in order what a dead server left.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}/holdpoint.db", dir.path().display());
        Self { dir, database }
    }

    fn on(database: String) -> Self {
        Self { database, ..Self::new() }
    }

    /// Starts the server; who decides waits for the outcome this long.
    fn start(&self, wait: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "crash::child_server", "--nocapture"])
            .current_dir(self.dir.path())
            .env(CHILD, "1")
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_APPROVAL__LEASE", "1s")
            .env("HOLDPOINT_APPROVAL__WAIT", wait);
        Process::spawn(&mut command)
    }

    fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(LEDGER)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A server that runs an approved call, with the thread and the call.
    async fn in_mid_tool(&self) -> (Process, String, String) {
        let server = self.start("0s");
        let thread = server.client.thread().await;
        let id = held(&server.client, &thread, "10").await;
        assert_eq!(server.client.approve(&id).await.status, 202);
        self.wait_begun(&["transfer 10"]).await;
        (server, thread, id)
    }

    async fn wait_begun(&self, lines: &[&str]) {
        eventually("the ledger has these lines", async || (self.ledger() == lines).then_some(())).await;
    }

    fn go(&self) {
        std::fs::write(self.dir.path().join(GO), "").unwrap();
    }

    async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }
}

/// Asks for one `transfer` and gives its id.
async fn held(client: &Client, thread: &str, note: &str) -> String {
    let turn = client.say(thread, &format!("transfer {note}")).await;
    let pending = turn.pending();
    assert_eq!(pending.len(), 1, "{}", turn.raw);
    pending[0].clone()
}

/// Begins a turn and leaves it when the line with this code has come: its end is nobody's to read.
async fn begin(client: &Client, thread: &str, words: &str, code: &str) {
    let path = client.url(&format!("/qa/chat_streamed/{thread}"));
    let mut turn = client.http.post(path).json(&json!({ "content": words })).send().await.unwrap();
    let mut read = String::new();
    while !read.contains(&format!("\n{code}:")) {
        let piece = turn.chunk().await.unwrap().expect("the turn goes on");
        read.push_str(std::str::from_utf8(&piece).unwrap());
    }
    // The connection has to stay until the server is gone.
    std::mem::forget(turn);
}

async fn message(client: &Client, thread: &str) -> Value {
    let messages = client.get(&format!("/threads/{thread}/messages")).await.body;
    messages["results"].as_array().unwrap().last().unwrap().clone()
}

#[tokio::test]
async fn killed_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_runs_again() {
    let place = Place::new();
    let (mut server, thread, id) = place.in_mid_tool().await;
    let running = server.client.call(&id).await;
    assert_eq!((&running["state"], &running["validated"]), (&json!("executing"), &json!(true)));
    server.kill();

    let server = place.start("30s");
    let client = &server.client;
    let call = client.call(&id).await;
    assert_eq!((&call["state"], &call["validated"]), (&json!("interrupted"), &json!(true)));
    assert_eq!(call["result"], UNKNOWN);
    assert_eq!(call["started_at"], running["started_at"]);
    assert!(call["finished_at"].is_string());
    assert_eq!(call.get("output"), None);
    assert_eq!(call["decision"], running["decision"]);

    let repeat = client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    let stored = json!({ "success": false, "result": UNKNOWN, "toolCallId": id, "state": "interrupted" });
    assert_eq!(repeat.body, stored);
    assert_eq!(client.reject(&id).await.code(), "already_decided");

    place.go();
    let told = client.go_on(&thread).await;
    assert_eq!(told.codes(), "a8ef0ed");
    assert_eq!(*told.one('a'), json!({ "toolCallId": id, "result": { "error": UNKNOWN } }));
    assert_eq!(*told.one('8'), json!([{ "toolCallId": id, "validated": "interrupted" }]));
    assert!(told.text().starts_with("The outcome is unknown"), "{}", told.text());
    assert_eq!(client.say(&thread, "thanks").await.text(), "thanks");
    assert_eq!(place.ledger(), ["transfer 10"]);
    let rows = place.rows().await;
    let attempts = rows.all("SELECT exec_attempt, state FROM tool_calls").await;
    assert_eq!(attempts, [json!({ "exec_attempt": 1, "state": "interrupted" })]);
    let events = rows.all("SELECT type FROM events WHERE tool_call_id IS NOT NULL ORDER BY event_id").await;
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected =
        ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.interrupted"];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn killed_while_a_call_is_pending_it_still_is_and_a_yes_runs_it_once() {
    let place = Place::new();
    let mut server = place.start("0s");
    let thread = server.client.thread().await;
    let id = held(&server.client, &thread, "10").await;
    let before = server.client.call(&id).await;
    server.kill();

    let mut server = place.start("30s");
    assert_eq!(server.client.call(&id).await, before);
    let listed = server.client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(listed["pending_count"], 1);
    assert!(listed["active_run_id"].is_string(), "the run waits: {listed}");
    assert_eq!(server.client.go_on(&thread).await.pending(), [id.as_str()]);
    assert_eq!(place.ledger(), Vec::<String>::new());

    place.go();
    let approved = server.client.approve(&id).await;
    assert_eq!((approved.status, &approved.body["state"]), (200, &json!("succeeded")));
    server.kill();

    let server = place.start("30s");
    let repeat = server.client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(repeat.body, approved.body);
    assert_eq!(server.client.go_on(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(place.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn killed_while_the_model_speaks_the_run_is_closed_and_continuing_writes_the_same_message() {
    let place = Place::new();
    let mut server = place.start("30s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "think", "0").await;
    place.wait_begun(&["think"]).await;
    let begun = message(&server.client, &thread).await;
    assert_eq!(begun["status"], "streaming");
    server.kill();

    let server = place.start("30s");
    let client = &server.client;
    let broken = message(client, &thread).await;
    assert_eq!((&broken["message_id"], &broken["status"]), (&begun["message_id"], &json!("interrupted")));
    let rows = place.rows().await;
    let runs = rows.all("SELECT status, error_code, owner FROM runs").await;
    assert_eq!(runs, [json!({ "status": "failed", "error_code": "interrupted", "owner": null })]);
    assert_eq!(rows.all("SELECT status FROM message_steps").await, [json!({ "status": "interrupted" })]);
    let listed = client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(listed.get("active_run_id"), None, "{listed}");

    place.go();
    let again = client.go_on(&thread).await;
    assert_eq!((again.codes().as_str(), again.text().as_str()), ("f0ed", "Half an answer."));
    assert_eq!(again.one('f')["messageId"], begun["message_id"]);
    let whole = message(client, &thread).await;
    assert_eq!((&whole["message_id"], &whole["status"]), (&begun["message_id"], &json!("complete")));
    let messages = client.get(&format!("/threads/{thread}/messages")).await.body;
    assert_eq!(messages["results"].as_array().unwrap().len(), 2, "{messages}");
}

#[tokio::test]
async fn killed_while_an_ungated_tool_runs_its_outcome_is_unknown_and_the_thread_goes_on() {
    let place = Place::new();
    let mut server = place.start("30s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "sync 7", "9").await;
    place.wait_begun(&["sync 7"]).await;
    server.kill();

    let server = place.start("30s");
    let client = &server.client;
    let rows = place.rows().await;
    let calls = rows.all("SELECT state, held, decided_by, exec_attempt, result FROM tool_calls").await;
    let expected = json!({ "state": "interrupted", "held": false, "decided_by": "system:policy", "exec_attempt": 1,
                           "result": UNKNOWN });
    assert_eq!(calls, [expected]);
    let runs = rows.all("SELECT status, error_code FROM runs").await;
    assert_eq!(runs, [json!({ "status": "failed", "error_code": "interrupted" })]);
    let broken = message(client, &thread).await;
    assert_eq!(broken["status"], "interrupted");

    place.go();
    let told = client.go_on(&thread).await;
    assert_eq!(told.one('f')["messageId"], broken["message_id"], "{}", told.raw);
    assert!(told.text().starts_with("The outcome is unknown"), "{}", told.raw);
    assert_eq!(message(client, &thread).await["status"], "complete");
    assert_eq!(client.say(&thread, "sync 8").await.text(), "{\"synced\":\"8\"}");
    assert_eq!(place.ledger(), ["sync 7", "sync 8"]);
}

#[tokio::test]
async fn asked_to_stop_while_a_tool_runs_the_server_waits_and_the_decider_gets_the_outcome() {
    let place = Place::new();
    let mut server = place.start("30s");
    let client = server.client.clone();
    let thread = client.thread().await;
    let id = held(&client, &thread, "10").await;
    let address = client.base.trim_start_matches("http://").to_owned();
    let stop = async {
        place.wait_begun(&["transfer 10"]).await;
        server.terminate();
        let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
        eventually("no new connection is taken", refused).await;
        assert_eq!(server.ended(), None, "it waits for the tool");
        place.go();
    };
    let (approved, ()) = tokio::join!(client.approve(&id), stop);
    assert_eq!((approved.status, &approved.body["state"]), (200, &json!("succeeded")));
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");

    let server = place.start("30s");
    let call = server.client.call(&id).await;
    assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!({ "transferred": "10" })));
    assert_eq!(server.client.go_on(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(place.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn asked_to_stop_with_nobody_waiting_the_server_still_lets_the_tool_settle() {
    let place = Place::new();
    let (mut server, _, id) = place.in_mid_tool().await;
    server.terminate();
    let address = server.client.base.trim_start_matches("http://").to_owned();
    let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
    eventually("no new connection is taken", refused).await;
    assert_eq!(server.ended(), None, "it waits for the tool");
    place.go();
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");

    let server = place.start("30s");
    let repeat = server.client.approve(&id).await;
    assert_eq!(
        (repeat.header("idempotent-replayed"), &repeat.body["state"]),
        (Some("true"), &json!("succeeded"))
    );
    assert_eq!(place.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn what_was_taken_for_dead_and_ends_late_is_told_as_a_note() {
    let place = Place::new();
    let (mut old, thread, id) = place.in_mid_tool().await;
    // A deploy: the next server begins while this one still lets its tool finish.
    old.terminate();
    let new = place.start("30s");
    let client = &new.client;
    assert_eq!(client.call(&id).await["state"], "interrupted");
    assert!(client.go_on(&thread).await.text().starts_with("The outcome is unknown"));

    place.go();
    assert!(eventually("the old server ends", async || old.ended()).await, "and it ends well");
    let call = client.call(&id).await;
    assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!({ "transferred": "10" })));
    assert_eq!(client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(client.say(&thread, "thanks").await.text(), "thanks");
    let told = place.rows().await.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    let note = "[tool outcome] transfer, call p-10: {\"transferred\":\"10\"}";
    let expected = [json!({ "kind": "answer", "text": UNKNOWN }), json!({ "kind": "note", "text": note })];
    assert_eq!(told, expected);
    assert_eq!(place.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn killed_between_the_yes_and_the_start_repeats_of_the_yes_run_it_once() {
    let place = Place::new();
    let mut server = place.start("0s");
    let thread = server.client.thread().await;
    let id = held(&server.client, &thread, "10").await;
    server.kill();
    // What is committed when a server is killed there.
    let rows = place.rows().await;
    let yes = "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:local',
                   decided_at = created_at, start_deadline = expires_at";
    assert_eq!(rows.change(yes).await, Ok(1));
    let decision =
        "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash,
                        surface, at)
                    SELECT 'd', tool_call_id, 'user:local', 'approve', TRUE, FALSE, 'h', 'rest', created_at
                    FROM tool_calls";
    assert_eq!(rows.change(decision).await, Ok(1));

    let server = place.start("30s");
    let client = &server.client;
    assert_eq!(client.call(&id).await["state"], "approved");
    assert_eq!(client.reject(&id).await.code(), "already_decided");
    assert_eq!(place.ledger(), Vec::<String>::new());
    place.go();
    for repeat in join_all((0..10).map(|_| client.approve(&id))).await {
        assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(repeat.body["state"], "succeeded", "{:?}", repeat.body);
    }
    assert_eq!(client.go_on(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(place.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn on_postgres_a_turn_of_the_killed_server_is_taken_up_once_its_lease_is_over() {
    let place = Place::on(postgres().await);
    let mut server = place.start("0s");
    let thread = server.client.thread().await;
    begin(&server.client, &thread, "think", "0").await;
    place.wait_begun(&["think"]).await;
    let begun = message(&server.client, &thread).await;
    server.kill();

    let server = place.start("0s");
    place.go();
    let client = &server.client;
    let again = async || Some(client.go_on(&thread).await).filter(|turn| turn.status == 200);
    let again = eventually("the lease is over", again).await;
    assert_eq!((again.codes().as_str(), again.text().as_str()), ("f0ed", "Half an answer."));
    assert_eq!(again.one('f')["messageId"], begun["message_id"]);
    let steps = place.rows().await.all("SELECT status FROM message_steps ORDER BY n").await;
    assert_eq!(steps, [json!({ "status": "interrupted" }), json!({ "status": "complete" })]);
    assert_eq!(place.ledger(), ["think", "think"]);
}
