//! Messages in Slack about held calls, and the buttons that decide, with an API of Slack in the test's process and the
//! signatures of Slack's own library (PyPI's `slack_sdk`).

mod api;
mod complete;
mod configuration;
mod crashes;
mod failures;
mod forms;
mod interactions;
mod messages;
mod outcomes;
mod refusals;

use api::Message;
pub(crate) use api::{ApiAnswer, FakeSlack, TOKEN};
use holdpoint::config::{Config, Notify, Slack};
use holdpoint_testkit::token::now;
use holdpoint_testkit::{Client, Embedded};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const SIGNING_SECRET: &str = "canary-signing-secret";
/// The address of the console in messages.
const CONSOLE: &str = "https://chat.example";
/// The path at which Slack reports presses.
const PATH: &str = "/slack/interactions";

pub(crate) const APPROVE: &str = "holdpoint_approve";
const REJECT: &str = "holdpoint_reject";

fn with_slack(config: &mut Config, slack: &FakeSlack, notify: impl IntoIterator<Item = Notify>) {
    config.slack = Some(Slack {
        token: TOKEN.into(),
        signing_secret: SIGNING_SECRET.into(),
        api_url: format!("{}/api", slack.base),
    });
    config.notify = notify.into_iter().collect();
    config.server.public_url = Some(CONSOLE.to_owned());
}

/// The one user of a server without authentication.
fn local() -> Notify {
    Notify { tenant: "default".to_owned(), user: Some("local".to_owned()), ..entry("desk", "U1") }
}

/// An entry of this name in the tenant `acme`, without a user and a role.
fn entry(name: &str, slack: &str) -> Notify {
    Notify {
        name: name.to_owned(),
        tenant: "acme".to_owned(),
        slack: Some(slack.to_owned()),
        // Without the inputs a message has no button that approves.
        share_arguments: true,
        ..Notify::default()
    }
}

/// An approver with a Slack account.
fn person(user: &str, role: &str, slack: &str) -> Notify {
    Notify { user: Some(user.to_owned()), role: Some(role.to_owned()), ..entry(user, slack) }
}

async fn server(slack: &FakeSlack, notify: impl IntoIterator<Item = Notify>) -> Embedded {
    Embedded::with(|config| with_slack(config, slack, notify)).await
}

/// The signature of Slack's own library.
fn signature(secret: &str, timestamp: &str, body: &str) -> String {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/python-mail/bin/python");
    assert!(python.exists(), "run `cargo xtask test-only`, which installs {}", python.display());
    let script = "import sys\nfrom slack_sdk.signature import SignatureVerifier\n\
                  print(SignatureVerifier(sys.argv[1]).generate_signature(timestamp=sys.argv[2], body=sys.stdin.buffer.read()))";
    let mut child = Command::new(python)
        .args(["-c", script, secret, timestamp])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A request of Slack.
#[derive(Debug, Clone)]
struct Interaction {
    body: String,
    timestamp: String,
    signature: String,
}

impl Interaction {
    /// A request with this payload, signed now.
    fn of(payload: &Value) -> Self {
        let payload = payload.to_string();
        let body =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &payload).finish();
        Self::signed(SIGNING_SECRET, now(), body)
    }

    fn signed(secret: &str, at: i64, body: String) -> Self {
        let timestamp = at.to_string();
        let signature = signature(secret, &timestamp, &body);
        Self { body, timestamp, signature }
    }

    /// Sends it, and returns the status and the body of the answer.
    async fn send(&self, client: &Client, path: &str) -> (u16, String) {
        let request = client
            .http
            .post(client.url(path))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("x-slack-request-timestamp", &self.timestamp)
            .header("x-slack-signature", &self.signature)
            .body(self.body.clone());
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

/// What Slack reports when a user presses a button of a message.
fn payload(slack: &FakeSlack, account: &str, message: &Message, action_id: &str) -> Value {
    let mut action = message.button(action_id);
    action["action_ts"] = json!("1700000001.000001");
    json!({
        "type": "block_actions",
        "user": { "id": account, "username": "someone", "team_id": "T1" },
        "api_app_id": "A1",
        "token": "deprecated",
        "container": { "type": "message", "message_ts": message.ts, "channel_id": message.channel },
        "trigger_id": "1.2.3",
        "team": { "id": "T1", "domain": "example" },
        "channel": { "id": message.channel, "name": "directmessage" },
        "message": { "ts": message.ts, "text": message.now()["text"], "blocks": message.now()["blocks"] },
        "state": { "values": {} },
        "response_url": format!("{}/response/{account}", slack.base),
        "actions": [action],
    })
}

/// Presses a button, which Slack reports at once.
async fn press(app: &Embedded, slack: &FakeSlack, account: &str, message: &Message, action_id: &str) {
    let interaction = Interaction::of(&payload(slack, account, message, action_id));
    let answer = interaction.send(&app.client, PATH).await;
    assert_eq!(answer, (200, String::new()), "{account} {action_id}");
}

/// What Slack reports when a user sends a form with this reason.
fn submission(account: &str, view: &Value, reason: Option<&str>) -> Value {
    let block = &view["blocks"][0];
    let [block_id, action_id] =
        [&block["block_id"], &block["element"]["action_id"]].map(|id| id.as_str().unwrap());
    let mut view = view.clone();
    view["id"] = json!("V1");
    view["state"] =
        json!({ "values": { block_id: { action_id: { "type": "plain_text_input", "value": reason } } } });
    json!({
        "type": "view_submission",
        "team": { "id": "T1", "domain": "example" },
        "user": { "id": account, "username": "someone", "team_id": "T1" },
        "api_app_id": "A1",
        "token": "deprecated",
        "trigger_id": "4.5.6",
        "view": view,
        "response_urls": [],
    })
}

/// Sends a form, which Slack reports at once.
async fn submit(app: &Embedded, account: &str, view: &Value, reason: Option<&str>) -> (u16, String) {
    Interaction::of(&submission(account, view, reason)).send(&app.client, PATH).await
}

/// Presses the button that rejects, and sends the form without a reason.
async fn reject(app: &Embedded, slack: &FakeSlack, account: &str, message: &Message) {
    press(app, slack, account, message, REJECT).await;
    let view = slack.views().pop().expect("the form is open");
    assert_eq!(submit(app, account, &view, None).await, (200, String::new()));
}
