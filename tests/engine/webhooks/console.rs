//! The view of webhooks in the console.

use super::{Receiver, becomes, logged, with_webhooks};
use holdpoint_testkit::console::play;
use holdpoint_testkit::token::{self, with_tokens};
use holdpoint_testkit::{Embedded, ServiceAction};
use serde_json::json;

#[tokio::test]
async fn an_operator_sees_in_the_console_that_a_webhook_is_disabled_and_enables_it() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let mut gone = receiver.webhook("gone");
    gone.tenant = "acme".to_owned();
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        with_webhooks(config, vec![gone]);
        config.auth.operator_roles = vec!["ops".to_owned()];
    })
    .await;
    app.client = app.client.as_user("acme", "olga", &["ops"]);
    app.held("pay", "1").await;
    becomes(&app.client, "gone", "disabled").await;
    receiver.remote.now(ServiceAction::answers(204, ""));
    let token = |user, roles: &[&str]| token::token("acme", user, roles);
    let facts = json!({ "operator": token("olga", &["ops"]), "user": token("ann", &[]) });
    play("webhooks", &app.client.base, facts).await;
    let events = logged(&app).await;
    receiver.got("gone", events.len() + 1).await;
}
