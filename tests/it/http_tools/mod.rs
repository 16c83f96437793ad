//! HTTP tools, with the server's own binary and a real service.

mod configuration;
mod crashes;
mod outcomes;
mod reach;
mod requests;

use crate::support::{Client, Does, Process, RemoteTool, Rows, postgres_if_chosen, sqlite};
use base64::Engine;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The secret of the tools, and one that replaces it.
const SECRETS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];

/// The entry of a tool. The demo model calls it by its name, with the input `path`.
fn tool(name: &str, url: &str, lines: &str) -> String {
    format!(
        r#"
[[http_tools]]
name = "{name}"
description = "Does it elsewhere."
url = "{url}"
secret_file = "secrets"
{lines}
[http_tools.input_schema]
type = "object"
properties = {{ path = {{ type = "string" }}, content = {{ type = "string" }} }}
"#
    )
}

/// The settings of a server whose tools are at services of this machine.
const HERE: &str = "tools.demo = false\negress.allow = [\"127.0.0.1\"]\n";

/// A folder with a configuration, a database, and a service.
struct Office {
    dir: TempDir,
    database: String,
    remote: RemoteTool,
}

impl Office {
    /// With a service that does this, and with this configuration. `{url}` in it is the address of the service.
    async fn new(does: Does, toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        let remote = RemoteTool::start(does).await;
        std::fs::write(dir.path().join("holdpoint.toml"), toml.replace("{url}", &remote.base)).unwrap();
        std::fs::write(dir.path().join("secrets"), format!("{}\n", SECRETS[0])).unwrap();
        Self { dir, database, remote }
    }

    /// With the tool `delete_file`, which asks, and these lines in its entry.
    async fn with_delete(does: Does, lines: &str) -> Self {
        Self::new(does, &format!("{HERE}{}", tool("delete_file", "{url}/delete", lines))).await
    }

    fn command(&self, settings: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command
            .current_dir(self.dir.path())
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_APPROVAL__LEASE", "2s")
            .env("HOLDPOINT_APPROVAL__SWEEP", "100ms")
            .env("HOLDPOINT_LOG__LEVEL", "error")
            .envs(settings.iter().copied());
        command
    }

    fn start(&self, settings: &[(&str, &str)]) -> Process {
        Process::spawn(&mut self.command(settings))
    }

    async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }
}

/// Has the model call `delete_file` for this path, and returns the id of the held call.
async fn hold(client: &Client, path: &str) -> String {
    let turn = client.say(&client.thread().await, &format!("delete {path}")).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    id.clone()
}

/// Has the model call `delete_file`, approves the call, and returns it after its end.
async fn approved(client: &Client, path: &str) -> Value {
    let id = hold(client, path).await;
    client.approve(&id).await;
    client.call(&id).await
}

/// Whether npm's `standardwebhooks` verifies a request with this secret: the parsed body, or the error.
fn verified(secret: &str, headers: &Value, body: &str) -> Result<Value, String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut node = Command::new("node");
    node.current_dir(dir).arg("driver/verify.mjs").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = node.spawn().expect("node is installed");
    let request = serde_json::json!({ "secret": secret, "headers": headers, "body": body });
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success(), "run `npm ci --ignore-scripts` in tests/wire");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    match said.get("verified") {
        Some(body) => Ok(body.clone()),
        None => Err(said["refused"].as_str().unwrap().to_owned()),
    }
}

/// A valid secret that no other test uses.
fn fresh_secret() -> String {
    let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 % 251).unwrap());
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(key))
}
