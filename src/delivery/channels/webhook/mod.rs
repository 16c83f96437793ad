//! Webhooks: one signed POST for each event, by Standard Webhooks.

use crate::config::{self, Config, ConfigError, WebhookBody};
use crate::delivery::PublicForm;
use crate::delivery::channel::{Attempt, Channel, FailedAttempt};
use crate::delivery::response::outcome;
use async_trait::async_trait;
use holdpoint_core::endpoint::ChannelKind;
use holdpoint_egress::Reach;
use holdpoint_egress::signed_post::{Message, SignedPost};
use holdpoint_egress::standard_webhooks::Signer;
use holdpoint_store::{Attempted, DueEvent, EndpointEvents, event_type, event_types};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The fields of the public form of an event that the thin body has too.
const IDS: [&str; 5] = ["seq", "session_id", "thread_id", "run_id", "tool_call_id"];
/// The same, of the facts about the call.
const FACTS: [&str; 3] = ["tool_name", "risk_level", "input_hash"];

/// An address that gets a request for each event.
pub(super) struct Webhook {
    post: SignedPost,
    body: WebhookBody,
    tenant_id: String,
    /// The address of the console, if it has one.
    console: Option<String>,
    /// Writes an event as its readers get it.
    form: PublicForm,
    timeout: Duration,
}

impl Webhook {
    /// Prepares the entry at this index of the configuration, and sends nothing. Returns the wanted events too.
    pub(super) fn new(
        config: &Config,
        index: usize,
        webhook: &config::Webhook,
        reach: &Reach,
        form: PublicForm,
    ) -> Result<(Self, EndpointEvents), ConfigError> {
        let key = config::channels::webhook::key(index);
        let wrong = |field: &str, why: String| ConfigError::Value { key: format!("{key}.{field}"), why };
        let secrets = webhook.read_secrets(&key)?;
        let signer = Signer::parse(&secrets).map_err(|why| wrong("secret_file", why.to_owned()))?;
        let post = SignedPost::new(&webhook.url, reach, &signer).map_err(|why| wrong("url", why))?;
        let words: Vec<&str> = match &webhook.events {
            Some(words) => words.iter().map(String::as_str).collect(),
            None => event_types().collect(),
        };
        let known = |word: &&str| {
            event_type(word).ok_or_else(|| {
                let known = event_types().collect::<Vec<_>>().join(", ");
                wrong("events", format!("expected some of {known}, not {word:?}"))
            })
        };
        let types = words.iter().map(known).collect::<Result<_, _>>()?;
        let made = Self {
            post,
            body: webhook.body,
            tenant_id: webhook.tenant.clone(),
            console: config.console_url().map(str::to_owned),
            form,
            timeout: webhook.timeout,
        };
        Ok((made, EndpointEvents { tenant_id: webhook.tenant.clone(), types }))
    }

    fn body(&self, due: &DueEvent) -> Value {
        let public = (self.form)(&due.event);
        let facts = public.get("data");
        let mut data = Map::new();
        data.insert("tenant_id".to_owned(), json!(self.tenant_id));
        let ids = IDS.iter().map(|name| (*name, public.get(*name)));
        let facts = FACTS.iter().map(|name| (*name, facts.and_then(|facts| facts.get(*name))));
        for (name, value) in ids.chain(facts) {
            if let Some(value) = value {
                data.insert(name.to_owned(), value.clone());
            }
        }
        if let Some((console, call)) = self.console.as_ref().zip(due.event.tool_call_id.as_ref()) {
            data.insert("url".to_owned(), json!(format!("{console}/#/call/{call}")));
        }
        let (event_type, at) = (public.get("type").cloned(), due.event.at.to_rfc3339());
        // The contents of a deleted thread are shown to no reader any more.
        if self.body == WebhookBody::Full && !due.of_deleted_thread {
            data.insert("event".to_owned(), Value::Object(public));
        }
        json!({ "type": event_type, "timestamp": at, "data": data })
    }
}

#[async_trait]
impl Channel<DueEvent> for Webhook {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Webhook
    }

    /// The address without its path, which may contain a secret.
    fn address(&self) -> String {
        self.post.origin()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends one request. Only a status of success is a delivery. The body of an answer is not read.
    async fn send(&self, attempt: Attempt<'_, DueEvent>) -> Result<Attempted, FailedAttempt> {
        let Attempt { message: due, now, until, .. } = attempt;
        let body = self.body(due).to_string().into_bytes();
        let message = Message { id: due.event.event_id.clone(), now, idempotency_key: None };
        outcome(self.post.send(&message, body, until).await).map(|()| Attempted::Accepted)
    }
}
