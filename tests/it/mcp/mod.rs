//! Tools of MCP servers, with servers from npm (`tests/mcp`).

mod callers;
mod configuration;
mod conformance;
mod crashes;
mod earlier;
mod elicitation;
mod everything;
mod exact;
mod files;
mod floods;
mod hostile;
mod oauth;
mod odd;
mod pins;
mod progress;
mod python;
mod reach;
mod rooms;
mod rounds;
mod schema;
mod sessions;
mod stock;
mod tasks;

pub(crate) use stock::STOCK;

use crate::support::{Client, Embedded, Process, call, eventually, postgres_if_chosen, sqlite};
use holdpoint::config::{Config, McpServer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The folder of the npm packages.
fn packages() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp");
    assert!(folder.join("node_modules").exists(), "run `npm ci --ignore-scripts` in {}", folder.display());
    folder
}

/// The start of a package's server.
fn program(package: &str) -> String {
    packages()
        .join(format!("node_modules/@modelcontextprotocol/{package}/dist/index.js"))
        .display()
        .to_string()
}

/// The entry of a server in the configuration.
fn entry(lines: &Value) -> McpServer {
    serde_json::from_value(lines.clone()).unwrap()
}

/// The entry of a server that is a program of Node.
fn node(name: &str, args: &[&str]) -> Value {
    json!({ "name": name, "command": "node", "args": args })
}

/// Waits until the server has this tool, and returns the tool.
async fn tool(client: &Client, name: &str) -> Value {
    let found =
        async || Some(client.get(&format!("/tools/{name}")).await).filter(|answer| answer.status == 200);
    eventually("the tool is there", found).await.body
}

/// Waits until the tool is away.
async fn no_tool(client: &Client, name: &str) {
    let away = async || (client.get(&format!("/tools/{name}")).await.status == 404).then_some(());
    eventually("the tool is away", away).await;
}

/// Has the model call the tool, and returns the id of the held call.
async fn hold(server: &Embedded, tool: &str, input: &Value) -> String {
    let turn = turn(server, tool, input).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    id.clone()
}

/// Has the model call the tool in a new thread.
async fn turn(server: &Embedded, tool: &str, input: &Value) -> crate::support::Turn {
    let thread = server.client.thread().await;
    server.scene.calls(&[call("p", tool, input)]);
    server.client.send_message(&thread, "please").await
}

/// Has the model call the tool, approves the call, and returns it after its end.
async fn approved(server: &Embedded, tool: &str, input: &Value) -> Value {
    let id = hold(server, tool, input).await;
    server.client.approve(&id).await;
    server.client.call(&id).await
}

/// The folder and the database of processes of holdpoint, one after the other.
pub(crate) struct Deployment {
    dir: TempDir,
    database: String,
}

impl Deployment {
    pub(crate) fn start(&self) -> Process {
        Process::spawn(&mut self.command())
    }

    /// The same, with a captured log of everything.
    pub(crate) fn start_logged(&self) -> Process {
        Process::spawn_captured(self.command().env("HOLDPOINT_LOG__LEVEL", "debug"))
    }

    /// The URL of the database.
    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(self.dir.path()).env("HOLDPOINT_DATABASE__URL", &self.database);
        command.env("HOLDPOINT_APPROVAL__LEASE", "2s").env("HOLDPOINT_APPROVAL__SWEEP", "100ms");
        command.env("HOLDPOINT_APPROVAL__WAIT", "0s").env("HOLDPOINT_LOG__LEVEL", "error");
        command
    }
}

/// A server whose tools the test steers: `tests/mcp/server.mjs`.
pub(crate) struct Steered {
    state: TempDir,
}

impl Steered {
    /// With these tools at first.
    fn new(tools: &Value) -> Self {
        let steered = Self { state: tempfile::tempdir().unwrap() };
        steered.lists(tools);
        steered
    }

    /// With one tool of this name, which does what its input says.
    pub(crate) fn with(name: &str) -> Self {
        Self::new(&json!([definition(name, "Does it.")]))
    }

    /// Changes the tools.
    pub(crate) fn lists(&self, tools: &Value) {
        let (file, draft) = (self.state.path().join("tools.json"), self.state.path().join("draft.json"));
        if file.exists() {
            // The server watches this file.
            return std::fs::write(file, tools.to_string()).unwrap();
        }
        std::fs::write(&draft, tools.to_string()).unwrap();
        std::fs::rename(draft, file).unwrap();
    }

    /// The entry in the configuration, with these lines.
    pub(crate) fn entry(&self, name: &str, lines: &Value) -> McpServer {
        let mut all = node(name, &[packages().join("server.mjs").to_str().unwrap()]);
        let fields = all.as_object_mut().unwrap();
        fields.insert("env".to_owned(), json!({ "STATE": self.state.path() }));
        fields.extend(lines.as_object().unwrap().clone());
        entry(&all)
    }

    /// A folder and a database for processes of holdpoint that have this server as `s`, and a lease of 2 s.
    pub(crate) async fn deployment(&self) -> Deployment {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        self.deployment_in(dir, database)
    }

    /// The same on this database.
    pub(crate) fn deployment_on(&self, database: String) -> Deployment {
        self.deployment_in(tempfile::tempdir().unwrap(), database)
    }

    fn deployment_in(&self, dir: TempDir, database: String) -> Deployment {
        let toml = format!(
            "tools.demo = false\n[[mcp]]\nname = \"s\"\ncommand = \"node\"\nargs = [{:?}]\nenv = {{ STATE = {:?} }}\n",
            packages().join("server.mjs"),
            self.state.path()
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Deployment { dir, database }
    }

    /// The names of the tools that were called, in order.
    pub(crate) fn called(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.state.path().join("calls.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits for this number of calls.
    async fn wait_called(&self, times: usize) {
        let called = async || (self.called().len() >= times).then_some(());
        eventually("the server is called", called).await;
    }
}

/// The definition of a tool of [`Steered`].
pub(crate) fn definition(name: &str, description: &str) -> Value {
    let input = json!({ "type": "object", "properties": { "do": { "type": "string" }, "note": { "type": "string" } } });
    json!({ "name": name, "description": description, "inputSchema": input })
}

/// A server of holdpoint with this MCP server.
async fn with(entry: McpServer) -> Embedded {
    Box::pin(Embedded::with(|config: &mut Config| config.mcp = vec![entry])).await
}
