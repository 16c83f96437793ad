//! What is approved is what was seen: complete cards, texts that hide what they do, and small windows.

use super::play;
use holdpoint::config::Config;
use holdpoint::tools::{Permit, Tool, ToolError};
use holdpoint_testkit::{Embedded, Ledger, Process, RemoteTool, ServiceAction, call, eventually, probes};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Command {
    /// What runs.
    command: String,
    /// Where it runs.
    host: String,
    /// Further words.
    words: Vec<String>,
}

/// A tool whose effect is a text that the model writes.
struct Shell(Ledger);

impl Tool for Shell {
    const NAME: &'static str = "shell";
    const DESCRIPTION: &'static str = "Runs a command.";
    const HIL: bool = true;
    const HEADLINE: Option<&'static str> = Some("Run {command} on {host}?");
    type Input = Command;
    type Output = Value;

    async fn execute(&self, input: Command, _permit: Permit<Self>) -> Result<Value, ToolError> {
        self.0.write(input.command);
        Ok(json!({ "host": input.host, "words": input.words.len() }))
    }
}

/// A server on which a call of `shell` with each of these inputs waits.
async fn shell(inputs: &[Value]) -> Embedded {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    tools.register(Shell(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;
    for (n, input) in inputs.iter().enumerate() {
        app.scene.calls(&[call(&format!("s-{n}"), "shell", input)]);
        let turn = app.client.send_message(&app.client.thread().await, "run it").await;
        assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    }
    app
}

#[tokio::test]
async fn f5_a_command_behind_line_breaks_is_shown_and_approved_only_after_it_was_seen() {
    let hidden = format!("ls -la /var/log{}; rm -rf /srv/data", "\n".repeat(900));
    let log: Vec<String> = (0..100).map(|n| format!("line {n} of a log")).collect();
    let long = format!("{}\n; rm -rf /srv/data", log.join("\n"));
    let app = shell(&[
        json!({ "command": hidden, "host": "web-1", "words": [] }),
        json!({ "command": long, "host": "web-1", "words": [] }),
        json!({ "command": "ls", "host": "web-1", "words": vec!["word"; 500] }),
    ])
    .await;
    play("lies", &app.client.base, json!({})).await;
    assert_eq!(app.ledger.lines(), [long, hidden]);
}

#[tokio::test]
async fn f16_in_a_small_window_the_header_and_the_bar_take_at_most_a_sixth() {
    let app = shell(&[json!({ "command": "ls", "host": "web-1", "words": vec!["word"; 20] })]).await;
    play("small", &app.client.base, json!({})).await;
    assert_eq!(app.ledger.lines(), ["ls"]);
}

#[tokio::test]
async fn f12_words_of_two_scripts_are_marked_and_the_characters_of_other_scripts_stay_readable() {
    let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}";
    let hebrew = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}, abc";
    let stacked = format!("a{} end", "\u{301}".repeat(500));
    let words = [
        "p\u{430}ypal.com",
        family,
        "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
        hebrew,
        &stacked,
        "a\u{202e}b",
    ];
    let app = shell(&[json!({ "command": "p\u{430}y", "host": "web-1", "words": words })]).await;
    play("characters", &app.client.base, json!({})).await;
}

#[tokio::test]
async fn f5_the_values_of_the_model_are_apart_from_the_words_of_the_question() {
    let command = "1 (read-only, no money moves). Approve to continue";
    let app = shell(&[json!({ "command": command, "host": "web-1\u{202e}", "words": [] })]).await;
    play("headline", &app.client.base, json!({ "command": command })).await;
}

#[tokio::test]
async fn a_note_with_an_approval_is_sent_and_a_denial_is_asked_twice() {
    let app = Embedded::start().await;
    app.held("pay", "1").await;
    let (_, paid) = app.held("pay", "2").await;
    play("words", &app.client.base, json!({})).await;
    assert_eq!(app.ledger.lines(), ["pay 2"]);
    assert_eq!(app.client.call(&paid).await["decision"]["reason"], "Seen the <b>bill</b>.");
}

#[tokio::test]
async fn f16_several_calls_are_approved_with_their_previews_and_constants_and_each_by_its_own_choice_on_sqlite()
 {
    let dir = tempfile::tempdir().unwrap();
    let preview = |text: &str| ServiceAction::answers(200, &json!({ "preview": text }).to_string());
    let remote = RemoteTool::start(ServiceAction::answers(200, "\"done\"")).await;
    let toml = format!(
        r#"
tools.demo = false
egress.allow = ["127.0.0.1"]
[[http_tools]]
name = "delete_file"
description = "Does it elsewhere."
url = "{0}/delete"
preview_url = "{0}/preview"
secret_file = "secret"
risk = "low"
headline = "Delete {{path}}?"
constants = {{ shop = "berlin" }}
[http_tools.input_schema]
type = "object"
properties = {{ path = {{ type = "string" }} }}
"#,
        remote.base
    );
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let server = Process::start(dir.path(), &[]).await;
    let long = preview(&"one of many rows\n".repeat(40));
    remote.next([preview("Deletes 1 row."), preview("Refunds 9999.99 EUR."), long]);
    remote.next([ServiceAction::answers(422, r#"{"error":"no such file"}"#), preview("Deletes 2 rows.")]);
    for path in ["a.txt", "b.txt", "c.txt", "d.txt", "p\u{430}ypal.txt"] {
        let turn = server.client.send_message(&server.client.thread().await, &format!("delete {path}")).await;
        assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    }
    play("batch-parts", &server.client.base, json!({})).await;
    let ran: Vec<Value> =
        remote.received_at("/delete").iter().map(|request| request.json()["input"]["path"].clone()).collect();
    assert_eq!(ran, ["a.txt"]);
}

#[tokio::test]
async fn the_outcome_of_a_call_is_in_one_live_region_that_stays() {
    let app = Embedded::with(|config: &mut Config| config.approval.sweep = Duration::from_millis(20)).await;
    let (_, overdue) = app.held("pay", "6").await;
    for (tool, note) in [("pay", "5"), ("pay", "4"), ("break", "3"), ("refuse", "2"), ("pay", "1")] {
        app.held(tool, note).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let expire = dir.path().join("expire");
    let expired = async {
        eventually("the page shows the call", async || expire.exists().then_some(())).await;
        let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
        assert_eq!(app.rows.change(&over).await, Ok(1));
    };
    tokio::join!(play("spoken", &app.client.base, json!({ "expire": expire })), expired);
}

#[tokio::test]
async fn f16_each_of_sixty_calls_is_offered_for_approval_only_when_its_card_is_complete_and_seen() {
    let app = Embedded::start().await;
    play("complete", &app.client.base, json!({ "seed": 7 })).await;
}

#[tokio::test]
async fn the_characters_of_all_cases_are_shown_alike() {
    let app = Embedded::start().await;
    play("table", &app.client.base, json!({})).await;
}

#[tokio::test]
async fn secret_inputs_are_approved_only_after_the_person_has_opened_them() {
    let app = holdpoint_testkit::secrets::server(|_| {}).await;
    for _ in 0..2 {
        holdpoint_testkit::secrets::held(&app, "login").await;
    }
    play("secrets", &app.client.base, json!({ "secrets": holdpoint_testkit::secrets::SECRETS })).await;
    assert_eq!(app.ledger.lines(), [holdpoint_testkit::secrets::input().to_string()]);
    let by = app.rows.all("SELECT actor FROM events WHERE type = 'tool.inputs_revealed'").await;
    assert_eq!(by, [json!({ "actor": "user:local" })]);
}
