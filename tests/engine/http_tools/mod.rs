//! HTTP tools, with the server's own binary and a real service.

mod callbacks;
mod callbacks_refused;
mod configuration;
mod crashes;
mod outcomes;
mod previews;
mod reach;
mod requests;
mod schema;

use base64::Engine;
use holdpoint_testkit::{
    Answer, Client, JsonFields, Process, ReceivedRequest, RemoteTool, Rows, ServiceAction,
    postgres_if_chosen, sqlite, token,
};
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

/// The address of the server for services. The tests report at the address on which it listens.
const PUBLIC: &str = "https://chat.example/holdpoint";

/// A folder with a configuration, a database, and a service.
struct Office {
    dir: TempDir,
    database: String,
    remote: RemoteTool,
}

impl Office {
    /// With a service that does this, and with this configuration. `{url}` in it is the address of the service.
    async fn new(does: ServiceAction, toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        let remote = RemoteTool::start(does).await;
        std::fs::write(dir.path().join("holdpoint.toml"), toml.replace("{url}", &remote.base)).unwrap();
        std::fs::write(dir.path().join("secrets"), format!("{}\n", SECRETS[0])).unwrap();
        Self { dir, database, remote }
    }

    /// With the tool `delete_file`, which asks, and these lines in its entry.
    async fn with_delete(does: ServiceAction, lines: &str) -> Self {
        Self::new(does, &format!("{HERE}{}", tool("delete_file", "{url}/delete", lines))).await
    }

    /// With this tool, which asks if it is `delete_file`. Its service can report outcomes later.
    async fn deferring(does: ServiceAction, name: &str, lines: &str) -> Self {
        let public = format!("server.public_url = \"{PUBLIC}\"\n{HERE}");
        Self::new(does, &format!("{public}{}", tool(name, "{url}/run", lines))).await
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
    let turn = client.send_message(&client.thread().await, &format!("delete {path}")).await;
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
    let request = serde_json::json!({ "secret": secret, "headers": headers, "body": body });
    let output = node("driver/verify.mjs", &request);
    match output.get("verified") {
        Some(body) => Ok(body.clone()),
        None => Err(output.text("refused").to_owned()),
    }
}

/// The headers with which npm's `standardwebhooks` signs this body at this time, in seconds since 1970.
fn signed_at(secret: &str, body: &str, at: i64) -> Headers {
    let message = serde_json::json!({ "secret": secret, "id": "msg_1", "at": at, "body": body });
    let signature = node("driver/sign.mjs", &message).as_str().unwrap().to_owned();
    vec![
        ("webhook-id", "msg_1".to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", signature),
    ]
}

type Headers = Vec<(&'static str, String)>;

/// The same, now.
fn signed(secret: &str, body: &str) -> Headers {
    signed_at(secret, body, token::now())
}

/// The path and the query of the `callback_url` in a request.
fn callback(received: &ReceivedRequest) -> String {
    let url = received.json().text("callback_url").to_owned();
    url.strip_prefix(PUBLIC).unwrap_or_else(|| panic!("{url}")).to_owned()
}

async fn post(client: &Client, path: &str, headers: &Headers, body: &str) -> Answer {
    let request = client.http.post(client.url(path)).header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    client.send(request.body(body.to_owned())).await
}

/// Reports an outcome at the `callback_url` of this request, as the service does.
async fn report(client: &Client, received: &ReceivedRequest, body: &str) -> Answer {
    post(client, &callback(received), &signed(SECRETS[0], body), body).await
}

/// Runs a script of `tests/wire` with this input, and returns its output.
fn node(script: &str, input: &Value) -> Value {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut node = Command::new("node");
    node.current_dir(dir).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = node.spawn().expect("node is installed");
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "run `npm ci --ignore-scripts` in tests/wire");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A valid secret that no other test uses.
fn fresh_secret() -> String {
    let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 % 251).unwrap());
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(key))
}
