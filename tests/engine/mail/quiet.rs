//! Quiet hours.

use super::{Postbox, header, local, with_mail};
use crate::webhooks::{MovedClock, shown};
use holdpoint::config::{MailTls, Notify};
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use std::sync::Arc;
use std::time::Duration;

/// 2026-01-31, 22:30 in Zurich.
const EVENING: i64 = 1_769_895_000;
const HOUR: i64 = 60 * 60;

/// A server whose recipient is not to be disturbed at night, at a time that a test moves.
async fn at_night(postbox: &Postbox, hold_hours: u64) -> (Embedded, Arc<MovedClock>, tempfile::TempDir) {
    let (clock, dir) = (Arc::new(MovedClock::default()), tempfile::tempdir().unwrap());
    clock.by_seconds(EVENING);
    let recipient = Notify {
        time_zone: Some("Europe/Zurich".to_owned()),
        quiet: Some("22:00-07:00".to_owned()),
        ..local()
    };
    let app = Embedded::clocked(&dir, clock.clone(), |config| {
        config.approval.pending_ttl = Duration::from_secs(hold_hours * 3600);
        config.approval.sweep = Duration::from_millis(50);
        with_mail(config, postbox.mail(), [recipient]);
    })
    .await;
    (app, clock, dir)
}

#[tokio::test]
async fn on_sqlite_messages_wait_for_the_end_of_the_quiet_hours_and_keep_their_order() {
    let postbox = Postbox::start(MailTls::None);
    let (app, clock, _dir) = at_night(&postbox, 24).await;
    let (_, first) = app.held("pay", "1").await;
    let (_, second) = app.held("pay", "2").await;
    app.client.reject(&first).await.has_status(200);
    let waits = async || shown(&app.client, "desk").await["waiting_since"].is_string().then_some(());
    eventually("the messages wait", waits).await;
    clock.by_seconds(8 * HOUR + HOUR / 2);
    let got = postbox.got(2).await;
    // The date of a message is that of its attempt: 07:00 in Zurich.
    assert!(got.iter().all(|it| header(it, "date").contains("06:00:00")), "{got:?}");
    assert!(got[0].text("body").contains(&second), "{got:?}");
    assert!(got[1].text("body").starts_with("The call is rejected"), "{got:?}");
    assert_eq!(shown(&app.client, "desk").await["state"], "delivering");
}

#[tokio::test]
async fn on_sqlite_the_reminder_of_a_deadline_ends_the_wait_of_the_messages_up_to_it() {
    let postbox = Postbox::start(MailTls::None);
    // The deadlines are at 03:30, and the reminders at 02:30.
    let (app, clock, _dir) = at_night(&postbox, 5).await;
    app.held("pay", "1").await;
    let waits = async || shown(&app.client, "desk").await["waiting_since"].is_string().then_some(());
    eventually("the message waits", waits).await;
    clock.by_seconds(4 * HOUR);
    let got = postbox.got(2).await;
    let lines: Vec<_> = got.iter().map(|it| it.text("body").lines().next().unwrap()).collect();
    let reminder = "A call still waits for a decision, and its deadline is near.";
    assert_eq!(lines, ["A call waits for a decision.", reminder]);
    assert!(got.iter().all(|it| header(it, "date").contains("01:30:00")), "{got:?}");
}
