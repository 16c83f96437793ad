//! Requests that fail, and secrets.

use super::{entry, got, server};
use crate::mail::event_ids;
use crate::webhooks::{becomes, enable};
use holdpoint_testkit::{Process, RemoteTool, Rows, ServiceAction, eventually, postgres_if_chosen, sqlite};
use serde_json::json;
use std::process::Command;

#[tokio::test]
async fn a_failed_request_is_repeated_with_its_id_and_a_service_that_is_gone_is_disabled() {
    let service = RemoteTool::start(ServiceAction::answers(500, "")).await;
    let url = format!("{}/canary-path", service.base);
    let app = server([entry("desk", &url, "{\"text\": \"{title}\"}")]).await;
    let (_, call) = app.held("pay", "1").await;
    let failing = becomes(&app.client, "desk", "failing").await;
    assert_eq!(
        (&failing["channel"], &failing["origin"]),
        (&json!("template"), &json!(service.base)),
        "{failing}"
    );
    assert_eq!(failing["failures"]["last_status"], 500);
    service.now(ServiceAction::answers(200, ""));
    enable(&app.client, "desk").await;
    becomes(&app.client, "desk", "delivering").await;
    let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
    let received = got(&service, "/canary-path", 2).await;
    assert!(received.iter().all(|it| it.header("webhook-id") == event), "{received:?}");
    assert_eq!(received[0].body, received.last().unwrap().body);

    service.now(ServiceAction::answers(410, ""));
    app.held("pay", "2").await;
    let disabled = becomes(&app.client, "desk", "disabled").await;
    assert_eq!(disabled["disabled_reason"], "gone", "{disabled}");
    let why = app.rows.change("UPDATE endpoints SET refused = 1, refused_at = 1, refused_status = 550").await;
    assert!(why.unwrap_err().to_lowercase().contains("check constraint"), "only mail has refused messages");
    let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
    let line: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((line[..2].to_vec(), line[6]), (vec!["desk", "template"], "0"), "{listed}");
    assert!(!listed.contains("canary"), "{listed}");
    let scrape = async || {
        let response = app.client.http.get(app.client.url("/metrics")).send().await.unwrap();
        let text = response.text().await.unwrap();
        let has = |sample: &str| text.lines().any(|line| line == sample);
        let all = has("holdpoint_template_attempts_total{recipient=\"desk\",outcome=\"delivered\"} 1")
            && has("holdpoint_template_disabled{recipient=\"desk\"} 1");
        all.then_some(())
    };
    eventually("the metrics have it", scrape).await;
}

#[tokio::test]
async fn the_path_and_the_headers_of_a_service_are_in_no_answer_log_or_row() {
    let service = RemoteTool::start(ServiceAction::Resets).await;
    let dir = tempfile::tempdir().unwrap();
    let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
    let toml = format!(
        "egress.allow = [\"127.0.0.1\"]\n[[notify]]\nname = \"desk\"\ntenant = \"default\"\nuser = \"local\"\n\
         url = \"{}/canary-path?sig=canary-sig\"\ntemplate = '{{\"text\": \"{{title}}\"}}'\n\
         headers = {{ x-key = \"canary-header\" }}\nheader_files = {{ authorization = \"token\" }}\n",
        service.base
    );
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("token"), "Bearer canary-token\n").unwrap();
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(dir.path()).env("HOLDPOINT_DATABASE__URL", &database);
        command
    };
    let server = Process::spawn_captured(command().env("HOLDPOINT_LOG__LEVEL", "trace"));
    let turn = server.client.send_message(&server.client.thread().await, "delete a").await;
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    let failing = becomes(&server.client, "desk", "failing").await.to_string();
    let sent = got(&service, "/canary-path?sig=canary-sig", 1).await;
    assert_eq!(
        (sent[0].header("authorization"), sent[0].header("x-key")),
        ("Bearer canary-token", "canary-header")
    );
    let rows = Rows::open(&database).await;
    let rows = format!("{:?}", rows.all("SELECT * FROM endpoints").await);
    let shown = command().arg("config").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("url = \"{}/***\"", service.base)), "{shown}");
    let log = server.finish();
    assert!(log.contains("a delivery failed"), "{log}");
    for text in [failing, rows, shown, log] {
        assert!(!text.contains("canary"), "{text}");
    }
}
