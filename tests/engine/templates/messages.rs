//! What a service gets.

use super::{CONSOLE, documented, entry, got, server, service, with_notify};
use crate::mail::event_ids;
use crate::webhooks::shown;
use holdpoint::config::Notify;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, Ledger, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn a_message_to_ntfy_and_one_to_teams_are_in_their_formats_and_have_no_arguments() {
    let service = service().await;
    let (entries, templates) = documented();
    let [mut phone, mut teams] = <[Notify; 2]>::try_from(entries).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "Bearer tk_canary\n").unwrap();
    phone.header_files.insert("authorization".to_owned(), dir.path().join("token"));
    std::fs::write(dir.path().join("teams.json"), &templates[0]).unwrap();
    teams.template_file = Some(dir.path().join("teams.json"));
    phone.url = Some(format!("{}/", service.base));
    teams.url = Some(format!("{}/teams?sig=1", service.base));
    let app = server([phone, teams]).await;
    let (_, call) = app.held("pay", "canary-note").await;
    let link = format!("{CONSOLE}/#/link/");
    let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);

    let held = got(&service, "/", 1).await.remove(0);
    for (header, value) in [
        ("content-type", "application/json"),
        ("authorization", "Bearer tk_canary"),
        ("webhook-id", event.as_str()),
    ] {
        assert_eq!(held.header(header), value);
    }
    let body = held.json();
    for (field, value) in [
        ("topic", json!("acme-holds")),
        ("sequence_id", json!(call)),
        ("title", json!("Approval needed: Pay")),
        ("tags", json!(["pending"])),
    ] {
        assert_eq!(body[field], value, "{field}: {body}");
    }
    assert!(body.text("click").starts_with(&link), "{body}");
    let text = body.text("message");
    let lines = ["A call waits for a decision.", "Tool: Pay (pay)", "Requested by: user:local", "Risk: high"];
    for line in lines {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }

    let card = got(&service, "/teams?sig=1", 1).await.remove(0).json();
    assert_eq!((&card["type"], card.list("attachments").len()), (&json!("message"), 1));
    let attachment = &card["attachments"][0];
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    let content = &attachment["content"];
    assert_eq!((&content["type"], &content["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
    for block in content.list("body") {
        assert_eq!(block["type"], "RichTextBlock", "{block}");
        let text = block["inlines"][0].text("text");
        assert!(!text.is_empty() && block["inlines"][0]["type"] == "TextRun", "{block}");
    }
    assert_eq!(content["body"][0]["inlines"][0]["text"], "Approval needed: Pay");
    let action = &content["actions"][0];
    assert_eq!(action["type"], "Action.OpenUrl");
    assert!(action.text("url").starts_with(&link), "{action}");

    assert_eq!(app.client.approve(&call).await.body["state"], "succeeded");
    let decided = got(&service, "/", 2).await.remove(1);
    let end = event_ids(&app, &call, "tool.approved").await.remove(0);
    assert_eq!(decided.header("webhook-id"), end);
    let body = decided.json();
    assert_eq!((&body["title"], &body["tags"]), (&json!("Approved: Pay"), &json!(["approved"])));
    assert_eq!(body["sequence_id"], json!(call), "ntfy replaces the first message");
    let text = body.text("message");
    assert!(text.starts_with("The call is approved, by user:local."), "{text}");
    got(&service, "/teams?sig=1", 2).await;

    let delivered = async || (shown(&app.client, "phone").await["waiting_since"].is_null()).then_some(());
    eventually("everything is delivered", delivered).await;
    assert_eq!(service.received().len(), 4);
    for received in service.received() {
        assert!(!received.body.contains("canary"), "no argument leaves: {}", received.body);
    }
}

#[tokio::test]
async fn planted_quotes_and_line_ends_stay_inside_their_text() {
    let service = service().await;
    let planted = "\",\"topic\":\"planted\"}\r\n{link}\u{202e}";
    let all = "{headline}|{reason}|{inputs}|{text}";
    let shares = |name: &str, template: &str| {
        let url = format!("{}/{name}", service.base);
        Notify { share_arguments: true, ..entry(name, &url, template) }
    };
    let json = shares("json", &json!({ "topic": "holds", "all": all }).to_string());
    let text = Notify {
        content_type: Some("text/plain; charset=utf-8".to_owned()),
        ..shares("text", "{title}\n{headline}\n{inputs}\n{{}}")
    };
    let app = server([json.clone(), text.clone()]).await;
    let (_, call) = app.held("pay", planted).await;

    let body = got(&service, "/json", 1).await.remove(0).json();
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    assert_eq!(body["topic"], "holds");
    let filled = body.text("all");
    assert!(filled.contains(r#"{"note":"\",\"topic\":\"planted\"}\r\n{link}"#), "{filled}");
    assert!(!filled.contains(['\r', '\u{202e}']), "{filled}");

    let received = got(&service, "/text", 1).await.remove(0);
    assert_eq!(received.header("content-type"), "text/plain; charset=utf-8");
    let lines: Vec<&str> = received.body.split('\n').collect();
    assert_eq!(lines.len(), 4, "{}", received.body);
    assert_eq!((lines[0], lines[3]), ("Approval needed: Pay", "{}"));
    assert!(lines[2].contains(r#"{"note":"\",\"topic\""#), "{}", received.body);
    app.client.reject(&call).await.has_status(200);
    got(&service, "/text", 2).await;

    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(Ledger::new())).unwrap();
    let app = app.redeploy_with(tools, |config| with_notify(config, [json, text])).await;
    app.held("pay", "\"}\n{").await;
    let body = got(&service, "/json", 3).await.remove(2).json();
    let filled = body.text("all");
    assert!(filled.starts_with("Pay “\\\"}\\n{”?|"), "{filled}");
    let received = got(&service, "/text", 3).await.remove(2);
    let lines: Vec<&str> = received.body.split('\n').collect();
    assert_eq!((lines.len(), lines[1]), (4, "Pay “\\\"}\\n{”?"), "{}", received.body);
}

#[tokio::test]
async fn a_message_is_about_calls_that_the_recipient_may_decide_alone() {
    let service = service().await;
    let role = |name: &str, role: &str, tenant: &str| Notify {
        tenant: tenant.to_owned(),
        user: None,
        role: Some(role.to_owned()),
        ..entry(name, &format!("{}/{name}", service.base), "{\"text\": \"{title} {call_id}\"}")
    };
    let notify = [
        role("managers", "manager", "acme"),
        role("clerks", "clerk", "acme"),
        role("strangers", "manager", "other"),
    ];
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let rules = config.tools.rules.entry("pay".to_owned()).or_default();
        rules.approve_roles = vec!["manager".to_owned()];
        with_notify(config, notify);
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "1").await;
    got(&service, "/managers", 1).await;
    anonymous.as_user("acme", "dana", &["manager"]).reject(&call).await.has_status(200);
    let got = got(&service, "/managers", 2).await;
    let texts: Vec<Value> = got.iter().map(|it| it.json()["text"].clone()).collect();
    assert_eq!(texts, [format!("Approval needed: Pay {call}"), format!("Rejected: Pay {call}")]);
    let passed = "endpoints WHERE name = 'clerks' AND cursor >= (SELECT max(seq) FROM events \
                  WHERE type = 'tool.rejected')";
    let passed = async || (app.rows.count(passed).await == 1).then_some(());
    eventually("the events are passed over", passed).await;
    assert_eq!(service.received().len(), 2, "no other role, no other tenant");
}
