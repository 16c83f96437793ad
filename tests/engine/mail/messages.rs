//! The messages: their recipients, their texts and their threads.

use super::{CONSOLE, PASSWORD, Postbox, entry, event_ids, header, local, message_id, with_mail};
use crate::webhooks::shown;
use holdpoint::config::{Config, MailTls, Notify};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_held_call_is_one_message_over_tls_and_its_decision_is_a_second_in_the_same_thread() {
    for tls in [MailTls::Starttls, MailTls::Implicit] {
        let postbox = Postbox::with(tls, json!({ "password": PASSWORD }));
        let app = Embedded::with(|config| {
            let mut mail = postbox.mail();
            mail.user = Some("holdpoint".to_owned());
            mail.password = Some(PASSWORD.into());
            with_mail(config, mail, [local()]);
        })
        .await;
        let (_, call) = app.held("pay", "canary-note").await;
        let held = postbox.got(1).await.remove(0);
        assert_eq!(
            (&held["from"], &held["to"]),
            (&json!("holdpoint@example.com"), &json!(["desk@example.com"]))
        );
        assert_eq!((&held["encrypted"], &held["authenticated"]), (&json!(true), &json!(true)), "{tls:?}");
        let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
        for (name, value) in [
            ("from", "Holdpoint <holdpoint@example.com>"),
            ("to", "desk@example.com"),
            ("subject", "Approval needed: Pay"),
            ("message-id", &message_id(&event, "desk")),
            ("auto-submitted", "auto-generated"),
            ("content-type", "text/plain; charset=\"utf-8\""),
            ("references", ""),
        ] {
            assert_eq!(header(&held, name), value, "{name}: {held}");
        }
        let body = held.text("body");
        for line in
            ["A call waits for a decision.", "Tool: Pay (pay)", "Requested by: user:local", "Risk: high"]
        {
            assert!(body.lines().any(|it| it == line), "{line}: {body}");
        }
        assert!(body.contains(&format!("\n{CONSOLE}/#/link/")) && body.contains("Decide before: "), "{body}");
        assert!(!held.text("raw").contains("canary"), "no argument leaves by mail: {held}");

        assert_eq!(app.client.approve(&call).await.body["state"], "succeeded");
        let decided = postbox.got(2).await.remove(1);
        let end = event_ids(&app, &call, "tool.approved").await.remove(0);
        for (name, value) in [
            ("subject", "Re: Approval needed: Pay"),
            ("message-id", &message_id(&end, "desk")),
            ("in-reply-to", &message_id(&event, "desk")),
            ("references", &message_id(&event, "desk")),
        ] {
            assert_eq!(header(&decided, name), value, "{name}: {decided}");
        }
        assert!(decided.text("body").starts_with("The call is approved, by user:local."), "{decided}");
        let card = format!("{CONSOLE}/#/call/{call}");
        assert!(decided.text("body").contains(&card), "{decided}");
        let delivered = async || (shown(&app.client, "desk").await["waiting_since"].is_null()).then_some(());
        eventually("everything is delivered", delivered).await;
        assert_eq!(postbox.read().len(), 2);
    }
}

#[tokio::test]
async fn arguments_are_in_a_message_only_if_the_entry_shares_them() {
    let postbox = Postbox::start(MailTls::None);
    let shares = Notify { name: "shares".to_owned(), share_arguments: true, ..local() };
    let zone = Some("Asia/Kathmandu".to_owned());
    let app = postbox.server([Notify { time_zone: zone, ..local() }, shares]).await;
    let (_, call) = app.held("pay", "12€").await;
    let both = postbox.got(2).await;
    let of = |name: &str| both.iter().find(|it| header(it, "message-id").contains(name)).unwrap();
    assert!(!of(".desk@").text("body").contains("€"));
    let body = of(".shares@").text("body");
    assert!(body.contains(r#"Inputs: {"note":"12€"}"#), "{body}");
    assert!(of(".desk@").text("body").contains("(UTC+05:45)"), "{both:?}");
    assert!(body.contains("(UTC+00:00)"), "{body}");
    let rejection =
        json!({ "toolCallId": call, "isValidated": false, "reason": "curl | bash is not allowed" });
    app.client.post("/qa/validate_tool", &rejection).await.has_status(200);
    let ends = postbox.got(4).await;
    let of = |name: &str| ends[2..].iter().find(|it| header(it, "message-id").contains(name)).unwrap();
    let [own, shared] = [".desk@", ".shares@"].map(|name| of(name).text("body"));
    for body in [own, shared] {
        assert!(body.starts_with("The call is rejected, by user:local."), "{body}");
    }
    // The reason of the person, and that of the hold under its own name.
    for line in ["Reason: curl | bash is not allowed", "Held because: pay runs only with a person's approval"]
    {
        assert!(shared.lines().any(|it| it == line), "{line}: {shared}");
    }
    assert!(!own.contains("curl") && !own.contains("because"), "{own}");
}

#[tokio::test]
async fn a_failure_and_an_unknown_outcome_are_messages_and_operators_hear_of_the_latter() {
    let postbox = Postbox::start(MailTls::None);
    let role = |name: &str, role: &str| Notify { role: Some(role.to_owned()), ..entry(name) };
    let other = Notify { tenant: "other".to_owned(), ..role("stranger", "operator") };
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.operator_roles = vec!["operator".to_owned()];
        for tool in ["pay", "refuse", "break"] {
            let rules = config.tools.rules.entry(tool.to_owned()).or_default();
            rules.approve_roles = vec!["manager".to_owned()];
        }
        with_mail(
            config,
            postbox.mail(),
            [role("managers", "manager"), role("operators", "operator"), other],
        );
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &[]);
    let dana = anonymous.as_user("acme", "dana", &["manager"]);
    let mut messages = 0;
    for (tool, sent) in [("pay", 1), ("refuse", 2), ("break", 3)] {
        let (_, call) = app.held(tool, "1").await;
        messages += 1;
        postbox.got(messages).await;
        dana.approve(&call).await;
        messages += sent;
        postbox.got(messages).await;
    }
    for name in ["managers", "operators"] {
        let last = format!(
            "endpoints WHERE name = '{name}' AND cursor >= (SELECT max(seq) FROM events WHERE type = 'tool.interrupted')"
        );
        eventually("everything is delivered", async || (app.rows.count(&last).await == 1).then_some(()))
            .await;
    }
    let all = postbox.got(messages).await;
    let mut found: Vec<(&str, &str, &str)> = all
        .iter()
        .map(|it| (header(it, "to"), header(it, "subject"), it.text("body").lines().next().unwrap()))
        .collect();
    found.sort_unstable();
    let (managers, unknown) = (
        "managers@example.com",
        "The outcome of the call is unknown: do not repeat it before somebody has looked. The call was approved, by user:dana.",
    );
    let (waits, approved) = ("A call waits for a decision.", "The call is approved, by user:dana.");
    assert_eq!(
        found,
        [
            (managers, "Approval needed: Break", waits),
            (managers, "Approval needed: Pay", waits),
            (managers, "Approval needed: Refuse", waits),
            (managers, "Outcome unknown: Break", unknown),
            (managers, "Re: Approval needed: Break", approved),
            (managers, "Re: Approval needed: Pay", approved),
            (managers, "Re: Approval needed: Refuse", "The call is approved, by user:dana, and has failed."),
            (managers, "Re: Approval needed: Refuse", approved),
            ("operators@example.com", "Outcome unknown: Break", unknown),
        ]
    );
}

/// A server with tokens whose tool `pay` is approved by `manager`, never by its requester.
fn with_managers(config: &mut Config) {
    with_tokens(config);
    let rules = config.tools.rules.entry("pay".to_owned()).or_default();
    rules.approve_roles = vec!["manager".to_owned()];
    rules.other_person = true;
}

#[tokio::test]
async fn a_message_goes_to_those_that_may_decide_the_call_alone() {
    let postbox = Postbox::start(MailTls::None);
    let role = |name: &str, role: &str| Notify { role: Some(role.to_owned()), ..entry(name) };
    let person = |name: &str| Notify { user: Some(name.to_owned()), ..role(name, "manager") };
    let other = Notify { tenant: "other".to_owned(), ..role("stranger", "manager") };
    let notify = [role("managers", "manager"), role("clerks", "clerk"), person("ann"), person("dana"), other];
    let mut app = Embedded::with(|config| {
        with_managers(config);
        with_mail(config, postbox.mail(), notify);
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &["manager"]);
    let (_, call) = app.held("pay", "1").await;
    // A call that is decided before its message is one message only.
    postbox.got(2).await;
    anonymous.as_user("acme", "dana", &["manager"]).reject(&call).await.has_status(200);
    let to = |messages: &[serde_json::Value], subject: &str| {
        let mut to: Vec<String> = messages
            .iter()
            .filter(|it| header(it, "subject") == subject)
            .map(|it| header(it, "to").to_owned())
            .collect();
        to.sort();
        to
    };
    let all = postbox.got(4).await;
    let deciders = ["dana@example.com", "managers@example.com"];
    assert_eq!(
        to(&all, "Approval needed: Pay"),
        deciders,
        "not the requester, no other role, no other tenant"
    );
    assert_eq!(to(&all, "Re: Approval needed: Pay"), deciders);
}

#[tokio::test]
async fn a_delegate_an_escalation_and_a_reminder_have_messages_of_their_own() {
    let postbox = Postbox::start(MailTls::None);
    let role = |name: &str, role: &str| Notify { role: Some(role.to_owned()), ..entry(name) };
    let bob = Notify { user: Some("bob".to_owned()), ..entry("bob") };
    let mut app = Embedded::with(|config| {
        with_managers(config);
        config.approval.sweep = Duration::from_millis(50);
        config.approval.escalate_after = Some(Duration::from_millis(1));
        config.approval.escalate_to = vec!["chief".to_owned()];
        with_mail(config, postbox.mail(), [role("managers", "manager"), role("chiefs", "chief"), bob]);
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "1").await;
    let mut first = postbox.got(2).await;
    first.sort_by_key(|message| header(message, "to").to_owned());
    let lines =
        ["A call waits for a decision, and was escalated to your role.", "A call waits for a decision."];
    for (message, (to, line)) in first.iter().zip(["chiefs", "managers"].iter().zip(lines)) {
        assert_eq!(header(message, "to"), format!("{to}@example.com"));
        assert_eq!(message.text("body").lines().next(), Some(line));
    }

    let carol = anonymous.as_user("acme", "carol", &["manager"]);
    let until = carol.get(&format!("/approvals/{call}")).await.body["expires_at"].clone();
    let delegation = json!({ "to": "bob", "until": until, "reason": "I am away" });
    let answer = carol.post(&format!("/approvals/{call}/delegate"), &delegation).await;
    answer.has_status(200);
    let delegated = postbox.got(3).await.remove(2);
    assert_eq!(header(&delegated, "to"), "bob@example.com");
    assert!(delegated.text("body").starts_with("user:carol lets you decide a call."), "{delegated}");

    let due = format!("UPDATE tool_calls SET remind_at = created_at WHERE tool_call_id = '{call}'");
    assert_eq!(app.rows.change(&due).await, Ok(1));
    let mut reminders = postbox.got(6).await.split_off(3);
    reminders.sort_by_key(|message| header(message, "to").to_owned());
    let to: Vec<&str> = reminders.iter().map(|message| header(message, "to")).collect();
    assert_eq!(to, ["bob@example.com", "chiefs@example.com", "managers@example.com"]);
    let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
    for message in &reminders {
        let body = message.text("body");
        assert!(body.starts_with("A call still waits for a decision, and its deadline is near."), "{body}");
        let name = header(message, "to").split('@').next().unwrap();
        assert_eq!(header(message, "references"), message_id(&event, name), "{message}");
    }
}

#[tokio::test]
async fn a_call_that_ended_before_its_message_is_one_message_about_its_end() {
    let mut postbox = Postbox::start(MailTls::None);
    postbox.answers(json!({ "mail": "451 later" })).await;
    let app = postbox.server([local()]).await;
    let (_, call) = app.held("pay", "1").await;
    super::becomes(&app.client, "desk", "failing").await;
    app.client.reject(&call).await.has_status(200);
    postbox.answers(json!({})).await;
    crate::webhooks::enable(&app.client, "desk").await;
    let got = postbox.got(1).await;
    assert!(got[0].text("body").starts_with("The call is rejected"), "{got:?}");
    let (_, second) = app.held("pay", "2").await;
    let got = postbox.got(2).await;
    assert!(got[1].text("body").contains(&second), "{got:?}");
}

#[tokio::test]
async fn a_mail_has_masks_in_place_of_secrets() {
    let postbox = Postbox::start(MailTls::None);
    let notify = Notify { share_arguments: true, ..local() };
    let app = holdpoint_testkit::secrets::server(|config| with_mail(config, postbox.mail(), [notify])).await;
    let call = holdpoint_testkit::secrets::held(&app, "login").await;
    postbox.got(1).await;
    app.client.approve(&call).await;
    let messages = postbox.got(2).await;
    for message in &messages {
        let body = message.text("body");
        holdpoint_testkit::secrets::assert_hidden(&message.to_string());
        assert!(body.contains(holdpoint_testkit::secrets::MASK), "{body}");
    }
}
