//! Requests to Slack that fail.

use super::api::ApiAnswer;
use super::{FakeSlack, local, server};
use crate::webhooks::{becomes, enable, shown};
use holdpoint_testkit::eventually;
use serde_json::{Value, json};

#[tokio::test]
async fn what_slack_or_its_application_answers_for_now_keeps_the_message() {
    for (says, status, waits) in [
        (ApiAnswer::TooMany(40), 429, 30..=40),
        (ApiAnswer::Status(503), 503, 0..=5),
        (ApiAnswer::Error("ratelimited"), 429, 0..=5),
        (ApiAnswer::Error("invalid_auth"), 400, 0..=5),
        (ApiAnswer::Error("an unknown <word>"), 400, 0..=5),
    ] {
        let slack = FakeSlack::start().await;
        slack.next([says.clone()]);
        let app = server(&slack, [local()]).await;
        app.held("pay", "1").await;
        let failing = becomes(&app.client, "desk", "failing").await;
        assert_eq!((&failing["channel"], &failing["origin"]), (&json!("slack"), &json!("slack:U1")));
        let failures = &failing["failures"];
        assert_eq!(
            (&failures["last"], &failures["last_status"]),
            (&json!("status"), &json!(status)),
            "{says:?}"
        );
        assert_eq!(failing["refused"], json!(null));
        let time = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let wait = time(&failing["next_attempt_at"]).duration_since(time(&failures["since"]));
        assert!(waits.contains(&wait.as_secs()), "{says:?}: {wait:?}");
        enable(&app.client, "desk").await;
        becomes(&app.client, "desk", "delivering").await;
        assert_eq!(slack.got(1).await.len(), 1);
    }
}

#[tokio::test]
async fn a_refused_message_is_dropped_and_shown_and_the_next_one_is_sent() {
    for error in ["channel_not_found", "is_archived", "user_not_found"] {
        let slack = FakeSlack::start().await;
        slack.next([ApiAnswer::Error(error)]);
        let app = server(&slack, [local()]).await;
        let (_, first) = app.held("pay", "1").await;
        let refused =
            async || Some(shown(&app.client, "desk").await).filter(|it| it["refused"]["count"] == 1);
        let refused = eventually("the refusal is shown", refused).await;
        assert_eq!(
            (&refused["state"], &refused["refused"]["last_status"]),
            (&json!("delivering"), &json!(400))
        );
        app.held("pay", "2").await;
        slack.got(1).await;
        // The first message about the first call is the one about its end.
        app.client.reject(&first).await.has_status(200);
        let end = slack.got(2).await.remove(1);
        assert_eq!((end.texts()[0].as_str(), end.buttons().len()), ("Rejected: Pay", 1));
        let metrics =
            app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let sample = "holdpoint_slack_attempts_total{recipient=\"desk\",outcome=\"refused\"} 1";
        assert!(metrics.lines().any(|line| line == sample), "{metrics}");
        let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
        let line: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((line[..2].to_vec(), line[6]), (vec!["desk", "slack"], "1"), "{listed}");
    }
}

#[tokio::test]
async fn a_message_that_is_gone_from_slack_does_not_stop_those_after_it() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "1").await;
    slack.got(1).await;
    slack.next([ApiAnswer::Error("message_not_found")]);
    app.client.reject(&call).await.has_status(200);
    app.held("pay", "2").await;
    slack.got(2).await;
    let refused = shown(&app.client, "desk").await;
    assert_eq!(
        (&refused["refused"]["count"], &refused["state"]),
        (&json!(1), &json!("delivering")),
        "{refused}"
    );
}
