//! What operators see of webhooks, and what they may do.

use super::crashes::Desk;
use super::{Receiver, becomes, enable, logged, shown, with_webhooks};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, Process, ServiceAction, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn an_operator_sees_and_enables_the_webhooks_of_the_own_tenant_alone() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let of = |name: &str, tenant: &str| {
        let mut webhook = receiver.webhook(name);
        webhook.tenant = tenant.to_owned();
        webhook.events = Some(vec!["run.started".to_owned()]);
        webhook
    };
    let webhooks = vec![of("ours", "acme"), of("theirs", "other")];
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        with_webhooks(config, webhooks);
        config.auth.operator_roles = vec!["ops".to_owned()];
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &[]);
    app.held("pay", "1").await;
    let (operator, stranger) =
        (anonymous.as_user("acme", "olga", &["ops"]), anonymous.as_user("other", "otto", &["ops"]));
    let disabled = becomes(&operator, "ours", "disabled").await;
    let expected = json!({
        "name": "ours",
        "channel": "webhook",
        "origin": receiver.remote.base,
        "events": ["run.started"],
        "state": "disabled",
        "cursor": 0,
        "waiting_since": disabled["waiting_since"],
        "failures": {
            "count": 1,
            "since": disabled["failures"]["since"],
            "last": "status",
            "last_status": 410,
        },
        "disabled_at": disabled["disabled_at"],
        "disabled_reason": "gone",
        "has_gap": false,
    });
    assert_eq!(disabled, expected);
    assert_eq!(operator.get("/webhooks").await.body.list("results").len(), 1);
    assert_eq!(shown(&stranger, "ours").await, Value::Null);
    assert_eq!(shown(&stranger, "theirs").await["state"], "delivering");

    let enabling = "/webhooks/ours/enable";
    for (client, status) in [(&app.client, 403), (&stranger, 404), (&anonymous, 401)] {
        let answer = client.post(enabling, &json!(null)).await;
        assert_eq!(answer.status, status, "{:?}", answer.body);
    }
    app.client.get("/webhooks").await.has_status(403);
    operator.post("/webhooks/nothing/enable", &json!(null)).await.has_status(404);
    assert_eq!(shown(&operator, "ours").await["state"], "disabled");
    receiver.remote.now(ServiceAction::answers(204, ""));
    assert_eq!(enable(&operator, "ours").await["state"], "delivering");
    receiver.got("ours", 2).await;
    assert_eq!(enable(&operator, "ours").await["state"], "delivering", "it may be enabled already");
}

#[tokio::test]
async fn the_terminal_lists_webhooks_and_enables_them_beside_a_server() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let app = receiver.server([receiver.webhook("gone")]).await;
    app.held("pay", "1").await;
    becomes(&app.client, "gone", "disabled").await;
    // The command reads the database, and knows no configuration of the test's server.
    let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let head =
        ["NAME", "CHANNEL", "STATE", "TENANT", "CURSOR", "REFUSED", "FAILURES", "LAST", "FAILING", "SINCE"];
    assert_eq!(lines[0], head);
    let line = ["gone", "webhook", "not", "configured", "default", "0", "0", "1", "status", "410"];
    assert_eq!(lines[1][..10], line);
    app.operate(&["webhooks", "enable", "gne"]).refused_for("there is no webhook or recipient \"gne\"");
    receiver.remote.now(ServiceAction::answers(204, ""));
    let said = app.operate(&["webhooks", "enable", "gone"]).stdout_of_success();
    assert!(said.contains("gone is enabled"), "{said}");
    let events = logged(&app).await;
    receiver.got("gone", events.len() + 1).await;
}

#[tokio::test]
async fn attempts_lag_and_disabled_webhooks_are_metrics() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let mut up = receiver.webhook("up");
    up.url = holdpoint_testkit::RemoteTool::start(ServiceAction::answers(204, "")).await.base;
    let app = receiver.server([up, receiver.webhook("gone")]).await;
    app.held("pay", "1").await;
    let events = logged(&app).await.len();
    becomes(&app.client, "gone", "disabled").await;
    let scrape = async || {
        let response = app.client.http.get(app.client.url("/metrics")).send().await.unwrap();
        let text = response.text().await.unwrap();
        let get = |sample: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
            line.parse::<f64>().ok()
        };
        let delivered = get("holdpoint_webhook_attempts_total{webhook=\"up\",outcome=\"delivered\"}")?;
        let disabled = get("holdpoint_webhook_disabled{webhook=\"gone\"}")?;
        let lags = get("holdpoint_webhook_lag_seconds{webhook=\"gone\"}")? > 0.0;
        let done = delivered == events as f64 && disabled == 1.0 && lags;
        (done && get("holdpoint_webhook_lag_seconds{webhook=\"up\"}") == Some(0.0)).then(|| {
            assert_eq!(get("holdpoint_webhook_disabled{webhook=\"up\"}"), Some(0.0));
            get("holdpoint_webhook_attempts_total{webhook=\"gone\",outcome=\"failed\"}")
        })
    };
    assert_eq!(eventually("the metrics have it", scrape).await, Some(1.0));
}

#[tokio::test]
async fn the_path_of_an_address_and_the_secrets_are_in_no_answer_log_or_row() {
    let desk = Desk::at(ServiceAction::Resets, "/canary-path?key=canary-key").await;
    let server = Process::spawn_captured(desk.command().env("HOLDPOINT_LOG__LEVEL", "trace"));
    desk.hold(&server, "a").await;
    let failing = becomes(&server.client, "desk", "failing").await.to_string();
    let rows = desk.rows().await;
    let rows = format!("{:?}", rows.all("SELECT * FROM endpoints").await);
    let log = server.finish();
    assert!(log.contains("a delivery failed"), "{log}");
    for text in [failing, rows, log] {
        assert!(!text.contains("canary") && !text.contains("MfKQ9r8GKY"), "{text}");
    }
}
