//! Sources and files that a model adds to its text.

use super::{Stage, on_each_wire};
use holdpoint_testkit::wires::WIRES;
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::wires::gemini::WIRE as GEMINI;
use holdpoint_testkit::{Ending, ScriptedAnswer, Wire};
use serde_json::{Value, json};

async fn sources_of_an_answer_are_streamed_and_stored_and_not_sent_back(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.answers(
        &ScriptedAnswer::on(wire)
            .words(&["Blue "])
            .source("https://example.com/a", Some("The sky"))
            .source("javascript:alert(1)", Some("Click"))
            .words(&["sky."])
            .source("https://example.com/a", Some("The sky again"))
            .source("https://example.com/b", None)
            .end(),
    );
    let (thread, turn) = stage.run_turn().await;
    stage.is(&turn, "completed").await;
    let words = if wire.facts().separates_texts { "Blue \n\nsky." } else { "Blue sky." };
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0hhed", words), "{}", turn.raw);
    let (a, b) = ("https://example.com/a", "https://example.com/b");
    let streamed = [
        json!({ "sourceType": "url", "id": a, "url": a, "title": "The sky" }),
        json!({ "sourceType": "url", "id": b, "url": b }),
    ];
    assert_eq!(turn.all('h'), streamed.iter().collect::<Vec<_>>());
    let kept = stage.app.client.messages(&thread).await.pop().unwrap();
    let parts = json!([
        { "type": "step_start" },
        { "type": "text", "text": words },
        { "type": "source", "url": a, "title": "The sky" },
        { "type": "source", "url": b },
    ]);
    assert_eq!(kept["parts"], parts);

    stage.upstream.words("Yes.");
    assert_eq!(stage.run_turn_in(&thread).await.text(), "Yes.");
    let requested = stage.upstream.last().to_string();
    assert!(
        requested.contains(json!(words).to_string().trim_matches('"')) && !requested.contains("example.com"),
        "{requested}"
    );
    stage.next_turn_works(&thread).await;
}
on_each_wire!(side by side sources_of_an_answer_are_streamed_and_stored_and_not_sent_back if has_sources);

#[tokio::test]
async fn a_source_in_an_unexpected_form_breaks_nothing() {
    let wires = WIRES.iter().flat_map(|wire| wire.facts().odd_sources.iter().map(|odd| (*wire, *odd)));
    let rows: Vec<_> = wires.collect();
    assert!(!rows.is_empty());
    for (wire, odd) in rows {
        let stage = Stage::on(wire).await;
        stage.upstream.answers(&ScriptedAnswer::on(wire).words(&["Hello."]).event(odd).end());
        let (_, turn) = stage.run_turn().await;
        stage.is(&turn, "completed").await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Hello."), "{odd}");
    }
}

#[tokio::test]
async fn sources_in_the_message_beside_the_last_delta_are_streamed() {
    let stage = Stage::on(CHAT).await;
    let page = json!({ "type": "url_citation", "url_citation": { "url": "https://example.com/" } });
    let message = json!({ "role": "assistant", "content": "Hello.", "annotations": [page] });
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "message": message }] });
    stage.upstream.answers(&ScriptedAnswer::on(CHAT).words(&["Hello."]).event(last.to_string()).end());
    let (_, turn) = stage.run_turn().await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0hed", "Hello."), "{}", turn.raw);
}

#[tokio::test]
async fn a_file_from_the_model_is_streamed_and_stored_in_its_position() {
    let stage = Stage::on(GEMINI).await;
    let drawn = |thought: bool| {
        let data = json!({ "mimeType": "image/png", "data": "iVBORw0=" });
        json!({ "inlineData": data, "thought": thought, "thoughtSignature": "s" }).to_string()
    };
    let answer = ScriptedAnswer::on(GEMINI).words(&["Look: "]).parts(&drawn(true)).parts(&drawn(false));
    stage.upstream.answers(&answer.words(&["A cat."]).end());
    let (thread, turn) = stage.run_turn().await;
    stage.is(&turn, "completed").await;
    assert_eq!(turn.codes(), "f0k0ed", "{}", turn.raw);
    assert_eq!(turn.one('k'), &json!({ "data": "iVBORw0=", "mimeType": "image/png" }));
    let kept = stage.app.client.messages(&thread).await.pop().unwrap();
    let parts = json!([
        { "type": "step_start" },
        { "type": "text", "text": "Look: " },
        { "type": "file", "url": "data:image/png;base64,iVBORw0=", "media_type": "image/png" },
        { "type": "text", "text": "A cat." },
    ]);
    assert_eq!(kept["parts"], parts);

    stage.upstream.words("Yes.");
    stage.run_turn_in(&thread).await;
    let requested = stage.upstream.last();
    assert_eq!(
        requested["contents"][1]["parts"],
        json!([{ "text": "Look: A cat." }]),
        "without its signature"
    );
}

#[tokio::test]
async fn a_file_that_is_too_long_or_not_base64_fails_the_turn() {
    let stage = Stage::on(GEMINI).await;
    for data in ["no Base64!".to_owned(), "AAAA".repeat(1 << 20)] {
        let file = json!({ "inlineData": { "mimeType": "image/png", "data": data } }).to_string();
        stage
            .upstream
            .answers(&ScriptedAnswer::on(GEMINI).words(&["Look: "]).parts(&file).ends(Ending::Stop));
        let (thread, turn) = stage.run_turn().await;
        let why = turn.error();
        assert!(why.starts_with("upstream_malformed: "), "{why}");
        assert_eq!(turn.all('k'), [] as [&Value; 0]);
        stage.next_turn_works(&thread).await;
    }
}
