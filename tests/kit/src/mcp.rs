//! MCP servers that a test steers (`tests/mcp`), and processes of holdpoint that have them.

use crate::{Client, Embedded, Process, call, eventually, postgres_if_chosen, sqlite};
use crate::{built, in_repository};
use holdpoint::config::{Config, McpServer};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The folder of the npm packages.
pub fn packages() -> PathBuf {
    let folder = in_repository("tests/mcp");
    assert!(folder.join("node_modules").exists(), "run `npm ci --ignore-scripts` in {}", folder.display());
    folder
}

/// The start of a package's server.
pub fn program(package: &str) -> String {
    packages()
        .join(format!("node_modules/@modelcontextprotocol/{package}/dist/index.js"))
        .display()
        .to_string()
}

/// The entry of a server in the configuration.
pub fn entry(lines: &Value) -> McpServer {
    serde_json::from_value(lines.clone()).unwrap()
}

/// The entry of a server that is a program of Node.
pub fn node(name: &str, args: &[&str]) -> Value {
    json!({ "name": name, "command": "node", "args": args })
}

/// Waits until the server has this tool, and returns the tool.
pub async fn tool(client: &Client, name: &str) -> Value {
    let found =
        async || Some(client.get(&format!("/tools/{name}")).await).filter(|answer| answer.status == 200);
    eventually("the tool is there", found).await.body
}

/// Waits until the tool is away.
pub async fn no_tool(client: &Client, name: &str) {
    let away = async || (client.get(&format!("/tools/{name}")).await.status == 404).then_some(());
    eventually("the tool is away", away).await;
}

/// Has the model call the tool, and returns the id of the held call.
pub async fn hold(server: &Embedded, tool: &str, input: &Value) -> String {
    let turn = turn(server, tool, input).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    id.clone()
}

/// Has the model call the tool in a new thread.
pub async fn turn(server: &Embedded, tool: &str, input: &Value) -> crate::Turn {
    let thread = server.client.thread().await;
    server.scene.calls(&[call("p", tool, input)]);
    server.client.send_message(&thread, "please").await
}

/// Has the model call the tool, approves the call, and returns it after its end.
pub async fn approved(server: &Embedded, tool: &str, input: &Value) -> Value {
    let id = hold(server, tool, input).await;
    server.client.approve(&id).await;
    server.client.call(&id).await
}

/// The folder and the database of processes of holdpoint, one after the other.
pub struct Deployment {
    pub dir: TempDir,
    pub database: String,
}

impl Deployment {
    pub fn start(&self) -> Process {
        Process::spawn(&mut self.command())
    }

    /// The same, with a captured log of everything.
    pub fn start_logged(&self) -> Process {
        Process::spawn_captured(self.command().env("HOLDPOINT_LOG__LEVEL", "debug"))
    }

    /// The URL of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(built("holdpoint"));
        command.current_dir(self.dir.path()).env("HOLDPOINT_DATABASE__URL", &self.database);
        command.env("HOLDPOINT_APPROVAL__LEASE", "2s").env("HOLDPOINT_APPROVAL__SWEEP", "100ms");
        command.env("HOLDPOINT_APPROVAL__WAIT", "0s").env("HOLDPOINT_LOG__LEVEL", "error");
        command
    }
}

/// A server whose tools the test steers: `tests/mcp/server.mjs`.
pub struct SteeredServer {
    pub state: TempDir,
}

impl SteeredServer {
    /// With these tools at first.
    pub fn new(tools: &Value) -> Self {
        let steered = Self { state: tempfile::tempdir().unwrap() };
        steered.lists(tools);
        steered
    }

    /// With one tool of this name, which does what its input says.
    pub fn with(name: &str) -> Self {
        Self::new(&json!([definition(name, "Does it.")]))
    }

    /// Changes the tools.
    pub fn lists(&self, tools: &Value) {
        let (file, draft) = (self.state.path().join("tools.json"), self.state.path().join("draft.json"));
        if file.exists() {
            // The server watches this file.
            return std::fs::write(file, tools.to_string()).unwrap();
        }
        std::fs::write(&draft, tools.to_string()).unwrap();
        std::fs::rename(draft, file).unwrap();
    }

    /// The entry in the configuration, with these lines.
    pub fn entry(&self, name: &str, lines: &Value) -> McpServer {
        let mut all = node(name, &[packages().join("server.mjs").to_str().unwrap()]);
        let fields = all.as_object_mut().unwrap();
        fields.insert("env".to_owned(), json!({ "STATE": self.state.path() }));
        fields.extend(lines.as_object().unwrap().clone());
        entry(&all)
    }

    /// A folder and a database for processes of holdpoint that have this server as `s`, and a lease of 2 s.
    pub async fn deployment(&self) -> Deployment {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        self.deployment_in(dir, database)
    }

    /// The same on this database.
    pub fn deployment_on(&self, database: String) -> Deployment {
        self.deployment_in(tempfile::tempdir().unwrap(), database)
    }

    pub fn deployment_in(&self, dir: TempDir, database: String) -> Deployment {
        let toml = format!(
            "tools.demo = false\n[[mcp]]\nname = \"s\"\ncommand = \"node\"\nargs = [{:?}]\nenv = {{ STATE = {:?} }}\n",
            packages().join("server.mjs"),
            self.state.path()
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Deployment { dir, database }
    }

    /// The names of the tools that were called, in order.
    pub fn called(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.state.path().join("calls.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits for this number of calls.
    pub async fn wait_called(&self, times: usize) {
        let called = async || (self.called().len() >= times).then_some(());
        eventually("the server is called", called).await;
    }

    /// What the server got with each call that was sent again.
    pub fn rounds(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.state.path().join("rounds.log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Who called, as the server got it with each call.
    pub fn identities(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.state.path().join("identities.log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The task, as the server keeps it.
    pub fn task(&self) -> Value {
        let file = std::fs::read(self.state.path().join("task.json")).unwrap();
        serde_json::from_slice(&file).unwrap()
    }

    /// Changes these fields of the task.
    pub fn task_is(&self, fields: &Value) {
        let mut task = self.task();
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let draft = self.state.path().join("draft.json");
        std::fs::write(&draft, task.to_string()).unwrap();
        std::fs::rename(draft, self.state.path().join("task.json")).unwrap();
    }

    pub fn task_succeeds(&self) {
        let result = json!({ "content": [{ "type": "text", "text": "at last" }] });
        self.task_is(&json!({ "status": "completed", "result": result }));
    }

    /// Has the task ask for a PIN.
    pub fn task_asks(&self, message: &str) {
        let schema =
            json!({ "type": "object", "properties": { "pin": { "type": "string" } }, "required": ["pin"] });
        let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
        let requests = json!({ "pin": { "method": "elicitation/create", "params": params } });
        self.task_is(&json!({ "status": "input_required", "inputRequests": requests }));
    }

    /// How often the server got what begins with this word.
    pub fn got(&self, word: &str) -> usize {
        self.called().iter().filter(|line| line.starts_with(word)).count()
    }

    /// The process that was polled last, once there were this many polls.
    pub async fn polled(&self, times: usize) -> String {
        let polls = async || {
            let polls: Vec<_> = self.called().into_iter().filter(|line| line.starts_with("poll ")).collect();
            (polls.len() >= times).then(|| polls.last().unwrap().trim_start_matches("poll ").to_owned())
        };
        eventually("the server is polled", polls).await
    }
}

/// The definition of a tool of [`SteeredServer`].
pub fn definition(name: &str, description: &str) -> Value {
    let input = json!({ "type": "object", "properties": { "do": { "type": "string" }, "note": { "type": "string" } } });
    json!({ "name": name, "description": description, "inputSchema": input })
}

/// A server of holdpoint with this MCP server.
pub async fn with(entry: McpServer) -> Embedded {
    Box::pin(Embedded::with(|config: &mut Config| config.mcp = vec![entry])).await
}
