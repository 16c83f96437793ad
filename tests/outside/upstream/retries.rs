//! A failed model request is retried with backoff, as long as no part of its answer was shown.

use super::{Stage, on_each_wire};
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::{
    ClosedAddress, DisconnectKind, Embedded, KEY, Leaver, RawResponse, ResponseAction, ResponseState,
    ScriptedAnswer, Wire, eventually,
};
use serde_json::json;
use std::time::Duration;

/// The shortest first pause; each further pause is at least twice as long as the minimum of the one before.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

impl Stage {
    /// Asserts that one answer follows after this many identical requests.
    async fn is_answered_once(&self, requests: usize) {
        let before = self.upstream.requests().len();
        self.upstream.words("Here.");
        let (thread, turn) = self.run_turn().await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Here."), "{}", turn.raw);
        self.is(&turn, "completed").await;
        let requested = self.upstream.requests().split_off(before);
        assert_eq!(requested.len(), requests);
        assert!(
            requested.iter().all(|again| again.body == requested[0].body && again.path == requested[0].path)
        );
        let messages = self.app.client.messages(&thread).await;
        assert_eq!((messages.len(), super::text(&messages[1]).as_str()), (2, "Here."));
    }

    /// The pause before each request but the first.
    fn pauses(&self) -> Vec<Duration> {
        let requested = self.upstream.requests();
        requested.windows(2).map(|two| two[1].at - two[0].at).collect()
    }
}

async fn a_server_with_a_temporary_failure_is_asked_again(wire: Wire) {
    let stage = Stage::on(wire).await;
    // The statuses after the first three take the same code path on every wire.
    let statuses = [429, 503, 529, 408, 425, 500, 502, 504];
    for status in &statuses[..if wire.facts().provider == CHAT.facts().provider { statuses.len() } else { 3 }]
    {
        stage.upstream.then(RawResponse::refuses(*status, r#"{"error":{"message":"busy"}}"#));
        stage.is_answered_once(2).await;
    }
    // A stream that breaks before its first content is retried too.
    let hello = ResponseAction::Send(ScriptedAnswer::on(wire).text().into_bytes());
    for broken in [
        RawResponse::without_a_byte(ResponseAction::Reset),
        RawResponse::streams(wire, vec![hello, ResponseAction::Cut]),
    ] {
        stage.upstream.then(broken);
        stage.is_answered_once(2).await;
    }
}
on_each_wire!(side by side a_server_with_a_temporary_failure_is_asked_again);

async fn an_answer_without_content_is_asked_again(wire: Wire) {
    let stage = Stage::on(wire).await;
    let blank = ScriptedAnswer::on(wire).words(&["\n"]).end().text();
    let mut rows = vec![String::new(), "\n".to_owned(), ScriptedAnswer::on(wire).end().text(), blank];
    if wire.facts().is_sse {
        rows.extend([": PROCESSING\n\n".to_owned(), "data: [DONE]\n\n".to_owned()]);
    }
    for bytes in rows {
        stage.upstream.then(RawResponse::sends(wire, [bytes]));
        stage.is_answered_once(2).await;
    }
}
on_each_wire!(side by side an_answer_without_content_is_asked_again);

async fn a_server_that_answers_nothing_fails_the_turn(wire: Wire) {
    let stage = Stage::with(wire, json!({ "retries": 1 })).await;
    for bytes in [String::new(), ScriptedAnswer::on(wire).end().text()] {
        for _ in 0..2 {
            stage.upstream.then(RawResponse::sends(wire, [&bytes]));
        }
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_error", "").await;
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(side by side a_server_that_answers_nothing_fails_the_turn);

#[tokio::test]
async fn a_throttle_in_any_form_is_asked_again() {
    let stage = Stage::on(CHAT).await;
    let throttled = r#"{"code":"Throttling.AllocationQuota","message":"slow down"}"#;
    let json =
        |body: &str| RawResponse::answers(200, "application/json", vec![ResponseAction::Send(body.into())]);
    for reply in [
        RawResponse::sends(CHAT, [format!("event:error\ndata:{throttled}\n\n")]),
        RawResponse::sends(CHAT, [format!("error: {throttled}\n\n")]),
        RawResponse::sends(CHAT, [format!("data: {throttled}\n\n")]),
        RawResponse::sends(CHAT, [r#"data: {"error":{"message":"no","code":"429"}}"#]),
        RawResponse::sends(
            CHAT,
            [r#"data: {"error":{"message":"no","metadata":{"error_type":"rate_limit"}}}"#],
        ),
        RawResponse::sends(
            CHAT,
            [r#"data: {"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}"#],
        ),
        json(r#"{"error":{"message":"no","type":"rate_limit_error"}}"#),
        json("[{\n \"error\": {\"code\": 503, \"message\": \"no\"}\n}]"),
    ] {
        stage.upstream.then(reply);
        stage.is_answered_once(2).await;
    }
}

async fn a_server_that_refuses_is_not_asked_again(wire: Wire) {
    let stage = Stage::on(wire).await;
    for status in [400, 401, 403, 404, 422, 501] {
        let body = json!({ "error": { "message": format!("the key {KEY} is bad") } }).to_string();
        stage.upstream.then(RawResponse::refuses(status, &body));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_error", "").await;
        assert!(!turn.raw.contains(KEY), "{}", turn.raw);
        assert!(!stage.run(&turn).await.to_string().contains(KEY));
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(a_server_that_refuses_is_not_asked_again);

async fn retries_of_a_failing_server_are_limited(wire: Wire) {
    let stage = Stage::with(wire, json!({ "retries": 2 })).await;
    for _ in 0..3 {
        stage.upstream.then(RawResponse::refuses(503, "busy"));
    }
    let (thread, turn) = stage.run_turn().await;
    assert_eq!(turn.codes(), "f3");
    stage.failed(&thread, &turn, "upstream_error", "").await;
    let [first, second] = stage.pauses()[..] else { panic!("{:?}", stage.pauses()) };
    assert!(first >= SHORTEST_PAUSE && second >= 2 * SHORTEST_PAUSE, "{first:?} {second:?}");
    stage.upstream.words("Better.");
    assert_eq!(stage.app.client.resume(&thread).await.text(), "Better.");
    stage.next_turn_works(&thread).await;
}
on_each_wire!(side by side retries_of_a_failing_server_are_limited);

#[tokio::test]
async fn zero_configured_retries_mean_no_retry() {
    let stage = Stage::with(CHAT, json!({ "retries": 0 })).await;
    stage.upstream.then(RawResponse::refuses(503, "busy"));
    let (thread, turn) = stage.run_turn().await;
    stage.failed(&thread, &turn, "upstream_error", "").await;
    stage.next_turn_works(&thread).await;
}

#[tokio::test]
async fn a_retry_waits_for_the_retry_after_of_the_server() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let later = "Sun, 06 Nov 1994 08:49:39 GMT";
    for (retry_after, at_least) in [
        ("2", Duration::from_secs(2)),
        (later, Duration::from_secs(2)),
        ("0", SHORTEST_PAUSE),
        ("soon", SHORTEST_PAUSE),
        ("-1", SHORTEST_PAUSE),
    ] {
        let stage = Stage::on(CHAT).await;
        let busy = RawResponse::refuses(429, "busy").with("date", date).with("retry-after", retry_after);
        stage.upstream.then(busy);
        stage.is_answered_once(2).await;
        let pause = stage.pauses()[0];
        assert!(pause >= at_least, "{retry_after}: {pause:?}");
    }
}

#[tokio::test]
async fn a_long_retry_after_fails_the_turn_at_once() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let stage = Stage::on(CHAT).await;
    for retry_after in
        ["61", "18446744073709551615", "Sun, 06 Nov 1994 08:50:38 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"]
    {
        stage
            .upstream
            .then(RawResponse::refuses(503, "busy").with("date", date).with("retry-after", retry_after));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_error", "").await;
        stage.next_turn_works(&thread).await;
    }
}

async fn an_overload_reported_in_the_stream_is_retried(wire: Wire) {
    let stage = Stage::on(wire).await;
    let overload = wire.frame(&wire.error(true, "overloaded").to_string());
    // An overload after an event without content is retried too.
    for before in [String::new(), ScriptedAnswer::on(wire).text(), ": hello\n\n".to_owned()] {
        stage.upstream.then(RawResponse::sends(wire, [before + &overload]));
        stage.is_answered_once(2).await;
    }
}
on_each_wire!(side by side an_overload_reported_in_the_stream_is_retried if reports_overload);

async fn a_permanent_error_in_the_stream_is_not_retried(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.then(RawResponse::sends(wire, [wire.frame(&wire.error(false, "too long").to_string())]));
    let (thread, turn) = stage.run_turn().await;
    stage.failed(&thread, &turn, "upstream_error", "").await;
    stage.next_turn_works(&thread).await;
}
on_each_wire!(a_permanent_error_in_the_stream_is_not_retried);

async fn a_request_is_not_retried_after_part_of_its_answer_was_shown(wire: Wire) {
    let stage = Stage::on(wire).await;
    let overload = wire.error(true, "overloaded").to_string();
    let thoughts = ScriptedAnswer::on(wire).thinks(&["Hm."]);
    let call = ScriptedAnswer::on(wire).begin_call("a", "pay", &[r#"{"note":"1"}"#]);
    for (answer, words) in [(ScriptedAnswer::on(wire).words(&["So"]), "So"), (thoughts, ""), (call, "")] {
        stage.upstream.answers(&answer.event(overload.clone()));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_error", words).await;
        assert!(turn.codes().len() > 2, "something was shown: {}", turn.raw);
        stage.next_turn_works(&thread).await;
    }
    stage.nothing_ran();
}
on_each_wire!(a_request_is_not_retried_after_part_of_its_answer_was_shown);

#[tokio::test]
async fn a_server_that_comes_up_between_retries_is_used() {
    let closed = ClosedAddress::new();
    let app = Embedded::with(|config| config.model = closed.model(CHAT, &json!({}))).await;
    let thread = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{thread}");
    let mut client =
        Leaver::sends(&app.client, DisconnectKind::Fin, &path, &json!({ "content": "go" })).await;
    // The step has started, and with it the first attempt.
    client.receives("f:{").await;
    let upstream = closed.opens(CHAT);
    upstream.words("Here.");
    client.receives("d:{").await;
    let answer = app.client.messages(&thread).await.pop().unwrap();
    assert_eq!((super::text(&answer).as_str(), &answer["status"]), ("Here.", &json!("complete")));
}

#[tokio::test]
async fn a_server_that_stays_down_fails_the_turn() {
    let closed = ClosedAddress::new();
    let app = Embedded::with(|config| config.model = closed.model(CHAT, &json!({ "retries": 1 }))).await;
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "go").await;
    assert_eq!(turn.codes(), "f3");
    turn.failed_with("upstream_error");
}

#[tokio::test]
async fn a_client_that_disconnects_between_two_attempts_ends_nothing() {
    let stage = Stage::on(CHAT).await;
    for how in [DisconnectKind::Fin, DisconnectKind::Rst] {
        stage.upstream.then(RawResponse::refuses(503, "{}").with("retry-after", "2")).words("Here.");
        let thread = stage.app.client.thread().await;
        let path = format!("/qa/chat_streamed/{thread}");
        let requested = stage.upstream.requests().len();
        let mut client = Leaver::sends(&stage.app.client, how, &path, &json!({ "content": "go" })).await;
        client.receives("f:{").await;
        stage.upstream.wait_for_requests(requested + 1).await;
        stage.upstream.wait_for_state(ResponseState::Done).await;
        let _connection = client.leaves().await;
        let whole = async || {
            let answer = stage.app.client.messages(&thread).await.pop();
            answer.filter(|answer| answer["status"] == "complete")
        };
        assert_eq!(super::text(&eventually("the turn is completed", whole).await), "Here.", "{how:?}");
    }
}
