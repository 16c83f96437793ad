//! Webhooks: one signed POST for each event, by Standard Webhooks.

use super::PublicForm;
use super::failed::Failed;
use crate::config::{self, Config, ConfigError, WebhookBody};
use crate::domain::clock::Timestamp;
use crate::domain::endpoint::{Failure, FailureAction};
use crate::egress::Reach;
use crate::signed_post::{Message, SignedPost, Unanswered};
use crate::standard_webhooks::Signer;
use crate::store::{DueEvent, EndpointEvents, event_type, event_types};
use reqwest::Response;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The status of an endpoint that wants nothing any more.
const GONE: u16 = 410;
/// The statuses whose `retry-after` counts.
const BUSY: [u16; 2] = [429, 503];

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
}

impl Webhook {
    /// Prepares the entry at this index of the configuration, and sends nothing. Returns the wanted events too.
    pub(super) fn new(
        config: &Config,
        index: usize,
        webhook: &config::Webhook,
        reach: &Reach,
    ) -> Result<(Self, EndpointEvents), ConfigError> {
        let key = config::webhook_key(index);
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
            console: config.server.public_url.clone().filter(|_| config.serves_console()),
        };
        Ok((made, EndpointEvents { tenant_id: webhook.tenant.clone(), types }))
    }

    /// Returns the address without its path, which may contain a secret.
    pub(super) fn origin(&self) -> String {
        self.post.origin()
    }

    /// Sends one request. Only a status of success is a delivery. The body of an answer is not read.
    pub(super) async fn attempt(
        &self,
        due: &DueEvent,
        form: PublicForm,
        now: Timestamp,
        until: Instant,
    ) -> Result<(), Failed> {
        let body = self.body(due, form).to_string().into_bytes();
        let message = Message { id: due.event.event_id.clone(), now, idempotency_key: None };
        match self.post.send(&message, body, until).await {
            Ok(response) => of_response(&response),
            Err(unanswered) => {
                let (failure, why) = match unanswered {
                    Unanswered::NotSent(why) => (Failure::NotSent, why),
                    Unanswered::Unknown(why) => (Failure::NoAnswer, why),
                };
                Err(Failed { failure, action: FailureAction::Retry(None), why })
            }
        }
    }

    fn body(&self, due: &DueEvent, form: PublicForm) -> Value {
        let public = form(&due.event);
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

fn of_response(response: &Response) -> Result<(), Failed> {
    let status = response.status().as_u16();
    let action = match status {
        200..=299 => return Ok(()),
        GONE => FailureAction::Disable,
        busy if BUSY.contains(&busy) => FailureAction::Retry(retry_after(response.headers())),
        _ => FailureAction::Retry(None),
    };
    Err(Failed { failure: Failure::Status(status), action, why: format!("it answered {status}") })
}

/// Returns the wait that the endpoint asks for (RFC 9110, 10.2.3). A date is compared with the clock of the endpoint.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let wanted = text(RETRY_AFTER)?;
    if let Ok(seconds) = wanted.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(wanted).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn a_wait_is_read_from_seconds_or_from_two_dates_of_the_endpoint() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (wanted, now, wait) in [
            ("120", None, Some(120)),
            (" 7 ", None, Some(7)),
            ("-1", None, None),
            ("soon", None, None),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(date), Some(30)),
            ("Sun, 06 Nov 1994 08:40:07 GMT", Some(date), Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(wanted));
            headers.extend(now.map(|now| (DATE, HeaderValue::from_static(now))));
            assert_eq!(retry_after(&headers), wait.map(Duration::from_secs), "{wanted}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
