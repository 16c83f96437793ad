//! Events with names, and streams with a wrong label.

use super::Stage;
use holdpoint_testkit::wires::anthropic::WIRE as ANTHROPIC;
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::{RawResponse, ResponseAction, ScriptedAnswer};

#[tokio::test]
async fn events_of_other_names_are_ignored() {
    let events = [
        "event: hermes.tool.progress\ndata: {\"tool\":\"sh\",\"status\":\"completed\",\"error\":true}\n\n",
        "event: keepalive\ndata: ping\n\n",
        "event: ping\ndata: {}\n\n",
        "event: ping\ndata: \"\"\n\n",
        "event: ping\ndata:\n\n",
        "data: \"\"\n\n",
        "data: null\n\n",
    ];
    for wire in [CHAT, ANTHROPIC] {
        let stage = Stage::on(wire).await;
        for event in events {
            let (begin, end) = ScriptedAnswer::on(wire).words(&["Hello, ", "world."]).end().split("world.");
            stage.upstream.then(RawResponse::sends(wire, [&begin, event.as_bytes(), &end]));
            let (_, turn) = stage.run_turn().await;
            assert_eq!(turn.text(), "Hello, world.", "{event:?}: {}", turn.raw);
            stage.is(&turn, "completed").await;
        }
    }
}

#[tokio::test]
async fn a_stream_with_a_wrong_label_is_read() {
    let stage = Stage::on(CHAT).await;
    for kind in ["text/plain; charset=utf-8", "application/json", "application/octet-stream"] {
        let words = ScriptedAnswer::words_on(CHAT, "Hello.").text();
        stage.upstream.then(RawResponse::answers(200, kind, vec![ResponseAction::Send(words.into())]));
        let (_, turn) = stage.run_turn().await;
        assert_eq!(turn.text(), "Hello.", "{kind}: {}", turn.raw);
        stage.is(&turn, "completed").await;
    }
}

#[tokio::test]
async fn an_error_event_ends_the_turn_at_once() {
    let stage = Stage::on(CHAT).await;
    let so_far = ScriptedAnswer::on(CHAT).words(&["So far."]).text();
    for (event, code) in [
        ("error: {\"code\":500,\"message\":\"Context size has been exceeded.\"}\n\n", "context_full"),
        ("event: error\ndata: {\"message\":\"no\"}\n\n", "upstream_error"),
        ("event: error\ndata: no\n\n", "upstream_error"),
    ] {
        stage.upstream.then(RawResponse::streams(
            CHAT,
            vec![ResponseAction::Send((so_far.clone() + event).into()), ResponseAction::Hang],
        ));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, code, "So far.").await;
        stage.next_turn_works(&thread).await;
    }
}
