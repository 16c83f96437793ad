//! Buttons that decide.

use super::{
    APPROVE, FakeSlack, Interaction, PATH, entry, local, payload, person, press, reject, server, with_slack,
};
use futures::future::join_all;
use holdpoint::config::{Notify, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, eventually};
use serde_json::json;

/// Waits until the run of a thread has ended by itself.
async fn resumed(app: &Embedded, thread: &str) {
    let ended = async || {
        let runs = format!("SELECT status FROM runs WHERE thread_id = '{thread}'");
        (app.rows.all(&runs).await == [json!({ "status": "completed" })]).then_some(())
    };
    eventually("the server resumes the run", ended).await;
}

#[tokio::test]
async fn a_button_approves_once_however_often_it_is_pressed_and_the_record_names_slack() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (thread, call) = app.held("pay", "10").await;
    app.scene.answers("Paid.");
    let message = slack.got(1).await.remove(0);
    let interaction = Interaction::of(&payload(&slack, "U1", &message, APPROVE));
    let pressed =
        join_all([PATH, "/api/slack/interactions"].map(|path| interaction.send(&app.client, path))).await;
    assert_eq!(pressed, [(200, String::new()), (200, String::new())]);
    app.client.becomes(&call, "succeeded").await;
    assert_eq!(interaction.send(&app.client, PATH).await.0, 200);
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    let decided = slack.changed(0, 2).await;
    assert!(decided.texts()[1].starts_with("The call is approved, by user:local"), "{decided:?}");
    resumed(&app, &thread).await;
    let record = "SELECT actor, surface, verdict FROM decisions";
    let expected = json!({ "actor": "user:local", "surface": "slack", "verdict": "approve" });
    assert_eq!(app.rows.all(record).await, [expected]);
    let shown = app.client.get(&format!("/tool_calls/{call}")).await;
    assert_eq!(shown.body["decision"]["surface"], "slack", "{:?}", shown.body);
    let notices = slack.noticed(2).await;
    assert!(notices.iter().all(|it| it.starts_with("This was decided before. The call is ")), "{notices:?}");
    let (path, notice) = slack.notices().remove(0);
    assert_eq!((path.as_str(), &notice["response_type"]), ("/response/U1", &json!("ephemeral")));
    assert_eq!(notice["replace_original"], false);
    assert_eq!(slack.messages().len(), 1);
}

#[tokio::test]
async fn a_button_rejects_and_the_call_never_runs() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (thread, call) = app.held("pay", "10").await;
    app.scene.answers("Then not.");
    let message = slack.got(1).await.remove(0);
    reject(&app, &slack, "U1", &message).await;
    assert_eq!(app.client.call(&call).await["state"], "rejected");
    let decided = slack.changed(0, 2).await;
    assert_eq!(decided.texts()[0], "Rejected: Pay");
    resumed(&app, &thread).await;
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    // The old message, as a client of Slack that has not read the change shows it.
    press(&app, &slack, "U1", &message, APPROVE).await;
    assert_eq!(slack.noticed(1).await, ["The call is rejected already. Nothing has changed."]);
}

#[tokio::test]
async fn a_message_in_a_channel_is_decided_by_those_that_are_mapped_with_their_own_rights() {
    let slack = FakeSlack::start().await;
    let channel = Notify { role: Some("manager".to_owned()), ..entry("managers", "C1") };
    let other = Notify { tenant: "other".to_owned(), ..person("eve", "manager", "U9") };
    let notify = [
        channel,
        person("ann", "manager", "U1"),
        person("bob", "clerk", "U2"),
        person("carol", "manager", "U3"),
        other,
    ];
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let approve_roles = vec!["manager".to_owned()];
        let rules = ToolRules { approve_roles, other_person: true, approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
        let dana = person("dana", "manager", "U4");
        with_slack(config, &slack, notify.into_iter().chain([dana]));
    })
    .await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &["manager"]);
    let (_, call) = app.held("pay", "10").await;
    let of_channel = async || slack.messages().into_iter().find(|it| it.channel == "C1");
    let message = eventually("the channel has the message", of_channel).await;
    let forbidden = "You may see this call, but this decision is not yours to make.";
    let unmapped = "Your Slack account is not mapped to a user of this server, so it decides nothing.";
    for (n, (account, notice)) in [
        ("U1", forbidden),
        ("U2", "There is no such call, or it is not yours to decide."),
        ("U7", unmapped),
        ("U9", unmapped),
        ("U3", "Your approval counts. One more person has to approve the call before it runs."),
        ("U3", "Your approval counts. One more person has to approve the call before it runs."),
    ]
    .into_iter()
    .enumerate()
    {
        press(&app, &slack, account, &message, APPROVE).await;
        let notices = slack.noticed(n + 1).await;
        assert_eq!(notices.last().map(String::as_str), Some(notice), "{account}");
        let expected = format!("/response/{account}");
        assert_eq!(slack.notices().last().unwrap().0, expected);
    }
    assert_eq!(app.client.call(&call).await["state"], "pending");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    press(&app, &slack, "U4", &message, APPROVE).await;
    app.client.becomes(&call, "succeeded").await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(slack.notices().len(), 6, "the changed message says it");
    let votes = app.rows.all("SELECT actor, surface FROM decisions ORDER BY actor").await;
    let vote = |actor: &str| json!({ "actor": actor, "surface": "slack" });
    assert_eq!(votes, [vote("user:carol"), vote("user:dana")]);
}
