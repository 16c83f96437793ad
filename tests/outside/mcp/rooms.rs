//! Servers over HTTP that tell what they were asked (`tests/mcp/rooms.mjs`).

use super::{Deployment, packages, tool};
use holdpoint::config::{Config, McpServer};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, eventually, free_port, postgres_if_chosen, sqlite};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The tool of each server.
pub(super) const TOOL: &str = "s__delete_file";

/// The process of the servers. Dropping it kills the process.
pub(super) struct Rooms {
    child: Child,
    client: Client,
}

impl Drop for Rooms {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Rooms {
    pub(super) async fn start() -> Self {
        let port = free_port();
        Self::at(port).await
    }

    /// The same servers, which know nothing any more.
    pub(super) async fn started_again(self) -> Self {
        let port = self.client.base.rsplit(':').next().unwrap().parse().unwrap();
        drop(self);
        Self::at(port).await
    }

    async fn at(port: u16) -> Self {
        let mut node = Command::new("node");
        node.arg(packages().join("rooms.mjs")).arg(port.to_string()).stdin(Stdio::null());
        let client = Client::new(format!("http://127.0.0.1:{port}"));
        let rooms = Self { child: node.spawn().unwrap(), client };
        let answers = async || rooms.client.http.get(rooms.url("a/state")).send().await.ok();
        eventually("the servers answer", answers).await;
        rooms
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.client.url(&format!("/{path}"))
    }

    /// Changes the state of a room.
    pub(super) async fn set(&self, room: &str, state: &Value) {
        self.client.put(&format!("/{room}/state"), state).await.has_status(200);
    }

    async fn seen(&self, room: &str, what: &str) -> Vec<Value> {
        let seen = self.client.get(&format!("/{room}/state")).await.body;
        seen[what].as_array().unwrap().clone()
    }

    /// The requests to the server of a room so far.
    pub(super) async fn requests(&self, room: &str) -> Vec<Value> {
        self.seen(room, "requests").await
    }

    /// The same of one method.
    pub(super) async fn requests_of(&self, room: &str, method: &str) -> Vec<Value> {
        let all = self.requests(room).await.into_iter();
        all.filter(|request| request["method"] == method).collect()
    }

    /// The requests for tokens to the issuer of a room so far.
    pub(super) async fn issued(&self, room: &str) -> Vec<Value> {
        self.seen(room, "issued").await
    }

    /// The entry of the server of a room as `s`, with these lines.
    pub(super) fn entry(&self, room: &str, lines: &Value) -> McpServer {
        let mut all = json!({ "name": "s", "url": self.url(&format!("{room}/mcp")), "timeout": "20s" });
        all.as_object_mut().unwrap().extend(lines.as_object().unwrap().clone());
        super::entry(&all)
    }

    /// A server of holdpoint that has the server of this room as `s`, and whose callers have tokens.
    pub(super) async fn server(&self, room: &str, lines: &Value) -> (Embedded, Client, Client) {
        let entry = self.entry(room, lines);
        let server = Box::pin(Embedded::with(|config: &mut Config| {
            with_tokens(config);
            config.egress.allow = vec!["127.0.0.1".to_owned()];
            config.mcp = vec![entry];
            // The most that an entry may ask for.
            config.tools.timeout = Duration::from_secs(600);
            config.approval.sweep = Duration::from_millis(100);
            // A decision about a call that waits for others waits as long as they take.
            config.approval.wait = Duration::from_secs(300);
            (config.limits.turns_per_minute, config.limits.decisions_per_minute) = (Some(0), Some(0));
            config.limits.requests_per_minute = Some(0);
        }))
        .await;
        let ann = server.client.as_user("t1", "ann", &[]);
        let bob = server.client.as_user("t2", "bob", &[]);
        tool(&ann, TOOL).await;
        (server, ann, bob)
    }

    /// A folder and a database for processes of holdpoint with these entries.
    pub(super) async fn deployment(&self, entries: &str) -> Deployment {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        let toml = format!("tools.demo = false\negress.allow = [\"127.0.0.1\"]\n{entries}");
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Deployment { dir, database }
    }
}

/// Has the model make a call for this person, and returns the id of the held call.
pub(super) async fn hold(server: &mut Embedded, person: &Client, note: &str) -> String {
    server.client = person.clone();
    super::hold(server, TOOL, &json!({ "note": note })).await
}

/// The same, approved: the call after its end.
pub(super) async fn approved(server: &mut Embedded, person: &Client, note: &str) -> Value {
    let id = hold(server, person, note).await;
    person.approve(&id).await;
    person.call(&id).await
}
