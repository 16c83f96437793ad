//! Tools with previews, whose words a test sets.

use crate::{Answer, Client, Embedded, JsonFields, Ledger, Probe, eventually, probes};
use holdpoint::config::Config;
use holdpoint::tools::{Permit, Requester, Tool, ToolError, ToolRegistry};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use tokio::sync::Barrier;

/// What the tool says. `{note}` in it is the note of the call.
#[derive(Debug, Clone)]
pub enum Preview {
    Words(String),
    Fails(String),
    OutcomeUnknown,
    Breaks,
    Hangs,
    /// Says the note, once this many previews wait for each other.
    Together(Arc<Barrier>),
}

/// The world that the tools look at.
#[derive(Debug, Clone)]
pub struct World {
    pub preview: Arc<Mutex<Preview>>,
    /// The notes of the previews so far, with the tenant and the user.
    pub requests: Arc<Mutex<Vec<[String; 3]>>>,
    /// The number of previews that were dropped while they hung.
    pub dropped: Arc<Mutex<usize>>,
}

impl World {
    pub fn that_reports(preview: &str) -> Self {
        let preview = Arc::new(Mutex::new(Preview::Words(preview.to_owned())));
        Self { preview, requests: Arc::default(), dropped: Arc::default() }
    }

    pub fn now(&self, preview: Preview) {
        *self.preview.lock().unwrap() = preview;
    }

    pub fn now_reports(&self, words: &str) {
        self.now(Preview::Words(words.to_owned()));
    }

    /// The notes of the previews so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|[note, ..]| note.clone()).collect()
    }

    pub async fn wait_for_requests(&self, times: usize) {
        eventually("a preview is made", async || (self.requests().len() >= times).then_some(())).await;
    }

    pub async fn wait_dropped(&self) {
        let dropped = async || (*self.dropped.lock().unwrap() > 0).then_some(());
        eventually("a preview is dropped", dropped).await;
    }

    pub async fn preview(&self, note: &str, requester: &Requester) -> Result<String, ToolError> {
        let requests = [note, requester.tenant_id(), requester.user_id()].map(str::to_owned);
        self.requests.lock().unwrap().push(requests);
        let preview = self.preview.lock().unwrap().clone();
        match preview {
            Preview::Words(words) => Ok(words.replace("{note}", note)),
            Preview::Fails(why) => Err(ToolError::new(why)),
            Preview::OutcomeUnknown => Err(ToolError::outcome_unknown()),
            Preview::Breaks => panic!("secret {note}"),
            Preview::Hangs => {
                let _hangs = HangingPreview(self.dropped.clone());
                std::future::pending().await
            }
            Preview::Together(all) => {
                all.wait().await;
                Ok(note.to_owned())
            }
        }
    }

    /// The probes, and the tools with previews: `wipe`, which asks, and `peek`, which does not.
    pub fn tools(&self, ledger: &Ledger) -> ToolRegistry {
        let mut tools = probes(ledger);
        tools.register(Wipe::<true, true>(self.clone(), ledger.clone())).unwrap();
        tools.register(Wipe::<false, true>(self.clone(), ledger.clone())).unwrap();
        tools
    }

    /// `wipe` alone, with or without previews.
    pub fn tools_of_wipe(&self, ledger: &Ledger, previews: bool) -> ToolRegistry {
        let mut tools = ToolRegistry::new();
        let (world, ledger) = (self.clone(), ledger.clone());
        let registered = if previews {
            tools.register(Wipe::<true, true>(world, ledger))
        } else {
            tools.register(Wipe::<true, false>(world, ledger))
        };
        registered.unwrap();
        tools
    }
}

pub struct HangingPreview(Arc<Mutex<usize>>);

impl Drop for HangingPreview {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

pub struct Wipe<const ASKS: bool, const SAYS: bool>(World, Ledger);

impl<const ASKS: bool, const SAYS: bool> Tool for Wipe<ASKS, SAYS> {
    const NAME: &'static str = if ASKS { "wipe" } else { "peek" };
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = ASKS;
    const PREVIEW: bool = SAYS;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        self.1.write(format!("{} {}", Self::NAME, input.note));
        Ok(json!({ "wiped": input.note }))
    }

    async fn preview(&self, input: Probe, requester: &Requester) -> Result<String, ToolError> {
        self.0.preview(&input.note, requester).await
    }
}

pub async fn server(world: &World, change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let tools = world.tools(&app.ledger);
    app.redeploy_with(tools, change).await
}

/// The hash of a call, as docs/protocol.md computes it. The keys of these values need no sorting.
pub fn hash(value: &Value) -> String {
    Sha256::digest(value.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub async fn preview(client: &Client, id: &str, note: &str) -> Answer {
    let body = json!({ "validated_inputs": { "note": note } });
    client.post(&format!("/tool_calls/{id}/preview"), &body).await
}

/// The hash of the preview of this edit.
pub async fn preview_hash(client: &Client, id: &str, note: &str) -> String {
    preview(client, id, note).await.body_of(200).text("preview_hash").to_owned()
}

/// An approval with this note, and with this hash of its preview.
pub fn edit(id: &str, note: &str, preview_hash: Option<&str>) -> Value {
    json!({
        "toolCallId": id, "isValidated": true, "validatedInputs": { "note": note }, "previewHash": preview_hash,
    })
}

#[track_caller]
pub fn is_stale(answer: &Answer, field: &str) {
    answer.failed_with(409, "stale");
    assert!(answer.message().starts_with(&format!("{field}: expected")), "{}", answer.message());
    assert_eq!(answer.body["error"]["details"], json!({ "state": "pending" }));
}
