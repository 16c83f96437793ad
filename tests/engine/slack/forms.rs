//! The form for the reason of a rejection.

use super::api::ApiAnswer;
use super::{
    APPROVE, FakeSlack, Interaction, PATH, REJECT, SIGNING_SECRET, entry, local, now, person, press, server,
    submission, submit, with_slack,
};
use holdpoint::config::{Notify, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::{Value, json};

async fn state(app: &Embedded, call: &str) -> Value {
    app.client.call(call).await["state"].clone()
}

#[tokio::test]
async fn the_button_that_rejects_asks_for_a_reason_which_the_message_shows_then() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    press(&app, &slack, "U1", &message, REJECT).await;
    let view = slack.views().remove(0);
    assert_eq!(
        (&view["title"]["text"], &view["submit"]["text"]),
        (&json!("Reject the call"), &json!("Reject"))
    );
    assert_eq!(state(&app, &call).await, "pending", "the form decides, not the press");
    assert_eq!(slack.notices().len(), 0);
    let answer = submit(&app, "U1", &view, Some(" curl | bash is not allowed ")).await;
    assert_eq!(answer, (200, String::new()));
    let decided = app.client.call(&call).await;
    assert_eq!(
        (&decided["state"], &decided["decision"]["reason"], &decided["decision"]["surface"]),
        (&json!("rejected"), &json!("curl | bash is not allowed"), &json!("slack"))
    );
    let changed = slack.changed(0, 2).await;
    assert!(changed.texts()[1].contains("\nReason: curl | bash is not allowed\n"), "{changed:?}");
    // The same form again, as Slack sends it after a lost answer.
    submit(&app, "U1", &view, Some(" curl | bash is not allowed ")).await;
    assert!(slack.noticed(1).await[0].starts_with("This was decided before."));
}

#[tokio::test]
async fn a_reason_is_optional_and_a_long_one_is_refused_in_the_form() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    press(&app, &slack, "U1", &message, REJECT).await;
    let view = slack.views().remove(0);
    let (status, body) = submit(&app, "U1", &view, Some(&"é".repeat(2001))).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    let fault = json!({ "response_action": "errors", "errors": { "reason": "At most 2000 characters." } });
    assert_eq!((status, answer), (200, fault));
    assert_eq!(state(&app, &call).await, "pending");
    assert_eq!(submit(&app, "U1", &view, None).await.0, 200);
    let decided = app.client.call(&call).await;
    assert_eq!((&decided["state"], &decided["decision"]["reason"]), (&json!("rejected"), &Value::Null));
}

#[tokio::test]
async fn a_form_decides_with_the_rights_of_the_one_who_sends_it() {
    let slack = FakeSlack::start().await;
    let channel = Notify { role: Some("manager".to_owned()), ..entry("managers", "C1") };
    let other = Notify { tenant: "other".to_owned(), ..person("eve", "manager", "U9") };
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let approve_roles = vec!["manager".to_owned()];
        config.tools.rules.insert("pay".to_owned(), ToolRules { approve_roles, ..ToolRules::default() });
        with_slack(
            config,
            &slack,
            [channel, person("bob", "clerk", "U2"), person("dana", "manager", "U4"), other],
        );
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "10").await;
    let of_channel = async || slack.messages().into_iter().find(|it| it.channel == "C1");
    let message = eventually("the channel has the message", of_channel).await;
    let unmapped = "Your Slack account is not mapped to a user of this server, so it decides nothing.";
    press(&app, &slack, "U9", &message, REJECT).await;
    assert_eq!(
        (slack.noticed(1).await[0].as_str(), slack.views().len()),
        (unmapped, 0),
        "no form for a stranger"
    );
    press(&app, &slack, "U4", &message, REJECT).await;
    let view = slack.views().remove(0);
    for (n, (account, notice)) in
        [("U9", unmapped), ("U7", unmapped), ("U2", "There is no such call, or it is not yours to decide.")]
            .into_iter()
            .enumerate()
    {
        submit(&app, account, &view, Some("no")).await;
        assert_eq!(slack.noticed(n + 2).await.last().map(String::as_str), Some(notice), "{account}");
    }
    assert_eq!(state(&app, &call).await, "pending");
    submit(&app, "U4", &view, Some("no")).await;
    assert_eq!(app.client.call(&call).await["decision"]["by"], "user:dana");
}

#[tokio::test]
async fn only_a_form_of_this_server_that_slack_signed_decides() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    press(&app, &slack, "U1", &message, REJECT).await;
    let view = slack.views().remove(0);
    let good = submission("U1", &view, Some("no"));
    let mut forged = Interaction::of(&good);
    forged = Interaction::signed("another", now(), forged.body);
    assert_eq!(forged.send(&app.client, PATH).await.0, 401);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = good.clone();
        change(&mut changed);
        Interaction::of(&changed)
    };
    for (interaction, status, why) in [
        (with(&|it| it["view"]["callback_id"] = json!("another_form")), 200, ""),
        (with(&|it| it["view"] = json!(null)), 200, ""),
        (with(&|it| it["type"] = json!("view_closed")), 200, ""),
        (
            with(&|it| it["view"]["private_metadata"] = json!("x")),
            400,
            "payload: view: expected the private_metadata",
        ),
        (with(&|it| it["user"] = json!(null)), 400, "payload: user: expected the user"),
    ] {
        let (found, body) = interaction.send(&app.client, PATH).await;
        assert!(found == status && body.contains(why), "{found} {body}: {status} {why}");
    }
    assert_eq!(state(&app, &call).await, "pending");
    // What a form is about is what its message showed.
    let stale = with(&|it| {
        let kept = it["view"].text("private_metadata");
        let mut kept: Value = serde_json::from_str(kept).unwrap();
        kept["button"]["input_hash"] = json!("0".repeat(64));
        it["view"]["private_metadata"] = json!(kept.to_string());
    });
    assert_eq!(stale.send(&app.client, PATH).await.0, 200);
    assert!(slack.noticed(1).await[0].starts_with("The call has changed since this message."));
    assert_eq!(state(&app, &call).await, "pending");
    let signed = Interaction::signed(SIGNING_SECRET, now(), Interaction::of(&good).body);
    assert_eq!(signed.send(&app.client, PATH).await.0, 200);
    assert_eq!(state(&app, &call).await, "rejected");
}

#[tokio::test]
async fn a_form_that_does_not_open_is_said_and_nothing_is_decided() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    slack.next([ApiAnswer::Error("expired_trigger_id")]);
    press(&app, &slack, "U1", &message, REJECT).await;
    assert!(slack.noticed(1).await[0].starts_with("The form for the reason did not open."));
    assert_eq!(state(&app, &call).await, "pending");
    press(&app, &slack, "U1", &message, APPROVE).await;
    app.client.becomes(&call, "succeeded").await;
}
