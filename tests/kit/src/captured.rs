//! A server process with the probes, whose whole output is captured.
//!
//! The server is the test program that runs: the server's own program has no tool that panics.

use super::{Count, Ledger, Process, Rows, Upstream, postgres_if_chosen, probes, serve, token};
use crate::JsonFields;
use futures::FutureExt;
use holdpoint::app::{App, configured_model};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use poem::http::StatusCode;
use poem::{IntoResponse, Response};
use serde_json::{Value, json};
use std::process::Command;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Set in the child only. Its name does not begin with `HOLDPOINT_`, because the server refuses to start with
/// unknown variables of that prefix.
const CHILD: &str = "CHILD_WATCHED_SERVER";

/// The process of the server of [`WatchedServer`]: see `child_servers`.
pub fn serve_watched() {
    #[expect(clippy::disallowed_methods, reason = "tells the child from a test run with --ignored")]
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let config = Config::load(&Flags::default()).unwrap();
        let telemetry = telemetry::begin(&config.log).unwrap();
        let (model, bind) = (configured_model(&config).unwrap(), config.server.bind);
        let ledger = Ledger::new();
        let mut tools = probes(&ledger);
        tools.register(Count(ledger)).unwrap();
        let app = App::builder(config).tools(tools).model(model).handler(Deferred);
        let app = app.build().await.unwrap();
        let listener = TcpListener::bind(bind).await.unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        println!("holdpoint listens on http://{}", listener.local_addr().unwrap());
        let stop = async {
            terminate.recv().await;
        };
        app.serve(listener, stop).await.unwrap();
        telemetry.end().await;
    });
}

/// The server, its model server, its folder and its database.
pub struct WatchedServer {
    pub server: Process,
    upstream: Upstream,
    database: String,
    _dir: TempDir,
}

/// The API key of the model server.
pub const MODEL_KEY: &str = "sk-canary-8c1f0e5b";

impl WatchedServer {
    /// Starts a server that accepts tokens, with these additional settings.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| serve::sqlite(&dir));
        Self::start_on(dir, database, settings).await
    }

    /// The same on this database.
    pub async fn start_on(dir: TempDir, database: String, settings: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start(|requested| {
            let key = requested.header("authorization").unwrap_or_default().to_owned();
            let last = requested.body.list("messages").last().unwrap().clone();
            std::future::ready(answer(&last, &key)).boxed()
        });
        let upstream = upstream.await;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "child_servers::watched", "--nocapture"])
            .current_dir(dir.path())
            .env(CHILD, "1")
            .env("HOLDPOINT_DATABASE__URL", &database)
            .env("HOLDPOINT_MODEL__PROVIDER", "openai")
            .env("HOLDPOINT_MODEL__NAME", "m")
            .env("HOLDPOINT_MODEL__BASE_URL", format!("{}/v1", upstream.base))
            .env("HOLDPOINT_MODEL__API_KEY", MODEL_KEY)
            .envs(token::VARIABLES)
            .envs(settings.iter().copied());
        let server = Process::spawn_captured(&mut command);
        Self { server, upstream, database, _dir: dir }
    }

    /// The rows of its database.
    pub async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }

    /// Stops the server; returns its whole output.
    pub fn finish(self) -> String {
        let output = self.server.finish();
        let requested = self.upstream.requests();
        let statuses = requested.iter().map(|requested| requested.status.unwrap_or_default()).enumerate();
        let refused: Vec<_> = statuses.filter(|(_, status)| *status != 200).collect();
        self.upstream.finish(&refused);
        output
    }
}

/// The model server's response to the last message: it understands `call <tool> <note>`, `refuse` and
/// `garble`.
fn answer(last: &Value, key: &str) -> Response {
    let words = last["content"].as_str().unwrap_or_default();
    let choice = |delta: Value, reason: Option<&str>| {
        format!(
            "data: {}\n\n",
            json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] })
        )
    };
    let output = match words.split_once(' ').filter(|_| last["role"] == "user") {
        Some(("call", call)) => {
            let (tool, note) = call.split_once(' ').unwrap();
            let arguments = json!({ "note": note }).to_string();
            let function = json!({ "name": tool, "arguments": arguments });
            let call =
                json!({ "index": 0, "id": format!("call-{note}"), "type": "function", "function": function });
            choice(json!({ "tool_calls": [call] }), Some("tool_calls"))
        }
        Some(("refuse", _)) => {
            let error =
                json!({ "error": { "message": format!("Incorrect API key provided:\r\n\u{1b}[31m{key}.") } });
            return (StatusCode::UNAUTHORIZED, error.to_string()).into_response();
        }
        Some(("garble", _)) => "data: {\"choices\": [\n\n".to_owned(),
        _ => choice(json!({ "content": format!("So be it: {words}") }), Some("stop")),
    };
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    format!("{output}data: {usage}\n\ndata: [DONE]\n\n")
        .with_content_type("text/event-stream")
        .into_response()
}
