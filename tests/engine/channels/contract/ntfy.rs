//! ntfy, with a receiver that reads each message by the rules of its JSON interface.

use super::{ArrivedMessage, CONSOLE, Harness, desk, got, server};
use holdpoint::config::{Config, Notify};
use holdpoint_testkit::{RemoteTool, ServiceAction};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TOKEN: &str = "Bearer tk_canary";

struct Side(RemoteTool);

/// Reads a request as ntfy does.
fn message(path: &str, body: &str) -> Value {
    assert_eq!(path, "/push/", "JSON goes to the address of the server");
    assert!(body.len() <= 8192, "{body}");
    let message: Value = serde_json::from_str(body).unwrap();
    let fields = ["topic", "sequence_id", "title", "message", "priority", "tags", "click", "actions"];
    for (name, value) in message.as_object().unwrap() {
        assert!(fields.contains(&name.as_str()), "{name}: {message}");
        let is_right = match name.as_str() {
            "message" => value.as_str().is_some_and(|text| text.len() <= 4096),
            "priority" => value.as_u64().is_some_and(|priority| (1..=5).contains(&priority)),
            "tags" => value.as_array().is_some_and(|tags| tags.iter().all(Value::is_string)),
            "actions" => value.as_array().is_some_and(|actions| actions.len() <= 3),
            _ => value.is_string(),
        };
        assert!(is_right, "{name}: {message}");
    }
    message
}

impl Harness for Side {
    const CHANNEL: &'static str = "ntfy";
    const APPROVES: bool = false;

    async fn start() -> Self {
        Self(RemoteTool::start(ServiceAction::answers(200, "{}")).await)
    }

    fn sections(&self, config: &mut Config) {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
    }

    fn address(&self, entry: Notify) -> Notify {
        Notify {
            ntfy: Some(format!("{}/push/canary-{}", self.0.base, entry.name)),
            headers: BTreeMap::from([("authorization".to_owned(), TOKEN.to_owned())]),
            ..entry
        }
    }

    fn origin(&self) -> String {
        self.0.base.clone()
    }

    fn got(&self) -> Vec<ArrivedMessage> {
        let mut all: Vec<ArrivedMessage> = Vec::new();
        for request in self.0.received() {
            assert_eq!(request.header("authorization"), TOKEN);
            let message = message(&request.path, &request.body);
            let text =
                format!("{}\n{}", message["title"].as_str().unwrap(), message["message"].as_str().unwrap());
            // A button that sends a request would decide without a name.
            let approves = message.to_string().contains(r#""action":"http""#);
            all.retain(|earlier| earlier.text != text);
            let topic = message["topic"].as_str().unwrap();
            let to = topic.trim_start_matches("canary-").to_owned();
            all.push(ArrivedMessage { to, text, raw: request.body.replace(topic, ""), approves });
        }
        all
    }

    async fn refuses(&mut self, refuses: bool) {
        self.0.now(ServiceAction::answers(if refuses { 503 } else { 200 }, "{}"));
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned(), "canary-desk".to_owned()]
    }
}

contract! { Side }

#[tokio::test]
async fn a_message_has_the_id_of_its_call_and_a_button_that_opens_the_card() {
    let harness = Side::start().await;
    let app = server(&harness, desk()).await;
    let (_, call) = app.held("pay", "1").await;
    got(&harness, 1).await;
    let request = harness.0.received().remove(0);
    assert_eq!(request.header("content-type"), "application/json");
    let body = message(&request.path, &request.body);
    assert_eq!((&body["topic"], &body["sequence_id"]), (&json!("canary-desk"), &json!(call)));
    assert_eq!((&body["priority"], &body["tags"]), (&json!(4), &json!(["pending"])));
    let link = body["click"].as_str().unwrap();
    assert!(link.starts_with(&format!("{CONSOLE}/#/link/")), "{body}");
    assert_eq!(body["actions"], json!([{ "action": "view", "label": "Open the call", "url": link }]));
}
