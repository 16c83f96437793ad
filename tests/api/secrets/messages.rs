//! Messages about calls have masks: webhooks and services with a template. Mail and Slack have tests beside theirs.

use super::{MASK, assert_hidden, held, server};
use holdpoint::config::{Notify, WebhookBody};
use holdpoint_testkit::webhooks::webhook;
use holdpoint_testkit::{RemoteTool, ServiceAction, eventually};

#[tokio::test]
async fn webhooks_and_messages_to_other_services_have_masks() {
    let (remote, dir) =
        (RemoteTool::start(ServiceAction::answers(200, "")).await, tempfile::tempdir().unwrap());
    let secret = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];
    let mut hook = webhook("hook", &format!("{}/hook", remote.base), dir.path(), &secret);
    hook.body = WebhookBody::Full;
    let notify = Notify {
        name: "desk".to_owned(),
        tenant: "default".to_owned(),
        user: Some("local".to_owned()),
        url: Some(format!("{}/desk", remote.base)),
        template: Some("{headline} {inputs}".to_owned()),
        content_type: Some("text/plain".to_owned()),
        share_arguments: true,
        ..Notify::default()
    };
    let app = server(|config| {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.webhooks = vec![hook];
        config.notify = vec![notify];
    })
    .await;
    let id = held(&app, "login").await;
    let ended = |path: &str, count: usize| {
        let (remote, path) = (&remote, path.to_owned());
        async move {
            let got = async || Some(remote.received_at(&path)).filter(|all| all.len() >= count);
            eventually("the messages arrive", got).await
        }
    };
    ended("/desk", 1).await;
    app.client.approve(&id).await;
    let hooks = ended("/hook", 5).await;
    assert!(hooks.iter().any(|request| request.body.contains(MASK)));
    let messages = ended("/desk", 2).await;
    for request in hooks.iter().chain(&messages) {
        assert_hidden(&request.body);
    }
    let text = &messages[0].body;
    assert!(text.contains(MASK), "{text}");
}
