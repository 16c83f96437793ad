//! The messages: their recipients, their texts and their changes.

use super::{CONSOLE, FakeSlack, entry, local, server, with_slack};
use crate::webhooks::shown;
use holdpoint::config::Notify;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::{Value, json};

fn ids(buttons: &[Value]) -> Vec<&str> {
    buttons.iter().map(|button| button.text("action_id")).collect()
}

#[tokio::test]
async fn a_held_call_is_one_message_which_its_decision_changes() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [Notify { share_arguments: false, ..local() }]).await;
    let (_, call) = app.held("pay", "canary-note").await;
    let held = slack.got(1).await.remove(0);
    assert_eq!((held.channel.as_str(), &held.now()["channel"]), ("DU1", &json!("U1")));
    assert_eq!(held.now()["text"], "Approval needed: Pay");
    let texts = held.texts();
    assert_eq!(texts[0], "Approval needed: Pay");
    for line in ["A call waits for a decision.", "Tool: Pay (pay)", "Requested by: user:local", "Risk: high"]
    {
        assert!(texts[1].lines().any(|it| it == line), "{line}: {texts:?}");
    }
    let buttons = held.buttons();
    assert_eq!(ids(&buttons), ["holdpoint_reject", "holdpoint_open"], "the message does not show what runs");
    let link = buttons[1].text("url");
    assert!(link.starts_with(&format!("{CONSOLE}/#/link/")), "{link}");
    assert!(!held.now().to_string().contains("canary"), "no argument leaves by Slack: {held:?}");

    assert_eq!(app.client.approve(&call).await.body["state"], "succeeded");
    let decided = slack.changed(0, 2).await;
    assert_eq!(decided.now()["channel"], "DU1", "the conversation that Slack has answered");
    let blocks = &decided.versions[1]["blocks"];
    assert_eq!(blocks[0]["text"]["text"], "Approved: Pay");
    let text = blocks[1]["text"].text("text");
    assert!(text.starts_with("The call is approved, by user:local.\n"), "{decided:?}");
    assert_eq!(ids(&slack.changed(0, 3).await.buttons()), ["holdpoint_open"]);

    app.held("pay", "2").await;
    let second = slack.got(2).await.remove(1);
    assert_eq!(second.versions.len(), 1);
    let delivered = async || (shown(&app.client, "desk").await["waiting_since"].is_null()).then_some(());
    eventually("everything is delivered", delivered).await;
    assert_eq!((slack.messages().len(), slack.requests().len()), (2, 4));
    let kept = app.rows.all("SELECT endpoint, channel, ts FROM slack_messages ORDER BY ts").await;
    let row = |ts: &str| json!({ "endpoint": "desk", "channel": "DU1", "ts": ts });
    assert_eq!(kept, [row("1700000000.000001"), row("1700000000.000002")]);
    for change in ["UPDATE slack_messages SET ts = 'x'", "DELETE FROM slack_messages"] {
        let why = app.rows.change(change).await.expect_err(change);
        assert!(why.contains("never"), "{why}");
    }
}

#[tokio::test]
async fn arguments_are_in_a_message_only_if_the_entry_shares_them_and_never_as_markup() {
    let slack = FakeSlack::start().await;
    let shares =
        Notify { name: "shares".to_owned(), slack: Some("C2".to_owned()), share_arguments: true, ..local() };
    let zone = Some("Asia/Kathmandu".to_owned());
    let app = server(&slack, [Notify { time_zone: zone, share_arguments: false, ..local() }, shares]).await;
    let note = "<!channel> <https://evil.example|Approve> *b* :tada:";
    app.held("pay", note).await;
    let both = slack.got(2).await;
    let of = |channel: &str| both.iter().find(|it| it.channel == channel).unwrap();
    assert!(!of("DU1").now().to_string().contains("evil"), "{both:?}");
    assert!(of("DU1").texts()[1].contains("(UTC+05:45)"), "{both:?}");
    let message = of("C2");
    assert!(
        message.texts()[1].contains("<!channel> <https://evil.example|Approve> *b* :tada:"),
        "{message:?}"
    );
    let request = message.now().to_string();
    assert!(!request.contains("\"mrkdwn\":true") && !request.contains("\"type\":\"mrkdwn\""), "{request}");
    assert!(!message.now().text("text").contains("evil"), "{request}");
    for (field, value) in [("parse", json!("none")), ("link_names", json!(false)), ("mrkdwn", json!(false))] {
        assert_eq!(message.now()[field], value, "{field}");
    }
}

#[tokio::test]
async fn a_message_goes_to_those_that_may_decide_and_a_reminder_changes_it() {
    let slack = FakeSlack::start().await;
    let role = |name: &str, role: &str, id: &str| Notify { role: Some(role.to_owned()), ..entry(name, id) };
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let rules = config.tools.rules.entry("pay".to_owned()).or_default();
        rules.approve_roles = vec!["manager".to_owned()];
        config.approval.sweep = std::time::Duration::from_millis(50);
        let notify = [role("managers", "manager", "C1"), role("clerks", "clerk", "C2")];
        with_slack(config, &slack, notify);
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "1").await;
    slack.got(1).await;
    let due = format!("UPDATE tool_calls SET remind_at = created_at WHERE tool_call_id = '{call}'");
    assert_eq!(app.rows.change(&due).await, Ok(1));
    let reminded = slack.changed(0, 2).await;
    assert!(reminded.texts()[1].starts_with("A call still waits for a decision"), "{reminded:?}");
    assert_eq!(reminded.buttons().len(), 3, "it can still be decided");
    let all = slack.messages();
    assert_eq!(all.iter().map(|it| it.channel.as_str()).collect::<Vec<_>>(), ["C1"]);
}
