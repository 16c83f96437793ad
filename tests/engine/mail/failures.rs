//! Refused messages, and a mail server that is away.

use super::{PASSWORD, Postbox, becomes, event_ids, header, local, message_id, with_mail};
use crate::webhooks::{enable, shown};
use holdpoint::config::MailTls;
use holdpoint_testkit::{Embedded, JsonFields, Ledger, eventually, probes};
use serde_json::json;

#[tokio::test]
async fn a_refused_message_is_dropped_and_shown_and_the_next_one_is_sent() {
    for answers in [json!({ "rcpt": "550 no such mailbox" }), json!({ "data": "554 not today" })] {
        let mut postbox = Postbox::start(MailTls::None);
        postbox.answers(answers.clone()).await;
        let app = postbox.server([local()]).await;
        app.held("pay", "1").await;
        let refused =
            async || Some(shown(&app.client, "desk").await).filter(|it| it["refused"]["count"] == 1);
        let refused = eventually("the refusal is shown", refused).await;
        let status = if answers.get("rcpt").is_some() { 550 } else { 554 };
        assert_eq!(
            (&refused["state"], &refused["refused"]["last_status"]),
            (&json!("delivering"), &json!(status))
        );
        assert_eq!(
            (&refused["channel"], &refused["origin"]),
            (&json!("mail"), &json!("mailto:desk@example.com"))
        );
        postbox.answers(json!({})).await;
        let (_, call) = app.held("pay", "2").await;
        let got = postbox.got(1).await;
        let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
        assert_eq!(header(&got[0], "message-id"), message_id(&event, "desk"));
        let metrics =
            app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let sample = "holdpoint_mail_attempts_total{recipient=\"desk\",outcome=\"refused\"} 1";
        assert!(metrics.lines().any(|line| line == sample), "{metrics}");
        let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
        let line: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((line[..2].to_vec(), line[6]), (vec!["desk", "mail"], "1"), "{listed}");
    }
}

#[tokio::test]
async fn what_the_server_answers_for_now_or_about_the_sender_keeps_the_message() {
    for (answers, status) in [
        (json!({ "rcpt": "450 busy" }), 450),
        (json!({ "data": "451 later" }), 451),
        (json!({ "mail": "550 not from you" }), 550),
    ] {
        let mut postbox = Postbox::start(MailTls::None);
        postbox.answers(answers).await;
        let app = postbox.server([local()]).await;
        let (_, call) = app.held("pay", "1").await;
        let failing = becomes(&app.client, "desk", "failing").await;
        let failures = &failing["failures"];
        assert_eq!((&failures["last"], &failures["last_status"]), (&json!("status"), &json!(status)));
        assert_eq!(failing["refused"], json!(null));
        postbox.answers(json!({})).await;
        enable(&app.client, "desk").await;
        let got = postbox.got(1).await;
        let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
        assert_eq!(header(&got[0], "message-id"), message_id(&event, "desk"));
        let tried: Vec<_> = postbox.read().iter().map(|it| header(it, "message-id").to_owned()).collect();
        assert!(tried.iter().all(|id| *id == message_id(&event, "desk")), "{tried:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_gets_the_messages_once_it_is_back() {
    let postbox = Postbox::start(MailTls::None);
    let (mail, port) = (postbox.mail(), postbox.port);
    drop(postbox);
    let app = Embedded::with(|config| with_mail(config, mail, [local()])).await;
    app.held("pay", "1").await;
    let failing = becomes(&app.client, "desk", "failing").await;
    assert_eq!(failing["failures"]["last"], "not_sent", "{failing}");
    app.held("pay", "2").await;
    let postbox = Postbox::with(MailTls::None, json!({ "port": port }));
    enable(&app.client, "desk").await;
    let got = postbox.got(2).await;
    let ids =
        app.rows.all("SELECT event_id FROM events WHERE type = 'tool.requires_approval' ORDER BY seq").await;
    let ids: Vec<String> = ids.iter().map(|row| message_id(row.text("event_id"), "desk")).collect();
    assert_eq!(got.iter().map(|it| header(it, "message-id")).collect::<Vec<_>>(), ids);
    becomes(&app.client, "desk", "delivering").await;
}

#[tokio::test]
async fn no_message_leaves_over_an_untrusted_or_unencrypted_connection_or_with_a_wrong_password() {
    let unencrypted = Postbox::start(MailTls::None);
    let untrusted = Postbox::start(MailTls::Implicit);
    let strict = Postbox::with(MailTls::Starttls, json!({ "password": PASSWORD }));
    let mut downgraded = unencrypted.mail();
    (downgraded.tls, downgraded.ca_file) = (MailTls::Starttls, Some(untrusted.ca_file()));
    let mut unknown = untrusted.mail();
    unknown.ca_file = None;
    let mut wrong = strict.mail();
    (wrong.user, wrong.password) = (Some("holdpoint".to_owned()), Some("guess".into()));
    for (mail, last) in [(downgraded, "not_sent"), (unknown, "not_sent"), (wrong, "status")] {
        let app = Embedded::with(|config| with_mail(config, mail, [local()])).await;
        app.held("pay", "1").await;
        let failing = becomes(&app.client, "desk", "failing").await;
        assert_eq!(
            (&failing["failures"]["last"], &failing["refused"]),
            (&json!(last), &json!(null)),
            "{failing}"
        );
    }
    for postbox in [unencrypted, untrusted, strict] {
        assert_eq!(postbox.read().len(), 0);
    }
}

#[tokio::test]
async fn an_endpoint_of_another_channel_begins_at_the_end_of_the_events() {
    let mut postbox = Postbox::start(MailTls::None);
    postbox.answers(json!({ "mail": "451 later" })).await;
    let app = postbox.server([local()]).await;
    app.held("pay", "1").await;
    becomes(&app.client, "desk", "failing").await;
    assert_eq!(app.rows.change("UPDATE endpoints SET channel = 'webhook'").await, Ok(1));
    let set = "UPDATE endpoints SET refused = 1, refused_at = 1, refused_status = 550";
    let why = app.rows.change(set).await.expect_err("webhooks have no refused messages");
    assert!(why.to_lowercase().contains("check constraint"), "{why}");

    postbox.answers(json!({})).await;
    let (mail, tools) = (postbox.mail(), probes(&Ledger::new()));
    let app = app.redeploy_with(tools, |config| with_mail(config, mail, [local()])).await;
    let (_, call) = app.held("pay", "2").await;
    let got = postbox.got(1).await;
    let event = event_ids(&app, &call, "tool.requires_approval").await.remove(0);
    assert_eq!(header(&got[0], "message-id"), message_id(&event, "desk"), "not the message of before");
}
