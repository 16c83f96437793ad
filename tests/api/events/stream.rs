//! The content of events, in pages and in streams.

use super::{seqs, types};
use holdpoint_testkit::runs::HELD_AND_APPROVED;
use holdpoint_testkit::{Embedded, JsonFields, Sse, call};
use serde_json::{Value, json};
use std::time::Duration;

/// The whole page at this path.
async fn page(app: &Embedded, path: &str) -> Vec<Value> {
    let answer = app.client.get(path).await;
    answer.has_status(200);
    assert_eq!((&answer.body["has_more"], answer.body.get("next_cursor")), (&json!(false), None));
    answer.body.list("results").clone()
}

const LIFE: [&str; 5] =
    ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.succeeded"];

#[tokio::test]
async fn the_events_of_a_call_cover_its_life_and_carry_the_data_for_a_decision() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let held = app.client.call(&id).await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "9" } });
    assert_eq!(app.client.validate(&edit).await.body["state"], "succeeded");
    let call = app.client.call(&id).await;
    let received = page(&app, &format!("/tool_calls/{id}/events")).await;
    assert_eq!(types(&received), LIFE);
    for event in &received {
        let data = &event["data"];
        assert_eq!((&event["thread_id"], &event["session_id"]), (&json!(thread), &json!(thread)));
        assert_eq!((&event["tool_call_id"], &data["tool_call_id"]), (&json!(id), &json!(id)));
        assert_eq!((&event["run_id"], &data["tool_name"]), (&call["run_id"], &json!("pay")));
        assert_eq!((&data["risk_level"], &data["reason"]), (&call["risk_level"], &call["reason"]));
        assert_eq!(data["expires_at"], call["expires_at"]);
        assert!(data.get("surface").is_none() && data.get("edited").is_none(), "{data}");
    }
    for event in &received[..2] {
        assert_eq!(event["data"]["args"], json!({ "note": "10" }));
        assert_eq!(event["data"]["input_hash"], held["input_hash"]);
        assert_eq!(event["data"].get("decision"), None);
    }
    for event in &received[2..] {
        assert_eq!(event["data"]["args"], json!({ "note": "9" }));
        assert_eq!(event["data"]["decision"], call["decision"]);
        assert_eq!(event["data"]["input_hash"], call["decision"]["input_hash"]);
    }
    let states: Vec<_> = received.iter().map(|event| event["data"].get("state").cloned()).collect();
    assert_eq!(states, [None, None, None, None, Some(json!("succeeded"))]);
    let actors: Vec<_> = received.iter().map(|event| event.text("actor")).collect();
    assert_eq!(actors, ["user:local", "system:policy", "user:local", "user:local", "user:local"]);
}

#[tokio::test]
async fn the_last_event_of_a_call_carries_its_final_state() {
    let app = Embedded::start().await;
    let last = async |id: &str| {
        let received = page(&app, &format!("/tool_calls/{id}/events")).await;
        let last = received.last().unwrap();
        (last.text("type").to_owned(), last["data"].text("state").to_owned())
    };
    let received = |kind: &str, state: &str| (format!("tool.{kind}"), state.to_owned());
    let (_, rejected) = app.held("pay", "1").await;
    app.client.reject(&rejected).await;
    assert_eq!(last(&rejected).await, received("rejected", "rejected"));
    let (_, failed) = app.held("refuse", "2").await;
    app.client.approve(&failed).await;
    assert_eq!(last(&failed).await, received("failed", "failed"));
    let (_, cancelled) = app.held("pay", "3").await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    assert_eq!(last(&cancelled).await, received("cancelled", "cancelled"));
    let thread = app.client.thread().await;
    app.scene.calls(&[call("x", "nowhere", &json!({}))]).answers("Sorry.");
    let turn = app.client.send_message(&thread, "go").await;
    let invalid = turn.one('9').text("toolCallId").to_owned();
    assert_eq!(last(&invalid).await, received("failed", "invalid"));
}

#[tokio::test]
async fn the_events_of_a_run_and_its_calls_are_paginated() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    app.client.approve(&id).await;
    app.scene.answers("Paid.");
    app.client.resume(&thread).await;
    let path = format!("/runs/{run}/events");
    let whole = page(&app, &path).await;
    assert_eq!(types(&whole), HELD_AND_APPROVED);
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let next = app.client.get(&format!("{path}?page_size=4{cursor}")).await.body;
        let results = next.list("results").clone();
        assert!(results.len() <= 4);
        paged.extend(results);
        let Some(at) = next.get("next_cursor") else { break };
        cursor = format!("&cursor={}", at.as_str().unwrap());
    }
    assert_eq!(paged, whole);
    for wrong in ["cursor=x", "cursor=-1", "cursor=%2B1", "cursor=9223372036854775808", "page_size=0"] {
        let answer = app.client.get(&format!("{path}?{wrong}")).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{wrong}");
    }
}

#[tokio::test]
async fn a_stream_replays_past_events_and_then_follows_new_ones() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let mut stream = Sse::open(&app.client, &format!("/tool_calls/{id}/events")).await;
    let mut received = stream.take(2).await;
    app.client.approve(&id).await;
    received.extend(stream.until("tool.succeeded").await);
    assert_eq!(types(&received), LIFE);
    assert_eq!(received, page(&app, &format!("/tool_calls/{id}/events")).await);
}

#[tokio::test]
async fn the_feed_starts_now_or_after_the_last_event_of_the_reader() {
    let app = Embedded::start().await;
    let (_, before) = app.held("pay", "1").await;
    let mut now = Sse::open(&app.client, "/events").await;
    let (thread, id) = app.held("pay", "2").await;
    let stream_text = now.until("run.waiting").await;
    let expected = ["run.started", "tool.called", "tool.requires_approval", "run.waiting"];
    assert_eq!(types(&stream_text), expected);
    assert!(stream_text.iter().all(|event| event["thread_id"] == thread.as_str()), "{stream_text:#?}");

    let all = Sse::open(&app.client, "/events?after=0").await.take(8).await;
    assert_eq!(seqs(&all), [1, 2, 3, 4, 5, 6, 7, 8]);
    let behind = all[2]["seq"].to_string();
    let mut resumed = Sse::behind(&app.client, "/events?after=0", Some(&behind)).await;
    assert_eq!(resumed.take(5).await, all[3..], "the header overrides the parameter");
    // A number above every event comes from rows that a backup has replaced.
    let mut ahead = Sse::behind(&app.client, "/events", Some("1000000")).await;
    app.client.approve(&before).await;
    assert_eq!(ahead.until("tool.succeeded").await, resumed.until("tool.succeeded").await);

    let of_thread =
        Sse::open(&app.client, &format!("/events?after=0&thread_id={thread}")).await.take(4).await;
    assert_eq!(of_thread, stream_text);
    let of_session =
        Sse::open(&app.client, &format!("/events?after=0&session_id={thread}")).await.take(4).await;
    assert_eq!(of_session, stream_text);
    app.client.reject(&id).await;
    for wrong in ["after=x", "after=-1"] {
        let answer = app.client.get(&format!("/events?{wrong}")).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{wrong}");
    }
    for unknown in ["thread_id=1", "session_id=x"] {
        let answer = app.client.get(&format!("/events?{unknown}")).await;
        assert_eq!(answer.failure(), (404, "not_found"), "a name of no thread: {unknown}");
    }
    for wrong in ["x", ""] {
        let wrong = app.client.http.get(app.client.url("/events")).header("last-event-id", wrong);
        let answer = app.client.send(wrong).await;
        assert_eq!(answer.body["error"]["message"], "Last-Event-ID: expected the seq of an event");
    }
}

#[tokio::test]
async fn a_stream_of_events_sends_keep_alives_and_ends_with_the_server() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::from_millis(20)).await;
    let request = app.client.http.get(app.client.url("/events"));
    let mut stream = request.send().await.unwrap();
    let mut stream_text = String::new();
    while stream_text.matches(": keep-alive\n\n").count() < 3 {
        stream_text.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    let ends = async { while let Ok(Some(_)) = stream.chunk().await {} };
    let probes = holdpoint_testkit::probes(&app.ledger);
    tokio::join!(ends, async { drop(app.redeploy(probes).await) });
}

#[tokio::test]
async fn a_silent_stream_of_events_sends_a_comment_at_once() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::ZERO).await;
    let (_, id) = app.held("pay", "10").await;
    for path in ["/events", "/events/stream"] {
        let mut stream = app.client.http.get(app.client.url(path)).send().await.unwrap();
        let first = tokio::time::timeout(Duration::from_secs(10), stream.chunk()).await;
        assert_eq!(first.expect("a proxy waits for it").unwrap().unwrap(), ": open\n\n", "{path}");
    }
    let path = format!("/tool_calls/{id}/events/stream");
    let mut stream = app.client.http.get(app.client.url(&path)).send().await.unwrap();
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b": open\n\n"), "{first:?}");
}

#[tokio::test]
async fn each_stream_of_events_has_a_route_of_its_own() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let run = app.client.run_of(&id).await;
    let (of_call, of_run) = (format!("/tool_calls/{id}/events"), format!("/runs/{run}/events"));
    for (pages, stream) in [(&of_call, format!("{of_call}/stream")), (&of_run, format!("{of_run}/stream"))] {
        let received = page(&app, pages).await;
        // A client that does not name the media type gets the stream as well.
        let response = app.client.http.get(app.client.url(&stream)).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream", "{stream}");
        assert_eq!(Sse::open(&app.client, &stream).await.take(received.len()).await, received, "{stream}");
        let first = received[0]["seq"].to_string();
        let mut later = Sse::behind(&app.client, &stream, Some(&first)).await;
        assert_eq!(later.take(received.len() - 1).await, received[1..], "{stream}");
    }
    let all = Sse::open(&app.client, "/events?after=0").await.take(5).await;
    let filtered = format!("/events/stream?after=0&thread_id={thread}");
    assert_eq!(Sse::open(&app.client, "/events/stream?after=0").await.take(5).await, all);
    assert_eq!(Sse::open(&app.client, &filtered).await.take(5).await, all);
    let unknown = id.replace(|digit: char| digit.is_ascii_digit(), "0");
    for path in [format!("/runs/{unknown}/events/stream"), format!("/tool_calls/{unknown}/events/stream")] {
        assert_eq!(app.client.get(&path).await.status, 404, "{path}");
    }
}
