//! The bytes of an answer, split and framed in valid and invalid ways.

use super::{Stage, on_each_wire, text};
use holdpoint_testkit::{RawResponse, ResponseAction, ResponseState, ScriptedAnswer, Wire};
use serde_json::{Value, json};

const WORDS: &str = "Schön: 世界 🙂.";
const NOTE: &str = "é🙂";

async fn an_answer_that_arrives_byte_by_byte_is_read(wire: Wire) {
    let stage = Stage::on(wire).await;
    let arguments = json!({ "note": NOTE }).to_string();
    let (start, end) = arguments.split_at(5);
    let answer =
        ScriptedAnswer::on(wire).words(&["Schön: 世界", " 🙂."]).call("a", "pay", &[start, end]).end();
    stage.upstream.then(RawResponse::sends(wire, answer.text().bytes().map(|byte| [byte])));
    let (thread, turn) = stage.run_turn().await;
    stage.is(&turn, "waiting").await;
    assert_eq!(turn.text(), WORDS);
    assert_eq!(turn.one('9')["args"], json!({ "note": NOTE }));
    let usage = json!({ "promptTokens": 10, "completionTokens": 5 });
    assert_eq!(turn.one('d')["usage"], usage);
    let request = stage.next_turn_works(&thread).await;
    assert_eq!(wire.calls(&request), [("pay".to_owned(), json!({ "note": NOTE }))]);
    stage.nothing_ran();
}
on_each_wire!(an_answer_that_arrives_byte_by_byte_is_read);

async fn a_character_split_between_chunks_stays_whole(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    let whole = ScriptedAnswer::words_on(wire, WORDS).text();
    let inside = (0..whole.len()).filter(|at| !whole.is_char_boundary(*at));
    assert!(inside.clone().count() >= 8);
    for at in inside {
        let (start, end) = whole.as_bytes().split_at(at);
        stage.upstream.then(RawResponse::sends(wire, [start, end]));
        let turn = stage.run_turn_in(&thread).await;
        assert_eq!(turn.text(), WORDS, "cut at {at}");
        stage.is(&turn, "completed").await;
    }
}
on_each_wire!(a_character_split_between_chunks_stays_whole);

type Framing = (&'static str, fn(Wire, &ScriptedAnswer) -> String);

/// The data of each event, framed by `frame`.
fn frames(events: &[String], frame: impl Fn(&str) -> String) -> String {
    events.iter().map(|data| frame(data)).collect()
}

const SSE: &[Framing] = &[
    ("all in one piece", |_, answer| answer.text()),
    ("lines end with CR and LF", |_, answer| answer.text().replace('\n', "\r\n")),
    ("lines end with CR", |_, answer| answer.text().replace('\n', "\r")),
    ("comments between", |wire, answer| {
        frames(&answer.events, |data| format!(": ping\n\n:\n{}: pong\n", wire.frame(data)))
    }),
    ("a byte order mark", |wire, answer| {
        // The mark precedes an event with text, so that a lost event is noticed.
        let begins = if wire.facts().needs_its_first_events {
            0
        } else {
            answer.events.iter().position(|data| says_hello(data)).unwrap()
        };
        let bytes = frames(&answer.events[begins..], |data| wire.frame(data));
        format!("\u{feff}{}", bytes.strip_prefix("event: response.output_text.delta\n").unwrap_or(&bytes))
    }),
    ("no space behind the colon", |_, answer| {
        answer.text().replace("data: ", "data:").replace("event: ", "event:")
    }),
    ("no last blank line", |_, answer| answer.text().trim_end_matches('\n').to_owned() + "\n"),
    ("no last line end", |_, answer| answer.text().trim_end_matches('\n').to_owned()),
    ("fields that nobody knows", |wire, answer| {
        frames(&answer.events, |data| format!("id: 7\nretry: 10\nfoo: bar\nbaz\n{}", wire.frame(data)))
    }),
    ("data in two lines", |wire, answer| {
        frames(&answer.events, |data| {
            wire.frame(data).replacen(":{", ":\ndata: {", 1).replacen(":[", ":\ndata: [", 1)
        })
    }),
    ("blank lines between", |_, answer| answer.text().replace("\n\n", "\n\n\n\n\n")),
];

fn says_hello(data: &str) -> bool {
    data.contains("Hello")
}

const LINES: &[Framing] = &[
    ("all in one piece", |_, answer| answer.text()),
    ("lines end with CR and LF", |_, answer| answer.text().replace('\n', "\r\n")),
    ("no last line end", |_, answer| answer.text().trim_end_matches('\n').to_owned()),
    ("blank lines between", |_, answer| answer.text().replace('\n', "\n\n  \n")),
    ("blanks around", |_, answer| frames(&answer.events, |data| format!("  {data}\t\n"))),
];

async fn every_framing_is_read(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    let answer = ScriptedAnswer::on(wire).words(&["Hello, ", "wörld."]).end();
    for (framing, bytes) in if wire.facts().is_sse { SSE } else { LINES } {
        let bytes = bytes(wire, &answer);
        for pieces in [vec![bytes.as_bytes()], bytes.as_bytes().chunks(7).collect()] {
            stage.upstream.then(RawResponse::sends(wire, pieces));
            let turn = stage.run_turn_in(&thread).await;
            assert_eq!(turn.text(), "Hello, wörld.", "{framing}: {}", turn.raw);
            stage.is(&turn, "completed").await;
        }
    }
}
on_each_wire!(every_framing_is_read);

async fn events_after_the_finish_reason_may_be_missing(wire: Wire) {
    // A server that does not end its stream has ended its answer after half of this time.
    let stage = Stage::with(wire, json!({ "idle_timeout": "1s" })).await;
    let whole = ScriptedAnswer::words_on(wire, "Hello.");
    let is_reason = |data: &String| data.contains("finish_reason") || data.contains("stop_reason");
    let reason = whole.events.iter().position(is_reason).unwrap();
    for kept in reason + 1..whole.events.len() {
        let mut answer = whole.clone();
        answer.events.truncate(kept);
        let after_it =
            |end| RawResponse::streams(wire, vec![ResponseAction::Send(answer.text().into_bytes()), end]);
        for reply in
            [RawResponse::scripted(&answer), after_it(ResponseAction::Cut), after_it(ResponseAction::Hang)]
        {
            stage.upstream.then(reply);
            let (_, turn) = stage.run_turn().await;
            assert_eq!(turn.text(), "Hello.", "{kept} events: {}", turn.raw);
            stage.is(&turn, "completed").await;
        }
    }
}
on_each_wire!(side by side events_after_the_finish_reason_may_be_missing if continues_after_the_reason);

async fn bytes_after_the_end_are_not_read(wire: Wire) {
    let stage = Stage::on(wire).await;
    let whole = ScriptedAnswer::words_on(wire, "Hello.").text();
    let more = ScriptedAnswer::on(wire).words(&["More."]).event(wire.error(false, "no").to_string()).text();
    stage.upstream.then(RawResponse::sends(wire, [whole, more]));
    let (_, turn) = stage.run_turn().await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Hello."));
    stage.is(&turn, "completed").await;
}
on_each_wire!(side by side bytes_after_the_end_are_not_read if marks_the_end);

async fn a_server_need_not_close_the_connection_after_the_end(wire: Wire) {
    let stage = Stage::on(wire).await;
    let acts = vec![
        ResponseAction::Send(ScriptedAnswer::words_on(wire, "Hello.").text().into_bytes()),
        ResponseAction::Hang,
    ];
    stage.upstream.then(RawResponse::streams(wire, acts));
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "Hello.");
    stage.is(&turn, "completed").await;
    stage.upstream.wait_for_state(ResponseState::Left).await;
}
on_each_wire!(a_server_need_not_close_the_connection_after_the_end);

async fn an_answer_without_its_end_keeps_its_received_text(wire: Wire) {
    let stage = Stage::on(wire).await;
    let answer = ScriptedAnswer::on(wire).words(&["Half an ", "answer"]).text();
    for ending in [vec![], vec![ResponseAction::Cut], vec![ResponseAction::Reset]] {
        // The test reads the answer before the connection ends, because an abrupt end may discard sent bytes.
        let acts =
            [vec![ResponseAction::Send(answer.clone().into_bytes()), ResponseAction::Wait], ending].concat();
        stage.upstream.then(RawResponse::streams(wire, acts));
        let thread = stage.app.client.thread().await;
        let mut listener = stage.listens(&thread).await;
        listener.receives("answer").await;
        stage.upstream.release.add_permits(1);
        let turn = listener.rest().await;
        stage.failed(&thread, &turn, "upstream_malformed", "Half an answer").await;

        stage.upstream.words("Whole.");
        let again = stage.app.client.resume(&thread).await;
        assert_eq!(again.text(), "Whole.", "{}", again.raw);
        let request = stage.next_turn_works(&thread).await;
        assert!(!request.to_string().contains("Half"), "what broke off is never sent: {request}");
    }
}
on_each_wire!(an_answer_without_its_end_keeps_its_received_text);

/// More than the length limit of an event.
const TOO_LONG: usize = 10 << 20;

async fn an_event_that_is_too_long_ends_the_turn(wire: Wire) {
    let stage = Stage::on(wire).await;
    let long = "x".repeat(TOO_LONG);
    let started = ScriptedAnswer::on(wire).words(&["So far."]).text();
    let whole = started.clone() + &ScriptedAnswer::on(wire).words(&[&long]).end().text();
    let endless = started.clone() + "data: " + &long;
    let comment = started.clone() + ": " + &long;
    let name = started + "event: " + &long;
    for bytes in [whole, endless, comment, name] {
        let pieces = bytes.as_bytes().chunks(1 << 16).map(|piece| ResponseAction::Send(piece.to_vec()));
        // The connection stays open, so that the reader has to end the answer.
        stage.upstream.then(RawResponse::streams(wire, pieces.chain([ResponseAction::Hang]).collect()));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_malformed", "So far.").await;
        assert!(turn.raw.len() < 4096, "{}", turn.raw.len());
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(an_event_that_is_too_long_ends_the_turn);

async fn an_invalid_event_ends_the_turn(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    let before = ScriptedAnswer::on(wire).words(&["So far."]).text();
    let surrogate = ScriptedAnswer::on(wire).words(&["lone"]).text().replace("lone", r"\ud800");
    let not_utf8 = ScriptedAnswer::on(wire).words(&["lone"]).text().replace("lone", "\u{7f}").into_bytes();
    let not_utf8 = not_utf8.into_iter().map(|byte| if byte == 0x7f { 0xff } else { byte }).collect();
    let rest = ScriptedAnswer::on(wire).end().text();
    for broken in
        [wire.frame("{").into_bytes(), wire.frame("nonsense").into_bytes(), surrogate.into_bytes(), not_utf8]
    {
        let bytes = [before.as_bytes(), &broken, rest.as_bytes()].concat();
        stage.upstream.then(RawResponse::sends(wire, [bytes]));
        let turn = stage.run_turn_in(&thread).await;
        if turn.all('3').is_empty() {
            // Invalid UTF-8 may be read as a replacement character.
            stage.is(&turn, "completed").await;
            assert!(turn.text().starts_with("So far.\u{fffd}"), "{}", turn.raw);
        } else {
            stage.failed(&thread, &turn, "upstream_malformed", "So far.").await;
        }
    }
    stage.next_turn_works(&thread).await;
}
on_each_wire!(an_invalid_event_ends_the_turn);

async fn a_nul_in_text_is_streamed_as_it_is_stored(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.answers(&ScriptedAnswer::on(wire).thinks(&["h\0", "m"]).words(&["a\0", "\0b"]).end());
    let (thread, turn) = stage.run_turn().await;
    stage.is(&turn, "completed").await;
    let kept = stage.app.client.messages(&thread).await.pop().unwrap();
    let thoughts: String = turn.all('g').iter().map(|piece| piece.as_str().unwrap()).collect();
    assert_eq!(kept["parts"][1], json!({ "type": "reasoning", "text": "h\u{fffd}m" }));
    assert_eq!(text(&kept), "a\u{fffd}\u{fffd}b");
    assert_eq!((turn.text(), thoughts.as_str()), (text(&kept), "h\u{fffd}m"), "as a reload shows it");
    // A provider that expects its reasoning back gets it unchanged.
    let request = stage.next_turn_works(&thread).await.to_string().replace(r"h\u0000m", "");
    assert!(request.contains(&text(&kept)) && !request.contains(r"\u0000"), "{request}");
}
on_each_wire!(a_nul_in_text_is_streamed_as_it_is_stored);

async fn a_page_in_place_of_an_answer_is_refused(wire: Wire) {
    let stage = Stage::on(wire).await;
    let page = "<html>\nSign in\n</html>";
    stage.upstream.then(RawResponse::answers(200, "text/html", vec![ResponseAction::Send(page.into())]));
    let (thread, turn) = stage.run_turn().await;
    let code = stage.run(&turn).await["error"]["code"].clone();
    assert!(code == "upstream_error" || code == "upstream_malformed", "{}", turn.raw);
    assert!(!turn.raw.contains("Sign in"), "{}", turn.raw);
    stage.failed(&thread, &turn, code.as_str().unwrap(), "").await;
    let request = stage.next_turn_works(&thread).await;
    assert_eq!(wire.calls(&request), [] as [(String, Value); 0]);
}
on_each_wire!(a_page_in_place_of_an_answer_is_refused);
