//! Webhooks, with real receivers.

mod configuration;
mod console;
mod crashes;
mod deliveries;
mod failures;
mod guards;
mod operators;

pub(super) use failures::MovedClock;

use holdpoint::config::{Config, Webhook};
use holdpoint_testkit::webhooks::webhook;
use holdpoint_testkit::{
    Client, Embedded, JsonFields, ReceivedRequest, RemoteTool, Rows, ServiceAction, eventually,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The secrets of a receiver: the one in use, and one that replaces it.
const SECRETS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];

/// A receiver, and the folder with its secrets.
struct Receiver {
    remote: RemoteTool,
    dir: TempDir,
}

impl Receiver {
    async fn start(then: ServiceAction) -> Self {
        Self { remote: RemoteTool::start(then).await, dir: tempfile::tempdir().unwrap() }
    }

    fn webhook(&self, name: &str) -> Webhook {
        webhook(name, &format!("{}/{name}", self.remote.base), self.dir.path(), &SECRETS[..1])
    }

    async fn server(&self, webhooks: impl IntoIterator<Item = Webhook>) -> Embedded {
        let webhooks: Vec<_> = webhooks.into_iter().collect();
        Embedded::with(|config| with_webhooks(config, webhooks)).await
    }

    /// Waits until this webhook has got this many requests, and returns their bodies.
    async fn got(&self, name: &str, count: usize) -> Vec<ReceivedRequest> {
        let path = format!("/{name}");
        let got = async || Some(self.remote.received_at(&path)).filter(|all| all.len() >= count);
        eventually(&format!("{name} gets {count} requests"), got).await
    }
}

fn with_webhooks(config: &mut Config, webhooks: Vec<Webhook>) {
    config.egress.allow = vec!["127.0.0.1".to_owned()];
    config.webhooks = webhooks;
}

/// The type of the event in a request.
fn kind(received: &ReceivedRequest) -> String {
    received.json().text("type").to_owned()
}

fn seq(received: &ReceivedRequest) -> i64 {
    received.json()["data"]["seq"].as_i64().unwrap()
}

/// Waits until each event has its number, which it gets after its commit.
pub(super) async fn numbered(rows: &Rows) {
    let all = async || (rows.count("events WHERE seq IS NULL").await == 0).then_some(());
    eventually("all events are numbered", all).await;
}

/// The events in the rows, in order: number, type and id.
async fn logged(app: &Embedded) -> Vec<(i64, String, String)> {
    numbered(&app.rows).await;
    let rows =
        app.rows.all("SELECT seq, type, event_id FROM events WHERE seq IS NOT NULL ORDER BY seq").await;
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    rows.iter().map(|row| (row["seq"].as_i64().unwrap(), text(row, "type"), text(row, "event_id"))).collect()
}

/// The webhook of this name, as operators see it.
pub(super) async fn shown(client: &Client, name: &str) -> Value {
    let list = client.get("/webhooks").await;
    list.has_status(200);
    let results = list.body.list("results").clone();
    results.into_iter().find(|webhook| webhook["name"] == name).unwrap_or_default()
}

/// Waits until the webhook is in this state.
pub(super) async fn becomes(client: &Client, name: &str, state: &str) -> Value {
    let reached = async || Some(shown(client, name).await).filter(|webhook| webhook["state"] == state);
    eventually(&format!("{name} is {state}"), reached).await
}

/// Enables a webhook.
pub(super) async fn enable(client: &Client, name: &str) -> Value {
    let answer = client.post(&format!("/webhooks/{name}/enable"), &json!(null)).await;
    answer.has_status(200);
    answer.body
}
