//! A server in this process, with the tools and the model of a test.

use super::{Client, EndedCommand, Ledger, Rows, Scene, eventually, holdpoint, postgres_if_chosen, probes};
use crate::JsonFields;
use holdpoint::app::{App, Clock, Deadlines, SystemClock, configured_model};
use holdpoint::config::{Config, Provider};
use holdpoint::handlers::{ApprovalHandler, Deferred};
use holdpoint::llm::LanguageModel;
use holdpoint::tools::ToolRegistry;
use poem::http::Method;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Body, Request, RequestParts};
use secrecy::ExposeSecret;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The URL of a SQLite file in this folder. The first call creates the file, with the schema.
pub fn sqlite(dir: &TempDir) -> String {
    // A copy of a migrated database costs less than a migration. The file alone is not the database: a process
    // that exits may leave committed pages in the write-ahead log, and a checkpoint half done.
    static TEMPLATE: OnceLock<(Vec<u8>, Option<Vec<u8>>)> = OnceLock::new();
    if !file(dir).exists() {
        let migrated = || {
            let folder = tempfile::tempdir().unwrap();
            EndedCommand::of(
                holdpoint(folder.path(), &empty_sqlite(&folder), &["migrate"]).output().unwrap(),
            )
            .stdout_of_success();
            (fs::read(file(&folder)).unwrap(), fs::read(write_ahead_log(&folder)).ok())
        };
        let (database, log) = TEMPLATE.get_or_init(migrated);
        fs::write(file(dir), database).unwrap();
        if let Some(log) = log {
            fs::write(write_ahead_log(dir), log).unwrap();
        }
    }
    empty_sqlite(dir)
}

/// The URL of the same file, which this function does not create.
pub fn empty_sqlite(dir: &TempDir) -> String {
    format!("sqlite://{}", file(dir).display())
}

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("holdpoint.db")
}

fn write_ahead_log(dir: &TempDir) -> PathBuf {
    dir.path().join("holdpoint.db-wal")
}

/// A request to an endpoint in this process, from this peer, with the host name `localhost`.
pub fn asked_from(peer: &RemoteAddr, method: Method, path: &str) -> Request {
    let head = poem::http::Request::builder().method(method).uri(path).header("host", "localhost").body(());
    let (head, ()) = head.unwrap().into_parts();
    let head = RequestParts::from((head, LocalAddr::default(), peer.clone(), Scheme::HTTP));
    Request::from_parts(head, Body::empty())
}

/// A server in this process. Its model is the scene unless the configuration names another. After a drop its
/// runtime stops the server.
pub struct Embedded {
    pub client: Client,
    pub scene: Scene,
    pub ledger: Ledger,
    pub rows: Rows,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    dir: TempDir,
    url: String,
}

/// A configuration with its own database.
pub(crate) fn config(dir: &TempDir) -> Config {
    let mut config = Config::default();
    config.database.url = sqlite(dir).into();
    config.server.bind = SocketAddr::from(([127, 0, 0, 1], 0));
    // Most tools of these tests ignore a cancellation.
    config.tools.cancel_grace = Duration::from_millis(50);
    // A run that the server resumes would take the next step of the scene, which the test has for another request.
    config.approval.resume_on_expiry = false;
    config
}

/// The parts of a server.
struct Parts<H> {
    config: Config,
    deadlines: Deadlines,
    tools: ToolRegistry,
    handler: H,
    clock: Arc<dyn Clock>,
}

impl Embedded {
    /// Waits until the model has got this many requests, and the turns of these requests are stored: a request
    /// may leave before the commit that begins its turn.
    pub async fn wait_for_model_requests(&self, times: usize) {
        let sent = async || (self.scene.requests().len() >= times).then_some(());
        eventually("the model is asked", sent).await;
        let stored = async || (self.rows.count("message_steps").await >= times as i64).then_some(());
        eventually("the turns of the requests are stored", stored).await;
    }

    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// On SQLite, regardless of the chosen database: for tests that send SQLite's own SQL.
    pub async fn on_sqlite(dir: &TempDir) -> Self {
        Self::with(|config| config.database.url = sqlite(dir).into()).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Box::pin(Self::hurried(|_| {}, change)).await
    }

    /// The same, with client deadlines that are short enough for a test.
    pub async fn hurried(hurry: impl FnOnce(&mut Deadlines), change: impl FnOnce(&mut Config)) -> Self {
        let mut deadlines = Deadlines::default();
        hurry(&mut deadlines);
        Box::pin(Self::start_with(deadlines, change, Deferred, Arc::new(SystemClock))).await
    }

    /// With this approval handler, and this change to the configuration.
    pub async fn with_handler(handler: impl ApprovalHandler, change: impl FnOnce(&mut Config)) -> Self {
        Box::pin(Self::start_with(Deadlines::default(), change, handler, Arc::new(SystemClock))).await
    }

    /// On SQLite, which has no clock of its own, with this clock.
    pub async fn clocked(dir: &TempDir, clock: Arc<dyn Clock>, change: impl FnOnce(&mut Config)) -> Self {
        let change = |config: &mut Config| {
            config.database.url = sqlite(dir).into();
            change(config);
        };
        Box::pin(Self::start_with(Deadlines::default(), change, Deferred, clock)).await
    }

    async fn start_with(
        deadlines: Deadlines,
        change: impl FnOnce(&mut Config),
        handler: impl ApprovalHandler,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ledger = Ledger::new();
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir);
        if let Some(url) = postgres_if_chosen().await {
            config.database.url = url.into();
        }
        change(&mut config);
        let tools = probes(&ledger);
        let parts = Parts { config, deadlines, tools, handler, clock };
        Box::pin(Self::serve(dir, parts, Scene::new(), ledger)).await
    }

    /// Restarts the server on the same rows with these tools: a deploy.
    pub async fn redeploy(self, tools: ToolRegistry) -> Self {
        self.redeploy_with(tools, |_| {}).await
    }

    /// The same, with this change to the configuration.
    pub async fn redeploy_with(self, tools: ToolRegistry, change: impl FnOnce(&mut Config)) -> Self {
        Box::pin(self.redeploy_with_handler(Deferred, tools, change)).await
    }

    /// The same, with this approval handler.
    pub async fn redeploy_with_handler(
        mut self,
        handler: impl ApprovalHandler,
        tools: ToolRegistry,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        self.end().await;
        let mut config = config(&self.dir);
        config.database.url = self.url.into();
        change(&mut config);
        let clock = Arc::new(SystemClock);
        let parts = Parts { config, deadlines: Deadlines::default(), tools, handler, clock };
        Box::pin(Self::serve(self.dir, parts, self.scene, self.ledger)).await
    }

    async fn serve(dir: TempDir, parts: Parts<impl ApprovalHandler>, scene: Scene, ledger: Ledger) -> Self {
        let Parts { config, deadlines, tools, handler, clock } = parts;
        let (url, schema) = (config.database.url.expose_secret().to_owned(), config.database.schema.clone());
        let bind = config.server.bind;
        let model: Arc<dyn LanguageModel> = match config.model.provider {
            Provider::SCRIPTED => Arc::new(scene.clone()),
            _ => configured_model(&config).unwrap(),
        };
        let app = App::builder(config).tools(tools).model(model).handler(handler).clock(clock);
        let app = Box::pin(app.build()).await.unwrap().with_deadlines(deadlines);
        let listener = TcpListener::bind(bind).await.unwrap();
        let client = Client::new(format!("http://{}", listener.local_addr().unwrap()));
        let (stop, stopped) = oneshot::channel();
        #[expect(clippy::disallowed_methods, reason = "the test holds the handle and waits for it")]
        let served = tokio::spawn(async move {
            // A dropped sender stops the server too.
            app.serve(listener, async { drop(stopped.await) }).await.unwrap();
        });
        let rows = Rows::open_in(&url, &schema).await;
        Self { client, scene, ledger, rows, stop: Some(stop), served, dir, url }
    }

    /// Stops the server as an operator would, and waits for its end.
    pub async fn end(&mut self) {
        if self.stop.take().is_some() {
            (&mut self.served).await.unwrap();
        }
    }

    /// Runs the server's own binary on its database, as an operator does.
    pub fn operate(&self, args: &[&str]) -> EndedCommand {
        EndedCommand::of(holdpoint(self.dir.path(), &self.url, args).output().unwrap())
    }

    /// A thread in which the model has requested one call of this tool, and the call's id.
    pub async fn held(&self, tool: &str, note: &str) -> (String, String) {
        let thread = self.client.thread().await;
        let call = self.hold_in(&thread, tool, note).await;
        (thread, call)
    }

    /// Has the model request one call of this tool in the thread, and returns the call's id.
    pub async fn hold_in(&self, thread: &str, tool: &str, note: &str) -> String {
        let arguments = serde_json::json!({ "note": note });
        self.scene.calls(&[super::call(&format!("p-{note}"), tool, &arguments)]);
        let turn = self.client.send_message(thread, &format!("please {tool} {note}")).await;
        let pending = turn.pending();
        assert_eq!(pending.len(), 1, "{}", turn.raw);
        pending[0].clone()
    }

    /// Commits an approval without starting the call, as a process leaves it that is stopping. The
    /// times are SQL.
    pub async fn commit_yes(&self, id: &str, decided_at: &str, start_deadline: &str) {
        let hash = self.client.call(id).await.text("input_hash").to_owned();
        let yes = format!(
            "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:local',
                 decided_at = {decided_at}, start_deadline = {start_deadline} WHERE tool_call_id = '{id}'"
        );
        let decision = format!(
            "INSERT INTO decisions
                 (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)
             VALUES ('{id}', '{id}', 'user:local', 'approve', TRUE, FALSE, '{hash}', 'rest', 0)"
        );
        for change in [yes, decision] {
            assert_eq!(self.rows.change(&change).await, Ok(1));
        }
    }
}
