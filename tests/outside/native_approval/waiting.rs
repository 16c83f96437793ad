//! Slow calls: the page waits for them, or learns that it cannot.

use super::{Page, RESUMES, row, run_status, yes};
use holdpoint_testkit::ui::{UiTurn, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, LEASE, UNKNOWN, call, probes};
use serde_json::json;
use std::time::{Duration, Instant};

/// A duration shorter than any slow call of these tests.
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn the_stream_stays_open_for_a_slow_tool_longer_than_approval_wait() {
    let app = Embedded::with(|config| {
        config.approval.wait = SHORT;
        config.stream.keep_alive = SHORT;
    })
    .await;
    let page = Page::holding(&app, &[("wait_for_me", "10")]).await;
    app.scene.answers("It waited.");
    let mut started = page.begins(&page.yes()).await;
    app.ledger.wait_started().await;
    let mut raw = Vec::new();
    while String::from_utf8_lossy(&raw).matches(": keep-alive").count() < 3 {
        raw.extend(started.chunk().await.unwrap().unwrap());
    }
    assert_eq!(app.client.call(&page.calls[0]).await["state"], "executing");
    app.ledger.release.add_permits(1);
    while let Some(more) = started.chunk().await.unwrap() {
        raw.extend(more);
    }
    let turn = UiTurn::of(200, started.headers().clone(), String::from_utf8(raw).unwrap());
    assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "It waited."), "{}", turn.raw);
    assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "stream"]);
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn a_page_of_4_gets_an_answer_after_approval_wait() {
    let app = Embedded::with(|config| config.approval.wait = SHORT).await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await.has_status(202);
    assert_eq!(app.client.resume(&thread).await.codes(), "8ed");
    app.ledger.release.add_permits(1);
    app.client.becomes(&id, "succeeded").await;
}

#[tokio::test]
async fn a_tool_timeout_is_shown_as_an_error_and_the_message_continues() {
    let app = Embedded::with(|config| config.tools.timeout = SHORT).await;
    let page = Page::holding(&app, &[("wait_for_me", "10")]).await;
    app.scene.answers("Who knows.");
    let turn = page.posts(&page.yes()).await;
    let mut kinds = RESUMES;
    kinds[1] = "tool-output-error";
    assert_eq!((turn.kinds(), turn.text().as_str()), (kinds.to_vec(), "Who knows."), "{}", turn.raw);
    assert_eq!(turn.one("tool-output-error")["errorText"], UNKNOWN);
    assert_eq!(row(&app, &page.calls[0]).await[0], "interrupted");
}

#[tokio::test]
async fn a_call_that_no_process_claims_ends_the_wait_with_an_error_and_the_run_still_waits() {
    let app = Embedded::with(|config| {
        config.tools.timeout = SHORT;
        config.approval.lease = LEASE;
        config.approval.wait = SHORT;
    })
    .await;
    let page = Page::holding(&app, &[("pay", "10"), ("pay", "11")]).await;
    // The approval of a process that died so recently that no other process claims the call yet.
    let [first, second] = &page.calls[..] else { panic!("{:?}", page.calls) };
    app.commit_yes(first, "expires_at", "expires_at").await;
    let started = Instant::now();
    let turn = page.posts(&[yes(first)]).await;
    assert!(started.elapsed() >= LEASE, "the wait covers the tool timeout and the claim by another process");
    let kinds = ["start", "tool-input-available", "tool-approval-request", "message-metadata", "error"];
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    assert_eq!(turn.pending(), [second.as_str()]);
    let error = "interrupted: An approved call is still under way. Its outcome will stand in the messages. (";
    assert!(turn.error().unwrap().starts_with(error), "{}", turn.raw);
    assert_eq!(row(&app, first).await, ["approved", "approve", "user:local", "rest"]);
    assert_eq!(run_status(&app, &page.thread).await, "waiting");
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (1, 0));
}

#[tokio::test]
async fn a_stopping_server_ends_the_wait_and_reports_the_known_outcomes() {
    let app = Embedded::with(|config| config.server.grace = SHORT).await;
    let page = Page::holding(&app, &[("wait_for_me", "10")]).await;
    let started = page.begins(&page.yes()).await;
    app.ledger.wait_started().await;
    let client = app.client.clone();
    let registry = probes(&app.ledger);
    let (turn, app) = futures::join!(client.read_ui_on(started), app.redeploy(registry));
    assert_eq!(turn.kinds(), ["start", "tool-output-error", "message-metadata", "error"], "{}", turn.raw);
    assert_eq!(turn.one("tool-output-error")["errorText"], UNKNOWN);
    assert!(turn.error().unwrap().starts_with("interrupted: "), "{}", turn.raw);
    assert_eq!(row(&app, &page.calls[0]).await, ["interrupted", "approve", "user:local", "stream"]);
    assert_eq!(run_status(&app, &page.thread).await, "waiting");
    app.scene.answers("Where were we?");
    let page = Page { client: app.client.clone(), ..page };
    assert_eq!(page.posts(&[]).await.text(), "Where were we?");
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn an_answer_for_a_call_of_the_running_turn_waits_for_that_turn() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene
        .calls(&[call("a", "dawdle", &json!({ "note": "a" })), call("b", "pay", &json!({ "note": "b" }))]);
    let first = app.client.begin(&thread, &ui_submit(&thread, &[ui_user("u", "both")])).await;
    app.ledger.wait_started().await;
    let held = app.rows.all("SELECT tool_call_id, message_id FROM tool_calls WHERE state = 'pending'").await;
    let text = |column: &str| held[0][column].as_str().unwrap().to_owned();
    let (client, calls) = (app.client.clone(), vec![text("tool_call_id")]);
    let page = Page { client, thread, message: text("message_id"), calls };
    let started = page.begins(&page.yes()).await;
    app.client.becomes(&page.calls[0], "succeeded").await;
    app.scene.answers("Both.");
    app.ledger.release.add_permits(1);
    let first = app.client.read_ui_on(first).await;
    assert_eq!(first.one("finish")["finishReason"], "tool-calls", "{}", first.raw);
    let turn = app.client.read_ui_on(started).await;
    assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "Both."), "{}", turn.raw);
    let outputs = turn.all("tool-output-available");
    assert_eq!(outputs.last().unwrap()["toolCallId"], page.calls[0], "{}", turn.raw);
    assert_eq!(app.ledger.lines(), ["dawdle a", "pay b"]);
}

#[tokio::test]
async fn a_page_gets_an_error_if_no_turn_may_start_after_the_wait() {
    let app = Embedded::with(|config| config.limits.turns_per_minute = Some(1)).await;
    let page = Page::holding(&app, &[("wait_for_me", "10")]).await;
    let started = page.begins(&page.yes()).await;
    app.ledger.wait_started().await;
    app.ledger.release.add_permits(1);
    let turn = app.client.read_ui_on(started).await;
    assert_eq!(turn.kinds(), ["start", "tool-output-available", "message-metadata", "error"], "{}", turn.raw);
    let error = "interrupted: There are too many turns at once, or in this minute. Go on later. (request ";
    assert!(turn.error().unwrap().starts_with(error), "{}", turn.raw);
    assert_eq!(run_status(&app, &page.thread).await, "waiting");
    assert_eq!(page.posts(&page.yes()).await.refused(), (429, "rate_limited".to_owned()));
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (1, 1));
}

#[tokio::test]
async fn an_outcome_is_stored_although_no_turn_may_start_after_it() {
    let app = Embedded::with(|config| config.limits.turns_per_minute = Some(1)).await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    assert_eq!(page.posts(&page.yes()).await.refused(), (429, "rate_limited".to_owned()));
    app.client.becomes(&page.calls[0], "succeeded").await;
    assert_eq!(app.client.call(&page.calls[0]).await["output"], json!({ "paid": "10" }));
    assert_eq!(run_status(&app, &page.thread).await, "waiting");
    assert_eq!(app.rows.count("events WHERE type = 'tool.succeeded'").await, 1);
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (1, 1));
}

/// Each call runs in a task of its own, and the request that approved them stores both outcomes.
#[tokio::test]
async fn the_outcomes_of_calls_that_one_post_approves_are_stored_with_the_resumed_run() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10"), ("pay", "20")]).await;
    app.scene.answers("Both.");
    let turn = page.posts(&[super::yes(&page.calls[0]), super::yes(&page.calls[1])]).await;
    assert_eq!(turn.text(), "Both.", "{}", turn.raw);
    let stored =
        app.rows.all("SELECT DISTINCT at FROM events WHERE type IN ('tool.succeeded', 'run.resumed')");
    assert_eq!(stored.await.len(), 1, "one transaction, which has one time");
    assert_eq!(app.rows.count("events WHERE type = 'tool.succeeded'").await, 2);
    let mut lines = app.ledger.lines();
    lines.sort();
    assert_eq!(lines, ["pay 10", "pay 20"]);
}
