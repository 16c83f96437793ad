//! A folder and a database for server processes that are started repeatedly.
//!
//! The server is this test binary, run as a process that serves slow tools.

use super::logged::log_statements;
use super::{
    Client, EndedCommand, Probe, Process, Rows, StatementLog, add_agents, eventually, holdpoint, postgres,
    postgres_if_chosen, valid_question,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use holdpoint::app::App;
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::llm::FinishReason;
use holdpoint::llm::{LanguageModel, ModelError, ModelEvent, ModelMessage, ModelRequest};
use holdpoint::telemetry;
use holdpoint::tools::{IdempotencyKey, Permit, Tool, ToolError, ToolRegistry, Verified};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Set in the child only. Its name does not begin with `HOLDPOINT_`, because the server refuses to start with
/// unknown variables of that prefix.
const CHILD: &str = "CHILD_SERVER";
/// Set in the child whose statements are logged.
const STATEMENTS: (&str, &str) = ("CHILD_STATEMENTS", "statements");
/// The ledger in the server's folder: one line for each execution, and for each answer that begins.
const LEDGER: &str = "ledger";
/// Tools that are called wait while this file exists.
const NOT_YET: &str = "not-yet";
/// Waiting tools and answers continue when this file exists.
const RELEASED: &str = "go";

/// Waits without a deadline; the test has its own.
async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn record(line: String) {
    let mut ledger = std::fs::File::options().create(true).append(true).open(LEDGER).unwrap();
    ledger.write_all(format!("{line}\n").as_bytes()).unwrap();
    ledger.sync_all().unwrap();
}

async fn record_and_wait(line: String) {
    record(line);
    wait_until(|| Path::new(RELEASED).exists()).await;
}

/// The body of a tool without retries: the first line is its effect.
async fn work(line: String) {
    wait_until(|| !Path::new(NOT_YET).exists()).await;
    record_and_wait(line.clone()).await;
    record(format!("{line} done"));
}

/// Requires an approval.
struct Transfer;
/// Runs without an approval.
struct Sync;

impl Tool for Transfer {
    const NAME: &'static str = "transfer";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        work(format!("transfer {}", input.note)).await;
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
        work(format!("sync {}", input.note)).await;
        Ok(json!({ "synced": input.note }))
    }
}

/// Requires an approval, and may be retried.
struct Restock;
/// Runs without an approval, and may be retried.
struct Tidy;

/// The lines of the ledger that the model writes.
const MODEL_LINES: [&str; 4] = ["think", "ponder", "slowly", "all is said"];

/// The body of both: each attempt records its number and its idempotency key.
async fn attempt<T>(name: &str, input: Probe, permit: Permit<T>) -> Value {
    let (attempt, key) = (permit.attempt(), permit.idempotency_key());
    work(format!("{name} {} attempt {attempt} key {key}", input.note)).await;
    json!({ "attempt": attempt })
}

impl Tool for Restock {
    const NAME: &'static str = "restock";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = true;
    const IDEMPOTENT: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(attempt("restock", input, permit).await)
    }
}

impl Tool for Tidy {
    const NAME: &'static str = "tidy";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = false;
    const IDEMPOTENT: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(attempt("tidy", input, permit).await)
    }
}

/// Requires an approval, and verifies the outcome of a call: it is in the ledger.
struct Deliver;

impl Tool for Deliver {
    const NAME: &'static str = "deliver";
    const DESCRIPTION: &'static str = "Takes its time.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, permit: Permit<Self>) -> Result<Value, ToolError> {
        let line = format!("deliver {} key {}", input.note, permit.idempotency_key());
        work(line.clone()).await;
        Ok(json!({ "delivered": line }))
    }

    async fn verify(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        let ledger = std::fs::read_to_string(LEDGER).unwrap_or_default();
        let mut done = ledger.lines().filter_map(|line| line.strip_suffix(" done"));
        let own = done.find(|line| line.ends_with(key.as_str()));
        Ok(own.map_or(Verified::Unknown, |line| Verified::Happened(json!({ "delivered": line }))))
    }
}

/// A model that calls the tool named by the user, repeats the answer of a tool, and answers `think` in two
/// slow halves. On `ponder` it stays silent for long, and then follows the rest of the message.
#[derive(Debug)]
struct Parrot;

impl LanguageModel for Parrot {
    fn id(&self) -> &str {
        "parrot"
    }

    fn provider(&self) -> &str {
        "test"
    }

    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        valid_question(request).unwrap_or_else(|wrong| panic!("{wrong}: {request:#?}"));
        let end = |reason| ModelEvent::Finished { reason, usage: None, provider_state: None };
        let output = |text: &str| vec![ModelEvent::Text(text.to_owned()), end(FinishReason::Stop)];
        let events = match request.messages.last() {
            Some(ModelMessage::User(words)) if words == "think" => {
                let started = stream::iter([Ok(ModelEvent::Text("Half an ".to_owned()))]);
                let rest = stream::once(record_and_wait("think".to_owned())).flat_map(move |()| {
                    stream::iter([ModelEvent::Text("answer.".to_owned()), end(FinishReason::Stop)])
                });
                return started.chain(rest.map(Ok)).boxed();
            }
            Some(ModelMessage::User(words)) if let Some(words) = words.strip_prefix("ponder ") => {
                let mut requested = request.clone();
                requested.messages.pop();
                requested.messages.push(ModelMessage::User(words.to_owned()));
                let answer = self.stream(&requested);
                let pondered = record_and_wait("ponder".to_owned());
                return stream::once(async move {
                    pondered.await;
                    answer
                })
                .flatten()
                .boxed();
            }
            Some(ModelMessage::User(words)) if let Some(note) = words.strip_prefix("slowly ") => {
                return slowly(note.to_owned(), end(FinishReason::ToolCalls));
            }
            Some(ModelMessage::User(words)) if let Some(note) = words.strip_prefix("both ") => {
                let [sync, transfer] = [called(0, "sync", note), called(1, "transfer", note)];
                sync.into_iter().chain(transfer).chain([end(FinishReason::ToolCalls)]).collect()
            }
            Some(ModelMessage::User(words)) => match words.split_once(' ') {
                Some((tool_name, note)) => {
                    called(0, tool_name, note).into_iter().chain([end(FinishReason::ToolCalls)]).collect()
                }
                None => output(words),
            },
            Some(ModelMessage::Tool { text, .. }) => output(text),
            Some(ModelMessage::Assistant { .. }) | None => output("nobody asked"),
        };
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

fn called(index: usize, tool_name: &str, note: &str) -> [ModelEvent; 3] {
    [
        ModelEvent::CallStarted {
            index,
            provider_call_id: if index == 0 { format!("p-{note}") } else { format!("p-{note}-{index}") },
            tool_name: tool_name.to_owned(),
        },
        ModelEvent::CallArguments { index, delta: json!({ "note": note }).to_string() },
        ModelEvent::CallFinished { index },
    ]
}

/// A call of `transfer` with a pause inside its arguments. The ledger line is written after every event but
/// the last was sent.
fn slowly(note: String, end: ModelEvent) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
    let [started, arguments, finished] = called(0, "transfer", &note);
    let ModelEvent::CallArguments { index, mut delta } = arguments else { unreachable!() };
    let rest = delta.split_off(5);
    let started = stream::iter([started, ModelEvent::CallArguments { index, delta }]);
    let paused = stream::once(record_and_wait("slowly".to_owned()));
    let rest = [ModelEvent::CallArguments { index, delta: rest }, finished];
    let rest = paused.flat_map(move |()| stream::iter(rest.clone()));
    let all_but_end = started.chain(rest);
    let ended = stream::once(async move {
        record("all is said".to_owned());
        end
    });
    all_but_end.chain(ended).map(Ok).boxed()
}

/// The process of a server of a [`Deployment`]: see `child_servers`.
pub fn serve_deployed() {
    #[expect(clippy::disallowed_methods, reason = "tells the child from a test run with --ignored")]
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let config = Config::load(&Flags::default()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "set by `Deployment`, not by the configuration")]
        let telemetry = match std::env::var_os(STATEMENTS.0) {
            Some(file) => {
                log_statements(Path::new(&file));
                None
            }
            None => Some(telemetry::begin(&config.log).unwrap()),
        };
        let mut tools = ToolRegistry::new();
        tools.register(Transfer).unwrap();
        tools.register(Sync).unwrap();
        tools.register(Restock).unwrap();
        tools.register(Tidy).unwrap();
        tools.register(Deliver).unwrap();
        add_agents(&mut tools);
        let bind = config.server.bind;
        let app =
            match App::builder(config).tools(tools).model(Arc::new(Parrot)).handler(Deferred).build().await {
                Ok(app) => app,
                Err(error) => panic!("{error}"),
            };
        let listener = TcpListener::bind(bind).await.unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        println!("holdpoint listens on http://{}", listener.local_addr().unwrap());
        let stop = async {
            terminate.recv().await;
        };
        app.serve(listener, stop).await.unwrap();
        if let Some(telemetry) = telemetry {
            telemetry.end().await;
        }
    });
}

/// The folder and the database.
pub struct Deployment {
    dir: TempDir,
    database: String,
}

/// The lease of runs and calls: as short as a busy machine allows.
pub const LEASE: Duration = Duration::from_secs(2);

impl Deployment {
    /// On the database chosen for the tests.
    pub async fn new() -> Self {
        match postgres_if_chosen().await {
            Some(url) => Self::at(url),
            None => Self::on_sqlite(),
        }
    }

    /// On SQLite, regardless of the chosen database.
    pub fn on_sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { database: super::sqlite(&dir), dir }
    }

    /// On Postgres, where several servers may run side by side.
    pub async fn on_postgres() -> Self {
        Self::at(postgres().await)
    }

    pub fn at(database: String) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), database }
    }

    /// Starts a server, in which a decision waits this long for the outcome.
    pub fn start(&self, wait: &str) -> Process {
        self.start_with(wait, &[])
    }

    /// Starts a server with more settings.
    pub fn start_with(&self, wait: &str, settings: &[(&str, &str)]) -> Process {
        Process::spawn(self.command(wait).envs(settings.iter().copied()))
    }

    /// Starts a server with these settings whose statements are logged.
    pub fn start_logged(&self, settings: &[(&str, &str)]) -> (Process, StatementLog) {
        let settings = [settings, &[STATEMENTS]].concat();
        (self.start_with("30s", &settings), StatementLog::from(self.dir.path().join(STATEMENTS.1)))
    }

    /// The command that starts a server.
    pub fn command(&self, wait: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "child_servers::deployed", "--nocapture"])
            .current_dir(self.dir.path())
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_LOG__LEVEL", "off")
            .env("HOLDPOINT_APPROVAL__LEASE", format!("{}ms", LEASE.as_millis()))
            .env("HOLDPOINT_APPROVAL__SWEEP", "100ms")
            .env("HOLDPOINT_TOOLS__CANCEL_GRACE", "50ms")
            .env("HOLDPOINT_APPROVAL__WAIT", wait);
        command
    }

    pub fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(LEDGER)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A server that is running an approved call, with the thread and the call.
    pub async fn in_mid_tool(&self) -> (Process, String, String) {
        let server = self.start("0s");
        let thread = server.client.thread().await;
        let id = self.hold(&server.client, &thread, "10").await;
        server.client.approve(&id).await.has_status(202);
        self.wait_started(&["transfer 10"]).await;
        (server, thread, id)
    }

    /// Has the model request one `transfer`, and returns the call's id.
    pub async fn hold(&self, client: &Client, thread: &str, note: &str) -> String {
        self.hold_of(client, thread, &format!("transfer {note}")).await
    }

    /// The same with this message: a tool and its note.
    pub async fn hold_of(&self, client: &Client, thread: &str, words: &str) -> String {
        let turn = client.send_message(thread, words).await;
        let pending = turn.pending();
        assert_eq!(pending.len(), 1, "{}", turn.raw);
        pending[0].clone()
    }

    /// Waits until the ledger has these lines. If the last one is of the model, also waits until a turn runs:
    /// the request to the model leaves before the commit that begins the turn.
    pub async fn wait_started(&self, lines: &[&str]) {
        eventually("the ledger has these lines", async || (self.ledger() == lines).then_some(())).await;
        if lines.last().is_some_and(|last| MODEL_LINES.contains(last)) {
            let rows = self.rows().await;
            let runs = async || (rows.count("runs WHERE status = 'running'").await > 0).then_some(());
            eventually("a turn runs", runs).await;
            rows.close().await;
        }
    }

    /// Releases waiting tools and answers, including later ones.
    pub fn release(&self) {
        std::fs::write(self.dir.path().join(RELEASED), "").unwrap();
    }

    /// Makes tools wait before their effect.
    pub fn not_yet(&self) {
        std::fs::write(self.dir.path().join(NOT_YET), "").unwrap();
    }

    /// Releases the tools that wait before their effect.
    pub fn now(&self) {
        std::fs::remove_file(self.dir.path().join(NOT_YET)).unwrap();
    }

    /// Makes every writer wait until this connection's `ROLLBACK`.
    pub async fn hold_writers(&self, rows: &Rows) {
        let lock = if self.is_postgres() {
            "BEGIN; LOCK TABLE threads IN EXCLUSIVE MODE"
        } else {
            "BEGIN IMMEDIATE"
        };
        rows.change(lock).await.unwrap();
    }

    pub async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }

    pub fn database_url(&self) -> String {
        self.database.clone()
    }

    pub fn is_postgres(&self) -> bool {
        self.database.starts_with("postgres:")
    }

    /// Runs the server's own binary here as an operator does, to its end.
    pub fn operate(&self, args: &[&str]) -> EndedCommand {
        EndedCommand::of(self.operator(args).output().unwrap())
    }

    /// The command of an operator with these arguments.
    pub fn operator(&self, args: &[&str]) -> Command {
        holdpoint(self.dir.path(), &self.database, args)
    }

    /// Copies the database, which must have no connections, and returns the URL of the copy.
    pub async fn copied(&self) -> String {
        let Some((server, name)) = self.database.rsplit_once('/').filter(|_| self.is_postgres()) else {
            let copy = self.dir.path().join("copy.db");
            let rows = self.rows().await;
            rows.change(&format!("VACUUM INTO '{}'", copy.display())).await.unwrap();
            return format!("sqlite://{}", copy.display());
        };
        let rows = Rows::open(&format!("{server}/postgres")).await;
        let copy = format!("CREATE DATABASE {name}_copy TEMPLATE {name}");
        // Postgres may still have to notice that the sessions of an ended process are closed.
        eventually("nobody is there", async || rows.change(&copy).await.ok()).await;
        format!("{}_copy", self.database)
    }

    /// Uses the database at this URL from here on: a restore.
    pub fn restore(&mut self, copy: String) {
        self.database = copy;
    }
}
