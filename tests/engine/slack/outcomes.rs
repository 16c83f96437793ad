//! Messages that end with the outcome of the call.

use super::{APPROVE, FakeSlack, local, press, server};
use crate::webhooks::shown;
use holdpoint_testkit::{call, eventually};
use serde_json::json;

#[tokio::test]
async fn the_message_about_a_call_ends_with_its_outcome() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    for (place, (tool, title, words)) in [
        ("pay", "Succeeded: Pay", "The call is approved, by user:local, and has succeeded."),
        ("refuse", "Failed: Refuse", "Outcome: The tool failed: the account is closed"),
        (
            "break",
            "Outcome unknown: Break",
            "The outcome of the call is unknown: do not repeat it before somebody has looked.",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        app.held(tool, "10").await;
        let message = slack.got(place + 1).await.remove(place);
        press(&app, &slack, "U1", &message, APPROVE).await;
        let ended = slack.changed(place, 3).await;
        assert_eq!(ended.texts()[0], title);
        assert!(ended.texts()[1].contains(words), "{words}: {ended:?}");
        assert_eq!(ended.buttons().len(), 1, "the link");
        let title_before = &ended.versions[1]["blocks"][0]["text"]["text"];
        assert!(title_before.as_str().unwrap().starts_with("Approved: "), "{ended:?}");
    }
}

#[tokio::test]
async fn a_call_that_was_never_held_and_a_success_without_a_message_send_nothing() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    app.scene.calls(&[call("p-1", "look", &json!({ "note": "11" }))]).answers("done");
    app.client.send_message(&app.client.thread().await, "look").await;
    // The messages about the hold and its approval are refused for good.
    slack.next([
        super::api::ApiAnswer::Error("channel_not_found"),
        super::api::ApiAnswer::Error("channel_not_found"),
    ]);
    let (_, held) = app.held("pay", "1").await;
    let counted = async |count: u64| {
        let enough = async || (shown(&app.client, "desk").await["refused"]["count"] == count).then_some(());
        eventually("the message is refused", enough).await;
    };
    counted(1).await;
    app.client.approve(&held).await;
    counted(2).await;
    let delivered = async || (shown(&app.client, "desk").await["waiting_since"].is_null()).then_some(());
    eventually("everything is delivered", delivered).await;
    assert_eq!((slack.messages().len(), slack.requests().len()), (0, 2), "{:?}", slack.requests());
}
