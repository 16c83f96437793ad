//! What a webhook gets.

use super::{Receiver, SECRETS, kind, logged, seq, shown, webhook, with_webhooks};
use holdpoint::config::WebhookBody;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, Ledger, ReceivedRequest, ServiceAction, eventually, probes};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A receiver in Node that verifies each request with the library of Standard Webhooks.
struct Verifier {
    url: String,
    got: Arc<Mutex<Vec<Value>>>,
    node: Child,
}

impl Verifier {
    fn start(secret: &str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        let mut node = Command::new("node")
            .current_dir(dir)
            .args(["driver/receiver.mjs", secret])
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let first: Value = serde_json::from_str(&lines.next().expect("npm ci in tests/wire")).unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let writes = got.clone();
        std::thread::spawn(move || {
            lines.for_each(|line| writes.lock().unwrap().push(serde_json::from_str(&line).unwrap()));
        });
        Self { url: format!("http://127.0.0.1:{}/hook", first["port"]), got, node }
    }

    async fn got(&self, count: usize) -> Vec<Value> {
        let got = async || Some(self.got.lock().unwrap().clone()).filter(|all| all.len() >= count);
        eventually("the receiver gets the events", got).await
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        let _killed = self.node.kill();
        let _waited = self.node.wait();
    }
}

/// A held call that is approved.
async fn approved(app: &Embedded) -> String {
    let (_, id) = app.held("pay", "10").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    id
}

fn ids_and_types(received: &[ReceivedRequest]) -> Vec<(i64, String, String)> {
    let one = |it: &ReceivedRequest| (seq(it), kind(it), it.header("webhook-id").to_owned());
    received.iter().map(one).collect()
}

#[tokio::test]
async fn each_event_is_one_request_in_order_that_a_real_receiver_verifies() {
    let dir = tempfile::tempdir().unwrap();
    // While a secret is replaced, receivers with either of them verify the request.
    let receivers = SECRETS.map(Verifier::start);
    let [one, two] = [("one", 0), ("two", 1)]
        .map(|(name, receiver)| webhook(name, &receivers[receiver].url, dir.path(), &SECRETS));
    let app = Embedded::with(|config| with_webhooks(config, vec![one, two])).await;
    approved(&app).await;
    let events = logged(&app).await;
    assert!(events.len() >= 6, "{events:?}");
    for receiver in &receivers {
        let got = receiver.got(events.len()).await;
        let got: Vec<_> = got
            .iter()
            .map(|it| {
                let body = it.get("verified").unwrap_or_else(|| panic!("{it}"));
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                (body["data"]["seq"].as_i64().unwrap(), text(&body["type"]), text(&it["id"]))
            })
            .collect();
        assert_eq!(got, events);
    }
}

#[tokio::test]
async fn a_thin_body_has_ids_tool_risk_hash_and_link_and_a_full_one_also_the_event_as_readers_get_it() {
    let receiver = Receiver::start(ServiceAction::answers(200, "")).await;
    let thin = receiver.webhook("thin");
    let mut full = receiver.webhook("full");
    full.body = WebhookBody::Full;
    let app = Embedded::with(|config| {
        with_webhooks(config, vec![thin, full]);
        config.server.public_url = Some("https://chat.example/holdpoint".to_owned());
    })
    .await;
    let id = approved(&app).await;
    let events = logged(&app).await;
    let public = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let public = public.list("results");

    let thin = receiver.got("thin", events.len()).await;
    assert_eq!(ids_and_types(&thin), events);
    let held = thin.iter().find(|it| kind(it) == "tool.requires_approval").unwrap().json();
    let event = public.iter().find(|it| it["type"] == "tool.requires_approval").unwrap();
    let expected = json!({
        "type": "tool.requires_approval",
        "timestamp": event["at"],
        "data": {
            "tenant_id": "default",
            "seq": event["seq"],
            "session_id": event["session_id"],
            "thread_id": event["thread_id"],
            "run_id": event["run_id"],
            "tool_call_id": id,
            "tool_name": "pay",
            "risk_level": event["data"]["risk_level"],
            "input_hash": event["data"]["input_hash"],
            "url": format!("https://chat.example/holdpoint/#/call/{id}"),
        },
    });
    assert_eq!(held, expected);
    let started = thin.iter().find(|it| kind(it) == "run.started").unwrap().json();
    assert_eq!((&started["data"]["tool_name"], &started["data"]["url"]), (&json!(null), &json!(null)));
    for received in &thin {
        assert!(!received.body.contains("\"10\"") && !received.body.contains("args"), "{}", received.body);
    }

    let full = receiver.got("full", events.len()).await;
    assert_eq!(ids_and_types(&full), events);
    let of_call: Vec<Value> = full
        .iter()
        .map(|it| it.json()["data"]["event"].clone())
        .filter(|event| event["tool_call_id"] == json!(id))
        .collect();
    // The data of an event has the current state of its call.
    for (sent, read) in of_call.iter().zip(public) {
        for field in ["seq", "type", "at", "actor", "thread_id", "run_id", "tool_call_id"] {
            assert_eq!(sent[field], read[field], "{sent} {read}");
        }
        assert_eq!(sent["data"]["args"], json!({ "note": "10" }));
    }
    assert_eq!(of_call.len(), public.len());
}

#[tokio::test]
async fn a_webhook_gets_the_wanted_types_of_its_tenant_alone() {
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    let of = |name: &str, tenant: &str, events: &[&str]| {
        let mut webhook = receiver.webhook(name);
        webhook.tenant = tenant.to_owned();
        webhook.events = Some(events.iter().map(|word| (*word).to_owned()).collect());
        webhook
    };
    let held = ["tool.requires_approval"];
    let webhooks = vec![
        of("acme", "acme", &held),
        of("other", "other", &held),
        of("ends", "acme", &["tool.rejected", "tool.succeeded"]),
        of("empty", "empty", &held),
    ];
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        with_webhooks(config, webhooks);
    })
    .await;
    let anonymous = app.client.clone();
    let mut calls = Vec::new();
    for (tenant, note) in [("acme", "1"), ("other", "2"), ("acme", "3"), ("other", "4")] {
        app.client = anonymous.as_user(tenant, "ann", &[]);
        calls.push(app.held("pay", note).await.1);
    }
    for (tenant, id) in [("acme", &calls[2]), ("other", &calls[1]), ("acme", &calls[0])] {
        anonymous.as_user(tenant, "ann", &[]).reject(id).await.has_status(200);
    }
    let calls_of = |received: Vec<ReceivedRequest>| {
        let id = |it: &ReceivedRequest| it.json()["data"].text("tool_call_id").to_owned();
        received.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(calls_of(receiver.got("ends", 2).await), [calls[2].clone(), calls[0].clone()]);
    assert_eq!(calls_of(receiver.got("acme", 2).await), [calls[0].clone(), calls[2].clone()]);
    assert_eq!(calls_of(receiver.got("other", 2).await), [calls[1].clone(), calls[3].clone()]);
    assert_eq!(receiver.remote.received_at("/empty").len(), 0);
}

#[tokio::test]
async fn a_new_webhook_begins_at_the_end_of_the_events_and_a_known_one_where_it_stopped() {
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    let app = receiver.server([receiver.webhook("old")]).await;
    app.held("pay", "1").await;
    let before = logged(&app).await;
    receiver.got("old", before.len()).await;

    // Without webhooks in the configuration nothing is delivered.
    let app = app.redeploy_with(probes(&Ledger::new()), |_| {}).await;
    app.held("pay", "2").await;
    let without = logged(&app).await;
    let both = vec![receiver.webhook("old"), receiver.webhook("new")];
    let tools = probes(&Ledger::new());
    let app = app.redeploy_with(tools, |config| with_webhooks(config, both)).await;
    app.held("pay", "3").await;
    let all = logged(&app).await;
    assert_eq!(ids_and_types(&receiver.got("old", all.len()).await), all);
    let new = receiver.got("new", all.len() - without.len()).await;
    assert_eq!(ids_and_types(&new), all[without.len()..]);
}

#[tokio::test]
async fn the_contents_of_a_deleted_thread_are_not_sent() {
    let receiver = Receiver::start(ServiceAction::answers(500, "")).await;
    let mut full = receiver.webhook("full");
    full.body = WebhookBody::Full;
    let app = receiver.server([full]).await;
    let (thread, _) = app.held("pay", "canary").await;
    receiver.got("full", 1).await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    let events = logged(&app).await;
    receiver.remote.now(ServiceAction::answers(204, ""));
    let failed = receiver.remote.received().len();
    super::enable(&app.client, "full").await;
    let got = receiver.got("full", failed + events.len()).await;
    let delivered = &got[got.len() - events.len()..];
    assert_eq!(ids_and_types(delivered), events);
    for received in delivered {
        assert!(!received.body.contains("canary"), "{}", received.body);
        assert_eq!(received.json()["data"]["event"], Value::Null);
    }
}

#[tokio::test]
async fn events_that_are_deleted_before_their_delivery_are_reported() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let app = receiver.server([receiver.webhook("late")]).await;
    app.held("pay", "1").await;
    super::becomes(&app.client, "late", "disabled").await;
    assert_eq!(shown(&app.client, "late").await["has_gap"], false);
    let last = logged(&app).await.last().unwrap().0;
    app.rows.drop_guards("events").await;
    app.rows.change(&format!("DELETE FROM events WHERE seq < {last}")).await.unwrap();
    assert_eq!(shown(&app.client, "late").await["has_gap"], true);
    receiver.remote.now(ServiceAction::answers(204, ""));
    super::enable(&app.client, "late").await;
    let got = receiver.got("late", 2).await;
    assert_eq!(seq(&got[1]), last, "the delivery goes on with the first event that is left");
    let whole = async || (shown(&app.client, "late").await["has_gap"] == false).then_some(());
    eventually("the gap is passed", whole).await;
}

#[tokio::test]
async fn many_events_that_a_webhook_does_not_get_are_passed_over() {
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    let mut rare = receiver.webhook("rare");
    rare.events = Some(vec!["tool.rejected".to_owned()]);
    let app = receiver.server([rare]).await;
    let (thread, id) = app.held("pay", "1").await;
    let copies = if app.rows.is_postgres() {
        "generate_series(1, 1500) AS n"
    } else {
        "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1500) SELECT n FROM c)"
    };
    let copy = format!(
        "INSERT INTO events (event_id, type, at, actor, tenant_id, user_id, session_id, thread_id, data)
         SELECT 'copy' || n, 'run.waiting', 1, 'x', 'default', 'local', '{thread}', '{thread}', '{{}}' FROM {copies}"
    );
    assert_eq!(app.rows.change(&copy).await, Ok(1500));
    app.client.reject(&id).await.has_status(200);
    let got = receiver.got("rare", 1).await;
    assert_eq!(kind(&got[0]), "tool.rejected");
    let passed =
        async || (shown(&app.client, "rare").await["cursor"].as_i64()? >= seq(&got[0])).then_some(());
    eventually("the cursor is at the delivered event", passed).await;
    assert_eq!(receiver.remote.received().len(), 1);
}
