//! The guards of the database for endpoints.

use super::{Receiver, becomes};
use holdpoint_testkit::ServiceAction;

#[tokio::test]
async fn a_cursor_only_grows_and_a_state_has_its_facts() {
    let receiver = Receiver::start(ServiceAction::answers(410, "")).await;
    let app = receiver.server([receiver.webhook("gone")]).await;
    app.held("pay", "1").await;
    becomes(&app.client, "gone", "disabled").await;
    for (set, words) in [
        ("cursor = cursor - 1", "the cursor of an endpoint only grows"),
        ("name = 'other'", "the cursor of an endpoint only grows"),
        ("failures = 0", "check constraint"),
        ("failing_since = NULL", "check constraint"),
        ("last_failure = NULL", "check constraint"),
        ("disabled_at = NULL", "check constraint"),
        ("disabled_reason = 'bored'", "check constraint"),
        ("state = 'failing'", "check constraint"),
        ("state = 'delivering'", "check constraint"),
        ("state = 'asleep'", "check constraint"),
        ("holder = 'x', lease_until = 1", "check constraint"),
        ("holder = 'x'", "check constraint"),
        ("channel = 'pigeon'", "check constraint"),
    ] {
        let why = app.rows.change(&format!("UPDATE endpoints SET {set}")).await.expect_err(set);
        assert!(why.to_lowercase().contains(words), "{set}: {why}");
    }
    let why = app.rows.change("DELETE FROM endpoints").await.unwrap_err();
    assert!(why.contains("never deleted"), "{why}");
}
