//! Attempts that fail, and what follows them.

use super::{Receiver, becomes, enable, kind, logged, seq, shown, with_webhooks};
use holdpoint::app::{Clock, SystemClock, Timestamp, Uuid};
use holdpoint_testkit::{Embedded, ReceivedRequest, RemoteTool, ServiceAction, eventually};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::net::TcpSocket;

const DAYS_3_MICROS: i64 = 3 * 24 * 60 * 60 * 1_000_000;

/// A clock that a test moves.
#[derive(Debug, Default)]
pub(crate) struct MovedClock(AtomicI64);

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn uuid(&self) -> Uuid {
        SystemClock.uuid()
    }
}

impl MovedClock {
    pub(crate) fn by_seconds(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

fn ids(received: &[ReceivedRequest]) -> Vec<&str> {
    received.iter().map(|it| it.header("webhook-id")).collect()
}

fn time(received: &ReceivedRequest) -> i64 {
    received.header("webhook-timestamp").parse().unwrap()
}

#[tokio::test]
async fn on_sqlite_attempts_follow_each_other_after_longer_waits_until_three_days_are_over() {
    let receiver = Receiver::start(ServiceAction::answers(500, "")).await;
    let (clock, dir) = (Arc::new(MovedClock::default()), tempfile::tempdir().unwrap());
    clock.by_seconds(1_700_000_000);
    let webhooks = vec![receiver.webhook("down")];
    let app = Embedded::clocked(&dir, clock.clone(), |config| with_webhooks(config, webhooks)).await;
    app.held("pay", "0").await;
    receiver.got("down", 1).await;
    for (attempts, wait) in [(1_usize, 5), (2, 10), (3, 20)] {
        let failing = becomes(&app.client, "down", "failing").await;
        let failures = &failing["failures"];
        assert_eq!(failures["count"], attempts, "{failing}");
        assert_eq!((&failures["last"], &failures["last_status"]), (&json!("status"), &json!(500)));
        app.held("pay", &attempts.to_string()).await;
        clock.by_seconds(wait - 1);
        assert_eq!(receiver.remote.received().len(), attempts);
        clock.by_seconds(1);
        let received = receiver.got("down", attempts + 1).await;
        let [.., before, last] = &received[..] else { panic!("{received:?}") };
        assert_eq!(
            time(last) - time(before),
            wait,
            "no attempt is made before its time, and no event goes first"
        );
        let counted =
            async || (shown(&app.client, "down").await["failures"]["count"] == attempts + 1).then_some(());
        eventually("the attempt is counted", counted).await;
    }
    clock.by_seconds(3 * 24 * 60 * 60);
    let disabled = becomes(&app.client, "down", "disabled").await;
    assert_eq!((&disabled["disabled_reason"], &disabled["cursor"]), (&json!("failed_too_long"), &json!(0)));

    let failed = receiver.got("down", 5).await;
    receiver.remote.now(ServiceAction::answers(204, ""));
    let enabled = enable(&app.client, "down").await;
    assert_eq!((&enabled["state"], &enabled["failures"]), (&json!("delivering"), &json!(null)));
    let events = logged(&app).await;
    let all = receiver.got("down", failed.len() + events.len()).await;
    let (failed, delivered) = all.split_at(failed.len());
    let in_order: Vec<&str> = events.iter().map(|(_, _, id)| id.as_str()).collect();
    assert_eq!(ids(delivered), in_order, "nothing is lost, and nothing is delivered twice");
    assert!(ids(failed).iter().all(|id| *id == in_order[0]), "later events waited for the first");
}

#[tokio::test]
async fn a_busy_receiver_gets_the_same_request_again_after_the_wait_that_it_asks_for() {
    for status in [429, 503] {
        let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
        receiver.remote.next([ServiceAction::Busy(status, 1)]);
        let app = receiver.server([receiver.webhook("busy")]).await;
        app.held("pay", "1").await;
        let events = logged(&app).await;
        let got = receiver.got("busy", events.len() + 1).await;
        let mut expected: Vec<&str> = events.iter().map(|(_, _, id)| id.as_str()).collect();
        expected.insert(0, &events[0].2);
        assert_eq!(ids(&got), expected, "{status}");
        let (first, second) = (&got[0], &got[1]);
        assert_eq!(first.body, second.body);
        assert!(time(second) > time(first), "each request has its own time");
        becomes(&app.client, "busy", "delivering").await;
    }
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_disabled_at_once_and_keeps_its_place() {
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    let app = receiver.server([receiver.webhook("gone"), receiver.webhook("stays")]).await;
    app.held("pay", "1").await;
    let before = logged(&app).await;
    receiver.got("gone", before.len()).await;
    receiver.got("stays", before.len()).await;
    let stays = async || (shown(&app.client, "stays").await["cursor"] == before.len()).then_some(());
    eventually("everything is delivered", stays).await;

    receiver.remote.now(ServiceAction::answers(410, ""));
    app.held("pay", "2").await;
    for name in ["gone", "stays"] {
        let disabled = becomes(&app.client, name, "disabled").await;
        assert_eq!(
            (&disabled["disabled_reason"], &disabled["cursor"]),
            (&json!("gone"), &json!(before.len()))
        );
        assert!(disabled["waiting_since"].is_string() && disabled["disabled_at"].is_string(), "{disabled}");
    }
    let so_far = receiver.remote.received_at("/gone").len();
    receiver.remote.now(ServiceAction::answers(204, ""));
    enable(&app.client, "stays").await;
    let events = logged(&app).await;
    receiver.got("stays", events.len() + 1).await;
    assert_eq!(receiver.remote.received_at("/gone").len(), so_far, "a disabled webhook gets nothing");
    assert_eq!(shown(&app.client, "gone").await["state"], "disabled");
}

#[tokio::test]
async fn three_days_of_failures_disable_a_webhook() {
    let receiver = Receiver::start(ServiceAction::answers(500, "")).await;
    let app = receiver.server([receiver.webhook("down")]).await;
    app.held("pay", "1").await;
    becomes(&app.client, "down", "failing").await;
    let older =
        format!("UPDATE endpoints SET failing_since = failing_since - {DAYS_3_MICROS}, next_attempt_at = 1");
    assert_eq!(app.rows.change(&older).await, Ok(1));
    let disabled = becomes(&app.client, "down", "disabled").await;
    assert_eq!(disabled["disabled_reason"], "failed_too_long", "{disabled}");
    assert_eq!(disabled["failures"]["count"], 2);
}

#[tokio::test]
async fn everything_but_a_success_is_a_failure_and_no_redirect_is_followed() {
    let elsewhere = RemoteTool::start(ServiceAction::answers(204, "")).await;
    let cases = [
        (ServiceAction::Redirects(elsewhere.base.clone()), "status", Some(307)),
        (ServiceAction::answers(404, ""), "status", Some(404)),
        (ServiceAction::Hangs, "no_answer", None),
        (ServiceAction::Resets, "no_answer", None),
    ];
    for (does, last, status) in cases {
        let receiver = Receiver::start(does).await;
        let app = receiver.server([receiver.webhook("bad")]).await;
        app.held("pay", "1").await;
        let failing = becomes(&app.client, "bad", "failing").await;
        assert_eq!((&failing["failures"]["last"], &failing["cursor"]), (&json!(last), &json!(0)));
        assert_eq!(failing["failures"]["last_status"], json!(status));
    }
    assert_eq!(elsewhere.received().len(), 0);
}

#[tokio::test]
async fn a_body_without_an_end_is_not_read() {
    let receiver = Receiver::start(ServiceAction::Floods(200)).await;
    let app = receiver.server([receiver.webhook("floods")]).await;
    app.held("pay", "1").await;
    let events = logged(&app).await;
    let got = receiver.got("floods", events.len()).await;
    assert_eq!(
        got.iter().map(kind).collect::<Vec<_>>(),
        events.iter().map(|it| it.1.clone()).collect::<Vec<_>>()
    );
    receiver.remote.wait_left().await;
    assert_eq!(seq(&got[0]), events[0].0);
}

#[tokio::test]
async fn an_address_that_may_not_be_reached_gets_no_request() {
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    // A name is checked where the connection is opened.
    let mut private = receiver.webhook("private");
    private.url = private.url.replace("http://127.0.0.1", "https://localhost");
    // Bound and not listening: the port refuses connections.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut refuses = receiver.webhook("refuses");
    refuses.url = format!("http://{}", socket.local_addr().unwrap());
    let allowing = receiver.server([refuses]).await;
    let strict = Embedded::with(|config| config.webhooks = vec![private]).await;
    for (app, name) in [(allowing, "refuses"), (strict, "private")] {
        app.held("pay", "1").await;
        let failing = becomes(&app.client, name, "failing").await;
        assert_eq!(failing["failures"]["last"], "not_sent", "{failing}");
    }
    assert_eq!(receiver.remote.received().len(), 0);
}
